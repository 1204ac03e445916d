// The paths of a job as users write them: found, and for a destination made, by rsync's rules; beneath a root
// or free.
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <CUnit/CUnit.h>

#include "mover/agent_inner.h"
#include "tests/unit/scratch.h"

// A tree, which is the working directory and, for an agent with a root, that root.
struct place {
    struct scratch s;
    int was; // the working directory before
    uint32_t open_files;
    struct agent_config free, rooted;
};

static struct place place_begin(void)
{
    struct place p = {.open_files = scratch_open_files()};
    p.was = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    p.s = scratch_begin();
    CU_ASSERT_FATAL(p.was >= 0 && fchdir(p.s.fd) == 0);
    static const char *const dirs[] = {"src", "src/dir", "src/dir/sub", "dst", "dst/existing"};
    for (size_t i = 0; i < ARRAY_LEN(dirs); i++)
        scratch_dir(p.s.fd, dirs[i]);
    scratch_file(p.s.fd, "src/file", "1");
    scratch_file(p.s.fd, "src/dir/inner", "22");
    scratch_file(p.s.fd, "dst/file", "333");
    scratch_link(p.s.fd, "src/link", "file");
    scratch_link(p.s.fd, "src/dirlink", "dir");
    scratch_link(p.s.fd, "src/broken", "nowhere");
    scratch_link(p.s.fd, "dst/tolink", "existing");
    CU_ASSERT_EQUAL(mkfifoat(p.s.fd, "src/fifo", 0644), 0);
    p.free = (struct agent_config){.handoff_fd = -1};
    p.rooted = p.free;
    return p;
}

static void place_end(struct place *p)
{
    CU_ASSERT_EQUAL(fchdir(p->was), 0);
    close(p->was);
    scratch_end(&p->s);
    CU_ASSERT_EQUAL(scratch_open_files(), p->open_files);
}

static const struct agent_config *config_of(struct place *p, bool rooted)
{
    p->rooted.root = p->s.path;
    return rooted ? &p->rooted : &p->free;
}

// ---- sources ----

static const struct source_row {
    const char *path;
    int rc, rooted; // result without and with a root
    enum entry_type type;
    const char *name; // NULL: contents
    const char *same; // what it is
} source_rows[] = {
    {"src/dir", 0, 0, ENTRY_DIR, "dir", "src/dir"},
    {"src/dir/", 0, 0, ENTRY_DIR, NULL, "src/dir"},
    {"src/dir///", 0, 0, ENTRY_DIR, NULL, "src/dir"},
    {"src/dir/.", 0, 0, ENTRY_DIR, NULL, "src/dir"},
    {"src/dir/./", 0, 0, ENTRY_DIR, NULL, "src/dir"},
    {"./src/./dir", 0, 0, ENTRY_DIR, "dir", "src/dir"},
    {"src//dir//sub", 0, 0, ENTRY_DIR, "sub", "src/dir/sub"},
    {"src", 0, 0, ENTRY_DIR, "src", "src"},
    {"", 0, 0, ENTRY_DIR, NULL, "."},
    {".", 0, 0, ENTRY_DIR, NULL, "."},
    {"./", 0, 0, ENTRY_DIR, NULL, "."},
    {"src/file", 0, 0, ENTRY_FILE, "file", "src/file"},
    {"src/file/", -ENOTDIR, -ENOTDIR, 0, NULL, NULL},
    {"src/file/x", -ENOTDIR, -ENOTDIR, 0, NULL, NULL},
    {"src/link", 0, 0, ENTRY_SYMLINK, "link", "src/link"},
    {"src/broken", 0, 0, ENTRY_SYMLINK, "broken", "src/broken"},
    {"src/dirlink", 0, 0, ENTRY_SYMLINK, "dirlink", "src/dirlink"},
    {"src/dirlink/", 0, -ELOOP, ENTRY_DIR, NULL, "src/dir"},
    {"src/dirlink/inner", 0, -ELOOP, ENTRY_FILE, "inner", "src/dir/inner"},
    {"src/fifo", 0, 0, ENTRY_FILE, "fifo", "src/fifo"},
    {"src/none", -ENOENT, -ENOENT, 0, NULL, NULL},
    {"src/none/", -ENOENT, -ENOENT, 0, NULL, NULL},
    {"none/file", -ENOENT, -ENOENT, 0, NULL, NULL},
    {"src/dir/sub/..", 0, -EACCES, ENTRY_DIR, NULL, "src/dir"},
    {"src/../dst/file", 0, -EACCES, ENTRY_FILE, "file", "dst/file"},
    {"../", 0, -EACCES, ENTRY_DIR, NULL, ".."},
    {"src/..x", -ENOENT, -ENOENT, 0, NULL, NULL},
};

