// What is found when a copy is read again: the checker behind `penstock verify`.
#include "tools/checker.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <CUnit/CUnit.h>

#include "tests/unit/scratch.h"

// What the checker said.
struct said {
    unsigned count;
    struct err last;
};

static void remember(void *arg, const struct err *problem)
{
    struct said *said = arg;
    said->count++;
    said->last = *problem;
}

// Digest of a file as the receipt has it, from all its leaves at once.
static struct digest digest_of_file(int dir_fd, const char *name, uint64_t *size)
{
    struct stat st;
    int fd = openat(dir_fd, name, O_RDONLY | O_CLOEXEC);
    CU_ASSERT_FATAL(fd >= 0 && fstat(fd, &st) == 0);
    *size = (uint64_t)st.st_size;
    size_t count = (size_t)u64_div_up(*size, LEAF_BYTES);
    uint8_t *bytes = malloc(*size + 1);
    struct digest *leaves = calloc(count + 1, sizeof(*leaves));
    CU_ASSERT_FATAL(bytes != NULL && leaves != NULL && read(fd, bytes, *size + 1) == st.st_size);
    for (size_t i = 0; i < count; i++)
        leaves[i] = digest_of(bytes + i * LEAF_BYTES, (size_t)u64_min(LEAF_BYTES, *size - i * LEAF_BYTES));
    struct digest d = digest_file(leaves, *size);
    free(leaves);
    free(bytes);
    close(fd);
    return d;
}

static struct receipt_entry expect(enum entry_type type, const char *path)
{
    return (struct receipt_entry){
        .type = type, .outcome = RECEIPT_MOVED, .proof = PROOF_WIRE, .path = blob_text(path)};
}

static struct receipt_entry expect_file(int dir_fd, const char *path)
{
    struct receipt_entry e = expect(ENTRY_FILE, path);
    e.digest = digest_of_file(dir_fd, path, &e.size);
    return e;
}

static struct receipt_entry expect_link(const char *path, const char *target)
{
    struct receipt_entry e = expect(ENTRY_SYMLINK, path);
    e.digest = digest_of(target, strlen(target));
    return e;
}

static struct check_tally check(int root_fd, const struct receipt_entry *entries, size_t count,
                                unsigned threads, struct said *said)
{
    struct check_tally tally;
    struct checker *c;
    *said = (struct said){.count = 0};
    CU_ASSERT_EQUAL_FATAL(checker_new(root_fd, threads, remember, said, &c), 0);
    for (size_t i = 0; i < count; i++)
        CU_ASSERT_EQUAL(checker_add(c, &entries[i]), 0);
    checker_end(c, &tally);
    return tally;
}

// The verdict on a single entry; said->last is set when there is something to say.
static enum check_verdict verdict(int root_fd, const struct receipt_entry *e, struct said *said)
{
    struct check_tally tally = check(root_fd, e, 1, 1, said);
    uint64_t all = 0;
    enum check_verdict found = CHECK_VERDICTS;
    for (int v = 0; v < CHECK_VERDICTS; v++) {
        all += tally.entries[v];
        if (tally.entries[v] == 1)
            found = (enum check_verdict)v;
    }
    CU_ASSERT_EQUAL(all, 1);
    CU_ASSERT_EQUAL(said->count, found == CHECK_RIGHT || found == CHECK_UNPROVED ? 0 : 1);
    return found;
}

