#include "storage/data_map.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <CUnit/CUnit.h>

#include "tests/unit/scratch.h"

enum { B = BLOCK_BYTES };

static bool map_is(const struct data_map *m, const struct range *expected, uint32_t count)
{
    return m->count == count && (count == 0 || memcmp(m->data, expected, count * sizeof(*expected)) == 0);
}

static void test_add(void)
{
    static const uint64_t size = 10 * B + 100;
    struct data_map m = {0};
    CU_ASSERT_EQUAL(data_map_add(&m, 1, 2, size), 0);                 // widened to the block
    CU_ASSERT_EQUAL(data_map_add(&m, 2 * B, 3 * B, size), 0);         // a hole of one block before it
    CU_ASSERT_EQUAL(data_map_add(&m, 3 * B, 3 * B + 1, size), 0);     // touches: merged
    CU_ASSERT_EQUAL(data_map_add(&m, 2 * B + 1, 2 * B + 2, size), 0); // inside
    CU_ASSERT_EQUAL(data_map_add(&m, 5 * B - 1, 5 * B + 1, size), 0); // touches when widened
    CU_ASSERT_EQUAL(data_map_add(&m, 10 * B + 50, size, size), 0);    // ends with the file
    static const struct range expected[] = {{0, B}, {2 * B, 4 * B}, {10 * B, 100}};
    CU_ASSERT(map_is(&m, expected, 3));
    data_map_fini(&m);
    CU_ASSERT(m.data == NULL && m.count == 0);
}

static void fill(struct data_map *m, const uint64_t *holes, uint32_t count)
{
    uint64_t at = 0;
    m->count = 0;
    for (uint32_t i = 0; i <= count; i++) {
        CU_ASSERT_EQUAL(data_map_add(m, at, at + B, UINT64_MAX / 2), 0);
        at += B + (i < count ? holes[i] * B : 0);
    }
}

static void test_thin(void)
{
    static const uint64_t holes[] = {5, 1, 9, 2, 5, 5};
    static const struct {
        uint32_t keep, left;
        uint64_t kept[6]; // holes, in blocks
    } cases[] = {
        {100, 7, {5, 1, 9, 2, 5, 5}},
        {7, 7, {5, 1, 9, 2, 5, 5}},
        {6, 6, {5, 9, 2, 5, 5}},
        {5, 5, {5, 9, 5, 5}},
        {4, 4, {5, 9, 5}}, // of equal ones the later go
        {3, 3, {5, 9}},
        {2, 2, {9}},
        {1, 1, {0}},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct data_map m = {0};
        fill(&m, holes, ARRAY_LEN(holes));
        CU_ASSERT_EQUAL(data_map_thin(&m, cases[i].keep), 0);
        CU_ASSERT_EQUAL_FATAL(m.count, cases[i].left);
        for (uint32_t k = 0; k + 1 < m.count; k++)
            CU_ASSERT_EQUAL(m.data[k + 1].offset - m.data[k].offset - m.data[k].len, cases[i].kept[k] * B);
        CU_ASSERT_EQUAL(m.data[0].offset, 0); // nothing is lost at the ends
        CU_ASSERT_EQUAL(m.data[m.count - 1].offset + m.data[m.count - 1].len, 34 * B);
        data_map_fini(&m);
    }
}

// More ranges than are ever gathered: the largest holes are those that stay, wherever they come.
static void test_thin_on_the_way(void)
{
    enum { RANGES = 5 * ENTRY_RANGES_MAX, LARGE = ENTRY_RANGES_MAX - 1 };
    struct data_map m = {0};
    uint64_t at = 0, odd = 0;
    for (uint32_t i = 0; i < RANGES; i++) {
        CU_ASSERT_EQUAL_FATAL(data_map_add(&m, at, at + B, UINT64_MAX / 2), 0);
        // LARGE holes of 3 blocks, some in each part of the file, the others 1 or 2.
        at += B + (i % 5 == 2 && i / 5 < LARGE ? 3 : 1 + i % 2) * B;
    }
    CU_ASSERT(m.count > ENTRY_RANGES_MAX);
    CU_ASSERT_EQUAL(data_map_thin(&m, ENTRY_RANGES_MAX), 0);
    CU_ASSERT_EQUAL_FATAL(m.count, ENTRY_RANGES_MAX);
    for (uint32_t k = 0; k + 1 < m.count; k++)
        odd += m.data[k + 1].offset - m.data[k].offset - m.data[k].len != 3 * B;
    CU_ASSERT_EQUAL(odd, 0);
    data_map_fini(&m);
}

