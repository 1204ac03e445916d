// Receipts: what is said of one entry, and whole files.
#include "mover/receipt_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <CUnit/CUnit.h>

#include "proto/record.h"
#include "proto/wire.h"
#include "tests/unit/hex.h"
#include "tests/unit/scratch.h"

static const struct job_id job = {{0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef}};
static const char job_name[] = "receipts/0123456789abcdef0000000000000000.receipt";
static const char job_part[] = "receipts/0123456789abcdef0000000000000000.part";

static struct receipt_entry entry_of(const char *path, size_t len, uint64_t size)
{
    struct receipt_entry e = {
        .type = ENTRY_FILE,
        .outcome = RECEIPT_MOVED,
        .proof = PROOF_WIRE,
        .mode = 0640,
        .size = size,
        .mtime = {.s = 0x1122334455667788, .ns = 999999999},
        .path = blob_of(path, len),
    };
    count_up(e.digest.bytes, sizeof(e.digest.bytes), 0xa0);
    return e;
}

// type 2, outcome 1, proof 1, 0 | mode | size | seconds | nanoseconds | digest | path "a/b"
static const char entry_hex[] = "02010100"
                                "a0010000"
                                "0201000000000000"
                                "8877665544332211"
                                "ffc99a3b"
                                "a0a1a2a3a4a5a6a7a8a9aaabacadaeaf"
                                "03000000612f62";

static void test_entry_layout(void)
{
    uint8_t buf[128];
    struct receipt_entry e = entry_of("a/b", 3, 0x102), back;
    int64_t len = receipt_entry_encode(&e, buf, sizeof(buf));
    CU_ASSERT_EQUAL_FATAL(len, 51);
    CU_ASSERT(hex_equal(buf, (size_t)len, entry_hex));
    CU_ASSERT_EQUAL_FATAL(receipt_entry_decode(buf, (size_t)len, &back), 0);
    CU_ASSERT_EQUAL(back.type, ENTRY_FILE);
    CU_ASSERT_EQUAL(back.outcome, RECEIPT_MOVED);
    CU_ASSERT_EQUAL(back.proof, PROOF_WIRE);
    CU_ASSERT_EQUAL(back.mode, 0640);
    CU_ASSERT_EQUAL(back.size, 0x102);
    CU_ASSERT_EQUAL(back.mtime.s, 0x1122334455667788);
    CU_ASSERT_EQUAL(back.mtime.ns, 999999999);
    CU_ASSERT(digest_equal(&back.digest, &e.digest));
    CU_ASSERT_EQUAL_FATAL(back.path.len, 3);
    CU_ASSERT_EQUAL(memcmp(back.path.bytes, "a/b", 3), 0);
    for (size_t room = 0; room < (size_t)len; room++)
        CU_ASSERT_EQUAL(receipt_entry_encode(&e, buf, room), -EMSGSIZE);
}

// Cut anywhere, or with a byte more: refused, and the output is not touched.
static void test_entry_truncated(void)
{
    uint8_t buf[128];
    struct receipt_entry back = {.mode = 77};
    size_t len = hex_bytes(entry_hex, buf, sizeof(buf));
    for (size_t cut = 0; cut < len; cut++)
        CU_ASSERT_EQUAL(receipt_entry_decode(buf, cut, &back), -EPROTO);
    buf[len] = 0;
    CU_ASSERT_EQUAL(receipt_entry_decode(buf, len + 1, &back), -EPROTO);
    CU_ASSERT_EQUAL(back.mode, 77);
}

// One field made impossible at a time.
static void test_entry_impossible(void)
{
    static const struct {
        size_t at;
        uint8_t value;
    } rows[] = {
        {0, 0},         {0, 4},
        {0, 255},                  // type
        {1, 0},         {1, 6},    // outcome
        {2, 4},         {2, 255},  // proof
        {3, 1},                    // reserved
        {5, 0x10},      {7, 0x01}, // mode beyond 07777
        {15, 0x80},                // size beyond FILE_BYTES_MAX
        {27, 0xff},                // nanoseconds
        {44, 4},        {44, 2},
        {44, 0},        {46, 0xff}, // length of the path
        {48, '/'},      {48, 0},
        {49, 0},        {50, '/'},          // "//b", a NUL, "a//"
        {0, ENTRY_DIR}, {0, ENTRY_SYMLINK}, // which have no size
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        uint8_t buf[128];
        struct receipt_entry back;
        size_t len = hex_bytes(entry_hex, buf, sizeof(buf));
        buf[rows[i].at] = rows[i].value;
        CU_ASSERT_EQUAL(receipt_entry_decode(buf, len, &back), -EPROTO);
    }
}

