// See receiver.h. A bad head means that the stream is out of step: it is closed. Damage behind a good head
// costs that stripe only.
#include "mover/receiver.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "mover/stall.h"
#include "proto/seal.h"
#include "storage/sys.h"

enum { LOOK_MS = 1000 }; // how often a frame on its way is looked at

struct receiver {
    struct receiver_config cfg;
    struct stream *stream;
    struct engine *engine;
    struct slot *slots;
    struct slot *idle;
    struct digest_stream *scratch;
    struct digest *leaves; // as computed here, to be compared with those of the trailer
    // of the run
    int fd;
    struct seal *seal;
    uint64_t heads;  // heads accepted: the number of the next frame
    uint64_t frames; // frames received whole
    bool receiving;  // a receive is in flight
    bool ended;      // FRAME_END came
    bool watched;    // a body is on its way, and TCP tells how it comes
    struct stall_trickle trickle;
    int64_t failed;
    struct err words;
};

static void want_head(struct receiver *r);

static void slot_idle(struct receiver *r, struct slot *slot)
{
    worktab_put(r->cfg.dest->works, slot->work);
    slot->work = NULL;
    slot->next = r->idle;
    r->idle = slot;
    want_head(r);
}

static void fail(struct receiver *r, int64_t error, const char *words)
{
    if (r->failed != 0)
        return;
    r->failed = error;
    err_set(&r->words, ERR_STREAM, (int)-error, "receive", NULL, 0, "%s", words);
    shutdown(r->fd, SHUT_RDWR);
}

static void on_written(struct slot *slot)
{
    struct receiver *r = slot->owner;
    if (slot->io_error != 0)
        r->cfg.dest->write_failed(r->cfg.dest->arg, slot, (int)slot->io_error);
    else
        r->cfg.dest->written(r->cfg.dest->arg, slot);
    slot_idle(r, slot);
}

static void on_prepared(struct op *op, int64_t result)
{
    struct slot *slot = CONTAINER_OF(op, struct slot, op);
    struct receiver *r = slot->owner;
    if (result < 0) {
        r->cfg.dest->lost(r->cfg.dest->arg, slot->number);
        slot_idle(r, slot);
        return;
    }
    // A direct write of the file's tail is a whole block; the file gets its exact size when it is published.
    size_t body = slot->stripe.body_bytes;
    memset(slot->body + body, 0, (size_t)u64_align_up(body, BLOCK_BYTES) - body);
    slot->io_done = on_written;
    slot_io(slot, OP_WRITE);
}

static void on_small(struct op *op, int64_t result)
{
    struct slot *slot = CONTAINER_OF(op, struct slot, op);
    struct receiver *r = slot->owner;
    if (result < 0)
        r->cfg.dest->lost(r->cfg.dest->arg, slot->number);
    else
        r->cfg.dest->written(r->cfg.dest->arg, slot);
    slot_idle(r, slot);
}

static int prepare_call(void *arg)
{
    struct slot *slot = arg;
    struct receiver *r = slot->owner;
    return r->cfg.dest->prepare(r->cfg.dest->arg, slot);
}

static int small_call(void *arg)
{
    struct slot *slot = arg;
    struct receiver *r = slot->owner;
    return r->cfg.dest->small(r->cfg.dest->arg, slot);
}

static void write_stripe(struct receiver *r, struct slot *slot)
{
    slot->at_once = r->cfg.dest->in_memory;
    slot->nowhere = r->cfg.dest->memory;
    bool packed = slot->stripe.packed;
    // A large stripe whose file went bad at the source (then all of it has) carries nothing: `written` only
    // takes its status.
    if (!packed && slot->status[0].state != EXTENT_OK) {
        slot->io_error = 0;
        on_written(slot);
        return;
    }
    slot->op = (struct op){.kind = OP_CALL,
                           .call = packed ? small_call : prepare_call,
                           .arg = slot,
                           .at_once = slot->at_once,
                           .done = packed ? on_small : on_prepared};
    engine_start(r->engine, &slot->op);
}

