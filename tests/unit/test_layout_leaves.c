// Digests: a file's leaves, gathered stripe by stripe, are those of its plain bytes, whatever the stripes and
// holes.
#include <CUnit/CUnit.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/tree.h"

// Content that has no period, with zeros where the file has holes.
static uint8_t *content(struct rnd *r, const struct entry *e)
{
    uint8_t *bytes = calloc(1, e->size + 8);
    CU_ASSERT_PTR_NOT_NULL_FATAL(bytes);
    const struct range all = {0, e->size};
    const struct range *data = e->sparse ? e->data : &all;
    uint32_t count = e->sparse ? e->data_count : 1;
    for (uint32_t i = 0; i < count; i++)
        for (uint64_t at = 0; at < data[i].len; at += 8) {
            uint64_t word = rnd_next(r);
            memcpy(bytes + data[i].offset + at, &word, u64_min(8, data[i].len - at));
        }
    return bytes;
}

// The leaves of plain bytes, and of them the digest of the file.
static struct digest plain_digest(const uint8_t *bytes, uint64_t size, struct digest *leaves)
{
    for (uint64_t i = 0; i < u64_div_up(size, LEAF_BYTES); i++)
        leaves[i] = digest_of(bytes + i * LEAF_BYTES, u64_min(LEAF_BYTES, size - i * LEAF_BYTES));
    return digest_file(leaves, size);
}

// Sends one stripe in thought: its body is read, digested, and each leaf put where it belongs. Every leaf
// comes once.
static void gather(const struct layout *l, uint64_t number, const uint8_t *bytes,
                   struct digest_stream *scratch, struct digest *leaves, uint8_t *seen)
{
    struct stripe stripe;
    struct extent *extents = calloc(STRIPE_EXTENTS_MAX, sizeof(*extents));
    uint8_t *body = malloc(layout_stripe_bytes(l)), *at = body;
    CU_ASSERT_FATAL(extents != NULL && body != NULL);
    layout_stripe(l, number, &stripe, extents);
    for (uint32_t i = 0; i < stripe.extent_count; at += extents[i++].len)
        memcpy(at, bytes + extents[i].offset, extents[i].len);
    struct digest of_stripe[STRIPE_LEAVES_MAX];
    struct leaf_span spans[STRIPE_LEAVES_MAX];
    layout_leaves(l, &stripe, extents, spans);
    layout_digest_body(l, &stripe, extents, body, scratch, of_stripe);
    for (uint32_t i = 0; i < stripe.leaf_count; i++) {
        leaves[spans[i].leaf] = of_stripe[i];
        seen[spans[i].leaf]++;
    }
    free(extents);
    free(body);
}

static void check_file(const struct entry *e, const uint8_t *bytes, uint32_t stripe_bytes)
{
    uint64_t count = u64_div_up(e->size, LEAF_BYTES);
    struct digest *plain = calloc(count + 1, sizeof(*plain)),
                  *gathered = calloc(count + 1, sizeof(*gathered));
    uint8_t *seen = calloc(count + 1, 1);
    struct digest_stream *scratch = digest_stream_new();
    CU_ASSERT_FATAL(plain != NULL && gathered != NULL && seen != NULL && scratch != NULL);
    struct segment *s = tree_segment(0, e, 1);
    struct need *n = tree_need_all(s);
    struct layout *l = tree_layout(s, n, stripe_bytes);
    for (uint64_t i = 0; i < layout_count(l); i++)
        gather(l, i, bytes, scratch, gathered, seen);
    for (uint64_t i = 0; i < count; i++) {
        CU_ASSERT_TRUE(seen[i] <= 1);
        if (seen[i] == 0) // all hole
            gathered[i] = digest_zeros(u64_min(LEAF_BYTES, e->size - i * LEAF_BYTES));
    }
    struct digest expected = plain_digest(bytes, e->size, plain), digest = digest_file(gathered, e->size);
    CU_ASSERT_EQUAL(memcmp(plain, gathered, count * sizeof(*plain)), 0);
    CU_ASSERT_TRUE(digest_equal(&digest, &expected));
    layout_free(l);
    need_free(n);
    segment_free(s);
    digest_stream_free(scratch);
    free(plain);
    free(gathered);
    free(seen);
}

static void check_all_stripes(const struct entry *e, struct rnd *r)
{
    uint8_t *bytes = content(r, e);
    for (uint32_t stripe = STRIPE_BYTES_MIN; stripe <= STRIPE_BYTES_MAX; stripe *= 2)
        check_file(e, bytes, stripe);
    free(bytes);
}