static void test_right(void)
{
    static const size_t sizes[] = {0,
                                   1,
                                   4095,
                                   4096,
                                   4097,
                                   LEAF_BYTES - 1,
                                   LEAF_BYTES,
                                   LEAF_BYTES + 1,
                                   4 * LEAF_BYTES,
                                   9 * LEAF_BYTES + 12345};
    struct scratch s = scratch_begin();
    struct said said;
    uint64_t bytes = 0;
    struct receipt_entry entries[ARRAY_LEN(sizes) + 4];
    char names[ARRAY_LEN(sizes)][16];
    size_t count = 0;
    scratch_dir(s.fd, "d");
    scratch_link(s.fd, "d/link", "../nowhere");
    entries[count++] = expect(ENTRY_DIR, "");
    entries[count++] = expect(ENTRY_DIR, "d");
    entries[count++] = expect_link("d/link", "../nowhere");
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        snprintf(names[i], sizeof(names[i]), "d/size%zu", i);
        scratch_bytes(s.fd, names[i], sizes[i]);
        entries[count++] = expect_file(s.fd, names[i]);
        bytes += sizes[i];
    }
    for (unsigned threads = 1; threads <= 3; threads += 2) {
        struct check_tally tally = check(s.fd, entries, count, threads, &said);
        CU_ASSERT_EQUAL(tally.entries[CHECK_RIGHT], count);
        CU_ASSERT_EQUAL(tally.bytes, bytes);
        CU_ASSERT_EQUAL(said.count, 0);
    }
    scratch_end(&s);
}

// One byte at a time changed, near the borders of leaves and of reads.
static void test_wrong_byte(void)
{
    static const off_t places[] = {
        0, 4095, LEAF_BYTES - 1, LEAF_BYTES, 4 * LEAF_BYTES - 1, 4 * LEAF_BYTES, 5 * LEAF_BYTES + 99};
    struct scratch s = scratch_begin();
    struct said said;
    scratch_bytes(s.fd, "f", 5 * LEAF_BYTES + 100);
    struct receipt_entry e = expect_file(s.fd, "f");
    int fd = openat(s.fd, "f", O_RDWR | O_CLOEXEC);
    CU_ASSERT_FATAL(fd >= 0);
    for (size_t i = 0; i < ARRAY_LEN(places); i++) {
        uint8_t byte;
        CU_ASSERT_FATAL(pread(fd, &byte, 1, places[i]) == 1);
        byte ^= 1;
        CU_ASSERT_FATAL(pwrite(fd, &byte, 1, places[i]) == 1);
        CU_ASSERT_EQUAL(verdict(s.fd, &e, &said), CHECK_WRONG);
        CU_ASSERT_EQUAL(said.last.class, ERR_DIGEST);
        CU_ASSERT_STRING_EQUAL(said.last.path, "f");
        CU_ASSERT_PTR_NOT_NULL(strstr(said.last.text, "digest differs"));
        byte ^= 1;
        CU_ASSERT_FATAL(pwrite(fd, &byte, 1, places[i]) == 1);
    }
    CU_ASSERT_EQUAL(verdict(s.fd, &e, &said), CHECK_RIGHT);
    close(fd);
    scratch_end(&s);
}

static void test_other_things(void)
{
    struct scratch s = scratch_begin();
    struct said said;
    scratch_dir(s.fd, "d");
    scratch_file(s.fd, "d/f", "text");
    scratch_link(s.fd, "l", "d");
    CU_ASSERT_FATAL(mkfifoat(s.fd, "p", 0644) == 0);
    struct receipt_entry f = expect_file(s.fd, "d/f");

    struct receipt_entry e = f;
    e.size = 3;
    CU_ASSERT_EQUAL(verdict(s.fd, &e, &said), CHECK_WRONG);
    CU_ASSERT_STRING_EQUAL(said.last.text, "has 4 bytes, not 3");
    e = expect(ENTRY_DIR, "d/f");
    CU_ASSERT_EQUAL(verdict(s.fd, &e, &said), CHECK_WRONG);
    CU_ASSERT_STRING_EQUAL(said.last.text, "is a file, not a directory");
    e = expect(ENTRY_DIR, "l"); // a link is never followed
    CU_ASSERT_EQUAL(verdict(s.fd, &e, &said), CHECK_WRONG);
    CU_ASSERT_STRING_EQUAL(said.last.text, "is a link, not a directory");
    e = f;
    e.path = blob_text("p"); // nor a fifo opened
    CU_ASSERT_EQUAL(verdict(s.fd, &e, &said), CHECK_WRONG);
    CU_ASSERT_STRING_EQUAL(said.last.text, "is something else, not a file");
    e = expect_link("l", "d");
    CU_ASSERT_EQUAL(verdict(s.fd, &e, &said), CHECK_RIGHT);
    e = expect_link("l", "e");
    CU_ASSERT_EQUAL(verdict(s.fd, &e, &said), CHECK_WRONG);
    e = f;
    e.path = blob_text("l/f"); // there only through the link
    CU_ASSERT_EQUAL(verdict(s.fd, &e, &said), CHECK_WRONG);
    CU_ASSERT_PTR_NOT_NULL(strstr(said.last.text, "no directory any more"));
    e.path = blob_text("d/f/g");
    CU_ASSERT_EQUAL(verdict(s.fd, &e, &said), CHECK_WRONG);
    scratch_end(&s);
}

