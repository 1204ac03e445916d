#include "storage/walk.h"

#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <CUnit/CUnit.h>

#include "tests/unit/scratch.h"
#include "tests/unit/walked.h"

static char nothing[] = "", a_name[] = "a", b_name[] = "b", ab_name[] = "a/b", none_name[] = "none",
            link_name[] = "link", file_name[] = "file", xy_name[] = "x/y", own_name[] = ".penstock",
            fifo_name[] = "fifo", out_of_it[] = "../a";

static void expect(struct walked l, const char *const *expected, uint32_t count)
{
    CU_ASSERT(walked_is(&l, expected, count));
    walked_free(&l);
}

static void test_every_kind(void)
{
    struct scratch s = scratch_begin();
    scratch_dir(s.fd, "dir");
    scratch_dir(s.fd, "dir/empty");
    scratch_file(s.fd, "dir/file", "12345");
    scratch_file(s.fd, "none", "");
    scratch_link(s.fd, "dir/link", "../none");
    scratch_link(s.fd, "dir/dangling", "no where");
    scratch_link(s.fd, "dir/up", "..");
    CU_ASSERT_EQUAL(mkfifoat(s.fd, "dir/fifo", 0600), 0);
    CU_ASSERT_EQUAL(mknodat(s.fd, "dir/socket", S_IFSOCK | 0600, 0), 0);
    if (geteuid() == 0) {
        CU_ASSERT_EQUAL(mknodat(s.fd, "dir/null", S_IFCHR | 0600, 0x103), 0);
    }
    static const char *const expected[] = {
        "! unsupported 0 dir/fifo",
        "! unsupported 0 dir/null",
        "! unsupported 0 dir/socket",
        "d ",
        "d dir",
        "d dir/empty",
        "f dir/file 5",
        "f none 0",
        "l dir/dangling -> no where",
        "l dir/link -> ../none",
        "l dir/up -> ..",
    };
    struct walked l = walked_dir(s.fd);
    if (geteuid() == 0) {
        CU_ASSERT(walked_is(&l, expected, ARRAY_LEN(expected)));
    } else {
        CU_ASSERT_EQUAL(l.count, ARRAY_LEN(expected) - 1);
    }
    walked_free(&l);
    scratch_end(&s);
}

static void test_odd_names(void)
{
    static const char *const names[] = {
        "-rf",   " ",           "new\nline", "tab\tescape\x1b[31m", "\xff\xfe invalid", "trailing ", "...",
        "*?[x]", "back\\slash", "\"quotes'", "caf\xc3\xa9",         "cafe\xcc\x81", // NFC and NFD
    };
    struct scratch s = scratch_begin();
    char *expected[2 * ARRAY_LEN(names) + 1], longest[NAME_BYTES_MAX + 1];
    uint32_t count = 0;
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        scratch_file(s.fd, names[i], "");
    memset(longest, 'n', NAME_BYTES_MAX);
    longest[NAME_BYTES_MAX] = '\0';
    scratch_file(s.fd, longest, "");
    struct walked l = walked_dir(s.fd);
    CU_ASSERT_EQUAL(l.count, ARRAY_LEN(names) + 2);
    CU_ASSERT_EQUAL(l.bad, 0);
    for (size_t i = 0; i < ARRAY_LEN(names) + 1; i++) {
        const char *name = i < ARRAY_LEN(names) ? names[i] : longest;
        CU_ASSERT_EQUAL_FATAL(asprintf(&expected[count], "f %s 0", name), (int)strlen(name) + 4);
        CU_ASSERT_EQUAL(walked_count(&l, expected[count]), 1);
        free(expected[count++]);
    }
    walked_free(&l);
    scratch_end(&s);
}

