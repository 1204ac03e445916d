#include "storage/path.h"

#include <errno.h>
#include <limits.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <CUnit/CUnit.h>

#include "storage/path_walk.h"
#include "tests/unit/scratch.h"

// Both ways to open; the walk is for paths that were checked and are not empty.
static int by_walk(int root_fd, const void *path, size_t len, int flags, mode_t mode)
{
    return len == 0 ? path_open(root_fd, path, len, flags, mode)
                    : path_walk_open(root_fd, path, len, flags, mode);
}

typedef int open_function(int root_fd, const void *path, size_t len, int flags, mode_t mode);
static open_function *const opens[] = {path_open, by_walk};

static int open_text(open_function *open_it, int root_fd, const char *path, int flags)
{
    return open_it(root_fd, path, strlen(path), flags, 0644);
}

static bool same_file(int fd, int dir_fd, const char *name)
{
    struct stat a, b;
    return fstat(fd, &a) == 0 && fstatat(dir_fd, name, &b, AT_SYMLINK_NOFOLLOW) == 0 &&
           a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

// root/ with a/b/f, links in every place, and outside/ beside it.
static int make_tree(struct scratch *s)
{
    scratch_dir(s->fd, "outside");
    scratch_file(s->fd, "outside/f", "secret");
    scratch_dir(s->fd, "root");
    int root = openat(s->fd, "root", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    CU_ASSERT_FATAL(root >= 0);
    scratch_dir(root, "a");
    scratch_dir(root, "a/b");
    scratch_file(root, "a/b/f", "inside");
    scratch_file(root, "file", "");
    scratch_link(root, "out", "../outside");
    scratch_link(root, "in", "a");
    scratch_link(root, "a/b/link", "f");
    scratch_link(root, "dangling", "nowhere");
    scratch_link(root, "loop", "loop");
    scratch_file(root, "..three", "a name that only looks like a way up");
    return root;
}

// How many of the cases come out wrong.
static uint32_t wrong_opens(open_function *open_it, int root)
{
    static const struct {
        const char *path;
        int flags, rc; // 0: opened, and it is what lies there
    } cases[] = {
        {"a/b/f", O_RDONLY, 0},
        {"a/b", O_RDONLY | O_DIRECTORY, 0},
        {"a/b", O_PATH | O_DIRECTORY, 0},
        {"a", O_RDONLY, 0},
        {"..three", O_RDONLY, 0},
        {"a/b/new", O_RDWR | O_CREAT, 0},
        {"a/b/new", O_RDWR | O_CREAT | O_EXCL, -EEXIST},
        {"", O_RDONLY | O_DIRECTORY, 0},
        {"", O_PATH, 0},
        // links, in the middle and at the end
        {"in/b/f", O_RDONLY, -ELOOP},
        {"out/f", O_RDONLY, -ELOOP},
        {"out/new", O_RDWR | O_CREAT, -ELOOP},
        {"loop/f", O_RDONLY, -ELOOP},
        {"dangling/f", O_RDONLY, -ELOOP},
        {"a/b/link", O_RDONLY, -ELOOP},
        {"a/b/link/f", O_RDONLY, -ELOOP},
        {"out", O_RDONLY, -ELOOP},
        {"out", O_RDONLY | O_DIRECTORY, -ELOOP},
        {"out", O_RDONLY | O_DIRECTORY | O_NOFOLLOW, -ELOOP},
        {"out", O_PATH | O_DIRECTORY, -ELOOP},
        {"out", O_PATH | O_DIRECTORY | O_NOFOLLOW, -ELOOP},
        {"out", O_PATH, 0}, // the link itself
        {"out", O_PATH | O_NOFOLLOW, 0},
        {"dangling", O_RDWR | O_CREAT, -ELOOP},
        {"dangling", O_RDWR | O_CREAT | O_EXCL, -EEXIST},
        // what is not there, and what is no directory
        {"none", O_RDONLY, -ENOENT},
        {"none/f", O_RDONLY, -ENOENT},
        {"a/none/f", O_RDWR | O_CREAT, -ENOENT},
        {"file/f", O_RDONLY, -ENOTDIR},
        {"file", O_RDONLY | O_DIRECTORY, -ENOTDIR},
        {"a", O_RDWR, -EISDIR},
    };
    uint32_t wrong = 0;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const char *path = cases[i].path;
        if (strcmp(path, "a/b/new") == 0 && cases[i].rc == 0)
            (void)unlinkat(root, path, 0);
        int fd = open_text(open_it, root, path, cases[i].flags);
        bool right =
            (fd < 0 ? fd : 0) == cases[i].rc && (fd < 0 || same_file(fd, root, path[0] == '\0' ? "." : path));
        if (!right)
            fprintf(stderr, "\"%s\" with flags %#o: %d\n", path, (unsigned)cases[i].flags, fd);
        wrong += !right;
        if (fd >= 0)
            close(fd);
    }
    return wrong;
}

static void test_open(void)
{
    struct scratch s = scratch_begin();
    int root = make_tree(&s);
    uint32_t before = scratch_open_files();
    CU_ASSERT_EQUAL(wrong_opens(path_open, root), 0);
    CU_ASSERT_EQUAL(wrong_opens(by_walk, root), 0);
    CU_ASSERT_EQUAL(scratch_open_files(), before);
    CU_ASSERT_EQUAL(faccessat(s.fd, "outside/new", F_OK, 0), -1);
    close(root);
    scratch_end(&s);
}

struct refusal {
    int root, os;
};

// With a filter that refuses openat2 with errno `os`, as containers have it.
static int open_behind_a_filter(void *arg)
{
    const struct refusal *r = arg;
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat2, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (uint32_t)r->os),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {ARRAY_LEN(code), code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0)
        return 77;
    if (sys_open_beneath(r->root, "a", O_RDONLY, 0) != -ENOSYS)
        return 1;
    return wrong_opens(path_open, r->root) == 0 ? 0 : 2;
}

