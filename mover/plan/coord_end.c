// How a job ends: CLOSE to both agents, then their last words, or their loss, are waited for, each in its own
// time. What comes meanwhile still counts, so that the exit status is the same whatever is heard first.
//
// An agent that ends takes its connections with it, and the other one tells of them: that is hearsay, and
// counts only when nothing else tells why the job ends. Heard first, it is held back for a moment: the loss
// of the other's control connection names the one that is really lost.
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "mover/plan/coord_state.h"

enum { SECOND_NS = 1000000000, WHERE_BYTES = 400 };

// The failing storage that stopped the job, with what the next run finds and needs; `closed` NULL: the
// destination said nothing any more.
static void stop_told(struct coord *c, const struct msg_closed *closed)
{
    if (!c->stop_untold)
        return;
    c->stop_untold = false;
    if (closed != NULL)
        count_stop_words(c, closed, &c->stop);
    c->sink.problem(c->sink.arg, &c->stop);
}

static void end_if_closed(struct coord *c)
{
    if (c->phase != PHASE_CLOSE)
        return;
    for (unsigned n = 0; n < COORD_NODES; n++)
        if (!c->nodes[n].closed && !c->nodes[n].lost)
            return;
    stop_told(c, NULL);
    c->phase = PHASE_ENDED;
    c->deadline_ns = UINT64_MAX;
    int exit_status = c->exit_status;
    if (c->hearsay && !c->stopped && !c->finished)
        exit_status = err_exit_worse(exit_status, err_class_exit(ERR_LOST));
    c->sink.ended(c->sink.arg, exit_status, c->finished);
}

static void close_all(struct coord *c, bool finished, uint64_t now_ns)
{
    c->finished = finished;
    struct message m = {.type = MESSAGE_CLOSE, .close = {.finished = finished}};
    for (unsigned n = 0; n < COORD_NODES; n++)
        coord_send(c, n, &m);
    c->phase = PHASE_CLOSE;
    c->deadline_ns = now_ns + CLOSE_NS;
    end_if_closed(c);
}

void coord_stop(struct coord *c, const struct err *err, uint64_t now_ns)
{
    if (c->phase == PHASE_ENDED)
        return;
    c->suspicion.until_ns = UINT64_MAX; // what was held back: this is why the job ends
    int exit_status = err_exit_worse(c->exit_status, err_class_exit(err->class));
    // While the job closes, only what makes it end otherwise is worth a word.
    bool told = c->phase == PHASE_CLOSE && c->stopped && exit_status == c->exit_status;
    c->exit_status = exit_status;
    c->stopped = true;
    if (err->class == ERR_STORAGE && c->phase >= PHASE_LINK && c->phase < PHASE_CLOSE) {
        c->stop = *err; // told with what the destination says when it has closed
        c->stop_untold = true;
    } else if (!told) {
        c->sink.problem(c->sink.arg, err);
    }
    if (c->phase != PHASE_CLOSE)
        close_all(c, false, now_ns);
    else
        end_if_closed(c);
}

void coord_stop_words(struct coord *c, enum err_class class, unsigned node, uint64_t now_ns, const char *fmt,
                      ...)
{
    char text[TEXT_BYTES_MAX];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    struct err err;
    err_set(&err, class, 0, "", NULL, 0, "%s", text);
    if (node < COORD_NODES)
        snprintf(err.node, sizeof err.node, "%s", c->cfg.names[node]);
    coord_stop(c, &err, now_ns);
}

// Name and address of a node, as far as they are known.
static const char *where(const struct coord *c, unsigned node, char *out, size_t out_len)
{
    const char *name = c->cfg.names[node], *address = c->nodes[node].address;
    if (address[0] != '\0')
        snprintf(out, out_len, "%s (%s)", name, address);
    else if (c->cfg.dial_port[node] != 0)
        snprintf(out, out_len, "%s (%s, port %u)", name, c->cfg.dial_host[node], c->cfg.dial_port[node]);
    else
        snprintf(out, out_len, "%s", name);
    return out;
}

// The job ends on what an agent tells of the other.
static void stop_on_hearsay(struct coord *c, const struct err *err, uint64_t now_ns)
{
    c->hearsay = true;
    if (c->phase == PHASE_CLOSE)
        return;
    c->suspicion.until_ns = UINT64_MAX;
    c->sink.problem(c->sink.arg, err);
    close_all(c, false, now_ns);
}

static void suspicion_stop(struct coord *c, uint64_t now_ns)
{
    struct err err = c->suspicion.err;
    if (c->suspicion.node < COORD_NODES) {
        stop_on_hearsay(c, &err, now_ns);
        return;
    }
    c->suspicion.until_ns = UINT64_MAX;
    coord_stop(c, &err, now_ns);
}