static void test_metadata(void)
{
    struct scratch s = scratch_begin();
    scratch_file(s.fd, "f", "123");
    const struct timespec times[2] = {{1, 2}, {-77, 999999999}};
    struct stat st;
    CU_ASSERT_EQUAL(fchmodat(s.fd, "f", 04751, 0), 0);
    CU_ASSERT_EQUAL(utimensat(s.fd, "f", times, 0), 0);
    CU_ASSERT_EQUAL(fstatat(s.fd, "f", &st, 0), 0);
    const struct walk_source sources[] = {
        {s.fd, none_name, none_name}, {s.fd, file_name, file_name}, {s.fd, nothing, a_name}};
    struct walk *w = walk_new(sources, 3);
    struct entry e = {0};
    struct err problem;
    CU_ASSERT_EQUAL(walk_next(w, &e, &problem), WALK_PROBLEM);
    CU_ASSERT_EQUAL(walk_next(w, &e, &problem), WALK_PROBLEM);
    CU_ASSERT_EQUAL(walk_next(w, &e, &problem), WALK_ENTRY);
    CU_ASSERT(e.type == ENTRY_DIR && e.mode == 0755 && e.size == 0 && e.root == 2 && e.target == NULL &&
              !e.sparse);
    CU_ASSERT_EQUAL(walk_next(w, &e, &problem), WALK_ENTRY);
    CU_ASSERT(e.type == ENTRY_FILE && e.mode == 04751 && e.size == 3 && e.root == 2 && !e.sparse);
    CU_ASSERT(e.mtime.s == -77 && e.mtime.ns == 999999999);
    CU_ASSERT(e.ctime.s == st.st_ctim.tv_sec && (long)e.ctime.ns == st.st_ctim.tv_nsec);
    CU_ASSERT(e.inode == st.st_ino && e.uid == geteuid() && e.gid == st.st_gid);
    CU_ASSERT_EQUAL(walk_next(w, &e, &problem), WALK_END);
    walk_free(w);
    scratch_end(&s);
}

static void test_sources(void)
{
    struct scratch s = scratch_begin();
    scratch_dir(s.fd, "a");
    scratch_dir(s.fd, "a/b");
    scratch_file(s.fd, "a/b/f", "1");
    scratch_file(s.fd, "file", "22");
    scratch_link(s.fd, "link", "a");
    CU_ASSERT_EQUAL(mkfifoat(s.fd, "fifo", 0600), 0);
    static const struct {
        struct walk_source source;
        const char *expected[4];
    } cases[] = {
        {{0, a_name, a_name}, {"d a", "d a/b", "f a/b/f 1"}},
        {{0, a_name, nothing}, {"d ", "d b", "f b/f 1"}},
        {{0, a_name, xy_name}, {"d x/y", "d x/y/b", "f x/y/b/f 1"}},
        {{0, ab_name, b_name}, {"d b", "f b/f 1"}},
        {{0, file_name, b_name}, {"f b 2"}},
        {{0, link_name, link_name}, {"l link -> a"}}, // what is named is not followed either
        {{0, fifo_name, b_name}, {"! unsupported 0 b"}},
        {{0, none_name, b_name}, {"! entry 2 b"}}, // what the user names must be there
        {{0, file_name, nothing}, {"! entry 20 "}},
        {{0, link_name, nothing}, {"! entry 20 "}},
        {{0, own_name, b_name}, {"! entry 2 b"}},
        {{0, a_name, own_name}, {"! entry 0 .penstock"}},
        {{0, out_of_it, b_name}, {"! entry 22 b"}},
    };
    uint32_t before = scratch_open_files();
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct walk_source source = cases[i].source;
        uint32_t count = 0;
        source.fd = s.fd;
        while (cases[i].expected[count] != NULL)
            count++;
        expect(walked_sources(&source, 1), cases[i].expected, count);
    }
    // Several; one that fails does not end the others.
    const struct walk_source all[] = {{s.fd, none_name, none_name},
                                      {s.fd, a_name, a_name},
                                      {s.fd, fifo_name, fifo_name},
                                      {s.fd, file_name, b_name}};
    static const char *const expected[] = {
        "! entry 2 none", "! unsupported 0 fifo", "d a", "d a/b", "f a/b/f 1", "f b 2"};
    expect(walked_sources(all, 4), expected, ARRAY_LEN(expected));
    expect(walked_sources(all, 0), NULL, 0);
    CU_ASSERT_EQUAL(scratch_open_files(), before);
    scratch_end(&s);
}

