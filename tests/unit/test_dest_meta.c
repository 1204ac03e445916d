// Owner, mode and times of files at the destination.
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

static void test_metadata(void)
{
    struct scratch s = scratch_begin();
    struct dest d = kit_open(s.fd);
    static const struct {
        uint32_t mode;
        struct entry_time mtime;
    } table[] = {
        {0644, {1700000000, 123456789}},
        {0, {0, 0}},
        {0777, {-1, 999999999}},
        {01777, {4102444800, 1}},
    };
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        struct entry e = kit_file("big", MIB);
        e.mode = table[i].mode;
        e.mtime = table[i].mtime;
        if (d.can_chown) {
            e.uid = 1234;
            e.gid = 5678;
        }
        struct dest_file f = file_open(&d, &e, false, false);
        CU_ASSERT_EQUAL(sys_pwrite_full(f.fd, "x", 1, MIB + 4095), 0);
        struct stat before = file_stat(&f);
        CU_ASSERT_EQUAL(dest_file_metadata(&d, f.fd, &e), 0);
        struct stat st = file_stat(&f);
        CU_ASSERT_EQUAL((uint64_t)st.st_size, e.size);
        CU_ASSERT_EQUAL(st.st_mode & 07777, e.mode);
        CU_ASSERT_EQUAL(st.st_uid, e.uid);
        CU_ASSERT_EQUAL(st.st_gid, e.gid);
        CU_ASSERT_EQUAL(st.st_mtim.tv_sec, e.mtime.s);
        CU_ASSERT_EQUAL((uint32_t)st.st_mtim.tv_nsec, e.mtime.ns);
        CU_ASSERT_EQUAL(st.st_atim.tv_sec, before.st_atim.tv_sec);
        kit_discard(&f);
    }
    CU_ASSERT_EQUAL(dest_close(&d, true), 0);
    scratch_end(&s);
}

// Set-id bits go with owner and group only. `root`: whether owner and group can be given.
static bool set_id_right(int dir_fd, bool root)
{
    struct dest d;
    if (kit_try(dir_fd, &d) != 0)
        return false;
    bool right = true;
    for (unsigned same = 0; same < 4; same++) {
        struct entry e = kit_file("big", MIB);
        e.mode = 07755;
        e.uid += same & 1 ? 0 : 1;
        e.gid += same & 2 ? 0 : 1;
        struct dest_file f;
        struct stat st;
        if (dest_temp_open(&d, &e, false, false, &f) != 0)
            return false;
        right &= dest_file_metadata(&d, f.fd, &e) == 0 && fstat(f.fd, &st) == 0;
        right &= (st.st_mode & 07777) == (root || same == 3 ? 07755 : 01755);
        right &= !root || (st.st_uid == e.uid && st.st_gid == e.gid);
        kit_discard(&f);
    }
    return dest_close(&d, true) == 0 && right;
}

static int set_id_child(void *arg)
{
    return set_id_right(*(int *)arg, false) ? 0 : 1;
}

static void test_set_id(void)
{
    struct scratch s = scratch_begin();
    if (geteuid() == 0)
        CU_ASSERT_TRUE(set_id_right(s.fd, true));
    CU_ASSERT_EQUAL(fchmod(s.fd, 0777), 0);
    CU_ASSERT_EQUAL(scratch_child(set_id_child, &s.fd), 0);
    scratch_end(&s);
}

static bool small_set_id_right(int dir_fd, bool root)
{
    struct dest d;
    if (kit_try(dir_fd, &d) != 0)
        return false;
    struct path_cache *cache = path_cache_new(d.fd);
    bool right = true;
    for (unsigned same = 0; same < 4; same++) {
        struct entry e = kit_file("f", 1);
        bool equal = false, differs = true;
        e.mode = 06755;
        e.uid += same & 1 ? 0 : 1;
        e.gid += same & 2 ? 0 : 1;
        struct stat st;
        right &= kit_put(&d, cache, &e, "x") == 0 && fstatat(dir_fd, "f", &st, 0) == 0;
        right &= (st.st_mode & 07777) == (root || same == 3 ? 06755 : 0755);
        // What could not be kept is no difference that a next run would see.
        right &= dest_compare(&d, cache, &e, &equal, &differs) == 0 && equal && !differs;
        right &= fchmodat(dir_fd, "f", 0700, 0) == 0;
        right &= dest_compare(&d, cache, &e, &equal, &differs) == 0 && equal && differs;
        right &= dest_fix_metadata(&d, cache, &e) == 0 && fstatat(dir_fd, "f", &st, 0) == 0;
        right &= (st.st_mode & 07777) == (root || same == 3 ? 06755 : 0755);
    }
    path_cache_free(cache);
    return dest_close(&d, true) == 0 && right;
}

static int small_set_id_child(void *arg)
{
    return small_set_id_right(*(int *)arg, false) ? 0 : 1;
}

static void test_small_set_id(void)
{
    struct scratch s = scratch_begin();
    if (geteuid() == 0)
        CU_ASSERT_TRUE(small_set_id_right(s.fd, true));
    CU_ASSERT_EQUAL(unlinkat(s.fd, "f", 0), geteuid() == 0 ? 0 : -1);
    CU_ASSERT_EQUAL(fchmod(s.fd, 0777), 0);
    CU_ASSERT_EQUAL(scratch_child(small_set_id_child, &s.fd), 0);
    scratch_end(&s);
}

void suite_dest_meta(void)
{
    CU_pSuite s = CU_add_suite("dest_meta", NULL, NULL);
    CU_add_test(s, "metadata is exact", test_metadata);
    CU_add_test(s, "set-id bits of a large file", test_set_id);
    CU_add_test(s, "set-id bits of a small file", test_small_set_id);
}
