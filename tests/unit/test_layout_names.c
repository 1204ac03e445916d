// Numbers and digest of a layout: what both ends and the coordinator hold against each other.
#include <CUnit/CUnit.h>
#include <errno.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>

#include "proto/wire.h"
#include "tests/unit/hex.h"
#include "tests/unit/tree.h"

static bool same_digest(const struct layout *a, const struct layout *b)
{
    struct digest x = layout_digest(a), y = layout_digest(b);
    return digest_equal(&x, &y);
}

static void test_place(void)
{
    const struct entry entries[] = {tree_file("a", 5 * MIB), tree_file("b", 1)};
    struct segment *s = tree_segment(0, entries, 2);
    struct need *n = tree_need_all(s);
    struct layout *l = tree_layout(s, n, MIB), *placed = tree_layout(s, n, MIB);
    static const uint64_t firsts[] = {0, 1, 12345678901, UINT64_MAX - 6};
    struct extent a[STRIPE_EXTENTS_MAX], b[STRIPE_EXTENTS_MAX];
    CU_ASSERT_EQUAL_FATAL(layout_count(l), 6);
    CU_ASSERT_EQUAL(layout_first(l), 0);
    for (size_t i = 0; i < ARRAY_LEN(firsts); i++) {
        CU_ASSERT_EQUAL(layout_place(placed, firsts[i]), 0);
        CU_ASSERT_EQUAL(layout_first(placed), firsts[i]);
        CU_ASSERT_TRUE(same_digest(l, placed)); // the place is no part of it
        for (uint64_t k = 0; k < 6; k++) {
            struct stripe x, y;
            layout_stripe(l, k, &x, a);
            layout_stripe(placed, firsts[i] + k, &y, b);
            CU_ASSERT_EQUAL(x.number, k);
            CU_ASSERT_EQUAL(y.number, firsts[i] + k);
            CU_ASSERT_TRUE(x.entry == y.entry && a[0].offset == b[0].offset && a[0].len == b[0].len);
        }
        uint64_t first = 0;
        CU_ASSERT_EQUAL(layout_entry_stripes(placed, 1, &first), 1);
        CU_ASSERT_EQUAL(first, firsts[i] + 5);
    }
    CU_ASSERT_EQUAL(layout_place(placed, UINT64_MAX - 5), -EOVERFLOW);
    CU_ASSERT_EQUAL(layout_first(placed), UINT64_MAX - 6); // untouched
    layout_free(l);
    layout_free(placed);
    need_free(n);
    segment_free(s);
}

// The destination's end of a segment: what it decodes, lays out and answers with.
struct end {
    struct segment *segment;
    struct need *need;
    struct layout *layout;
};

static void end_free(struct end *e)
{
    layout_free(e->layout);
    need_free(e->need);
    segment_free(e->segment);
}

// The other end of the same segment: need from its bytes, everything in memory of its own that holds other
// garbage.
static struct end other_end(const uint8_t *bytes, size_t len, const struct need *need, uint32_t stripe_bytes)
{
    struct end e = {0};
    uint8_t *answer = malloc(NEED_BYTES_MAX);
    CU_ASSERT_PTR_NOT_NULL_FATAL(answer);
    int64_t answer_len = need_encode(need, answer, NEED_BYTES_MAX);
    CU_ASSERT_FATAL(answer_len > 0);
    CU_ASSERT_EQUAL_FATAL(segment_decode(bytes, len, &e.segment), 0);
    CU_ASSERT_EQUAL_FATAL(need_decode(answer, (size_t)answer_len, e.segment, &e.need), 0);
    e.layout = tree_layout(e.segment, e.need, stripe_bytes);
    free(answer);
    return e;
}

static void check_same_stripes(const struct layout *a, const struct layout *b)
{
    struct extent *x = calloc(2 * STRIPE_EXTENTS_MAX, sizeof(*x)), *y = x + STRIPE_EXTENTS_MAX;
    CU_ASSERT_PTR_NOT_NULL_FATAL(x);
    CU_ASSERT_EQUAL_FATAL(layout_count(a), layout_count(b));
    CU_ASSERT_EQUAL(layout_bytes(a), layout_bytes(b));
    for (uint64_t i = 0; i < layout_count(a); i++) {
        struct stripe s, t;
        layout_stripe(a, i, &s, x);
        layout_stripe(b, i, &t, y);
        CU_ASSERT_TRUE(s.packed == t.packed && s.file_stripe == t.file_stripe &&
                       s.leaf_count == t.leaf_count);
        CU_ASSERT_EQUAL_FATAL(s.extent_count, t.extent_count);
        CU_ASSERT_EQUAL(memcmp(x, y, s.extent_count * sizeof(*x)), 0);
    }
    free(x);
}

