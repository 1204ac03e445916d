#include "storage/source.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <CUnit/CUnit.h>

#include "storage/sys.h"
#include "tests/unit/scratch.h"

static char nothing[] = "", dir_name[] = "dir", other_name[] = "other", file_name[] = "dir/f",
            way[] = "dir/sub", new_name[] = "new";

// What a walk would say of the file at `name`.
static struct entry entry_of(int dir_fd, const char *name, uint16_t root, const char *path)
{
    struct stat st;
    CU_ASSERT_EQUAL_FATAL(fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW), 0);
    return (struct entry){
        .type = ENTRY_FILE,
        .root = root,
        .mode = st.st_mode & 07777,
        .uid = st.st_uid,
        .gid = st.st_gid,
        .size = (uint64_t)st.st_size,
        .mtime = {st.st_mtim.tv_sec, (uint32_t)st.st_mtim.tv_nsec},
        .ctime = {st.st_ctim.tv_sec, (uint32_t)st.st_ctim.tv_nsec},
        .inode = st.st_ino,
        .path = (const uint8_t *)path,
        .path_len = (uint32_t)strlen(path),
    };
}

static struct entry entry_at(uint16_t root, const char *path)
{
    return (struct entry){.root = root, .path = (const uint8_t *)path, .path_len = (uint32_t)strlen(path)};
}

static bool holds(int fd, const char *text)
{
    char bytes[64];
    ssize_t n = pread(fd, bytes, sizeof(bytes), 0);
    return n == (ssize_t)strlen(text) && memcmp(bytes, text, (size_t)n) == 0;
}

static void test_open_by_source(void)
{
    struct scratch s = scratch_begin();
    scratch_dir(s.fd, "dir");
    scratch_dir(s.fd, "dir/sub");
    scratch_file(s.fd, "dir/f", "one");
    scratch_file(s.fd, "dir/sub/g", "two");
    const struct walk_source sources[] = {
        {s.fd, nothing, nothing},       {s.fd, dir_name, dir_name}, {s.fd, dir_name, nothing},
        {s.fd, file_name, new_name},    {s.fd, way, other_name},    {s.fd, nothing, new_name},
        {s.fd, dir_name, way /* to */},
    };
    static const struct {
        uint16_t root;
        const char *path, *text; // NULL: -EPROTO, the path is not of that source
        int rc;
    } cases[] = {
        {0, "dir/f", "one", 0},
        {0, "dir/sub/g", "two", 0},
        {1, "dir/f", "one", 0},
        {1, "dir/sub/g", "two", 0},
        {2, "f", "one", 0},
        {2, "sub/g", "two", 0},
        {3, "new", "one", 0},
        {4, "other/g", "two", 0},
        {5, "new/dir/sub/g", "two", 0},
        {6, "dir/sub/f", "one", 0},
        {6, "dir/sub/sub/g", "two", 0},
        {1, "dirt/f", NULL, -EPROTO},
        {3, "old", NULL, -EPROTO},
        {4, "xther/g", NULL, -EPROTO},
        {1, "di", NULL, -EPROTO},
        {1, "f", NULL, -EPROTO},
        {4, "dir/sub/g", NULL, -EPROTO},
        {3, "new/f", NULL, -ENOTDIR},
        {0, "none", NULL, -ENOENT},
        {2, "../dir/f", NULL, -EINVAL},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct entry e = entry_at(cases[i].root, cases[i].path);
        bool direct = true;
        int fd = source_open(sources, &e, DIRECT_OFF, &direct);
        CU_ASSERT_EQUAL(fd < 0 ? fd : 0, cases[i].rc);
        CU_ASSERT(fd < 0 || (!direct && holds(fd, cases[i].text)));
        if (fd >= 0)
            close(fd);
    }
    scratch_end(&s);
}

