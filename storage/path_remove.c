#include "storage/path.h"

#include <errno.h>
#include <string.h>

#include "storage/dir_chain.h"

struct removal {
    int dir_fd;
    struct dir_chain chain;
    int first_error;
};

static void note(struct removal *r, int rc)
{
    if (rc < 0 && rc != -ENOENT && r->first_error == 0)
        r->first_error = rc;
}

// Opens the directory and goes down into it. One that may not be read is removed as it is when it is empty.
static int go_down(struct removal *r, int dir_fd, const char *name)
{
    int fd = sys_openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK, 0);
    if (fd == -EACCES)
        return sys_unlinkat(dir_fd, name, AT_REMOVEDIR) == 0 ? 0 : fd;
    if (fd < 0)
        return fd;
    struct stat st;
    int rc = sys_fstat(fd, &st);
    if (rc < 0) {
        sys_close(fd);
        return rc;
    }
    return dir_chain_push(&r->chain, name, strlen(name), fd, &st);
}

// Removes a name that is no directory, or goes down. *gone: it was removed.
static int remove_name(struct removal *r, int dir_fd, const char *name, bool *gone)
{
    int rc = sys_unlinkat(dir_fd, name, 0);
    *gone = rc == 0;
    if (rc != -EISDIR && rc != -EPERM)
        return rc;
    int down = go_down(r, dir_fd, name);
    return down == -ENOTDIR || down == -ELOOP ? rc : down; // a file that may not be removed
}

// The directory that was read to its end: goes up and removes it there.
static int go_up(struct removal *r)
{
    char name[NAME_BYTES_MAX + 1];
    dir_chain_name(&r->chain, name);
    dir_chain_pop(&r->chain);
    if (r->chain.count == 0) {
        note(r, sys_unlinkat(r->dir_fd, name, AT_REMOVEDIR));
        return 0;
    }
    struct dir_level *parent;
    int rc = dir_chain_last(&r->chain, &parent);
    if (rc < 0)
        return rc;
    rc = sys_unlinkat(parent->reader.fd, name, AT_REMOVEDIR);
    note(r, rc);
    parent->changed |= rc == 0;
    return 0;
}

// One name, or the end of a directory. A reading that removed something is repeated, since some file systems
// pass over names while others are removed; not after an error, which nothing repairs and which would be met
// again on every level. Negative: it cannot go on.
static int step(struct removal *r)
{
    struct dir_level *level;
    int rc = dir_chain_last(&r->chain, &level);
    if (rc < 0)
        return rc;
    const char *name;
    size_t len;
    int more = dir_reader_next(&level->reader, &name, &len);
    if (more > 0) {
        bool gone;
        uint32_t at = r->chain.count - 1;
        note(r, remove_name(r, level->reader.fd, name, &gone));
        r->chain.levels[at].changed |= gone; // the levels may have moved
        return 0;
    }
    note(r, more);
    if (more == 0 && level->changed && r->first_error == 0) {
        level->changed = false;
        return dir_reader_rewind(&level->reader);
    }
    return go_up(r);
}

int path_remove_tree(int dir_fd, const char *name)
{
    if (strlen(name) > NAME_BYTES_MAX)
        return -ENAMETOOLONG;
    struct removal r = {.dir_fd = dir_fd};
    dir_chain_init(&r.chain, dir_fd);
    bool gone;
    note(&r, remove_name(&r, dir_fd, name, &gone));
    while (r.chain.count > 0) {
        int rc = step(&r);
        if (rc < 0) {
            note(&r, rc);
            break;
        }
    }
    dir_chain_fini(&r.chain);
    return r.first_error;
}
