// storage/sys.h on the simulated file system: descriptors, bytes, syncs, clock. Names are in sys_names.c.
#include "storage/sys.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>

#include "tests/sim/descriptor.h"
#include "tests/sim/sched.h"
#include "tests/sim/sys_inner.h"
#include "tests/sim/watch.h"
#include "tests/sim/world.h"

enum { WALL_S = 1700000000, EXT4_MAGIC = 0xef53, ROOT_UID = 0, USER_UID = 1000 };

int sys_begin(const char *what)
{
    return host_call(process_host(process_current()), what);
}

struct open_file *file_of(int fd)
{
    return descriptor_object(fd, DESCRIPTOR_FILE);
}

static bool is_direct(const struct open_file *f)
{
    return (f->flags & O_DIRECT) != 0;
}

static bool is_aligned(const void *buf, size_t len, uint64_t offset)
{
    return ((uintptr_t)buf | len | offset) % BLOCK_BYTES == 0;
}

// ---- bytes ----

int64_t file_read(struct open_file *f, void *buf, size_t len, uint64_t offset)
{
    if (S_ISDIR(f->inode->seen.mode))
        return -EISDIR;
    if ((f->flags & O_ACCMODE) == O_WRONLY || (f->flags & O_PATH))
        return -EBADF;
    if (is_direct(f) && !is_aligned(buf, len, offset))
        return -EINVAL;
    return (int64_t)fs_read(f->inode, buf, len, offset);
}

int64_t file_write(struct open_file *f, const void *buf, size_t len, uint64_t offset)
{
    if ((f->flags & O_ACCMODE) == O_RDONLY || (f->flags & O_PATH))
        return -EBADF;
    if (is_direct(f) && !is_aligned(buf, len, offset))
        return -EINVAL;
    int rc = fs_write(f->inode, buf, len, offset);
    return rc < 0 ? rc : (int64_t)len;
}

// Less than was asked for, now and then, whole blocks.
static size_t shorter(size_t len, bool direct)
{
    struct trouble *t = &process_host(process_current())->trouble;
    if (len < 2 || !rng_once_in(world_rng(), t->short_once_in))
        return len;
    size_t n = rng_range(world_rng(), 1, len - 1);
    return direct ? u64_max(n / BLOCK_BYTES, 1) * BLOCK_BYTES : n;
}

ssize_t sys_pread(int fd, void *buf, size_t len, uint64_t offset)
{
    struct open_file *f = file_of(fd);
    int rc = sys_begin("pread");
    return rc < 0 ? rc : file_read(f, buf, shorter(len, is_direct(f)), offset);
}

ssize_t sys_pwrite(int fd, const void *buf, size_t len, uint64_t offset)
{
    struct open_file *f = file_of(fd);
    int rc = sys_begin("pwrite");
    return rc < 0 ? rc : file_write(f, buf, shorter(len, is_direct(f)), offset);
}

ssize_t sys_pread_full(int fd, void *buf, size_t len, uint64_t offset)
{
    size_t done = 0;
    while (done < len) {
        ssize_t n = sys_pread(fd, (uint8_t *)buf + done, len - done, offset + done);
        // Direct I/O that ended with the file refuses to go on from an odd offset.
        if (n == 0 || (n == -EINVAL && done > 0 && offset + done >= file_of(fd)->inode->seen.size))
            break;
        if (n < 0)
            return n;
        done += (size_t)n;
    }
    return (ssize_t)done;
}

int sys_cached(int fd, uint64_t offset)
{
    (void)file_of(fd);
    (void)offset;
    int rc = sys_begin("preadv2");
    return rc < 0 ? rc : (int)rng_once_in(world_rng(), 2);
}

int sys_pwrite_full(int fd, const void *buf, size_t len, uint64_t offset)
{
    for (size_t done = 0; done < len;) {
        ssize_t n = sys_pwrite(fd, (const uint8_t *)buf + done, len - done, offset + done);
        if (n < 0)
            return (int)n;
        done += (size_t)n;
    }
    watch_write(file_of(fd)->inode);
    return 0;
}

int sys_ftruncate(int fd, uint64_t len)
{
    struct open_file *f = file_of(fd);
    int rc = sys_begin("ftruncate");
    if (rc < 0)
        return rc;
    return (f->flags & O_ACCMODE) == O_RDONLY ? -EINVAL : fs_truncate(f->inode, len);
}

// Space is not set aside: a later write may still find none.
int sys_fallocate(int fd, int mode, uint64_t offset, uint64_t len)
{
    struct open_file *f = file_of(fd);
    bool punches = mode == (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE);
    assert(mode == 0 || punches);
    int rc = sys_begin("fallocate");
    if (rc < 0)
        return rc;
    if (punches)
        return fs_punch(f->inode, offset, len);
    if (u64_div_up(len, BLOCK_BYTES) > fs_free_blocks(f->inode->fs))
        return -ENOSPC;
    if (offset + len > f->inode->seen.size)
        return fs_truncate(f->inode, offset + len);
    return 0;
}

int sys_fadvise(int fd, uint64_t offset, uint64_t len, int advice)
{
    (void)offset;
    (void)len;
    (void)advice;
    (void)file_of(fd);
    return 0;
}