static void test_entry_paths(void)
{
    static const struct {
        const char *path;
        enum entry_type type;
        int rc;
    } rows[] = {
        {"", ENTRY_DIR, 0},
        {"", ENTRY_FILE, -EPROTO},
        {"", ENTRY_SYMLINK, -EPROTO},
        {"a", ENTRY_SYMLINK, 0},
        {"a", (enum entry_type)0, -EPROTO},
        {"a", (enum entry_type)4, -EPROTO},
        {"..", ENTRY_DIR, -EPROTO},
        {"a/../b", ENTRY_DIR, -EPROTO},
        {"/a", ENTRY_DIR, -EPROTO},
        {".penstock/x", ENTRY_DIR, -EPROTO},
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        uint8_t buf[128];
        struct receipt_entry e = entry_of(rows[i].path, strlen(rows[i].path), 0), back;
        e.type = rows[i].type;
        int64_t len = receipt_entry_encode(&e, buf, sizeof(buf));
        CU_ASSERT_FATAL(len > 0);
        CU_ASSERT_EQUAL(receipt_entry_decode(buf, (size_t)len, &back), rows[i].rc);
    }
}

static struct receipt_job about_of(uint8_t *list, size_t len)
{
    struct wire_writer w;
    wire_writer_init(&w, list, len);
    wire_put_blob(&w, "host:a b", 8);
    wire_put_blob(&w, "", 0);
    wire_put_blob(&w, "host:c", 6);
    return (struct receipt_job){
        .started_s = 1700000000,
        .program = blob_text("penstock 0.1.0"),
        .sources = blob_of(list, (size_t)wire_written(&w)),
        .destination = blob_text("/data/in/"),
        .place = blob_text("/data/in"),
    };
}

static void test_job(void)
{
    uint8_t list[64], buf[256];
    struct receipt_job j = about_of(list, sizeof(list)), back = {.started_s = 77};
    int64_t len = receipt_job_encode(&j, buf, sizeof(buf));
    CU_ASSERT_EQUAL_FATAL(len, 8 + 4 + 14 + 4 + 26 + 4 + 9 + 4 + 8);
    for (size_t cut = 0; cut < (size_t)len; cut++)
        CU_ASSERT_EQUAL(receipt_job_decode(buf, cut, &back), -EPROTO);
    CU_ASSERT_EQUAL(back.started_s, 77);
    CU_ASSERT_EQUAL_FATAL(receipt_job_decode(buf, (size_t)len, &back), 0);
    CU_ASSERT_EQUAL(back.started_s, 1700000000);
    CU_ASSERT(back.sources.len == j.sources.len && memcmp(back.sources.bytes, list, j.sources.len) == 0);
    CU_ASSERT(back.place.len == 8 && memcmp(back.place.bytes, "/data/in", 8) == 0);
    j.sources.len -= 1; // the list ends within a name
    len = receipt_job_encode(&j, buf, sizeof(buf));
    CU_ASSERT_EQUAL(receipt_job_decode(buf, (size_t)len, &back), -EPROTO);
    j = about_of(list, sizeof(list));
    j.program = blob_text("a program whose name is far too long to be that of any release of it");
    CU_ASSERT_EQUAL(receipt_job_encode(&j, buf, sizeof(buf)), -EMSGSIZE);
}

static const struct receipt_end the_end = {.ended_s = 1700000100,
                                           .exit_status = 8,
                                           .total = 21,
                                           .moved = 6,
                                           .skipped = 5,
                                           .changed = 4,
                                           .vanished = 3,
                                           .failed = 3,
                                           .bytes = UINT64_MAX};

static void test_end(void)
{
    uint8_t buf[128];
    struct receipt_end back = {.moved = 77};
    int64_t len = receipt_end_encode(&the_end, buf, sizeof(buf));
    CU_ASSERT_EQUAL_FATAL(len, 8 + 4 + 4 + 7 * 8);
    for (size_t cut = 0; cut < (size_t)len; cut++)
        CU_ASSERT_EQUAL(receipt_end_decode(buf, cut, &back), -EPROTO);
    CU_ASSERT_EQUAL(back.moved, 77);
    CU_ASSERT_EQUAL_FATAL(receipt_end_decode(buf, (size_t)len, &back), 0);
    CU_ASSERT_EQUAL(memcmp(&back, &the_end, sizeof(back)), 0);
    buf[12] = 1; // reserved
    CU_ASSERT_EQUAL(receipt_end_decode(buf, (size_t)len, &back), -EPROTO);
}

// ---- files ----