static void test_missing(void)
{
    static const char *const paths[] = {"f", "d/f", "gone/f", "gone/a/b"};
    struct scratch s = scratch_begin();
    struct said said;
    scratch_dir(s.fd, "d");
    for (size_t i = 0; i < ARRAY_LEN(paths); i++) {
        for (int type = ENTRY_DIR; type <= ENTRY_SYMLINK; type++) {
            struct receipt_entry e = expect((enum entry_type)type, paths[i]);
            CU_ASSERT_EQUAL(verdict(s.fd, &e, &said), CHECK_MISSING);
            CU_ASSERT_STRING_EQUAL(said.last.path, paths[i]);
        }
    }
    scratch_end(&s);
}

// Without a digest only size and time are compared, and that is not called right.
static void test_unproved(void)
{
    struct scratch s = scratch_begin();
    struct said said;
    struct timespec times[2] = {{.tv_sec = 5, .tv_nsec = 7}, {.tv_sec = 5, .tv_nsec = 7}};
    scratch_file(s.fd, "f", "text");
    scratch_link(s.fd, "l", "x");
    CU_ASSERT_FATAL(utimensat(s.fd, "f", times, 0) == 0);
    struct receipt_entry e = expect(ENTRY_FILE, "f");
    e.proof = PROOF_NONE;
    e.size = 4;
    e.mtime = (struct entry_time){.s = 5, .ns = 7};
    CU_ASSERT_EQUAL(verdict(s.fd, &e, &said), CHECK_UNPROVED);
    e.mtime.ns = 8;
    CU_ASSERT_EQUAL(verdict(s.fd, &e, &said), CHECK_WRONG);
    e.mtime = (struct entry_time){.s = 6, .ns = 7};
    CU_ASSERT_EQUAL(verdict(s.fd, &e, &said), CHECK_WRONG);
    e.size = 5;
    CU_ASSERT_EQUAL(verdict(s.fd, &e, &said), CHECK_WRONG);
    e = expect(ENTRY_SYMLINK, "l");
    e.proof = PROOF_NONE;
    CU_ASSERT_EQUAL(verdict(s.fd, &e, &said), CHECK_UNPROVED);
    e = expect_link("l", "x"); // a digest is used whoever vouches for it
    e.proof = PROOF_NONE;
    CU_ASSERT_EQUAL(verdict(s.fd, &e, &said), CHECK_RIGHT);
    e = expect_link("l", "y");
    e.proof = PROOF_NONE;
    CU_ASSERT_EQUAL(verdict(s.fd, &e, &said), CHECK_WRONG);
    for (int proof = PROOF_WIRE; proof <= PROOF_CARRIED; proof++) {
        e = expect_file(s.fd, "f");
        e.proof = (enum receipt_proof)proof;
        e.mtime.s = 999; // a digest says more than a time
        CU_ASSERT_EQUAL(verdict(s.fd, &e, &said), CHECK_RIGHT);
    }
    scratch_end(&s);
}

