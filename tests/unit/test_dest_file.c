// Large files on their way: temporary files and publishing.
#include <sys/vfs.h>

#include "tests/unit/dest_kit.h"

static struct dest_file file_open(const struct dest *d, const struct entry *e, bool adopt, bool direct)
{
    struct dest_file f = {.fd = -1};
    CU_ASSERT_EQUAL_FATAL(dest_temp_open(d, e, adopt, direct, &f), 0);
    return f;
}

static struct stat file_stat(const struct dest_file *f)
{
    struct stat st = {0};
    CU_ASSERT_EQUAL(fstat(f->fd, &st), 0);
    return st;
}

// Whether the file system allocates ahead, so that blocks can be counted.
static bool allocates(int fd)
{
    struct statfs fs;
    int probe = openat(fd, "probe", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    bool does =
        fstatfs(fd, &fs) == 0 && fs.f_type != 0x01021994 && probe >= 0 && fallocate(probe, 0, 0, 65536) == 0;
    close(probe);
    unlinkat(fd, "probe", 0);
    return does;
}

static void test_make(void)
{
    struct scratch s = scratch_begin();
    uint32_t open_before = scratch_open_files();
    struct dest d = kit_open(s.fd);
    static const uint64_t sizes[] = {1, 4095, 4096, MIB + 1, 5 * MIB};
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        struct entry e = kit_file("big", sizes[i]);
        char name[TEMP_NAME_BYTES];
        dest_temp_name(&e, name);
        struct dest_file f = file_open(&d, &e, false, false);
        CU_ASSERT_STRING_EQUAL(f.name, name);
        CU_ASSERT_EQUAL(f.dir_fd, d.temp_fd);
        CU_ASSERT_FALSE(f.beside);
        CU_ASSERT_FALSE(f.direct);
        struct stat st = file_stat(&f);
        CU_ASSERT_EQUAL(st.st_mode, S_IFREG | 0600);
        CU_ASSERT_EQUAL((uint64_t)st.st_size, sizes[i]);
        if (allocates(s.fd))
            CU_ASSERT_TRUE((uint64_t)st.st_blocks * 512 >= sizes[i]);
        CU_ASSERT_EQUAL(kit_stat(d.temp_fd, name).st_ino, st.st_ino);
        CU_ASSERT_FALSE(kit_there(s.fd, "big"));
        kit_discard(&f);
        CU_ASSERT_FALSE(kit_there(d.temp_fd, name));
        dest_file_close(&f);
    }
    dest_file_close(NULL);
    CU_ASSERT_EQUAL(dest_close(&d, true), 0);
    CU_ASSERT_EQUAL(scratch_open_files(), open_before);
    scratch_end(&s);
}

static void test_sparse(void)
{
    struct scratch s = scratch_begin();
    struct dest d = kit_open(s.fd);
    static const struct range data[] = {{4096, 8192}, {16 * MIB, 65536}, {64 * MIB, 100}};
    struct entry e = tree_sparse("big", 64 * MIB + 100, data, ARRAY_LEN(data));
    struct dest_file f = file_open(&d, &e, false, false);
    struct stat st = file_stat(&f);
    CU_ASSERT_EQUAL((uint64_t)st.st_size, e.size);
    CU_ASSERT_TRUE(st.st_blocks * 512 < MIB);
    if (allocates(s.fd))
        CU_ASSERT_TRUE(st.st_blocks * 512 >= 8192 + 65536 + 100);
    kit_discard(&f);
    e = tree_sparse("hole", 64 * MIB, NULL, 0);
    f = file_open(&d, &e, false, false);
    CU_ASSERT_EQUAL((uint64_t)file_stat(&f).st_size, e.size);
    CU_ASSERT_EQUAL(file_stat(&f).st_blocks, 0);
    kit_discard(&f);
    CU_ASSERT_EQUAL(dest_close(&d, true), 0);
    scratch_end(&s);
}

