// What is found when a copy is read again: each thing that can be wrong with an entry.
#include <errno.h>
#include <stdio.h>

#include "tests/unit/checker_kit.h"

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
        check(s.fd, entries, count, threads, &said);
        CU_ASSERT_EQUAL(said.tally[CHECK_RIGHT], count);
        CU_ASSERT_EQUAL(said.bytes, bytes);
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

// Modes count, set-ID bits and those of links do not; what is worse is told first.
static void test_modes(void)
{
    struct scratch s = scratch_begin();
    struct said said;
    scratch_dir(s.fd, "d");
    scratch_file(s.fd, "f", "text");
    scratch_link(s.fd, "l", "x");
    struct receipt_entry d = expect(ENTRY_DIR, "d"), f = expect_file(s.fd, "f"), l = expect_link("l", "x");
    CU_ASSERT_EQUAL(verdict(s.fd, &l, &said), CHECK_RIGHT); // its mode is 0777
    f.mode = 06644;
    CU_ASSERT_EQUAL(verdict(s.fd, &f, &said), CHECK_RIGHT);
    static const uint32_t others[] = {0640, 0645, 01644, 0};
    for (size_t i = 0; i < ARRAY_LEN(others); i++) {
        char words[64];
        f.mode = others[i];
        snprintf(words, sizeof(words), "has mode 0644, not %04o", others[i]);
        CU_ASSERT_EQUAL(verdict(s.fd, &f, &said), CHECK_WRONG);
        CU_ASSERT_STRING_EQUAL(said.last.text, words);
    }
    CU_ASSERT_EQUAL(fchmodat(s.fd, "d", 01755, 0), 0);
    CU_ASSERT_EQUAL(verdict(s.fd, &d, &said), CHECK_WRONG);
    CU_ASSERT_STRING_EQUAL(said.last.text, "has mode 1755, not 0755");
    f.digest.bytes[0] ^= 1;
    CU_ASSERT_EQUAL(verdict(s.fd, &f, &said), CHECK_WRONG);
    CU_ASSERT_EQUAL(said.results[0].difference, DIFFERS_CONTENT);
    scratch_end(&s);
}

// As a user who may not read: that is no proof of damage.
static int read_forbidden(void *arg)
{
    const int *fd = arg;
    struct said said;
    struct receipt_entry e = expect(ENTRY_FILE, "f");
    e.mode = 0;
    e.size = 4;
    if (verdict(*fd, &e, &said) != CHECK_UNREADABLE)
        return 2;
    return said.last.class == ERR_ENTRY && said.last.os == EACCES ? 0 : 3;
}

static void test_unreadable(void)
{
    struct scratch s = scratch_begin();
    scratch_file(s.fd, "f", "text");
    CU_ASSERT_FATAL(fchmodat(s.fd, "f", 0, 0) == 0);
    CU_ASSERT_EQUAL(scratch_child(read_forbidden, &s.fd), 0);
    scratch_end(&s);
}

void suite_checker(void)
{
    CU_pSuite suite = CU_add_suite("checker", NULL, NULL);
    CU_add_test(suite, "right", test_right);
    CU_add_test(suite, "wrong_byte", test_wrong_byte);
    CU_add_test(suite, "other_things", test_other_things);
    CU_add_test(suite, "missing", test_missing);
    CU_add_test(suite, "unproved", test_unproved);
    CU_add_test(suite, "modes", test_modes);
    CU_add_test(suite, "unreadable", test_unreadable);
}