// Segment and need cross the wire, memory differs at both ends, and the layouts do not.
static void test_both_ends(void)
{
    struct rnd r = rnd_begin("layout_names both_ends");
    for (int round = 0; round < 20; round++) {
        static const struct range data[] = {{0, 4096}, {2 * MIB, 5 * MIB}, {9 * MIB + 4096, 70}};
        const struct entry entries[] = {
            tree_dir("d"),
            tree_file("d/f", rnd_below(&r, 20 * MIB)),
            tree_sparse("d/s", 9 * MIB + 4166, data, 3),
            tree_file("g", rnd_below(&r, MIB)),
        };
        size_t len;
        uint8_t *bytes = tree_encode(3, entries, ARRAY_LEN(entries), &len);
        struct end one = {0};
        mallopt(M_PERTURB, 0x55);
        CU_ASSERT_EQUAL_FATAL(segment_decode(bytes, len, &one.segment), 0);
        one.need = tree_need_random(&r, one.segment);
        one.layout = tree_layout(one.segment, one.need, 2 * MIB);
        mallopt(M_PERTURB, 0xaa);
        struct end other = other_end(bytes, len, one.need, 2 * MIB);
        mallopt(M_PERTURB, 0);
        CU_ASSERT_TRUE(same_digest(one.layout, other.layout));
        check_same_stripes(one.layout, other.layout);
        end_free(&one);
        end_free(&other);
        free(bytes);
    }
}

// Every difference that matters shows in the digest, also one that leaves all counts as they are.
static void test_digest_differs(void)
{
    static const struct range one[] = {{0, 1}}, two[] = {{1, 1}}, both[] = {{0, 2}}, all[] = {{0, 9}};
    const struct entry entries[] = {tree_file("a", 9 * MIB), tree_file("b", 10), tree_file("c", 10)};
    const struct entry renamed[] = {tree_file("x", 9 * MIB), tree_file("b", 10), tree_file("c", 10)};
    struct segment *s = tree_segment(0, entries, 3), *named = tree_segment(0, renamed, 3);
    struct need *n[7];
    for (size_t i = 0; i < ARRAY_LEN(n); i++)
        n[i] = tree_need_all(s);
    CU_ASSERT_EQUAL(need_set(n[1], 0, NEED_LEAVES, one, 1), 0);
    CU_ASSERT_EQUAL(need_set(n[2], 0, NEED_LEAVES, two, 1), 0); // as many stripes and bytes
    CU_ASSERT_EQUAL(need_set(n[3], 0, NEED_LEAVES, both, 1), 0);
    CU_ASSERT_EQUAL(need_set(n[4], 1, NEED_NOTHING, NULL, 0), 0);
    CU_ASSERT_EQUAL(need_set(n[5], 2, NEED_NOTHING, NULL, 0), 0); // as many stripes and bytes
    CU_ASSERT_EQUAL(need_set(n[6], 0, NEED_LEAVES, all, 1), 0);   // another way to say n[0]
    struct layout *l[] = {
        tree_layout(s, n[0], 4 * MIB),     tree_layout(s, n[1], 4 * MIB), tree_layout(s, n[2], 4 * MIB),
        tree_layout(s, n[3], 4 * MIB),     tree_layout(s, n[4], 4 * MIB), tree_layout(s, n[5], 4 * MIB),
        tree_layout(named, n[0], 4 * MIB), tree_layout(s, n[0], 8 * MIB),
    };
    for (size_t i = 0; i < ARRAY_LEN(l); i++)
        for (size_t k = 0; k < i; k++)
            CU_ASSERT_FALSE(same_digest(l[i], l[k]));
    struct layout *again = tree_layout(s, n[6], 4 * MIB);
    CU_ASSERT_TRUE(same_digest(l[0], again));
    layout_free(again);
    for (size_t i = 0; i < ARRAY_LEN(l); i++)
        layout_free(l[i]);
    for (size_t i = 0; i < ARRAY_LEN(n); i++)
        need_free(n[i]);
    segment_free(s);
    segment_free(named);
}

