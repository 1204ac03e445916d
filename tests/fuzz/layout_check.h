// What has to be true of the layout of any segment and need that were decoded, for the fuzz targets that get
// there.
#ifndef PENSTOCK_TESTS_FUZZ_LAYOUT_CHECK_H
#define PENSTOCK_TESTS_FUZZ_LAYOUT_CHECK_H

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "proto/layout.h"

enum { CHECKED_STRIPES = 64, DIGESTED_BYTES_MAX = 256 * KIB };

// The leaves of a body of zeros are known.
static inline void check_zero_body(const struct layout *l, const struct stripe *s, const struct extent *x,
                                   const struct leaf_span *spans)
{
    uint8_t *body = calloc(1, s->body_bytes);
    struct digest *leaves = calloc(s->leaf_count, sizeof(*leaves));
    struct digest_stream *scratch = digest_stream_new();
    assert(body != NULL && leaves != NULL && scratch != NULL);
    layout_digest_body(l, s, x, body, scratch, leaves);
    for (uint32_t i = 0; i < s->leaf_count; i++) {
        struct digest zeros = digest_zeros(spans[i].len);
        assert(digest_equal(&leaves[i], &zeros));
    }
    digest_stream_free(scratch);
    free(leaves);
    free(body);
}

// Extents lie in the file and in the stripe, ascend and do not touch; they make up the body.
static inline void check_extents(const struct layout *l, const struct stripe *s, const struct extent *x)
{
    const struct segment *segment = layout_segment(l);
    uint64_t body = 0, start = s->file_stripe * layout_stripe_bytes(l);
    for (uint32_t i = 0; i < s->extent_count; i++) {
        assert(x[i].len > 0 && x[i].entry < segment->entry_count);
        uint64_t size = segment->entries[x[i].entry].size;
        assert(x[i].offset < size && x[i].len <= size - x[i].offset);
        body += x[i].len;
        if (s->packed) {
            assert(x[i].offset == 0 && x[i].len == size && size <= PACKED_FILE_BYTES_MAX);
            assert(i == 0 || x[i].entry > x[i - 1].entry);
        } else {
            assert(x[i].entry == s->entry && size > PACKED_FILE_BYTES_MAX && x[i].offset >= start);
            assert(x[i].offset + x[i].len - start <= layout_stripe_bytes(l));
            assert(i == 0 || x[i].offset > x[i - 1].offset + x[i - 1].len);
        }
    }
    assert(body == s->body_bytes && body > 0 && body <= layout_stripe_bytes(l));
    assert(!s->packed || s->extent_count <= PACKED_EXTENTS_MAX);
}

// Returns the bytes of the stripe's body.
static inline uint64_t check_stripe(const struct layout *l, uint64_t number, bool digest)
{
    struct extent *x = calloc(STRIPE_EXTENTS_MAX, sizeof(*x));
    struct leaf_span *spans = calloc(STRIPE_LEAVES_MAX, sizeof(*spans));
    struct stripe s;
    assert(x != NULL && spans != NULL);
    layout_stripe(l, number, &s, x);
    assert(s.number == number && s.extent_count > 0 && s.extent_count <= STRIPE_EXTENTS_MAX);
    assert(s.leaf_count > 0 && s.leaf_count <= STRIPE_LEAVES_MAX);
    check_extents(l, &s, x);
    layout_leaves(l, &s, x, spans);
    uint64_t first, count = layout_entry_stripes(l, s.entry, &first);
    assert(count > 0 && number >= first && number - first < count);
    if (digest && s.body_bytes <= DIGESTED_BYTES_MAX)
        check_zero_body(l, &s, x, spans);
    free(spans);
    free(x);
    return s.body_bytes;
}

// Lays the segment out and looks at all stripes, or at the borders when they are many.
static inline void check_layout(const struct segment *segment, const struct need *need, uint32_t stripe_bytes)
{
    struct layout *l = NULL;
    int rc = layout_new(segment, need, stripe_bytes, &l);
    assert(rc == 0);
    rc = layout_place(l, 1000);
    assert(rc == 0);
    uint64_t count = layout_count(l), bytes = 0;
    for (uint64_t i = 0; i < count && i < CHECKED_STRIPES; i++)
        bytes += check_stripe(l, 1000 + i, i == 0);
    assert(count > CHECKED_STRIPES ? bytes <= layout_bytes(l) : bytes == layout_bytes(l));
    if (count > 0) {
        check_stripe(l, 1000 + count / 2, false);
        check_stripe(l, 1000 + count - 1, true);
    }
    layout_free(l);
}

#endif
