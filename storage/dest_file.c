#include "storage/dest_inner.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "proto/wire.h"

enum {
    VERSION_BYTES = 40, // of a source file in its temporary name
    SET_ID_BITS = S_ISUID | S_ISGID,
};

// ---- temporary names ----

void dest_temp_name(const struct entry *e, char out[TEMP_NAME_BYTES])
{
    uint8_t bytes[PATH_BYTES_MAX + VERSION_BYTES] NOT_ZEROED;
    struct wire_writer w;
    wire_writer_init(&w, bytes, sizeof(bytes));
    wire_put_bytes(&w, e->path, e->path_len);
    wire_put_u64(&w, e->size);
    wire_put_u64(&w, (uint64_t)e->mtime.s);
    wire_put_u32(&w, e->mtime.ns);
    wire_put_u64(&w, (uint64_t)e->ctime.s);
    wire_put_u32(&w, e->ctime.ns);
    wire_put_u64(&w, e->inode);
    int64_t len = wire_written(&w);
    assert(len > 0);
    struct digest name = digest_of(bytes, (size_t)len);
    digest_hex(&name, out);
}

int dest_create(int dir_fd, const char *name, int flags, mode_t mode)
{
    flags |= O_CREAT | O_EXCL | O_NOFOLLOW;
    int fd = sys_openat(dir_fd, name, flags, mode);
    if (fd != -EEXIST)
        return fd;
    int err = sys_unlinkat(dir_fd, name, 0);
    if (err < 0 && err != -ENOENT)
        return err;
    return sys_openat(dir_fd, name, flags, mode);
}

void dest_unlink_temp(int dir_fd, const char *name)
{
    int err = sys_unlinkat(dir_fd, name, 0);
    (void)err; // see the header: nobody is the worse for it
}

// ---- metadata ----

mode_t dest_mode(const struct dest *d, const struct entry *e, uid_t uid, gid_t gid)
{
    bool kept = d->can_chown || (uid == e->uid && gid == e->gid);
    return kept ? e->mode : e->mode & ~(mode_t)SET_ID_BITS;
}

void dest_times(const struct entry *e, struct timespec times[2])
{
    times[0] = (struct timespec){.tv_nsec = UTIME_OMIT};
    times[1] = (struct timespec){.tv_sec = e->mtime.s, .tv_nsec = e->mtime.ns};
}

int dest_set_metadata(const struct dest *d, int fd, const struct entry *e)
{
    struct stat st;
    struct timespec times[2];
    int err = sys_fstat(fd, &st);
    if (err < 0)
        return err;
    // What is right already is not set again: each is a transaction, or a round trip to a file server.
    bool chown = d->can_chown && (st.st_uid != e->uid || st.st_gid != e->gid);
    if (chown)
        err = sys_fchown(fd, e->uid, e->gid);
    mode_t mode = dest_mode(d, e, st.st_uid, st.st_gid);
    if (err == 0 && (chown || (st.st_mode & 07777) != mode)) // a new owner takes set-id bits away
        err = sys_fchmod(fd, mode);
    dest_times(e, times);
    return err < 0 ? err : sys_futimens(fd, times);
}

int dest_file_metadata(const struct dest *d, int fd, const struct entry *e)
{
    int err = sys_ftruncate(fd, e->size); // direct writes pad the tail to a whole block
    return err < 0 ? err : dest_set_metadata(d, fd, e);
}

// ---- large files ----

// A directory that cannot be noted gets no file.
static int leave_unnoted(const struct dest *d, const struct entry *e, struct dest_file *f)
{
    int err = dest_beside_note(d, e);
    if (err < 0)
        sys_close(f->dir_fd);
    return err;
}

// Where the temporary file of `e` belongs: fills dir_fd, beside and name of *f.
static int find_place(const struct dest *d, const struct entry *e, struct dest_file *f)
{
    char last[NAME_BYTES_MAX + 1];
    int parent = path_open_parent(d->fd, e->path, e->path_len, last);
    if (parent < 0)
        return parent;
    int err = dest_mounts_find(d, parent, &f->beside);
    if (err < 0) {
        sys_close(parent);
        return err;
    }
    bool learnt;
    if (dest_mounts_ask(d, e, &learnt) && learnt)
        f->beside = true; // a rename has said EXDEV: a mount of the same file system
    if (f->beside) {
        f->dir_fd = parent;
        dest_beside_name(d, e, f->name);
        return leave_unnoted(d, e, f);
    } else {
        sys_close(parent);
        f->dir_fd = d->temp_fd;
        dest_temp_name(e, f->name);
    }
    return 0;
}

static void leave_place(struct dest_file *f)
{
    if (f->beside)
        sys_close(f->dir_fd);
    f->dir_fd = -1;
}

// Opens the file that an earlier run left. Its mode may be the final one already, which need not let us
// write.
static int open_left(const struct dest_file *f, int flags)
{
    flags |= O_NOFOLLOW | O_NONBLOCK;
    int fd = sys_openat(f->dir_fd, f->name, flags, 0);
    if (fd != -EACCES)
        return fd;
    fd = sys_openat(f->dir_fd, f->name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK, 0);
    if (fd < 0)
        return -ENOENT;
    int err = sys_fchmod(fd, 0600);
    sys_close(fd);
    return err < 0 ? -ENOENT : sys_openat(f->dir_fd, f->name, flags, 0);
}

