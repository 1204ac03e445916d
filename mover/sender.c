// See sender.h. A failed socket ends the run: nothing more is taken, operations drain, and the stripes of the
// attempt go back to the pool when the receiver has said how many frames came.
#include "mover/sender.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "mover/sender_files.h"
#include "mover/stall.h"
#include "proto/seal.h"
#include "storage/source.h"
#include "storage/sys.h"

#define NS_PER_S  UINT64_C(1000000000)
#define NS_PER_MS UINT64_C(1000000)
#define STATS_NS  NS_PER_S

enum { STEP_MS = 1000 }; // the thread looks around at least so often

struct sender {
    struct sender_config cfg;
    struct stream *stream;
    struct engine *engine;
    struct slot *slots;
    struct slot *idle;               // free slots
    struct slot *ready, **ready_end; // frames to be sent, in order
    struct sender_files files;
    struct digest_stream *scratch;
    // of the run
    int fd;
    uint32_t attempt;
    struct seal *seal;
    uint64_t frames; // queued so far: the number of the next
    bool sending;    // a send is in flight
    bool ending;     // the last frame is FRAME_END
    bool paces;      // what the kernel does not: a frame waits until those before it are through at the rate
    uint64_t due_ns; // with `paces`: when the next frame may go
    struct stall_path path;
    int64_t failed; // -errno of the socket
    struct err words;
    // of all runs
    uint64_t bytes, resent_bytes, started_ns, stats_ns, retransmits;
};

static void fill(struct sender *s);
static void send_next(struct sender *s);

static void slot_idle(struct sender *s, struct slot *slot)
{
    worktab_put(s->cfg.source->works, slot->work);
    slot->work = NULL;
    slot->next = s->idle;
    s->idle = slot;
}

static void fail(struct sender *s, int64_t error, const char *op)
{
    if (s->failed != 0)
        return;
    s->failed = error;
    err_set(&s->words, ERR_STREAM, (int)-error, op, NULL, 0, "%s", "");
    shutdown(s->fd, SHUT_RDWR);
}

// The stripe's bytes are in the slot: digest, trailer, seal, head; then it waits for its turn on the socket.
static void queue(struct sender *s, struct slot *slot)
{
    struct stripe *st = &slot->stripe;
    if (s->failed != 0 || !s->cfg.source->sending(s->cfg.source->arg, slot->number, stream_index(s->stream),
                                                  s->attempt, s->frames)) {
        slot_idle(s, slot);
        return;
    }
    layout_digest_body(slot->work->layout, st, slot->extents, slot->body, s->scratch, slot->leaves);
    uint8_t *trailer = slot->body + st->body_bytes;
    size_t trailer_len = trailer_bytes(st->extent_count, st->leaf_count);
    trailer_encode(slot->status, st->extent_count, slot->leaves, st->leaf_count, trailer);
    slot->frame = (struct frame_head){.kind = FRAME_STRIPE,
                                      .session = s->cfg.session,
                                      .segment = slot->segment,
                                      .stripe = slot->number,
                                      .sequence = s->frames,
                                      .body_bytes = st->body_bytes,
                                      .trailer_bytes = (uint32_t)trailer_len,
                                      .extents = st->extent_count,
                                      .leaves = st->leaf_count,
                                      .sealed = s->seal != NULL};
    frame_head_encode(&slot->frame, slot->head);
    uint8_t *tag = trailer + trailer_len;
    memset(tag, 0, FRAME_TAG_BYTES);
    if (s->seal != NULL) {
        int rc = seal_close(s->seal, s->frames, slot->head, FRAME_HEAD_BYTES, slot->body,
                            st->body_bytes + trailer_len, tag);
        if (rc < 0) {
            fail(s, rc, "seal");
            slot_idle(s, slot);
            return;
        }
    }
    s->frames++;
    slot->next = NULL;
    *s->ready_end = slot;
    s->ready_end = &slot->next;
    send_next(s);
}

// A read once more was needed since only the ctime differed; the second answer counts.
static void on_checked(struct op *op, int64_t result)
{
    struct slot *slot = CONTAINER_OF(op, struct slot, op);
    struct sender *s = slot->owner;
    if (result == SENDER_READ_AGAIN) {
        slot_io(slot, OP_READ);
        return;
    }
    queue(s, slot);
}

static void on_read(struct slot *slot)
{
    struct sender *s = slot->owner;
    sender_files_check(&s->files, slot, on_checked);
}

