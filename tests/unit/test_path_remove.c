#include "storage/path.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <CUnit/CUnit.h>

#include "tests/unit/scratch.h"

static bool is_there(int fd, const char *path)
{
    struct stat st;
    return fstatat(fd, path, &st, AT_SYMLINK_NOFOLLOW) == 0;
}

static void test_what_is_no_directory(void)
{
    struct scratch s = scratch_begin();
    scratch_file(s.fd, "f", "text");
    scratch_dir(s.fd, "d");
    scratch_link(s.fd, "l", "d");
    CU_ASSERT_EQUAL(path_remove_tree(s.fd, "none"), 0);
    CU_ASSERT_EQUAL(path_remove_tree(s.fd, "f"), 0);
    CU_ASSERT_EQUAL(path_remove_tree(s.fd, "l"), 0);
    CU_ASSERT(!is_there(s.fd, "f") && !is_there(s.fd, "l") && is_there(s.fd, "d"));
    CU_ASSERT_EQUAL(path_remove_tree(s.fd, "d"), 0);
    CU_ASSERT(!is_there(s.fd, "d"));
    char name[NAME_BYTES_MAX + 2];
    memset(name, 'n', sizeof(name));
    name[NAME_BYTES_MAX + 1] = '\0';
    CU_ASSERT_EQUAL(path_remove_tree(s.fd, name), -ENAMETOOLONG);
    scratch_end(&s);
}

static void test_tree(void)
{
    struct scratch s = scratch_begin();
    scratch_dir(s.fd, "outside");
    scratch_file(s.fd, "outside/f", "stays");
    scratch_dir(s.fd, "t");
    scratch_dir(s.fd, "t/empty");
    scratch_dir(s.fd, "t/many");
    scratch_link(s.fd, "t/out", "../outside");
    scratch_link(s.fd, "t/dangling", "nowhere");
    CU_ASSERT_EQUAL(mkfifoat(s.fd, "t/fifo", 0600), 0);
    for (int i = 0; i < 400; i++) { // more than one buffer
        char path[256];
        snprintf(path, sizeof(path), "t/many/%0230d", i);
        if (i % 10 == 0)
            scratch_dir(s.fd, path);
        else
            scratch_file(s.fd, path, "");
    }
    uint32_t before = scratch_open_files();
    CU_ASSERT_EQUAL(path_remove_tree(s.fd, "t"), 0);
    CU_ASSERT(!is_there(s.fd, "t"));
    CU_ASSERT(is_there(s.fd, "outside/f"));
    CU_ASSERT_EQUAL(scratch_open_files(), before);
    scratch_end(&s);
}

// Deeper than descriptors may be held, with something left to do on every level of the way back.
static void test_deep(void)
{
    struct scratch s = scratch_begin();
    int last = scratch_deep(s.fd, "d", 300, true);
    close(last);
    struct rlimit before, few = {80 + scratch_open_files(), 0};
    CU_ASSERT_EQUAL_FATAL(getrlimit(RLIMIT_NOFILE, &before), 0);
    few.rlim_max = before.rlim_max;
    CU_ASSERT_EQUAL(setrlimit(RLIMIT_NOFILE, &few), 0);
    CU_ASSERT_EQUAL(path_remove_tree(s.fd, "d"), 0);
    CU_ASSERT_EQUAL(setrlimit(RLIMIT_NOFILE, &before), 0);
    CU_ASSERT(!is_there(s.fd, "d"));
    scratch_end(&s);
}

// As a user who owns the tree but for one directory in it, deep down or not.
static int remove_as_other(void *arg)
{
    return -path_remove_tree(*(int *)arg, "t");
}

static void give_away(int fd, const char *path)
{
    CU_ASSERT_EQUAL(fchownat(fd, path, 65534, 65534, AT_SYMLINK_NOFOLLOW), 0);
}

static void test_what_may_not_be_removed(void)
{
    if (geteuid() != 0) {
        CU_PASS("needs root");
        return;
    }
    struct scratch s = scratch_begin();
    give_away(s.fd, ".");
    scratch_dir(s.fd, "t");
    scratch_dir(s.fd, "t/a");
    scratch_dir(s.fd, "t/a/theirs");
    scratch_file(s.fd, "t/a/theirs/f", "");
    scratch_file(s.fd, "t/a/f", "");
    scratch_dir(s.fd, "t/locked"); // without read permission, but empty
    CU_ASSERT_EQUAL(fchmodat(s.fd, "t/locked", 0, 0), 0);
    scratch_file(s.fd, "t/z", "");
    static const char *const given[] = {"t", "t/a", "t/a/f", "t/locked", "t/z"};
    for (size_t i = 0; i < ARRAY_LEN(given); i++)
        give_away(s.fd, given[i]);
    CU_ASSERT_EQUAL(scratch_child(remove_as_other, &s.fd), EACCES); // the first error, not ENOTEMPTY
    CU_ASSERT(is_there(s.fd, "t/a/theirs/f"));
    CU_ASSERT(!is_there(s.fd, "t/a/f") && !is_there(s.fd, "t/locked") && !is_there(s.fd, "t/z"));
    scratch_end(&s);
}