// Takes O_DIRECT off where the file system has it but asks for more than our blocks.
static int check_direct(struct dest_file *f)
{
    uint32_t align;
    int err = sys_direct_align(f->fd, &align);
    if (err < 0 || (align > 0 && align <= BLOCK_BYTES))
        return err;
    f->direct = false;
    return sys_set_flags(f->fd, 0);
}

// Opens a new file, or the one that is there, with O_DIRECT where that is asked for and the file system takes
// it.
static int open_file(struct dest_file *f, bool adopt, bool direct)
{
    int flags = O_RDWR | (direct ? O_DIRECT : 0);
    int fd = adopt ? open_left(f, flags) : dest_create(f->dir_fd, f->name, flags, 0600);
    if (fd == -EINVAL && direct)
        return open_file(f, adopt, false);
    if (fd < 0)
        return fd;
    f->fd = fd;
    f->direct = direct;
    return direct ? check_direct(f) : 0;
}

static int allocate(int fd, uint64_t offset, uint64_t len)
{
    int err = len > 0 ? sys_fallocate(fd, 0, offset, len) : 0;
    return err == -EOPNOTSUPP ? 0 : err;
}

// The size first, so that no allocation has to move the end of the file, then room for every data range.
// tmpfs would fill pages with zeros for nothing.
static int preallocate(int fd, const struct entry *e)
{
    int err = sys_ftruncate(fd, e->size);
    uint64_t magic = 0, free_bytes;
    if (err == 0)
        err = sys_fs_magic(fd, &magic, &free_bytes);
    if (err < 0 || magic == TMPFS_MAGIC)
        return err;
    if (!e->sparse)
        return allocate(fd, 0, e->size);
    for (uint32_t i = 0; i < e->data_count && err == 0; i++)
        err = allocate(fd, e->data[i].offset, e->data[i].len);
    return err;
}

int dest_file_reserve(const struct dest_file *f, const struct entry *e)
{
    return preallocate(f->fd, e);
}

// Whether what was opened for adoption is the file that we left: ours alone (or given to its owner already,
// whom `e` may not tell), and not shorter than it was made.
static int examine_left(const struct dest *d, int fd, const struct entry *e, bool owner_known)
{
    struct stat st;
    int err = sys_fstat(fd, &st);
    if (err < 0)
        return err;
    bool ours = st.st_uid == sys_euid() || (d->can_chown && (!owner_known || st.st_uid == e->uid));
    bool whole = S_ISREG(st.st_mode) && st.st_nlink == 1 && (uint64_t)st.st_size >= e->size;
    return ours && whole ? 0 : -ENOENT;
}

// Made anew, adopted, or left by a job of which only the journal is known, which tells no owner.
enum temp_way { TEMP_MADE, TEMP_ADOPTED, TEMP_LEFT };

static int temp_open(const struct dest *d, const struct entry *e, enum temp_way way, bool direct,
                     struct dest_file *out)
{
    bool adopt = way != TEMP_MADE;
    struct dest_file f = {.fd = -1};
    int err = find_place(d, e, &f);
    if (err < 0)
        return err;
    err = open_file(&f, adopt, direct);
    if (err == 0)
        err = adopt ? examine_left(d, f.fd, e, way == TEMP_ADOPTED) : preallocate(f.fd, e);
    if (err == 0) {
        *out = f;
        return 0;
    }
    if (f.fd >= 0 && !adopt)
        dest_unlink_temp(f.dir_fd, f.name);
    if (f.fd >= 0)
        sys_close(f.fd);
    leave_place(&f);
    return err;
}

int dest_temp_open(const struct dest *d, const struct entry *e, bool adopt, bool direct,
                   struct dest_file *out)
{
    return temp_open(d, e, adopt ? TEMP_ADOPTED : TEMP_MADE, direct, out);
}

int dest_temp_reopen(const struct dest *d, const struct entry *e, struct dest_file *out)
{
    return temp_open(d, e, TEMP_LEFT, false, out);
}

void dest_file_close(struct dest_file *f)
{
    if (f == NULL || f->fd < 0)
        return;
    sys_close(f->fd);
    f->fd = -1;
    leave_place(f);
}

void dest_file_drop(const struct dest_file *f)
{
    dest_unlink_temp(f->dir_fd, f->name);
    int err = sys_ftruncate(f->fd, 0);
    (void)err; // then the room comes with the last close
}

int dest_file_publish(const struct dest *d, const struct dest_file *f, const struct entry *e, int *parent_fd)
{
    char last[NAME_BYTES_MAX + 1];
    int parent = path_open_parent(d->fd, e->path, e->path_len, last);
    if (parent < 0)
        return parent;
    int err = sys_renameat(f->dir_fd, f->name, parent, last);
    if (err == -EXDEV && !f->beside)
        dest_mounts_tell(d, e, true);
    if (err < 0)
        sys_close(parent);
    else
        *parent_fd = parent;
    return err;
}
