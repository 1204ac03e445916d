// The manifest: what is said comes over byte for byte; what cannot be said is refused at both ends.
#include <CUnit/CUnit.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "proto/wire.h"
#include "tests/unit/tree.h"

enum { HEAD = 24, FIXED = 60 }; // bytes of a segment's head, and of an entry without the text of its path

static void check_same(const struct entry *a, const struct entry *b)
{
    CU_ASSERT_EQUAL(a->type, b->type);
    CU_ASSERT_EQUAL(a->root, b->root);
    CU_ASSERT_EQUAL(a->mode, b->mode);
    CU_ASSERT_EQUAL(a->uid, b->uid);
    CU_ASSERT_EQUAL(a->gid, b->gid);
    CU_ASSERT_TRUE(entry_same_version(a, b));
    CU_ASSERT_EQUAL_FATAL(a->path_len, b->path_len);
    CU_ASSERT_EQUAL(memcmp(a->path, b->path, a->path_len), 0);
    CU_ASSERT_EQUAL_FATAL(a->target_len, b->target_len);
    CU_ASSERT_TRUE(a->target_len == 0 || memcmp(a->target, b->target, a->target_len) == 0);
    CU_ASSERT_EQUAL(a->sparse, b->sparse);
    CU_ASSERT_EQUAL_FATAL(a->data_count, b->data_count);
    CU_ASSERT_TRUE(a->data_count == 0 || memcmp(a->data, b->data, a->data_count * sizeof(*a->data)) == 0);
}

static void test_bytes(void)
{
    static const struct range data[] = {{4096, 904}};
    const struct entry e = {
        .type = ENTRY_FILE,
        .root = 0x00fe,
        .mode = 0640,
        .uid = 0x11223344,
        .gid = 5,
        .size = 5000,
        .mtime = {-2, 3},
        .ctime = {4, 999999999},
        .inode = 0x1122334455667788,
        .path = (const uint8_t *)"a/b",
        .path_len = 3,
        .sparse = true,
        .data = data,
        .data_count = 1,
    };
    static const uint8_t expected[] = {
        'P',  'S',  'K',  'M',  1,    0,    0,    0,    9,    0, 0, 0, 0, 0, 0, 0, // magic, entries, number
        1,    0,    0,    0,    0,    0,    0,    0,                               // last
        2,    1,    0xfe, 0,    0xa0, 1,    0,    0,                               // file, sparse, root, mode
        0x44, 0x33, 0x22, 0x11, 5,    0,    0,    0,                               // uid, gid
        0x88, 0x13, 0,    0,    0,    0,    0,    0,                               // size
        0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,                            // mtime s
        3,    0,    0,    0,    0xff, 0xc9, 0x9a, 0x3b,                            // mtime ns, ctime ns
        4,    0,    0,    0,    0,    0,    0,    0,                               // ctime s
        0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11,                            // inode
        3,    0,    0,    0,    'a',  '/',  'b',                                   // path
        1,    0,    0,    0,                                                       // one range
        0,    0x10, 0,    0,    0,    0,    0,    0,    0x88, 3, 0, 0, 0, 0, 0, 0,
    };
    struct segment_builder *b = segment_builder_new();
    CU_ASSERT_PTR_NOT_NULL_FATAL(b);
    segment_builder_begin(b, 9);
    CU_ASSERT_EQUAL_FATAL(segment_builder_add(b, &e), 0);
    size_t len;
    const uint8_t *bytes = segment_builder_end(b, true, &len);
    CU_ASSERT_EQUAL_FATAL(len, sizeof(expected));
    CU_ASSERT_EQUAL(memcmp(bytes, expected, len), 0);
    struct segment *s = NULL;
    CU_ASSERT_EQUAL_FATAL(segment_decode(bytes, len, &s), 0);
    struct digest d = digest_of(expected, sizeof(expected));
    CU_ASSERT_TRUE(digest_equal(&s->digest, &d));
    CU_ASSERT_EQUAL(s->number, 9);
    CU_ASSERT_TRUE(s->last);
    check_same(&s->entries[0], &e);
    segment_free(s);
    segment_builder_free(b);
}

