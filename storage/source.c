#include "storage/source.h"

#include <errno.h>
#include <limits.h>
#include <string.h>

#include "storage/path.h"
#include "storage/sys.h"

// What of the entry's path lies beneath the source's `to`: NULL when it does not.
static const uint8_t *beneath(const struct walk_source *source, const struct entry *e, size_t *len)
{
    size_t to_len = strlen(source->to);
    if (e->path_len < to_len || memcmp(e->path, source->to, to_len) != 0)
        return NULL;
    *len = e->path_len - to_len;
    if (to_len == 0 || *len == 0)
        return e->path + to_len;
    if (e->path[to_len] != '/')
        return NULL;
    *len -= 1;
    return e->path + to_len + 1;
}

// Opens `rest` beneath `from` beneath the source's directory: at once where both fit one path.
static int open_joined(const struct walk_source *source, const uint8_t *rest, size_t len, int flags)
{
    size_t from_len = strlen(source->from);
    if (from_len == 0)
        return path_open(source->fd, rest, len, flags, 0);
    if (len == 0)
        return path_open(source->fd, source->from, from_len, flags, 0);
    char joined[PATH_MAX] NOT_ZEROED;
    if (from_len + 1 + len < sizeof(joined)) {
        memcpy(joined, source->from, from_len);
        joined[from_len] = '/';
        memcpy(joined + from_len + 1, rest, len);
        return path_open(source->fd, joined, from_len + 1 + len, flags, 0);
    }
    int from_fd = path_open(source->fd, source->from, from_len, O_PATH | O_DIRECTORY, 0);
    if (from_fd < 0)
        return from_fd;
    int fd = path_open(from_fd, rest, len, flags, 0);
    sys_close(from_fd);
    return fd;
}

// Opens with as many of the two wishes as are granted and tells which those are.
static int open_wishing(const struct walk_source *source, const uint8_t *rest, size_t len, int *wishes)
{
    for (;;) {
        int fd = open_joined(source, rest, len, O_RDONLY | O_NONBLOCK | *wishes);
        if (fd == -EPERM && (*wishes & O_NOATIME))
            *wishes &= ~O_NOATIME;
        else if (fd == -EINVAL && (*wishes & O_DIRECT))
            *wishes &= ~O_DIRECT;
        else
            return fd;
    }
}

// Whether nothing of the file seems to be in the page cache, and the file system can tell.
static bool is_cold(int fd, uint64_t size)
{
    const uint64_t places[] = {0, size / 2, size - 1};
    bool cold = size > 0;
    for (size_t i = 0; i < ARRAY_LEN(places) && cold; i++)
        cold = sys_cached(fd, places[i]) == 0;
    return cold;
}

// Of the open file: no longer regular is -ELOOP. Drops O_DIRECT where our blocks would not do for it, and
// O_NONBLOCK, with which a ring answers EAGAIN instead of waiting.
static int settle(int fd, enum direct_mode mode, int *wishes)
{
    struct stat st;
    int rc = sys_fstat(fd, &st);
    if (rc < 0)
        return rc;
    if (!S_ISREG(st.st_mode))
        return -ELOOP;
    if (mode == DIRECT_AUTO && is_cold(fd, (uint64_t)st.st_size))
        *wishes |= O_DIRECT;
    uint32_t align = 0;
    if (*wishes & O_DIRECT) {
        rc = sys_direct_align(fd, &align);
        if (rc < 0 || align == 0 || align > BLOCK_BYTES)
            *wishes &= ~O_DIRECT;
    }
    rc = sys_set_flags(fd, *wishes);
    if (rc < 0 && mode == DIRECT_AUTO && (*wishes & O_DIRECT)) {
        *wishes &= ~O_DIRECT;
        rc = sys_set_flags(fd, *wishes);
    }
    return rc;
}

int source_open(const struct walk_source *sources, const struct entry *e, enum direct_mode mode,
                bool *is_direct)
{
    const struct walk_source *source = &sources[e->root];
    size_t len;
    const uint8_t *rest = beneath(source, e, &len);
    if (rest == NULL)
        return -EPROTO;
    uid_t euid = sys_euid();
    int wishes = (mode == DIRECT_ON ? O_DIRECT : 0) | (euid == 0 || euid == e->uid ? O_NOATIME : 0);
    int fd = open_wishing(source, rest, len, &wishes);
    if (fd == -ENXIO) // a socket, or a device that is not there
        return -ELOOP;
    if (fd < 0)
        return fd;
    int rc = settle(fd, mode, &wishes);
    if (rc < 0) {
        sys_close(fd);
        return rc;
    }
    *is_direct = (wishes & O_DIRECT) != 0;
    return fd;
}

static bool same_time(const struct timespec *t, const struct entry_time *e)
{
    return t->tv_sec == e->s && t->tv_nsec == (long)e->ns;
}

int source_compare(int fd, const struct entry *e, enum source_check *out)
{
    struct stat st;
    int rc = sys_fstat(fd, &st);
    if (rc < 0)
        return rc;
    if (!S_ISREG(st.st_mode) || (uint64_t)st.st_size != e->size || !same_time(&st.st_mtim, &e->mtime))
        *out = SOURCE_CHANGED;
    else if (st.st_ino != e->inode || !same_time(&st.st_ctim, &e->ctime))
        *out = SOURCE_TOUCHED;
    else
        *out = SOURCE_SAME;
    return 0;
}

struct extent_status source_failure(int os)
{
    os = os < 0 ? -os : os;
    switch (os) {
    case ENOENT:
    case ENOTDIR: // a directory on the way is a file now
    case ESTALE:  // removed at the file server
        return (struct extent_status){.state = EXTENT_VANISHED};
    case ELOOP:
        return (struct extent_status){.state = EXTENT_CHANGED};
    default:
        return (struct extent_status){.state = EXTENT_UNREADABLE, .os = (uint16_t)os};
    }
}
