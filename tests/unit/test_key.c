#include "mover/key.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <CUnit/CUnit.h>

#include "storage/sys.h"
#include "tests/unit/scratch.h"

#define SECRET_A "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"
#define SECRET_B "FFfefdfcfbfaf9f8f7f6f5f4f3f2f1f0efeeedecebeae9e8e7e6e5e4e3e2e1e0"

static void file_write(const char *path, const void *bytes, size_t len, mode_t mode)
{
    FILE *f = fopen(path, "we");
    CU_ASSERT_PTR_NOT_NULL_FATAL(f);
    CU_ASSERT_EQUAL(fwrite(bytes, 1, len, f), len);
    CU_ASSERT_EQUAL(fclose(f), 0);
    CU_ASSERT_EQUAL(chmod(path, mode), 0);
}

static void path_of(const struct scratch *dir, const char *name, char out[4096])
{
    snprintf(out, 4096, "%s/%s", dir->path, name);
}

// Loads a file with these bytes; the ring is empty when it was refused.
static int load_bytes(const void *bytes, size_t len, struct key_ring *ring, struct err *err)
{
    struct scratch dir = scratch_begin();
    char path[4096];
    path_of(&dir, "keys", path);
    file_write(path, bytes, len, 0600);
    *ring = (struct key_ring){0};
    int rc = key_ring_load(path, ring, err);
    scratch_end(&dir);
    return rc;
}

static int load_text(const char *text, struct key_ring *ring, struct err *err)
{
    return load_bytes(text, strlen(text), ring, err);
}

static void test_good_lines(void)
{
    static const char *const texts[] = {
        "one " SECRET_A "\ntwo " SECRET_B "\n",
        "one " SECRET_A "\ntwo " SECRET_B,                                      // no last newline
        "# keys\n\n  one\t" SECRET_A "  # the first\n\t\ntwo   " SECRET_B "\n", // comments and blanks
        "one " SECRET_A "\r\ntwo " SECRET_B "\r\n",
    };
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        struct key_ring ring;
        struct err err;
        CU_ASSERT_EQUAL_FATAL(load_text(texts[i], &ring, &err), 0);
        CU_ASSERT_EQUAL_FATAL(ring.count, 2);
        CU_ASSERT_STRING_EQUAL(ring.keys[0].name, "one");
        CU_ASSERT_EQUAL(ring.keys[0].secret.bytes[31], 0x1f);
        CU_ASSERT_STRING_EQUAL(ring.keys[1].name, "two");
        CU_ASSERT_EQUAL(ring.keys[1].secret.bytes[0], 0xff);
        CU_ASSERT_EQUAL(ring.keys[1].secret.bytes[31], 0xe0);
        key_ring_free(&ring);
        CU_ASSERT_PTR_NULL(ring.keys);
    }
}

static void test_malformed_lines(void)
{
    static const struct {
        const char *text, *line;
    } cases[] = {
        {"one\n", "line 1:"},
        {"one " SECRET_A "\ntwo\n", "line 2:"},
        {"# \n\none " SECRET_A "0\n", "line 3:"}, // a digit too many
        {"one " SECRET_A "\n\ntwo "
         "0102"
         "\n",
         "line 3:"}, // too few
        {"one g"
         "00102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\n",
         "line 1:"},
        {"o/e " SECRET_A "\n", "line 1:"},
        {"\xef\xbb\xbfone " SECRET_A "\n", "line 1:"}, // a byte order mark
        {"one " SECRET_A " more\n", "line 1:"},
        {"one " SECRET_A "\ntwo " SECRET_B "\none " SECRET_B "\n", "line 3:"}, // doubled
        {"one\r " SECRET_A "\n", "line 1:"},
        {"12345678901234567890123456789012345678901234567890123456789012345 " SECRET_A "\n", "line 1:"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct key_ring ring;
        struct err err = {0};
        CU_ASSERT_EQUAL(load_text(cases[i].text, &ring, &err), -EINVAL);
        CU_ASSERT_EQUAL(err.class, ERR_USAGE);
        CU_ASSERT_EQUAL(strncmp(err.text, cases[i].line, strlen(cases[i].line)), 0);
        CU_ASSERT_PTR_NULL(strstr(err.text, "0a0b0c")); // no secret is told
        CU_ASSERT_PTR_NULL(ring.keys);
    }
}

static void test_name_of_64(void)
{
    struct key_ring ring;
    struct err err;
    static const char name[] = "1234567890123456789012345678901234567890123456789012345678AZaz._";
    CU_ASSERT_EQUAL(strlen(name), 64);
    char text[256];
    snprintf(text, sizeof(text), "%s %s\n", name, SECRET_A);
    CU_ASSERT_EQUAL_FATAL(load_text(text, &ring, &err), 0);
    CU_ASSERT_PTR_NOT_NULL(key_ring_find(&ring, name, 64));
    CU_ASSERT_PTR_NULL(key_ring_find(&ring, name, 63));
    key_ring_free(&ring);
}

static void test_empty_file(void)
{
    static const char *const texts[] = {"", "\n", "# only words\n"};
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        struct key_ring ring;
        struct err err;
        CU_ASSERT_EQUAL(load_text(texts[i], &ring, &err), -EINVAL);
        CU_ASSERT_EQUAL(err.class, ERR_USAGE);
    }
}