static void test_round_trip(void)
{
    static const struct range data[] = {{0, 8192}, {3 * MIB, 4096}, {5 * MIB - 4096, 4099}};
    struct entry entries[] = {
        tree_file("d/e/child before its parent", 17),
        tree_dir("d"),
        tree_dir(""),
        tree_dir("d/e"),
        tree_link("d/link", "/any/where/../x"),
        tree_file("empty", 0),
        tree_file("\xff\xfe\n \\", 1),
        tree_file("large", 3 * MIB),
        tree_sparse("sparse", 5 * MIB + 3, data, ARRAY_LEN(data)),
        tree_sparse("all hole", FILE_BYTES_MAX, NULL, 0),
        tree_sparse("empty and sparse", 0, NULL, 0),
    };
    entries[0].root = SOURCES_MAX - 1;
    entries[1].mode = 07777;
    entries[3].mtime = (struct entry_time){INT64_MIN, 0};
    entries[4].ctime = (struct entry_time){INT64_MAX, 999999999};
    entries[5].inode = UINT64_MAX;
    entries[6].uid = entries[6].gid = UINT32_MAX;
    struct segment *s = tree_segment(UINT64_MAX, entries, ARRAY_LEN(entries));
    CU_ASSERT_EQUAL(s->number, UINT64_MAX);
    CU_ASSERT_FALSE(s->last);
    CU_ASSERT_EQUAL_FATAL(s->entry_count, ARRAY_LEN(entries));
    for (uint32_t i = 0; i < s->entry_count; i++)
        check_same(&s->entries[i], &entries[i]);
    segment_free(s);
}

static void test_no_entries(void)
{
    struct segment *s = tree_segment(3, NULL, 0);
    CU_ASSERT_EQUAL(s->entry_count, 0);
    segment_free(s);
    segment_free(NULL);
    segment_builder_free(NULL);
}

static void test_owns_its_bytes(void)
{
    const struct entry e = tree_link("name", "target");
    size_t len;
    uint8_t *bytes = tree_encode(1, &e, 1, &len);
    struct segment *s = NULL;
    CU_ASSERT_EQUAL_FATAL(segment_decode(bytes, len, &s), 0);
    memset(bytes, 0xaa, len);
    free(bytes);
    check_same(&s->entries[0], &e);
    segment_free(s);
}

static void test_paths(void)
{
    static const struct {
        const char *path;
        size_t len;
        bool safe;
    } table[] = {
        {"a", 1, true},           {"a/b/c", 5, true},      {"...", 3, true},
        {"..a/b..", 7, true},     {".a", 2, true},         {"a/.penstock", 11, false},
        {".penstockx", 10, true}, {".penstoc", 8, true},   {"\xff\x01\n", 3, true},
        {"", 0, false},           {"/", 1, false},         {"/etc/passwd", 11, false},
        {"a/", 2, false},         {"a//b", 4, false},      {"//", 2, false},
        {".", 1, false},          {"..", 2, false},        {"./a", 3, false},
        {"a/.", 3, false},        {"a/./b", 5, false},     {"../a", 4, false},
        {"a/../b", 6, false},     {"a/..", 4, false},      {"a\0b", 3, false},
        {"a\0", 2, false},        {".penstock", 9, false}, {".penstock/journal", 17, false},
    };
    for (size_t i = 0; i < ARRAY_LEN(table); i++)
        CU_ASSERT_EQUAL(manifest_path_safe(table[i].path, table[i].len), table[i].safe);
}

