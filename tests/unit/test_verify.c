// A verification by the role of a real agent.
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "tests/unit/verify_kit.h"

// Verifies beneath `path` with a real agent; its exit status must be 0 when the conversation came to its end.
static int verify_real(const char *root, const char *path, struct receipt_reader *receipt, struct said *said,
                       struct verify_tally *tally, struct err *err)
{
    struct place place;
    struct real_agent agent;
    pthread_t thread;
    CU_ASSERT_EQUAL_FATAL(place_parse(path, &place, err), 0);
    *said = (struct said){.count = 0};
    struct verify_config cfg = {.place = &place, .found = remember, .arg = said};
    struct verify_end end = {.id = job, .control = real_start(&agent, root, &thread)};
    int rc = verify_over(&cfg, &end, receipt, tally, err);
    channel_free(end.control);
    CU_ASSERT_EQUAL(pthread_join(thread, NULL), 0);
    CU_ASSERT_EQUAL(agent.status, rc < 0);
    CU_ASSERT_EQUAL(strstr(agent.line, "verify, for") != NULL, rc == 0);
    place_free(&place);
    return rc;
}

static void test_tally(void)
{
    struct scratch s = scratch_begin();
    struct said said;
    struct verify_tally tally;
    struct err err;
    struct stat before, after;
    scratch_dir(s.fd, "copy");
    scratch_file(s.fd, "copy/good", "text");
    scratch_file(s.fd, "copy/bad", "TEXT");
    scratch_file(s.fd, "copy/skipped", "text");
    struct receipt_entry skipped = entry(ENTRY_FILE, RECEIPT_SKIPPED, "skipped");
    CU_ASSERT_EQUAL_FATAL(fstatat(s.fd, "copy/skipped", &before, 0), 0);
    skipped.proof = PROOF_NONE;
    skipped.size = 4;
    skipped.mtime = (struct entry_time){.s = before.st_mtim.tv_sec, .ns = (uint32_t)before.st_mtim.tv_nsec};
    const struct receipt_entry entries[] = {entry(ENTRY_DIR, RECEIPT_MOVED, ""),
                                            entry(ENTRY_FILE, RECEIPT_FAILED, "failed"),
                                            text_entry("bad"),
                                            text_entry("good"),
                                            entry(ENTRY_FILE, RECEIPT_VANISHED, "vanished"),
                                            skipped,
                                            text_entry("gone"),
                                            entry(ENTRY_FILE, RECEIPT_CHANGED, "good")};
    struct receipt_reader *receipt = receipt_of(&s, entries, ARRAY_LEN(entries));
    CU_ASSERT_EQUAL_FATAL(fstatat(s.fd, "copy", &before, 0), 0);
    CU_ASSERT_EQUAL(verify_real(s.path, "penstock://there/copy", receipt, &said, &tally, &err), 0);
    CU_ASSERT(tally.entries[CHECK_RIGHT] == 2 && tally.entries[CHECK_UNPROVED] == 1);
    CU_ASSERT(tally.entries[CHECK_WRONG] == 1 && tally.entries[CHECK_MISSING] == 1);
    CU_ASSERT(tally.entries[CHECK_UNREADABLE] == 0 && tally.not_copied == 3 && tally.bytes == 8);
    CU_ASSERT_EQUAL_FATAL(said.count, 2);
    CU_ASSERT_STRING_EQUAL(said.errs[0].path, "bad"); // in the order of the receipt
    CU_ASSERT_STRING_EQUAL(said.errs[0].node, "there");
    CU_ASSERT_STRING_EQUAL(said.errs[1].path, "gone");
    CU_ASSERT_EQUAL_FATAL(fstatat(s.fd, "copy", &after, 0), 0);
    CU_ASSERT(before.st_mtim.tv_nsec == after.st_mtim.tv_nsec &&
              before.st_mtim.tv_sec == after.st_mtim.tv_sec);
    receipt_reader_free(receipt);
    scratch_end(&s);
}

// More records than can be under way at once, the paths of different lengths, and none at all.
static void test_many(void)
{
    enum { MANY = 9000 };
    struct scratch s = scratch_begin();
    struct said said;
    struct verify_tally tally;
    struct err err;
    char(*paths)[256] = calloc(MANY, sizeof *paths);
    struct receipt_entry *entries = calloc(MANY, sizeof *entries);
    CU_ASSERT_FATAL(paths != NULL && entries != NULL);
    scratch_file(s.fd, "f", "text");
    for (int i = 0; i < MANY; i++) {
        snprintf(paths[i], sizeof paths[i], "gone%0*d", 1 + i % 250, i);
        entries[i] = text_entry(i % 2 == 0 ? "f" : paths[i]);
    }
    struct receipt_reader *receipt = receipt_of(&s, entries, MANY);
    CU_ASSERT_EQUAL(verify_real(NULL, s.path, receipt, &said, &tally, &err), 0);
    CU_ASSERT(tally.entries[CHECK_RIGHT] == MANY / 2 && tally.entries[CHECK_MISSING] == MANY / 2);
    CU_ASSERT(said.count == MANY / 2 && tally.bytes == MANY / 2 * 4);
    CU_ASSERT_STRING_EQUAL(said.errs[7].path, paths[15]);
    CU_ASSERT_STRING_EQUAL(said.errs[7].node, "");
    receipt_reader_free(receipt);
    free(paths);
    free(entries);
    scratch_end(&s);
    s = scratch_begin();
    receipt = receipt_of(&s, NULL, 0);
    CU_ASSERT_EQUAL(verify_real(NULL, s.path, receipt, &said, &tally, &err), 0);
    CU_ASSERT(tally.entries[CHECK_RIGHT] == 0 && said.count == 0);
    receipt_reader_free(receipt);
    scratch_end(&s);
}

// A directory that the agent does not give out: why, and from whom.
static void test_not_there(void)
{
    static const struct {
        const char *path;
        int os;
    } rows[] = {{"penstock://there/none", ENOENT},
                {"penstock://there/f", ENOTDIR},
                {"penstock://there/../x", EACCES},
                {"penstock://there/out", ELOOP}};
    struct scratch s = scratch_begin();
    scratch_file(s.fd, "f", "text");
    scratch_link(s.fd, "out", "/");
    const struct receipt_entry e = text_entry("f");
    struct receipt_reader *receipt = receipt_of(&s, &e, 1);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct said said;
        struct verify_tally tally;
        struct err err;
        CU_ASSERT(verify_real(s.path, rows[i].path, receipt, &said, &tally, &err) < 0);
        CU_ASSERT(err.class == ERR_START && err.os == rows[i].os && said.count == 0);
        CU_ASSERT_STRING_EQUAL(err.node, "there");
    }
    receipt_reader_free(receipt);
    scratch_end(&s);
}

void suite_verify(void)
{
    CU_pSuite suite = CU_add_suite("verify", NULL, NULL);
    CU_add_test(suite, "tally", test_tally);
    CU_add_test(suite, "many", test_many);
    CU_add_test(suite, "not_there", test_not_there);
}
