#include "storage/dest_inner.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

// ---- small files ----

// Where a temporary file goes that is made and published at once.
struct place {
    int dir_fd; // borrowed
    char name[TEMP_NAME_BYTES];
    mode_t mode; // with which a file is made there
};

// Decides by the memo or, once a directory, by the mount of the parent: a rename must not cross a mount.
static int find_place(const struct dest *d, struct path_cache *cache, const struct entry *e,
                      struct place *out)
{
    bool beside = false;
    bool known = dest_mounts_ask(d, e, &beside);
    out->dir_fd = d->temp_fd;
    if (!known || beside) {
        char last[NAME_BYTES_MAX + 1];
        int parent = path_cache_parent(cache, e->path, e->path_len, last);
        if (parent < 0)
            return parent;
        out->dir_fd = parent;
    }
    if (!known) {
        int err = dest_mounts_find(d, out->dir_fd, &beside);
        if (err < 0)
            return err;
        dest_mounts_tell(d, e, beside);
    }
    if (beside) {
        dest_beside_name(d, e, out->name);
        out->mode = 0600;
        return dest_beside_note(d, e);
    }
    out->dir_fd = d->temp_fd;
    dest_temp_name(e, out->name);
    out->mode = e->mode & 0777; // nobody else gets into temp/, and the mode need not be set
    return 0;
}

// The data ranges of `body`; what they leave out stays a hole.
static int write_sparse(int fd, const struct entry *e, const uint8_t *body)
{
    uint64_t end = 0;
    for (uint32_t i = 0; i < e->data_count; i++) {
        const struct range *r = &e->data[i];
        int err = sys_pwrite_full(fd, body + r->offset, r->len, r->offset);
        if (err < 0)
            return err;
        end = r->offset + r->len;
    }
    return end < e->size ? sys_ftruncate(fd, e->size) : 0;
}

static int write_body(int fd, const struct entry *e, const void *body)
{
    if (e->sparse)
        return write_sparse(fd, e, body);
    return e->size > 0 ? sys_pwrite_full(fd, body, e->size, 0) : 0;
}

int dest_small_write(const struct dest *d, struct path_cache *cache, const struct entry *e, const void *body,
                     size_t len)
{
    assert(e->type == ENTRY_FILE && (len == e->size || entry_data_bytes(e) == 0));
    struct place at;
    int err = find_place(d, cache, e, &at);
    if (err < 0)
        return err;
    int fd = dest_create(at.dir_fd, at.name, O_WRONLY, at.mode);
    if (fd < 0)
        return fd;
    err = write_body(fd, e, body);
    if (err == 0)
        err = dest_set_metadata(d, fd, e);
    int closed = sys_close(fd);
    if (err == 0)
        err = closed;
    if (err < 0)
        dest_unlink_temp(at.dir_fd, at.name);
    return err;
}

// Gives what was made for `e` its final name. It was made in temp/ unless the parent lies on another mount;
// then it is not in temp/, or what is there from an earlier run cannot be renamed.
int dest_small_publish(const struct dest *d, struct path_cache *cache, const struct entry *e)
{
    char last[NAME_BYTES_MAX + 1], name[TEMP_NAME_BYTES];
    int parent = path_cache_parent(cache, e->path, e->path_len, last);
    if (parent < 0)
        return parent;
    dest_temp_name(e, name);
    int err = sys_renameat(d->temp_fd, name, parent, last);
    if (err != -ENOENT && err != -EXDEV)
        return err;
    dest_beside_name(d, e, name);
    int beside_err = sys_renameat(parent, name, parent, last);
    if (beside_err == -ENOENT && err == -EXDEV)
        dest_mounts_tell(d, e, true); // a mount that the kernel did not tell: written again it will go beside
    return beside_err == -ENOENT ? err : beside_err;
}

// ---- links ----