static void test_long_line(void)
{
    struct key_ring ring;
    struct err err;
    size_t len = 1 << 20;
    char *bytes = malloc(len + 5);
    CU_ASSERT_PTR_NOT_NULL_FATAL(bytes);
    memset(bytes, 'a', len);
    CU_ASSERT_EQUAL(load_bytes(bytes, len, &ring, &err), -EINVAL);
    CU_ASSERT_EQUAL(strncmp(err.text, "line 1:", 7), 0);
    memset(bytes, 0, len); // an image of zeros
    CU_ASSERT_EQUAL(load_bytes(bytes, len, &ring, &err), -EINVAL);
    memset(bytes, '\n', len);
    memcpy(bytes + len, "x 1\n", 4);
    CU_ASSERT_EQUAL(load_bytes(bytes, len + 4, &ring, &err), -EINVAL);
    CU_ASSERT_EQUAL(strncmp(err.text, "line 1048577:", 13), 0);
    free(bytes);
}

static void test_modes(void)
{
    static const struct {
        mode_t mode;
        int rc;
    } cases[] = {{0600, 0},       {0400, 0},       {0700, 0},       {0640, -EACCES}, {0604, -EACCES},
                 {0660, -EACCES}, {0610, -EACCES}, {0601, -EACCES}, {0620, -EACCES}, {0602, -EACCES}};
    struct scratch dir = scratch_begin();
    char path[4096];
    path_of(&dir, "keys", path);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct key_ring ring;
        struct err err;
        unlink(path);
        file_write(path, "one " SECRET_A "\n", 69, cases[i].mode);
        CU_ASSERT_EQUAL(key_ring_load(path, &ring, &err), cases[i].rc);
        if (cases[i].rc == 0)
            key_ring_free(&ring);
        else
            CU_ASSERT_EQUAL(err.class, ERR_START);
    }
    scratch_end(&dir);
}

static void test_not_a_file(void)
{
    struct scratch dir = scratch_begin();
    char path[4096], link[4096], fifo[4096], huge[4096];
    struct key_ring ring;
    struct err err;
    path_of(&dir, "keys", path);
    path_of(&dir, "link", link);
    path_of(&dir, "fifo", fifo);
    path_of(&dir, "huge", huge);
    file_write(path, "one " SECRET_A "\n", 69, 0600);
    CU_ASSERT_EQUAL(symlink("keys", link), 0);
    CU_ASSERT_EQUAL(mkfifo(fifo, 0600), 0);
    file_write(huge, "", 0, 0600);
    CU_ASSERT_EQUAL(truncate(huge, 1 << 30), 0);
    CU_ASSERT_EQUAL(key_ring_load(link, &ring, &err), -ELOOP);
    CU_ASSERT_EQUAL(key_ring_load(fifo, &ring, &err), -EACCES); // and does not wait for a writer
    CU_ASSERT_EQUAL(key_ring_load(huge, &ring, &err), -EACCES);
    CU_ASSERT_EQUAL(key_ring_load(dir.path, &ring, &err), -EACCES);
    path_of(&dir, "missing", path);
    CU_ASSERT_EQUAL(key_ring_load(path, &ring, &err), -ENOENT);
    CU_ASSERT_EQUAL(err.class, ERR_START);
    CU_ASSERT_PTR_NOT_NULL(strstr(err.path, "missing"));
    scratch_end(&dir);
}

static void test_owner(void)
{
    struct scratch dir = scratch_begin();
    char path[4096];
    struct key_ring ring;
    struct err err;
    path_of(&dir, "keys", path);
    file_write(path, "one " SECRET_A "\n", 69, 0600);
    if (geteuid() ==
        0) { // only root can give a file away, or read one of somebody else that is as it should be
        CU_ASSERT_EQUAL(chown(path, 12345, 12345), 0);
        CU_ASSERT_EQUAL(key_ring_load(path, &ring, &err), -EACCES);
        CU_ASSERT_PTR_NOT_NULL(strstr(err.text, "another user"));
    }
    CU_ASSERT_EQUAL(key_ring_load("/etc/passwd", &ring, &err), -EACCES);
    CU_ASSERT_PTR_NOT_NULL(strstr(err.text, "group or others")); // root may own it
    scratch_end(&dir);
}

