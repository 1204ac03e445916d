// The line over files of any size: arithmetic on runs, stripes sampled at the borders.
#include <CUnit/CUnit.h>
#include <stdlib.h>

#include "tests/unit/tree.h"

static const uint32_t stripe_sizes[] = {MIB, 2 * MIB, 4 * MIB, 8 * MIB, 16 * MIB};

// A stripe with room for its extents.
struct shown {
    struct stripe stripe;
    struct extent extents[STRIPE_EXTENTS_MAX];
};

static struct shown *show_new(void)
{
    struct shown *s = malloc(sizeof(*s));
    CU_ASSERT_PTR_NOT_NULL_FATAL(s);
    return s;
}

static void show(const struct layout *l, uint64_t number, struct shown *s)
{
    layout_stripe(l, number, &s->stripe, s->extents);
}

// Stripe `k` of the only, dense and wholly needed file.
static void check_dense_stripe(const struct layout *l, uint64_t k, struct shown *s)
{
    uint64_t size = layout_segment(l)->entries[0].size, offset = k * layout_stripe_bytes(l);
    uint64_t len = u64_min(layout_stripe_bytes(l), size - offset);
    show(l, k, s);
    CU_ASSERT_EQUAL(s->stripe.packed, size <= PACKED_FILE_BYTES_MAX);
    CU_ASSERT_EQUAL(s->stripe.file_stripe, k);
    CU_ASSERT_EQUAL(s->stripe.extent_count, 1);
    CU_ASSERT_EQUAL(s->extents[0].offset, offset);
    CU_ASSERT_EQUAL(s->extents[0].len, len);
    CU_ASSERT_EQUAL(s->stripe.body_bytes, len);
    CU_ASSERT_EQUAL(s->stripe.leaf_count, u64_div_up(len, LEAF_BYTES));
    struct leaf_span leaves[STRIPE_BYTES_MAX / LEAF_BYTES];
    layout_leaves(l, &s->stripe, s->extents, leaves);
    for (uint32_t i = 0; i < s->stripe.leaf_count; i++) {
        CU_ASSERT_EQUAL(leaves[i].leaf, offset / LEAF_BYTES + i);
        CU_ASSERT_EQUAL(leaves[i].len, u64_min(LEAF_BYTES, size - leaves[i].leaf * LEAF_BYTES));
    }
}

static void check_dense(uint64_t size, uint32_t stripe_bytes, struct rnd *r)
{
    const struct entry e = tree_file("f", size);
    struct segment *s = tree_segment(0, &e, 1);
    struct need *n = tree_need_all(s);
    struct layout *l = tree_layout(s, n, stripe_bytes);
    uint64_t count = u64_div_up(size, stripe_bytes), first = 99;
    CU_ASSERT_EQUAL(layout_count(l), count);
    CU_ASSERT_EQUAL(layout_bytes(l), size);
    CU_ASSERT_EQUAL(layout_entry_stripes(l, 0, &first), count);
    struct shown *shown = show_new();
    for (uint64_t k = 0; k < u64_min(count, 3); k++) {
        check_dense_stripe(l, k, shown);
        check_dense_stripe(l, count - 1 - k, shown);
        check_dense_stripe(l, rnd_below(r, count), shown);
    }
    free(shown);
    layout_free(l);
    need_free(n);
    segment_free(s);
}

static void test_sizes(void)
{
    struct rnd r = rnd_begin("layout_huge sizes");
    for (size_t i = 0; i < ARRAY_LEN(stripe_sizes); i++) {
        const uint64_t stripe = stripe_sizes[i], one = 1;
        const uint64_t sizes[] = {
            0,       1,         stripe - 1, stripe,          stripe + 1, 2 * stripe,      2 * stripe + 1, MIB,
            MIB + 1, one << 31, one << 32,  (one << 32) + 1, one << 40,  (one << 62) + 5, FILE_BYTES_MAX,
        };
        for (size_t k = 0; k < ARRAY_LEN(sizes); k++)
            check_dense(sizes[k], (uint32_t)stripe, &r);
    }
}

