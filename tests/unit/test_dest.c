// The destination root: what is made, adopted, refused and removed again.
#include "tests/unit/dest_kit.h"
#include "tests/unit/starve.h"

static void test_make(void)
{
    struct scratch s = scratch_begin();
    mode_t before = umask(0);
    struct dest d = kit_open(s.fd);
    umask(before);
    CU_ASSERT_EQUAL(kit_stat(s.fd, ".penstock").st_mode, S_IFDIR | 0700);
    CU_ASSERT_EQUAL(kit_stat(s.fd, ".penstock/temp").st_mode, S_IFDIR | 0700);
    CU_ASSERT_EQUAL(kit_stat(s.fd, ".penstock/lock").st_mode, S_IFREG | 0600);
    CU_ASSERT_EQUAL(d.dev, kit_stat(s.fd, ".").st_dev);
    CU_ASSERT_EQUAL(d.can_chown, geteuid() == 0);
    CU_ASSERT_TRUE(
        kit_says(s.fd, ".penstock/lock", "5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a here tester 1700000000\n"));
    CU_ASSERT_EQUAL(dest_close(&d, false), 0);
    scratch_end(&s);
}

static void test_adopt(void)
{
    struct scratch s = scratch_begin();
    scratch_dir(s.fd, ".penstock");
    scratch_dir(s.fd, ".penstock/temp");
    scratch_file(s.fd, ".penstock/temp/left", "over");
    scratch_file(s.fd, ".penstock/lock",
                 "a line that is longer than the one that takes its place, by far and away\n");
    struct dest d = kit_open(s.fd);
    CU_ASSERT_TRUE(kit_says(d.temp_fd, "left", "over"));
    CU_ASSERT_EQUAL(kit_stat(s.fd, ".penstock/lock").st_size, 56);
    CU_ASSERT_EQUAL(dest_close(&d, false), 0);
    CU_ASSERT_TRUE(kit_says(s.fd, ".penstock/temp/left", "over"));
    scratch_end(&s);
}