// The digest as the header defines it, put together by hand.
static void test_digest_bytes(void)
{
    static const struct range data[] = {{0, 4096}, {3 * MIB, 4096}, {6 * MIB, 4096}, {12 * MIB, 9 * MIB}};
    static const struct range leaves[] = {{0, 7}, {8, 32}};
    const struct entry entries[] = {
        tree_file("a", 10),  tree_sparse("b", 40 * MIB, data, 4), tree_dir("c"),
        tree_file("d", MIB), tree_file("e", 7 * MIB + 1),
    };
    struct segment *s = tree_segment(77, entries, ARRAY_LEN(entries));
    struct need *n = tree_need_all(s);
    CU_ASSERT_EQUAL(need_set(n, 1, NEED_LEAVES, leaves, 2), 0);
    struct layout *l = tree_layout(s, n, 2 * MIB);
    const uint64_t body = 3 * 4096 + 9 * MIB + 7 * MIB + 1 + 10 + MIB;
    const uint64_t large[] = {0, 2, 3, 1, 6, 5, 0, 7, 8, 32}; // b: three runs, two ranges of leaves
    uint8_t buf[512];
    struct wire_writer w;
    wire_writer_init(&w, buf, sizeof(buf));
    wire_put_bytes(&w, "PSKL", 4);
    wire_put_u32(&w, 2 * MIB);
    wire_put_bytes(&w, s->digest.bytes, 16);
    wire_put_u64(&w, 77);
    wire_put_u64(&w, 2 + 1 + 5 + 4 + 1);
    wire_put_u64(&w, body);
    wire_put_u32(&w, 2); // large
    wire_put_u32(&w, 2); // packed
    wire_put_u32(&w, 1);
    wire_put_u32(&w, 3);
    wire_put_u32(&w, 2);
    for (size_t i = 0; i < ARRAY_LEN(large); i++)
        wire_put_u64(&w, large[i]);
    wire_put_u32(&w, 4); // e: one run of 4 stripes, all of its 8 leaves
    wire_put_u32(&w, 1);
    wire_put_u32(&w, 1);
    wire_put_u64(&w, 0);
    wire_put_u64(&w, 4);
    wire_put_u64(&w, 0);
    wire_put_u64(&w, 8);
    wire_put_u32(&w, 0); // a, in the first packed stripe
    wire_put_u32(&w, 0);
    wire_put_u32(&w, 3); // d, in the same
    wire_put_u32(&w, 0);
    int64_t len = wire_written(&w);
    CU_ASSERT_FATAL(len > 0);
    struct digest expected = digest_of(buf, (size_t)len), seen = layout_digest(l);
    CU_ASSERT_TRUE(digest_equal(&expected, &seen));
    layout_free(l);
    need_free(n);
    segment_free(s);
}

// The vector of PROTOCOL.md: a segment, the need that answers it, and the name of the layout.
static void test_vector(void)
{
    static const char segment_hex[] =
        "50534b4d0400000003000000000000000100000000000000"
        "01000000ed010000e803000064000000000000000000000000f1536500000000050000000600000001f15365000000002a00"
        "000000000000"
        "0100000064"
        "02010000a4010000e803000064000000050030000000000000f1536500000000050000000600000001f15365000000002a00"
        "000000000000"
        "03000000642f66020000000000000000000000001000000000000000002000000000000500100000000000"
        "03000000ff010000e803000064000000000000000000000000f1536500000000050000000600000001f15365000000002a00"
        "000000000000"
        "010000006c03000000642f66"
        "02000000a4010000e8030000640000000a0000000000000000f1536500000000050000000600000001f15365000000002a00"
        "000000000000"
        "0100000073";
    static const char need_hex[] = "50534b4e040000000300000000000000"
                                   "00"
                                   "0202000000"
                                   "00000000000000000100000000000000"
                                   "03000000000000000100000000000000"
                                   "00"
                                   "01";
    uint8_t bytes[512];
    struct segment *s = NULL;
    struct need *n = NULL;
    CU_ASSERT_EQUAL_FATAL(segment_decode(bytes, hex_bytes(segment_hex, bytes, sizeof(bytes)), &s), 0);
    CU_ASSERT_TRUE(hex_equal(s->digest.bytes, 16, "fbae4cfc1129617bb93740d344b439f4"));
    CU_ASSERT_EQUAL_FATAL(need_decode(bytes, hex_bytes(need_hex, bytes, sizeof(bytes)), s, &n), 0);
    struct layout *l = tree_layout(s, n, MIB);
    struct digest d = layout_digest(l);
    CU_ASSERT_TRUE(hex_equal(d.bytes, 16, "8a1ac5b864743fb7f75bd98399be0a8b"));
    CU_ASSERT_EQUAL(layout_count(l), 3);
    CU_ASSERT_EQUAL(layout_bytes(l), 4111);
    layout_free(l);
    need_free(n);
    segment_free(s);
}