static struct receipt_writer *begin(const struct scratch *s)
{
    uint8_t list[64];
    struct receipt_job about = about_of(list, sizeof(list));
    struct receipt_writer *w = NULL;
    struct err err;
    CU_ASSERT_EQUAL_FATAL(receipt_writer_new(s->path, &job, &about, &w, &err), 0);
    return w;
}

// A receipt of `count` entries, entry i with i bytes and a path that ends in its number.
static void write_receipt(const struct scratch *s, unsigned count, size_t path_len)
{
    char end[1024], expected[1024], *path = malloc(path_len + 16);
    struct receipt_writer *w = begin(s);
    CU_ASSERT_PTR_NOT_NULL_FATAL(path);
    for (unsigned i = 0; i < count; i++) {
        for (size_t at = 0; at < path_len; at++)
            path[at] = at % 200 == 199 && at + 1 < path_len ? '/' : 'p';
        int digits = snprintf(path + path_len, 16, "%u", i);
        struct receipt_entry e = entry_of(path, path_len + (size_t)digits, i);
        CU_ASSERT_EQUAL(receipt_writer_add(w, &e), 0);
    }
    CU_ASSERT_EQUAL_FATAL(receipt_writer_end(w, &the_end, end, sizeof(end)), 0);
    snprintf(expected, sizeof(expected), "%s/%s", s->path, job_name);
    CU_ASSERT_STRING_EQUAL(end, expected);
    receipt_writer_free(w);
    free(path);
}

// Opens the file `name` of the folder: 0 when it was accepted (and closed again), else what was said.
static int open_named(const struct scratch *s, const char *name, struct err *err)
{
    char path[1024];
    struct receipt_reader *r = NULL;
    snprintf(path, sizeof(path), "%s/%s", s->path, name);
    int rc = receipt_reader_open(path, &r, err);
    receipt_reader_free(r);
    return rc;
}

static void read_receipt(const struct scratch *s, unsigned count, size_t path_len)
{
    char path[1024];
    struct receipt_reader *r;
    struct receipt_entry e;
    struct err err;
    int rc;
    unsigned i = 0;
    snprintf(path, sizeof(path), "%s/%s", s->path, job_name);
    CU_ASSERT_EQUAL_FATAL(receipt_reader_open(path, &r, &err), 0);
    CU_ASSERT_EQUAL(memcmp(receipt_reader_id(r), &job, sizeof(job)), 0);
    CU_ASSERT_EQUAL(memcmp(receipt_reader_end(r), &the_end, sizeof(the_end)), 0);
    while ((rc = receipt_reader_next(r, &e)) > 0) {
        char number[16];
        size_t digits = (size_t)snprintf(number, sizeof(number), "%u", i);
        CU_ASSERT_EQUAL(e.size, i);
        CU_ASSERT_EQUAL_FATAL(e.path.len, path_len + digits);
        CU_ASSERT_EQUAL(memcmp(e.path.bytes + path_len, number, digits), 0);
        i++;
    }
    CU_ASSERT_EQUAL(rc, 0);
    CU_ASSERT_EQUAL(i, count);
    CU_ASSERT(receipt_reader_job(r)->place.len == 8 &&
              memcmp(receipt_reader_job(r)->place.bytes, "/data/in", 8) == 0);
    receipt_reader_free(r);
}

static void test_round_trip(void)
{
    static const struct {
        unsigned count;
        size_t path_len;
    } rows[] = {{0, 1}, {1, 1}, {5000, 20}, {40, PATH_BYTES_MAX - 2}};
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct scratch s = scratch_begin();
        write_receipt(&s, rows[i].count, rows[i].path_len);
        read_receipt(&s, rows[i].count, rows[i].path_len);
        CU_ASSERT(faccessat(s.fd, job_part, F_OK, 0) < 0);
        scratch_end(&s);
    }
}

static void test_modes(void)
{
    struct scratch s = scratch_begin();
    struct stat folder, file;
    write_receipt(&s, 1, 1);
    CU_ASSERT(fstatat(s.fd, "receipts", &folder, 0) == 0 && (folder.st_mode & 07777) == 0700);
    CU_ASSERT(fstatat(s.fd, job_name, &file, 0) == 0 && (file.st_mode & 07777) == 0600);
    scratch_end(&s);
}