static void check_source(struct place *p, const struct source_row *row, bool rooted)
{
    struct blob path = blob_text(row->path);
    struct walk_source out;
    struct source_found found;
    struct err err = {.class = ERR_NONE};
    int rc = agent_open_source(config_of(p, rooted), &path, &out, &found, &err);
    if (rc != (rooted ? row->rooted : row->rc))
        fprintf(stderr, "  %s%s: %d\n", row->path, rooted ? " beneath a root" : "", rc);
    CU_ASSERT_EQUAL(rc, rooted ? row->rooted : row->rc);
    if (rc < 0) {
        CU_ASSERT(out.fd == -1 && out.from == NULL);
        CU_ASSERT(err.class == ERR_START && err.os == -rc);
        CU_ASSERT_STRING_EQUAL(err.path, row->path);
        return;
    }
    struct stat there, taken;
    CU_ASSERT_EQUAL(fstatat(p->s.fd, row->same, &there, AT_SYMLINK_NOFOLLOW), 0);
    CU_ASSERT_EQUAL(fstatat(out.fd, out.from, &taken, AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH), 0);
    CU_ASSERT(taken.st_ino == there.st_ino && taken.st_dev == there.st_dev);
    CU_ASSERT(found.inode == there.st_ino && found.dev == there.st_dev && found.type == row->type);
    CU_ASSERT_EQUAL(found.contents, row->name == NULL);
    CU_ASSERT_STRING_EQUAL(found.name, row->name != NULL ? row->name : "");
    CU_ASSERT_STRING_EQUAL(out.from, row->name != NULL ? row->name : "");
    CU_ASSERT_PTR_NULL(out.to);
    close(out.fd);
    free(out.from);
}

static void test_sources(void)
{
    struct place p = place_begin();
    for (size_t i = 0; i < ARRAY_LEN(source_rows); i++) {
        check_source(&p, &source_rows[i], false);
        check_source(&p, &source_rows[i], true);
    }
    place_end(&p);
}

// From the root of all, or of the agent.
static void test_source_absolute(void)
{
    struct place p = place_begin();
    char path[700];
    snprintf(path, sizeof path, "%s/src/dir", p.s.path);
    struct source_row row = {path, 0, -ENOENT, ENTRY_DIR, "dir", "src/dir"};
    check_source(&p, &row, false);
    check_source(&p, &row, true);
    static const struct source_row beneath[] = {
        {"/src/dir", -ENOENT, 0, ENTRY_DIR, "dir", "src/dir"},
        {"//src/dir/", -ENOENT, 0, ENTRY_DIR, NULL, "src/dir"},
        {"/src", -ENOENT, 0, ENTRY_DIR, "src", "src"},
        {"/", 0, 0, ENTRY_DIR, NULL, "."},
        {"/..", 0, -EACCES, ENTRY_DIR, NULL, "."},
    };
    for (size_t i = 0; i < 3; i++) {
        check_source(&p, &beneath[i], true);
        check_source(&p, &beneath[i], false);
    }
    check_source(&p, &beneath[3], true);
    check_source(&p, &beneath[4], true);
    place_end(&p);
}

// What is no path at all.
static void test_source_no_path(void)
{
    struct place p = place_begin();
    size_t len = PATH_BYTES_MAX + 1;
    char *text = malloc(len);
    CU_ASSERT_PTR_NOT_NULL_FATAL(text);
    memset(text, 'a', len);
    const struct {
        struct blob path;
        int rc;
    } table[] = {
        {blob_of("src\0/file", 9), -EINVAL},
        {blob_of("\0", 1), -EINVAL},
        {blob_of(text, len), -EINVAL},
        {blob_of(text, len - 1), -ENAMETOOLONG},
        {blob_of(text, NAME_BYTES_MAX + 1), -ENAMETOOLONG},
        {blob_of(text, NAME_BYTES_MAX), -ENOENT},
    };
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        for (int rooted = 0; rooted < 2; rooted++) {
            struct walk_source out;
            struct source_found found;
            struct err err = {.class = ERR_NONE};
            int rc = agent_open_source(config_of(&p, rooted), &table[i].path, &out, &found, &err);
            CU_ASSERT_EQUAL(rc, table[i].rc);
            CU_ASSERT(out.fd == -1 && err.class == ERR_START);
        }
    }
    free(text);
    place_end(&p);
}

// ---- destination ----

