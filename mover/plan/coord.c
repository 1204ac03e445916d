// The course of a job: phases, the dispatch of messages, counting, and how it ends. The opening is in
// coord_open.c, links in coord_link.c, segments and leases in coord_pool.c, counting in coord_count.c.
#include "mover/plan/coord.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mover/plan/coord_state.h"

// A copy that lives as long as the machine; NULL when out of memory.
static const uint8_t *own(struct coord *c, const void *bytes, size_t len)
{
    uint8_t *copy = malloc(len + 1);
    if (copy == NULL)
        return NULL;
    if (len > 0)
        memcpy(copy, bytes, len);
    copy[len] = '\0';
    assert(c->owned_count < ARRAY_LEN(c->owned));
    c->owned[c->owned_count++] = copy;
    return copy;
}

static bool own_blob(struct coord *c, struct blob *b)
{
    b->bytes = own(c, b->bytes, b->len);
    return b->bytes != NULL;
}

static bool own_text(struct coord *c, const char **text)
{
    *text = (const char *)own(c, *text, strlen(*text));
    return *text != NULL;
}

struct coord *coord_new(const struct coord_config *cfg, const struct coord_sink *sink)
{
    struct coord *c = calloc(1, sizeof *c);
    if (c == NULL)
        return NULL;
    c->cfg = *cfg;
    c->sink = *sink;
    c->deadline_ns = UINT64_MAX;
    bool ok = own_blob(c, &c->cfg.source_paths) && own_blob(c, &c->cfg.dest_path) &&
              own_text(c, &c->cfg.host) && own_text(c, &c->cfg.user) && own_text(c, &c->cfg.software);
    for (unsigned n = 0; n < COORD_NODES; n++)
        ok = ok && own_text(c, &c->cfg.names[n]) && own_text(c, &c->cfg.dial_host[n]);
    if (!ok) {
        coord_free(c);
        return NULL;
    }
    return c;
}

void coord_free(struct coord *c)
{
    if (c == NULL)
        return;
    pool_free(c);
    for (unsigned n = 0; n < COORD_NODES; n++)
        free(c->nodes[n].addresses);
    for (uint32_t i = 0; i < c->owned_count; i++)
        free(c->owned[i]);
    free(c->session.streams);
    free(c->sources);
    free(c->dest_names);
    seal_wipe(&c->cfg.secret, sizeof c->cfg.secret);
    free(c);
}

void coord_send(struct coord *c, unsigned node, const struct message *m)
{
    if (!c->nodes[node].lost && !c->nodes[node].closed)
        c->sink.send(c->sink.arg, node, m);
}

void coord_notice(struct coord *c, const char *fmt, ...)
{
    char text[1024];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    c->sink.notice(c->sink.arg, text);
}

static void end_if_closed(struct coord *c)
{
    if (c->phase != PHASE_CLOSE)
        return;
    for (unsigned n = 0; n < COORD_NODES; n++)
        if (!c->nodes[n].closed && !c->nodes[n].lost)
            return;
    c->phase = PHASE_ENDED;
    c->deadline_ns = UINT64_MAX;
    c->sink.ended(c->sink.arg, c->exit_status);
}