static void test_path_lengths(void)
{
    char *path = malloc(PATH_BYTES_MAX + 2);
    CU_ASSERT_PTR_NOT_NULL_FATAL(path);
    memset(path, 'n', PATH_BYTES_MAX + 2);
    CU_ASSERT_TRUE(manifest_path_safe(path, NAME_BYTES_MAX));
    CU_ASSERT_FALSE(manifest_path_safe(path, NAME_BYTES_MAX + 1));
    path[NAME_BYTES_MAX] = '/';
    CU_ASSERT_TRUE(manifest_path_safe(path, 2 * NAME_BYTES_MAX + 1));
    CU_ASSERT_FALSE(manifest_path_safe(path, 2 * NAME_BYTES_MAX + 2));
    for (size_t i = 1; i < PATH_BYTES_MAX; i += 2)
        path[i] = '/';
    path[NAME_BYTES_MAX] = path[PATH_BYTES_MAX] = 'n';
    path[PATH_BYTES_MAX - 1] = 'n';
    CU_ASSERT_TRUE(manifest_path_safe(path, PATH_BYTES_MAX));
    CU_ASSERT_FALSE(manifest_path_safe(path, PATH_BYTES_MAX + 1));
    free(path);
}

// An entry as the format lays it down, whatever it says.
static void put_entry(struct wire_writer *w, const struct entry *e, uint8_t flags)
{
    wire_put_u8(w, (uint8_t)e->type);
    wire_put_u8(w, flags);
    wire_put_u16(w, e->root);
    wire_put_u32(w, e->mode);
    wire_put_u32(w, e->uid);
    wire_put_u32(w, e->gid);
    wire_put_u64(w, e->size);
    wire_put_u64(w, (uint64_t)e->mtime.s);
    wire_put_u32(w, e->mtime.ns);
    wire_put_u32(w, e->ctime.ns);
    wire_put_u64(w, (uint64_t)e->ctime.s);
    wire_put_u64(w, e->inode);
    wire_put_blob(w, e->path, e->path_len);
    if (e->type == ENTRY_SYMLINK)
        wire_put_blob(w, e->target, e->target_len);
    if ((flags & 1) == 0)
        return;
    wire_put_u32(w, e->data_count);
    for (uint32_t i = 0; i < e->data_count; i++) {
        wire_put_u64(w, e->data[i].offset);
        wire_put_u64(w, e->data[i].len);
    }
}

// A whole segment of entries as they are.
static int64_t put_segment(uint8_t *out, const struct entry *entries, uint32_t count)
{
    struct wire_writer w;
    wire_writer_init(&w, out, SEGMENT_BYTES_MAX);
    wire_put_bytes(&w, "PSKM", 4);
    wire_put_u32(&w, count);
    wire_put_u64(&w, 0);
    wire_put_zeros(&w, 8);
    for (uint32_t i = 0; i < count; i++)
        put_entry(&w, &entries[i], entries[i].sparse);
    return wire_written(&w);
}

// What decoding a segment of these entries, encoded without a look at them, leads to.
static int decode_raw(const struct entry *entries, uint32_t count)
{
    uint8_t *bytes = malloc(SEGMENT_BYTES_MAX);
    CU_ASSERT_PTR_NOT_NULL_FATAL(bytes);
    int64_t len = put_segment(bytes, entries, count);
    CU_ASSERT_FATAL(len > 0);
    struct segment *s = NULL;
    int rc = segment_decode(bytes, (size_t)len, &s);
    CU_ASSERT_EQUAL(rc == 0, s != NULL);
    segment_free(s);
    free(bytes);
    return rc;
}

// Both ends judge an entry alike.
static void check_entry(const struct entry *e, int rc)
{
    CU_ASSERT_EQUAL(entry_check(e), rc);
    CU_ASSERT_EQUAL(decode_raw(e, 1), rc);
    struct segment_builder *b = segment_builder_new();
    CU_ASSERT_PTR_NOT_NULL_FATAL(b);
    CU_ASSERT_EQUAL(segment_builder_add(b, e), rc);
    CU_ASSERT_EQUAL(segment_builder_count(b), rc == 0);
    segment_builder_free(b);
}

