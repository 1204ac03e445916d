// How much a segment holds: full conditions of the builder, and the same limits at the decoder; versions of a
// file.
#include <CUnit/CUnit.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/wire.h"
#include "tests/unit/tree.h"

static struct segment_builder *begin(void)
{
    struct segment_builder *b = segment_builder_new();
    CU_ASSERT_PTR_NOT_NULL_FATAL(b);
    segment_builder_begin(b, 0);
    return b;
}

// Ends the segment, and checks that the other end takes it and finds `count` entries.
static void check_taken(struct segment_builder *b, uint32_t count)
{
    size_t len;
    const uint8_t *bytes = segment_builder_end(b, false, &len);
    CU_ASSERT_TRUE(len <= SEGMENT_BYTES_MAX);
    CU_ASSERT_EQUAL(segment_builder_count(b), count);
    struct segment *s = NULL;
    CU_ASSERT_EQUAL_FATAL(segment_decode(bytes, len, &s), 0);
    CU_ASSERT_EQUAL(s->entry_count, count);
    segment_free(s);
}

static void test_entries(void)
{
    struct segment_builder *b = begin();
    char path[16];
    for (uint32_t i = 0; i < SEGMENT_ENTRIES_MAX; i++) {
        snprintf(path, sizeof(path), "%u", i);
        struct entry e = tree_file(path, 0);
        CU_ASSERT_EQUAL_FATAL(segment_builder_add(b, &e), 0);
    }
    const struct entry more = tree_dir("more");
    CU_ASSERT_EQUAL(segment_builder_add(b, &more), -ENOSPC);
    check_taken(b, SEGMENT_ENTRIES_MAX);
    segment_builder_begin(b, 1); // and goes on
    CU_ASSERT_EQUAL(segment_builder_count(b), 0);
    CU_ASSERT_EQUAL(segment_builder_add(b, &more), 0);
    check_taken(b, 1);
    segment_builder_free(b);
}

// Fills a segment to the last byte: links whose targets take what is left.
static void test_bytes(void)
{
    enum { HEAD = 24, LINK = 60 + 6 + 4 }; // a link with a path of 6 bytes, without its target
    struct segment_builder *b = begin();
    char path[16], target[TARGET_BYTES_MAX + 1];
    memset(target, 't', sizeof(target));
    uint32_t left = SEGMENT_BYTES_MAX - HEAD, count = 0;
    while (left > 0) {
        snprintf(path, sizeof(path), "%06u", count);
        struct entry e = tree_link(path, "");
        e.target = (const uint8_t *)target;
        // never leaves less than a whole link
        e.target_len = left >= 2 * LINK + TARGET_BYTES_MAX + 1 ? TARGET_BYTES_MAX : left - LINK;
        if (e.target_len > TARGET_BYTES_MAX)
            e.target_len = TARGET_BYTES_MAX / 2;
        if (left == LINK + e.target_len) {
            e.target_len++; // one byte too many
            CU_ASSERT_EQUAL(segment_builder_add(b, &e), -ENOSPC);
            e.target_len--;
        }
        CU_ASSERT_EQUAL_FATAL(segment_builder_add(b, &e), 0);
        left -= LINK + e.target_len;
        count++;
    }
    const struct entry more = tree_dir("m");
    CU_ASSERT_EQUAL(segment_builder_add(b, &more), -ENOSPC);
    check_taken(b, count);
    size_t len;
    const uint8_t *bytes = segment_builder_end(b, false, &len);
    CU_ASSERT_EQUAL(len, SEGMENT_BYTES_MAX);
    struct segment *s = NULL;
    uint8_t *longer = calloc(1, len + 1);
    CU_ASSERT_PTR_NOT_NULL_FATAL(longer);
    memcpy(longer, bytes, len);
    CU_ASSERT_EQUAL(segment_decode(longer, len + 1, &s), -EMSGSIZE);
    free(longer);
    segment_builder_free(b);
}

static void test_data(void)
{
    static const struct range block[] = {{0, 4096}};
    const uint64_t max = SEGMENT_DATA_BYTES;
    const struct {
        struct entry first, second;
        int rc; // of the second
    } table[] = {
        {tree_file("a", max), tree_dir("b"), 0},
        {tree_file("a", max), tree_file("b", 0), 0},
        {tree_file("a", max), tree_file("b", 1), -ENOSPC},
        {tree_file("a", 1), tree_file("b", max - 1), 0},
        {tree_file("a", 1), tree_file("b", max), -ENOSPC},
        {tree_dir("a"), tree_file("b", max), 0},
        {tree_dir("a"), tree_file("b", max + 1), -ENOSPC},
        {tree_file("a", max + 1), tree_dir("b"), -ENOSPC}, // larger: a segment of its own
        {tree_file("a", FILE_BYTES_MAX), tree_file("b", FILE_BYTES_MAX), -ENOSPC},
        {tree_sparse("a", FILE_BYTES_MAX, block, 1), tree_sparse("b", FILE_BYTES_MAX, block, 1), 0},
        {tree_sparse("a", FILE_BYTES_MAX, block, 1), tree_file("b", max - 4096), 0},
        {tree_sparse("a", FILE_BYTES_MAX, block, 1), tree_file("b", max - 4095), -ENOSPC},
    };
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        struct segment_builder *b = begin();
        CU_ASSERT_EQUAL_FATAL(segment_builder_add(b, &table[i].first), 0);
        CU_ASSERT_EQUAL(segment_builder_add(b, &table[i].second), table[i].rc);
        check_taken(b, table[i].rc == 0 ? 2 : 1);
        segment_builder_free(b);
    }
}

