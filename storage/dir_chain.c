#include "storage/dir_chain.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "proto/limits.h"
#include "storage/path.h"

// Of the buffers: large where most of the reading is done, small where a deep tree would add them up.
enum { TOP_LEVELS = 4, TOP_BUFFER_BYTES = 32 * KIB };

void dir_chain_init(struct dir_chain *c, int base_fd)
{
    *c = (struct dir_chain){.base_fd = base_fd};
}

void dir_chain_fini(struct dir_chain *c)
{
    while (c->count > 0)
        dir_chain_pop(c);
    free(c->levels);
    free(c->path);
    *c = (struct dir_chain){.base_fd = -1};
}

static int reserve_level(struct dir_chain *c)
{
    if (c->count < c->cap)
        return 0;
    uint32_t cap = c->cap == 0 ? 16 : 2 * c->cap;
    struct dir_level *levels = reallocarray(c->levels, cap, sizeof(*levels));
    if (levels == NULL)
        return -ENOMEM;
    c->levels = levels;
    c->cap = cap;
    return 0;
}

static int reserve_path(struct dir_chain *c, size_t len)
{
    if (len <= c->path_cap)
        return 0;
    size_t cap = 2 * len;
    char *path = realloc(c->path, cap);
    if (path == NULL)
        return -ENOMEM;
    c->path = path;
    c->path_cap = cap;
    return 0;
}

static int start_reader(struct dir_level *level, uint32_t depth, int fd, uint64_t offset)
{
    return dir_reader_init(&level->reader, fd, depth < TOP_LEVELS ? TOP_BUFFER_BYTES : DIR_READER_BYTES_MIN,
                           offset);
}

int dir_chain_push(struct dir_chain *c, const char *name, size_t len, int fd, const struct stat *st)
{
    size_t parent_len = c->count == 0 ? 0 : c->levels[c->count - 1].path_len;
    size_t slash = parent_len > 0;
    int rc = c->count > 0 && len > NAME_BYTES_MAX ? -ENAMETOOLONG : reserve_level(c);
    if (rc == 0)
        rc = reserve_path(c, parent_len + slash + len);
    if (rc < 0) {
        sys_close(fd);
        return rc;
    }
    struct dir_level *level = &c->levels[c->count];
    *level = (struct dir_level){.dev = st->st_dev, .ino = st->st_ino, .path_len = parent_len + slash + len};
    rc = start_reader(level, c->count, fd, 0);
    if (rc < 0)
        return rc;
    if (slash)
        c->path[parent_len] = '/';
    if (len > 0)
        memcpy(c->path + parent_len + slash, name, len);
    if (c->count - c->held == DIR_CHAIN_HELD_MAX)
        dir_reader_fini(&c->levels[c->held++].reader);
    c->count++;
    return 0;
}

void dir_chain_pop(struct dir_chain *c)
{
    assert(c->count > 0);
    dir_reader_fini(&c->levels[--c->count].reader);
    if (c->held > c->count)
        c->held = c->count;
}

// Where the last component of a level begins in the path.
static size_t name_at(const struct dir_chain *c, uint32_t level)
{
    size_t parent_len = level == 0 ? 0 : c->levels[level - 1].path_len;
    return parent_len + (parent_len > 0);
}

void dir_chain_name(const struct dir_chain *c, char *name)
{
    assert(c->count > 0);
    size_t at = name_at(c, c->count - 1), len = c->levels[c->count - 1].path_len - at;
    assert(len <= NAME_BYTES_MAX);
    memcpy(name, c->path + at, len);
    name[len] = '\0';
}

// Opens one level again: beneath the one above where that is open, else by path.
static int open_again(const struct dir_chain *c, uint32_t at, bool by_path)
{
    const int flags = O_RDONLY | O_DIRECTORY | O_NONBLOCK;
    size_t len = c->levels[at].path_len, from = name_at(c, at);
    if (by_path)
        return path_open(c->base_fd, c->path, len, flags, 0);
    return path_open(c->levels[at - 1].reader.fd, c->path + from, len - from, flags, 0);
}

static int resume(struct dir_chain *c, uint32_t at, bool by_path)
{
    struct dir_level *level = &c->levels[at];
    int fd = open_again(c, at, by_path);
    if (fd < 0)
        return fd;
    struct stat st;
    int rc = sys_fstat(fd, &st);
    if (rc == 0 && (st.st_dev != level->dev || st.st_ino != level->ino))
        rc = -ESTALE;
    if (rc < 0) {
        sys_close(fd);
        return rc;
    }
    return start_reader(level, at, fd, level->reader.offset);
}

// Opens the deepest levels again, all of which are closed.
static int refill(struct dir_chain *c)
{
    uint32_t first = c->count > DIR_CHAIN_REFILL ? c->count - DIR_CHAIN_REFILL : 0;
    for (uint32_t i = first; i < c->count; i++) {
        int rc = resume(c, i, i == first);
        if (rc < 0) {
            while (i-- > first)
                dir_reader_fini(&c->levels[i].reader);
            return rc;
        }
    }
    c->held = first;
    return 0;
}

int dir_chain_last(struct dir_chain *c, struct dir_level **out)
{
    assert(c->count > 0);
    if (c->held == c->count) {
        int rc = refill(c);
        if (rc < 0)
            return rc;
    }
    *out = &c->levels[c->count - 1];
    return 0;
}

bool dir_chain_holds(const struct dir_chain *c, uint64_t dev, uint64_t ino)
{
    for (uint32_t i = 0; i < c->count; i++)
        if (c->levels[i].dev == dev && c->levels[i].ino == ino)
            return true;
    return false;
}