// Tag, trailer and digests. false: damaged.
static bool check(struct receiver *r, struct slot *slot)
{
    const struct frame_head *f = &slot->frame;
    uint8_t *trailer = slot->body + f->body_bytes;
    if (r->seal != NULL &&
        seal_open(r->seal, f->sequence, slot->head, FRAME_HEAD_BYTES, slot->body,
                  (size_t)f->body_bytes + f->trailer_bytes, trailer + f->trailer_bytes) < 0)
        return false;
    if (trailer_decode(trailer, f->extents, f->leaves, slot->status, slot->leaves) < 0)
        return false;
    layout_digest_body(slot->work->layout, &slot->stripe, slot->extents, slot->body, r->scratch, r->leaves);
    return memcmp(r->leaves, slot->leaves, f->leaves * sizeof *r->leaves) == 0;
}

static void on_body(struct op *op, int64_t result)
{
    struct slot *slot = CONTAINER_OF(op, struct slot, op);
    struct receiver *r = slot->owner;
    const struct receiver_dest *dest = r->cfg.dest;
    r->receiving = r->watched = false;
    if (result < 0) {
        if (slot->work != NULL)
            dest->lost(dest->arg, slot->number);
        fail(r, result, "in the middle of a frame");
        slot_idle(r, slot);
        return;
    }
    r->frames++;
    want_head(r); // the next head comes in while this stripe is checked
    if (slot->work == NULL) {
        slot_idle(r, slot); // not wanted: received and forgotten
    } else if (check(r, slot)) {
        write_stripe(r, slot);
    } else {
        dest->damaged(dest->arg, slot);
        slot_idle(r, slot);
    }
}

// Whether the stripe is what the layout says it is.
static bool fits(const struct slot *slot)
{
    const struct frame_head *f = &slot->frame;
    return f->body_bytes == slot->stripe.body_bytes && f->extents == slot->stripe.extent_count &&
           f->leaves == slot->stripe.leaf_count;
}

// Looks the stripe up. -EPROTO: the sender breaks the rules.
static int accept_stripe(struct receiver *r, struct slot *slot)
{
    const struct frame_head *f = &slot->frame;
    if (f->sequence != r->heads || f->session != r->cfg.session || f->sealed != (r->seal != NULL) ||
        f->body_bytes > r->cfg.stripe_bytes)
        return -EPROTO;
    slot->segment = f->segment;
    slot->number = f->stripe;
    enum dest_answer answer = r->cfg.dest->arrive(r->cfg.dest->arg, f->segment, f->stripe, &slot->work);
    if (answer == DEST_FOREIGN)
        return -EPROTO;
    if (answer == DEST_DROP)
        return 0;
    layout_stripe(slot->work->layout, f->stripe, &slot->stripe, slot->extents);
    if (fits(slot))
        return 0;
    r->cfg.dest->lost(r->cfg.dest->arg, f->stripe);
    return -EPROTO;
}

static void watch_body(struct receiver *r)
{
    struct tcp_figures tcp;
    tcp_figures(r->fd, &tcp);
    r->watched = tcp.received > 0;
    stall_trickle_begin(&r->trickle, &tcp, r->cfg.rate_bytes_s, sys_clock_ns());
}

static void look_at_body(struct receiver *r)
{
    struct tcp_figures tcp;
    tcp_figures(r->fd, &tcp);
    if (stall_trickles(&r->trickle, &tcp, sys_clock_ns()))
        fail(r, -ETIMEDOUT, "a frame trickles");
}