static const struct source_found a_file = {.type = ENTRY_FILE, .name = "one"},
                                 other_file = {.type = ENTRY_FILE, .name = "two"},
                                 a_link = {.type = ENTRY_SYMLINK, .name = "one"},
                                 a_dir = {.type = ENTRY_DIR, .name = "one"},
                                 some_contents = {.type = ENTRY_DIR, .contents = true};

static const struct dest_row {
    const char *path;
    const struct source_found *sources[2];
    int rc, rooted;
    const char *root;     // the directory that receives
    const char *names[2]; // where each source goes beneath it
} dest_rows[] = {
    // one file: to a new name, or into a directory
    {"dst/new", {&a_file}, 0, 0, "dst", {"new"}},
    {"dst/file", {&a_file}, 0, 0, "dst", {"file"}},
    {"dst/existing", {&a_file}, 0, 0, "dst/existing", {"one"}},
    {"dst/existing/", {&a_file}, 0, 0, "dst/existing", {"one"}},
    {"dst/existing/.", {&a_file}, 0, 0, "dst/existing", {"one"}},
    {"dst/new/", {&a_file}, 0, 0, "dst/new", {"one"}},
    {"dst/new//", {&a_file}, 0, 0, "dst/new", {"one"}},
    {"dst/existing/new", {&a_file}, 0, 0, "dst/existing", {"new"}},
    {"dst/file/", {&a_file}, -ENOTDIR, -ENOTDIR, NULL, {0}},
    {"dst/none/new", {&a_file}, -ENOENT, -ENOENT, NULL, {0}},
    {"dst/none/new/", {&a_file}, -ENOENT, -ENOENT, NULL, {0}},
    {"new", {&a_file}, 0, 0, ".", {"new"}},
    {"", {&a_file}, 0, 0, ".", {"one"}},
    {".", {&a_file}, 0, 0, ".", {"one"}},
    // a link is copied like a file
    {"dst/new", {&a_link}, 0, 0, "dst", {"new"}},
    {"dst/existing", {&a_link}, 0, 0, "dst/existing", {"one"}},
    // a directory goes into it, its contents become it
    {"dst/new", {&a_dir}, 0, 0, "dst/new", {"one"}},
    {"dst/new/", {&a_dir}, 0, 0, "dst/new", {"one"}},
    {"dst/existing", {&a_dir}, 0, 0, "dst/existing", {"one"}},
    {"dst/new", {&some_contents}, 0, 0, "dst/new", {""}},
    {"dst/existing", {&some_contents}, 0, 0, "dst/existing", {""}},
    {"dst/file", {&a_dir}, -ENOTDIR, -ENOTDIR, NULL, {0}},
    {"dst/file", {&some_contents}, -ENOTDIR, -ENOTDIR, NULL, {0}},
    {"dst/none/new", {&a_dir}, -ENOENT, -ENOENT, NULL, {0}},
    // several always go into a directory
    {"dst/new", {&a_file, &other_file}, 0, 0, "dst/new", {"one", "two"}},
    {"dst/existing", {&other_file, &a_dir}, 0, 0, "dst/existing", {"two", "one"}},
    {"dst/file", {&a_file, &other_file}, -ENOTDIR, -ENOTDIR, NULL, {0}},
    // which may be named by a link, unless there is a root
    {"dst/tolink", {&a_dir}, 0, -ELOOP, "dst/existing", {"one"}},
    {"dst/tolink/", {&a_file}, 0, -ELOOP, "dst/existing", {"one"}},
    {"dst/tolink/new", {&a_file}, 0, -ELOOP, "dst/existing", {"new"}},
    {"dst/tolink/new", {&a_dir}, 0, -ELOOP, "dst/existing/new", {"one"}},
    // and never leaves it
    {"dst/../dst", {&a_dir}, 0, -EACCES, "dst", {"one"}},
    {"dst/existing/..", {&a_dir}, 0, -EACCES, "dst", {"one"}},
    {"dst/../new", {&a_file}, 0, -EACCES, ".", {"new"}},
};