static void test_direct(void)
{
    struct scratch s = scratch_begin();
    struct dest d = kit_open(s.fd);
    struct entry e = kit_file("big", 2 * MIB);
    int probe = openat(s.fd, "probe", O_RDWR | O_CREAT | O_DIRECT | O_CLOEXEC, 0600);
    uint32_t align = 0;
    bool possible = probe >= 0 && sys_direct_align(probe, &align) == 0 && align > 0 && align <= BLOCK_BYTES;
    for (int adopt = 0; adopt <= 1; adopt++) {
        struct dest_file f = file_open(&d, &e, adopt != 0, true);
        CU_ASSERT_EQUAL(f.direct, possible);
        CU_ASSERT_EQUAL((fcntl(f.fd, F_GETFL) & O_DIRECT) != 0, possible);
        void *block = aligned_alloc(BLOCK_BYTES, BLOCK_BYTES);
        memset(block, 'x', BLOCK_BYTES);
        CU_ASSERT_EQUAL(sys_pwrite_full(f.fd, block, BLOCK_BYTES, MIB), 0);
        free(block);
        dest_file_close(&f);
    }
    struct dest_file f = file_open(&d, &e, true, false);
    CU_ASSERT_FALSE(f.direct);
    CU_ASSERT_EQUAL(fcntl(f.fd, F_GETFL) & O_DIRECT, 0);
    dest_file_close(&f);
    close(probe);
    CU_ASSERT_EQUAL(dest_close(&d, true), 0);
    scratch_end(&s);
}

static void test_adopt(void)
{
    struct scratch s = scratch_begin();
    struct dest d = kit_open(s.fd);
    struct entry e = kit_file("big", MIB + 5);
    struct dest_file f = {.fd = -7};
    CU_ASSERT_EQUAL(dest_temp_open(&d, &e, true, false, &f), -ENOENT);
    CU_ASSERT_EQUAL(f.fd, -7);
    f = file_open(&d, &e, false, false);
    CU_ASSERT_EQUAL(sys_pwrite_full(f.fd, "here", 4, MIB), 0);
    dest_file_close(&f);
    f = file_open(&d, &e, true, false);
    char bytes[5] = {0};
    CU_ASSERT_EQUAL(sys_pread_full(f.fd, bytes, 4, MIB), 4);
    CU_ASSERT_STRING_EQUAL(bytes, "here");
    CU_ASSERT_EQUAL(sys_pwrite_full(f.fd, "more", 4, 0), 0);
    // Padded by a direct write that was not cut yet: still ours, the bytes stay.
    CU_ASSERT_EQUAL(ftruncate(f.fd, MIB + 4096), 0);
    dest_file_close(&f);
    f = file_open(&d, &e, true, false);
    CU_ASSERT_EQUAL(dest_file_metadata(&d, f.fd, &e), 0);
    CU_ASSERT_EQUAL((uint64_t)file_stat(&f).st_size, e.size);
    dest_file_close(&f);
    struct entry other = e;
    other.mtime.ns++;
    CU_ASSERT_EQUAL(dest_temp_open(&d, &other, true, false, &f), -ENOENT);
    CU_ASSERT_EQUAL(dest_close(&d, true), 0);
    scratch_end(&s);
}

enum foreign { SHORT, LINKED, LINK, FIFO, FOREIGN, FOREIGN_KINDS };

// Puts something that we did not leave under the temporary name; false: only root could make it.
static bool make_foreign(enum foreign kind, struct scratch *s, int temp_fd, const char *name)
{
    switch (kind) {
    case SHORT:
        scratch_bytes(temp_fd, name, MIB - 1);
        return true;
    case LINKED:
        return linkat(s->fd, "victim", temp_fd, name, 0) == 0;
    case LINK:
        scratch_link(temp_fd, name, "../../victim");
        return true;
    case FIFO:
        return mkfifoat(temp_fd, name, 0600) == 0;
    default:
        scratch_bytes(temp_fd, name, MIB);
        return geteuid() == 0 && fchownat(temp_fd, name, 1234, 0, 0) == 0;
    }
}

