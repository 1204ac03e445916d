// Small files and links at the destination.
#include "tests/unit/dest_kit.h"

static void test_write_publish(void)
{
    struct scratch s = scratch_begin();
    uint32_t open_before = scratch_open_files();
    struct dest d = kit_open(s.fd);
    struct path_cache *cache = kit_cache(&d);
    scratch_dir(s.fd, "dir");
    scratch_file(s.fd, "dir/b", "the old one");
    static const struct {
        const char *path, *body;
        uint32_t mode;
    } table[] = {
        {"a", "", 0644}, {"dir/b", "new", 0400}, {"dir/c", "x", 0}, {"d", "y", 01777}, {"dir/e", "z", 0755}};
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        struct entry e = kit_file(table[i].path, strlen(table[i].body));
        e.mode = table[i].mode;
        e.mtime.s -= (int64_t)i * 800000000;
        e.uid = d.can_chown ? 1234 : e.uid;
        CU_ASSERT_EQUAL_FATAL(kit_small_write(&d, cache, &e, table[i].body), 0);
        CU_ASSERT_EQUAL(kit_names(d.temp_fd), 1);
        CU_ASSERT_TRUE(i > 1 || i == 0 || kit_says(s.fd, "dir/b", "the old one"));
        CU_ASSERT_EQUAL(dest_small_publish(&d, cache, &e), 0);
        CU_ASSERT_EQUAL(kit_names(d.temp_fd), 0);
        struct stat st = kit_stat(s.fd, table[i].path);
        CU_ASSERT_TRUE(kit_exact(&st, &e));
        CU_ASSERT_TRUE(geteuid() != 0 || kit_says(s.fd, table[i].path, table[i].body));
        CU_ASSERT_EQUAL(dest_small_publish(&d, cache, &e), -ENOENT); // once
    }
    path_cache_free(cache);
    CU_ASSERT_EQUAL(dest_close(&d, true), 0);
    CU_ASSERT_EQUAL(scratch_open_files(), open_before);
    scratch_end(&s);
}

static void test_sparse(void)
{
    struct scratch s = scratch_begin();
    struct dest d = kit_open(s.fd);
    struct path_cache *cache = kit_cache(&d);
    static const struct {
        uint64_t size;
        struct range data[2];
        uint32_t count;
    } table[] = {
        {MIB, {{0, 0}}, 0},
        {MIB, {{0, 4096}}, 1},
        {MIB, {{4096, 8192}, {MIB - 8192, 8192}}, 2}, // data to the end: the last write makes the size
        {300001, {{299008, 993}}, 1},
        {300001, {{8192, 4096}}, 1},
    };
    char *body = malloc(MIB);
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        memset(body, 0, MIB);
        uint64_t data_bytes = 0;
        for (uint32_t k = 0; k < table[i].count; k++) {
            memset(body + table[i].data[k].offset, 'a' + (int)k, table[i].data[k].len);
            data_bytes += u64_align_up(table[i].data[k].len, 4096);
        }
        struct entry e = tree_sparse("sparse", table[i].size, table[i].data, table[i].count);
        CU_ASSERT_EQUAL(kit_put(&d, cache, &e, body), 0);
        CU_ASSERT_TRUE(kit_holds(s.fd, "sparse", body, (size_t)e.size));
        struct stat st = kit_stat(s.fd, "sparse");
        CU_ASSERT_EQUAL((uint64_t)st.st_size, e.size);
        CU_ASSERT_TRUE((uint64_t)st.st_blocks * 512 <= data_bytes + 4096);
        CU_ASSERT_EQUAL(st.st_mtim.tv_nsec, 123456789);
    }
    free(body);
    path_cache_free(cache);
    CU_ASSERT_EQUAL(dest_close(&d, true), 0);
    scratch_end(&s);
}

static void test_leftover(void)
{
    struct scratch s = scratch_begin();
    struct dest d = kit_open(s.fd);
    struct path_cache *cache = kit_cache(&d);
    struct entry e = kit_file("f", 3);
    char name[TEMP_NAME_BYTES];
    dest_temp_name(&e, name);
    scratch_file(d.temp_fd, name, "from a run before, longer");
    CU_ASSERT_EQUAL(kit_put(&d, cache, &e, "new"), 0);
    CU_ASSERT_TRUE(kit_says(s.fd, "f", "new"));
    scratch_file(s.fd, "victim", "whole");
    scratch_link(d.temp_fd, name, "../../victim");
    CU_ASSERT_EQUAL(kit_put(&d, cache, &e, "two"), 0);
    CU_ASSERT_TRUE(kit_says(s.fd, "f", "two"));
    CU_ASSERT_TRUE(kit_says(s.fd, "victim", "whole"));
    CU_ASSERT_EQUAL(kit_small_write(&d, cache, &e, "old"), 0);
    dest_temp_discard(&d, &e);
    CU_ASSERT_EQUAL(kit_names(d.temp_fd), 0);
    dest_temp_discard(&d, &e);
    CU_ASSERT_TRUE(kit_says(s.fd, "f", "two"));
    path_cache_free(cache);
    CU_ASSERT_EQUAL(dest_close(&d, true), 0);
    scratch_end(&s);
}

