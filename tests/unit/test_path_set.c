// The set of paths of a segment.
#include <CUnit/CUnit.h>
#include <stdio.h>
#include <string.h>

#include "mover/path_set.h"

static void test_has(void)
{
    struct path_set *s = path_set_new();
    CU_ASSERT_PTR_NOT_NULL_FATAL(s);
    CU_ASSERT_FALSE(path_set_has(s, "a", 1));
    CU_ASSERT_FALSE(path_set_has(s, "", 0));
    path_set_add(s, "a", 1);
    path_set_add(s, "", 0);
    CU_ASSERT_TRUE(path_set_has(s, "a", 1));
    CU_ASSERT_TRUE(path_set_has(s, "", 0));
    CU_ASSERT_FALSE(path_set_has(s, "ab", 2));
    CU_ASSERT_FALSE(path_set_has(s, "b", 1));
    path_set_clear(s);
    CU_ASSERT_FALSE(path_set_has(s, "a", 1));
    CU_ASSERT_FALSE(path_set_has(s, "", 0));
    path_set_free(s);
}

// A full segment: every path is found, and none that is not there.
static void test_full(void)
{
    struct path_set *s = path_set_new();
    CU_ASSERT_PTR_NOT_NULL_FATAL(s);
    char path[64];
    for (int round = 0; round < 2; round++) {
        uint32_t fresh = 0, found = 0;
        for (unsigned i = 0; i < SEGMENT_ENTRIES_MAX; i++) {
            size_t len = (size_t)snprintf(path, sizeof path, "folder/%u/file-%u", i % 7, i);
            fresh += !path_set_has(s, path, len);
            path_set_add(s, path, len);
        }
        for (unsigned i = 0; i < SEGMENT_ENTRIES_MAX; i++) {
            size_t len = (size_t)snprintf(path, sizeof path, "folder/%u/file-%u", i % 7, i);
            found += path_set_has(s, path, len);
        }
        CU_ASSERT_EQUAL(fresh, SEGMENT_ENTRIES_MAX);
        CU_ASSERT_EQUAL(found, SEGMENT_ENTRIES_MAX);
        path_set_clear(s);
    }
    path_set_free(s);
}

void suite_path_set(void)
{
    CU_pSuite s = CU_add_suite("path_set", NULL, NULL);
    CU_add_test(s, "has", test_has);
    CU_add_test(s, "a full segment", test_full);
}