// Whatever lies in the way of what is ours is refused; nothing that it leads to is touched; no descriptor
// stays open.
static void test_refuse(void)
{
    static const struct {
        const char *place, *target; // target: of a link; "file", "dir": in its place
        int err;
    } table[] = {
        {".penstock", "outside", -ELOOP},      {".penstock", "nowhere", -ELOOP},
        {".penstock", "file", -ENOTDIR},       {".penstock/temp", "outside", -ELOOP},
        {".penstock/temp", "file", -ENOTDIR},  {".penstock/lock", "victim", -ELOOP},
        {".penstock/lock", "nowhere", -ELOOP}, {".penstock/lock", "dir", -EISDIR},
    };
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        struct scratch s = scratch_begin();
        scratch_dir(s.fd, "root");
        scratch_dir(s.fd, "outside");
        scratch_file(s.fd, "victim", "whole");
        int root = openat(s.fd, "root", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (strchr(table[i].place, '/') != NULL)
            scratch_dir(root, ".penstock");
        char target[64];
        snprintf(target, sizeof(target), "%s%s", strchr(table[i].place, '/') ? "../../" : "../",
                 table[i].target);
        if (strcmp(table[i].target, "file") == 0)
            scratch_file(root, table[i].place, "");
        else if (strcmp(table[i].target, "dir") == 0)
            scratch_dir(root, table[i].place);
        else
            scratch_link(root, table[i].place, target);
        uint32_t open_before = scratch_open_files();
        struct dest d = {.fd = -7};
        CU_ASSERT_EQUAL(kit_try(root, &d), table[i].err);
        CU_ASSERT_EQUAL(d.fd, -7);
        CU_ASSERT_EQUAL(scratch_open_files(), open_before);
        CU_ASSERT_EQUAL(kit_names(root), 1);
        CU_ASSERT_FALSE(kit_there(s.fd, "nowhere"));
        int outside = openat(s.fd, "outside", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        CU_ASSERT_EQUAL(kit_names(outside), 0);
        CU_ASSERT_TRUE(kit_says(s.fd, "victim", "whole"));
        close(outside);
        close(root);
        scratch_end(&s);
    }
}

// A fifo for a lock must not block us and is no lock.
static void test_refuse_fifo(void)
{
    struct scratch s = scratch_begin();
    scratch_dir(s.fd, ".penstock");
    CU_ASSERT_EQUAL(mkfifoat(s.fd, ".penstock/lock", 0600), 0);
    struct dest d;
    CU_ASSERT_EQUAL(kit_try(s.fd, &d), -EINVAL);
    scratch_end(&s);
}

static int open_unwritable(void *arg)
{
    int fd = *(int *)arg;
    struct dest_lock_info mine = kit_info("here"), holder;
    struct dest d;
    return dest_open(fd, &mine, 0, &d, &holder) == -EACCES ? 0 : 1;
}

static void test_unwritable(void)
{
    struct scratch s = scratch_begin();
    CU_ASSERT_EQUAL(fchmod(s.fd, 0555), 0);
    CU_ASSERT_EQUAL(scratch_child(open_unwritable, &s.fd), 0);
    CU_ASSERT_FALSE(kit_there(s.fd, ".penstock"));
    CU_ASSERT_EQUAL(fchmod(s.fd, 0755), 0);
    int file = openat(s.fd, "f", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    struct dest_lock_info mine = kit_info("here"), holder;
    struct dest d;
    CU_ASSERT_EQUAL(dest_open(file, &mine, 0, &d, &holder), -ENOTDIR);
    scratch_end(&s);
}

static void test_close_unfinished(void)
{
    struct scratch s = scratch_begin();
    uint32_t open_before = scratch_open_files();
    struct dest d = kit_open(s.fd);
    scratch_file(d.state_fd, "journal", "some");
    scratch_file(d.temp_fd, "t", "thing");
    CU_ASSERT_EQUAL(dest_close(&d, false), 0);
    CU_ASSERT_EQUAL(scratch_open_files(), open_before);
    CU_ASSERT_TRUE(kit_says(s.fd, ".penstock/journal", "some"));
    CU_ASSERT_TRUE(kit_says(s.fd, ".penstock/temp/t", "thing"));
    scratch_end(&s);
}

static void test_close_finished(void)
{
    struct scratch s = scratch_begin();
    scratch_file(s.fd, "keep", "me");
    uint32_t open_before = scratch_open_files();
    struct dest d = kit_open(s.fd);
    scratch_file(d.state_fd, "journal", "some");
    scratch_link(d.state_fd, "link", "../keep");
    scratch_dir(d.state_fd, "deep");
    close(scratch_deep(d.state_fd, "deep/d", 1, true));
    for (int i = 0; i < 1500; i++) {
        char name[32];
        snprintf(name, sizeof(name), "left-over-%d", i);
        scratch_file(i % 3 == 0 ? d.state_fd : d.temp_fd, name, "");
    }
    CU_ASSERT_EQUAL(dest_close(&d, true), 0);
    CU_ASSERT_EQUAL(scratch_open_files(), open_before);
    CU_ASSERT_EQUAL(kit_names(s.fd), 1);
    CU_ASSERT_TRUE(kit_says(s.fd, "keep", "me"));
    d = kit_open(s.fd); // and again from nothing
    CU_ASSERT_EQUAL(dest_close(&d, true), 0);
    CU_ASSERT_EQUAL(kit_names(s.fd), 1);
    scratch_end(&s);
}

// Somebody took `.penstock/` away, or put another there: ending is not an error of the job, and takes nothing
// of the other.
static void test_close_replaced(void)
{
    struct scratch s = scratch_begin();
    struct dest d = kit_open(s.fd);
    CU_ASSERT_EQUAL(renameat(s.fd, ".penstock", s.fd, "moved"), 0);
    CU_ASSERT_EQUAL(dest_close(&d, true), 0);
    d = kit_open(s.fd);
    CU_ASSERT_EQUAL(renameat(s.fd, ".penstock", s.fd, "moved again"), 0);
    scratch_dir(s.fd, ".penstock");
    scratch_file(s.fd, ".penstock/lock", "");
    CU_ASSERT_EQUAL(dest_close(&d, true), 0);
    CU_ASSERT_TRUE(kit_there(s.fd, ".penstock/lock"));
    scratch_end(&s);
}

static int other_mount(struct scratch *s)
{
    scratch_dir(s->fd, ".penstock");
    if (!kit_mount(s, ".penstock", "tmpfs", "none", "size=1m"))
        return KIT_SKIP;
    struct dest d;
    KIT_CHECK(kit_try(s->fd, &d) == -EXDEV);
    return 0;
}

static void test_other_mount(void)
{
    kit_child("dest.a mount in the place", other_mount);
}

static void test_temp_name(void)
{
    char first[TEMP_NAME_BYTES], name[TEMP_NAME_BYTES];
    struct entry e = tree_file("some/path", 2 * MIB);
    dest_temp_name(&e, first);
    CU_ASSERT_EQUAL(strlen(first), 32);
    CU_ASSERT_EQUAL(strspn(first, "0123456789abcdef"), 32);
    // It joins runs and releases: it never changes.
    CU_ASSERT_STRING_EQUAL(first, "cf2383ea45149656e9fb10fd279226a2");
    struct entry same = e;
    same.mode = 0;
    same.uid = 7;
    dest_temp_name(&same, name);
    CU_ASSERT_STRING_EQUAL(name, first);
    struct entry other[8];
    for (size_t i = 0; i < ARRAY_LEN(other); i++)
        other[i] = e;
    other[0].path = (const uint8_t *)"some/Path";
    other[1].path_len--;
    other[2].size++;
    other[3].mtime.s++;
    other[4].mtime.ns++;
    other[5].ctime.s++;
    other[6].ctime.ns++;
    other[7].inode++;
    for (size_t i = 0; i < ARRAY_LEN(other); i++) {
        dest_temp_name(&other[i], name);
        CU_ASSERT_STRING_NOT_EQUAL(name, first);
    }
    char *longest = malloc(PATH_BYTES_MAX);
    memset(longest, 'x', PATH_BYTES_MAX);
    e.path = (const uint8_t *)longest;
    e.path_len = PATH_BYTES_MAX;
    dest_temp_name(&e, name);
    CU_ASSERT_EQUAL(strlen(name), 32);
    free(longest);
}

// The kernel tells a lost write once: a thread that syncs after the one that was told must not take it for
// synced.
static void test_lost_write(void)
{
    struct scratch s = scratch_begin();
    struct dest d;
    CU_ASSERT_EQUAL_FATAL(kit_try(s.fd, &d), 0);
    CU_ASSERT_EQUAL(dest_sync(&d), 0);
    starve_syncfs(-EIO);
    CU_ASSERT_EQUAL(dest_sync(&d), -EIO);
    CU_ASSERT_EQUAL(dest_sync(&d), -EIO);
    CU_ASSERT_EQUAL(dest_close(&d, true), 0);
    scratch_end(&s);
}

void suite_dest(void)
{
    CU_pSuite s = CU_add_suite("dest", NULL, NULL);
    CU_add_test(s, "what is made", test_make);
    CU_add_test(s, "a lost write", test_lost_write);
    CU_add_test(s, "what an earlier run left is adopted", test_adopt);
    CU_add_test(s, "links and files in the way are refused", test_refuse);
    CU_add_test(s, "a fifo for a lock", test_refuse_fifo);
    CU_add_test(s, "a root that cannot be written, or is none", test_unwritable);
    CU_add_test(s, "an unfinished close keeps everything", test_close_unfinished);
    CU_add_test(s, "a finished close removes everything", test_close_finished);
    CU_add_test(s, "a finished close of what was replaced", test_close_replaced);
    CU_add_test(s, "a mount in the place", test_other_mount);
    CU_add_test(s, "temporary names", test_temp_name);
}
