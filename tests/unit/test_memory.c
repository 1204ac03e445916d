// Data sets that are nowhere: what is made is found again, and nothing else is taken for it.
#include <CUnit/CUnit.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/limits.h"
#include "storage/memory.h"

enum { BYTES = 5 * BLOCK_BYTES + 100 };

static void test_stamps(void)
{
    static uint8_t buf[BYTES], before[BYTES];
    memory_noise(buf, BYTES, 7);
    memcpy(before, buf, BYTES);
    uint64_t a = memory_file("a", 1), b = memory_file("b", 1);
    CU_ASSERT(a != b && a == memory_file("a", 1));
    memory_fill(buf, BYTES, a, 1 << 20);
    CU_ASSERT_EQUAL(memory_check(buf, BYTES, a, 1 << 20), 0);
    CU_ASSERT_EQUAL(memory_check(buf, BYTES, b, 1 << 20), -EBADMSG);
    CU_ASSERT_EQUAL(memory_check(buf, BYTES, a, 2 << 20), -EBADMSG);
    for (size_t block = 0; block < 6; block++) { // the last one is no whole block
        buf[block * BLOCK_BYTES] ^= 1;
        CU_ASSERT_EQUAL(memory_check(buf, BYTES, a, 1 << 20), -EBADMSG);
        buf[block * BLOCK_BYTES] ^= 1;
    }
    for (size_t i = 0; i < BYTES; i++)
        CU_ASSERT(i % BLOCK_BYTES < 16 || buf[i] == before[i]);
    CU_ASSERT_EQUAL(memory_check(buf, 15, b, 0), 0); // no room for a stamp
}

// No two words are alike, nor those of another seed; 0 will do as one.
static void test_noise(void)
{
    static uint64_t words[2][64];
    memory_noise(words[0], sizeof words[0] - 3, 0);
    memory_noise(words[1], sizeof words[1], 4);
    CU_ASSERT_EQUAL(words[0][63] >> 40, 0); // behind the end
    for (size_t i = 0; i < 63; i++)
        for (size_t k = 0; k < 63; k++)
            CU_ASSERT(words[0][i] != words[1][k] && (i == k || words[0][i] != words[0][k]));
}

static void test_tree(void)
{
    struct memory_tree t;
    CU_ASSERT_EQUAL_FATAL(memory_tree_make(3, UINT64_C(1) << 40, &t), 0);
    char path[2 * MEMORY_PATH_BYTES];
    for (int i = 0; i < 4; i++) {
        struct stat st;
        snprintf(path, sizeof path, "%s/%08d", t.path, i);
        bool there = stat(path, &st) == 0;
        CU_ASSERT_EQUAL(there, i < 3);
        CU_ASSERT(!there || (st.st_size == INT64_C(1) << 40 && st.st_blocks == 0));
    }
    struct memory_tree other;
    CU_ASSERT_EQUAL_FATAL(memory_tree_make(0, 0, &other), 0);
    CU_ASSERT_STRING_NOT_EQUAL(t.path, other.path);
    snprintf(path, sizeof path, "%s", t.path);
    memory_tree_remove(&t);
    CU_ASSERT(access(path, F_OK) < 0 && access(other.path, F_OK) == 0);
    memory_tree_remove(&t); // nothing more
    memory_tree_remove(&other);
}

void suite_memory(void)
{
    CU_pSuite s = CU_add_suite("memory", NULL, NULL);
    CU_add_test(s, "stamps", test_stamps);
    CU_add_test(s, "noise", test_noise);
    CU_add_test(s, "tree", test_tree);
}
