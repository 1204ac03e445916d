// The need: what is answered comes over as it was said, and nothing else comes over.
#include <CUnit/CUnit.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "proto/wire.h"
#include "tests/unit/tree.h"

enum { SMALL, LARGE, HOLLOW, EMPTY, DIR, LINK, ENTRIES }; // entries of the segment that is answered

enum { LARGE_LEAVES = 11 }; // 10 MiB and a byte

static struct segment *asked(void)
{
    struct entry entries[ENTRIES] = {
        [SMALL] = tree_file("small", MIB),
        [LARGE] = tree_file("large", 10 * MIB + 1),
        [HOLLOW] = tree_sparse("hollow", 10 * MIB, NULL, 0),
        [EMPTY] = tree_file("empty", 0),
        [DIR] = tree_dir("dir"),
        [LINK] = tree_link("link", "dir"),
    };
    return tree_segment(7, entries, ENTRIES);
}

static struct need *answered(void)
{
    static const struct range leaves[] = {{0, 1}, {2, 3}, {10, 1}};
    struct need *n = need_new(7, ENTRIES);
    CU_ASSERT_PTR_NOT_NULL_FATAL(n);
    CU_ASSERT_EQUAL_FATAL(need_set(n, SMALL, NEED_ALL, NULL, 0), 0);
    CU_ASSERT_EQUAL_FATAL(need_set(n, LARGE, NEED_LEAVES, leaves, ARRAY_LEN(leaves)), 0);
    return n;
}

static void test_bytes(void)
{
    static const uint8_t expected[] = {
        'P', 'S', 'K', 'N', 6, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, // head
        1,                                                      // small: all
        2,   3,   0,   0,   0,                                  // large: three ranges
        0,   0,   0,   0,   0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, //
        2,   0,   0,   0,   0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, //
        10,  0,   0,   0,   0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, //
        0,   0,   0,   0,                                       // the others: nothing
    };
    struct need *n = answered();
    uint8_t bytes[256];
    CU_ASSERT_EQUAL_FATAL(need_encode(n, bytes, sizeof(bytes)), sizeof(expected));
    CU_ASSERT_EQUAL(memcmp(bytes, expected, sizeof(expected)), 0);
    CU_ASSERT_EQUAL(need_encode(n, bytes, sizeof(expected)), sizeof(expected));
    CU_ASSERT_EQUAL(need_encode(n, bytes, sizeof(expected) - 1), -EMSGSIZE);
    need_free(n);
}

static void check_equal(const struct need *a, const struct need *b)
{
    CU_ASSERT_EQUAL(a->segment, b->segment);
    CU_ASSERT_EQUAL_FATAL(a->entry_count, b->entry_count);
    for (uint32_t i = 0; i < a->entry_count; i++) {
        const struct entry_need *x = &a->entries[i], *y = &b->entries[i];
        CU_ASSERT_EQUAL(x->verdict, y->verdict);
        CU_ASSERT_EQUAL_FATAL(x->count, y->count);
        for (uint32_t k = 0; k < x->count; k++) {
            CU_ASSERT_EQUAL(x->leaves[k].offset, y->leaves[k].offset);
            CU_ASSERT_EQUAL(x->leaves[k].len, y->leaves[k].len);
        }
    }
}

static void test_round_trip(void)
{
    struct rnd r = rnd_begin("need");
    uint8_t *bytes = malloc(NEED_BYTES_MAX);
    for (int round = 0; round < 50; round++) {
        struct segment *s = tree_random(&r, (uint32_t)rnd_below(&r, 60), 40 * MIB);
        struct need *n = tree_need_random(&r, s);
        int64_t len = need_encode(n, bytes, NEED_BYTES_MAX);
        CU_ASSERT_FATAL(len > 0);
        struct need *back = NULL;
        CU_ASSERT_EQUAL_FATAL(need_decode(bytes, (size_t)len, s, &back), 0);
        check_equal(n, back);
        need_free(n);
        need_free(back);
        segment_free(s);
    }
    free(bytes);
}

