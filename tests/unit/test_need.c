// The need: what is answered comes over as it was said, and nothing else comes over.
#include <CUnit/CUnit.h>
#include <errno.h>
#include <stdio.h>
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

// A random need of one fragmented file, or of several among entries that need nothing. `step` is the longest
// gap and the longest range.
static struct need *fragmented(struct rnd *r, const struct segment *s, uint32_t ranges, uint64_t step)
{
    struct need *n = need_new(s->number, s->entry_count);
    struct range *leaves = calloc(ranges, sizeof(*leaves));
    CU_ASSERT_FATAL(n != NULL && leaves != NULL);
    for (uint32_t i = 0; i < s->entry_count; i++) {
        uint64_t at = rnd_below(r, step);
        for (uint32_t k = 0; k < ranges; k++) {
            leaves[k] = (struct range){.offset = at, .len = 1 + rnd_below(r, step)};
            at += leaves[k].len + 1 + rnd_below(r, step);
        }
        if (s->entries[i].size > 0)
            CU_ASSERT_EQUAL_FATAL(need_set(n, i, NEED_LEAVES, leaves, ranges), 0);
    }
    free(leaves);
    return n;
}

// Everything in `in` is in `out`, of which both ends may be asked; how many leaves more.
static uint64_t check_covers(const struct entry_need *in, const struct entry_need *out)
{
    uint64_t asked = 0, wished = 0;
    uint32_t at = 0;
    for (uint32_t k = 0; k < out->count; k++)
        asked += out->leaves[k].len;
    for (uint32_t k = 0; k < in->count; k++) {
        const struct range *r = &in->leaves[k];
        while (at < out->count && out->leaves[at].offset + out->leaves[at].len < r->offset + r->len)
            at++;
        CU_ASSERT_FATAL(at < out->count && out->leaves[at].offset <= r->offset);
        wished += r->len;
    }
    return asked - wished;
}

// What the source makes of the answer is laid out as the destination lays it out.
static void check_both_ends(const struct segment *s, const struct need *n)
{
    uint8_t *bytes = malloc(NEED_BYTES_MAX);
    struct need *got = NULL;
    int64_t len = need_encode(n, bytes, NEED_BYTES_MAX);
    CU_ASSERT_FATAL(len > 0);
    CU_ASSERT_EQUAL_FATAL(need_decode(bytes, (size_t)len, s, &got), 0);
    struct layout *here = tree_layout(s, n, 4 * MIB), *there = tree_layout(s, got, 4 * MIB);
    struct digest a = layout_digest(here), b = layout_digest(there);
    CU_ASSERT_TRUE(digest_equal(&a, &b));
    layout_free(here);
    layout_free(there);
    need_free(got);
    free(bytes);
}

// However fragmented, an answer fits, covers what is wished for, and asks for little more: not one range less
// than must be, and only the smallest gaps.
static void test_fit(void)
{
    static const struct {
        uint32_t files, ranges;
        uint64_t step;
        uint64_t left; // ranges that are left
    } table[] = {
        {1, 65534, 1, 65534},   // (2^20 - 16 - 3 - 4) / 16 fit
        {1, 65535, 1, 65534},   // one too many
        {1, 300000, 9, 65534},  //
        {1, 4000000, 3, 65534}, // every other leaf of some 16 TiB, or so
        {3, 40000, 5, 65533},   //
        {4000, 100, 2, 64284},  //
    };
    struct rnd r = rnd_begin("need.fit");
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        struct entry *entries = calloc(table[i].files + 2, sizeof(*entries));
        char(*names)[16] = calloc(table[i].files, sizeof(*names));
        entries[0] = tree_dir("dir");
        for (uint32_t f = 0; f < table[i].files; f++) {
            static const struct range data = {0, MIB};
            snprintf(names[f], sizeof(names[f]), "file %u", f);
            entries[1 + f] =
                tree_sparse(names[f], (uint64_t)table[i].ranges * 2 * (table[i].step + 1) * MIB, &data, 1);
        }
        entries[1 + table[i].files] = tree_link("link", "dir");
        struct segment *s = tree_segment(3, entries, table[i].files + 2);
        struct rnd again = r;
        struct need *wished = fragmented(&r, s, table[i].ranges, table[i].step);
        struct need *n = fragmented(&again, s, table[i].ranges, table[i].step);
        CU_ASSERT_EQUAL(need_fit(n), 0);
        CU_ASSERT_EQUAL(need_check(n, s), 0);
        uint64_t ranges = 0;
        for (uint32_t k = 0; k < s->entry_count; k++) {
            check_covers(&wished->entries[k], &n->entries[k]);
            ranges += n->entries[k].count;
        }
        CU_ASSERT_EQUAL(ranges, table[i].left);
        check_both_ends(s, n);
        need_free(wished);
        need_free(n);
        segment_free(s);
        free(names);
        free(entries);
    }
}

// Gaps of 1 to 4 leaves in turn: those of 1 are joined, then those of 2, the first ones first.
static void test_fit_smallest(void)
{
    enum { RANGES = 100000, FIT = 65534 };
    struct entry e = tree_file("large", UINT64_C(1) << 40);
    struct segment *s = tree_segment(3, &e, 1);
    struct range *leaves = calloc(RANGES, sizeof(*leaves));
    uint64_t at = 0;
    for (uint32_t k = 0; k < RANGES; k++) {
        leaves[k] = (struct range){.offset = at, .len = 1};
        at += 1 + 1 + (k & 3);
    }
    struct need *n = need_new(3, 1);
    CU_ASSERT_EQUAL_FATAL(need_set(n, 0, NEED_LEAVES, leaves, RANGES), 0);
    struct entry_need wished = {.verdict = NEED_LEAVES, .leaves = leaves, .count = RANGES};
    CU_ASSERT_EQUAL(need_fit(n), 0);
    uint64_t ones = RANGES / 4, twos = RANGES - FIT - ones;
    CU_ASSERT_EQUAL(check_covers(&wished, &n->entries[0]), ones + 2 * twos);
    CU_ASSERT_EQUAL(n->entries[0].count, FIT);
    uint32_t count = n->entries[0].count;
    CU_ASSERT_EQUAL(need_fit(n), 0); // it fits
    CU_ASSERT_EQUAL(n->entries[0].count, count);
    check_both_ends(s, n);
    need_free(n);
    segment_free(s);
    free(leaves);
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
    CU_add_test(s, "fit", test_fit);
    CU_add_test(s, "fit_smallest", test_fit_smallest);
}
