#include "storage/sys.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "proto/limits.h"

static int result(long n)
{
    return n < 0 ? -errno : (int)n;
}

static ssize_t result_size(ssize_t n)
{
    return n < 0 ? -errno : n;
}

static bool interrupted(long n)
{
    return n < 0 && errno == EINTR;
}

int sys_openat(int dir_fd, const char *path, int flags, mode_t mode)
{
    long n;
    // After an interrupted O_EXCL the file may be there: to try again would blame another.
    do {
        n = openat(dir_fd, path, flags | O_CLOEXEC, mode);
    } while (interrupted(n) && !(flags & O_EXCL));
    return result(n);
}

int sys_open_beneath(int dir_fd, const char *path, int flags, mode_t mode)
{
    struct open_how how = {
        .flags = (uint64_t)(unsigned)(flags | O_CLOEXEC),
        .mode = flags & O_CREAT ? mode : 0, // openat2 refuses a mode that is not used
        .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS,
    };
    long n;
    do {
        n = syscall(SYS_openat2, dir_fd, path, &how, sizeof(how));
    } while (interrupted(n) && !(flags & O_EXCL));
    if (n < 0 && errno == EPERM)
        return -ENOSYS;
    return result(n);
}

int sys_close(int fd)
{
    return result(close(fd));
}

ssize_t sys_pread(int fd, void *buf, size_t len, uint64_t offset)
{
    ssize_t n;
    do {
        n = pread(fd, buf, len, (off_t)offset);
    } while (interrupted(n));
    return result_size(n);
}

ssize_t sys_pwrite(int fd, const void *buf, size_t len, uint64_t offset)
{
    ssize_t n;
    do {
        n = pwrite(fd, buf, len, (off_t)offset);
    } while (interrupted(n));
    return result_size(n);
}

// Whether `offset` lies at or behind the end of the file.
static bool at_end(int fd, uint64_t offset)
{
    struct stat st;
    return fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && (uint64_t)st.st_size <= offset;
}

ssize_t sys_pread_full(int fd, void *buf, size_t len, uint64_t offset)
{
    uint8_t *at = buf;
    size_t done = 0;
    while (done < len) {
        ssize_t n = sys_pread(fd, at + done, len - done, offset + done);
        // Direct I/O that ended with the file may refuse to go on from an odd offset.
        if (n == 0 || (n == -EINVAL && done > 0 && at_end(fd, offset + done)))
            break;
        if (n < 0)
            return n;
        done += (size_t)n;
    }
    return (ssize_t)done;
}

int sys_cached(int fd, uint64_t offset)
{
    uint8_t byte;
    struct iovec part = {.iov_base = &byte, .iov_len = 1};
    ssize_t n = preadv2(fd, &part, 1, (off_t)offset, RWF_NOWAIT);
    if (n >= 0)
        return 1;
    if (errno == EAGAIN || errno == EINTR)
        return 0;
    // Kernels and filters without the call know nothing of it either.
    return errno == ENOSYS || errno == EPERM || errno == EINVAL ? -EOPNOTSUPP : -errno;
}

int sys_pwrite_full(int fd, const void *buf, size_t len, uint64_t offset)
{
    const uint8_t *at = buf;
    size_t done = 0;
    while (done < len) {
        ssize_t n = sys_pwrite(fd, at + done, len - done, offset + done);
        if (n < 0)
            return (int)n;
        if (n == 0) // a device that takes nothing and names no reason would hold us for ever
            return -EIO;
        done += (size_t)n;
    }
    return 0;
}

// A sync is never tried again, also not after EINTR: the first call may have consumed the report of a lost
// write.
int sys_fsync(int fd)
{
    return result(fsync(fd));
}

int sys_fdatasync(int fd)
{
    return result(fdatasync(fd));
}

int sys_syncfs(int fd)
{
    return result(syncfs(fd));
}

int sys_ftruncate(int fd, uint64_t len)
{
    long n;
    do {
        n = ftruncate(fd, (off_t)len);
    } while (interrupted(n));
    return result(n);
}

int sys_fallocate(int fd, int mode, uint64_t offset, uint64_t len)
{
    long n;
    do {
        n = fallocate(fd, mode, (off_t)offset, (off_t)len);
    } while (interrupted(n));
    return result(n);
}

int sys_fadvise(int fd, uint64_t offset, uint64_t len, int advice)
{
    return -posix_fadvise(fd, (off_t)offset, (off_t)len, advice);
}

int64_t sys_lseek(int fd, uint64_t offset, int whence)
{
    off_t n = lseek(fd, (off_t)offset, whence);
    return n == (off_t)-1 ? -errno : n;
}

int sys_fstat(int fd, struct stat *st)
{
    long n;
    do {
        n = fstat(fd, st);
    } while (interrupted(n));
    return result(n);
}

int sys_fstatat(int dir_fd, const char *name, struct stat *st, int flags)
{
    long n;
    do {
        n = fstatat(dir_fd, name, st, flags);
    } while (interrupted(n));
    return result(n);
}

int sys_set_flags(int fd, int flags)
{
    return result(fcntl(fd, F_SETFL, flags));
}

// Of the calls that change names an interrupted one may have been carried out (FUSE, network file systems):
// the second try would say EEXIST or ENOENT of our own work. They are not repeated.
int sys_mkdirat(int dir_fd, const char *name, mode_t mode)
{
    return result(mkdirat(dir_fd, name, mode));
}

int sys_unlinkat(int dir_fd, const char *name, int flags)
{
    return result(unlinkat(dir_fd, name, flags));
}