// Files of others in a directory where each removes only its own: the errno is the file's.
static void test_sticky(void)
{
    if (geteuid() != 0) {
        CU_PASS("needs root");
        return;
    }
    struct scratch s = scratch_begin();
    give_away(s.fd, ".");
    scratch_dir(s.fd, "t");
    CU_ASSERT_EQUAL(fchmodat(s.fd, "t", 01777, 0), 0);
    scratch_file(s.fd, "t/theirs", "");
    scratch_link(s.fd, "t/their_link", "../outside");
    scratch_dir(s.fd, "outside");
    scratch_file(s.fd, "outside/f", "");
    give_away(s.fd, "outside");
    scratch_file(s.fd, "t/mine", "");
    give_away(s.fd, "t/mine");
    CU_ASSERT_EQUAL(scratch_child(remove_as_other, &s.fd), EPERM);
    CU_ASSERT(is_there(s.fd, "t/theirs") && is_there(s.fd, "t/their_link") && !is_there(s.fd, "t/mine"));
    CU_ASSERT(is_there(s.fd, "outside/f")); // behind a link that may not be removed
    scratch_end(&s);
}

// An error below directories that were closed meanwhile: what can be removed is, once, and it comes to an
// end.
static void test_what_may_not_be_removed_far_down(void)
{
    if (geteuid() != 0) {
        CU_PASS("needs root");
        return;
    }
    struct scratch s = scratch_begin();
    give_away(s.fd, ".");
    scratch_dir(s.fd, "t");
    give_away(s.fd, "t");
    int at = openat(s.fd, "t", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (int i = 0; i < 200; i++) {
        int next = scratch_deep(at, "d", 1, false);
        if (i < 150) {
            give_away(at, "d");
            scratch_file(at, "f", "");
            give_away(at, "f");
        }
        close(at);
        at = next;
    }
    close(at);
    alarm(60);
    CU_ASSERT_EQUAL(scratch_child(remove_as_other, &s.fd), EACCES);
    alarm(0);
    CU_ASSERT(is_there(s.fd, "t/d/d/d/d"));
    CU_ASSERT(!is_there(s.fd, "t/f") && !is_there(s.fd, "t/d/d/d/f"));
    scratch_end(&s);
}

// A directory that turns into a link while it is removed: nothing behind the link goes.
static void test_race(void)
{
    struct scratch s = scratch_begin();
    scratch_dir(s.fd, "outside");
    scratch_file(s.fd, "outside/f", "stays");
    int lost = 0;
    for (int i = 0; i < 100 && lost == 0; i++) {
        scratch_dir(s.fd, "t");
        scratch_link(s.fd, "t/link", "../outside");
        scratch_dir(s.fd, "t/dir");
        scratch_file(s.fd, "t/dir/f", "");
        scratch_file(s.fd, "t/dir/g", "");
        struct swapper *swapper = swapper_start(s.fd, "t/link", "t/dir");
        int rc = -EISDIR, tries = 0;
        while (tries++ < 50 && (rc == -EISDIR || rc == -ENOTDIR || rc == -ENOTEMPTY))
            rc = path_remove_tree(s.fd, "t"); // it may meet the link where it just saw the directory
        CU_ASSERT_EQUAL(rc, 0);
        (void)swapper_stop(swapper);
        lost += !is_there(s.fd, "outside/f");
    }
    CU_ASSERT_EQUAL(lost, 0);
    scratch_end(&s);
}

void suite_path_remove(void)
{
    CU_pSuite suite = CU_add_suite("path_remove", NULL, NULL);
    CU_add_test(suite, "what_is_no_directory", test_what_is_no_directory);
    CU_add_test(suite, "tree", test_tree);
    CU_add_test(suite, "deep", test_deep);
    CU_add_test(suite, "what_may_not_be_removed", test_what_may_not_be_removed);
    CU_add_test(suite, "sticky", test_sticky);
    CU_add_test(suite, "what_may_not_be_removed_far_down", test_what_may_not_be_removed_far_down);
    CU_add_test(suite, "race", test_race);
}
