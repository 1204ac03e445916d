#include "storage/sys.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CUnit/CUnit.h>

#include "proto/limits.h"
#include "tests/unit/scratch.h"

static int open_new(int dir_fd, const char *name)
{
    int fd = sys_openat(dir_fd, name, O_RDWR | O_CREAT | O_EXCL, 0600);
    CU_ASSERT_FATAL(fd >= 0);
    return fd;
}

static void test_open(void)
{
    struct scratch s = scratch_begin();
    int fd = open_new(s.fd, "f");
    CU_ASSERT_EQUAL(fcntl(fd, F_GETFD), FD_CLOEXEC);
    CU_ASSERT_EQUAL(sys_openat(s.fd, "f", O_RDWR | O_CREAT | O_EXCL, 0600), -EEXIST);
    CU_ASSERT_EQUAL(sys_openat(s.fd, "none", O_RDONLY, 0), -ENOENT);
    CU_ASSERT_EQUAL(sys_openat(fd, "f", O_RDONLY, 0), -ENOTDIR);
    CU_ASSERT_EQUAL(sys_close(fd), 0);
    CU_ASSERT_EQUAL(sys_close(fd), -EBADF);
    scratch_end(&s);
}

static int no_atime_of_another(void *arg)
{
    int dir_fd = *(int *)arg;
    // The kernel says EPERM to both; of openat2 it may as well come from a filter.
    return sys_openat(dir_fd, "dir/f", O_RDONLY | O_NOATIME, 0) == -EPERM &&
                   sys_open_beneath(dir_fd, "dir/f", O_RDONLY | O_NOATIME, 0) == -ENOSYS
               ? 0
               : 1;
}

static void test_open_beneath(void)
{
    struct scratch s = scratch_begin();
    scratch_dir(s.fd, "dir");
    scratch_file(s.fd, "dir/f", "inside");
    scratch_link(s.fd, "link", "dir");
    static const struct {
        const char *path;
        int flags, rc; // 0: opened
    } cases[] = {
        {"dir/f", O_RDONLY, 0},
        {"dir", O_RDONLY | O_DIRECTORY, 0},
        {"dir/new", O_RDWR | O_CREAT, 0},
        {"link/f", O_RDONLY, -ELOOP},
        {"link", O_RDONLY, -ELOOP},
        {"../f", O_RDONLY, -EXDEV},
        {"dir/../../f", O_RDONLY, -EXDEV},
        {"/etc/passwd", O_RDONLY, -EXDEV},
        {"none", O_RDONLY, -ENOENT},
    };
    int fd = sys_open_beneath(s.fd, "dir/f", O_RDONLY, 0600); // a mode without O_CREAT is no error
    bool known = fd != -ENOSYS;
    for (size_t i = 0; known && i < ARRAY_LEN(cases); i++) {
        int got = sys_open_beneath(s.fd, cases[i].path, cases[i].flags, 0600);
        CU_ASSERT_EQUAL(got < 0 ? got : 0, cases[i].rc);
        if (got >= 0) {
            CU_ASSERT_EQUAL(fcntl(got, F_GETFD), FD_CLOEXEC);
            close(got);
        }
    }
    if (!known) {
        CU_PASS("this kernel has no openat2");
    } else if (geteuid() == 0) {
        CU_ASSERT_EQUAL(scratch_child(no_atime_of_another, &s.fd), 0);
    }
    if (fd >= 0)
        close(fd);
    scratch_end(&s);
}

static void test_read_full(void)
{
    enum { SIZE = 3 * MIB + 123 };
    struct scratch s = scratch_begin();
    scratch_bytes(s.fd, "f", SIZE);
    uint8_t *buf = malloc(4 * MIB), *again = malloc(SIZE);
    CU_ASSERT_FATAL(buf != NULL && again != NULL);
    int fd = sys_openat(s.fd, "f", O_RDONLY, 0);
    CU_ASSERT_EQUAL(sys_pread_full(fd, buf, 4 * MIB, 0), SIZE); // short only at the end
    CU_ASSERT_EQUAL(sys_pread_full(fd, again, 1000, SIZE - 1000), 1000);
    CU_ASSERT_EQUAL(memcmp(again, buf + SIZE - 1000, 1000), 0);
    CU_ASSERT_EQUAL(sys_pread_full(fd, buf, 10, SIZE), 0);
    CU_ASSERT_EQUAL(sys_pread_full(fd, buf, 0, 0), 0);
    CU_ASSERT_EQUAL(sys_pread_full(fd, buf, 10, UINT64_C(1) << 63), -EINVAL);
    CU_ASSERT_EQUAL(sys_pwrite_full(fd, buf, 10, 0), -EBADF);
    close(fd);
    int pipes[2];
    CU_ASSERT_EQUAL_FATAL(pipe(pipes), 0);
    CU_ASSERT_EQUAL(sys_pread(pipes[0], buf, 1, 0), -ESPIPE);
    CU_ASSERT_EQUAL(sys_fsync(pipes[0]), -EINVAL);
    close(pipes[0]);
    close(pipes[1]);
    free(buf);
    free(again);
    scratch_end(&s);
}

