// Sessions: who dials whom, and streams that are lost and dialled again.
#include "mover/plan/coord_state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void link_begin(struct coord *c, uint64_t now_ns)
{
    struct coord_session *s = &c->session;
    s->streams = calloc(c->cfg.streams, sizeof *s->streams);
    if (s->streams == NULL) {
        coord_stop_words(c, ERR_LOST, COORD_NODES, now_ns, "out of memory");
        return;
    }
    s->stream_count = c->cfg.streams;
    for (uint32_t i = 0; i < s->stream_count; i++)
        s->streams[i].wait_ns = REDIAL_FIRST_NS;
    if (!way_begin(c, now_ns))
        coord_stop_words(c, ERR_START, COORD_NODES, now_ns, "neither %s nor %s may dial",
                         c->cfg.names[COORD_SOURCE], c->cfg.names[COORD_DEST]);
}

// Whether there can be such a connection; else the job stops.
static bool connection_exists(struct coord *c, unsigned node, uint32_t session, unsigned kind,
                              uint32_t stream, uint64_t now_ns)
{
    if (session == 0 && (kind == GREET_PEER || (kind == GREET_DATA && stream < c->session.stream_count)))
        return true;
    coord_stop_words(c, ERR_PROTOCOL, node, now_ns, "stream %u (kind %u) of session %u does not exist",
                     stream, kind, session);
    return false;
}

// At the destination every attempt below `attempt` is over: the source learns of those whose end nobody told,
// with no frame received.
static void attempts_over(struct coord *c, uint32_t stream, uint32_t attempt)
{
    struct coord_stream *st = &c->session.streams[stream];
    for (; st->ended < attempt; st->ended++) {
        struct message m = {.type = MESSAGE_STREAM_ENDED,
                            .stream_ended = {.stream = stream, .attempt = st->ended}};
        coord_send(c, COORD_SOURCE, &m);
    }
}

static void peer_linked(struct coord *c, unsigned node, const struct msg_linked *m, uint64_t now_ns)
{
    struct coord_session *s = &c->session;
    s->peer[node] = true;
    err_escape(c->nodes[coord_other(node)].address, ADDRESS_BYTES_MAX, m->remote.bytes, m->remote.len);
    if (node == s->dialler && s->inside) {
        coord_notice(c, "no direct path between %s and %s; streams run inside ssh, %u of them",
                     c->cfg.names[COORD_SOURCE], c->cfg.names[COORD_DEST], s->stream_count);
    } else if (node == s->dialler) {
        char local[ADDRESS_BYTES_MAX], remote[ADDRESS_BYTES_MAX];
        blob_string(&m->local, local, sizeof local);
        blob_string(&m->remote, remote, sizeof remote);
        coord_notice(c, "the %s dials: %s -> %s, %u streams", node == COORD_SOURCE ? "source" : "destination",
                     local, remote, s->stream_count);
    }
    if (!s->peer[COORD_SOURCE] || !s->peer[COORD_DEST] || c->phase != PHASE_LINK)
        return;
    if (s->alone_ns != 0)
        s->alone_ns = now_ns; // the streams are dialled only now
    c->phase = PHASE_RUN;
    c->progress_ns = now_ns;
    struct message walk = {.type = MESSAGE_WALK,
                           .walk = {.avoid_dev = c->avoid_dev,
                                    .avoid_inode = c->avoid_inode,
                                    .names = blob_of(c->dest_names, c->dest_names_len)}};
    coord_send(c, COORD_SOURCE, &walk);
}

void link_linked(struct coord *c, unsigned node, const struct msg_linked *m, uint64_t now_ns)
{
    if (!connection_exists(c, node, m->session, m->kind, m->stream, now_ns))
        return;
    if (m->kind == GREET_PEER) {
        peer_linked(c, node, m, now_ns);
        return;
    }
    struct coord_stream *st = &c->session.streams[m->stream];
    if (m->attempt > st->attempt)
        return;
    if (node == COORD_DEST)
        attempts_over(c, m->stream, m->attempt);
    // One that the other end has told the end of does not stand.
    if (m->attempt < st->attempt || st->redialling)
        return;
    st->linked[node] = true;
    if (st->linked[coord_other(node)]) {
        st->wait_ns = REDIAL_FIRST_NS;
        c->session.alone_ns = 0;
        c->session.stood = true;
    }
}