static void test_lookup(void)
{
    struct key_ring ring;
    struct err err;
    CU_ASSERT_EQUAL_FATAL(load_text("one " SECRET_A "\n", &ring, &err), 0);
    CU_ASSERT_PTR_EQUAL(key_ring_for_host(&ring, "one"), &ring.keys[0]);
    CU_ASSERT_PTR_EQUAL(key_ring_for_host(&ring, "elsewhere"), &ring.keys[0]); // the only line
    CU_ASSERT_PTR_NULL(key_ring_find(&ring, "on", 2));
    CU_ASSERT_PTR_NULL(key_ring_find(&ring, "one\0", 4));
    key_ring_free(&ring);
    CU_ASSERT_EQUAL_FATAL(load_text("one " SECRET_A "\ntwo " SECRET_B "\n", &ring, &err), 0);
    CU_ASSERT_PTR_EQUAL(key_ring_for_host(&ring, "two"), &ring.keys[1]);
    CU_ASSERT_PTR_NULL(key_ring_for_host(&ring, "elsewhere"));
    key_ring_free(&ring);
    key_ring_free(NULL);
}

// Many keys: none is lost when the ring grows.
static void test_many_keys(void)
{
    struct key_ring ring;
    struct err err;
    size_t len = 0, cap = 100 * 80;
    char *text = malloc(cap);
    CU_ASSERT_PTR_NOT_NULL_FATAL(text);
    for (int i = 0; i < 100; i++)
        len += (size_t)snprintf(text + len, cap - len, "k%02d %s\n", i, i % 2 ? SECRET_A : SECRET_B);
    CU_ASSERT_EQUAL_FATAL(load_bytes(text, len, &ring, &err), 0);
    CU_ASSERT_EQUAL(ring.count, 100);
    for (int i = 0; i < 100; i++) {
        char name[16];
        snprintf(name, sizeof(name), "k%02d", i);
        const struct key *key = key_ring_find(&ring, name, strlen(name));
        CU_ASSERT_PTR_NOT_NULL_FATAL(key);
        CU_ASSERT_EQUAL(key->secret.bytes[0], i % 2 ? 0x00 : 0xff);
    }
    key_ring_free(&ring);
    free(text);
}

static void test_make_then_load(void)
{
    struct scratch dir = scratch_begin();
    char path[2][4096];
    struct key_ring ring[2];
    struct err err;
    struct stat st;
    mode_t umask_before = umask(0277); // takes even the owner's write bit
    for (int i = 0; i < 2; i++) {
        path_of(&dir, i == 0 ? "one" : "two", path[i]);
        CU_ASSERT_EQUAL_FATAL(key_file_make(path[i], &err), 0);
        CU_ASSERT_EQUAL(stat(path[i], &st), 0);
        CU_ASSERT_EQUAL(st.st_mode & 07777, 0600);
        CU_ASSERT_EQUAL_FATAL(key_ring_load(path[i], &ring[i], &err), 0);
        CU_ASSERT_EQUAL(ring[i].count, 1);
    }
    umask(umask_before);
    CU_ASSERT_NOT_EQUAL(strcmp(ring[0].keys[0].name, ring[1].keys[0].name), 0);
    CU_ASSERT_NOT_EQUAL(memcmp(&ring[0].keys[0].secret, &ring[1].keys[0].secret, SECRET_BYTES), 0);
    // The first stays as it is.
    struct key_ring again;
    CU_ASSERT_EQUAL(key_file_make(path[0], &err), -EEXIST);
    CU_ASSERT_EQUAL(err.class, ERR_START);
    CU_ASSERT_EQUAL_FATAL(key_ring_load(path[0], &again, &err), 0);
    CU_ASSERT_EQUAL(memcmp(&again.keys[0], &ring[0].keys[0], sizeof(struct key)), 0);
    key_ring_free(&again);
    key_ring_free(&ring[0]);
    key_ring_free(&ring[1]);
    scratch_end(&dir);
}

static void test_make_refused(void)
{
    struct scratch dir = scratch_begin();
    char path[4096], target[4096];
    struct err err;
    path_of(&dir, "none/key", path);
    CU_ASSERT_EQUAL(key_file_make(path, &err), -ENOENT);
    path_of(&dir, "link", path);
    path_of(&dir, "target", target);
    CU_ASSERT_EQUAL(symlink("target", path), 0);
    CU_ASSERT_EQUAL(key_file_make(path, &err), -EEXIST);
    CU_ASSERT_EQUAL(access(target, F_OK), -1);
    scratch_end(&dir);
}

void suite_key(void)
{
    CU_pSuite suite = CU_add_suite("key", NULL, NULL);
    CU_add_test(suite, "good_lines", test_good_lines);
    CU_add_test(suite, "malformed_lines", test_malformed_lines);
    CU_add_test(suite, "name_of_64", test_name_of_64);
    CU_add_test(suite, "empty_file", test_empty_file);
    CU_add_test(suite, "long_line", test_long_line);
    CU_add_test(suite, "modes", test_modes);
    CU_add_test(suite, "not_a_file", test_not_a_file);
    CU_add_test(suite, "owner", test_owner);
    CU_add_test(suite, "lookup", test_lookup);
    CU_add_test(suite, "many_keys", test_many_keys);
    CU_add_test(suite, "make_then_load", test_make_then_load);
    CU_add_test(suite, "make_refused", test_make_refused);
}