static void test_read_full_goes_on_after_short_reads(void)
{
    // The kernel gives this file a page at a time.
    int fd = sys_openat(AT_FDCWD, "/proc/self/smaps", O_RDONLY, 0);
    CU_ASSERT_FATAL(fd >= 0);
    static uint8_t buf[64 * KIB];
    ssize_t once = sys_pread(fd, buf, sizeof(buf), 0);
    ssize_t whole = sys_pread_full(fd, buf, sizeof(buf), 0);
    CU_ASSERT(once > 0 && once < whole);
    close(fd);
}

static void test_read_full_direct_at_the_end(void)
{
    struct scratch s = scratch_begin();
    scratch_bytes(s.fd, "f", 10000);
    int fd = sys_openat(s.fd, "f", O_RDONLY | O_DIRECT, 0);
    uint32_t align = 0;
    if (fd >= 0) {
        CU_ASSERT_EQUAL(sys_direct_align(fd, &align), 0);
    }
    if (align == 0) {
        CU_PASS("no direct I/O here");
    } else {
        uint8_t *buf = aligned_alloc(BLOCK_BYTES, 4 * BLOCK_BYTES);
        CU_ASSERT_EQUAL((align & (align - 1)), 0);
        CU_ASSERT_EQUAL(sys_pread_full(fd, buf, 4 * BLOCK_BYTES, 0), 10000);
        free(buf);
    }
    if (fd >= 0)
        close(fd);
    scratch_end(&s);
}

// The limit cuts the first write short; the second says why.
static int write_over_the_limit(void *arg)
{
    int fd = *(int *)arg;
    const struct rlimit limit = {6000, 6000};
    static const uint8_t bytes[8192] = {1};
    struct stat st;
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0 || signal(SIGXFSZ, SIG_IGN) == SIG_ERR)
        return 1;
    if (sys_pwrite_full(fd, bytes, sizeof(bytes), 0) != -EFBIG)
        return 2;
    return sys_fstat(fd, &st) == 0 && st.st_size == 6000 ? 0 : 3;
}

static void test_write(void)
{
    struct scratch s = scratch_begin();
    int fd = open_new(s.fd, "f");
    uint8_t buf[16];
    CU_ASSERT_EQUAL(sys_pwrite_full(fd, "0123456789", 10, 5), 0);
    CU_ASSERT_EQUAL(sys_pread_full(fd, buf, sizeof(buf), 0), 15);
    CU_ASSERT_EQUAL(memcmp(buf,
                           "\0\0\0\0\0"
                           "0123456789",
                           15),
                    0);
    CU_ASSERT_EQUAL(sys_pwrite(fd, "x", 1, UINT64_MAX), -EINVAL);
    CU_ASSERT_EQUAL(scratch_child(write_over_the_limit, &fd), 0);
    CU_ASSERT_EQUAL(sys_fsync(fd), 0);
    CU_ASSERT_EQUAL(sys_fdatasync(fd), 0);
    CU_ASSERT_EQUAL(sys_syncfs(fd), 0);
    close(fd);
    CU_ASSERT_EQUAL(sys_fsync(fd), -EBADF);
    CU_ASSERT_EQUAL(sys_fdatasync(fd), -EBADF);
    CU_ASSERT_EQUAL(sys_syncfs(fd), -EBADF);
    scratch_end(&s);
}

