// The streams of the model: they are dialled by the source, carry frames in order, and break.
#include <stdlib.h>

#include <CUnit/CUnit.h>

#include "proto/greet.h"
#include "tests/unit/plan_model.h"

static void pump(struct model *m, struct model_conn *conn);
static void dial_if_asked(struct model *m, struct model_stream *st);

static struct model_stream *stream_of(struct model *m, const struct model_conn *conn)
{
    return &m->streams[conn->stream];
}

static void say_linked(struct model *m, enum model_queue queue, const struct model_conn *conn)
{
    struct message message = {
        .type = MESSAGE_LINKED,
        .linked = {.kind = GREET_DATA, .stream = conn->stream, .attempt = conn->attempt}};
    model_post(m, queue, &message, NULL);
}

static void say_ended(struct model *m, enum model_queue queue, const struct model_conn *conn, uint64_t frames)
{
    struct message message = {
        .type = MESSAGE_STREAM_ENDED,
        .stream_ended = {.stream = conn->stream, .attempt = conn->attempt, .frames = frames}};
    model_post(m, queue, &message, NULL);
}

// ---- the destination's end ----

static void on_body(struct model *m, void *what, uint64_t number);

static void on_head(struct model *m, void *what, uint64_t number)
{
    (void)number;
    struct model_conn *conn = what;
    conn->receiving = false;
    if (conn->cut || conn->dest_over)
        return;
    conn->body = conn->frames[conn->heads++];
    enum dest_answer answer = dest_plan_arrive(m->dest, conn->body.segment->number, conn->body.stripe);
    CU_ASSERT_NOT_EQUAL_FATAL(answer, DEST_FOREIGN);
    conn->receiving = true;
    conn->taken = answer == DEST_TAKE;
    model_at(m, model_delay(m), on_body, conn, 0);
    pump(m, conn);
}

// Takes the next frame when there is one and a slot is free for it.
static void receive(struct model *m, struct model_conn *conn)
{
    if (stream_of(m, conn)->dest != conn || conn->receiving || conn->dest_over || conn->cut ||
        conn->heads == conn->sent || conn->writing >= MODEL_SLOTS)
        return;
    conn->receiving = true;
    conn->taken = false;
    model_at(m, model_delay(m), on_head, conn, 0);
}

static void on_body(struct model *m, void *what, uint64_t number)
{
    (void)number;
    struct model_conn *conn = what;
    if (conn->cut || conn->dest_over)
        return;
    conn->receiving = false;
    conn->whole++;
    if (conn->taken)
        model_dest_frame(m, conn, &conn->body);
    conn->taken = false;
    receive(m, conn);
}

static void dest_over(struct model *m, struct model_conn *conn)
{
    if (conn->dest_over)
        return;
    conn->dest_over = true;
    if (conn->receiving && conn->taken)
        dest_plan_lost(m->dest, conn->body.stripe);
    model_dest_group(m);
    model_conn_settle(m, conn);
}

static void dest_sees(struct model *m, void *what, uint64_t number)
{
    (void)number;
    dest_over(m, what);
}

static void take_given(struct model *m, struct model_stream *st)
{
    struct model_conn *conn = st->given;
    st->given = NULL;
    st->dest = conn;
    say_linked(m, QUEUE_FROM_DEST, conn);
    if (conn->cut)
        model_at(m, model_delay(m), dest_sees, conn, 0);
    receive(m, conn);
}

static void break_off(struct model *m, struct model_conn *conn);

static void given(struct model *m, void *what, uint64_t number)
{
    (void)number;
    struct model_conn *conn = what;
    struct model_stream *st = stream_of(m, conn);
    if (st->given != NULL)
        break_off(m, st->given); // never taken: closed without a word
    st->given = conn;
    if (st->dest != NULL)
        dest_over(m, st->dest); // an earlier attempt
    else
        take_given(m, st);
}

// ---- the source's end ----

struct reading {
    struct model_conn *conn;
    uint64_t segment, stripe;
    bool bad;
};

static void send_frame(struct model *m, struct model_conn *conn, const struct reading *r)
{
    if (conn->sent == conn->frame_room) {
        conn->frame_room = conn->frame_room > 0 ? 2 * conn->frame_room : 16;
        conn->frames = realloc(conn->frames, conn->frame_room * sizeof *conn->frames);
        CU_ASSERT_PTR_NOT_NULL_FATAL(conn->frames);
    }
    source_plan_sent(m->source, r->stripe, conn->stream, conn->attempt, conn->sent);
    conn->frames[conn->sent++] =
        (struct model_frame){.segment = model_segment_at(m, r->segment), .stripe = r->stripe, .bad = r->bad};
    if (model_chance(m, m->setup.cut, 1000))
        break_off(m, conn);
    receive(m, conn);
}

static void read_done(struct model *m, void *what, uint64_t number)
{
    (void)number;
    struct reading *r = what;
    struct model_conn *conn = r->conn;
    conn->reading--;
    if (!conn->source_over && source_plan_wanted(m->source, r->stripe, conn->stream, conn->attempt))
        send_frame(m, conn, r);
    free(r);
    model_conn_settle(m, conn);
    pump(m, conn);
}