static void on_opened(struct op *op, int64_t result)
{
    struct slot *slot = CONTAINER_OF(op, struct slot, op);
    struct sender *s = slot->owner;
    if (result == 0)
        slot_io(slot, OP_READ);
    else
        queue(s, slot); // the status says why there are no bytes
}

static void on_packed(struct op *op, int64_t result)
{
    struct slot *slot = CONTAINER_OF(op, struct slot, op);
    (void)result; // what went wrong is in the status of its extent
    queue(slot->owner, slot);
}

static void begin(struct sender *s, struct slot *slot)
{
    layout_stripe(slot->work->layout, slot->number, &slot->stripe, slot->extents);
    memset(slot->status, 0, slot->stripe.extent_count * sizeof *slot->status);
    slot->segment = slot->work->number;
    slot->at_once = s->cfg.source->in_memory;
    slot->nowhere = s->cfg.source->memory;
    slot->io_done = on_read;
    if (slot->stripe.packed)
        sender_files_packed(&s->files, slot, on_packed);
    else
        sender_files_open(&s->files, slot, on_opened);
}

// Takes stripes while there are slots for them.
static void fill(struct sender *s)
{
    while (s->idle != NULL && s->failed == 0 && !s->ending) {
        struct slot *slot = s->idle;
        if (!s->cfg.source->take(s->cfg.source->arg, stream_index(s->stream), s->attempt, &slot->work,
                                 &slot->number, &slot->again))
            return;
        s->idle = slot->next;
        begin(s, slot);
    }
}

static void on_sent(struct op *op, int64_t result)
{
    struct slot *slot = CONTAINER_OF(op, struct slot, op);
    struct sender *s = slot->owner;
    s->sending = false;
    if (result < 0) {
        fail(s, result, "send");
    } else if (slot->frame.kind == FRAME_STRIPE) {
        s->bytes += slot->frame.body_bytes;
        if (slot->again)
            s->resent_bytes += slot->frame.body_bytes;
    }
    slot_idle(s, slot);
    send_next(s);
    fill(s);
}

// How long the next frame has to wait, and the thread with it, unless something else happens.
static uint64_t pace_ns(const struct sender *s)
{
    uint64_t now_ns = s->paces ? sys_clock_ns() : 0;
    return s->paces && now_ns < s->due_ns ? s->due_ns - now_ns : 0;
}

static int step_ms(const struct sender *s)
{
    if (s->sending || s->ready == NULL)
        return STEP_MS;
    return (int)u64_min(u64_div_up(pace_ns(s), NS_PER_MS), STEP_MS);
}

static void send_next(struct sender *s)
{
    if (s->sending || s->ready == NULL || pace_ns(s) > 0)
        return;
    struct slot *slot = s->ready;
    s->ready = slot->next;
    if (s->ready == NULL)
        s->ready_end = &s->ready;
    const struct frame_head *f = &slot->frame;
    size_t len = FRAME_HEAD_BYTES;
    if (f->kind == FRAME_STRIPE)
        len += f->body_bytes + f->trailer_bytes + FRAME_TAG_BYTES;
    slot->op = (struct op){.kind = OP_SEND, .fd = s->fd, .buf = slot->head, .len = len, .done = on_sent};
    s->sending = true;
    if (s->paces) // one that goes late by less than its own time is made good by the next
        s->due_ns = u64_max(s->due_ns + (uint64_t)len * NS_PER_S / s->cfg.rate_bytes_s, sys_clock_ns());
    engine_start(s->engine, &slot->op);
}

// Everything taken has been sent and the job is over: the stream says so.
static void say_end(struct sender *s)
{
    struct slot *slot = s->idle;
    assert(slot != NULL);
    s->idle = slot->next;
    s->ending = true;
    slot->frame = (struct frame_head){
        .kind = FRAME_END, .session = s->cfg.session, .sequence = s->frames, .sealed = s->seal != NULL};
    frame_head_encode(&slot->frame, slot->head);
    slot->next = NULL;
    *s->ready_end = slot;
    s->ready_end = &slot->next;
    send_next(s);
}

static void post_stats(struct sender *s, const struct tcp_figures *tcp, uint64_t now_ns)
{
    struct message m = {.type = MESSAGE_STREAM_STATS,
                        .stream_stats = {.session = s->cfg.session,
                                         .stream = stream_index(s->stream),
                                         .bytes = s->bytes,
                                         .resent_bytes = s->resent_bytes,
                                         .elapsed_us = (now_ns - s->started_ns) / 1000,
                                         .retransmits = s->retransmits + tcp->retransmits,
                                         .rtt_us = tcp->rtt_us}};
    mailbox_post(s->cfg.mailbox, &m);
}