static void test_space(void)
{
    struct scratch s = scratch_begin();
    int fd = open_new(s.fd, "f");
    struct stat st;
    CU_ASSERT_EQUAL(sys_ftruncate(fd, 8 * MIB), 0);
    CU_ASSERT(sys_fstat(fd, &st) == 0 && st.st_size == 8 * MIB);
    CU_ASSERT_EQUAL(sys_ftruncate(fd, UINT64_MAX), -EINVAL);
    int rc = sys_fallocate(fd, 0, 0, MIB);
    CU_ASSERT(rc == 0 || rc == -EOPNOTSUPP);
    CU_ASSERT_EQUAL(sys_fallocate(fd, 0, 0, 0), -EINVAL);
    CU_ASSERT_EQUAL(sys_pwrite_full(fd, "x", 1, 4 * MIB), 0);
    CU_ASSERT_EQUAL(sys_lseek(fd, 8 * MIB, SEEK_DATA), -ENXIO);
    CU_ASSERT_EQUAL(sys_lseek(fd, 4 * MIB, SEEK_DATA), 4 * MIB);
    CU_ASSERT_EQUAL(sys_lseek(fd, UINT64_MAX, SEEK_SET), -EINVAL);
    CU_ASSERT_EQUAL(sys_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED), 0);
    CU_ASSERT_EQUAL(sys_fadvise(fd, 0, 0, 4711), -EINVAL);
    close(fd);
    scratch_end(&s);
}

