// The leaves of a stripe: which they are, and their digests from the stripe's body.
#include "proto/layout.h"

#include <assert.h>

// Logical bytes of a leaf of a file: the last one ends with the file.
static uint32_t leaf_bytes(uint64_t size, uint64_t leaf)
{
    return (uint32_t)u64_min(LEAF_BYTES, size - leaf * LEAF_BYTES);
}

void layout_leaves(const struct layout *l, const struct stripe *stripe, const struct extent *extents,
                   struct leaf_span *spans)
{
    const struct entry *entries = layout_segment(l)->entries;
    uint32_t count = 0;
    uint64_t next = 0; // leaves before it are in `spans` or not touched
    for (uint32_t i = 0; i < stripe->extent_count; i++) {
        const struct extent *x = &extents[i];
        uint64_t behind = (x->offset + x->len - 1) / LEAF_BYTES + 1;
        uint64_t leaf = x->offset / LEAF_BYTES;
        if (!stripe->packed)
            leaf = u64_max(leaf, next);
        for (; leaf < behind; leaf++) {
            uint32_t len = leaf_bytes(entries[x->entry].size, leaf);
            spans[count++] = (struct leaf_span){.leaf = leaf, .entry = x->entry, .len = len};
        }
        next = behind;
    }
    assert(count == stripe->leaf_count);
}

// Where the digesting of a large stripe's body stands.
struct body_walk {
    const struct extent *x, *end; // the extent that `at` is in
    uint64_t at;                  // in the file: first byte of the extent that no leaf has had
    const uint8_t *body;          // where that byte is
};

// Moves on by `len` bytes of the current extent.
static void walk_on(struct body_walk *w, uint64_t len)
{
    w->body += len;
    w->at += len;
    if (w->at < w->x->offset + w->x->len)
        return;
    w->x++;
    if (w->x < w->end)
        w->at = w->x->offset;
}

// The digest of the leaf in which the walk stands, `start` and `len` being its logical bytes.
static struct digest walk_leaf(struct body_walk *w, uint64_t start, uint32_t len,
                               struct digest_stream *scratch)
{
    const uint8_t *body = w->body;
    uint64_t at = start, end = start + len;
    if (w->at == start && w->x->offset + w->x->len >= end) { // no hole: at one go
        walk_on(w, len);
        return digest_of(body, len);
    }
    digest_stream_reset(scratch);
    while (w->x < w->end && w->at < end) {
        uint64_t take = u64_min(w->x->offset + w->x->len, end) - w->at;
        digest_stream_add_zeros(scratch, w->at - at);
        digest_stream_add(scratch, w->body, take);
        at = w->at + take;
        walk_on(w, take);
    }
    digest_stream_add_zeros(scratch, end - at);
    return digest_stream_end(scratch);
}

static void digest_packed(const struct stripe *stripe, const struct extent *extents, const uint8_t *body,
                          struct digest *leaves)
{
    for (uint32_t i = 0; i < stripe->extent_count; i++) {
        leaves[i] = digest_of(body, extents[i].len);
        body += extents[i].len;
    }
}

void layout_digest_body(const struct layout *l, const struct stripe *stripe, const struct extent *extents,
                        const uint8_t *body, struct digest_stream *scratch, struct digest *leaves)
{
    if (stripe->packed) {
        digest_packed(stripe, extents, body, leaves);
        return;
    }
    uint64_t size = layout_segment(l)->entries[stripe->entry].size;
    struct body_walk w = {extents, extents + stripe->extent_count, extents[0].offset, body};
    uint32_t count = 0;
    while (w.x < w.end) {
        uint64_t leaf = w.at / LEAF_BYTES;
        leaves[count++] = walk_leaf(&w, leaf * LEAF_BYTES, leaf_bytes(size, leaf), scratch);
    }
    assert(count == stripe->leaf_count);
}