static void test_own_folder(void)
{
    struct scratch s = scratch_begin();
    scratch_dir(s.fd, "a");
    scratch_dir(s.fd, "a/.penstock");
    scratch_file(s.fd, "a/.penstock/inside", "");
    scratch_dir(s.fd, ".penstock");
    scratch_file(s.fd, ".penstock/journal", "");
    scratch_file(s.fd, ".penstock-is-another", "");
    static const char *const whole[] = {"d ", "d a", "f .penstock-is-another 0"};
    expect(walked_dir(s.fd), whole, ARRAY_LEN(whole));
    // Whatever it becomes at the destination.
    const struct walk_source top = {s.fd, a_name, nothing}, below = {s.fd, nothing, b_name};
    static const char *const contents[] = {"d "};
    expect(walked_sources(&top, 1), contents, 1);
    struct walked l = walked_sources(&below, 1);
    CU_ASSERT_EQUAL(walked_count(&l, "f b/.penstock/journal"), 0);
    walked_free(&l);
    // Of that name, but no directory: it cannot be said and is not kept quiet.
    CU_ASSERT_EQUAL(unlinkat(s.fd, "a/.penstock/inside", 0), 0);
    CU_ASSERT_EQUAL(unlinkat(s.fd, "a/.penstock", AT_REMOVEDIR), 0);
    scratch_file(s.fd, "a/.penstock", "");
    static const char *const refused[] = {"! entry 0 .penstock", "d "};
    expect(walked_sources(&top, 1), refused, 2);
    scratch_end(&s);
}

static void test_avoid(void)
{
    struct scratch s = scratch_begin();
    scratch_dir(s.fd, "a");
    scratch_dir(s.fd, "a/dest");
    scratch_file(s.fd, "a/dest/f", "");
    scratch_file(s.fd, "a/z", "");
    struct stat st;
    CU_ASSERT_EQUAL(fstatat(s.fd, "a/dest", &st, 0), 0);
    struct walk_source source = {s.fd, a_name, a_name};
    struct walk *w = walk_new(&source, 1);
    walk_avoid(w, st.st_dev, st.st_ino + 1000000); // nothing of ours
    walk_avoid(w, st.st_dev, st.st_ino);
    static const char *const expected[] = {"! entry 0 a/dest", "d a", "f a/z 0"};
    expect(walked_all(w), expected, ARRAY_LEN(expected));
    walk_free(w);
    w = walk_new(&source, 1);
    CU_ASSERT_EQUAL(fstatat(s.fd, "a", &st, 0), 0);
    walk_avoid(w, st.st_dev, st.st_ino);
    static const char *const itself[] = {"! entry 0 a"};
    expect(walked_all(w), itself, 1);
    walk_free(w);
    scratch_end(&s);
}

