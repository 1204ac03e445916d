// Directories at the destination, and comparing with what is there.
#include "tests/unit/dest_kit.h"

static void set_time(int fd, const char *path, int64_t sec, long ns)
{
    struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = sec, .tv_nsec = ns}};
    CU_ASSERT_EQUAL(utimensat(fd, path, times, AT_SYMLINK_NOFOLLOW), 0);
}

static void make_compared(int fd)
{
    scratch_dir(fd, "dir");
    scratch_file(fd, "file", "12345");
    scratch_link(fd, "link", "target");
    CU_ASSERT_EQUAL(fchmodat(fd, "file", 0644, 0) | fchmodat(fd, "dir", 0755, 0), 0);
    set_time(fd, "file", 1700000000, 123456789);
    set_time(fd, "link", 1700000000, 123456789);
}

static void test_compare(void)
{
    struct entry file = kit_file("file", 5), link = tree_link("link", "target"), dir = tree_dir("dir");
    dir.mode = 0755;
    struct {
        struct entry e;
        bool same, differs;
    } table[23];
    size_t n = 0;
#define CASE(entry, change, same_, differs_) \
    table[n].e = entry;                      \
    table[n].e.uid = geteuid();              \
    table[n].e.gid = getegid();              \
    table[n].e.change;                       \
    table[n].same = same_;                   \
    table[n++].differs = differs_
    bool root = geteuid() == 0;
    CASE(file, size = 5, true, false);
    CASE(file, size = 4, false, false);
    CASE(file, mtime.s--, false, false);
    CASE(file, mtime.ns++, false, false);
    CASE(file, ctime.s--, true, false); // of the source: not kept
    CASE(file, mode = 0600, true, true);
    CASE(file, uid++, true, root);
    CASE(file, gid++, true, root);
    CASE(file, type = ENTRY_DIR, false, false);
    CASE(file, type = ENTRY_SYMLINK, false, false);
    CASE(kit_file("none", 5), size = 5, false, false);
    CASE(kit_file("none/none", 5), size = 5, false, false);
    CASE(kit_file("file/none", 5), size = 5, false, false);
    CASE(kit_file("link", 5), size = 6, false, false);
    CASE(link, mode = 0777, true, false);
    CASE(link, mtime.ns++, true, true);
    CASE(link, target_len--, false, false);
    CASE(link, target = (const uint8_t *)"Target", false, false);
    CASE(link, gid++, true, root);
    CASE(dir, size = 0, true, false);
    CASE(dir, mtime.s = 0, true, false);
    CASE(dir, mode = 0700, true, true);
    CASE(dir, uid++, true, root);
#undef CASE
    struct scratch s = scratch_begin();
    make_compared(s.fd);
    struct dest d = kit_open(s.fd);
    struct path_cache *cache = kit_cache(&d);
    CU_ASSERT_EQUAL(n, ARRAY_LEN(table));
    for (size_t i = 0; i < n; i++) {
        bool same = !table[i].same, differs = !table[i].differs;
        CU_ASSERT_EQUAL(dest_compare(&d, cache, &table[i].e, &same, &differs), 0);
        CU_ASSERT_EQUAL(same, table[i].same);
        CU_ASSERT_EQUAL(differs, table[i].differs);
        if (same != table[i].same || differs != table[i].differs)
            fprintf(stderr, "case %zu\n", i);
    }
    path_cache_free(cache);
    CU_ASSERT_EQUAL(dest_close(&d, true), 0);
    scratch_end(&s);
}