int sys_renameat(int old_dir, const char *old_name, int new_dir, const char *new_name)
{
    return result(renameat(old_dir, old_name, new_dir, new_name));
}

int sys_symlinkat(const char *target, int dir_fd, const char *name)
{
    return result(symlinkat(target, dir_fd, name));
}

ssize_t sys_readlinkat(int dir_fd, const char *name, void *buf, size_t len)
{
    ssize_t n;
    do {
        n = readlinkat(dir_fd, name, buf, len);
    } while (interrupted(n));
    return result_size(n);
}

int sys_fchmod(int fd, mode_t mode)
{
    long n;
    do {
        n = fchmod(fd, mode);
    } while (interrupted(n));
    return result(n);
}

int sys_fchown(int fd, uid_t uid, gid_t gid)
{
    long n;
    do {
        n = fchown(fd, uid, gid);
    } while (interrupted(n));
    return result(n);
}

int sys_fchownat(int dir_fd, const char *name, uid_t uid, gid_t gid)
{
    long n;
    do {
        n = fchownat(dir_fd, name, uid, gid, AT_SYMLINK_NOFOLLOW);
    } while (interrupted(n));
    return result(n);
}

int sys_futimens(int fd, const struct timespec times[2])
{
    long n;
    do {
        n = futimens(fd, times);
    } while (interrupted(n));
    return result(n);
}

int sys_utimensat(int dir_fd, const char *name, const struct timespec times[2])
{
    long n;
    do {
        n = utimensat(dir_fd, name, times, AT_SYMLINK_NOFOLLOW);
    } while (interrupted(n));
    return result(n);
}

ssize_t sys_getdents(int fd, void *buf, size_t len)
{
    ssize_t n;
    do {
        n = getdents64(fd, buf, len);
    } while (interrupted(n));
    return result_size(n);
}

int sys_flock(int fd, int operation)
{
    long n;
    do {
        n = flock(fd, operation);
    } while (interrupted(n));
    return result(n);
}

int sys_fs_magic(int fd, uint64_t *magic, uint64_t *free_bytes)
{
    struct statfs fs;
    long n;
    do {
        n = fstatfs(fd, &fs);
    } while (interrupted(n));
    if (n < 0)
        return result(n);
    // Blocks are counted in fragments where the file system tells their size, else in f_bsize.
    uint64_t unit = (uint64_t)(fs.f_frsize > 0 ? fs.f_frsize : fs.f_bsize);
    *magic = (uint32_t)fs.f_type; // a magic has 32 bits; the field is signed
    if (__builtin_mul_overflow((uint64_t)fs.f_bavail, unit, free_bytes))
        *free_bytes = UINT64_MAX;
    return 0;
}

// What statx says of an open file; 0 in stx_mask where the kernel or a filter does not know it.
static int ask_statx(int fd, unsigned mask, struct statx *out)
{
    memset(out, 0, sizeof(*out));
    long n;
    do {
        n = statx(fd, "", AT_EMPTY_PATH, mask, out);
    } while (interrupted(n));
    if (n >= 0)
        return 0;
    int err = result(n);
    out->stx_mask = 0;
    return err == -ENOSYS || err == -EPERM ? 0 : err;
}

int sys_mount_id(int fd, uint64_t *id)
{
    struct statx stx;
    int err = ask_statx(fd, STATX_MNT_ID, &stx);
    if (err < 0)
        return err;
    if (stx.stx_mask & STATX_MNT_ID) {
        *id = stx.stx_mnt_id;
        return 0;
    }
    struct stat st;
    err = sys_fstat(fd, &st);
    if (err == 0)
        *id = st.st_dev;
    return err;
}

int sys_direct_align(int fd, uint32_t *align)
{
    struct statx stx;
    int err = ask_statx(fd, STATX_DIOALIGN, &stx);
    if (err < 0)
        return err;
    if (!(stx.stx_mask & STATX_DIOALIGN))
        *align = BLOCK_BYTES;
    else if (stx.stx_dio_offset_align == 0 || stx.stx_dio_mem_align == 0)
        *align = 0;
    else
        *align = (uint32_t)u64_max(stx.stx_dio_offset_align, stx.stx_dio_mem_align);
    return 0;
}

uint64_t sys_clock_ns(void)
{
    struct timespec now;
    int rc = clock_gettime(CLOCK_BOOTTIME, &now);
    assert(rc == 0);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

int64_t sys_wall_s(void)
{
    struct timespec now;
    int rc = clock_gettime(CLOCK_REALTIME, &now);
    assert(rc == 0);
    return now.tv_sec;
}

int sys_random(void *buf, size_t len)
{
    uint8_t *at = buf;
    size_t done = 0;
    while (done < len) {
        ssize_t n = getrandom(at + done, len - done, 0);
        if (interrupted(n))
            continue;
        if (n <= 0)
            return -EIO;
        done += (size_t)n;
    }
    return 0;
}

uid_t sys_euid(void)
{
    return geteuid();
}

void sys_boot_id(char out[64])
{
    out[0] = '\0';
    int fd = sys_openat(AT_FDCWD, "/proc/sys/kernel/random/boot_id", O_RDONLY, 0);
    if (fd < 0)
        return;
    ssize_t n = sys_pread_full(fd, out, 63, 0);
    sys_close(fd);
    out[n > 0 ? n : 0] = '\0';
    out[strcspn(out, "\n")] = '\0';
}

void sys_host_name(char out[256])
{
    if (gethostname(out, 255) != 0)
        out[0] = '\0';
    out[255] = '\0'; // a name that was cut has no terminator
}
