// What unfinished files leave: found again, cut down to what is durable, or removed.
#include "storage/dest_inner.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "storage/dir_reader.h"

enum { NAME_DIGITS = 32, LIST_PIECE_BYTES = 2 * (PATH_BYTES_MAX + 2) };

void dest_temp_discard(const struct dest *d, const struct entry *e)
{
    char last[NAME_BYTES_MAX + 1], name[TEMP_NAME_BYTES];
    dest_temp_name(e, name);
    int err = sys_unlinkat(d->temp_fd, name, 0);
    if (err != -ENOENT)
        return; // gone, or it goes with .penstock/
    int parent = path_open_parent(d->fd, e->path, e->path_len, last);
    if (parent < 0)
        return;
    dest_beside_name(d, e, name);
    dest_unlink_temp(parent, name);
    sys_close(parent);
}

// ---- trimming ----

static int punch(int fd, uint64_t first_leaf, uint64_t end_leaf)
{
    if (first_leaf == end_leaf)
        return 0;
    return sys_fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, first_leaf * LEAF_BYTES,
                         (end_leaf - first_leaf) * LEAF_BYTES);
}

// The room between the leaves, and what was set aside behind the end of the file.
static int give_back(int fd, uint64_t size, const struct range *leaves, uint32_t count)
{
    uint64_t at = 0;
    int err = 0;
    for (uint32_t i = 0; i < count && err == 0; i++) {
        err = punch(fd, at, leaves[i].offset);
        at = leaves[i].offset + leaves[i].len;
    }
    if (err == 0)
        err = punch(fd, at, u64_div_up(size, LEAF_BYTES));
    if (err == -EOPNOTSUPP)
        err = 0; // not on this file system
    return err < 0 ? err : sys_ftruncate(fd, size);
}

int dest_temp_trim(const struct dest *d, const struct entry *e, const struct range *leaves, uint32_t count,
                   uint64_t *kept_bytes)
{
    struct dest_file f;
    int err = dest_temp_reopen(d, e, &f);
    if (err < 0)
        return err;
    struct stat st;
    err = give_back(f.fd, e->size, leaves, count);
    if (err == 0)
        err = sys_fstat(f.fd, &st);
    dest_file_close(&f);
    if (err < 0)
        return err;
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < count; i++)
        bytes += u64_min(leaves[i].len * LEAF_BYTES, e->size - leaves[i].offset * LEAF_BYTES);
    *kept_bytes = u64_min(bytes, (uint64_t)st.st_blocks * 512); // holes are kept for nothing
    return 0;
}

// ---- sweeping ----

struct sweep {
    const struct dest *d;
    bool (*wanted)(void *arg, const char *name);
    void *arg;
    int first_error;
};

static void note(struct sweep *s, int err)
{
    if (err < 0 && err != -ENOENT && s->first_error == 0)
        s->first_error = err;
}

static bool is_temp_name(const char *name)
{
    return strlen(name) == NAME_DIGITS && strspn(name, "0123456789abcdef") == NAME_DIGITS;
}

// What is behind the prefix of a name, or NULL: not one of ours.
static const char *temp_name_in(const char *name, const char *prefix)
{
    size_t len = strlen(prefix);
    return strncmp(name, prefix, len) == 0 && is_temp_name(name + len) ? name + len : NULL;
}

// Removes the names of the directory (taken over) that are `prefix` and a temporary name, and are not wanted.
// A reading that removed something is repeated: some file systems pass over names while others are removed.
static void sweep_dir(struct sweep *s, int dir_fd, const char *prefix)
{
    struct dir_reader reader;
    int err = dir_reader_init(&reader, dir_fd, DIR_READER_BYTES_MIN, 0);
    if (err < 0) {
        note(s, err);
        return;
    }
    bool removed = false;
    for (;;) {
        const char *name;
        size_t len;
        int more = dir_reader_next(&reader, &name, &len);
        if (more == 0 && removed && s->first_error == 0) {
            removed = false;
            more = dir_reader_rewind(&reader);
            if (more == 0)
                continue;
        }
        note(s, more);
        if (more <= 0)
            break;
        const char *temp = temp_name_in(name, prefix);
        if (temp == NULL || (s->wanted != NULL && s->wanted(s->arg, temp)))
            continue;
        err = sys_unlinkat(reader.fd, name, 0);
        note(s, err == -EISDIR ? 0 : err); // not one of ours, whatever its name
        removed |= err == 0;
    }
    dir_reader_fini(&reader);
}

// A directory that is not there any more, or is a link or a file now, holds nothing of ours.
static void sweep_beside(struct sweep *s, const char *path, size_t len)
{
    if (len > 0 && !manifest_path_safe(path, len))
        return;
    int fd = path_open(s->d->fd, path, len, O_RDONLY | O_DIRECTORY, 0);
    if (fd >= 0)
        sweep_dir(s, fd, dest_beside_prefix(s->d));
    else if (fd != -ENOTDIR && fd != -ELOOP)
        note(s, fd);
}

// Takes the paths that are whole in bytes[0..len); returns how many bytes are done with. Empty ones stand
// between paths; the root itself is never on another mount than itself.
static size_t sweep_paths(struct sweep *s, const char *bytes, size_t len)
{
    size_t at = 0;
    for (const char *end; (end = memchr(bytes + at, '\0', len - at)) != NULL;) {
        size_t n = (size_t)(end - (bytes + at));
        if (n > 0)
            sweep_beside(s, bytes + at, n);
        at += n + 1;
    }
    return at;
}

static void sweep_listed(struct sweep *s, int list_fd)
{
    char *bytes = malloc(LIST_PIECE_BYTES);
    uint64_t offset = BESIDE_NUMBER_BYTES + 1;
    note(s, bytes != NULL ? 0 : -ENOMEM);
    while (bytes != NULL) {
        ssize_t got = sys_pread_full(list_fd, bytes, LIST_PIECE_BYTES, offset);
        note(s, got < 0 ? (int)got : 0);
        size_t done = got > 0 ? sweep_paths(s, bytes, (size_t)got) : 0;
        if (done == 0)
            break; // the end, or no list of ours
        offset += done;
    }
    free(bytes);
}

int dest_sweep(const struct dest *d, bool (*wanted)(void *arg, const char *name), void *arg)
{
    struct sweep s = {.d = d, .wanted = wanted, .arg = arg};
    int fd = path_open(d->temp_fd, "", 0, O_RDONLY | O_DIRECTORY, 0); // a reading position of its own
    if (fd >= 0)
        sweep_dir(&s, fd, "");
    else
        note(&s, fd);
    int list = sys_openat(d->state_fd, BESIDE_LIST, O_RDONLY | O_NOFOLLOW | O_NONBLOCK, 0);
    if (list >= 0) {
        sweep_listed(&s, list);
        sys_close(list);
    } else {
        note(&s, list);
    }
    return s.first_error;
}