static void test_open_without_openat2(void)
{
    struct scratch s = scratch_begin();
    struct refusal refusals[] = {{make_tree(&s), ENOSYS}, {0, EPERM}};
    refusals[1].root = refusals[0].root;
    for (size_t i = 0; i < ARRAY_LEN(refusals); i++) {
        int status = scratch_root_child(open_behind_a_filter, &refusals[i]);
        if (status == 77)
            fprintf(stderr, "skipped: no filter of system calls here\n");
        CU_ASSERT(status == 0 || status == 77);
    }
    close(refusals[0].root);
    scratch_end(&s);
}

static void test_paths_that_are_none(void)
{
    struct scratch s = scratch_begin();
    int root = make_tree(&s);
    char long_name[NAME_BYTES_MAX + 3] = "a/";
    memset(long_name + 2, 'n', NAME_BYTES_MAX); // as long as may be
    static const struct {
        const char *path;
        size_t len;
    } cases[] = {
        {"..", 2},      {".", 1},       {"../outside/f", 12}, {"a/../../outside/f", 17},
        {"a/..", 4},    {"a/.", 3},     {"./a", 3},           {"/a", 2},
        {"/", 1},       {"a/", 2},      {"a//b", 4},          {"a/b/f/", 6},
        {"a\0/b/f", 6}, {"a/b/f\0", 6}, {"/etc/passwd", 11},
    };
    char name[NAME_BYTES_MAX + 1] = "before";
    bool made = true;
    struct path_cache *cache = path_cache_new(root);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        CU_ASSERT_EQUAL(path_open(root, cases[i].path, cases[i].len, O_RDONLY, 0), -EINVAL);
        CU_ASSERT_EQUAL(path_open_parent(root, cases[i].path, cases[i].len, name), -EINVAL);
        CU_ASSERT_EQUAL(path_cache_parent(cache, cases[i].path, cases[i].len, name), -EINVAL);
        CU_ASSERT_EQUAL(path_mkdirs(root, cases[i].path, cases[i].len, 0755, &made), -EINVAL);
    }
    CU_ASSERT_EQUAL(path_open(root, "", 0, O_RDONLY, 0), -EINVAL);
    CU_ASSERT_EQUAL(path_open_parent(root, "", 0, name), -EINVAL);
    CU_ASSERT_EQUAL(path_cache_parent(cache, "", 0, name), -EINVAL);
    CU_ASSERT_EQUAL(path_open(root, long_name, strlen(long_name), O_RDONLY, 0), -ENOENT);
    char longer[NAME_BYTES_MAX + 4];
    memcpy(longer, long_name, sizeof(long_name));
    strcat(longer, "n");
    CU_ASSERT_EQUAL(path_open(root, longer, strlen(longer), O_RDONLY, 0), -ENAMETOOLONG);
    CU_ASSERT_EQUAL(path_open_parent(root, longer, strlen(longer), name), -ENAMETOOLONG);
    CU_ASSERT_EQUAL(path_mkdirs(root, longer, strlen(longer), 0755, &made), -ENAMETOOLONG);
    CU_ASSERT_STRING_EQUAL(name, "before"); // untouched by all that failed
    CU_ASSERT(made);
    path_cache_free(cache);
    close(root);
    scratch_end(&s);
}