// Once a second: what TCP says of the stream, and whether it stands still.
static void look_at_path(struct sender *s)
{
    uint64_t now_ns = sys_clock_ns();
    if (now_ns - s->stats_ns < STATS_NS)
        return;
    s->stats_ns = now_ns;
    struct tcp_figures tcp;
    tcp_figures(s->fd, &tcp);
    post_stats(s, &tcp, now_ns);
    if (stall_path_dead(&s->path, &tcp, now_ns))
        fail(s, -ETIMEDOUT, "send");
}

static void last_stats(struct sender *s)
{
    struct tcp_figures tcp;
    tcp_figures(s->fd, &tcp);
    post_stats(s, &tcp, sys_clock_ns());
    s->retransmits += tcp.retransmits;
}

static void wake(void *engine)
{
    engine_wake(engine);
}

int sender_new(const struct sender_config *cfg, struct stream *stream, struct sender **out)
{
    struct sender *s = calloc(1, sizeof *s);
    if (s == NULL)
        return -ENOMEM;
    s->cfg = *cfg;
    s->stream = stream;
    s->ready_end = &s->ready;
    int rc = engine_new(&cfg->engine, &s->engine, NULL);
    if (rc == 0)
        rc = slots_new(s->engine, cfg->slots, cfg->stripe_bytes, s, &s->slots);
    s->scratch = digest_stream_new();
    if (rc == 0 && s->scratch == NULL)
        rc = -ENOMEM;
    if (rc < 0) {
        sender_free(s);
        return rc;
    }
    sender_files_init(&s->files, s->engine, cfg->source->roots, cfg->source->direct, cfg->source->in_memory);
    for (uint32_t i = 0; i < cfg->slots; i++) {
        s->slots[i].watch = cfg->watch;
        s->slots[i].next = s->idle;
        s->idle = &s->slots[i];
    }
    s->started_ns = s->stats_ns = sys_clock_ns();
    stream_set_wake(stream, wake, s->engine);
    *out = s;
    return 0;
}

void sender_free(struct sender *s)
{
    if (s == NULL)
        return;
    if (s->stream != NULL)
        stream_set_wake(s->stream, NULL, NULL);
    sender_files_fini(&s->files);
    slots_free(s->slots, s->cfg.slots, s->cfg.stripe_bytes);
    digest_stream_free(s->scratch);
    engine_free(s->engine);
    free(s);
}

// Frames that were queued behind a failed socket are not sent.
static void drop_ready(struct sender *s)
{
    while (s->ready != NULL) {
        struct slot *slot = s->ready;
        s->ready = slot->next;
        slot_idle(s, slot);
    }
    s->ready_end = &s->ready;
}

void sender_run(struct sender *s, const struct conn *conn, struct conn_end *end)
{
    s->fd = conn->fd;
    s->attempt = conn->attempt;
    s->frames = 0;
    s->failed = 0;
    s->words = (struct err){.class = ERR_NONE};
    s->sending = s->ending = s->paces = false;
    s->due_ns = sys_clock_ns();
    stall_path_begin(&s->path, s->due_ns);
    int rc = s->cfg.encrypt ? seal_new(&conn->key_out, &s->seal) : 0;
    if (rc == 0 && s->cfg.rate_bytes_s > 0)
        rc = tcp_pace(s->fd, s->cfg.rate_bytes_s);
    if (rc == -EOPNOTSUPP) {
        s->paces = true; // inside ssh
        rc = 0;
    }
    if (rc < 0)
        fail(s, rc, "start the stream");
    for (;;) {
        fill(s);
        send_next(s);
        bool busy = engine_in_flight(s->engine) > 0 || s->ready != NULL;
        if (!busy && (s->failed != 0 || s->ending))
            break;
        if (!busy && stream_stopping(s->stream)) {
            say_end(s);
            continue;
        }
        rc = engine_step(s->engine, step_ms(s));
        if (rc < 0)
            fail(s, rc, "engine");
        if (s->failed != 0)
            drop_ready(s);
        look_at_path(s);
        if (tcp_broken(s->fd))
            fail(s, -ECONNRESET, "watch");
    }
    last_stats(s);
    if (s->failed == 0 && shutdown(s->fd, SHUT_WR) < 0)
        fail(s, -errno, "shutdown");
    seal_free(s->seal);
    s->seal = NULL;
    end->clean = s->failed == 0;
    end->frames = s->frames;
    end->err = s->words;
}
