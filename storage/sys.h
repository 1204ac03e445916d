// The seam to the kernel for everything that touches files, syncs or the clock: thin calls that return a
// value >= 0 or a negative errno, retry EINTR where that is right (not syncs, not calls that make, move or
// remove a name), and nothing else. The simulator and the fault sweep link another sys.c with the same
// functions: there a crash undoes what was not synced, and the n-th call fails. No other file of the product
// calls the kernel for these things.
#ifndef PENSTOCK_STORAGE_SYS_H
#define PENSTOCK_STORAGE_SYS_H

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <time.h>

#include "proto/base.h"

// openat with O_CLOEXEC added.
MUST_CHECK int sys_openat(int dir_fd, const char *path, int flags, mode_t mode);
// openat2 with RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS; -ENOSYS where the kernel or a
// filter does not know it (EPERM from a filter is told as ENOSYS too: a path that is really forbidden says
// EACCES).
MUST_CHECK int sys_open_beneath(int dir_fd, const char *path, int flags, mode_t mode);
int sys_close(int fd); // the descriptor is gone whatever comes back; an errno tells of a failed late write
MUST_CHECK ssize_t sys_pread(int fd, void *buf, size_t len, uint64_t offset);        // may be short
MUST_CHECK ssize_t sys_pwrite(int fd, const void *buf, size_t len, uint64_t offset); // may be short
// The whole of it or an error; read: fewer bytes only at the end of the file.
MUST_CHECK ssize_t sys_pread_full(int fd, void *buf, size_t len, uint64_t offset);
// Whether the byte there can be read without a disk (preadv2 RWF_NOWAIT on a descriptor without O_DIRECT):
// 1 or 0; -EOPNOTSUPP where the file system cannot tell.
MUST_CHECK int sys_cached(int fd, uint64_t offset);
MUST_CHECK int sys_pwrite_full(int fd, const void *buf, size_t len, uint64_t offset);
MUST_CHECK int sys_fsync(int fd);
MUST_CHECK int sys_fdatasync(int fd);
MUST_CHECK int sys_syncfs(int fd);
MUST_CHECK int sys_ftruncate(int fd, uint64_t len);
MUST_CHECK int sys_fallocate(int fd, int mode, uint64_t offset, uint64_t len);
MUST_CHECK int sys_fadvise(int fd, uint64_t offset, uint64_t len, int advice);
MUST_CHECK int64_t sys_lseek(int fd, uint64_t offset, int whence); // SEEK_DATA, SEEK_HOLE
MUST_CHECK int sys_fstat(int fd, struct stat *st);
MUST_CHECK int sys_fstatat(int dir_fd, const char *name, struct stat *st, int flags);
MUST_CHECK int sys_set_flags(int fd,
                             int flags); // of the open file: O_NONBLOCK, O_DIRECT, O_NOATIME (F_SETFL)
MUST_CHECK int sys_mkdirat(int dir_fd, const char *name, mode_t mode);
MUST_CHECK int sys_unlinkat(int dir_fd, const char *name, int flags);
MUST_CHECK int sys_renameat(int old_dir, const char *old_name, int new_dir, const char *new_name);
MUST_CHECK int sys_symlinkat(const char *target, int dir_fd, const char *name);
MUST_CHECK ssize_t sys_readlinkat(int dir_fd, const char *name, void *buf, size_t len);
MUST_CHECK int sys_fchmod(int fd, mode_t mode);
MUST_CHECK int sys_fchown(int fd, uid_t uid, gid_t gid);
MUST_CHECK int sys_fchownat(int dir_fd, const char *name, uid_t uid, gid_t gid); // never follows a link
MUST_CHECK int sys_futimens(int fd, const struct timespec times[2]);
MUST_CHECK int sys_utimensat(int dir_fd, const char *name,
                             const struct timespec times[2]);   // never follows a link
MUST_CHECK ssize_t sys_getdents(int fd, void *buf, size_t len); // struct linux_dirent64, see getdents64(2)
MUST_CHECK int sys_flock(int fd, int operation);
#define TMPFS_MAGIC UINT64_C(0x01021994) // of linux/magic.h
MUST_CHECK int sys_fs_magic(int fd, uint64_t *magic,
                            uint64_t *free_bytes); // statfs f_type, f_bavail in bytes
// Alignment that direct I/O on this file asks for, in bytes (statx STATX_DIOALIGN): 0 = none possible,
// BLOCK_BYTES where the kernel does not say.
MUST_CHECK int sys_direct_align(int fd, uint32_t *align);

// A number for the mount that the file was reached by (statx STATX_MNT_ID, Linux 5.8); st_dev where the
// kernel does not say, which cannot tell bind mounts of one file system from each other.
MUST_CHECK int sys_mount_id(int fd, uint64_t *id);

// Nanoseconds of a clock that runs through suspend (CLOCK_BOOTTIME): for deadlines and rates.
uint64_t sys_clock_ns(void);
// Wall-clock seconds, for people only: names no decision.
int64_t sys_wall_s(void);
// Random bytes from the kernel; -EIO when it gives none.
MUST_CHECK int sys_random(void *buf, size_t len);
// Who we are: the effective user, and a text that differs between boots of a host ("" where it cannot be
// read).
uid_t sys_euid(void);
void sys_boot_id(char out[64]);
void sys_host_name(char out[256]);

#endif