// The root itself, and a link on the way.
static void test_compare_ways(void)
{
    struct scratch s = scratch_begin();
    scratch_dir(s.fd, "dir");
    struct dest d = kit_open(s.fd);
    struct path_cache *cache = kit_cache(&d);
    struct entry self = tree_dir("");
    self.mode = 0755;
    self.uid = geteuid();
    self.gid = getegid();
    bool same = false, differs = true;
    CU_ASSERT_EQUAL(dest_compare(&d, cache, &self, &same, &differs), 0);
    CU_ASSERT_TRUE(same && !differs);
    scratch_link(s.fd, "way", "dir");
    struct entry behind = kit_file("way/f", 1);
    same = differs = true;
    CU_ASSERT_EQUAL(dest_compare(&d, cache, &behind, &same, &differs), -ELOOP);
    CU_ASSERT_TRUE(same && differs); // untouched
    struct entry in_the_way = kit_file("dir", 1);
    CU_ASSERT_EQUAL(dest_compare(&d, cache, &in_the_way, &same, &differs), -EISDIR);
    in_the_way.type = ENTRY_SYMLINK;
    CU_ASSERT_EQUAL(dest_compare(&d, cache, &in_the_way, &same, &differs), -EISDIR);
    CU_ASSERT_TRUE(same && differs); // untouched
    path_cache_free(cache);
    CU_ASSERT_EQUAL(dest_close(&d, true), 0);
    scratch_end(&s);
}

static void test_fix_metadata(void)
{
    struct scratch s = scratch_begin();
    make_compared(s.fd);
    struct dest d = kit_open(s.fd);
    struct path_cache *cache = kit_cache(&d);
    struct entry e[] = {kit_file("file", 5), tree_link("link", "target")};
    for (size_t i = 0; i < ARRAY_LEN(e); i++) {
        e[i].mode = 0604;
        e[i].mtime = (struct entry_time){1234567890, 987654321};
        e[i].uid = d.can_chown ? 77 : geteuid();
        e[i].gid = d.can_chown ? 88 : getegid();
        CU_ASSERT_EQUAL(dest_fix_metadata(&d, cache, &e[i]), 0);
        struct stat st = kit_stat(s.fd, (const char *)e[i].path);
        CU_ASSERT_TRUE(kit_exact(&st, &e[i]));
    }
    CU_ASSERT_TRUE(kit_says(s.fd, "file", "12345"));
    struct entry other[] = {kit_file("none", 5), kit_file("link", 5), kit_file("dir", 5),
                            kit_file("pipe", 5)};
    static const int errs[] = {-ENOENT, -ELOOP, -EINVAL, -EINVAL};
    CU_ASSERT_EQUAL(mkfifoat(s.fd, "pipe", 0600), 0);
    for (size_t i = 0; i < ARRAY_LEN(other); i++)
        CU_ASSERT_EQUAL(dest_fix_metadata(&d, cache, &other[i]), errs[i]);
    path_cache_free(cache);
    CU_ASSERT_EQUAL(dest_close(&d, true), 0);
    scratch_end(&s);
}