static void check_shown(const struct place *p, const char *root, const char *shown)
{
    char path[700], real[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", p->s.path, root);
    CU_ASSERT_PTR_NOT_NULL_FATAL(realpath(path, real));
    CU_ASSERT_STRING_EQUAL(shown, real);
}

static void check_dest(const struct dest_row *row, bool rooted)
{
    struct place p = place_begin();
    struct source_found sources[2] = {*row->sources[0]};
    uint32_t count = row->sources[1] != NULL ? 2 : 1;
    if (count == 2)
        sources[1] = *row->sources[1];
    struct blob path = blob_text(row->path);
    char *names[2] = {0}, *shown = NULL, *where = NULL;
    struct err err = {.class = ERR_NONE};
    int fd = agent_open_dest(config_of(&p, rooted), &path, sources, count, true, names, &shown, &where, &err);
    int rc = rooted ? row->rooted : row->rc;
    if (fd != rc && (fd < 0 || rc < 0))
        fprintf(stderr, "  %s%s: %d\n", row->path, rooted ? " beneath a root" : "", fd);
    if (rc < 0) {
        CU_ASSERT_EQUAL(fd, rc);
        CU_ASSERT(err.class == ERR_START && err.os == -rc && shown == NULL && where == NULL);
        CU_ASSERT_STRING_EQUAL(err.path, row->path);
    } else {
        struct stat root, got;
        CU_ASSERT_FATAL(fd >= 0);
        CU_ASSERT(fstatat(p.s.fd, row->root, &root, 0) == 0 && S_ISDIR(root.st_mode));
        CU_ASSERT(fstat(fd, &got) == 0 && got.st_ino == root.st_ino);
        check_shown(&p, row->root, shown);
        CU_ASSERT_STRING_EQUAL(where, rooted ? row->root : shown); // so it can be opened again
        for (uint32_t i = 0; i < count; i++)
            CU_ASSERT_STRING_EQUAL(names[i], row->names[i]);
        close(fd);
    }
    free(names[0]);
    free(names[1]);
    free(shown);
    free(where);
    place_end(&p);
}

static void test_dest(void)
{
    for (size_t i = 0; i < ARRAY_LEN(dest_rows); i++) {
        check_dest(&dest_rows[i], false);
        check_dest(&dest_rows[i], true);
    }
}

// A link in the place of a file's new name is replaced by the file, not followed out of the root.
static void test_dest_link_replaced(void)
{
    static const struct dest_row row = {"dst/tolink", {&a_file}, 0, 0, "dst", {"tolink"}};
    check_dest(&row, true);
}

// Results that are no directory: -errno, with the class that the words have.
static int try_dest(struct place *p, const struct blob *path, const struct source_found *sources,
                    uint32_t count, bool same_host, struct err *err)
{
    char *names[3] = {0}, *shown = NULL, *where = NULL;
    *err = (struct err){.class = ERR_NONE};
    int fd =
        agent_open_dest(config_of(p, false), path, sources, count, same_host, names, &shown, &where, err);
    for (uint32_t i = 0; i < 3; i++)
        free(names[i]);
    free(shown);
    free(where);
    if (fd >= 0)
        close(fd);
    return fd;
}

static void test_dest_no_path(void)
{
    struct place p = place_begin();
    struct err err;
    const struct blob paths[] = {{0}, blob_of("dst\0x", 5)};
    for (size_t i = 0; i < ARRAY_LEN(paths); i++) {
        CU_ASSERT_EQUAL(try_dest(&p, &paths[i], &a_dir, 1, true, &err), -EINVAL);
        CU_ASSERT_EQUAL(err.class, ERR_START);
    }
    place_end(&p);
}

// Two sources that would become one entry.
static void test_dest_twice(void)
{
    static const struct {
        struct source_found sources[3];
        uint32_t count;
    } table[] = {
        {{{.type = ENTRY_FILE, .name = "a"}, {.type = ENTRY_DIR, .name = "a"}}, 2},
        {{{.type = ENTRY_FILE, .name = "a"},
          {.type = ENTRY_FILE, .name = "b"},
          {.type = ENTRY_FILE, .name = "a"}},
         3},
        {{{.type = ENTRY_DIR, .contents = true}, {.type = ENTRY_DIR, .contents = true}}, 2},
        {{{.type = ENTRY_FILE, .name = "a"}, {.type = ENTRY_DIR, .contents = true}}, 2},
    };
    struct place p = place_begin();
    struct blob path = blob_text("dst/existing");
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        struct err err;
        CU_ASSERT_EQUAL(try_dest(&p, &path, table[i].sources, table[i].count, true, &err), -EEXIST);
        CU_ASSERT_EQUAL(err.class, ERR_USAGE);
    }
    place_end(&p);
}