// What has the name but is not the file that we left is not adopted, and a new one takes its place.
static void test_adopt_foreign(void)
{
    for (enum foreign kind = SHORT; kind < FOREIGN_KINDS; kind++) {
        struct scratch s = scratch_begin();
        struct dest d = kit_open(s.fd);
        struct entry e = kit_file("big", MIB);
        e.uid = kind == FOREIGN ? 4321 : e.uid;
        char name[TEMP_NAME_BYTES];
        dest_temp_name(&e, name);
        scratch_bytes(s.fd, "victim", MIB);
        bool made = make_foreign(kind, &s, d.temp_fd, name);
        CU_ASSERT_TRUE(made || (kind == FOREIGN && geteuid() != 0));
        struct stat victim = kit_stat(s.fd, "victim");
        struct dest_file f;
        if (made)
            CU_ASSERT_EQUAL(dest_temp_open(&d, &e, true, false, &f), kind == LINK ? -ELOOP : -ENOENT);
        f = file_open(&d, &e, false, false);
        CU_ASSERT_NOT_EQUAL(file_stat(&f).st_ino, victim.st_ino);
        CU_ASSERT_EQUAL(sys_pwrite_full(f.fd, "changed", 7, 0), 0);
        dest_file_close(&f);
        CU_ASSERT_EQUAL(kit_stat(s.fd, "victim").st_mtim.tv_nsec, victim.st_mtim.tv_nsec);
        CU_ASSERT_EQUAL(kit_stat(s.fd, "victim").st_size, MIB);
        CU_ASSERT_EQUAL(dest_close(&d, true), 0);
        scratch_end(&s);
    }
}

// Cut off between metadata and publishing: the mode is the final one, under which we may not write.
static int adopt_read_only(void *arg)
{
    int root = *(int *)arg;
    struct dest d;
    KIT_CHECK(kit_try(root, &d) == 0);
    for (unsigned mode = 0; mode <= 0400; mode += 0400) {
        struct entry e = kit_file("big", MIB);
        e.mode = mode;
        struct dest_file f;
        KIT_CHECK(dest_temp_open(&d, &e, false, false, &f) == 0);
        KIT_CHECK(sys_pwrite_full(f.fd, "data", 4, 0) == 0);
        KIT_CHECK(dest_file_metadata(&d, f.fd, &e) == 0);
        dest_file_close(&f);
        int err = dest_temp_open(&d, &e, true, false, &f);
        KIT_CHECK(err == (mode == 0 ? -ENOENT : 0)); // what cannot even be read is sent again
        if (err != 0)
            continue;
        char bytes[4];
        KIT_CHECK(sys_pread_full(f.fd, bytes, 4, 0) == 4 && memcmp(bytes, "data", 4) == 0);
        KIT_CHECK(sys_pwrite_full(f.fd, "more", 4, 0) == 0);
        dest_file_close(&f);
    }
    return dest_close(&d, true) == 0 ? 0 : 1;
}

static void test_adopt_read_only(void)
{
    struct scratch s = scratch_begin();
    CU_ASSERT_EQUAL(fchmod(s.fd, 0777), 0);
    CU_ASSERT_EQUAL(scratch_child(adopt_read_only, &s.fd), 0);
    scratch_end(&s);
}

static void test_leftover(void)
{
    struct scratch s = scratch_begin();
    struct dest d = kit_open(s.fd);
    struct entry e = kit_file("big", MIB);
    char name[TEMP_NAME_BYTES];
    dest_temp_name(&e, name);
    scratch_file(d.temp_fd, name, "old bytes");
    struct dest_file f = file_open(&d, &e, false, false);
    char bytes[9];
    CU_ASSERT_EQUAL(sys_pread_full(f.fd, bytes, sizeof(bytes), 0), 9);
    CU_ASSERT_EQUAL(memcmp(bytes, "\0\0\0\0\0\0\0\0\0", 9), 0);
    kit_discard(&f);
    CU_ASSERT_EQUAL(mkdirat(d.temp_fd, name, 0700), 0);
    CU_ASSERT_EQUAL(dest_temp_open(&d, &e, false, false, &f), -EISDIR);
    CU_ASSERT_EQUAL(dest_close(&d, true), 0);
    scratch_end(&s);
}