void coord_close_all(struct coord *c, bool finished, uint64_t now_ns)
{
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
    // A job that ends on an error closes its connections however it can: what is lost then says nothing more.
    if (!c->failed || err_class_exit(err->class) != err_class_exit(ERR_LOST))
        c->exit_status = err_exit_worse(c->exit_status, err_class_exit(err->class));
    bool first = c->phase != PHASE_CLOSE || (!c->failed && err->class == ERR_LOST);
    c->failed = c->failed || first;
    if (first)
        c->sink.problem(c->sink.arg, err);
    if (c->phase == PHASE_CLOSE) {
        end_if_closed(c);
        return;
    }
    coord_close_all(c, false, now_ns);
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

static void on_fail(struct coord *c, unsigned node, const struct message *message, uint64_t now_ns)
{
    struct err err;
    message_to_err(&message->fail, &err);
    // What one entry or stripe can have stops no agent: the exit status of a job that came to no end must say
    // so.
    enum err_action action = err_class_action(err.class);
    if (action == ERR_FAIL_ENTRY || action == ERR_RETRY_STRIPE)
        err.class = ERR_PROTOCOL;
    if (err.node[0] == '\0')
        snprintf(err.node, sizeof err.node, "%s", c->cfg.names[node]);
    coord_stop(c, &err, now_ns);
}

// All segments that are known are done: the files that changed are tried once more, then the closing pass
// runs. A job in which an entry was never spoken of again must not end well.
static void advance(struct coord *c, uint64_t now_ns)
{
    if (!pool_empty(c))
        return;
    if (c->phase == PHASE_RUN && c->counters.walked) {
        c->phase = PHASE_RETRY;
        struct message m = {.type = MESSAGE_RETRY};
        coord_send(c, COORD_SOURCE, &m);
    } else if (c->phase == PHASE_RETRY && c->retry_closed) {
        uint64_t settled = count_settled(&c->counters);
        if (settled < c->counters.total) {
            coord_stop_words(c, ERR_PROTOCOL, COORD_NODES, now_ns, "%llu entries were never settled",
                             (unsigned long long)(c->counters.total - settled));
            return;
        }
        c->phase = PHASE_FINISH;
        struct message m = {.type = MESSAGE_FINISH};
        coord_send(c, COORD_DEST, &m);
    }
}

static void on_segment_closed(struct coord *c, unsigned node, const struct message *message, uint64_t now_ns)
{
    const struct msg_segment_closed *m = &message->segment_closed;
    bool over = m->retry != 0 ? c->retry_closed : c->counters.walked;
    if ((c->phase == PHASE_RETRY) != (m->retry != 0) || over) {
        coord_stop_words(c, ERR_PROTOCOL, node, now_ns, "a segment out of its phase");
        return;
    }
    // What is to be tried again may fill more than one segment.
    c->retry_closed = m->retry != 0 && m->last != 0;
    // An empty one goes to nobody: the walk found nothing (more), or nothing is to be retried.
    if (m->entries > 0)
        pool_segment_closed(c, m, now_ns);
    else if (m->last)
        c->counters.walked = true;
    advance(c, now_ns);
}

static void on_segment_compared(struct coord *c, unsigned node, const struct message *message,
                                uint64_t now_ns)
{
    (void)node;
    const struct msg_segment_compared *m = &message->segment_compared;
    pool_layout(c, true, m->segment, m->stripes, m->bytes, &m->layout, now_ns);
}

static void on_segment_laid(struct coord *c, unsigned node, const struct message *message, uint64_t now_ns)
{
    (void)node;
    const struct msg_segment_laid *m = &message->segment_laid;
    pool_layout(c, false, m->segment, m->stripes, m->bytes, &m->layout, now_ns);
}

static void on_segment_done(struct coord *c, unsigned node, const struct message *message, uint64_t now_ns)
{
    (void)node;
    pool_segment_done(c, message->segment_done.segment, now_ns);
    advance(c, now_ns);
}

static void on_lease(struct coord *c, unsigned node, const struct message *message, uint64_t now_ns)
{
    (void)node;
    pool_leased(c, &message->lease, now_ns);
}

static void on_stripes_done(struct coord *c, unsigned node, const struct message *message, uint64_t now_ns)
{
    (void)node;
    pool_stripes_done(c, &message->stripes_done, now_ns);
}

static void on_stripe_bad(struct coord *c, unsigned node, const struct message *message, uint64_t now_ns)
{
    (void)node;
    (void)now_ns;
    coord_send(c, COORD_SOURCE, message);
}

static void on_finished(struct coord *c, unsigned node, const struct message *message, uint64_t now_ns)
{
    (void)node;
    (void)message;
    coord_close_all(c, true, now_ns);
}

static void on_closed(struct coord *c, unsigned node, const struct message *message, uint64_t now_ns)
{
    (void)now_ns;
    c->sink.closed(c->sink.arg, node, &message->closed);
    c->nodes[node].closed = true;
    end_if_closed(c);
}

static void on_stats(struct coord *c, unsigned node, const struct message *message, uint64_t now_ns)
{
    (void)now_ns;
    if (node == COORD_SOURCE)
        c->sink.stats(c->sink.arg, &message->stream_stats);
}

static void on_linked(struct coord *c, unsigned node, const struct message *message, uint64_t now_ns)
{
    link_linked(c, node, &message->linked, now_ns);
}

static void on_link_failed(struct coord *c, unsigned node, const struct message *message, uint64_t now_ns)
{
    link_failed(c, node, &message->link_failed, now_ns);
}

static void on_notice(struct coord *c, unsigned node, const struct message *message, uint64_t now_ns)
{
    (void)now_ns;
    const struct msg_notice *m = &message->notice;
    struct err err = {.class = ERR_NONE};
    char line[1024];
    blob_string(&m->op, err.op, sizeof err.op);
    blob_string(&m->path, err.path, sizeof err.path);
    blob_string(&m->text, err.text, sizeof err.text);
    snprintf(err.node, sizeof err.node, "%s", c->cfg.names[node]);
    coord_notice(c, "%s", err_line(&err, line, sizeof line));
}

static void on_ping(struct coord *c, unsigned node, const struct message *message, uint64_t now_ns)
{
    (void)now_ns;
    struct message pong = {.type = MESSAGE_PONG, .pong = {.cookie = message->ping.cookie}};
    coord_send(c, node, &pong);
}

static void on_pong(struct coord *c, unsigned node, const struct message *message, uint64_t now_ns)
{
    (void)c;
    (void)node;
    (void)message;
    (void)now_ns;
}

enum { FROM_SOURCE = 1 << COORD_SOURCE, FROM_DEST = 1 << COORD_DEST, FROM_ANY = FROM_SOURCE | FROM_DEST };

// Who may say what, and in which phases; what is not here breaks the rules.
static const struct {
    void (*handle)(struct coord *c, unsigned node, const struct message *message, uint64_t now_ns);
    unsigned from;
    enum coord_phase first, last;
} rules[MESSAGE_TYPES] = {
    [MESSAGE_HELLO] = {open_on_hello, FROM_ANY, PHASE_HELLO, PHASE_HELLO},
    [MESSAGE_FAIL] = {on_fail, FROM_ANY, PHASE_HELLO, PHASE_FINISH},
    [MESSAGE_PING] = {on_ping, FROM_ANY, PHASE_HELLO, PHASE_CLOSE},
    [MESSAGE_PONG] = {on_pong, FROM_ANY, PHASE_HELLO, PHASE_CLOSE},
    [MESSAGE_SOURCE_OPENED] = {open_on_source_opened, FROM_SOURCE, PHASE_OPEN_SOURCE, PHASE_OPEN_SOURCE},
    [MESSAGE_DEST_OPENED] = {open_on_dest_opened, FROM_DEST, PHASE_OPEN_DEST, PHASE_OPEN_DEST},
    [MESSAGE_LINKED] = {on_linked, FROM_ANY, PHASE_LINK, PHASE_FINISH},
    [MESSAGE_LINK_FAILED] = {on_link_failed, FROM_ANY, PHASE_LINK, PHASE_FINISH},
    [MESSAGE_STREAM_ENDED] = {link_stream_ended, FROM_ANY, PHASE_LINK, PHASE_CLOSE},
    [MESSAGE_SEGMENT_CLOSED] = {on_segment_closed, FROM_SOURCE, PHASE_RUN, PHASE_RETRY},
    [MESSAGE_SEGMENT_COMPARED] = {on_segment_compared, FROM_DEST, PHASE_RUN, PHASE_RETRY},
    [MESSAGE_SEGMENT_LAID] = {on_segment_laid, FROM_SOURCE, PHASE_RUN, PHASE_RETRY},
    // Words about stripes of files that failed may come when all entries are settled.
    [MESSAGE_LEASE] = {on_lease, FROM_DEST, PHASE_RUN, PHASE_FINISH},
    [MESSAGE_STRIPES_DONE] = {on_stripes_done, FROM_DEST, PHASE_RUN, PHASE_FINISH},
    [MESSAGE_STRIPE_BAD] = {on_stripe_bad, FROM_DEST, PHASE_RUN, PHASE_FINISH},
    [MESSAGE_ENTRIES_DONE] = {count_on_entries_done, FROM_DEST, PHASE_RUN, PHASE_RETRY},
    [MESSAGE_PROBLEM] = {count_on_problem, FROM_ANY, PHASE_RUN, PHASE_CLOSE},
    [MESSAGE_SEGMENT_DONE] = {on_segment_done, FROM_DEST, PHASE_RUN, PHASE_RETRY},
    [MESSAGE_FINISHED] = {on_finished, FROM_DEST, PHASE_FINISH, PHASE_FINISH},
    [MESSAGE_CLOSED] = {on_closed, FROM_ANY, PHASE_CLOSE, PHASE_CLOSE},
    [MESSAGE_NOTICE] = {on_notice, FROM_ANY, PHASE_HELLO, PHASE_CLOSE},
    [MESSAGE_STREAM_STATS] = {on_stats, FROM_ANY, PHASE_LINK, PHASE_CLOSE},
};

void coord_message(struct coord *c, unsigned node, const struct message *m, uint64_t now_ns)
{
    assert(node < COORD_NODES && m->type > 0 && m->type < MESSAGE_TYPES);
    if (c->phase == PHASE_ENDED || c->nodes[node].lost || c->nodes[node].closed)
        return;
    bool known = rules[m->type].handle != NULL && (rules[m->type].from & (1u << node)) != 0;
    if (known && c->phase >= rules[m->type].first && c->phase <= rules[m->type].last) {
        rules[m->type].handle(c, node, m, now_ns);
        return;
    }
    // While the job closes, words that were on their way are no fault.
    if (c->phase != PHASE_CLOSE)
        coord_stop_words(c, ERR_PROTOCOL, node, now_ns, "%s in the wrong place", message_name(m->type));
}

void coord_lost(struct coord *c, unsigned node, const struct err *err, uint64_t now_ns)
{
    if (c->phase == PHASE_ENDED || c->nodes[node].lost)
        return;
    c->nodes[node].lost = true;
    if (c->nodes[node].closed)
        return;
    coord_stop(c, err, now_ns);
    end_if_closed(c);
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

uint64_t coord_tick(struct coord *c, uint64_t now_ns)
{
    if (c->phase == PHASE_CLOSE && now_ns >= c->deadline_ns) {
        for (unsigned n = 0; n < COORD_NODES; n++) {
            if (c->nodes[n].lost || c->nodes[n].closed)
                continue;
            c->nodes[n].lost = true;
            coord_stop_words(c, ERR_LOST, n, now_ns, "it does not end the job");
        }
        c->exit_status = err_exit_worse(c->exit_status, err_class_exit(ERR_LOST));
        end_if_closed(c);
        return UINT64_MAX;
    }
    uint64_t wake_ns = link_tick(c, now_ns); // which may begin the closing
    return u64_min(c->deadline_ns, wake_ns);
}

void coord_counters(const struct coord *c, struct coord_counters *out)
{
    *out = c->counters;
    // The destination's word of what is settled may come before the source's of what there is.
    out->total = u64_max(out->total, count_settled(out));
}

const char *coord_engine(const struct coord *c, unsigned node)
{
    return c->nodes[node].engine;
}