// A file goes bad while it is read: then all that is read of it afterwards is.
static bool spoilt(struct model *m, struct model_segment *s, uint64_t stripe)
{
    struct model_stripe *st = &s->stripes[stripe - s->first];
    for (uint32_t i = 0; i < st->entries; i++) {
        struct model_entry *e = &s->entries[st->entry + i];
        e->bad = e->bad || model_chance(m, m->setup.spoil, 1000);
    }
    return s->entries[st->entry].bad && !s->entries[st->entry].packed;
}

// Takes stripes while there are slots for them.
static void pump(struct model *m, struct model_conn *conn)
{
    uint64_t segment, stripe;
    bool again;
    while (!conn->source_over && conn->reading + (conn->sent - conn->heads) < 2 * MODEL_SLOTS &&
           source_plan_take(m->source, conn->stream, conn->attempt, &segment, &stripe, &again)) {
        struct reading *r = malloc(sizeof *r);
        CU_ASSERT_PTR_NOT_NULL_FATAL(r);
        *r = (struct reading){.conn = conn, .segment = segment, .stripe = stripe};
        r->bad = spoilt(m, model_segment_at(m, segment), stripe);
        conn->reading++;
        model_at(m, model_delay(m), read_done, r, 0);
    }
}

void model_pump_all(struct model *m)
{
    for (uint32_t i = 0; i < m->stream_count; i++)
        if (m->streams[i].source != NULL)
            pump(m, m->streams[i].source);
}

static void source_sees(struct model *m, void *what, uint64_t number)
{
    (void)number;
    struct model_conn *conn = what;
    conn->source_over = true;
    model_conn_settle(m, conn);
}

// Nothing more arrives; both ends see it after a while.
static void break_off(struct model *m, struct model_conn *conn)
{
    if (conn->cut)
        return;
    conn->cut = true;
    model_at(m, model_delay(m), source_sees, conn, 0);
    if (stream_of(m, conn)->dest == conn)
        model_at(m, model_delay(m), dest_sees, conn, 0);
}

// Each end tells of its attempt when nothing of it is under way there any more, and is free for the next.
void model_conn_settle(struct model *m, struct model_conn *conn)
{
    struct model_stream *st = stream_of(m, conn);
    if (conn->dest_over && !conn->dest_told && conn->writing == 0) {
        conn->dest_told = true;
        say_ended(m, QUEUE_FROM_DEST, conn, conn->whole);
        st->dest = NULL;
        if (st->given != NULL)
            take_given(m, st);
    }
    receive(m, conn);
    if (conn->source_over && !conn->source_told && conn->reading == 0) {
        conn->source_told = true;
        say_ended(m, QUEUE_FROM_SOURCE, conn, conn->sent);
        st->source = NULL;
        dial_if_asked(m, st);
    }
}

// ---- dialling ----

static void dialled(struct model *m, void *what, uint64_t attempt)
{
    struct model_stream *st = what;
    uint32_t stream = (uint32_t)(st - m->streams);
    st->dialling = false;
    if (model_chance(m, m->setup.dial_fails, 100)) {
        struct message message = {
            .type = MESSAGE_LINK_FAILED,
            .link_failed = {.kind = GREET_DATA, .stream = stream, .attempt = (uint32_t)attempt}};
        model_post(m, QUEUE_FROM_SOURCE, &message, NULL);
        dial_if_asked(m, st);
        return;
    }
    struct model_conn *conn = calloc(1, sizeof *conn);
    CU_ASSERT_PTR_NOT_NULL_FATAL(conn);
    *conn = (struct model_conn){.stream = stream, .attempt = (uint32_t)attempt, .all = m->conns};
    m->conns = conn;
    conn->half = model_chance(m, m->setup.dial_fails, 200);
    st->source = conn;
    say_linked(m, QUEUE_FROM_SOURCE, conn);
    if (conn->half)
        break_off(m, conn);
    else
        model_at(m, model_delay(m), given, conn, 0);
    pump(m, conn);
}

static void dial_if_asked(struct model *m, struct model_stream *st)
{
    if (!st->redial || st->source != NULL || st->dialling)
        return;
    st->redial = false;
    st->dialling = true;
    model_at(m, model_delay(m), dialled, st, st->redial_attempt);
}

void model_redial(struct model *m, uint32_t stream, uint32_t attempt)
{
    struct model_stream *st = &m->streams[stream];
    st->redial = true;
    st->redial_attempt = attempt;
    if (st->source != NULL) {
        // The socket is closed here: the other end will see that.
        break_off(m, st->source);
        source_sees(m, st->source, 0);
    }
    dial_if_asked(m, st);
}

void model_dial_all(struct model *m)
{
    for (uint32_t i = 0; i < m->stream_count; i++)
        model_redial(m, i, 0);
}

void model_net_free(struct model *m)
{
    while (m->conns != NULL) {
        struct model_conn *conn = m->conns;
        m->conns = conn->all;
        free(conn->frames);
        free(conn);
    }
}