static void test_publish(void)
{
    struct scratch s = scratch_begin();
    uint32_t open_before = scratch_open_files();
    struct dest d = kit_open(s.fd);
    scratch_dir(s.fd, "dir");
    scratch_file(s.fd, "dir/big", "the old one");
    struct entry e = kit_file("dir/big", 3);
    struct dest_file f = file_open(&d, &e, false, false);
    CU_ASSERT_EQUAL(sys_pwrite_full(f.fd, "new", 3, 0), 0);
    CU_ASSERT_EQUAL(dest_file_metadata(&d, f.fd, &e), 0);
    CU_ASSERT_TRUE(kit_says(s.fd, "dir/big", "the old one"));
    int parent = -1;
    CU_ASSERT_EQUAL_FATAL(dest_file_publish(&d, &f, &e, &parent), 0);
    CU_ASSERT_TRUE(kit_says(s.fd, "dir/big", "new"));
    CU_ASSERT_TRUE(kit_says(parent, "big", "new"));
    CU_ASSERT_EQUAL(fsync(parent), 0);
    CU_ASSERT_EQUAL(kit_names(d.temp_fd), 0);
    close(parent);
    dest_file_close(&f);
    CU_ASSERT_EQUAL(dest_close(&d, true), 0);
    CU_ASSERT_EQUAL(scratch_open_files(), open_before);
    scratch_end(&s);
}

static void test_publish_refused(void)
{
    static const struct {
        const char *path;
        int open_err, publish_err;
    } table[] = {
        {"full", 0, -EISDIR},
        {"empty", 0, -EISDIR},
        {"to-dir/f", -ELOOP, -ELOOP},
        {"away/f", -ELOOP, -ELOOP},
        {"missing/f", -ENOENT, -ENOENT},
        {"file/f", -ENOTDIR, -ENOTDIR},
        {"full/to-dir/f", -ELOOP, -ELOOP},
    };
    struct scratch s = scratch_begin();
    scratch_dir(s.fd, "outside");
    scratch_dir(s.fd, "root");
    int root = openat(s.fd, "root", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    scratch_dir(root, "full");
    scratch_dir(root, "empty");
    scratch_file(root, "file", "");
    scratch_file(root, "full/inside", "kept");
    scratch_link(root, "to-dir", "full");
    scratch_link(root, "full/to-dir", "../empty");
    scratch_link(root, "away", "../outside");
    struct dest d = kit_open(root);
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        uint32_t open_before = scratch_open_files();
        struct entry e = kit_file(table[i].path, 10);
        struct dest_file f = {.fd = -1};
        CU_ASSERT_EQUAL(dest_temp_open(&d, &e, false, false, &f), table[i].open_err);
        if (f.fd < 0) { // the way may have been good when it was opened
            e.path = (const uint8_t *)"good";
            e.path_len = 4;
            f = file_open(&d, &e, false, false);
            e = kit_file(table[i].path, 10);
        }
        int parent = -7;
        CU_ASSERT_EQUAL(dest_file_publish(&d, &f, &e, &parent), table[i].publish_err);
        CU_ASSERT_EQUAL(parent, -7);
        CU_ASSERT_TRUE(kit_there(d.temp_fd, f.name)); // nothing is lost
        kit_discard(&f);
        CU_ASSERT_EQUAL(scratch_open_files(), open_before);
    }
    CU_ASSERT_TRUE(kit_says(root, "full/inside", "kept"));
    int outside = openat(s.fd, "outside", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    CU_ASSERT_EQUAL(kit_names(outside), 0);
    close(outside);
    CU_ASSERT_EQUAL(dest_close(&d, true), 0);
    close(root);
    scratch_end(&s);
}

void suite_dest_file(void)
{
    CU_pSuite s = CU_add_suite("dest_file", NULL, NULL);
    CU_add_test(s, "a new temporary file", test_make);
    CU_add_test(s, "a sparse one", test_sparse);
    CU_add_test(s, "direct I/O", test_direct);
    CU_add_test(s, "adopting", test_adopt);
    CU_add_test(s, "what is not ours is not adopted", test_adopt_foreign);
    CU_add_test(s, "adopting what has its final mode", test_adopt_read_only);
    CU_add_test(s, "a leftover is replaced", test_leftover);
    CU_add_test(s, "publishing", test_publish);
    CU_add_test(s, "publishing refused", test_publish_refused);
}