// Makes the link under a temporary name, with owner and time.
static int write_link(const struct dest *d, const struct place *at, const struct entry *e)
{
    char target[TARGET_BYTES_MAX + 1];
    if (e->target_len > TARGET_BYTES_MAX)
        return -EMSGSIZE;
    memcpy(target, e->target, e->target_len);
    target[e->target_len] = '\0';
    int err = sys_symlinkat(target, at->dir_fd, at->name);
    if (err == -EEXIST) {
        err = sys_unlinkat(at->dir_fd, at->name, 0);
        if (err == 0)
            err = sys_symlinkat(target, at->dir_fd, at->name);
    }
    if (err < 0)
        return err;
    struct timespec times[2];
    dest_times(e, times);
    if (d->can_chown)
        err = sys_fchownat(at->dir_fd, at->name, e->uid, e->gid);
    if (err == 0)
        err = sys_utimensat(at->dir_fd, at->name, times);
    if (err < 0)
        dest_unlink_temp(at->dir_fd, at->name);
    return err;
}

int dest_make_link(const struct dest *d, struct path_cache *cache, const struct entry *e)
{
    assert(e->type == ENTRY_SYMLINK);
    struct place at;
    int err = find_place(d, cache, e, &at);
    if (err == 0)
        err = write_link(d, &at, e);
    if (err < 0)
        return err;
    err = dest_small_publish(d, cache, e);
    if (err < 0)
        dest_unlink_temp(at.dir_fd, at.name); // a directory in the way, for one
    return err;
}

// ---- what is there ----

static bool same_time(const struct timespec *a, const struct entry_time *b)
{
    return a->tv_sec == b->s && a->tv_nsec == (long)b->ns;
}

static int same_target(int dir_fd, const char *name, const struct entry *e, bool *same)
{
    char text[TARGET_BYTES_MAX + 1]; // one more than any target of ours, so that a longer one shows
    ssize_t len = sys_readlinkat(dir_fd, name, text, sizeof(text));
    if (len < 0)
        return (int)len;
    *same = (size_t)len == e->target_len && memcmp(text, e->target, e->target_len) == 0;
    return 0;
}

static bool metadata_differs(const struct dest *d, const struct entry *e, const struct stat *st)
{
    if (d->can_chown && (st->st_uid != e->uid || st->st_gid != e->gid))
        return true;
    if (e->type == ENTRY_SYMLINK)
        return !same_time(&st->st_mtim, &e->mtime);
    return (st->st_mode & 07777) != dest_mode(d, e, st->st_uid, st->st_gid);
}

// What the final name says, not followed; dir_fd and name for more questions.
static int look(const struct dest *d, struct path_cache *cache, const struct entry *e, int *dir_fd,
                char *name, struct stat *st)
{
    if (e->path_len == 0)
        return sys_fstat(d->fd, st);
    int parent = path_cache_parent(cache, e->path, e->path_len, name);
    if (parent < 0)
        return parent;
    *dir_fd = parent;
    // A new tree is mostly new directories: what is asked for once of each need not be asked for each name.
    if (path_cache_empty(cache))
        return -ENOENT;
    return sys_fstatat(parent, name, st, AT_SYMLINK_NOFOLLOW);
}

int dest_compare(const struct dest *d, struct path_cache *cache, const struct entry *e, bool *same,
                 bool *meta_differs)
{
    char name[NAME_BYTES_MAX + 1];
    int dir_fd = -1;
    struct stat st;
    int err = look(d, cache, e, &dir_fd, name, &st);
    bool missing = err == -ENOENT || err == -ENOTDIR, equal = false;
    if (err < 0 && !missing)
        return err;
    if (missing)
        err = 0;
    else if (e->type != ENTRY_DIR && S_ISDIR(st.st_mode))
        err = -EISDIR;
    else if (e->type == ENTRY_FILE)
        equal = S_ISREG(st.st_mode) && (uint64_t)st.st_size == e->size && same_time(&st.st_mtim, &e->mtime);
    else if (e->type == ENTRY_DIR)
        equal = S_ISDIR(st.st_mode);
    else if (S_ISLNK(st.st_mode))
        err = same_target(dir_fd, name, e, &equal);
    if (err < 0)
        return err;
    *same = equal;
    *meta_differs = equal && metadata_differs(d, e, &st);
    return 0;
}