static void test_flags(void)
{
    struct scratch s = scratch_begin();
    scratch_bytes(s.fd, "f", 8192);
    const struct walk_source source = {s.fd, nothing, nothing};
    struct entry e = entry_of(s.fd, "f", 0, "f");
    bool direct;
    int fd = source_open(&source, &e, DIRECT_OFF, &direct);
    CU_ASSERT_EQUAL(fcntl(fd, F_GETFD), FD_CLOEXEC);
    CU_ASSERT_EQUAL(fcntl(fd, F_GETFL) & (O_ACCMODE | O_NONBLOCK | O_DIRECT | O_NOATIME),
                    O_RDONLY | O_NOATIME);
    close(fd);
    int probe = openat(s.fd, "f", O_RDONLY | O_DIRECT | O_CLOEXEC);
    fd = source_open(&source, &e, DIRECT_ON, &direct);
    CU_ASSERT_EQUAL(fcntl(fd, F_GETFL) & (O_NONBLOCK | O_DIRECT), direct ? O_DIRECT : 0);
    CU_ASSERT(!direct || probe >= 0);
    if (direct) {
        void *buf = aligned_alloc(BLOCK_BYTES, 2 * BLOCK_BYTES);
        CU_ASSERT_EQUAL(read(fd, buf, 2 * BLOCK_BYTES), 2 * BLOCK_BYTES);
        free(buf);
    }
    close(fd);
    if (probe >= 0)
        close(probe);
    // A file system that refuses O_DIRECT.
    struct walk_source proc = {open("/proc/self", O_RDONLY | O_DIRECTORY | O_CLOEXEC), nothing, nothing};
    e = entry_of(proc.fd, "status", 0, "status");
    direct = true;
    fd = source_open(&proc, &e, DIRECT_ON, &direct);
    CU_ASSERT(fd >= 0 && !direct && !(fcntl(fd, F_GETFL) & O_DIRECT));
    close(fd);
    close(proc.fd);
    scratch_end(&s);
}

// What lies in the page cache is read from there, the rest past it, where the file system can tell.
static void test_cold_and_warm(void)
{
    struct scratch s = scratch_begin();
    scratch_bytes(s.fd, "f", 4 * MIB);
    const struct walk_source source = {s.fd, nothing, nothing};
    struct entry e = entry_of(s.fd, "f", 0, "f");
    int plain = openat(s.fd, "f", O_RDONLY | O_CLOEXEC);
    uint32_t align = 0;
    CU_ASSERT(sys_cached(plain, 0) == 1 || sys_cached(plain, 0) == -EOPNOTSUPP);
    bool direct = true;
    int fd = source_open(&source, &e, DIRECT_AUTO, &direct);
    CU_ASSERT(fd >= 0 && !direct && !(fcntl(fd, F_GETFL) & O_DIRECT));
    close(fd);
    CU_ASSERT(fsync(plain) == 0 && posix_fadvise(plain, 0, 0, POSIX_FADV_DONTNEED) == 0);
    bool cold = sys_cached(plain, 0) == 0 && sys_direct_align(plain, &align) == 0 && align > 0;
    fd = source_open(&source, &e, DIRECT_AUTO, &direct);
    CU_ASSERT(fd >= 0 && direct == cold && ((fcntl(fd, F_GETFL) & O_DIRECT) != 0) == cold);
    close(fd);
    close(plain);
    scratch_end(&s);
}

// Two files of root: one everybody may read, with an entry that claims that it is ours, and one nobody may.
static int open_as_other(void *arg)
{
    struct walk_source source = {*(int *)arg, nothing, nothing};
    struct entry open = entry_at(0, "open"), closed = entry_at(0, "closed");
    bool direct;
    open.uid = geteuid(); // so that O_NOATIME is tried, and refused
    int fd = source_open(&source, &open, DIRECT_OFF, &direct);
    if (fd < 0 || (fcntl(fd, F_GETFL) & O_NOATIME))
        return 1;
    return source_open(&source, &closed, DIRECT_OFF, &direct) == -EACCES ? 0 : 2;
}

static void test_permissions(void)
{
    if (geteuid() != 0) {
        CU_PASS("needs root");
        return;
    }
    struct scratch s = scratch_begin();
    scratch_file(s.fd, "open", "");
    scratch_file(s.fd, "closed", "");
    CU_ASSERT_EQUAL(fchmodat(s.fd, "closed", 0600, 0), 0);
    CU_ASSERT_EQUAL(scratch_child(open_as_other, &s.fd), 0);
    scratch_end(&s);
}