static void test_truncated(void)
{
    struct segment *s = asked();
    struct need *n = answered(), *out = NULL;
    uint8_t bytes[256] = {0};
    int64_t len = need_encode(n, bytes, sizeof(bytes));
    CU_ASSERT_FATAL(len > 0);
    for (size_t cut = 0; cut < (size_t)len; cut++)
        CU_ASSERT_EQUAL(need_decode(bytes, cut, s, &out), -EPROTO);
    CU_ASSERT_EQUAL(need_decode(bytes, (size_t)len + 1, s, &out), -EPROTO);
    CU_ASSERT_PTR_NULL(out); // untouched
    CU_ASSERT_EQUAL_FATAL(need_decode(bytes, (size_t)len, s, &out), 0);
    need_free(out);
    need_free(n);
    segment_free(s);
}

// Verdicts and ranges that do not fit the entry, as a faulty or hostile end could send them: the encoder
// takes all.
static void test_refused(void)
{
    static const struct {
        uint32_t entry;
        enum need_verdict verdict;
        struct range leaves[2];
        uint32_t count;
        int rc;
    } table[] = {
        {LARGE, NEED_ALL, {{0, 0}}, 0, 0},
        {LARGE, NEED_LEAVES, {{0, LARGE_LEAVES}}, 1, 0},
        {LARGE, NEED_LEAVES, {{0, LARGE_LEAVES + 1}}, 1, -EPROTO},
        {LARGE, NEED_LEAVES, {{LARGE_LEAVES, 1}}, 1, -EPROTO},
        {LARGE, NEED_LEAVES, {{0, 0}}, 1, -EPROTO},
        {LARGE, NEED_LEAVES, {{0, 1}, {1, 1}}, 2, -EPROTO},  // touching
        {LARGE, NEED_LEAVES, {{2, 2}, {3, 1}}, 2, -EPROTO},  // overlapping
        {LARGE, NEED_LEAVES, {{5, 1}, {2, 1}}, 2, -EPROTO},  // not sorted
        {LARGE, NEED_LEAVES, {{1, UINT64_MAX}}, 1, -EPROTO}, // wraps
        {LARGE, NEED_LEAVES, {{UINT64_MAX, UINT64_MAX}}, 1, -EPROTO},
        {LARGE, (enum need_verdict)3, {{0, 0}}, 0, -EPROTO},
        {LARGE, (enum need_verdict)255, {{0, 0}}, 0, -EPROTO},
        {SMALL, NEED_LEAVES, {{0, 1}}, 1, -EPROTO}, // packed: all or nothing
        {HOLLOW, NEED_ALL, {{0, 0}}, 0, -EPROTO},
        {HOLLOW, NEED_LEAVES, {{0, 1}}, 1, -EPROTO},
        {EMPTY, NEED_ALL, {{0, 0}}, 0, -EPROTO},
        {DIR, NEED_ALL, {{0, 0}}, 0, -EPROTO},
        {LINK, NEED_ALL, {{0, 0}}, 0, -EPROTO},
        {LINK, NEED_LEAVES, {{0, 1}}, 1, -EPROTO},
    };
    struct segment *s = asked();
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        struct need *n = answered(), *out = NULL;
        uint8_t bytes[256];
        CU_ASSERT_EQUAL(need_set(n, table[i].entry, table[i].verdict, table[i].leaves, table[i].count), 0);
        CU_ASSERT_EQUAL(need_check(n, s), table[i].rc);
        int64_t len = need_encode(n, bytes, sizeof(bytes));
        CU_ASSERT_FATAL(len > 0);
        CU_ASSERT_EQUAL(need_decode(bytes, (size_t)len, s, &out), table[i].rc);
        need_free(n);
        need_free(out);
    }
    segment_free(s);
}