static void test_fields(void)
{
    static const struct range none[] = {{0, 0}};
    const struct entry file = tree_file("f", 5), dir = tree_dir("d"), link = tree_link("l", "t");
    struct entry e;
#define REFUSED(base, field, value, rc) \
    e = (base);                         \
    e.field = (value);                  \
    check_entry(&e, rc)
    REFUSED(file, type, (enum entry_type)0, -EPROTO);
    REFUSED(dir, type, (enum entry_type)0, -EPROTO);
    REFUSED(dir, type, (enum entry_type)4, -EPROTO);
    REFUSED(dir, type, (enum entry_type)255, -EPROTO);
    REFUSED(file, root, SOURCES_MAX, -EMSGSIZE);
    REFUSED(file, mode, 010000, -EPROTO);
    REFUSED(file, mode, UINT32_MAX, -EPROTO);
    REFUSED(file, size, FILE_BYTES_MAX, 0);
    REFUSED(file, size, FILE_BYTES_MAX + 1, -EMSGSIZE);
    REFUSED(file, size, UINT64_MAX, -EMSGSIZE);
    REFUSED(dir, size, 1, -EPROTO);
    REFUSED(link, size, 1, -EPROTO);
    REFUSED(file, mtime.ns, 999999999, 0);
    REFUSED(file, mtime.ns, 1000000000, -EPROTO);
    REFUSED(file, ctime.ns, 1000000000, -EPROTO);
    REFUSED(dir, ctime.ns, UINT32_MAX, -EPROTO);
    REFUSED(file, path_len, 0, -EPROTO);
    REFUSED(link, path_len, 0, -EPROTO);
    REFUSED(dir, path_len, 0, 0); // the root itself
    REFUSED(link, target_len, 0, -EPROTO);
    REFUSED(dir, sparse, true, -EPROTO);
    REFUSED(link, sparse, true, -EPROTO);
    REFUSED(file, sparse, true, 0);
    e.data = none;
    REFUSED(e, data_count, 1, -EPROTO);
#undef REFUSED
}

static void test_hostile_paths(void)
{
    static const struct {
        const char *path;
        uint32_t len;
    } table[] = {
        {"../up", 5}, {"a/../../up", 10}, {"/etc/passwd", 11},    {"a//b", 4}, {"a/", 2},
        {"a\0b", 3},  {".penstock", 9},   {".penstock/lock", 14}, {".", 1},    {"..", 2},
    };
    struct entry e = tree_file("x", 1);
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        e.path = (const uint8_t *)table[i].path;
        e.path_len = table[i].len;
        check_entry(&e, -EPROTO);
    }
    uint8_t *text = malloc(PATH_BYTES_MAX + 1);
    CU_ASSERT_PTR_NOT_NULL_FATAL(text);
    memset(text, 'n', PATH_BYTES_MAX + 1);
    e.path = text;
    e.path_len = NAME_BYTES_MAX;
    check_entry(&e, 0);
    e.path_len = NAME_BYTES_MAX + 1;
    check_entry(&e, -EPROTO);
    e.path_len = PATH_BYTES_MAX + 1;
    check_entry(&e, -EMSGSIZE);
    e = tree_link("l", "t");
    e.target = text;
    e.target_len = TARGET_BYTES_MAX;
    check_entry(&e, 0);
    e.target_len = TARGET_BYTES_MAX + 1;
    check_entry(&e, -EMSGSIZE);
    text[7] = 0;
    e.target_len = TARGET_BYTES_MAX;
    check_entry(&e, -EPROTO);
    free(text);
}

