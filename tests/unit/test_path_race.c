#include "storage/path.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <CUnit/CUnit.h>

#include "storage/path_walk.h"
#include "tests/unit/scratch.h"

typedef int open_function(int root_fd, const void *path, size_t len, int flags, mode_t mode);

// root/ with a/f and a link to outside/ that lies beside it.
static int make_tree(struct scratch *s)
{
    scratch_dir(s->fd, "outside");
    scratch_file(s->fd, "outside/f", "secret");
    scratch_dir(s->fd, "root");
    scratch_dir(s->fd, "root/a");
    scratch_file(s->fd, "root/a/f", "inside");
    scratch_link(s->fd, "root/out", "../outside");
    int root = openat(s->fd, "root", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    CU_ASSERT_FATAL(root >= 0);
    return root;
}

// "a" is a directory and a link to the outside by turns: what is opened always lies inside.
static void race(open_function *open_it)
{
    enum { TRIES = 5000 };
    struct scratch s = scratch_begin();
    int root = make_tree(&s);
    int opened = 0, refused = 0, odd = 0, outside = 0;
    struct stat secret, st;
    CU_ASSERT_EQUAL_FATAL(fstatat(s.fd, "outside/f", &secret, 0), 0);
    struct swapper *swapper = swapper_start(root, "a", "out");
    for (int i = 0; i < TRIES || ((opened < 10 || refused < 10) && i < 100 * TRIES); i++) {
        char name[NAME_BYTES_MAX + 1];
        int fd = i % 2 == 0 ? open_it(root, "a/f", 3, O_RDWR, 0) : path_open_parent(root, "a/f", 3, name);
        int file = i % 2 == 0 || fd < 0 ? fd : openat(fd, name, O_RDONLY | O_NOFOLLOW);
        opened += fd >= 0;
        refused += fd == -ELOOP;
        // The walk looks a second time to tell a link from a file: then it may be a directory again.
        odd += fd < 0 && fd != -ELOOP && fd != -ENOTDIR;
        outside += file >= 0 && (fstat(file, &st) != 0 || st.st_ino == secret.st_ino);
        if (file >= 0 && file != fd)
            close(file);
        if (fd >= 0)
            close(fd);
    }
    CU_ASSERT(swapper_stop(swapper) > 100);
    CU_ASSERT_EQUAL(outside, 0);
    CU_ASSERT_EQUAL(odd, 0);
    CU_ASSERT(opened >= 10 && refused >= 10); // else there was no race
    close(root);
    scratch_end(&s);
}

static void test_open(void)
{
    race(path_open);
}

static void test_open_by_walk(void)
{
    race(path_walk_open);
}

// While a parent is a link by turns nothing is made outside.
static void test_mkdirs(void)
{
    struct scratch s = scratch_begin();
    int root = make_tree(&s), made_ones = 0, refused = 0, odd = 0;
    struct swapper *swapper = swapper_start(root, "a", "out");
    for (int i = 0; i < 2000 || ((made_ones < 10 || refused < 10) && i < 100000); i++) {
        char path[32];
        bool made;
        snprintf(path, sizeof(path), "a/%d/q", i);
        int rc = path_mkdirs(root, path, strlen(path), 0755, &made);
        made_ones += rc == 0;
        refused += rc == -ELOOP;
        odd += rc != 0 && rc != -ELOOP && rc != -ENOTDIR && rc != -ENOENT;
    }
    CU_ASSERT(swapper_stop(swapper) > 100);
    CU_ASSERT_EQUAL(odd, 0);
    CU_ASSERT(made_ones >= 10 && refused >= 10);
    struct stat st;
    CU_ASSERT(fstatat(s.fd, "outside", &st, 0) == 0 && st.st_nlink == 2); // no directory in it
    close(root);
    scratch_end(&s);
}

void suite_path_race(void)
{
    CU_pSuite suite = CU_add_suite("path_race", NULL, NULL);
    CU_add_test(suite, "open", test_open);
    CU_add_test(suite, "open_by_walk", test_open_by_walk);
    CU_add_test(suite, "mkdirs", test_mkdirs);
}
