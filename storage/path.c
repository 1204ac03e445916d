#include "storage/path.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "storage/dir_reader.h"
#include "storage/path_walk.h"

enum { CACHED_PARENTS = 4 };

// Search permission is all that a directory on the way needs to give.
enum { WAY_FLAGS = O_PATH | O_DIRECTORY | O_NOFOLLOW };

// Length of the component at the start of `path`.
static size_t component_len(const char *path, size_t len)
{
    const char *slash = memchr(path, '/', len);
    return slash == NULL ? len : (size_t)(slash - path);
}

// Of the components: -EINVAL for one that is empty, "." or ".." or holds a NUL, -ENAMETOOLONG. So nothing
// that leads upwards ever gets to the kernel, with or without openat2.
static int check(const char *path, size_t len)
{
    if (memchr(path, '\0', len) != NULL)
        return -EINVAL;
    for (;;) {
        size_t n = component_len(path, len);
        if (n == 0 || (path[0] == '.' && (n == 1 || (n == 2 && path[1] == '.'))))
            return -EINVAL;
        if (n > NAME_BYTES_MAX)
            return -ENAMETOOLONG;
        if (n == len)
            return 0;
        path += n + 1;
        len -= n + 1;
    }
}

// openat of one component. The kernel tells a link as ENOTDIR where a directory is asked for; we say ELOOP.
static int open_component(int dir_fd, const char *name, int flags, mode_t mode)
{
    int fd = sys_openat(dir_fd, name, flags | O_NOFOLLOW, mode);
    struct stat st;
    if (fd == -ENOTDIR && sys_fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(st.st_mode))
        return -ELOOP;
    return fd;
}

int path_walk_open(int root_fd, const void *path, size_t len, int flags, mode_t mode)
{
    const char *at = path;
    int dir_fd = root_fd;
    for (;;) {
        size_t n = component_len(at, len);
        bool last = n == len;
        char name[NAME_BYTES_MAX + 1];
        assert(n <= NAME_BYTES_MAX); // checked before
        memcpy(name, at, n);
        name[n] = '\0';
        int fd = open_component(dir_fd, name, last ? flags : WAY_FLAGS, last ? mode : 0);
        if (dir_fd != root_fd)
            sys_close(dir_fd);
        if (fd < 0 || last)
            return fd;
        dir_fd = fd;
        at += n + 1;
        len -= n + 1;
    }
}

// Opens a path that fits one system call.
static int open_piece(int dir_fd, const char *path, size_t len, int flags, mode_t mode)
{
    char text[PATH_MAX] NOT_ZEROED;
    memcpy(text, path, len);
    text[len] = '\0';
    // RESOLVE_NO_SYMLINKS refuses a link at the end too, as ELOOP whatever is asked for; with O_NOFOLLOW it
    // would be ENOTDIR for a directory. O_PATH alone may open the link itself, and needs the flag for it.
    bool link_itself = (flags & O_PATH) && !(flags & O_DIRECTORY);
    int beneath_flags = link_itself ? flags | O_NOFOLLOW : flags & ~O_NOFOLLOW;
    int fd = sys_open_beneath(dir_fd, text, beneath_flags, mode);
    return fd == -ENOSYS ? path_walk_open(dir_fd, path, len, flags, mode) : fd;
}

// How much of the path goes into one system call: all, or whole components.
static size_t piece_len(const char *path, size_t len)
{
    if (len < PATH_MAX)
        return len;
    const char *slash = memrchr(path, '/', PATH_MAX);
    return (size_t)(slash - path); // there is one, since no component is longer than NAME_BYTES_MAX
}

int path_open(int root_fd, const void *path, size_t len, int flags, mode_t mode)
{
    if (len == 0)
        return flags & (O_DIRECTORY | O_PATH) ? sys_openat(root_fd, ".", flags | O_NOFOLLOW, mode) : -EINVAL;
    int rc = check(path, len);
    if (rc < 0)
        return rc;
    const char *at = path;
    int dir_fd = root_fd;
    for (;;) {
        size_t n = piece_len(at, len);
        bool last = n == len;
        int fd = open_piece(dir_fd, at, n, last ? flags : WAY_FLAGS, last ? mode : 0);
        if (dir_fd != root_fd)
            sys_close(dir_fd);
        if (fd < 0 || last)
            return fd;
        dir_fd = fd;
        at += n + 1;
        len -= n + 1;
    }
}

// Length of the path of the directory that holds the last component: 0 = the root.
static size_t parent_len(const char *path, size_t len)
{
    const char *slash = memrchr(path, '/', len);
    return slash == NULL ? 0 : (size_t)(slash - path);
}

// Copies the last component out.
static void last_name(const char *path, size_t len, char *name)
{
    const char *slash = memrchr(path, '/', len);
    const char *from = slash == NULL ? path : slash + 1;
    size_t n = len - (size_t)(from - path);
    memcpy(name, from, n);
    name[n] = '\0';
}

static int open_parent(int root_fd, const char *path, size_t len, int flags, char *name)
{
    int rc = check(path, len);
    if (rc < 0)
        return rc;
    int fd = path_open(root_fd, path, parent_len(path, len), flags, 0);
    if (fd >= 0)
        last_name(path, len, name);
    return fd;
}

int path_open_parent(int root_fd, const void *path, size_t len, char *name)
{
    return open_parent(root_fd, path, len, O_RDONLY | O_DIRECTORY, name);
}

struct cached_parent {
    char *path; // NULL: the place is free
    size_t len;
    int fd;
    uint64_t used; // the cache's clock when it was last asked for
    bool listed, empty;
};