static void test_data_ranges(void)
{
    static const struct {
        uint64_t size;
        struct range data[2];
        uint32_t count;
        int rc;
    } table[] = {
        {10000, {{0, 4096}}, 1, 0},
        {10000, {{0, 4096}, {8192, 1808}}, 2, 0},           // ends with the file
        {10000, {{0, 10000}}, 1, 0},                        // all of it
        {8192, {{4096, 4096}}, 1, 0},                       //
        {10000, {{0, 4096}, {8192, 1807}}, 2, -EPROTO},     // ends inside the last block
        {10000, {{0, 4096}, {8192, 1809}}, 2, -EPROTO},     // ends behind the file
        {10000, {{0, 4096}, {8192, 4096}}, 2, -EPROTO},     // rounded up behind it
        {10000, {{0, 4095}, {8192, 1808}}, 2, -EPROTO},     // a short range that is not the last
        {10000, {{1, 4096}}, 1, -EPROTO},                   // unaligned
        {10000, {{512, 512}}, 1, -EPROTO},                  //
        {10000, {{8191, 1809}}, 1, -EPROTO},                //
        {100000, {{0, 4096}, {4096, 4096}}, 2, -EPROTO},    // touching
        {100000, {{0, 8192}, {4096, 4096}}, 2, -EPROTO},    // overlapping
        {100000, {{8192, 4096}, {0, 4096}}, 2, -EPROTO},    // not sorted
        {100000, {{8192, 4096}, {8192, 4096}}, 2, -EPROTO}, // twice
        {10000, {{4096, 0}}, 1, -EPROTO},                   // empty
        {10000, {{10000, 0}}, 1, -EPROTO},                  //
        {0, {{0, 1}}, 1, -EPROTO},                          // in an empty file
        {10000, {{12288, 4096}}, 1, -EPROTO},               // outside
        {10000, {{4096, UINT64_MAX}}, 1, -EPROTO},          // wraps
        {10000, {{UINT64_MAX - 4095, 8192}}, 1, -EPROTO},   // wraps back into the file
        {10000, {{0, 4096}, {8192, UINT64_MAX - 4095}}, 2, -EPROTO},
        {FILE_BYTES_MAX, {{FILE_BYTES_MAX - 4095, 4095}}, 1, 0}, // the last block that there can be
    };
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        struct entry e = tree_sparse("s", table[i].size, table[i].data, table[i].count);
        check_entry(&e, table[i].rc);
    }
}

// Bytes that no encoder writes, in a segment with one sparse file.
static void test_hostile_bytes(void)
{
    static const struct range data[] = {{0, 4096}};
    const struct entry e = tree_sparse("s", 10000, data, 1);
    enum { FLAGS = HEAD + 1, PATH_LEN = HEAD + FIXED - 4, RANGES = HEAD + FIXED + 1 };
    static const struct {
        size_t at;
        uint8_t value;
        int rc;
    } table[] = {
        {0, 'X', -EPROTO},       // magic
        {3, 'N', -EPROTO},       // a need's
        {4, 0, -EPROTO},         // fewer entries than there are
        {4, 2, -EPROTO},         // more
        {5, 0x10, -EMSGSIZE},    // 4097
        {7, 0xff, -EMSGSIZE},    // thousands of millions
        {16, 2, -EPROTO},        // "last"
        {17, 1, -EPROTO},        // reserved
        {23, 0x80, -EPROTO},     //
        {FLAGS, 0, -EPROTO},     // not sparse, but with ranges
        {FLAGS, 2, -EPROTO},     // unknown flags
        {FLAGS, 3, -EPROTO},     //
        {FLAGS, 0x81, -EPROTO},  //
        {PATH_LEN, 0, -EPROTO},  // everything behind slips
        {PATH_LEN, 21, -EPROTO}, // all that is left, and nothing behind
        {PATH_LEN, 22, -EPROTO}, // more than there is
        {PATH_LEN + 1, 0x80, -EMSGSIZE},
        {PATH_LEN + 3, 0xff, -EMSGSIZE},
        {RANGES, 0, -EPROTO},          // fewer ranges than there are
        {RANGES, 2, -EPROTO},          // more
        {RANGES + 1, 0x3f, -EPROTO},   // many more
        {RANGES + 1, 0x40, -EMSGSIZE}, // 16385
        {RANGES + 3, 0xff, -EMSGSIZE},
    };
    size_t len;
    uint8_t *bytes = tree_encode(0, &e, 1, &len);
    struct segment *s = NULL;
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        uint8_t old = bytes[table[i].at];
        bytes[table[i].at] = table[i].value;
        CU_ASSERT_EQUAL(segment_decode(bytes, len, &s), table[i].rc);
        bytes[table[i].at] = old;
    }
    CU_ASSERT_PTR_NULL(s);
    CU_ASSERT_EQUAL(segment_decode(bytes, len, &s), 0); // the table changed nothing but what it names
    segment_free(s);
    free(bytes);
}