// Makes a directory with a name of `first` bytes, beneath it others with names of 100 bytes until the next
// would pass `len`, then a file whose path is exactly so long.
static char *make_long_from(int root, size_t len, size_t first)
{
    char *path = calloc(1, len + 1);
    CU_ASSERT_FATAL(path != NULL);
    int at = dup(root);
    size_t done = 0;
    char name[NAME_BYTES_MAX + 1];
    while (len - done > 201) {
        size_t n = done == 0 ? first : 100;
        memset(name, 'd', n);
        name[n] = '\0';
        (void)mkdirat(at, name, 0755);
        int next = openat(at, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        CU_ASSERT_FATAL(next >= 0);
        close(at);
        at = next;
        memcpy(path + done, name, n);
        path[done + n] = '/';
        done += n + 1;
    }
    memset(name, 'f', len - done);
    name[len - done] = '\0';
    memcpy(path + done, name, len - done);
    scratch_file(at, name, "");
    close(at);
    return path;
}

static char *make_long(int root, size_t len)
{
    return make_long_from(root, len, 100);
}

// Where the kernel's limit falls on a slash, before it and behind it.
static void test_cut_at_a_slash(void)
{
    struct scratch s = scratch_begin();
    for (size_t at = PATH_MAX - 3; at <= PATH_MAX + 2; at++) {
        char *path = make_long_from(s.fd, PATH_MAX + 500, at % 101);
        CU_ASSERT_EQUAL(path[at], '/');
        int fd = path_open(s.fd, path, PATH_MAX + 500, O_RDONLY, 0);
        CU_ASSERT(fd >= 0);
        close(fd);
        free(path);
    }
    scratch_end(&s);
}

static void test_long_paths(void)
{
    static const size_t lengths[] = {300,          PATH_MAX - 2, PATH_MAX - 1,   PATH_MAX,
                                     PATH_MAX + 1, 2 * PATH_MAX, PATH_BYTES_MAX, PATH_BYTES_MAX + 5000};
    struct scratch s = scratch_begin();
    uint32_t before = scratch_open_files();
    struct path_cache *cache = path_cache_new(s.fd);
    for (size_t i = 0; i < ARRAY_LEN(lengths); i++) {
        size_t len = lengths[i];
        char *path = make_long(s.fd, len), name[NAME_BYTES_MAX + 1];
        for (size_t k = 0; k < ARRAY_LEN(opens); k++) {
            int fd = opens[k](s.fd, path, len, O_RDONLY, 0);
            CU_ASSERT(fd >= 0);
            int parent = path_open_parent(s.fd, path, len, name);
            CU_ASSERT(same_file(fd, parent, name));
            CU_ASSERT_STRING_EQUAL(name, strrchr(path, '/') + 1);
            CU_ASSERT_EQUAL(path_open_parent(fd, path, len, name), -ENOTDIR);
            close(parent);
            close(fd);
            parent = path_cache_parent(cache, path, len, name);
            CU_ASSERT_EQUAL(faccessat(parent, name, F_OK, 0), 0);
            // What does not fit the first system call is checked as well.
            path[len - 1] = 'x';
            CU_ASSERT_EQUAL(opens[k](s.fd, path, len, O_RDONLY, 0), -ENOENT);
            path[len - 1] = 'f';
        }
        free(path);
    }
    path_cache_free(cache);
    CU_ASSERT_EQUAL(scratch_open_files(), before);
    scratch_end(&s);
}

// A link in the part of a path that only the second system call sees.
static void test_link_far_down(void)
{
    struct scratch s = scratch_begin();
    char *path = make_long(s.fd, 2 * PATH_MAX);
    char *slash = strrchr(path, '/');
    size_t parent_len = (size_t)(slash - path);
    int parent = path_open(s.fd, path, parent_len, O_RDONLY | O_DIRECTORY, 0);
    CU_ASSERT_FATAL(parent >= 0);
    scratch_link(parent, "up", "..");
    scratch_dir(parent, "sub");
    memcpy(slash, "/up/sub", 8);
    for (size_t k = 0; k < ARRAY_LEN(opens); k++)
        CU_ASSERT_EQUAL(open_text(opens[k], s.fd, path, O_RDONLY), -ELOOP);
    close(parent);
    free(path);
    scratch_end(&s);
}

static void test_parent(void)
{
    struct scratch s = scratch_begin();
    int root = make_tree(&s);
    char name[NAME_BYTES_MAX + 1];
    int fd = path_open_parent(root, "a/b/f", 5, name);
    CU_ASSERT_STRING_EQUAL(name, "f");
    CU_ASSERT(same_file(fd, root, "a/b"));
    CU_ASSERT_EQUAL(fsync(fd), 0); // it can be synced
    close(fd);
    fd = path_open_parent(root, "not there", 9, name); // the parent is the root; the name need not be there
    CU_ASSERT_STRING_EQUAL(name, "not there");
    CU_ASSERT(fd != root && same_file(fd, root, "."));
    close(fd);
    CU_ASSERT_EQUAL(path_open_parent(root, "in/b/f", 6, name), -ELOOP);
    CU_ASSERT_EQUAL(path_open_parent(root, "out/f", 5, name), -ELOOP);
    CU_ASSERT_EQUAL(path_open_parent(root, "file/f", 6, name), -ENOTDIR);
    CU_ASSERT_EQUAL(path_open_parent(root, "none/f", 6, name), -ENOENT);
    CU_ASSERT_STRING_EQUAL(name, "not there");
    close(root);
    scratch_end(&s);
}

static int cached(struct path_cache *c, const char *path, const char *expected_name)
{
    char name[NAME_BYTES_MAX + 1] = "";
    int fd = path_cache_parent(c, path, strlen(path), name);
    CU_ASSERT(fd < 0 || strcmp(name, expected_name) == 0);
    return fd;
}

// An empty directory stays empty for who has asked, until it is opened again.
static void test_cache_empty(void)
{
    struct scratch s = scratch_begin();
    scratch_dir(s.fd, "none");
    scratch_dir(s.fd, "one");
    scratch_file(s.fd, "one/x", "");
    struct path_cache *c = path_cache_new(s.fd);
    CU_ASSERT(cached(c, "x", "x") >= 0);
    CU_ASSERT_FALSE(path_cache_empty(c)); // the root
    CU_ASSERT(cached(c, "one/x", "x") >= 0);
    CU_ASSERT_FALSE(path_cache_empty(c));
    CU_ASSERT(cached(c, "none/x", "x") >= 0);
    CU_ASSERT_TRUE(path_cache_empty(c));
    scratch_file(s.fd, "none/x", "");
    CU_ASSERT(cached(c, "none/y", "y") >= 0);
    CU_ASSERT_TRUE(path_cache_empty(c));
    CU_ASSERT(cached(c, "one/y", "y") >= 0);
    CU_ASSERT_FALSE(path_cache_empty(c));
    path_cache_clear(c);
    CU_ASSERT(cached(c, "none/x", "x") >= 0);
    CU_ASSERT_FALSE(path_cache_empty(c));
    path_cache_free(c);
    scratch_end(&s);
}

static void test_cache(void)
{
    struct scratch s = scratch_begin();
    for (const char *c = "abcdef"; *c != '\0'; c++)
        scratch_dir(s.fd, (char[]){*c, '\0'});
    uint32_t before = scratch_open_files();
    struct path_cache *c = path_cache_new(s.fd);
    int a = cached(c, "a/1", "1");
    CU_ASSERT(same_file(a, s.fd, "a"));
    CU_ASSERT_EQUAL(cached(c, "a/22", "22"), a);
    CU_ASSERT(same_file(cached(c, "b/1", "1"), s.fd, "b"));
    CU_ASSERT(same_file(cached(c, "c", "c"), s.fd, "."));
    CU_ASSERT(same_file(cached(c, "c/1", "1"), s.fd, "c"));
    CU_ASSERT_EQUAL(cached(c, "a/1", "1"), a); // all four are remembered
    CU_ASSERT_EQUAL(scratch_open_files(), before + 4);
    for (const char *p = "def"; *p != '\0'; p++) // these push b, the root and c out, but not a
        CU_ASSERT(same_file(cached(c, (char[]){*p, '/', 'x', '\0'}, "x"), s.fd, (char[]){*p, '\0'}));
    CU_ASSERT_EQUAL(cached(c, "a/1", "1"), a);
    CU_ASSERT_EQUAL(scratch_open_files(), before + 4);
    // A failure leaves what is remembered alone.
    CU_ASSERT_EQUAL(cached(c, "none/x", ""), -ENOENT);
    CU_ASSERT_EQUAL(cached(c, "a/1", "1"), a);
    // A directory that was replaced: remembered until the cache is cleared.
    CU_ASSERT_EQUAL(renameat(s.fd, "a", s.fd, "old"), 0);
    scratch_dir(s.fd, "a");
    CU_ASSERT(same_file(cached(c, "a/1", "1"), s.fd, "old"));
    path_cache_clear(c);
    CU_ASSERT_EQUAL(scratch_open_files(), before);
    CU_ASSERT(same_file(cached(c, "a/1", "1"), s.fd, "a"));
    path_cache_free(c);
    path_cache_free(NULL);
    CU_ASSERT_EQUAL(scratch_open_files(), before);
    scratch_end(&s);
}

static int mkdirs(int root_fd, const char *path, bool *made)
{
    return path_mkdirs(root_fd, path, strlen(path), 0755, made);
}

static void test_mkdirs(void)
{
    struct scratch s = scratch_begin();
    int root = make_tree(&s);
    uint32_t before = scratch_open_files();
    static const struct {
        const char *path;
        int rc;
        bool made;
    } cases[] = {
        {"new", 0, true},
        {"new", 0, false},
        {"x/y/z/w", 0, true},
        {"x/y/z/w", 0, false},
        {"x/y", 0, false},
        {"x/y/side", 0, true},
        {"a/b/c", 0, true},
        {"", 0, false},
        {"file", -ENOTDIR, false},
        {"file/d", -ENOTDIR, false},
        {"file/d/e", -ENOTDIR, false},
        {"out", -ELOOP, false},
        {"out/d", -ELOOP, false},
        {"out/d/e", -ELOOP, false},
        {"in/d", -ELOOP, false},
        {"dangling", -ELOOP, false},
        {"dangling/d/e", -ELOOP, false},
        {"new/../../outside/d", -EINVAL, false},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        bool made = !cases[i].made; // what a call that works must set
        CU_ASSERT_EQUAL(mkdirs(root, cases[i].path, &made), cases[i].rc);
        CU_ASSERT_EQUAL(made, cases[i].rc == 0 ? cases[i].made : !cases[i].made);
    }
    struct stat st;
    mode_t mask = umask(077);
    umask(mask);
    CU_ASSERT(fstatat(root, "x/y/z", &st, 0) == 0 && (st.st_mode & 07777) == (0755 & ~mask));
    CU_ASSERT_EQUAL(path_mkdirs(root, "q/r", 3, 0051, &(bool){false}), 0); // its owner can always work in it
    CU_ASSERT(fstatat(root, "q/r", &st, 0) == 0 && (st.st_mode & 07777) == (0751 & ~mask));
    CU_ASSERT_EQUAL(faccessat(s.fd, "outside/d", F_OK, 0), -1);
    CU_ASSERT_EQUAL(faccessat(root, "a/d", F_OK, 0), -1);
    char *far = make_long(root, 2 * PATH_MAX), name[NAME_BYTES_MAX + 1];
    bool made = false;
    char *slash = strrchr(far, '/');
    memcpy(slash, "/p/q", 5);
    CU_ASSERT(mkdirs(root, far, &made) == 0 && made);
    CU_ASSERT(mkdirs(root, far, &made) == 0 && !made);
    int fd = path_open_parent(root, far, strlen(far), name);
    CU_ASSERT_EQUAL(faccessat(fd, "q", F_OK, 0), 0);
    close(fd);
    free(far);
    CU_ASSERT_EQUAL(scratch_open_files(), before);
    close(root);
    scratch_end(&s);
}

void suite_path(void)
{
    CU_pSuite suite = CU_add_suite("path", NULL, NULL);
    CU_add_test(suite, "open", test_open);
    CU_add_test(suite, "open_without_openat2", test_open_without_openat2);
    CU_add_test(suite, "paths_that_are_none", test_paths_that_are_none);
    CU_add_test(suite, "long_paths", test_long_paths);
    CU_add_test(suite, "cut_at_a_slash", test_cut_at_a_slash);
    CU_add_test(suite, "link_far_down", test_link_far_down);
    CU_add_test(suite, "parent", test_parent);
    CU_add_test(suite, "cache", test_cache);
    CU_add_test(suite, "cache_empty", test_cache_empty);
    CU_add_test(suite, "mkdirs", test_mkdirs);
}