// A receipt that was never completed is not there; nor does one get in the way of another of the same id.
static void test_unfinished(void)
{
    struct scratch s = scratch_begin();
    uint8_t list[64];
    struct receipt_job about = about_of(list, sizeof(list));
    struct receipt_writer *w = begin(&s), *other = NULL;
    struct receipt_entry e = entry_of("a", 1, 1);
    struct err err;
    CU_ASSERT_EQUAL(receipt_writer_add(w, &e), 0);
    CU_ASSERT(faccessat(s.fd, job_part, F_OK, 0) == 0);
    CU_ASSERT_EQUAL(receipt_writer_new(s.path, &job, &about, &other, &err), -EEXIST);
    CU_ASSERT_EQUAL(err.class, ERR_START);
    receipt_writer_free(w);
    CU_ASSERT(faccessat(s.fd, job_part, F_OK, 0) < 0);
    CU_ASSERT(faccessat(s.fd, job_name, F_OK, 0) < 0);
    receipt_writer_free(NULL);
    receipt_reader_free(NULL);
    scratch_end(&s);
}

static void test_writer_refused(void)
{
    struct scratch s = scratch_begin();
    uint8_t list[64];
    struct receipt_job about = about_of(list, sizeof(list));
    struct receipt_writer *w = NULL;
    struct err err;
    char path[1024], small[8], *huge = calloc(1, PATH_BYTES_MAX + 128);
    CU_ASSERT_PTR_NOT_NULL_FATAL(huge);
    snprintf(path, sizeof(path), "%s/nowhere", s.path);
    CU_ASSERT_EQUAL(receipt_writer_new(path, &job, &about, &w, &err), -ENOENT);
    CU_ASSERT_PTR_NULL(w);
    w = begin(&s);
    struct receipt_entry e = entry_of(huge, PATH_BYTES_MAX + 128, 1);
    CU_ASSERT_EQUAL(receipt_writer_add(w, &e), -EMSGSIZE);
    CU_ASSERT_EQUAL(receipt_writer_end(w, &the_end, small, sizeof(small)), -ENAMETOOLONG);
    receipt_writer_free(w);
    free(huge);
    scratch_end(&s);
}

// The bytes of a small receipt, and the same written back changed.
struct image {
    uint8_t bytes[4096];
    size_t len;
};

static void image_load(const struct scratch *s, struct image *image)
{
    int fd = openat(s->fd, job_name, O_RDONLY | O_CLOEXEC);
    CU_ASSERT_FATAL(fd >= 0);
    ssize_t got = read(fd, image->bytes, sizeof(image->bytes));
    CU_ASSERT_FATAL(got > 0 && (size_t)got < sizeof(image->bytes));
    image->len = (size_t)got;
    close(fd);
}

