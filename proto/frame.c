#include "proto/frame.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "proto/wire.h"

enum {
    FRAME_MAGIC = 0x464b5350, // "PSKF"
    FLAG_SEALED = 1,
    HEAD_SUM_AT = FRAME_HEAD_BYTES - 8,
    STATUS_BYTES = 4,
    DIGEST_BYTES = sizeof(struct digest),
};

void frame_head_encode(const struct frame_head *head, uint8_t out[FRAME_HEAD_BYTES])
{
    struct wire_writer w;
    wire_writer_init(&w, out, FRAME_HEAD_BYTES);
    wire_put_u32(&w, FRAME_MAGIC);
    wire_put_u8(&w, WIRE_VERSION);
    wire_put_u8(&w, (uint8_t)head->kind);
    wire_put_u16(&w, head->sealed ? FLAG_SEALED : 0);
    wire_put_u32(&w, head->session);
    wire_put_u32(&w, head->extents);
    wire_put_u64(&w, head->segment);
    wire_put_u64(&w, head->stripe);
    wire_put_u64(&w, head->sequence);
    wire_put_u32(&w, head->body_bytes);
    wire_put_u32(&w, head->trailer_bytes);
    wire_put_u32(&w, head->leaves);
    wire_put_u32(&w, 0);
    wire_put_u64(&w, digest_check64(out, HEAD_SUM_AT));
    assert(wire_written(&w) == FRAME_HEAD_BYTES);
}

static int stripe_head_check(const struct frame_head *h)
{
    if (h->body_bytes > STRIPE_BYTES_MAX || h->trailer_bytes > TRAILER_BYTES_MAX)
        return -EMSGSIZE;
    if (h->extents < 1 || h->extents > STRIPE_EXTENTS_MAX || h->leaves < 1 || h->leaves > STRIPE_LEAVES_MAX)
        return -EPROTO;
    if (h->body_bytes < h->extents) // no extent is empty
        return -EPROTO;
    return h->trailer_bytes == trailer_bytes(h->extents, h->leaves) ? 0 : -EPROTO;
}

static int end_head_check(const struct frame_head *h)
{
    bool empty = h->segment == 0 && h->stripe == 0 && h->body_bytes == 0 && h->trailer_bytes == 0 &&
                 h->extents == 0 && h->leaves == 0;
    return empty ? 0 : -EPROTO;
}

int frame_head_decode(const uint8_t in[FRAME_HEAD_BYTES], struct frame_head *out)
{
    struct wire_reader r;
    wire_reader_init(&r, in, FRAME_HEAD_BYTES);
    uint32_t magic = wire_get_u32(&r);
    uint8_t version = wire_get_u8(&r);
    uint8_t kind = wire_get_u8(&r);
    uint16_t flags = wire_get_u16(&r);
    struct frame_head h = {.kind = kind, .sealed = (flags & FLAG_SEALED) != 0};
    h.session = wire_get_u32(&r);
    h.extents = wire_get_u32(&r);
    h.segment = wire_get_u64(&r);
    h.stripe = wire_get_u64(&r);
    h.sequence = wire_get_u64(&r);
    h.body_bytes = wire_get_u32(&r);
    h.trailer_bytes = wire_get_u32(&r);
    h.leaves = wire_get_u32(&r);
    uint32_t reserved = wire_get_u32(&r);
    uint64_t sum = wire_get_u64(&r);
    if (magic != FRAME_MAGIC || sum != digest_check64(in, HEAD_SUM_AT))
        return -EBADMSG;
    if (version != WIRE_VERSION || (flags & ~FLAG_SEALED) != 0 || reserved != 0 || wire_done(&r) < 0)
        return -EPROTO;
    if (kind != FRAME_STRIPE && kind != FRAME_END)
        return -EPROTO;
    int ret = kind == FRAME_STRIPE ? stripe_head_check(&h) : end_head_check(&h);
    if (ret == 0)
        *out = h;
    return ret;
}

size_t trailer_bytes(uint32_t extents, uint32_t leaves)
{
    return DIGEST_BYTES + (size_t)STATUS_BYTES * extents + (size_t)DIGEST_BYTES * leaves + 8;
}

void trailer_encode(const struct extent_status *status, uint32_t extents, const struct digest *leaves,
                    uint32_t leaf_count, uint8_t *out)
{
    size_t len = trailer_bytes(extents, leaf_count);
    struct digest stripe = digest_of(leaves, (size_t)DIGEST_BYTES * leaf_count);
    struct wire_writer w;
    wire_writer_init(&w, out, len);
    wire_put_bytes(&w, stripe.bytes, sizeof(stripe.bytes));
    for (uint32_t i = 0; i < extents; i++) {
        wire_put_u8(&w, (uint8_t)status[i].state);
        wire_put_u8(&w, 0);
        wire_put_u16(&w, status[i].os);
    }
    wire_put_bytes(&w, leaves, (size_t)DIGEST_BYTES * leaf_count);
    wire_put_u64(&w, digest_check64(out, len - 8));
    assert(wire_written(&w) == (int64_t)len);
}

static int status_decode(struct wire_reader *r, struct extent_status *out)
{
    uint8_t state = wire_get_u8(r);
    uint8_t reserved = wire_get_u8(r);
    uint16_t os = wire_get_u16(r);
    if (state > EXTENT_UNREADABLE || reserved != 0 || (os != 0 && state != EXTENT_UNREADABLE))
        return -EPROTO;
    *out = (struct extent_status){.state = state, .os = os};
    return 0;
}

int trailer_decode(const uint8_t *in, uint32_t extents, uint32_t leaf_count, struct extent_status *status,
                   struct digest *leaves)
{
    size_t len = trailer_bytes(extents, leaf_count), leaves_len = (size_t)DIGEST_BYTES * leaf_count;
    struct wire_reader r;
    wire_reader_init(&r, in + len - 8, 8);
    if (wire_get_u64(&r) != digest_check64(in, len - 8))
        return -EBADMSG;
    const uint8_t *leaves_in = in + len - 8 - leaves_len;
    struct digest stripe = digest_of(leaves_in, leaves_len);
    if (memcmp(stripe.bytes, in, sizeof(stripe.bytes)) != 0)
        return -EBADMSG;

    // Once to check and once to keep, so that nothing of a bad trailer reaches the caller.
    wire_reader_init(&r, in + DIGEST_BYTES, (size_t)STATUS_BYTES * extents);
    for (uint32_t i = 0; i < extents; i++) {
        struct extent_status unused;
        if (status_decode(&r, &unused) < 0)
            return -EPROTO;
    }
    wire_reader_init(&r, in + DIGEST_BYTES, (size_t)STATUS_BYTES * extents);
    for (uint32_t i = 0; i < extents; i++) {
        int ret = status_decode(&r, &status[i]);
        assert(ret == 0);
    }
    memcpy(leaves, leaves_in, leaves_len);
    return 0;
}