// A destination that is, or lies beneath, one of the sources; known only on the same host.
static void test_dest_inside(void)
{
    static const struct {
        const char *path;
        bool inside;
    } table[] = {
        {"src/dir", true},     {"src/dir/", true},           {"src/dir/sub", true}, {"src/dir/sub/new", true},
        {"src/dir/new", true}, {"src/dirlink/sub", true},    {"src", false},        {"dst", false},
        {"dst/new", false},    {"src/dir/../../dst", false},
    };
    struct place p = place_begin();
    struct stat dir, file;
    CU_ASSERT_EQUAL(fstatat(p.s.fd, "src/dir", &dir, 0), 0);
    CU_ASSERT_EQUAL(fstatat(p.s.fd, "src/dir/inner", &file, 0), 0);
    struct source_found sources[] = {
        {.type = ENTRY_FILE, .name = "inner", .dev = file.st_dev, .inode = file.st_ino},
        {.type = ENTRY_DIR, .name = "dir", .dev = dir.st_dev, .inode = dir.st_ino},
        {.type = ENTRY_DIR, .name = "far", .dev = dir.st_dev + 1, .inode = dir.st_ino},
    };
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        struct blob path = blob_text(table[i].path);
        struct err err;
        int fd = try_dest(&p, &path, sources, 3, true, &err);
        CU_ASSERT_EQUAL(fd < 0, table[i].inside);
        if (table[i].inside) {
            CU_ASSERT(fd == -EINVAL && err.class == ERR_USAGE);
            CU_ASSERT_EQUAL(faccessat(p.s.fd, "src/dir/new", F_OK, 0), -1); // nothing was made in the source
            CU_ASSERT_EQUAL(faccessat(p.s.fd, "src/dir/sub/new", F_OK, 0), -1);
            CU_ASSERT_PTR_NOT_NULL(strstr(err.text, "source dir"));
        }
        CU_ASSERT(try_dest(&p, &path, sources, 3, false, &err) >= 0); // the same numbers mean nothing there
        CU_ASSERT(try_dest(&p, &path, &sources[2], 1, true, &err) >= 0);
        if (strstr(table[i].path, "new") != NULL) // what was made
            CU_ASSERT_EQUAL(unlinkat(p.s.fd, table[i].path, AT_REMOVEDIR), 0);
    }
    // Numbers of what is no directory mean nothing either.
    struct source_found file_there = sources[1];
    file_there.type = ENTRY_FILE;
    struct blob there = blob_text("src/dir/sub");
    struct err none;
    CU_ASSERT(try_dest(&p, &there, &file_there, 1, true, &none) >= 0);
    // Contents have no name.
    struct source_found contents = sources[1];
    contents.contents = true;
    contents.name[0] = '\0';
    struct blob path = blob_text("src/dir/sub");
    struct err err;
    CU_ASSERT_EQUAL(try_dest(&p, &path, &contents, 1, true, &err), -EINVAL);
    CU_ASSERT_PTR_NOT_NULL(strstr(err.text, "source directory"));
    place_end(&p);
}

static void test_folder(void)
{
    static const struct {
        const char *path;
        int rc, rooted;
        const char *same;
    } table[] = {
        {"dst/existing", 0, 0, "dst/existing"},
        {"dst/existing/", 0, 0, "dst/existing"},
        {"", 0, 0, "."},
        {"dst/tolink", 0, -ELOOP, "dst/existing"},
        {"dst/file", -ENOTDIR, -ENOTDIR, NULL},
        {"dst/none", -ENOENT, -ENOENT, NULL},
        {"dst/../dst", 0, -EACCES, "dst"},
    };
    struct place p = place_begin();
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        for (int rooted = 0; rooted < 2; rooted++) {
            struct blob path = blob_text(table[i].path);
            struct err err = {.class = ERR_NONE};
            char *shown = NULL;
            int rc = rooted ? table[i].rooted : table[i].rc;
            int fd = agent_open_folder(config_of(&p, rooted), &path, &shown, &err);
            CU_ASSERT(rc < 0 ? fd == rc && err.os == -rc && shown == NULL : fd >= 0);
            if (fd < 0)
                continue;
            check_shown(&p, table[i].same, shown);
            free(shown);
            close(fd);
        }
    }
    CU_ASSERT_EQUAL(faccessat(p.s.fd, "dst/none", F_OK, 0), -1);
    place_end(&p);
}

void suite_agent_open(void)
{
    CU_pSuite s = CU_add_suite("agent_open", NULL, NULL);
    CU_add_test(s, "sources", test_sources);
    CU_add_test(s, "source_absolute", test_source_absolute);
    CU_add_test(s, "source_no_path", test_source_no_path);
    CU_add_test(s, "dest", test_dest);
    CU_add_test(s, "dest_link_replaced", test_dest_link_replaced);
    CU_add_test(s, "dest_no_path", test_dest_no_path);
    CU_add_test(s, "dest_twice", test_dest_twice);
    CU_add_test(s, "dest_inside", test_dest_inside);
    CU_add_test(s, "folder", test_folder);
}
