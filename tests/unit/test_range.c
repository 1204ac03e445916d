// Lists of ranges: what is valid, and finding in them.
#include <CUnit/CUnit.h>

#include "proto/range.h"
#include "tests/unit/tree.h"

static void test_valid(void)
{
    static const struct {
        struct range ranges[3];
        uint32_t count;
        uint64_t end;
        bool valid;
    } table[] = {
        {{{0, 0}}, 0, 0, true},
        {{{0, 1}}, 1, 1, true},
        {{{0, 1}}, 1, 0, false},
        {{{3, 2}}, 1, 5, true},
        {{{3, 2}}, 1, 4, false},
        {{{3, 0}}, 1, 9, false},
        {{{0, 1}, {2, 1}, {4, 1}}, 3, 5, true},
        {{{0, 2}, {2, 1}}, 2, 9, false},               // touching
        {{{0, 3}, {2, 1}}, 2, 9, false},               // overlapping
        {{{4, 1}, {0, 1}}, 2, 9, false},               // not sorted
        {{{0, 1}, {0, 1}}, 2, 9, false},               // twice
        {{{0, UINT64_MAX}}, 1, UINT64_MAX, true},      // the longest
        {{{1, UINT64_MAX}}, 1, UINT64_MAX, false},     // wraps
        {{{5, 1}, {9, UINT64_MAX - 8}}, 2, 20, false}, // wraps to 0
        {{{UINT64_MAX - 1, 1}}, 1, UINT64_MAX, true},
    };
    for (size_t i = 0; i < ARRAY_LEN(table); i++)
        CU_ASSERT_EQUAL(ranges_valid(table[i].ranges, table[i].count, table[i].end), table[i].valid);
}

// What ranges_find is to find, looked for one by one.
static uint32_t find_slowly(const struct range *ranges, uint32_t count, uint32_t from, uint64_t offset)
{
    uint32_t i = from;
    while (i < count && ranges[i].offset + ranges[i].len <= offset)
        i++;
    return i;
}

static void test_find(void)
{
    struct rnd r = rnd_begin("range");
    for (int round = 0; round < 100; round++) {
        struct range ranges[40];
        uint32_t count = tree_ranges(&r, 200, 1 + rnd_below(&r, 20), ranges, ARRAY_LEN(ranges));
        CU_ASSERT_TRUE(ranges_valid(ranges, count, 200));
        for (uint64_t offset = 0; offset <= 201; offset++) {
            uint32_t from = (uint32_t)rnd_below(&r, count + 1);
            CU_ASSERT_EQUAL(ranges_find(ranges, count, from, offset),
                            find_slowly(ranges, count, from, offset));
        }
    }
    CU_ASSERT_EQUAL(ranges_find(NULL, 0, 0, 7), 0);
}

void suite_range(void)
{
    CU_pSuite s = CU_add_suite("range", NULL, NULL);
    CU_add_test(s, "valid", test_valid);
    CU_add_test(s, "find", test_find);
}
