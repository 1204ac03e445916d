// A frame's head and, behind it, its trailer: once as they come, and once with magic and checksums that fit,
// so that the rules behind them are reached. What decodes must encode to the same bytes.
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "proto/frame.h"
#include "proto/wire.h"

enum { SUM_BYTES = 8 };

static void put_sum(uint8_t *bytes, size_t len)
{
    struct wire_writer w;
    wire_writer_init(&w, bytes + len - SUM_BYTES, SUM_BYTES);
    wire_put_u64(&w, digest_check64(bytes, len - SUM_BYTES));
    assert(wire_written(&w) == SUM_BYTES);
}

static void try_trailer(const uint8_t *bytes, uint32_t extents, uint32_t leaf_count)
{
    size_t len = trailer_bytes(extents, leaf_count);
    struct extent_status *status = calloc(extents, sizeof(*status));
    struct digest *leaves = calloc(leaf_count, sizeof(*leaves));
    uint8_t *again = malloc(len);
    assert(status != NULL && leaves != NULL && again != NULL);
    if (trailer_decode(bytes, extents, leaf_count, status, leaves) == 0) {
        trailer_encode(status, extents, leaves, leaf_count, again);
        assert(memcmp(bytes, again, len) == 0);
    }
    free(again);
    free(leaves);
    free(status);
}

static void repair_trailer(uint8_t *bytes, uint32_t extents, uint32_t leaf_count)
{
    size_t len = trailer_bytes(extents, leaf_count), leaves_len = leaf_count * sizeof(struct digest);
    struct digest stripe = digest_of(bytes + len - SUM_BYTES - leaves_len, leaves_len);
    memcpy(bytes, stripe.bytes, sizeof(stripe.bytes));
    put_sum(bytes, len);
}

// The head at the start of `bytes`; whether it is that of a stripe.
static bool try_head(const uint8_t *bytes, struct frame_head *head)
{
    uint8_t again[FRAME_HEAD_BYTES];
    if (frame_head_decode(bytes, head) < 0)
        return false;
    frame_head_encode(head, again);
    assert(memcmp(bytes, again, sizeof(again)) == 0);
    return head->kind == FRAME_STRIPE;
}

static void try_repaired(uint8_t *bytes, size_t len)
{
    struct frame_head head;
    memcpy(bytes, "PSKF\x01", 5); // magic and version
    put_sum(bytes, FRAME_HEAD_BYTES);
    if (!try_head(bytes, &head) || len - FRAME_HEAD_BYTES < head.trailer_bytes)
        return;
    repair_trailer(bytes + FRAME_HEAD_BYTES, head.extents, head.leaves);
    try_trailer(bytes + FRAME_HEAD_BYTES, head.extents, head.leaves);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    struct frame_head head;
    if (len < FRAME_HEAD_BYTES)
        return 0;
    if (try_head(data, &head) && len - FRAME_HEAD_BYTES >= head.trailer_bytes)
        try_trailer(data + FRAME_HEAD_BYTES, head.extents, head.leaves);
    uint8_t *copy = malloc(len);
    assert(copy != NULL);
    memcpy(copy, data, len);
    try_repaired(copy, len);
    free(copy);
    return 0;
}
