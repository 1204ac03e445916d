// Destinations with mounts in them, and without room.
#include <signal.h>
#include <sys/resource.h>

#include "tests/unit/dest_kit.h"

// A file system that refuses O_DIRECT, or has no room to promise: buffered, and of the right size.
static int direct_on_tmpfs(struct scratch *s)
{
    scratch_dir(s->fd, "root");
    if (!kit_mount(s, "root", "tmpfs", "none", "size=4m"))
        return KIT_SKIP;
    int root = openat(s->fd, "root", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct dest d;
    KIT_CHECK(kit_try(root, &d) == 0);
    struct entry e = kit_file("big", 2 * MIB);
    struct dest_file f;
    KIT_CHECK(dest_temp_open(&d, &e, false, true, &f) == 0);
    struct stat st;
    KIT_CHECK(fstat(f.fd, &st) == 0 && st.st_size == 2 * MIB);
    KIT_CHECK(st.st_blocks == 0); // not preallocated
    KIT_CHECK(f.direct == ((fcntl(f.fd, F_GETFL) & O_DIRECT) != 0));
    kit_discard(&f);
    KIT_CHECK(dest_close(&d, true) == 0);
    return 0;
}

static void test_direct_on_tmpfs(void)
{
    kit_child("dest_mount.direct I/O and preallocation on tmpfs", direct_on_tmpfs);
}

// A mount in the tree: the temporary file lies beside its target.
static int beside(struct scratch *s)
{
    scratch_dir(s->fd, "mnt");
    if (!kit_mount(s, "mnt", "tmpfs", "none", "size=8m"))
        return KIT_SKIP;
    struct dest d;
    KIT_CHECK(kit_try(s->fd, &d) == 0);
    struct entry e = kit_file("mnt/big", 3);
    uint32_t open_before = scratch_open_files() + 2; // dest_sync keeps the mount, and one is the list
    struct dest_file f;
    KIT_CHECK(dest_sync(&d) == 0);
    KIT_CHECK(dest_temp_open(&d, &e, false, true, &f) == 0);
    KIT_CHECK(f.beside && strncmp(f.name, ".penstock-", 10) == 0 && strlen(f.name) == 51);
    KIT_CHECK(kit_names(d.temp_fd) == 0 && kit_there(f.dir_fd, f.name));
    dest_file_close(&f);
    KIT_CHECK(scratch_open_files() == open_before);
    KIT_CHECK(dest_temp_open(&d, &e, true, false, &f) == 0 && f.beside);
    KIT_CHECK(sys_pwrite_full(f.fd, "new", 3, 0) == 0);
    int parent;
    KIT_CHECK(dest_file_publish(&d, &f, &e, &parent) == 0);
    dest_file_close(&f);
    KIT_CHECK(kit_says(s->fd, "mnt/big", "new") && kit_names(parent) == 1);
    close(parent);
    KIT_CHECK(dest_temp_open(&d, &e, false, false, &f) == 0);
    kit_discard(&f);
    KIT_CHECK(scratch_open_files() == open_before && dest_sync(&d) == 0);
    KIT_CHECK(dest_close(&d, true) == 0);
    return 0;
}

static void test_beside(void)
{
    kit_child("dest_mount.a mount in the tree", beside);
}

// A kernel that does not tell the bind mounts of a file system apart: `path` seems to be on the root's.
static int untold(struct dest *d, int fd, const char *path)
{
    int dir = openat(fd, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int rc = dir >= 0 ? sys_mount_id(dir, &d->mount) : -errno;
    close(dir);
    return rc;
}

// A mount that the device does not show goes beside all the same. One that nothing shows: the rename tells,
// and the next one goes beside.
static int bind_mount(struct scratch *s)
{
    scratch_dir(s->fd, "real");
    scratch_dir(s->fd, "again");
    if (!kit_mount(s, "again", "bind", "real", NULL))
        return KIT_SKIP;
    struct dest d;
    KIT_CHECK(kit_try(s->fd, &d) == 0);
    struct entry e = kit_file("again/big", 3);
    struct dest_file f;
    int parent;
    uint64_t mount = d.mount;
    KIT_CHECK(dest_temp_open(&d, &e, false, false, &f) == 0 && f.beside);
    kit_discard(&f);
    KIT_CHECK(untold(&d, s->fd, "again") == 0 && d.mount != mount);
    KIT_CHECK(dest_temp_open(&d, &e, false, false, &f) == 0 && !f.beside);
    KIT_CHECK(dest_file_publish(&d, &f, &e, &parent) == -EXDEV);
    kit_discard(&f);
    KIT_CHECK(dest_temp_open(&d, &e, false, false, &f) == 0 && f.beside);
    KIT_CHECK(dest_file_publish(&d, &f, &e, &parent) == 0);
    KIT_CHECK(kit_there(s->fd, "real/big"));
    d.mount = mount;
    struct entry other = kit_file("real/other", 3);
    KIT_CHECK(dest_temp_open(&d, &other, false, false, &f) == 0 && !f.beside);
    return 0;
}

static void test_bind_mount(void)
{
    kit_child("dest_mount.a mount of the same file system", bind_mount);
}

// No room: told before a byte moves, and nothing is left of the attempt.
static int no_room(struct scratch *s)
{
    static const char make_image[] =
        "truncate -s 16M image && mkfs.ext4 -q image && losetup --find --show image >loop";
    char command[128], loop[64] = {0}, at[] = "root";
    scratch_dir(s->fd, at);
    if (geteuid() != 0 || chdir(s->path) != 0 || system(make_image) != 0)
        return KIT_SKIP;
    int fd = openat(s->fd, "loop", O_RDONLY | O_CLOEXEC);
    KIT_CHECK(sys_pread_full(fd, loop, sizeof(loop) - 1, 0) > 0);
    loop[strcspn(loop, "\n")] = '\0';
    bool mounted = kit_mount(s, at, "ext4", loop, NULL);
    snprintf(command, sizeof(command), "losetup -d %s", loop); // for good once the mount is gone
    if (system(command) != 0 || !mounted)
        return KIT_SKIP;
    int root = openat(s->fd, at, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct dest d;
    KIT_CHECK(kit_try(root, &d) == 0);
    struct entry e = kit_file("big", 64 * MIB);
    struct dest_file f;
    KIT_CHECK(dest_temp_open(&d, &e, false, true, &f) == -ENOSPC);
    KIT_CHECK(kit_names(d.temp_fd) == 0);
    static const struct range data[] = {{0, MIB}, {2 * MIB, 40 * MIB}};
    e = tree_sparse("big", 64 * MIB, data, 2);
    KIT_CHECK(dest_temp_open(&d, &e, false, false, &f) == -ENOSPC);
    KIT_CHECK(kit_names(d.temp_fd) == 0);
    e = tree_sparse("big", 64 * MIB, data, 1);
    KIT_CHECK(dest_temp_open(&d, &e, false, false, &f) == 0);
    kit_discard(&f);
    KIT_CHECK(dest_close(&d, true) == 0);
    return 0;
}

static void test_no_room(void)
{
    kit_child("dest_mount.no room", no_room);
}

// Larger than a file may be: as no room.
static int too_large(struct scratch *s)
{
    struct dest d;
    KIT_CHECK(kit_try(s->fd, &d) == 0);
    struct rlimit limit = {.rlim_cur = 4 * MIB, .rlim_max = 4 * MIB};
    KIT_CHECK(signal(SIGXFSZ, SIG_IGN) != SIG_ERR && setrlimit(RLIMIT_FSIZE, &limit) == 0);
    struct entry e = kit_file("big", 8 * MIB);
    struct dest_file f;
    KIT_CHECK(dest_temp_open(&d, &e, false, false, &f) == -EFBIG);
    KIT_CHECK(kit_names(d.temp_fd) == 0);
    return dest_close(&d, true) == 0 ? 0 : 1;
}

static void test_too_large(void)
{
    kit_child("dest_mount.larger than a file may be", too_large);
}

// A write that fails leaves nothing behind.
static int small_no_room(struct scratch *s)
{
    scratch_dir(s->fd, "root");
    if (!kit_mount(s, "root", "tmpfs", "none", "size=256k"))
        return KIT_SKIP;
    int root = openat(s->fd, "root", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct dest d;
    KIT_CHECK(kit_try(root, &d) == 0);
    struct path_cache *cache = path_cache_new(d.fd);
    char *body = calloc(1, MIB);
    struct entry e = kit_file("f", MIB);
    KIT_CHECK(dest_small_write(&d, cache, &e, body, MIB) == -ENOSPC);
    KIT_CHECK(kit_names(d.temp_fd) == 0);
    e = kit_file("f", 4096);
    KIT_CHECK(dest_small_write(&d, cache, &e, body, 4096) == 0 && dest_small_publish(&d, cache, &e) == 0);
    return 0;
}

static void test_small_no_room(void)
{
    kit_child("dest_mount.no room for a small file", small_no_room);
}

// What is made on mounts is synced there: each of them is kept, once, and the root's own is not.
static int others_noted(struct scratch *s)
{
    scratch_dir(s->fd, "a");
    scratch_dir(s->fd, "b");
    scratch_dir(s->fd, "here");
    if (!kit_mount(s, "a", "tmpfs", "none", "size=1m") || !kit_mount(s, "b", "tmpfs", "none", "size=1m"))
        return KIT_SKIP;
    struct dest d;
    KIT_CHECK(kit_try(s->fd, &d) == 0);
    struct path_cache *cache = path_cache_new(d.fd);
    uint32_t open_before = scratch_open_files();
    static const struct {
        const char *path;
        uint32_t noted;
    } table[] = {{"here/f", 0}, {"a/f", 2}, {"a/g", 2},
                 {"b/f", 3},    {"a/h", 3}, {"here/g", 3}} /* and the list */;
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        struct entry e = kit_file(table[i].path, 3);
        KIT_CHECK(kit_put(&d, cache, &e, "new") == 0);
        path_cache_clear(cache);
        KIT_CHECK(scratch_open_files() == open_before + table[i].noted && dest_sync(&d) == 0);
    }
    path_cache_free(cache);
    return dest_close(&d, true) == 0 ? 0 : 1;
}

static void test_others_noted(void)
{
    kit_child("dest_mount.file systems to be synced", others_noted);
}

// A directory is enough.
static int directory_noted(struct scratch *s)
{
    scratch_dir(s->fd, "a");
    if (!kit_mount(s, "a", "tmpfs", "none", "size=1m"))
        return KIT_SKIP;
    struct dest d;
    KIT_CHECK(kit_try(s->fd, &d) == 0);
    uint32_t open_before = scratch_open_files();
    struct entry e = tree_dir("a/b");
    bool made;
    KIT_CHECK(dest_make_dir(&d, &e, &made) == 0 && made && dest_finish_dir(&d, &e) == 0);
    KIT_CHECK(scratch_open_files() == open_before + 1 && dest_sync(&d) == 0);
    return dest_close(&d, true) == 0 ? 0 : 1;
}

static void test_directory_noted(void)
{
    kit_child("dest_mount.a directory on a mount", directory_noted);
}

static int small_beside(struct scratch *s)
{
    scratch_dir(s->fd, "mnt");
    scratch_dir(s->fd, "real");
    scratch_dir(s->fd, "again");
    if (!kit_mount(s, "mnt", "tmpfs", "none", "size=1m") || !kit_mount(s, "again", "bind", "real", NULL))
        return KIT_SKIP;
    struct dest d;
    KIT_CHECK(kit_try(s->fd, &d) == 0);
    struct path_cache *cache = path_cache_new(d.fd);
    int mnt = openat(s->fd, "mnt", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (int round = 0; round < 2; round++) { // the second from the memo
        struct entry e = kit_file("mnt/f", 3);
        e.mtime.ns = (uint32_t)round;
        KIT_CHECK(kit_small_write(&d, cache, &e, "new") == 0 && kit_names(d.temp_fd) == 0);
        KIT_CHECK(kit_names(mnt) == 1 + (unsigned)round);
        dest_temp_discard(&d, &e);
        KIT_CHECK(kit_names(mnt) == (unsigned)round);
        KIT_CHECK(kit_put(&d, cache, &e, "new") == 0);
        KIT_CHECK(kit_says(mnt, "f", "new") && kit_names(mnt) == 1);
    }
    struct entry link = tree_link("mnt/l", "text");
    KIT_CHECK(dest_make_link(&d, cache, &link) == 0 && kit_names(mnt) == 2);
    // What an earlier run left in temp/, before there was the mount, does not stand in the way.
    struct entry e = kit_file("mnt/f", 3);
    char name[TEMP_NAME_BYTES];
    dest_temp_name(&e, name);
    scratch_file(d.temp_fd, name, "old");
    KIT_CHECK(kit_put(&d, cache, &e, "now") == 0 && kit_says(mnt, "f", "now"));
    e = kit_file("again/f", 3); // a mount that nothing shows: learnt from the rename
    KIT_CHECK(untold(&d, s->fd, "again") == 0);
    KIT_CHECK(kit_put(&d, cache, &e, "new") == -EXDEV);
    dest_temp_discard(&d, &e);
    KIT_CHECK(kit_put(&d, cache, &e, "new") == 0 && kit_says(s->fd, "real/f", "new"));
    return 0;
}

static void test_small_beside(void)
{
    kit_child("dest_mount.small files and mounts in the tree", small_beside);
}

void suite_dest_mount(void)
{
    CU_pSuite s = CU_add_suite("dest_mount", NULL, NULL);
    CU_add_test(s, "direct I/O and preallocation on tmpfs", test_direct_on_tmpfs);
    CU_add_test(s, "a mount in the tree", test_beside);
    CU_add_test(s, "a mount of the same file system", test_bind_mount);
    CU_add_test(s, "no room", test_no_room);
    CU_add_test(s, "larger than a file may be", test_too_large);
    CU_add_test(s, "no room for a small file", test_small_no_room);
    CU_add_test(s, "small files and mounts in the tree", test_small_beside);
    CU_add_test(s, "file systems to be synced", test_others_noted);
    CU_add_test(s, "a directory on a mount", test_directory_noted);
}
