// The course of a job: phases and the dispatch of messages. The opening is in coord_open.c, links in
// coord_link.c, segments and leases in coord_pool.c, counting in coord_count.c, waits in coord_wait.c, the
// end in coord_end.c.
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
    c->deadline_ns = c->suspicion.until_ns = UINT64_MAX;
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

// All segments that are known are done: the files that changed are tried once more, then the closing pass
// runs. A job in which an entry was never spoken of again, or twice, must not end well.
static void advance(struct coord *c, uint64_t now_ns)
{
    if (!pool_empty(c))
        return;
    if (c->phase == PHASE_RUN && c->counters.walked) {
        c->phase = PHASE_RETRY;
        struct message m = {.type = MESSAGE_RETRY};
        coord_send(c, COORD_SOURCE, &m);
    } else if (c->phase == PHASE_RETRY && c->retry_closed) {
        uint64_t settled = count_settled(&c->counters), total = c->counters.total;
        if (c->retries > 0 || settled != total) {
            coord_stop_words(c, ERR_PROTOCOL, COORD_NODES, now_ns, "%llu of %llu entries were settled",
                             (unsigned long long)settled, (unsigned long long)total);
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

static uint64_t bytes_missing(const struct coord *c)
{
    const struct coord_counters *n = &c->counters;
    return n->bytes_needed > n->bytes_moved ? n->bytes_needed - n->bytes_moved : 0;
}

static void on_stripes_done(struct coord *c, unsigned node, const struct message *message, uint64_t now_ns)
{
    (void)node;
    const struct msg_stripes_done *m = &message->stripes_done;
    if (c->phase < PHASE_CLOSE)
        pool_stripes_done(c, m, now_ns);
    else // no work is given any more, but what became durable meanwhile is: the next run does not need it
        c->counters.bytes_moved += u64_min(m->bytes, bytes_missing(c));
}

static void on_stripe_bad(struct coord *c, unsigned node, const struct message *message, uint64_t now_ns)
{
    (void)node;
    (void)now_ns;
    coord_send(c, COORD_SOURCE, message);
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

static void on_stats(struct coord *c, unsigned node, const struct message *message, uint64_t now_ns)
{
    const struct msg_stream_stats *m = &message->stream_stats;
    if (node != COORD_SOURCE)
        return;
    if (m->session == 0 && m->stream < c->session.stream_count &&
        m->bytes > c->session.streams[m->stream].sent) {
        c->session.streams[m->stream].sent = m->bytes;
        c->progress_ns = now_ns;
    }
    c->sink.stats(c->sink.arg, m);
}

static void on_linked(struct coord *c, unsigned node, const struct message *message, uint64_t now_ns)
{
    link_linked(c, node, &message->linked, now_ns);
}

static void on_link_failed(struct coord *c, unsigned node, const struct message *message, uint64_t now_ns)
{
    link_failed(c, node, &message->link_failed, now_ns);
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

// Who may say what, and in which phases; what is not here breaks the rules. news: it tells of something new,
// so that whoever said it is at work.
static const struct {
    void (*handle)(struct coord *c, unsigned node, const struct message *message, uint64_t now_ns);
    unsigned from;
    enum coord_phase first, last;
    bool news;
} rules[MESSAGE_TYPES] = {
    [MESSAGE_HELLO] = {open_on_hello, FROM_ANY, PHASE_HELLO, PHASE_HELLO, true},
    [MESSAGE_FAIL] = {end_on_fail, FROM_ANY, PHASE_HELLO, PHASE_CLOSE, false},
    [MESSAGE_PING] = {on_ping, FROM_ANY, PHASE_HELLO, PHASE_CLOSE, false},
    [MESSAGE_PONG] = {on_pong, FROM_ANY, PHASE_HELLO, PHASE_CLOSE, false},
    [MESSAGE_SOURCE_OPENED] = {open_on_source_opened, FROM_SOURCE, PHASE_OPEN_SOURCE, PHASE_OPEN_SOURCE,
                               true},
    [MESSAGE_DEST_OPENED] = {open_on_dest_opened, FROM_DEST, PHASE_OPEN_DEST, PHASE_OPEN_DEST, true},
    [MESSAGE_LINKED] = {on_linked, FROM_ANY, PHASE_LINK, PHASE_FINISH, false},
    [MESSAGE_LINK_FAILED] = {on_link_failed, FROM_ANY, PHASE_LINK, PHASE_FINISH, false},
    [MESSAGE_STREAM_ENDED] = {link_stream_ended, FROM_ANY, PHASE_LINK, PHASE_CLOSE, false},
    [MESSAGE_SEGMENT_CLOSED] = {on_segment_closed, FROM_SOURCE, PHASE_RUN, PHASE_RETRY, true},
    [MESSAGE_SEGMENT_COMPARED] = {on_segment_compared, FROM_DEST, PHASE_RUN, PHASE_RETRY, true},
    [MESSAGE_SEGMENT_LAID] = {on_segment_laid, FROM_SOURCE, PHASE_RUN, PHASE_RETRY, true},
    // Words about stripes of files that failed may come when all entries are settled.
    [MESSAGE_LEASE] = {on_lease, FROM_DEST, PHASE_RUN, PHASE_FINISH, false},
    [MESSAGE_STRIPES_DONE] = {on_stripes_done, FROM_DEST, PHASE_RUN, PHASE_CLOSE, true},
    [MESSAGE_STRIPE_BAD] = {on_stripe_bad, FROM_DEST, PHASE_RUN, PHASE_FINISH, false},
    [MESSAGE_ENTRIES_DONE] = {count_on_entries_done, FROM_ANY, PHASE_RUN, PHASE_RETRY, true},
    [MESSAGE_PROBLEM] = {count_on_problem, FROM_ANY, PHASE_RUN, PHASE_CLOSE, true},
    [MESSAGE_SEGMENT_DONE] = {on_segment_done, FROM_DEST, PHASE_RUN, PHASE_RETRY, true},
    [MESSAGE_FINISHED] = {end_on_finished, FROM_DEST, PHASE_FINISH, PHASE_FINISH, true},
    [MESSAGE_NOTICE] = {on_notice, FROM_ANY, PHASE_OPEN_SOURCE, PHASE_CLOSE, true},
    [MESSAGE_CLOSED] = {end_on_closed, FROM_ANY, PHASE_CLOSE, PHASE_CLOSE, false},
    [MESSAGE_STREAM_STATS] = {on_stats, FROM_ANY, PHASE_LINK, PHASE_CLOSE, false},
};

// An agent that has not said who it is has nothing else to say, but that it takes no job at all.
static bool may_speak(const struct coord *c, unsigned node, enum message_type type)
{
    return c->nodes[node].hello || type == MESSAGE_HELLO || type == MESSAGE_FAIL || c->phase == PHASE_CLOSE;
}

void coord_message(struct coord *c, unsigned node, const struct message *m, uint64_t now_ns)
{
    assert(node < COORD_NODES && m->type > 0 && m->type < MESSAGE_TYPES);
    if (c->phase == PHASE_ENDED || c->nodes[node].lost || c->nodes[node].closed)
        return;
    bool known = rules[m->type].handle != NULL && (rules[m->type].from & (1u << node)) != 0;
    if (known && c->phase >= rules[m->type].first && c->phase <= rules[m->type].last &&
        may_speak(c, node, m->type)) {
        if (rules[m->type].news)
            c->progress_ns = now_ns;
        rules[m->type].handle(c, node, m, now_ns);
        return;
    }
    // While the job closes, words that were on their way are no fault.
    if (c->phase != PHASE_CLOSE)
        coord_stop_words(c, ERR_PROTOCOL, node, now_ns, "%s in the wrong place", message_name(m->type));
}

uint64_t coord_tick(struct coord *c, uint64_t now_ns)
{
    uint64_t wake_ns = u64_min(link_tick(c, now_ns), wait_tick(c, now_ns)); // which may end the job
    return u64_min(end_tick(c, now_ns), wake_ns);
}

void coord_counters(const struct coord *c, struct coord_counters *out)
{
    *out = c->counters;
    // The destination's word of what is settled may come before the source's of what there is.
    out->total += count_unclosed(c);
}

const char *coord_engine(const struct coord *c, unsigned node)
{
    return c->nodes[node].engine;
}
