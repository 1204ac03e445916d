// What the tests of the destination share.
#ifndef PENSTOCK_TESTS_UNIT_DEST_KIT_H
#define PENSTOCK_TESTS_UNIT_DEST_KIT_H

#include <dirent.h>
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CUnit/CUnit.h>

#include "storage/dest.h"
#include "storage/dest_inner.h"
#include "storage/sys.h"
#include "tests/unit/scratch.h"
#include "tests/unit/tree.h"

// Closes a temporary file and removes it.
static inline void kit_discard(struct dest_file *f)
{
    dest_unlink_temp(f->dir_fd, f->name);
    dest_file_close(f);
}

// Another descriptor of the directory, for dest_open to take over.
static inline int kit_root(int dir_fd)
{
    int fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    CU_ASSERT_FATAL(fd >= 0);
    return fd;
}

static inline struct dest_lock_info kit_info(const char *host)
{
    struct dest_lock_info info = {.user = "tester", .since_s = 1700000000};
    memset(info.job.bytes, 0x5a, sizeof(info.job.bytes));
    snprintf(info.host, sizeof(info.host), "%s", host);
    return info;
}

// The result of dest_open without waiting.
static inline int kit_try(int dir_fd, struct dest *out)
{
    struct dest_lock_info mine = kit_info("here"), holder;
    return dest_open(kit_root(dir_fd), &mine, 0, out, &holder);
}

static inline struct dest kit_open(int dir_fd)
{
    struct dest d;
    CU_ASSERT_EQUAL_FATAL(kit_try(dir_fd, &d), 0);
    return d;
}

// An entry whose owner is the one who tests.
static inline struct entry kit_file(const char *path, uint64_t size)
{
    struct entry e = tree_file(path, size);
    e.uid = geteuid();
    e.gid = getegid();
    return e;
}

static inline bool kit_there(int dir_fd, const char *path)
{
    struct stat st;
    return fstatat(dir_fd, path, &st, AT_SYMLINK_NOFOLLOW) == 0;
}

static inline struct stat kit_stat(int dir_fd, const char *path)
{
    struct stat st = {0};
    CU_ASSERT_EQUAL(fstatat(dir_fd, path, &st, AT_SYMLINK_NOFOLLOW), 0);
    return st;
}

// Whether the file holds just these bytes.
static inline bool kit_holds(int dir_fd, const char *path, const void *bytes, size_t len)
{
    uint8_t *found = malloc(len + 1);
    int fd = openat(dir_fd, path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    bool same = found != NULL && fd >= 0 && sys_pread_full(fd, found, len + 1, 0) == (ssize_t)len &&
                memcmp(found, bytes, len) == 0;
    if (fd >= 0)
        close(fd);
    free(found);
    return same;
}

static inline bool kit_says(int dir_fd, const char *path, const char *text)
{
    return kit_holds(dir_fd, path, text, strlen(text));
}

// How many names the directory holds, "." and ".." not counted.
static inline unsigned kit_names(int dir_fd)
{
    char names[65536];
    int fd = kit_root(dir_fd);
    unsigned count = 0;
    for (ssize_t len; (len = sys_getdents(fd, names, sizeof(names))) > 0;)
        for (ssize_t at = 0; at < len; at += ((const struct dirent64 *)(const void *)(names + at))->d_reclen)
            count++;
    close(fd);
    return count - 2;
}

static inline int kit_small_write(const struct dest *d, struct path_cache *cache, const struct entry *e,
                                  const char *body)
{
    return dest_small_write(d, cache, e, body, (size_t)e->size);
}

static inline int kit_put(const struct dest *d, struct path_cache *cache, const struct entry *e,
                          const char *body)
{
    int err = kit_small_write(d, cache, e, body);
    return err < 0 ? err : dest_small_publish(d, cache, e);
}

static inline struct path_cache *kit_cache(const struct dest *d)
{
    struct path_cache *cache = path_cache_new(d->fd);
    CU_ASSERT_PTR_NOT_NULL_FATAL(cache);
    return cache;
}

// The metadata that a file, link or directory is to have.
static inline bool kit_exact(const struct stat *st, const struct entry *e)
{
    return (e->type == ENTRY_SYMLINK || (st->st_mode & 07777) == e->mode) && st->st_uid == e->uid &&
           st->st_gid == e->gid && st->st_mtim.tv_sec == e->mtime.s &&
           st->st_mtim.tv_nsec == (long)e->mtime.ns;
}

enum { KIT_SKIP = 77 };

// In a child: mounts a file system at a directory of the scratch, in a mount namespace of the child's own, so
// that it is gone with it. "bind": `source` is a directory of the scratch, shown again. s->fd is opened anew:
// the old one does not see it.
static inline bool kit_mount(struct scratch *s, const char *at, const char *type, const char *source,
                             const char *data)
{
    char path[sizeof(s->path) + 64], from[sizeof(s->path) + 64];
    bool bind = strcmp(type, "bind") == 0;
    snprintf(path, sizeof(path), "%s/%s", s->path, at);
    snprintf(from, sizeof(from), bind ? "%s/%s" : "%.0s%s", s->path, source);
    if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount(from, path, type, bind ? MS_BIND : 0, data) != 0)
        return false;
    close(s->fd);
    s->fd = open(s->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return s->fd >= 0;
}

// Runs f in a child, as who we are; it checks with KIT_CHECK. Prints the skip when it says KIT_SKIP.
static inline void kit_child(const char *name, int (*f)(struct scratch *s))
{
    struct scratch s = scratch_begin();
    fflush(NULL);
    pid_t pid = fork();
    CU_ASSERT_FATAL(pid >= 0);
    if (pid == 0)
        _exit(f(&s));
    int status = 0;
    CU_ASSERT_EQUAL(waitpid(pid, &status, 0), pid);
    bool skip = WIFEXITED(status) && WEXITSTATUS(status) == KIT_SKIP;
    if (skip)
        printf("skip unit.%s needs to mount\n", name);
    CU_ASSERT_TRUE(skip || (WIFEXITED(status) && WEXITSTATUS(status) == 0));
    scratch_end(&s);
}

// In a child: ends it with a status that is not 0 and a word on the log.
#define KIT_CHECK(condition)                                                \
    do {                                                                    \
        if (!(condition)) {                                                 \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
            _exit(1);                                                       \
        }                                                                   \
    } while (0)

#endif