// Pieces of the definition, every leaf range against every data range.
static uint32_t pieces_of(const struct entry *e, const struct entry_need *n, struct range *out)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < n->count; i++)
        for (uint32_t k = 0; k < e->data_count; k++) {
            uint64_t start = u64_max(n->leaves[i].offset * LEAF_BYTES, e->data[k].offset);
            uint64_t end = u64_min((n->leaves[i].offset + n->leaves[i].len) * LEAF_BYTES,
                                   e->data[k].offset + e->data[k].len);
            if (start < end)
                out[count++] = (struct range){start, end - start};
        }
    return count;
}

// The number of extents (0 or 1) of a one-file layout that hold `byte`; the stripe is found by its k.
static uint32_t holders(const struct layout *l, uint64_t byte, struct shown *s)
{
    uint64_t low = 0, high = layout_count(l), k = byte / layout_stripe_bytes(l);
    while (low < high) {
        uint64_t mid = low + (high - low) / 2;
        show(l, mid, s);
        if (s->stripe.file_stripe < k)
            low = mid + 1;
        else
            high = mid;
    }
    if (low == layout_count(l))
        return 0;
    show(l, low, s);
    uint32_t found = 0;
    for (uint32_t i = 0; i < s->stripe.extent_count; i++)
        found += byte >= s->extents[i].offset && byte - s->extents[i].offset < s->extents[i].len;
    return found;
}

static void check_pieces(const struct layout *l, const struct range *pieces, uint32_t count)
{
    struct shown *s = show_new();
    uint64_t stripes = 0, bytes = 0, next = 0; // next: first k that no piece has counted
    for (uint32_t i = 0; i < count; i++) {
        uint64_t start = pieces[i].offset, end = start + pieces[i].len;
        uint64_t first = u64_max(start / layout_stripe_bytes(l), next);
        next = (end - 1) / layout_stripe_bytes(l) + 1;
        stripes += next - first;
        bytes += pieces[i].len;
        CU_ASSERT_EQUAL(holders(l, start, s), 1);
        CU_ASSERT_EQUAL(holders(l, start + pieces[i].len / 2, s), 1);
        CU_ASSERT_EQUAL(holders(l, end - 1, s), 1);
        CU_ASSERT_EQUAL(holders(l, end, s), 0); // pieces never touch
        CU_ASSERT_TRUE(start == 0 || holders(l, start - 1, s) == 0);
    }
    CU_ASSERT_EQUAL(layout_count(l), stripes);
    CU_ASSERT_EQUAL(layout_bytes(l), bytes);
    free(s);
}

// Files of 2^62 bytes with ranges near and far: nothing but arithmetic, sampled at every border.
static void test_sparse(void)
{
    enum { DATA = 60, LEAVES = 40 };
    struct rnd r = rnd_begin("layout_huge sparse");
    const uint64_t size = (UINT64_C(1) << 62) + 12345;
    for (int round = 0; round < 20; round++) {
        struct range data[DATA], leaves[LEAVES], pieces[DATA + LEAVES];
        uint64_t far = UINT64_C(1) << (20 + rnd_below(&r, 30)); // in blocks
        uint32_t count = tree_data(&r, size, far, data, DATA);
        const struct entry e = tree_sparse("f", size, data, count);
        struct segment *s = tree_segment(0, &e, 1);
        struct need *n = need_new(0, 1);
        CU_ASSERT_FATAL(n != NULL && count > 0);
        count = tree_ranges(&r, u64_div_up(size, LEAF_BYTES), 1 + far / 256, leaves, LEAVES);
        CU_ASSERT_EQUAL_FATAL(need_set(n, 0, NEED_LEAVES, leaves, count), 0);
        struct layout *l = tree_layout(s, n, stripe_sizes[rnd_below(&r, ARRAY_LEN(stripe_sizes))]);
        check_pieces(l, pieces, pieces_of(&s->entries[0], &n->entries[0], pieces));
        layout_free(l);
        need_free(n);
        segment_free(s);
    }
}

void suite_layout_huge(void)
{
    CU_pSuite s = CU_add_suite("layout_huge", NULL, NULL);
    CU_add_test(s, "sizes", test_sizes);
    CU_add_test(s, "sparse", test_sparse);
}