static int fix_link(const struct dest *d, int dir_fd, const char *name, const struct entry *e)
{
    struct timespec times[2];
    dest_times(e, times);
    int err = d->can_chown ? sys_fchownat(dir_fd, name, e->uid, e->gid) : 0;
    return err < 0 ? err : sys_utimensat(dir_fd, name, times);
}

// Opens a regular file for its metadata alone; reading or writing, whichever its mode allows.
static int open_regular(int dir_fd, const char *name)
{
    int fd = sys_openat(dir_fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK, 0);
    if (fd == -EACCES)
        fd = sys_openat(dir_fd, name, O_WRONLY | O_NOFOLLOW | O_NONBLOCK, 0);
    if (fd < 0)
        return fd;
    struct stat st;
    int err = sys_fstat(fd, &st);
    if (err == 0 && S_ISREG(st.st_mode))
        return fd;
    sys_close(fd);
    return err < 0 ? err : -EINVAL;
}

int dest_fix_metadata(const struct dest *d, struct path_cache *cache, const struct entry *e)
{
    assert(e->type != ENTRY_DIR);
    char name[NAME_BYTES_MAX + 1];
    int parent = path_cache_parent(cache, e->path, e->path_len, name);
    if (parent < 0)
        return parent;
    if (e->type == ENTRY_SYMLINK)
        return fix_link(d, parent, name, e);
    int fd = open_regular(parent, name);
    if (fd < 0)
        return fd;
    int err = dest_set_metadata(d, fd, e);
    sys_close(fd);
    return err;
}

// ---- directories ----

static int open_dir(const struct dest *d, const struct entry *e)
{
    return path_open(d->fd, e->path, e->path_len, O_RDONLY | O_DIRECTORY, 0);
}

static int make_writable(const struct dest *d, const struct entry *e)
{
    int fd = open_dir(d, e);
    if (fd < 0)
        return fd;
    struct stat st;
    int err = sys_fstat(fd, &st);
    if (err == 0 && (st.st_mode & S_IRWXU) != S_IRWXU)
        err = sys_fchmod(fd, (st.st_mode & 07777) | S_IRWXU);
    sys_close(fd);
    return err;
}

// Removes what has the name of a directory and is none.
static int clear_way(const struct dest *d, const struct entry *e)
{
    char name[NAME_BYTES_MAX + 1];
    int parent = path_open_parent(d->fd, e->path, e->path_len, name);
    if (parent < 0)
        return parent;
    int err = sys_unlinkat(parent, name, 0); // never a directory
    sys_close(parent);
    return err == -ENOENT ? 0 : err;
}

int dest_make_dir(const struct dest *d, const struct entry *e, bool *made)
{
    assert(e->type == ENTRY_DIR);
    bool is_new = false;
    mode_t mode = e->mode & 0777;
    int err = path_mkdirs(d->fd, e->path, e->path_len, mode, &is_new);
    if (err == -ENOTDIR || err == -ELOOP) {
        err = clear_way(d, e);
        if (err == 0)
            err = path_mkdirs(d->fd, e->path, e->path_len, mode, &is_new);
    }
    if (err == 0 && !is_new)
        err = make_writable(d, e);
    if (err == 0)
        *made = is_new;
    return err;
}

int dest_finish_dir(const struct dest *d, const struct entry *e)
{
    assert(e->type == ENTRY_DIR);
    int fd = open_dir(d, e);
    if (fd < 0)
        return fd;
    struct stat st;
    int err = d->mounts != NULL ? sys_fstat(fd, &st) : 0; // it has none when the root itself is finished
    if (err == 0 && d->mounts != NULL)
        err = dest_mounts_note(d, st.st_dev, fd);
    if (err == 0)
        err = dest_set_metadata(d, fd, e);
    sys_close(fd);
    return err;
}