void end_suspect(struct coord *c, unsigned node, const struct err *err, uint64_t now_ns)
{
    if (c->suspicion.until_ns != UINT64_MAX)
        return; // the first word counts
    c->suspicion.err = *err;
    c->suspicion.node = node;
    c->suspicion.until_ns = now_ns + SUSPECT_NS;
}

// The words of an agent that lost the other, for people: who, and where that is.
static void name_other(const struct coord *c, unsigned node, struct err *err)
{
    char other[WHERE_BYTES];
    where(c, coord_other(node), other, sizeof other);
    err->op[0] = '\0';
    if (err->os == ENODATA) // it was closed
        err->os = 0;
    snprintf(err->text, sizeof err->text, "lost the connection to %s", other);
}

void end_on_fail(struct coord *c, unsigned node, const struct message *message, uint64_t now_ns)
{
    struct err err;
    message_to_err(&message->fail, &err);
    // What one entry or stripe can have stops no agent: the exit status of a job that came to no end must say
    // so.
    enum err_action action = err_class_action(err.class);
    if (action == ERR_FAIL_ENTRY || action == ERR_RETRY_STRIPE)
        err.class = ERR_PROTOCOL;
    // A job that is finished has nothing more to lose.
    bool hearsay = (c->finished || strcmp(err.node, FAIL_OTHER) == 0) &&
                   err_class_exit(err.class) == err_class_exit(ERR_LOST);
    snprintf(err.node, sizeof err.node, "%s", c->cfg.names[node]);
    if (!hearsay) {
        c->nodes[node].failed = true;
        coord_stop(c, &err, now_ns);
    } else if (err.class == ERR_LOST && c->phase >= PHASE_LINK && c->phase < PHASE_CLOSE) {
        name_other(c, node, &err);
        end_suspect(c, node, &err, now_ns);
    } else {
        stop_on_hearsay(c, &err, now_ns);
    }
}

void end_on_finished(struct coord *c, unsigned node, const struct message *message, uint64_t now_ns)
{
    (void)node;
    if (message->finished.more != 0)
        return;
    if (c->suspicion.until_ns != UINT64_MAX) // an agent cannot go on: that is no end in order
        suspicion_stop(c, now_ns);
    else
        close_all(c, true, now_ns);
}

void end_on_closed(struct coord *c, unsigned node, const struct message *message, uint64_t now_ns)
{
    (void)now_ns;
    if (node == COORD_DEST)
        stop_told(c, &message->closed);
    c->sink.closed(c->sink.arg, node, &message->closed);
    c->nodes[node].closed = true;
    end_if_closed(c);
}

void coord_lost(struct coord *c, unsigned node, const struct err *err, uint64_t now_ns)
{
    if (c->phase == PHASE_ENDED || c->nodes[node].lost)
        return;
    c->nodes[node].lost = true;
    if (c->nodes[node].closed)
        return;
    if (c->nodes[node].failed) { // one without a place for the job does not wait for CLOSE
        end_if_closed(c);
        return;
    }
    char name[WHERE_BYTES];
    struct err told = *err;
    snprintf(told.node, sizeof told.node, "%s", where(c, node, name, sizeof name));
    coord_stop(c, &told, now_ns);
}

void coord_cancel(struct coord *c, uint64_t now_ns)
{
    struct err err;
    err_set(&err, ERR_INTERRUPTED, 0, "", NULL, 0, "interrupted; the same command goes on from here");
    coord_stop(c, &err, now_ns);
}

void coord_fail(struct coord *c, const struct err *err, uint64_t now_ns)
{
    coord_stop(c, err, now_ns);
}

// Agents that did not say their last word in time are left. One that never spoke was never there.
static void leave_silent(struct coord *c, uint64_t now_ns)
{
    for (unsigned n = 0; n < COORD_NODES; n++) {
        char name[WHERE_BYTES];
        bool silent = !c->nodes[n].closed && !c->nodes[n].lost;
        c->nodes[n].lost = c->nodes[n].lost || silent;
        if (silent)
            coord_stop_words(c, c->nodes[n].hello ? ERR_LOST : ERR_START, COORD_NODES, now_ns,
                             "%s did not end within %u s", where(c, n, name, sizeof name),
                             (unsigned)(CLOSE_NS / SECOND_NS));
    }
}

uint64_t end_tick(struct coord *c, uint64_t now_ns)
{
    if (c->phase == PHASE_CLOSE && now_ns >= c->deadline_ns)
        leave_silent(c, now_ns);
    else if (c->phase < PHASE_CLOSE && now_ns >= c->suspicion.until_ns)
        suspicion_stop(c, now_ns);
    return c->phase == PHASE_ENDED ? UINT64_MAX : u64_min(c->deadline_ns, c->suspicion.until_ns);
}