// The stream will be dialled again after its back-off.
static void stream_down(struct coord *c, struct coord_stream *st, uint64_t now_ns)
{
    if (st->redialling)
        return;
    st->linked[COORD_SOURCE] = st->linked[COORD_DEST] = false;
    st->redialling = true;
    st->redial_ns = now_ns + st->wait_ns;
    st->wait_ns = u64_min(st->wait_ns * 2, REDIAL_MAX_NS);
    struct coord_session *s = &c->session;
    bool any = false;
    for (uint32_t i = 0; i < s->stream_count; i++)
        any = any || (s->streams[i].linked[COORD_SOURCE] && s->streams[i].linked[COORD_DEST]);
    if (!any && s->alone_ns == 0)
        s->alone_ns = now_ns;
}

// The peer connection could not be dialled this way.
static void peer_failed(struct coord *c, unsigned node, const char *text, uint64_t now_ns)
{
    const struct coord_session *s = &c->session;
    if (c->phase != PHASE_LINK) {
        coord_stop_words(c, ERR_PROTOCOL, node, now_ns, "a peer connection that stood was dialled again");
        return;
    }
    if (node == s->dialler)
        way_failed(c, text, now_ns);
}

void link_failed(struct coord *c, unsigned node, const struct msg_link_failed *m, uint64_t now_ns)
{
    if (!connection_exists(c, node, m->session, m->kind, m->stream, now_ns))
        return;
    char text[TEXT_BYTES_MAX];
    err_escape(text, sizeof text, m->text.bytes, m->text.len);
    if (m->kind == GREET_PEER) {
        peer_failed(c, node, text, now_ns);
        return;
    }
    struct coord_stream *st = &c->session.streams[m->stream];
    if (m->attempt != st->attempt)
        return;
    if (!st->redialling && st->wait_ns == REDIAL_FIRST_NS) // told once, until it stands
        coord_notice(c, "stream %u cannot be dialled (%s); trying again", m->stream, text);
    stream_down(c, st, now_ns);
}

void link_stream_ended(struct coord *c, unsigned node, const struct message *message, uint64_t now_ns)
{
    const struct msg_stream_ended *m = &message->stream_ended;
    if (!connection_exists(c, node, m->session, GREET_DATA, m->stream, now_ns))
        return;
    struct coord_stream *st = &c->session.streams[m->stream];
    if (m->attempt > st->attempt)
        return;
    if (node == COORD_DEST && m->attempt >= st->ended) {
        attempts_over(c, m->stream, m->attempt);
        st->ended = m->attempt + 1;
        coord_send(c, COORD_SOURCE, message);
    }
    if (c->phase >= PHASE_CLOSE || m->attempt < st->attempt)
        return;
    if (!st->redialling && !m->clean) {
        char text[TEXT_BYTES_MAX];
        err_escape(text, sizeof text, m->text.bytes, m->text.len);
        coord_notice(c, "stream %u lost at the %s (%s); dialling again", m->stream,
                     node == COORD_SOURCE ? "source" : "destination", text);
    }
    stream_down(c, st, now_ns);
}

// How long there may be no stream. Inside ssh the first may wait for somebody to type a password.
static uint64_t patience_ns(const struct coord_session *s)
{
    return s->inside && !s->stood ? LOGIN_NS + LOST_NS : LOST_NS;
}

uint64_t link_tick(struct coord *c, uint64_t now_ns)
{
    struct coord_session *s = &c->session;
    if (s->streams == NULL || c->phase < PHASE_LINK || c->phase >= PHASE_CLOSE)
        return UINT64_MAX;
    uint64_t wake = UINT64_MAX;
    for (uint32_t i = 0; i < s->stream_count; i++) {
        struct coord_stream *st = &s->streams[i];
        if (!st->redialling)
            continue;
        if (now_ns < st->redial_ns) {
            wake = u64_min(wake, st->redial_ns);
            continue;
        }
        st->redialling = false;
        st->attempt++;
        struct message m = {.type = MESSAGE_REDIAL, .redial = {.stream = i, .attempt = st->attempt}};
        coord_send(c, s->dialler, &m);
    }
    if (s->alone_ns == 0)
        return wake;
    uint64_t lost_ns = s->alone_ns + patience_ns(s);
    if (now_ns < lost_ns)
        return u64_min(wake, lost_ns);
    struct err err;
    err_set(&err, ERR_LOST, 0, "", NULL, 0, "no stream between %s and %s (%s) for %u s",
            c->cfg.names[s->dialler], c->cfg.names[coord_other(s->dialler)],
            c->nodes[coord_other(s->dialler)].address, (unsigned)(patience_ns(s) / UINT64_C(1000000000)));
    end_suspect(c, COORD_NODES, &err, now_ns);
    return wake;
}