static int open_image(const struct scratch *s, const uint8_t *bytes, size_t len, struct err *err)
{
    // Not emptied first: some file systems flush a file that is written anew like that.
    int fd = openat(s->fd, "image", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    CU_ASSERT_FATAL(fd >= 0 && pwrite(fd, bytes, len, 0) == (ssize_t)len && ftruncate(fd, (off_t)len) == 0);
    close(fd);
    return open_named(s, "image", err);
}

static void test_damaged_at_each_byte(void)
{
    struct scratch s = scratch_begin();
    struct image image;
    struct err err;
    write_receipt(&s, 3, 4);
    image_load(&s, &image);
    CU_ASSERT_EQUAL(open_image(&s, image.bytes, image.len, &err), 0);
    for (size_t at = 0; at < image.len; at++) {
        image.bytes[at] ^= 0x40;
        int rc = open_image(&s, image.bytes, image.len, &err);
        // A length that grew may ask for more bytes than there are: a torn file.
        CU_ASSERT(rc == -EBADMSG || rc == -ENODATA);
        CU_ASSERT_EQUAL(err.class, ERR_START);
        image.bytes[at] ^= 0x40;
    }
    scratch_end(&s);
}

// Cut anywhere, or with something behind END: refused.
static void test_cut_at_each_byte(void)
{
    struct scratch s = scratch_begin();
    struct image image;
    struct err err;
    write_receipt(&s, 3, 4);
    image_load(&s, &image);
    for (size_t len = 0; len < image.len; len++) {
        int rc = open_image(&s, image.bytes, len, &err);
        CU_ASSERT_EQUAL(rc, len < RECORD_HEADER_BYTES ? -EBADMSG : -ENODATA);
    }
    CU_ASSERT_PTR_NOT_NULL(strstr(err.text, "did not finish"));
    image.bytes[image.len] = 0;
    CU_ASSERT_EQUAL(open_image(&s, image.bytes, image.len + 1, &err), -EBADMSG);
    scratch_end(&s);
}

// Files made record by record, with correct checksums but in the wrong order or of wrong content.
static void put_record(struct image *image, struct record_chain *chain, uint16_t type, const void *payload,
                       size_t len)
{
    int64_t got = record_encode(chain, type, payload, len, image->bytes + image->len,
                                sizeof(image->bytes) - image->len);
    CU_ASSERT_FATAL(got > 0);
    image->len += (size_t)got;
}

static int open_forged(const struct scratch *s, uint32_t version, const char *order, struct err *err)
{
    uint8_t list[64], about_bytes[256], end_bytes[128], entry[128];
    struct receipt_job about = about_of(list, sizeof(list));
    struct record_header head = {.kind = RECORD_RECEIPT, .version = version, .job = job};
    struct image image = {.len = RECORD_HEADER_BYTES};
    struct record_chain chain;
    size_t about_len = (size_t)receipt_job_encode(&about, about_bytes, sizeof(about_bytes));
    size_t end_len = (size_t)receipt_end_encode(&the_end, end_bytes, sizeof(end_bytes));
    size_t entry_len = hex_bytes(entry_hex, entry + 4, sizeof(entry) - 4);
    struct wire_writer w;
    wire_writer_init(&w, entry, 4);
    wire_put_u32(&w, (uint32_t)entry_len);
    record_header_encode(&head, image.bytes, &chain);
    for (; *order != '\0'; order++) {
        if (*order == 'J')
            put_record(&image, &chain, RECEIPT_JOB, about_bytes, about_len);
        else if (*order == 'E')
            put_record(&image, &chain, RECEIPT_ENTRIES, entry, entry_len + 4);
        else if (*order == 'S') // the last entry is cut short
            put_record(&image, &chain, RECEIPT_ENTRIES, entry, entry_len + 3);
        else if (*order == '0')
            put_record(&image, &chain, RECEIPT_ENTRIES, entry, 0);
        else if (*order == 'X')
            put_record(&image, &chain, RECEIPT_END, end_bytes, end_len);
        else if (*order == 'x')
            put_record(&image, &chain, RECEIPT_END, end_bytes, end_len - 1);
        else if (*order == 'j') // right, but of an unknown type
            put_record(&image, &chain, 9, about_bytes, about_len);
        else
            put_record(&image, &chain, 9, entry, entry_len + 4);
    }
    return open_image(s, image.bytes, image.len, err);
}

static void test_order(void)
{
    static const struct {
        const char *order;
        int rc;
    } rows[] = {
        {"JX", 0},        {"JEX", 0},        {"JE0EX", 0},      {"", -ENODATA},    {"J", -ENODATA},
        {"JE", -ENODATA}, {"EX", -EBADMSG},  {"X", -EBADMSG},   {"JJX", -EBADMSG}, {"JSX", -EBADMSG},
        {"Jx", -EBADMSG}, {"JeX", -EBADMSG}, {"JXX", -EBADMSG}, {"JXE", -EBADMSG}, {"jX", -EBADMSG},
    };
    struct scratch s = scratch_begin();
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct err err;
        CU_ASSERT_EQUAL(open_forged(&s, RECEIPT_VERSION, rows[i].order, &err), rows[i].rc);
    }
    scratch_end(&s);
}

static void test_versions(void)
{
    struct scratch s = scratch_begin();
    struct err err;
    CU_ASSERT_EQUAL(open_forged(&s, RECEIPT_VERSION + 1, "JX", &err), -EPROTONOSUPPORT);
    CU_ASSERT_PTR_NOT_NULL(strstr(err.text, "version 2"));
    CU_ASSERT_PTR_NOT_NULL(strstr(err.path, "image"));
    CU_ASSERT_EQUAL(open_named(&s, "missing", &err), -ENOENT);
    CU_ASSERT_EQUAL(err.os, ENOENT);
    CU_ASSERT_EQUAL(open_named(&s, ".", &err), -EISDIR);
    scratch_end(&s);
}

void suite_receipt(void)
{
    CU_pSuite suite = CU_add_suite("receipt", NULL, NULL);
    CU_add_test(suite, "entry_layout", test_entry_layout);
    CU_add_test(suite, "entry_truncated", test_entry_truncated);
    CU_add_test(suite, "entry_impossible", test_entry_impossible);
    CU_add_test(suite, "entry_paths", test_entry_paths);
    CU_add_test(suite, "job", test_job);
    CU_add_test(suite, "end", test_end);
    CU_add_test(suite, "round_trip", test_round_trip);
    CU_add_test(suite, "modes", test_modes);
    CU_add_test(suite, "unfinished", test_unfinished);
    CU_add_test(suite, "writer_refused", test_writer_refused);
    CU_add_test(suite, "damaged_at_each_byte", test_damaged_at_each_byte);
    CU_add_test(suite, "cut_at_each_byte", test_cut_at_each_byte);
    CU_add_test(suite, "order", test_order);
    CU_add_test(suite, "versions", test_versions);
}