static void test_sparse(void)
{
    enum { B = BLOCK_BYTES };
    struct scratch s = scratch_begin();
    int fd = openat(s.fd, "holes", O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    CU_ASSERT_EQUAL(ftruncate(fd, 100 * B + 5), 0);
    bool can = lseek(fd, 0, SEEK_DATA) < 0;
    CU_ASSERT_EQUAL(pwrite(fd, "x", 1, 32 * B + 9), 1);
    CU_ASSERT_EQUAL(pwrite(fd, "x", 1, 100 * B + 4), 1);
    close(fd);
    fd = openat(s.fd, "void", O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    CU_ASSERT_EQUAL(ftruncate(fd, 50 * B), 0);
    close(fd);
    scratch_bytes(s.fd, "full", 10 * B);
    struct walk_source source = {s.fd, nothing, nothing};
    uint32_t open_before = scratch_open_files();
    struct walk *w = walk_new(&source, 1);
    struct entry e;
    struct err problem;
    uint32_t seen = 0;
    while (can && walk_next(w, &e, &problem) == WALK_ENTRY) {
        if (memcmp(e.path, "holes", e.path_len) == 0 && e.path_len == 5) {
            CU_ASSERT(e.sparse && e.data_count == 2 && e.data[0].offset == 32 * B && e.data[0].len == B &&
                      e.data[1].offset == 100 * B && e.data[1].len == 5);
            seen++;
        } else if (memcmp(e.path, "void", e.path_len) == 0 && e.path_len == 4) {
            CU_ASSERT(e.sparse && e.data_count == 0 && e.size == 50 * B);
            seen++;
        } else if (e.type == ENTRY_FILE) {
            CU_ASSERT(!e.sparse && e.data == NULL && e.data_count == 0);
            seen++;
        }
        CU_ASSERT_EQUAL(entry_check(&e), 0);
    }
    if (can) {
        CU_ASSERT_EQUAL(seen, 3);
    } else {
        fprintf(stderr, "skipped: this file system cannot say where holes are\n");
        CU_PASS("no SEEK_HOLE");
    }
    walk_free(w);
    CU_ASSERT_EQUAL(scratch_open_files(), open_before);
    scratch_end(&s);
}

static int walk_as_other(void *arg)
{
    // "blind" can be listed, but nothing in it looked at; a file without holes is not opened by the walk.
    static const char *const expected[] = {
        "! entry 13 blind/f", "! entry 13 closed", "! entry 13 hole", "d ", "d blind", "d open",
        "f dense 5",          "f file 0",          "f open/f 0",
    };
    struct walked l = walked_dir(*(int *)arg);
    return walked_is(&l, expected, ARRAY_LEN(expected)) ? 0 : 1;
}

static void test_unreadable(void)
{
    if (geteuid() != 0) {
        CU_PASS("needs root");
        return;
    }
    struct scratch s = scratch_begin();
    static const char *const dirs[] = {"closed", "blind", "open"};
    for (size_t i = 0; i < ARRAY_LEN(dirs); i++) {
        char path[16];
        scratch_dir(s.fd, dirs[i]);
        snprintf(path, sizeof(path), "%s/f", dirs[i]);
        scratch_file(s.fd, path, "");
    }
    scratch_file(s.fd, "file", "");
    scratch_file(s.fd, "hole", "");
    scratch_file(s.fd, "dense", "12345");
    CU_ASSERT_EQUAL(fchmodat(s.fd, "dense", 0600, 0), 0);
    CU_ASSERT_EQUAL(fchmodat(s.fd, "closed", 0700, 0), 0);
    CU_ASSERT_EQUAL(fchmodat(s.fd, "blind", 0744, 0), 0);
    CU_ASSERT_EQUAL(fchmodat(s.fd, "hole", 0600, 0), 0);
    int fd = openat(s.fd, "hole", O_WRONLY | O_CLOEXEC);
    CU_ASSERT_EQUAL(ftruncate(fd, MIB), 0); // sparse: the walk has to open it
    close(fd);
    CU_ASSERT_EQUAL(scratch_child(walk_as_other, &s.fd), 0);
    scratch_end(&s);
}

// A directory that is mounted into itself.
static int walk_a_loop(void *arg)
{
    const struct scratch *s = arg;
    char top[600], inner[600];
    snprintf(top, sizeof(top), "%s/a", s->path);
    snprintf(inner, sizeof(inner), "%s/a/b", s->path);
    if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount(top, inner, NULL, MS_BIND, NULL) != 0)
        return 77;
    int fd = open(top, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    static const char *const expected[] = {"! entry 40 b", "d ", "f f 0"};
    struct walked l = walked_dir(fd);
    return walked_is(&l, expected, ARRAY_LEN(expected)) ? 0 : 1;
}

static void test_loop(void)
{
    struct scratch s = scratch_begin();
    scratch_dir(s.fd, "a");
    scratch_dir(s.fd, "a/b");
    scratch_file(s.fd, "a/f", "");
    int status = scratch_root_child(walk_a_loop, &s);
    if (status == 77)
        fprintf(stderr, "skipped: nothing may be mounted here\n");
    CU_ASSERT(status == 0 || status == 77);
    scratch_end(&s);
}

void suite_walk(void)
{
    CU_pSuite suite = CU_add_suite("walk", NULL, NULL);
    CU_add_test(suite, "every_kind", test_every_kind);
    CU_add_test(suite, "odd_names", test_odd_names);
    CU_add_test(suite, "metadata", test_metadata);
    CU_add_test(suite, "sources", test_sources);
    CU_add_test(suite, "own_folder", test_own_folder);
    CU_add_test(suite, "avoid", test_avoid);
    CU_add_test(suite, "sparse", test_sparse);
    CU_add_test(suite, "unreadable", test_unreadable);
    CU_add_test(suite, "loop", test_loop);
}