static bool has_holes(int dir_fd)
{
    int fd = openat(dir_fd, "probe", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    bool has = ftruncate(fd, 64 * B) == 0 && lseek(fd, 0, SEEK_DATA) < 0 && errno == ENXIO;
    close(fd);
    return has;
}

static void test_find(void)
{
    static const struct {
        uint64_t size;
        struct range written[3], found[3];
        uint32_t count;
        bool sparse;
    } cases[] = {
        {0, {{0}}, {{0}}, 0, false},
        {64 * B, {{0}}, {{0}}, 0, true},
        {64 * B, {{0, 64 * B}}, {{0}}, 0, false},
        {100, {{0, 100}}, {{0}}, 0, false},
        {64 * B, {{0, B}}, {{0, B}}, 1, true},
        {64 * B, {{63 * B, B}}, {{63 * B, B}}, 1, true},
        {64 * B + 77, {{64 * B, 77}}, {{64 * B, 77}}, 1, true},
        {64 * B + 77,
         {{0, 100}, {16 * B, 2 * B}, {64 * B, 77}},
         {{0, B}, {16 * B, 2 * B}, {64 * B, 77}},
         3,
         true},
        {UINT64_C(1) << 40, {{UINT64_C(1) << 39, 5}}, {{UINT64_C(1) << 39, B}}, 1, true},
    };
    struct scratch s = scratch_begin();
    bool holes = has_holes(s.fd);
    struct data_map m = {0};
    for (size_t i = 0; holes && i < ARRAY_LEN(cases); i++) {
        static const uint8_t bytes[64 * B] = {1};
        int fd = openat(s.fd, "f", O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        CU_ASSERT_EQUAL(ftruncate(fd, (off_t)cases[i].size), 0);
        for (size_t k = 0; k < ARRAY_LEN(cases[i].written); k++) {
            const struct range *w = &cases[i].written[k];
            CU_ASSERT_EQUAL(pwrite(fd, bytes, w->len, (off_t)w->offset), (ssize_t)w->len);
        }
        bool sparse = !cases[i].sparse;
        CU_ASSERT_EQUAL(data_map_find(&m, fd, cases[i].size, &sparse), 0);
        CU_ASSERT_EQUAL(sparse, cases[i].sparse);
        CU_ASSERT(!sparse || map_is(&m, cases[i].found, cases[i].count));
        close(fd);
    }
    if (!holes) {
        fprintf(stderr, "skipped: this file system cannot say where holes are\n");
        CU_PASS("no SEEK_HOLE");
    }
    data_map_fini(&m);
    scratch_end(&s);
}

// What cannot say where data lies is all data; a file that shrank has none behind its end.
static void test_find_without_an_answer(void)
{
    struct data_map m = {0};
    int pipes[2];
    bool sparse = true;
    CU_ASSERT_EQUAL_FATAL(pipe(pipes), 0);
    CU_ASSERT_EQUAL(data_map_find(&m, pipes[0], 100 * B, &sparse), 0);
    CU_ASSERT(!sparse);
    close(pipes[0]);
    close(pipes[1]);
    struct scratch s = scratch_begin();
    scratch_bytes(s.fd, "f", 3 * B);
    int fd = openat(s.fd, "f", O_RDWR | O_CLOEXEC);
    CU_ASSERT_EQUAL(data_map_find(&m, fd, 100 * B, &sparse), 0);
    static const struct range expected[] = {{0, 3 * B}};
    CU_ASSERT(sparse && map_is(&m, expected, 1));
    CU_ASSERT_EQUAL(data_map_find(&m, fd, 2 * B, &sparse), 0); // grew: what it was is all data
    CU_ASSERT(!sparse);
    CU_ASSERT(ftruncate(fd, 0) == 0 && pwrite(fd, "x", 1, 50 * B) == 1); // data behind what it was
    CU_ASSERT_EQUAL(data_map_find(&m, fd, 10 * B, &sparse), 0);
    CU_ASSERT(!sparse || m.count == 0);
    close(fd);
    data_map_fini(&m);
    scratch_end(&s);
}

void suite_data_map(void)
{
    CU_pSuite suite = CU_add_suite("data_map", NULL, NULL);
    CU_add_test(suite, "add", test_add);
    CU_add_test(suite, "thin", test_thin);
    CU_add_test(suite, "thin_on_the_way", test_thin_on_the_way);
    CU_add_test(suite, "find", test_find);
    CU_add_test(suite, "find_without_an_answer", test_find_without_an_answer);
}