static void test_refused(void)
{
    static const struct {
        const char *path;
        int write_err, publish_err;
    } table[] = {
        {"full", 0, -EISDIR},   {"empty", 0, -EISDIR},   {"away/f", -ELOOP, 0},
        {"none/f", -ENOENT, 0}, {"file/f", -ENOTDIR, 0},
    };
    struct scratch s = scratch_begin();
    scratch_dir(s.fd, "outside");
    scratch_dir(s.fd, "root");
    int root = openat(s.fd, "root", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    scratch_dir(root, "full");
    scratch_dir(root, "empty");
    scratch_file(root, "full/inside", "kept");
    scratch_file(root, "file", "");
    scratch_link(root, "away", "../outside");
    struct dest d = kit_open(root);
    struct path_cache *cache = kit_cache(&d);
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        struct entry e = kit_file(table[i].path, 3);
        CU_ASSERT_EQUAL(kit_small_write(&d, cache, &e, "new"), table[i].write_err);
        if (table[i].write_err == 0)
            CU_ASSERT_EQUAL(dest_small_publish(&d, cache, &e), table[i].publish_err);
        CU_ASSERT_EQUAL(kit_names(d.temp_fd), table[i].write_err == 0);
        dest_temp_discard(&d, &e);
        struct entry link = tree_link(table[i].path, "text");
        CU_ASSERT_EQUAL(dest_make_link(&d, cache, &link), table[i].write_err ? table[i].write_err : -EISDIR);
        CU_ASSERT_EQUAL(kit_names(d.temp_fd), 0);
    }
    CU_ASSERT_TRUE(kit_says(root, "full/inside", "kept"));
    int outside = openat(s.fd, "outside", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    CU_ASSERT_EQUAL(kit_names(outside), 0);
    close(outside);
    path_cache_free(cache);
    CU_ASSERT_EQUAL(dest_close(&d, true), 0);
    close(root);
    scratch_end(&s);
}

// A parent that became a link after the directory was remembered: the file goes where the directory went, or
// nowhere.
static void test_parent_replaced(void)
{
    struct scratch s = scratch_begin();
    scratch_dir(s.fd, "outside");
    scratch_dir(s.fd, "root");
    scratch_dir(s.fd, "root/dir");
    int root = openat(s.fd, "root", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct dest d = kit_open(root);
    struct path_cache *cache = kit_cache(&d);
    struct entry e = kit_file("dir/f", 3);
    CU_ASSERT_EQUAL(kit_small_write(&d, cache, &e, "new"), 0);
    CU_ASSERT_EQUAL(unlinkat(root, "dir", AT_REMOVEDIR), 0);
    scratch_link(root, "dir", "../outside");
    CU_ASSERT_EQUAL(dest_small_publish(&d, cache, &e), -ENOENT);
    path_cache_clear(cache);
    CU_ASSERT_EQUAL(dest_small_publish(&d, cache, &e), -ELOOP);
    int outside = openat(s.fd, "outside", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    CU_ASSERT_EQUAL(kit_names(outside), 0);
    close(outside);
    path_cache_free(cache);
    CU_ASSERT_EQUAL(dest_close(&d, true), 0);
    close(root);
    scratch_end(&s);
}

static void test_links(void)
{
    struct scratch s = scratch_begin();
    struct dest d = kit_open(s.fd);
    struct path_cache *cache = kit_cache(&d);
    scratch_file(s.fd, "over-file", "goes");
    scratch_link(s.fd, "over-link", "old");
    char longest[TARGET_BYTES_MAX + 2];
    memset(longest, 'x', sizeof(longest) - 1);
    longest[TARGET_BYTES_MAX + 1] = '\0';
    static const char *const paths[] = {"new", "over-file", "over-link"};
    static const char *const targets[] = {"/etc/passwd", "nowhere", "../../up", " ", "new\nline\xff"};
    for (size_t i = 0; i < ARRAY_LEN(paths) * ARRAY_LEN(targets); i++) {
        const char *path = paths[i % ARRAY_LEN(paths)];
        struct entry e = tree_link(path, targets[i / ARRAY_LEN(paths)]);
        e.uid = d.can_chown ? 1234 : geteuid();
        e.gid = d.can_chown ? 5678 : getegid();
        CU_ASSERT_EQUAL(dest_make_link(&d, cache, &e), 0);
        char text[4096] = {0};
        CU_ASSERT_EQUAL(readlinkat(s.fd, path, text, sizeof(text) - 1), (ssize_t)e.target_len);
        CU_ASSERT_STRING_EQUAL(text, targets[i / ARRAY_LEN(paths)]);
        struct stat st = kit_stat(s.fd, path);
        CU_ASSERT_TRUE(kit_exact(&st, &e));
    }
    // A leftover of the same temporary name.
    struct entry e = tree_link("new", "target");
    char name[TEMP_NAME_BYTES];
    dest_temp_name(&e, name);
    scratch_link(d.temp_fd, name, "left over");
    CU_ASSERT_EQUAL(dest_make_link(&d, cache, &e), 0);
    e = tree_link("new", longest);
    CU_ASSERT_EQUAL(dest_make_link(&d, cache, &e), -EMSGSIZE);
    CU_ASSERT_EQUAL(kit_names(d.temp_fd), 0);
    path_cache_free(cache);
    CU_ASSERT_EQUAL(dest_close(&d, true), 0);
    scratch_end(&s);
}

void suite_dest_small(void)
{
    CU_pSuite s = CU_add_suite("dest_small", NULL, NULL);
    CU_add_test(s, "writing and publishing", test_write_publish);
    CU_add_test(s, "a sparse file keeps its holes", test_sparse);
    CU_add_test(s, "leftovers and discarding", test_leftover);
    CU_add_test(s, "what is in the way", test_refused);
    CU_add_test(s, "a parent that was replaced", test_parent_replaced);
    CU_add_test(s, "links", test_links);
}