struct path_cache {
    int root_fd;
    uint64_t clock;
    struct cached_parent *last; // given
    struct cached_parent parents[CACHED_PARENTS];
};

struct path_cache *path_cache_new(int root_fd)
{
    struct path_cache *c = calloc(1, sizeof(*c));
    if (c != NULL)
        c->root_fd = root_fd;
    return c;
}

void path_cache_free(struct path_cache *c)
{
    if (c == NULL)
        return;
    path_cache_clear(c);
    free(c);
}

static void forget(struct cached_parent *p)
{
    if (p->path == NULL)
        return;
    sys_close(p->fd); // opened for reading: nothing can be lost
    free(p->path);
    *p = (struct cached_parent){0};
}

void path_cache_clear(struct path_cache *c)
{
    for (size_t i = 0; i < CACHED_PARENTS; i++)
        forget(&c->parents[i]);
}

// The place that holds the directory, or NULL.
static struct cached_parent *cache_find(struct path_cache *c, const char *path, size_t len)
{
    for (size_t i = 0; i < CACHED_PARENTS; i++) {
        struct cached_parent *p = &c->parents[i];
        if (p->path != NULL && p->len == len && memcmp(p->path, path, len) == 0)
            return p;
    }
    return NULL;
}

// Opens the directory into the place that was not asked for longest; free places have never been.
static int cache_fill(struct path_cache *c, const char *path, size_t len, struct cached_parent **out)
{
    struct cached_parent *oldest = &c->parents[0];
    for (size_t i = 1; i < CACHED_PARENTS; i++)
        if (c->parents[i].used < oldest->used)
            oldest = &c->parents[i];
    char *copy = malloc(len + 1); // + 1: the root's path is empty
    if (copy == NULL)
        return -ENOMEM;
    memcpy(copy, path, len);
    int fd = path_open(c->root_fd, path, len, O_RDONLY | O_DIRECTORY, 0);
    if (fd < 0) {
        free(copy);
        return fd;
    }
    forget(oldest);
    *oldest = (struct cached_parent){.path = copy, .len = len, .fd = fd};
    *out = oldest;
    return 0;
}

int path_cache_parent(struct path_cache *c, const void *path, size_t len, char *name)
{
    int rc = check(path, len);
    if (rc < 0)
        return rc;
    size_t parent = parent_len(path, len);
    struct cached_parent *p = cache_find(c, path, parent);
    if (p == NULL)
        rc = cache_fill(c, path, parent, &p);
    if (rc < 0)
        return rc;
    p->used = ++c->clock;
    c->last = p;
    last_name(path, len, name);
    return p->fd;
}

static bool holds_nothing(int dir_fd)
{
    int fd = sys_openat(dir_fd, ".", O_RDONLY | O_DIRECTORY, 0);
    if (fd < 0)
        return false;
    struct dir_reader r;
    const char *name;
    size_t len;
    int rc = dir_reader_init(&r, fd, DIR_READER_BYTES_MIN, 0);
    if (rc < 0)
        return false;
    rc = dir_reader_next(&r, &name, &len);
    dir_reader_fini(&r);
    return rc == 0;
}

bool path_cache_empty(struct path_cache *c)
{
    struct cached_parent *p = c->last;
    if (!p->listed) {
        p->listed = true;
        p->empty = holds_nothing(p->fd);
    }
    return p->empty;
}

// Opens the directory, made where it is missing.
static int make_component(int dir_fd, const char *name, mode_t mode, bool *made)
{
    int rc = sys_mkdirat(dir_fd, name, 0700 | mode);
    if (rc < 0 && rc != -EEXIST)
        return rc;
    int fd = open_component(dir_fd, name, WAY_FLAGS, 0);
    if (fd >= 0)
        *made = rc == 0;
    return fd;
}

// Makes what is missing, from the root downwards, and opens the last.
static int make_way(int root_fd, const char *path, size_t len, mode_t mode, bool *made)
{
    int dir_fd = root_fd;
    for (;;) {
        size_t n = component_len(path, len);
        char name[NAME_BYTES_MAX + 1];
        assert(n <= NAME_BYTES_MAX); // checked before
        memcpy(name, path, n);
        name[n] = '\0';
        int fd = make_component(dir_fd, name, mode, made);
        if (dir_fd != root_fd)
            sys_close(dir_fd);
        if (fd < 0 || n == len)
            return fd;
        dir_fd = fd;
        path += n + 1;
        len -= n + 1;
    }
}

int path_mkdirs(int root_fd, const void *path, size_t len, mode_t mode, bool *made)
{
    if (len == 0) {
        *made = false;
        return 0;
    }
    char name[NAME_BYTES_MAX + 1];
    bool is_new = false;
    int parent_fd = open_parent(root_fd, path, len, WAY_FLAGS, name), fd = parent_fd;
    if (parent_fd >= 0) {
        fd = make_component(parent_fd, name, mode, &is_new);
        sys_close(parent_fd);
    } else if (parent_fd == -ENOENT) {
        fd = make_way(root_fd, path, len, mode, &is_new);
    }
    if (fd < 0)
        return fd;
    sys_close(fd);
    *made = is_new;
    return 0;
}

int path_open_own(int dir_fd, const char *name, int flags, struct stat *st)
{
    int fd = sys_openat(dir_fd, name, flags | O_NOFOLLOW | O_NONBLOCK, 0600);
    if (fd < 0)
        return fd;
    int err = sys_fstat(fd, st);
    if (err == 0 && !S_ISREG(st->st_mode))
        err = -EINVAL;
    if (err == 0)
        return fd;
    sys_close(fd);
    return err;
}