static const uint64_t sizes[] = {
    1, 4096, MIB - 1, MIB, MIB + 1, 2 * MIB, 5 * MIB + 123, 16 * MIB, 16 * MIB + 1, 33 * MIB - 1,
};

static void test_dense(void)
{
    struct rnd r = rnd_begin("layout_leaves dense");
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        const struct entry e = tree_file("f", sizes[i]);
        check_all_stripes(&e, &r);
    }
}

static void test_sparse(void)
{
    static const uint64_t steps[] = {1, 40, 300, 2000}; // blocks; a leaf has 256
    enum { RANGES = 4096 };
    struct rnd r = rnd_begin("layout_leaves sparse");
    struct range *data = calloc(RANGES, sizeof(*data));
    CU_ASSERT_PTR_NOT_NULL_FATAL(data);
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++)
        for (size_t k = 0; k < ARRAY_LEN(steps); k++) {
            uint32_t count = tree_data(&r, sizes[i], steps[k], data, RANGES);
            const struct entry e = tree_sparse("f", sizes[i], data, count);
            check_all_stripes(&e, &r);
        }
    free(data);
}

// Holes at the places where a walk over leaves could slip.
static void test_borders(void)
{
    static const struct {
        struct range data[3];
        uint32_t count;
    } table[] = {
        {{{0, 4096}}, 1},
        {{{MIB, MIB}}, 1},                                   // a whole leaf between holes
        {{{MIB - 4096, 8192}}, 1},                           // over the border of two leaves
        {{{0, MIB}, {3 * MIB, MIB}}, 2},                     //
        {{{4096, 3 * MIB - 8192}}, 1},                       // a whole leaf between two parts
        {{{0, 4096}, {MIB - 4096, 4096}, {4 * MIB, 17}}, 3}, // both ends of a leaf, and the tail
        {{{4 * MIB, 17}}, 1},                                // the short last leaf alone
        {{{0, 4 * MIB + 17}}, 1},                            // no hole
    };
    struct rnd r = rnd_begin("layout_leaves borders");
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        const struct entry e = tree_sparse("f", 4 * MIB + 17, table[i].data, table[i].count);
        check_all_stripes(&e, &r);
    }
}

// A packed stripe has a leaf per file, each over that file alone.
static void test_packed(void)
{
    enum { FILES = 5 };
    static const uint64_t small[FILES] = {1, 100, 4096, 300000, 5};
    static const char *const names[FILES] = {"a", "b", "c", "d", "e"};
    struct entry entries[FILES];
    for (size_t i = 0; i < FILES; i++)
        entries[i] = tree_file(names[i], small[i]);
    struct segment *s = tree_segment(0, entries, FILES);
    struct need *n = tree_need_all(s);
    struct layout *l = tree_layout(s, n, MIB);
    struct stripe stripe;
    struct extent extents[PACKED_EXTENTS_MAX];
    CU_ASSERT_EQUAL_FATAL(layout_count(l), 1);
    layout_stripe(l, 0, &stripe, extents);
    CU_ASSERT_EQUAL_FATAL(stripe.leaf_count, FILES);
    uint8_t *body = malloc(stripe.body_bytes), *at = body;
    struct digest_stream *scratch = digest_stream_new();
    CU_ASSERT_FATAL(body != NULL && scratch != NULL);
    for (uint32_t i = 0; i < stripe.body_bytes; i++)
        body[i] = (uint8_t)(i * 7 + i / 251);
    struct digest leaves[FILES];
    struct leaf_span spans[FILES];
    layout_digest_body(l, &stripe, extents, body, scratch, leaves);
    layout_leaves(l, &stripe, extents, spans);
    for (size_t i = 0; i < FILES; at += small[i++]) {
        struct digest expected = digest_of(at, small[i]);
        CU_ASSERT_TRUE(digest_equal(&leaves[i], &expected));
        CU_ASSERT_TRUE(spans[i].entry == i && spans[i].leaf == 0 && spans[i].len == small[i]);
    }
    digest_stream_free(scratch);
    free(body);
    layout_free(l);
    need_free(n);
    segment_free(s);
}

void suite_layout_leaves(void)
{
    CU_pSuite s = CU_add_suite("layout_leaves", NULL, NULL);
    CU_add_test(s, "dense", test_dense);
    CU_add_test(s, "sparse", test_sparse);
    CU_add_test(s, "borders", test_borders);
    CU_add_test(s, "packed", test_packed);
}