static void test_names(void)
{
    struct scratch s = scratch_begin();
    struct stat st;
    char text[16];
    CU_ASSERT_EQUAL(sys_mkdirat(s.fd, "d", 0750), 0);
    CU_ASSERT_EQUAL(sys_mkdirat(s.fd, "d", 0750), -EEXIST);
    CU_ASSERT_EQUAL(sys_unlinkat(s.fd, "d", 0), -EISDIR);
    CU_ASSERT_EQUAL(sys_symlinkat("nowhere", s.fd, "l"), 0);
    CU_ASSERT_EQUAL(sys_symlinkat("nowhere", s.fd, "l"), -EEXIST);
    CU_ASSERT(sys_readlinkat(s.fd, "l", text, sizeof(text)) == 7 && memcmp(text, "nowhere", 7) == 0);
    CU_ASSERT_EQUAL(sys_readlinkat(s.fd, "d", text, sizeof(text)), -EINVAL);
    CU_ASSERT_EQUAL(sys_fstatat(s.fd, "l", &st, 0), -ENOENT);
    CU_ASSERT(sys_fstatat(s.fd, "l", &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(st.st_mode));
    int fd = open_new(s.fd, "f");
    CU_ASSERT_EQUAL(sys_renameat(s.fd, "f", s.fd, "d/g"), 0);
    CU_ASSERT_EQUAL(sys_renameat(s.fd, "f", s.fd, "d/g"), -ENOENT);
    CU_ASSERT_EQUAL(sys_unlinkat(s.fd, "d", AT_REMOVEDIR), -ENOTEMPTY);
    CU_ASSERT_EQUAL(sys_pwrite_full(fd, "still here", 10, 0), 0);
    CU_ASSERT_EQUAL(sys_unlinkat(s.fd, "d/g", 0), 0);
    CU_ASSERT(sys_fstat(fd, &st) == 0 && st.st_nlink == 0); // an open file outlives its name
    CU_ASSERT_EQUAL(sys_pread_full(fd, text, sizeof(text), 0), 10);
    CU_ASSERT_EQUAL(sys_unlinkat(s.fd, "d/g", 0), -ENOENT);
    close(fd);
    CU_ASSERT_EQUAL(sys_fstat(fd, &st), -EBADF);
    scratch_end(&s);
}

static void test_metadata(void)
{
    struct scratch s = scratch_begin();
    int fd = open_new(s.fd, "f");
    scratch_link(s.fd, "l", "f");
    const struct timespec file_times[2] = {{1, 2}, {-3, 999999999}}, link_times[2] = {{4, 5}, {6, 7}};
    struct stat file, link;
    CU_ASSERT_EQUAL(sys_fchmod(fd, 0640), 0);
    CU_ASSERT_EQUAL(sys_futimens(fd, file_times), 0);
    CU_ASSERT_EQUAL(sys_utimensat(s.fd, "l", link_times), 0);
    CU_ASSERT_EQUAL(sys_fchown(fd, geteuid(), (gid_t)-1), 0);
    CU_ASSERT_EQUAL(sys_fchownat(s.fd, "l", geteuid(), (gid_t)-1), 0);
    if (geteuid() == 0) {
        CU_ASSERT_EQUAL(sys_fchownat(s.fd, "l", 65534, 65534), 0);
    }
    CU_ASSERT(sys_fstat(fd, &file) == 0 && sys_fstatat(s.fd, "l", &link, AT_SYMLINK_NOFOLLOW) == 0);
    CU_ASSERT_EQUAL(file.st_mode & 07777, 0640);
    CU_ASSERT(file.st_mtim.tv_sec == -3 && file.st_mtim.tv_nsec == 999999999);
    CU_ASSERT(link.st_mtim.tv_sec == 6 && link.st_mtim.tv_nsec == 7);
    CU_ASSERT_EQUAL(file.st_uid, geteuid());
    CU_ASSERT_EQUAL(link.st_uid, geteuid() == 0 ? 65534 : geteuid());
    CU_ASSERT_EQUAL(sys_fchownat(s.fd, "none", 0, 0), -ENOENT);
    CU_ASSERT_EQUAL(sys_utimensat(s.fd, "none", link_times), -ENOENT);
    close(fd);
    CU_ASSERT_EQUAL(sys_fchmod(fd, 0640), -EBADF);
    CU_ASSERT_EQUAL(sys_fchown(fd, 0, 0), -EBADF);
    CU_ASSERT_EQUAL(sys_futimens(fd, file_times), -EBADF);
    scratch_end(&s);
}

static void test_flags(void)
{
    struct scratch s = scratch_begin();
    int fd = open_new(s.fd, "f");
    CU_ASSERT_EQUAL(sys_set_flags(fd, O_NONBLOCK), 0);
    CU_ASSERT_EQUAL(fcntl(fd, F_GETFL) & (O_NONBLOCK | O_ACCMODE), O_NONBLOCK | O_RDWR);
    CU_ASSERT_EQUAL(sys_set_flags(fd, 0), 0);
    CU_ASSERT_EQUAL(fcntl(fd, F_GETFL) & (O_NONBLOCK | O_ACCMODE), O_RDWR);
    close(fd);
    CU_ASSERT_EQUAL(sys_set_flags(fd, 0), -EBADF);
    scratch_end(&s);
}

static void test_getdents(void)
{
    struct scratch s = scratch_begin();
    int fd = open_new(s.fd, "f");
    static _Alignas(8) uint8_t buf[4096];
    CU_ASSERT(sys_getdents(s.fd, buf, sizeof(buf)) > 0);
    CU_ASSERT_EQUAL(sys_getdents(s.fd, buf, sizeof(buf)), 0);
    CU_ASSERT_EQUAL(sys_getdents(fd, buf, sizeof(buf)), -ENOTDIR);
    close(fd);
    scratch_end(&s);
}

static void test_lock(void)
{
    struct scratch s = scratch_begin();
    int mine = open_new(s.fd, "lock"), other = sys_openat(s.fd, "lock", O_RDWR, 0);
    CU_ASSERT_EQUAL(sys_flock(mine, LOCK_EX | LOCK_NB), 0);
    CU_ASSERT_EQUAL(sys_flock(other, LOCK_EX | LOCK_NB), -EWOULDBLOCK);
    CU_ASSERT_EQUAL(sys_flock(mine, LOCK_UN), 0);
    CU_ASSERT_EQUAL(sys_flock(other, LOCK_EX | LOCK_NB), 0);
    close(mine);
    close(other);
    scratch_end(&s);
}

static void ignore_signal(int number)
{
    (void)number;
}

// A timer interrupts the wait for a lock some ten times before a child gives it up.
static void test_interrupted(void)
{
    struct scratch s = scratch_begin();
    int fd = open_new(s.fd, "lock"), pipes[2];
    CU_ASSERT_EQUAL_FATAL(pipe(pipes), 0);
    pid_t pid = fork();
    if (pid == 0) {
        int own = openat(s.fd, "lock", O_RDWR);
        bool held = flock(own, LOCK_EX) == 0 && write(pipes[1], "x", 1) == 1;
        nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
        _exit(held ? 0 : 1);
    }
    char byte;
    CU_ASSERT_EQUAL_FATAL(read(pipes[0], &byte, 1), 1);
    const struct sigaction action = {.sa_handler = ignore_signal}; // without SA_RESTART
    struct sigaction before;
    const struct itimerval every = {{0, 5000}, {0, 5000}}, never = {0};
    CU_ASSERT_EQUAL(sigaction(SIGALRM, &action, &before), 0);
    CU_ASSERT_EQUAL(setitimer(ITIMER_REAL, &every, NULL), 0);
    CU_ASSERT_EQUAL(sys_flock(fd, LOCK_EX), 0);
    CU_ASSERT_EQUAL(setitimer(ITIMER_REAL, &never, NULL), 0);
    CU_ASSERT_EQUAL(sigaction(SIGALRM, &before, NULL), 0);
    int status;
    CU_ASSERT(waitpid(pid, &status, 0) == pid && status == 0);
    close(pipes[0]);
    close(pipes[1]);
    close(fd);
    scratch_end(&s);
}

static void test_file_system(void)
{
    struct scratch s = scratch_begin();
    struct statfs fs;
    uint64_t magic = 0, free_bytes = 0;
    CU_ASSERT_EQUAL_FATAL(fstatfs(s.fd, &fs), 0);
    CU_ASSERT_EQUAL(sys_fs_magic(s.fd, &magic, &free_bytes), 0);
    CU_ASSERT_EQUAL(magic, (uint32_t)fs.f_type);
    uint64_t about =
        fs.f_bavail * (uint64_t)(fs.f_frsize > 0 ? fs.f_frsize : fs.f_bsize); // others write, too
    CU_ASSERT(free_bytes >= about / 2 && free_bytes / 2 <= about);
    uint32_t align = 4711;
    int pipes[2];
    CU_ASSERT_EQUAL_FATAL(pipe(pipes), 0);
    CU_ASSERT_EQUAL(sys_direct_align(pipes[0], &align), 0);
    CU_ASSERT_EQUAL(align, BLOCK_BYTES); // of a pipe the kernel does not say
    close(pipes[0]);
    close(pipes[1]);
    CU_ASSERT_EQUAL(sys_fs_magic(pipes[0], &magic, &free_bytes), -EBADF);
    CU_ASSERT_EQUAL(sys_direct_align(pipes[0], &align), -EBADF);
    scratch_end(&s);
}

static void test_clock_and_random(void)
{
    uint64_t start = sys_clock_ns();
    nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
    uint64_t took = sys_clock_ns() - start;
    CU_ASSERT(took >= 2000000 && took < UINT64_C(60) * 1000000000);
    int64_t wall = sys_wall_s(), now = time(NULL);
    CU_ASSERT(wall >= now - 1 && wall <= now + 1);
    uint8_t a[1000] = {0}, b[1000] = {0};
    CU_ASSERT_EQUAL(sys_random(a, sizeof(a)), 0);
    CU_ASSERT_EQUAL(sys_random(b, sizeof(b)), 0);
    CU_ASSERT_NOT_EQUAL(memcmp(a, b, 500), 0);
    CU_ASSERT_NOT_EQUAL(memcmp(a + 984, b + 984, 16), 0); // to the last byte
    CU_ASSERT_EQUAL(sys_random(NULL, 0), 0);
}

static void test_who_we_are(void)
{
    char boot[64], host[256], expected[256];
    sys_boot_id(boot);
    CU_ASSERT_EQUAL(strlen(boot), 36); // a UUID
    CU_ASSERT_PTR_NULL(strchr(boot, '\n'));
    sys_host_name(host);
    CU_ASSERT_EQUAL_FATAL(gethostname(expected, sizeof(expected)), 0);
    CU_ASSERT_STRING_EQUAL(host, expected);
    CU_ASSERT_EQUAL(sys_euid(), geteuid());
}

void suite_sys(void)
{
    CU_pSuite suite = CU_add_suite("sys", NULL, NULL);
    CU_add_test(suite, "open", test_open);
    CU_add_test(suite, "open_beneath", test_open_beneath);
    CU_add_test(suite, "read_full", test_read_full);
    CU_add_test(suite, "read_full_goes_on_after_short_reads", test_read_full_goes_on_after_short_reads);
    CU_add_test(suite, "read_full_direct_at_the_end", test_read_full_direct_at_the_end);
    CU_add_test(suite, "write", test_write);
    CU_add_test(suite, "space", test_space);
    CU_add_test(suite, "names", test_names);
    CU_add_test(suite, "metadata", test_metadata);
    CU_add_test(suite, "flags", test_flags);
    CU_add_test(suite, "getdents", test_getdents);
    CU_add_test(suite, "lock", test_lock);
    CU_add_test(suite, "interrupted", test_interrupted);
    CU_add_test(suite, "file_system", test_file_system);
    CU_add_test(suite, "clock_and_random", test_clock_and_random);
    CU_add_test(suite, "who_we_are", test_who_we_are);
}