static void test_flags(void)
{
    const struct entry e = tree_file("f", 10000);
    size_t len;
    uint8_t *bytes = tree_encode(0, &e, 1, &len);
    for (unsigned flags = 0; flags < 256; flags++) {
        struct segment *s = NULL;
        bytes[HEAD + 1] = (uint8_t)flags;
        CU_ASSERT_EQUAL(segment_decode(bytes, len, &s), flags == 0 ? 0 : -EPROTO);
        segment_free(s);
    }
    free(bytes);
}

static void test_truncated(void)
{
    static const struct range data[] = {{0, 4096}, {8192, 1808}};
    const struct entry entries[] = {
        tree_dir(""),
        tree_link("l", "target"),
        tree_sparse("s", 10000, data, 2),
        tree_file("f", 1),
    };
    size_t len;
    uint8_t *bytes = tree_encode(5, entries, ARRAY_LEN(entries), &len);
    uint8_t *longer = malloc(len + 1);
    CU_ASSERT_PTR_NOT_NULL_FATAL(longer);
    struct segment *s = NULL;
    for (size_t cut = 0; cut < len; cut++) {
        uint8_t *exact = malloc(cut + 1); // of its own, so that a sanitizer sees a read behind it
        CU_ASSERT_PTR_NOT_NULL_FATAL(exact);
        memcpy(exact + 1, bytes, cut);
        CU_ASSERT_EQUAL(segment_decode(exact + 1, cut, &s), -EPROTO);
        free(exact);
    }
    memcpy(longer, bytes, len);
    longer[len] = 0;
    CU_ASSERT_EQUAL(segment_decode(longer, len + 1, &s), -EPROTO);
    CU_ASSERT_PTR_NULL(s); // untouched
    CU_ASSERT_EQUAL(segment_decode(bytes, len, &s), 0);
    segment_free(s);
    free(longer);
    free(bytes);
}

static void test_duplicates(void)
{
    static const struct {
        const char *paths[5];
        int rc;
    } table[] = {
        {{"a", "b", "c", "d", "e"}, 0},         {{"a", "a", "c", "d", "e"}, -EPROTO},
        {{"a", "b", "c", "d", "a"}, -EPROTO},   {{"x/y", "x", "x/y/z", "x", "y"}, -EPROTO},
        {{"x/y", "x", "x/y/z", "x/z", "y"}, 0}, {{"", "a", "b", "c", "d"}, 0},
        {{"", "a", "b", "", "d"}, -EPROTO},     {{"a", "A", "b", "B", "aa"}, 0},
    };
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        struct entry entries[5];
        for (size_t k = 0; k < 5; k++)
            entries[k] = tree_dir(table[i].paths[k]);
        CU_ASSERT_EQUAL(decode_raw(entries, 5), table[i].rc);
    }
    const struct entry mixed[] = {tree_dir("same"), tree_file("same", 3)}; // whatever the type
    CU_ASSERT_EQUAL(decode_raw(mixed, 2), -EPROTO);
}

void suite_manifest(void)
{
    CU_pSuite s = CU_add_suite("manifest", NULL, NULL);
    CU_add_test(s, "bytes", test_bytes);
    CU_add_test(s, "round_trip", test_round_trip);
    CU_add_test(s, "no_entries", test_no_entries);
    CU_add_test(s, "owns_its_bytes", test_owns_its_bytes);
    CU_add_test(s, "paths", test_paths);
    CU_add_test(s, "path_lengths", test_path_lengths);
    CU_add_test(s, "fields", test_fields);
    CU_add_test(s, "hostile_paths", test_hostile_paths);
    CU_add_test(s, "data_ranges", test_data_ranges);
    CU_add_test(s, "hostile_bytes", test_hostile_bytes);
    CU_add_test(s, "flags", test_flags);
    CU_add_test(s, "truncated", test_truncated);
    CU_add_test(s, "duplicates", test_duplicates);
}