static void bind_socket(int dir_fd, const char *name)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CU_ASSERT_EQUAL_FATAL(fchdir(dir_fd), 0);
    strcpy(address.sun_path, name);
    CU_ASSERT_EQUAL_FATAL(bind(fd, (const struct sockaddr *)&address, sizeof(address)), 0);
    close(fd);
}

// Something else lies in the place of the file: never read, never waited for.
static void test_no_regular_file(void)
{
    struct scratch s = scratch_begin();
    int home = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC);
    scratch_file(s.fd, "target", "secret");
    scratch_link(s.fd, "link", "target");
    scratch_link(s.fd, "dangling", "nowhere");
    scratch_dir(s.fd, "dir");
    scratch_link(s.fd, "linked", "dir");
    scratch_file(s.fd, "dir/f", "");
    CU_ASSERT_EQUAL(mkfifoat(s.fd, "fifo", 0600), 0);
    bind_socket(s.fd, "socket");
    CU_ASSERT_EQUAL(fchdir(home), 0);
    static const struct {
        const char *path;
        int rc;
        enum extent_state state;
    } cases[] = {
        {"link", -ELOOP, EXTENT_CHANGED},        {"dangling", -ELOOP, EXTENT_CHANGED},
        {"dir", -ELOOP, EXTENT_CHANGED},         {"fifo", -ELOOP, EXTENT_CHANGED},
        {"socket", -ELOOP, EXTENT_CHANGED},      {"linked/f", -ELOOP, EXTENT_CHANGED},
        {"none", -ENOENT, EXTENT_VANISHED},      {"none/f", -ENOENT, EXTENT_VANISHED},
        {"target/f", -ENOTDIR, EXTENT_VANISHED},
    };
    const struct walk_source source = {s.fd, nothing, nothing};
    uint32_t before = scratch_open_files();
    alarm(20); // a wait for the other end of the fifo would be for ever
    for (size_t i = 0; i < 2 * ARRAY_LEN(cases); i++) {
        struct entry e = entry_at(0, cases[i / 2].path);
        bool direct;
        CU_ASSERT_EQUAL(source_open(&source, &e, i % 2 != 0 ? DIRECT_ON : DIRECT_OFF, &direct),
                        cases[i / 2].rc);
        CU_ASSERT_EQUAL(source_failure(cases[i / 2].rc).state, cases[i / 2].state);
    }
    alarm(0);
    CU_ASSERT_EQUAL(scratch_open_files(), before);
    close(home);
    scratch_end(&s);
}

// `from` and the rest do not fit one path together.
static void test_long_paths(void)
{
    struct scratch s = scratch_begin();
    int last = scratch_deep(s.fd, "0123456789012345678901234567890123456789", 150, false);
    scratch_file(last, "f", "far");
    static char from[40 * 41], path[150 * 41 + 8];
    for (size_t i = 0; i < 150; i++) {
        if (i < 40)
            memcpy(from + i * 41, "0123456789012345678901234567890123456789/", 41);
        else
            memcpy(path + (i - 40) * 41, "0123456789012345678901234567890123456789/", 41);
    }
    from[sizeof(from) - 1] = '\0';
    strcpy(path + 110 * 41, "f");
    CU_ASSERT(strlen(from) < PATH_MAX && strlen(from) + strlen(path) > PATH_MAX);
    const struct walk_source source = {s.fd, from, nothing};
    struct entry e = entry_at(0, path);
    bool direct;
    uint32_t before = scratch_open_files();
    int fd = source_open(&source, &e, DIRECT_OFF, &direct);
    CU_ASSERT(holds(fd, "far"));
    close(fd);
    CU_ASSERT_EQUAL(scratch_open_files(), before);
    close(last);
    scratch_end(&s);
}

static enum source_check compare(int fd, const struct entry *e)
{
    enum source_check check = SOURCE_SAME;
    CU_ASSERT_EQUAL(source_compare(fd, e, &check), 0);
    return check;
}