// Bytes that no encoder writes.
static void test_hostile_bytes(void)
{
    static const struct {
        size_t at;
        uint8_t value;
    } table[] = {
        {0, 'Q'},   // magic
        {4, 5},     // one entry less
        {4, 7},     // one more
        {7, 0x80},  // very many
        {8, 8},     // another segment
        {15, 1},    // another one far away
        {18, 0},    // no ranges under NEED_LEAVES
        {18, 4},    // more ranges than bytes
        {21, 0xff}, // four thousand million ranges
        {16, 3},    // unknown verdict
    };
    struct segment *s = asked();
    struct need *n = answered(), *out = NULL;
    uint8_t bytes[256], bad[256];
    int64_t len = need_encode(n, bytes, sizeof(bytes));
    CU_ASSERT_FATAL(len > 0);
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        memcpy(bad, bytes, sizeof(bad));
        bad[table[i].at] = table[i].value;
        CU_ASSERT_EQUAL(need_decode(bad, (size_t)len, s, &out), -EPROTO);
    }
    CU_ASSERT_PTR_NULL(out);
    need_free(n);
    segment_free(s);
}

static void test_limit(void)
{
    const struct entry huge = tree_file("huge", UINT64_C(1) << 40);
    struct segment *s = tree_segment(7, &huge, 1);
    enum { FIT = (NEED_BYTES_MAX - 16 - 5) / 16 };
    struct range *leaves = calloc(FIT + 1, sizeof(*leaves));
    uint8_t *bytes = malloc(NEED_BYTES_MAX + 64);
    CU_ASSERT_FATAL(leaves != NULL && bytes != NULL);
    for (uint32_t i = 0; i <= FIT; i++)
        leaves[i] = (struct range){2 * (uint64_t)i, 1};
    struct need *n = need_new(7, 1), *out = NULL;
    CU_ASSERT_EQUAL(need_set(n, 0, NEED_LEAVES, leaves, FIT + 1), 0);
    CU_ASSERT_EQUAL(need_encode(n, bytes, NEED_BYTES_MAX + 64), -EMSGSIZE);
    CU_ASSERT_EQUAL(need_set(n, 0, NEED_LEAVES, leaves, FIT), 0);
    int64_t len = need_encode(n, bytes, NEED_BYTES_MAX + 64);
    CU_ASSERT_FATAL(len > 0);
    CU_ASSERT_EQUAL(need_decode(bytes, (size_t)len, s, &out), 0);
    CU_ASSERT_EQUAL(need_decode(bytes, NEED_BYTES_MAX + 1, s, &out), -EMSGSIZE);
    need_free(out);
    need_free(n);
    free(leaves);
    free(bytes);
    segment_free(s);
}

static void test_set(void)
{
    struct range leaves[] = {{1, 2}};
    struct need *n = need_new(1, 2);
    CU_ASSERT_PTR_NOT_NULL_FATAL(n);
    CU_ASSERT_EQUAL(n->entries[0].verdict, NEED_NOTHING);
    CU_ASSERT_EQUAL(need_set(n, 0, NEED_LEAVES, leaves, 1), 0);
    leaves[0].offset = 99; // a copy was taken
    CU_ASSERT_EQUAL(n->entries[0].leaves[0].offset, 1);
    CU_ASSERT_EQUAL(need_set(n, 0, NEED_LEAVES, leaves, 1), 0);
    CU_ASSERT_EQUAL(n->entries[0].leaves[0].offset, 99);
    CU_ASSERT_EQUAL(need_set(n, 0, NEED_ALL, leaves, 1), 0); // leaves are not looked at
    CU_ASSERT_EQUAL(n->entries[0].count, 0);
    CU_ASSERT_PTR_NULL(n->entries[0].leaves);
    CU_ASSERT_EQUAL(n->entries[1].verdict, NEED_NOTHING);
    need_free(n);
    need_free(NULL);
}

void suite_need(void)
{
    CU_pSuite s = CU_add_suite("need", NULL, NULL);
    CU_add_test(s, "bytes", test_bytes);
    CU_add_test(s, "round_trip", test_round_trip);
    CU_add_test(s, "truncated", test_truncated);
    CU_add_test(s, "refused", test_refused);
    CU_add_test(s, "hostile_bytes", test_hostile_bytes);
    CU_add_test(s, "limit", test_limit);
    CU_add_test(s, "set", test_set);
}
