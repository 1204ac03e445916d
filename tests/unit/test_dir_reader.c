#include "storage/dir_reader.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <CUnit/CUnit.h>

#include "proto/limits.h"
#include "tests/unit/scratch.h"

enum { FILES = 50 };

// Files "000...00" to "000...49" with names of 200 bytes, so that a buffer does not hold them all.
static void make_files(int fd)
{
    for (int i = 0; i < FILES; i++) {
        char name[NAME_BYTES_MAX + 1];
        snprintf(name, sizeof(name), "%0200d", i);
        scratch_file(fd, name, "");
    }
}

// Reads up to `max` names, counting in seen[] how often each came. Returns how many there were.
static int read_names(struct dir_reader *r, int max, int seen[FILES])
{
    int count = 0;
    while (count < max) {
        const char *name;
        size_t len;
        int rc = dir_reader_next(r, &name, &len);
        if (rc == 0)
            break;
        CU_ASSERT_EQUAL_FATAL(rc, 1);
        CU_ASSERT_EQUAL_FATAL(len, 200);
        CU_ASSERT_EQUAL(strlen(name), len);
        seen[(name[198] - '0') * 10 + name[199] - '0']++;
        count++;
    }
    return count;
}

static bool all_are(const int seen[FILES], int times)
{
    for (int i = 0; i < FILES; i++)
        if (seen[i] != times)
            return false;
    return true;
}

static int open_again(int fd)
{
    return openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

static void test_all_names(void)
{
    struct scratch s = scratch_begin();
    make_files(s.fd);
    struct dir_reader r;
    int seen[FILES] = {0};
    uint32_t before = scratch_open_files();
    CU_ASSERT_EQUAL_FATAL(dir_reader_init(&r, open_again(s.fd), DIR_READER_BYTES_MIN, 0), 0);
    CU_ASSERT_EQUAL(read_names(&r, 2 * FILES, seen), FILES);
    CU_ASSERT_EQUAL(read_names(&r, 2 * FILES, seen), 0); // the end stays the end
    CU_ASSERT(all_are(seen, 1));
    dir_reader_fini(&r);
    dir_reader_fini(&r);
    CU_ASSERT_EQUAL(scratch_open_files(), before);
    scratch_end(&s);
}

// From anywhere: again from the start, or on from there with the directory opened anew.
static void test_rewind_and_resume(void)
{
    struct scratch s = scratch_begin();
    make_files(s.fd);
    for (int at = 0; at <= FILES; at++) {
        struct dir_reader r;
        int again[FILES] = {0}, on[FILES] = {0};
        CU_ASSERT_EQUAL_FATAL(dir_reader_init(&r, open_again(s.fd), DIR_READER_BYTES_MIN, 0), 0);
        CU_ASSERT_EQUAL(read_names(&r, at, again), at);
        memset(again, 0, sizeof(again));
        CU_ASSERT_EQUAL(dir_reader_rewind(&r), 0);
        CU_ASSERT_EQUAL(read_names(&r, 2 * FILES, again), FILES);
        CU_ASSERT_EQUAL(dir_reader_rewind(&r), 0);
        CU_ASSERT_EQUAL(read_names(&r, at, on), at);
        dir_reader_fini(&r);
        CU_ASSERT_EQUAL_FATAL(dir_reader_init(&r, open_again(s.fd), DIR_READER_BYTES_MIN, r.offset), 0);
        CU_ASSERT_EQUAL(read_names(&r, 2 * FILES, on), FILES - at);
        dir_reader_fini(&r);
        CU_ASSERT(all_are(again, 1));
        CU_ASSERT(all_are(on, 1));
    }
    scratch_end(&s);
}

static void test_no_directory(void)
{
    struct scratch s = scratch_begin();
    scratch_file(s.fd, "f", "");
    scratch_dir(s.fd, "d");
    struct dir_reader r;
    const char *name;
    size_t len;
    uint32_t before = scratch_open_files();
    CU_ASSERT_EQUAL(dir_reader_init(&r, openat(s.fd, "f", O_RDONLY | O_CLOEXEC), DIR_READER_BYTES_MIN, 0), 0);
    CU_ASSERT_EQUAL(dir_reader_next(&r, &name, &len), -ENOTDIR);
    dir_reader_fini(&r);
    // A place that is none: the descriptor is gone and the place still known.
    CU_ASSERT_EQUAL(dir_reader_init(&r, open_again(s.fd), DIR_READER_BYTES_MIN, UINT64_MAX), -EINVAL);
    CU_ASSERT(r.fd == -1 && r.offset == UINT64_MAX);
    CU_ASSERT_EQUAL(scratch_open_files(), before);
    // Removed while it is open: it has no names, and that is no error.
    int fd = openat(s.fd, "d", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    CU_ASSERT_EQUAL(unlinkat(s.fd, "d", AT_REMOVEDIR), 0);
    CU_ASSERT_EQUAL(dir_reader_init(&r, fd, DIR_READER_BYTES_MIN, 0), 0);
    CU_ASSERT_EQUAL(dir_reader_next(&r, &name, &len), 0);
    dir_reader_fini(&r);
    scratch_end(&s);
}

void suite_dir_reader(void)
{
    CU_pSuite suite = CU_add_suite("dir_reader", NULL, NULL);
    CU_add_test(suite, "all_names", test_all_names);
    CU_add_test(suite, "rewind_and_resume", test_rewind_and_resume);
    CU_add_test(suite, "no_directory", test_no_directory);
}