// The decoder holds a segment to the same limit.
static void test_data_refused(void)
{
    static const struct {
        uint64_t second; // size that is patched into the second of two files
        int rc;
    } table[] = {
        {SEGMENT_DATA_BYTES - 1, 0},
        {SEGMENT_DATA_BYTES, -EMSGSIZE},
        {FILE_BYTES_MAX, -EMSGSIZE},
    };
    const struct entry entries[] = {tree_file("a", 1), tree_file("b", 0)};
    enum { SECOND_SIZE = 24 + 61 + 16 }; // head, first entry, fields before the size
    size_t len;
    uint8_t *bytes = tree_encode(0, entries, 2, &len);
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        struct wire_writer w;
        wire_writer_init(&w, bytes + SECOND_SIZE, 8);
        wire_put_u64(&w, table[i].second);
        struct segment *s = NULL;
        CU_ASSERT_EQUAL(segment_decode(bytes, len, &s), table[i].rc);
        segment_free(s);
    }
    free(bytes);
}

// The largest entry that can be said fits an empty segment.
static void test_largest_entry(void)
{
    struct range *data = calloc(ENTRY_RANGES_MAX + 1, sizeof(*data));
    char *path = malloc(PATH_BYTES_MAX + 1);
    CU_ASSERT_FATAL(data != NULL && path != NULL);
    for (uint64_t i = 0; i <= ENTRY_RANGES_MAX; i++)
        data[i] = (struct range){2 * i * BLOCK_BYTES, BLOCK_BYTES};
    for (size_t i = 0; i < PATH_BYTES_MAX; i++)
        path[i] = i % 2 == 0 ? 'p' : '/';
    path[PATH_BYTES_MAX - 1] = 'p';
    path[PATH_BYTES_MAX] = 0;
    struct segment_builder *b = begin();
    struct entry e = tree_sparse(path, UINT64_C(1) << 40, data, ENTRY_RANGES_MAX + 1);
    CU_ASSERT_EQUAL(segment_builder_add(b, &e), -EMSGSIZE);
    e.data_count = ENTRY_RANGES_MAX;
    CU_ASSERT_EQUAL_FATAL(segment_builder_add(b, &e), 0);
    check_taken(b, 1);
    segment_builder_free(b);
    free(data);
    free(path);
}

// Many long paths that differ only at their ends are compared in no time.
static void test_long_paths(void)
{
    enum { COUNT = SEGMENT_BYTES_MAX / (60 + PATH_BYTES_MAX) - 1 };
    char *path = malloc(PATH_BYTES_MAX + 1);
    CU_ASSERT_PTR_NOT_NULL_FATAL(path);
    for (size_t i = 0; i < PATH_BYTES_MAX; i++)
        path[i] = i % 200 == 199 ? '/' : 'p';
    path[PATH_BYTES_MAX] = 0;
    struct segment_builder *b = begin();
    for (int i = 0; i < COUNT; i++) {
        path[PATH_BYTES_MAX - 1] = (char)('0' + i);
        if (path[PATH_BYTES_MAX - 1] == '/')
            continue;
        struct entry e = tree_dir(path);
        CU_ASSERT_EQUAL_FATAL(segment_builder_add(b, &e), 0);
    }
    check_taken(b, COUNT);
    segment_builder_free(b);
    free(path);
}

static void test_same_version(void)
{
    const struct entry a = tree_file("a", 5);
    struct entry b = tree_file("b", 5);
    b.mode = 0;
    CU_ASSERT_TRUE(entry_same_version(&a, &b));
#define DIFFERS(field) \
    b = a;             \
    b.field++;         \
    CU_ASSERT_FALSE(entry_same_version(&a, &b))
    DIFFERS(size);
    DIFFERS(inode);
    DIFFERS(mtime.s);
    DIFFERS(mtime.ns);
    DIFFERS(ctime.s);
    DIFFERS(ctime.ns);
#undef DIFFERS
}

void suite_segment(void)
{
    CU_pSuite s = CU_add_suite("segment", NULL, NULL);
    CU_add_test(s, "same_version", test_same_version);
    CU_add_test(s, "entries", test_entries);
    CU_add_test(s, "bytes", test_bytes);
    CU_add_test(s, "data", test_data);
    CU_add_test(s, "data_refused", test_data_refused);
    CU_add_test(s, "largest_entry", test_largest_entry);
    CU_add_test(s, "long_paths", test_long_paths);
}