// As a user who may not read: that is no proof of damage.
static int read_forbidden(void *arg)
{
    const int *fd = arg;
    struct said said = {.count = 0};
    struct receipt_entry e = expect(ENTRY_FILE, "f");
    struct check_tally tally;
    struct checker *c;
    e.size = 4;
    if (checker_new(*fd, 1, remember, &said, &c) < 0 || checker_add(c, &e) < 0)
        return 2;
    checker_end(c, &tally);
    return tally.entries[CHECK_UNREADABLE] == 1 && said.last.class == ERR_ENTRY && said.last.os == EACCES ? 0
                                                                                                          : 3;
}

static void test_unreadable(void)
{
    struct scratch s = scratch_begin();
    scratch_file(s.fd, "f", "text");
    CU_ASSERT_FATAL(fchmodat(s.fd, "f", 0, 0) == 0);
    CU_ASSERT_EQUAL(scratch_child(read_forbidden, &s.fd), 0);
    scratch_end(&s);
}

// More entries than the queue holds, right and wrong ones among them: every one is counted once.
static void test_many(void)
{
    enum { MANY = 2000 };
    struct scratch s = scratch_begin();
    struct said said;
    struct check_tally tally;
    struct checker *c;
    scratch_file(s.fd, "f", "text");
    struct receipt_entry right = expect_file(s.fd, "f"), wrong = right, gone = right;
    wrong.digest.bytes[0] ^= 1;
    said = (struct said){.count = 0};
    CU_ASSERT_EQUAL_FATAL(checker_new(s.fd, 4, remember, &said, &c), 0);
    for (int i = 0; i < MANY; i++) {
        char path[16]; // copied by the checker
        snprintf(path, sizeof(path), "gone%d", i);
        gone.path = blob_text(path);
        CU_ASSERT_EQUAL(checker_add(c, i % 3 == 0 ? &right : i % 3 == 1 ? &wrong : &gone), 0);
    }
    checker_end(c, &tally);
    CU_ASSERT_EQUAL(tally.entries[CHECK_RIGHT], 667);
    CU_ASSERT_EQUAL(tally.entries[CHECK_WRONG], 667);
    CU_ASSERT_EQUAL(tally.entries[CHECK_MISSING], 666);
    CU_ASSERT_EQUAL(said.count, 667 + 666);
    scratch_end(&s);
}

// What was handed over is the checker's own: the caller's path may be gone.
static void test_copies(void)
{
    enum { FEW = 20 };
    struct scratch s = scratch_begin();
    struct said said = {.count = 0};
    struct check_tally tally;
    struct checker *c;
    char path[16];
    for (int i = 0; i < FEW; i++) {
        snprintf(path, sizeof(path), "f%d", i);
        scratch_bytes(s.fd, path, LEAF_BYTES);
    }
    struct receipt_entry e = expect_file(s.fd, "f0");
    CU_ASSERT_EQUAL_FATAL(checker_new(s.fd, 1, remember, &said, &c), 0);
    for (int i = 0; i < FEW; i++) {
        e.path = blob_of(path, (size_t)snprintf(path, sizeof(path), "f%d", i));
        CU_ASSERT_EQUAL(checker_add(c, &e), 0);
        memset(path, 'z', sizeof(path));
    }
    checker_end(c, &tally);
    CU_ASSERT_EQUAL(tally.entries[CHECK_MISSING], 0);
    CU_ASSERT_EQUAL(tally.entries[CHECK_RIGHT] + tally.entries[CHECK_WRONG], FEW);
    scratch_end(&s);
}

void suite_verify(void)
{
    CU_pSuite suite = CU_add_suite("verify", NULL, NULL);
    CU_add_test(suite, "right", test_right);
    CU_add_test(suite, "wrong_byte", test_wrong_byte);
    CU_add_test(suite, "other_things", test_other_things);
    CU_add_test(suite, "missing", test_missing);
    CU_add_test(suite, "unproved", test_unproved);
    CU_add_test(suite, "unreadable", test_unreadable);
    CU_add_test(suite, "many", test_many);
    CU_add_test(suite, "copies", test_copies);
}