static void test_compare(void)
{
    struct scratch s = scratch_begin();
    scratch_file(s.fd, "f", "0123456789");
    int fd = openat(s.fd, "f", O_RDWR | O_CLOEXEC);
    const struct entry e = entry_of(s.fd, "f", 0, "f");
    CU_ASSERT_EQUAL(compare(fd, &e), SOURCE_SAME);
    static const struct {
        enum source_check check;
        int64_t size, mtime_s, mtime_ns, ctime_s, ctime_ns, inode;
    } cases[] = {
        {SOURCE_CHANGED, 1, 0, 0, 0, 0, 0}, {SOURCE_CHANGED, -1, 0, 0, 0, 0, 0},
        {SOURCE_CHANGED, 0, 1, 0, 0, 0, 0}, {SOURCE_CHANGED, 0, 0, 1, 0, 0, 0},
        {SOURCE_TOUCHED, 0, 0, 0, 1, 0, 0}, {SOURCE_TOUCHED, 0, 0, 0, 0, 1, 0},
        {SOURCE_TOUCHED, 0, 0, 0, 0, 0, 1}, {SOURCE_CHANGED, 0, 0, 1, 0, 1, 1},
        {SOURCE_SAME, 0, 0, 0, 0, 0, 0},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct entry other = e;
        other.size += (uint64_t)cases[i].size;
        other.mtime.s += cases[i].mtime_s;
        other.mtime.ns ^= (uint32_t)cases[i].mtime_ns;
        other.ctime.s += cases[i].ctime_s;
        other.ctime.ns ^= (uint32_t)cases[i].ctime_ns;
        other.inode += (uint64_t)cases[i].inode;
        CU_ASSERT_EQUAL(compare(fd, &other), cases[i].check);
    }
    // What users do: another mode; other bytes; other bytes under the old time.
    const struct timespec old[2] = {{0, UTIME_OMIT}, {e.mtime.s, e.mtime.ns}};
    CU_ASSERT_EQUAL(fchmod(fd, 0600), 0);
    CU_ASSERT_EQUAL(futimens(fd, (const struct timespec[2]){{1, 0}, old[1]}), 0);
    CU_ASSERT_NOT_EQUAL(compare(fd, &e), SOURCE_CHANGED);
    CU_ASSERT_EQUAL(futimens(fd, (const struct timespec[2]){old[0], {e.mtime.s, e.mtime.ns ^ 1}}), 0);
    CU_ASSERT_EQUAL(compare(fd, &e), SOURCE_CHANGED);
    CU_ASSERT_EQUAL(pwrite(fd, "x", 1, 10), 1);
    CU_ASSERT_EQUAL(futimens(fd, old), 0);
    CU_ASSERT_EQUAL(compare(fd, &e), SOURCE_CHANGED);
    close(fd);
    enum source_check check = SOURCE_TOUCHED;
    CU_ASSERT_EQUAL(source_compare(fd, &e, &check), -EBADF);
    CU_ASSERT_EQUAL(check, SOURCE_TOUCHED);
    scratch_end(&s);
}

static void test_failure(void)
{
    static const struct {
        int os;
        enum extent_state state;
    } cases[] = {
        {ENOENT, EXTENT_VANISHED},   {ENOTDIR, EXTENT_VANISHED},  {ESTALE, EXTENT_VANISHED},
        {ELOOP, EXTENT_CHANGED},     {EIO, EXTENT_UNREADABLE},    {EACCES, EXTENT_UNREADABLE},
        {EINVAL, EXTENT_UNREADABLE}, {EMFILE, EXTENT_UNREADABLE},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct extent_status status = source_failure(cases[i].os), same = source_failure(-cases[i].os);
        CU_ASSERT_EQUAL(status.state, cases[i].state);
        CU_ASSERT_EQUAL(status.os, cases[i].state == EXTENT_UNREADABLE ? cases[i].os : 0);
        CU_ASSERT(same.state == status.state && same.os == status.os);
    }
}

void suite_source(void)
{
    CU_pSuite suite = CU_add_suite("source", NULL, NULL);
    CU_add_test(suite, "open_by_source", test_open_by_source);
    CU_add_test(suite, "flags", test_flags);
    CU_add_test(suite, "cold_and_warm", test_cold_and_warm);
    CU_add_test(suite, "permissions", test_permissions);
    CU_add_test(suite, "no_regular_file", test_no_regular_file);
    CU_add_test(suite, "long_paths", test_long_paths);
    CU_add_test(suite, "compare", test_compare);
    CU_add_test(suite, "failure", test_failure);
}