static void test_stripe_sizes_refused(void)
{
    static const uint32_t sizes[] = {
        0, 1, MIB / 2, MIB - 1, MIB + 1, 3 * MIB, 2 * STRIPE_BYTES_MAX, UINT32_C(1) << 31, UINT32_MAX};
    const struct entry e = tree_file("a", 1);
    struct segment *s = tree_segment(0, &e, 1);
    struct need *n = tree_need_all(s);
    struct layout *l = NULL;
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++)
        CU_ASSERT_EQUAL(layout_new(s, n, sizes[i], &l), -EINVAL);
    CU_ASSERT_PTR_NULL(l);
    layout_free(NULL);
    need_free(n);
    segment_free(s);
}

static void test_need_of_another_segment_refused(void)
{
    const struct entry e = tree_file("a", 1);
    struct segment *s = tree_segment(5, &e, 1);
    struct need *other = need_new(6, 1), *longer = need_new(5, 2), *leaves = need_new(5, 1);
    static const struct range range[] = {{0, 1}};
    CU_ASSERT_EQUAL(need_set(leaves, 0, NEED_LEAVES, range, 1), 0); // of a packed file
    struct layout *l = NULL;
    CU_ASSERT_EQUAL(layout_new(s, other, MIB, &l), -EINVAL);
    CU_ASSERT_EQUAL(layout_new(s, longer, MIB, &l), -EINVAL);
    CU_ASSERT_EQUAL(layout_new(s, leaves, MIB, &l), -EINVAL);
    CU_ASSERT_PTR_NULL(l);
    need_free(other);
    need_free(longer);
    need_free(leaves);
    segment_free(s);
}

// More bytes than u64 says. No segment that was decoded gets so far: this one is made by hand.
static void test_overflow(void)
{
    struct entry entries[3];
    for (size_t i = 0; i < ARRAY_LEN(entries); i++)
        entries[i] = tree_file("a", FILE_BYTES_MAX);
    struct segment s = {.entry_count = 2, .entries = entries};
    struct need *two = tree_need_all(&s);
    struct layout *l = tree_layout(&s, two, MIB);
    CU_ASSERT_EQUAL(layout_bytes(l), 2 * FILE_BYTES_MAX);
    CU_ASSERT_EQUAL(layout_count(l), UINT64_C(1) << 44);
    layout_free(l);
    l = NULL;
    s.entry_count = 3;
    struct need *three = tree_need_all(&s);
    CU_ASSERT_EQUAL(layout_new(&s, three, MIB, &l), -EOVERFLOW);
    CU_ASSERT_PTR_NULL(l);
    need_free(two);
    need_free(three);
}

void suite_layout_names(void)
{
    CU_pSuite s = CU_add_suite("layout_names", NULL, NULL);
    CU_add_test(s, "place", test_place);
    CU_add_test(s, "both_ends", test_both_ends);
    CU_add_test(s, "digest_differs", test_digest_differs);
    CU_add_test(s, "digest_bytes", test_digest_bytes);
    CU_add_test(s, "vector", test_vector);
    CU_add_test(s, "stripe_sizes_refused", test_stripe_sizes_refused);
    CU_add_test(s, "need_of_another_segment_refused", test_need_of_another_segment_refused);
    CU_add_test(s, "overflow", test_overflow);
}