static int64_t seek_data(const struct inode *i, uint64_t offset, bool data)
{
    if (offset >= i->seen.size)
        return -ENXIO;
    for (uint64_t at = offset; at < i->seen.size; at = (at / BLOCK_BYTES + 1) * BLOCK_BYTES)
        if ((fs_block(i, at / BLOCK_BYTES, false) != NULL) == data)
            return (int64_t)at;
    return data ? -ENXIO : (int64_t)i->seen.size;
}

int64_t sys_lseek(int fd, uint64_t offset, int whence)
{
    struct open_file *f = file_of(fd);
    int rc = sys_begin("lseek");
    if (rc < 0)
        return rc;
    if (whence == SEEK_DATA || whence == SEEK_HOLE)
        return seek_data(f->inode, offset, whence == SEEK_DATA);
    assert(whence == SEEK_SET && S_ISDIR(f->inode->seen.mode));
    f->position = offset;
    return (int64_t)offset;
}

// ---- syncs ----

int sys_fsync(int fd)
{
    struct open_file *f = file_of(fd);
    int rc = sys_begin("fsync");
    if (rc == 0)
        fs_sync(f->inode);
    else
        fs_sync_fails(f->inode);
    return rc;
}

int sys_fdatasync(int fd)
{
    struct open_file *f = file_of(fd);
    int rc = sys_begin("fdatasync");
    if (rc == 0)
        fs_sync_data(f->inode);
    else
        fs_sync_fails(f->inode);
    return rc;
}

int sys_syncfs(int fd)
{
    struct open_file *f = file_of(fd);
    int rc = sys_begin("syncfs");
    if (rc == 0)
        fs_sync_all(f->inode->fs);
    else
        fs_sync_all_fails(f->inode->fs);
    return rc;
}

// ---- descriptors ----

static void unlock(struct open_file *f)
{
    if (f->inode->locked_by == f) {
        f->inode->locked_by = NULL;
        task_wake_all(f->inode);
    }
}

static void file_close(void *object, bool silently)
{
    (void)silently;
    struct open_file *f = object;
    unlock(f);
    free(f);
}

static const struct descriptor_ops file_ops = {.kind = DESCRIPTOR_FILE, .close = file_close};

int file_open(struct inode *i, int flags)
{
    struct open_file *f = calloc(1, sizeof *f);
    assert(f != NULL);
    *f = (struct open_file){.inode = i, .flags = flags};
    return descriptor_new(NULL, &file_ops, f);
}

int sys_close(int fd)
{
    int rc = sys_begin("close");
    descriptor_close(fd, DESCRIPTOR_FILE);
    return rc;
}

int sys_set_flags(int fd, int flags)
{
    struct open_file *f = file_of(fd);
    int rc = sys_begin("fcntl");
    const int can_change = O_NONBLOCK | O_DIRECT | O_NOATIME;
    if (rc == 0)
        f->flags = (f->flags & ~can_change) | (flags & can_change);
    return rc;
}

int sys_flock(int fd, int operation)
{
    struct open_file *f = file_of(fd);
    int rc = sys_begin("flock");
    if (rc < 0)
        return rc;
    if (operation == LOCK_UN) {
        unlock(f);
        return 0;
    }
    assert((operation & ~LOCK_NB) == LOCK_EX);
    while (f->inode->locked_by != NULL && f->inode->locked_by != f) {
        if (operation & LOCK_NB)
            return -EWOULDBLOCK;
        (void)task_wait(f->inode, NEVER_NS);
    }
    f->inode->locked_by = f;
    return 0;
}

int sys_fs_magic(int fd, uint64_t *magic, uint64_t *free_bytes)
{
    const struct open_file *f = file_of(fd);
    int rc = sys_begin("fstatfs");
    if (rc < 0)
        return rc;
    *magic = process_host(process_current())->in_memory ? TMPFS_MAGIC : EXT4_MAGIC;
    *free_bytes = fs_free_blocks(f->inode->fs) * BLOCK_BYTES;
    return 0;
}

int sys_direct_align(int fd, uint32_t *align)
{
    (void)file_of(fd);
    int rc = sys_begin("statx");
    if (rc == 0)
        *align = process_host(process_current())->direct_align;
    return rc;
}

int sys_mount_id(int fd, uint64_t *id)
{
    (void)file_of(fd);
    int rc = sys_begin("statx");
    if (rc == 0)
        *id = 1; // no mounts are simulated
    return rc;
}

// ---- clock, chance, who we are ----

uint64_t sys_clock_ns(void)
{
    return sched_now_ns() + NS_PER_S;
}

int64_t sys_wall_s(void)
{
    return (int64_t)(WALL_S + sched_now_ns() / NS_PER_S);
}

int sys_random(void *buf, size_t len)
{
    for (size_t i = 0; i < len; i++)
        ((uint8_t *)buf)[i] = (uint8_t)rng_next(sched_rng());
    return 0;
}

uid_t sys_euid(void)
{
    return process_host(process_current())->root ? ROOT_UID : USER_UID;
}

void sys_boot_id(char out[64])
{
    const struct host *h = process_host(process_current());
    snprintf(out, 64, "boot-%s-%u", h->name, h->boots);
}

void sys_host_name(char out[256])
{
    snprintf(out, 256, "%s", process_host(process_current())->name);
}
