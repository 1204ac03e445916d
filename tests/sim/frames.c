#include "tests/sim/frames.h"

#include <string.h>

#include "tests/sim/sched.h"
#include "tests/sim/world.h"

enum {
    HEAD_KIND = 5,
    HEAD_STRIPE = 24,
    HEAD_BODY = 40,
    HEAD_TRAILER = 44,
    KIND_STRIPE = 1,
};

void frames_init(struct frames *f, size_t greeting_bytes)
{
    *f = (struct frames){.stage = FRAMES_GREETING, .left = greeting_bytes};
}

static uint32_t little(const uint8_t *at)
{
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

static void flip(struct frames_found *out, size_t at)
{
    if (out->flips < FRAMES_FLIPS_MAX)
        out->flip_at[out->flips++] = at;
}

// A whole head has gone by; its last `fresh` bytes end before `at`.
static void begin_rest(struct frames *f, struct net_trouble *t, size_t at, size_t fresh,
                       struct frames_found *out)
{
    uint32_t body = little(f->head + HEAD_BODY);
    f->stage = FRAMES_REST;
    f->left = f->head[HEAD_KIND] == KIND_STRIPE
                  ? (uint64_t)body + little(f->head + HEAD_TRAILER) + FRAME_TAG_BYTES
                  : 0;
    f->flip_in = f->cut_in = UINT64_MAX;
    t->frames++;
    t->body_bytes += body;
    struct rng *rng = world_rng();
    if (rng_once_in(rng, t->flip_head_once_in)) {
        t->flipped_heads++;
        flip(out, at - 1 - rng_below(rng, fresh));
    } else if (f->left > 0 && rng_once_in(rng, t->flip_body_once_in)) {
        uint8_t *flips = &t->flips_of[f->head[HEAD_STRIPE]]; // there are few stripes
        t->flipped_bodies++;
        ++*flips;
        t->worst_flips = *flips > t->worst_flips ? *flips : t->worst_flips;
        f->flip_in = rng_below(rng, f->left);
    }
    if (rng_once_in(rng, t->cut_once_in))
        f->cut_in = rng_below(rng, f->left + 1);
    if (rng_once_in(rng, t->stall_once_in))
        out->stall_ns = rng_below(rng, 20 * NS_PER_S);
}

static size_t pass_head(struct frames *f, struct net_trouble *t, const uint8_t *bytes, size_t len, size_t at,
                        struct frames_found *out)
{
    size_t n = u64_min(len - at, FRAME_HEAD_BYTES - f->have);
    memcpy(f->head + f->have, bytes + at, n);
    f->have += n;
    if (f->have == FRAME_HEAD_BYTES)
        begin_rest(f, t, at + n, n, out);
    return n;
}

static size_t pass_rest(struct frames *f, size_t len, size_t at, struct frames_found *out)
{
    size_t n = u64_min(len - at, f->left);
    if (f->flip_in < n) {
        flip(out, at + f->flip_in);
        f->flip_in = UINT64_MAX;
    }
    f->flip_in -= f->flip_in == UINT64_MAX ? 0 : n;
    f->cut_in -= f->cut_in == UINT64_MAX ? 0 : n;
    f->left -= n;
    return n;
}

void frames_pass(struct frames *f, struct net_trouble *trouble, const uint8_t *bytes, size_t len,
                 struct frames_found *out)
{
    *out = (struct frames_found){.pass = len};
    for (size_t at = 0; at < len;) {
        if (f->stage == FRAMES_HEAD) {
            at += pass_head(f, trouble, bytes, len, at, out);
            continue;
        }
        if (f->stage == FRAMES_REST && f->cut_in != UINT64_MAX && f->cut_in <= u64_min(len - at, f->left)) {
            trouble->cuts++;
            out->pass = at + f->cut_in;
            return;
        }
        if (f->stage == FRAMES_REST) {
            at += pass_rest(f, len, at, out);
        } else {
            size_t n = u64_min(len - at, f->left);
            f->left -= n;
            at += n;
        }
        if (f->left == 0) {
            f->stage = FRAMES_HEAD;
            f->have = 0;
        }
    }
}
