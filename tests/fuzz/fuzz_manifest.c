// A segment of the manifest. Input: u8 stripe size (0 to 4: 1 to 16 MiB), u16 length of the segment, the
// segment, and behind it what is needed of it: taken once as an encoded need, and once as choices from which
// a valid need is made. What decodes must encode to the same bytes, and its layout must hold together.
#include "tests/fuzz/layout_check.h"

#include "proto/wire.h"

static void check_same_bytes(const struct segment *s, const uint8_t *bytes, size_t len)
{
    struct segment_builder *b = segment_builder_new();
    assert(b != NULL);
    segment_builder_begin(b, s->number);
    for (uint32_t i = 0; i < s->entry_count; i++) {
        int rc = segment_builder_add(b, &s->entries[i]);
        assert(rc == 0);
    }
    size_t again_len;
    const uint8_t *again = segment_builder_end(b, s->last, &again_len);
    assert(again_len == len && memcmp(again, bytes, len) == 0);
    segment_builder_free(b);
}

// Ranges of leaves, a gap and a length for each from two bytes of the input: the larger the file, the
// coarser.
static uint32_t choose_leaves(struct wire_reader *r, uint64_t leaves, struct range *out, uint32_t max)
{
    uint64_t unit = 1 + leaves / 256, at = wire_get_u8(r) * unit;
    uint32_t count = 0;
    while (at < leaves && count < max && wire_left(r) >= 2) {
        uint64_t len = u64_min((1 + wire_get_u8(r)) * unit, leaves - at);
        out[count++] = (struct range){at, len};
        at += len + 1 + wire_get_u8(r) * unit;
    }
    return count;
}

static struct need *choose_need(const struct segment *s, struct wire_reader *r)
{
    struct need *n = need_new(s->number, s->entry_count);
    assert(n != NULL);
    for (uint32_t i = 0; i < s->entry_count; i++) {
        const struct entry *e = &s->entries[i];
        if (entry_data_bytes(e) == 0)
            continue;
        struct range leaves[64];
        uint8_t pick = wire_get_u8(r); // 0 at the end of the input
        uint32_t count = 0;
        if (pick % 4 == 2 && e->size > PACKED_FILE_BYTES_MAX)
            count = choose_leaves(r, u64_div_up(e->size, LEAF_BYTES), leaves, ARRAY_LEN(leaves));
        enum need_verdict verdict = count > 0 ? NEED_LEAVES : pick % 4 == 3 ? NEED_NOTHING : NEED_ALL;
        int rc = need_set(n, i, verdict, leaves, count);
        assert(rc == 0);
    }
    return n;
}

// A valid need goes over the wire and is laid out.
static void check_need(const struct segment *s, const struct need *n, uint32_t stripe_bytes)
{
    uint8_t *bytes = malloc(NEED_BYTES_MAX);
    assert(bytes != NULL);
    int64_t len = need_encode(n, bytes, NEED_BYTES_MAX);
    assert(len > 0);
    struct need *back = NULL;
    int rc = need_decode(bytes, (size_t)len, s, &back);
    assert(rc == 0);
    check_layout(s, back, stripe_bytes);
    need_free(back);
    free(bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    struct wire_reader r;
    wire_reader_init(&r, data, len);
    uint32_t stripe_bytes = (uint32_t)STRIPE_BYTES_MIN << wire_get_u8(&r) % 5;
    size_t segment_len = u64_min(wire_get_u16(&r), wire_left(&r));
    const uint8_t *bytes = wire_get_span(&r, segment_len);
    struct segment *s = NULL;
    if (bytes == NULL || segment_decode(bytes, segment_len, &s) < 0)
        return 0;
    check_same_bytes(s, bytes, segment_len);
    struct need *n = NULL;
    if (need_decode(r.at, wire_left(&r), s, &n) == 0) {
        check_layout(s, n, stripe_bytes);
        need_free(n);
    }
    n = choose_need(s, &r);
    check_need(s, n, stripe_bytes);
    need_free(n);
    segment_free(s);
    return 0;
}