static void on_head(struct op *op, int64_t result)
{
    struct slot *slot = CONTAINER_OF(op, struct slot, op);
    struct receiver *r = slot->owner;
    r->receiving = false;
    if (result < 0) {
        fail(r, result, result == -ENODATA ? "the sender closed the stream" : "in a frame head");
        slot_idle(r, slot);
        return;
    }
    int rc = frame_head_decode(slot->head, &slot->frame);
    if (rc == 0 && slot->frame.kind == FRAME_END) {
        r->ended = slot->frame.sequence == r->heads && slot->frame.session == r->cfg.session;
        if (!r->ended)
            fail(r, -EPROTO, "an end that is out of place");
        slot_idle(r, slot);
        return;
    }
    if (rc == 0)
        rc = accept_stripe(r, slot);
    if (rc < 0) {
        fail(r, rc, "a frame head that cannot be");
        slot_idle(r, slot);
        return;
    }
    r->heads++;
    slot->op =
        (struct op){.kind = OP_RECV,
                    .fd = r->fd,
                    .buf = slot->body,
                    .len = (size_t)slot->frame.body_bytes + slot->frame.trailer_bytes + FRAME_TAG_BYTES,
                    .done = on_body};
    r->receiving = true;
    watch_body(r);
    engine_start(r->engine, &slot->op);
}

static void want_head(struct receiver *r)
{
    if (r->receiving || r->idle == NULL || r->failed != 0 || r->ended)
        return;
    struct slot *slot = r->idle;
    r->idle = slot->next;
    slot->op = (struct op){
        .kind = OP_RECV, .fd = r->fd, .buf = slot->head, .len = FRAME_HEAD_BYTES, .done = on_head};
    r->receiving = true;
    engine_start(r->engine, &slot->op);
}

static void wake(void *engine)
{
    engine_wake(engine);
}

int receiver_new(const struct receiver_config *cfg, struct stream *stream, struct receiver **out)
{
    struct receiver *r = calloc(1, sizeof *r);
    if (r == NULL)
        return -ENOMEM;
    r->cfg = *cfg;
    r->stream = stream;
    int rc = engine_new(&cfg->engine, &r->engine, NULL);
    if (rc == 0)
        rc = slots_new(r->engine, cfg->slots, cfg->stripe_bytes, r, &r->slots);
    r->scratch = digest_stream_new();
    r->leaves = calloc(STRIPE_LEAVES_MAX, sizeof *r->leaves);
    if (rc == 0 && (r->scratch == NULL || r->leaves == NULL))
        rc = -ENOMEM;
    if (rc < 0) {
        receiver_free(r);
        return rc;
    }
    for (uint32_t i = 0; i < cfg->slots; i++) {
        r->slots[i].watch = cfg->watch;
        r->slots[i].next = r->idle;
        r->idle = &r->slots[i];
    }
    stream_set_wake(stream, wake, r->engine);
    *out = r;
    return 0;
}

void receiver_free(struct receiver *r)
{
    if (r == NULL)
        return;
    if (r->stream != NULL)
        stream_set_wake(r->stream, NULL, NULL);
    for (uint32_t i = 0; r->slots != NULL && i < r->cfg.slots; i++)
        r->cfg.dest->slot_end(r->cfg.dest->arg, &r->slots[i]);
    slots_free(r->slots, r->cfg.slots, r->cfg.stripe_bytes);
    digest_stream_free(r->scratch);
    free(r->leaves);
    engine_free(r->engine);
    free(r);
}

void receiver_run(struct receiver *r, const struct conn *conn, struct conn_end *end)
{
    r->fd = conn->fd;
    r->heads = r->frames = 0;
    r->failed = 0;
    r->receiving = r->ended = r->watched = false;
    r->words = (struct err){.class = ERR_NONE};
    int rc = r->cfg.encrypt ? seal_new(&conn->key_in, &r->seal) : 0;
    if (rc < 0)
        fail(r, rc, "no cipher");
    want_head(r);
    while (engine_in_flight(r->engine) > 0) {
        rc = engine_step(r->engine, r->watched ? LOOK_MS : -1);
        if (rc < 0)
            fail(r, rc, "the engine");
        if (r->watched)
            look_at_body(r);
    }
    seal_free(r->seal);
    r->seal = NULL;
    end->clean = r->ended && r->failed == 0;
    end->frames = r->frames;
    end->err = r->words;
}