static void test_make_dir(void)
{
    struct scratch s = scratch_begin();
    scratch_dir(s.fd, "outside");
    scratch_file(s.fd, "outside/kept", "kept");
    scratch_dir(s.fd, "root");
    int root = openat(s.fd, "root", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    scratch_dir(root, "there");
    scratch_file(root, "there/kept", "kept");
    scratch_dir(root, "closed");
    CU_ASSERT_EQUAL(fchmodat(root, "closed", 0555, 0), 0);
    scratch_file(root, "file", "goes");
    scratch_link(root, "link", "../outside");
    scratch_link(root, "dangling", "nowhere");
    CU_ASSERT_EQUAL(mkfifoat(root, "pipe", 0600), 0);
    mode_t before = umask(022);
    struct dest d = kit_open(root);
    static const struct {
        const char *path;
        uint32_t mode;
        int err;
        bool made;
        mode_t is; // afterwards
    } table[] = {
        {"new", 0755, 0, true, 0755},    {"new", 0755, 0, false, 0755},   {"new/deeper", 0, 0, true, 0700},
        {"a/b/c", 02070, 0, true, 0750}, {"there", 0700, 0, false, 0755}, {"closed", 0555, 0, false, 0755},
        {"file", 0711, 0, true, 0711},   {"link", 0711, 0, true, 0711},   {"dangling", 0711, 0, true, 0711},
        {"pipe", 0711, 0, true, 0711},   {"", 0755, 0, false, 0755},
    };
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        struct entry e = tree_dir(table[i].path);
        e.mode = table[i].mode;
        bool made = !table[i].made;
        CU_ASSERT_EQUAL(dest_make_dir(&d, &e, &made), table[i].err);
        CU_ASSERT_EQUAL(made, table[i].made);
        const char *path = table[i].path[0] != '\0' ? table[i].path : ".";
        CU_ASSERT_EQUAL(kit_stat(root, path).st_mode, S_IFDIR | table[i].is);
    }
    umask(before);
    CU_ASSERT_TRUE(kit_says(root, "there/kept", "kept"));
    CU_ASSERT_TRUE(kit_says(s.fd, "outside/kept", "kept"));
    CU_ASSERT_FALSE(kit_there(s.fd, "nowhere"));
    // In the way higher up: not ours to clear here.
    scratch_file(root, "block", "");
    scratch_link(root, "away", "../outside");
    static const struct {
        const char *path;
        int err;
    } refused[] = {{"block/d", -ENOTDIR}, {"away/d", -ELOOP}, {"away/d/e", -ELOOP}, {"block/d/e", -ENOTDIR}};
    for (size_t i = 0; i < ARRAY_LEN(refused); i++) {
        struct entry e = tree_dir(refused[i].path);
        bool made = true;
        CU_ASSERT_EQUAL(dest_make_dir(&d, &e, &made), refused[i].err);
        CU_ASSERT_TRUE(made); // untouched
    }
    CU_ASSERT_TRUE(kit_there(root, "block") && kit_there(root, "away"));
    CU_ASSERT_FALSE(kit_there(s.fd, "outside/d"));
    CU_ASSERT_EQUAL(dest_close(&d, true), 0);
    close(root);
    scratch_end(&s);
}

static void test_finish_dir(void)
{
    struct scratch s = scratch_begin();
    struct dest d = kit_open(s.fd);
    static const char *const paths[] = {"dir", "dir/inner", ""};
    for (size_t i = 0; i < ARRAY_LEN(paths); i++) {
        struct entry e = tree_dir(paths[i]);
        bool made;
        CU_ASSERT_EQUAL(dest_make_dir(&d, &e, &made), 0);
    }
    scratch_file(s.fd, "dir/inner/f", "");
    for (size_t i = ARRAY_LEN(paths); i-- > 0;) {
        struct entry e = tree_dir(paths[i]);
        e.mode = i == 0 ? 02750 : 01555;
        e.uid = d.can_chown ? 12 : geteuid();
        e.gid = d.can_chown ? 34 : getegid();
        e.mtime.ns = (uint32_t)i;
        CU_ASSERT_EQUAL(dest_finish_dir(&d, &e), 0);
        struct stat st = kit_stat(s.fd, i == 2 ? "." : paths[i]);
        CU_ASSERT_TRUE(kit_exact(&st, &e));
    }
    struct entry e = tree_dir("dir/inner/f");
    CU_ASSERT_EQUAL(dest_finish_dir(&d, &e), -ENOTDIR);
    e = tree_dir("none");
    CU_ASSERT_EQUAL(dest_finish_dir(&d, &e), -ENOENT);
    CU_ASSERT_EQUAL(fchmod(s.fd, 0755) | fchmodat(s.fd, "dir/inner", 0755, 0), 0);
    CU_ASSERT_EQUAL(dest_close(&d, true), 0);
    scratch_end(&s);
}

void suite_dest_tree(void)
{
    CU_pSuite s = CU_add_suite("dest_tree", NULL, NULL);
    CU_add_test(s, "comparing", test_compare);
    CU_add_test(s, "comparing the root, and behind a link", test_compare_ways);
    CU_add_test(s, "metadata of what is there", test_fix_metadata);
    CU_add_test(s, "making directories", test_make_dir);
    CU_add_test(s, "finishing directories", test_finish_dir);
}
