// Entries as they are settled at the destination: what is said of them, once and in which order.
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <CUnit/CUnit.h>

#include "tests/unit/dest_agent_kit.h"

// One segment: a large file of five stripes, two small ones that share the sixth, and a directory.
enum { LARGE, SMALL, OTHER_SMALL, FOLDER, ENTRIES, FIRST = KIT_FIRST };

static void kit_begin(struct kit *k)
{
    struct entry entries[ENTRIES] = {[LARGE] = tree_file("large", 5 * MIB),
                                     [SMALL] = tree_file("small", 10),
                                     [OTHER_SMALL] = tree_file("other", 10),
                                     [FOLDER] = tree_dir("dir")};
    kit_begin_with(k, entries, ENTRIES, ENTRIES - 1);
}

static void expect_run(struct kit *k, uint64_t first, uint64_t count)
{
    const struct msg_stripes_done *m = &kit_expect(k, MESSAGE_STRIPES_DONE)->stripes_done;
    struct wire_reader r;
    wire_reader_init(&r, m->runs.bytes, m->runs.len);
    CU_ASSERT(m->settled == 1 && m->bytes == 0);
    CU_ASSERT_EQUAL(wire_get_u64(&r), first);
    CU_ASSERT_EQUAL(wire_get_u64(&r), count);
    CU_ASSERT_EQUAL(wire_done(&r), 0);
}

static void expect_record(struct kit *k, const char *path, enum receipt_outcome outcome)
{
    const struct msg_entries_done *m = &kit_expect(k, MESSAGE_ENTRIES_DONE)->entries_done;
    struct wire_reader r;
    size_t len;
    struct receipt_entry e;
    wire_reader_init(&r, m->records.bytes, m->records.len);
    const uint8_t *bytes = wire_get_blob(&r, m->records.len, &len);
    CU_ASSERT_FATAL(bytes != NULL && receipt_entry_decode(bytes, len, &e) == 0);
    CU_ASSERT(m->segment == 4 && e.outcome == outcome && e.proof == PROOF_NONE);
    CU_ASSERT(e.path.len == strlen(path) && memcmp(e.path.bytes, path, e.path.len) == 0);
    CU_ASSERT_EQUAL(wire_done(&r), 0);
}

static void expect_problem(struct kit *k, uint32_t entry, enum problem_count count, enum err_class class)
{
    const struct msg_problem *m = &kit_expect(k, MESSAGE_PROBLEM)->problem;
    CU_ASSERT(m->segment == 4 && m->entry == entry && m->count == count && m->class == class);
}

static void fail(struct kit *k, uint32_t entry, enum err_class class)
{
    const struct entry *e = &k->work.segment->entries[entry];
    struct err err;
    err_set(&err, class, 0, "read", e->path, e->path_len, "%s", "");
    settle_failed(k->d, &k->work, entry, &err);
}

// A large file's stripes are settled first; then the entry is: recorded, or left to be tried again.
static void test_failed(void)
{
    static const struct {
        enum err_class class;
        bool retry; // in the segment of those that are tried again
        enum receipt_outcome outcome;
    } table[] = {
        {ERR_ENTRY, false, RECEIPT_FAILED},
        {ERR_DIGEST, false, RECEIPT_FAILED},
        {ERR_VANISHED, false, RECEIPT_VANISHED},
        {ERR_VANISHED, true, RECEIPT_VANISHED},
        {ERR_CHANGED, false, 0},
        {ERR_CHANGED, true, RECEIPT_CHANGED},
    };
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        struct kit k;
        kit_begin(&k);
        k.side.retry = table[i].retry;
        fail(&k, LARGE, table[i].class);
        expect_run(&k, FIRST, 5);
        if (table[i].outcome != 0)
            expect_record(&k, "large", table[i].outcome);
        expect_problem(&k, LARGE, table[i].outcome != 0 ? PROBLEM_RECORDED : PROBLEM_RETRY, table[i].class);
        fail(&k, LARGE, ERR_ENTRY); // once
        CU_ASSERT_PTR_NULL(kit_word(&k));
        CU_ASSERT_TRUE(dest_plan_entry_failed(k.d->plan, 4, LARGE));
        kit_end(&k);
    }
}

// The stripe of a small file carries others: it goes on.
static void test_failed_small(void)
{
    struct kit k;
    kit_begin(&k);
    CU_ASSERT_EQUAL(dest_plan_lease(k.d->plan, 1, 4, FIRST, 6), 0);
    fail(&k, SMALL, ERR_VANISHED);
    expect_record(&k, "small", RECEIPT_VANISHED);
    expect_problem(&k, SMALL, PROBLEM_RECORDED, ERR_VANISHED);
    CU_ASSERT_PTR_NULL(kit_word(&k));
    CU_ASSERT_EQUAL(dest_plan_arrive(k.d->plan, 4, FIRST + 5), DEST_TAKE);
    kit_end(&k);
}

// The end of the segment comes behind the words about its last entry, and once.
static void test_segment_done(void)
{
    struct kit k;
    kit_begin(&k);
    settle_entries(k.d, &k.work, 0);
    fail(&k, LARGE, ERR_CHANGED);
    settle_entries(k.d, &k.work, 1); // one small file is published
    expect_run(&k, FIRST, 5);
    expect_problem(&k, LARGE, PROBLEM_RETRY, ERR_CHANGED);
    CU_ASSERT_PTR_NULL(kit_word(&k));
    fail(&k, OTHER_SMALL, ERR_ENTRY);
    expect_record(&k, "other", RECEIPT_FAILED);
    expect_problem(&k, OTHER_SMALL, PROBLEM_RECORDED, ERR_ENTRY);
    CU_ASSERT_PTR_NULL(kit_word(&k)); // the large one is settled when its temporary file is gone
    kit_run_drops(&k);
    CU_ASSERT_EQUAL(kit_expect(&k, MESSAGE_SEGMENT_DONE)->segment_done.segment, 4);
    settle_entries(k.d, &k.work, 0); // its stripe is committed, and has nothing to say
    CU_ASSERT_PTR_NULL(kit_word(&k));
    // Its stripes may still be on their way when the segment is forgotten.
    dest_plan_segment_forget(k.d->plan, 4);
    fail(&k, LARGE, ERR_CHANGED);
    settle_entries(k.d, &k.work, 0);
    CU_ASSERT_PTR_NULL(kit_word(&k));
    kit_end(&k);
}

// Records go out in messages of a bounded size, all of them and in order.
static void test_records(void)
{
    enum { RECORDS = 300 };
    struct kit k;
    kit_begin(&k);
    struct records *records = malloc(sizeof *records);
    char *path = malloc(PATH_BYTES_MAX + 1);
    CU_ASSERT_FATAL(records != NULL && path != NULL);
    records_init(records, &k.agent, 9);
    records_flush(records); // nothing is nothing
    CU_ASSERT_PTR_NULL(kit_word(&k));
    for (size_t i = 0; i < PATH_BYTES_MAX; i++)
        path[i] = i % 200 == 199 ? '/' : 'p';
    path[PATH_BYTES_MAX - 1] = 'p'; // no slash at the end
    path[PATH_BYTES_MAX] = '\0';
    struct digest digest = {{7}};
    for (uint32_t i = 0; i < RECORDS; i++) { // the longest path among short ones
        struct entry e = tree_file(path, i);
        e.path_len = i % 100 == 50 ? PATH_BYTES_MAX : 150;
        records_add(records, &e, RECEIPT_MOVED, PROOF_WIRE, i % 2 ? &digest : NULL);
    }
    records_flush(records);
    records_flush(records);
    uint32_t got = 0, messages = 0;
    for (const struct message *m; (m = kit_word(&k)) != NULL; messages++) {
        struct wire_reader r;
        CU_ASSERT_FATAL(m->type == MESSAGE_ENTRIES_DONE && m->entries_done.segment == 9);
        wire_reader_init(&r, m->entries_done.records.bytes, m->entries_done.records.len);
        while (wire_left(&r) > 0) {
            size_t len;
            struct receipt_entry e;
            const uint8_t *bytes = wire_get_blob(&r, m->entries_done.records.len, &len);
            CU_ASSERT_FATAL(bytes != NULL && receipt_entry_decode(bytes, len, &e) == 0);
            CU_ASSERT(e.size == got && e.outcome == RECEIPT_MOVED && e.proof == PROOF_WIRE);
            CU_ASSERT_EQUAL(e.path.len, got % 100 == 50 ? PATH_BYTES_MAX : 150);
            CU_ASSERT_EQUAL(e.digest.bytes[0], got % 2 ? 7 : 0);
            got++;
        }
    }
    CU_ASSERT_EQUAL(got, RECORDS);
    CU_ASSERT(messages > 1);
    free(path);
    free(records);
    kit_end(&k);
}

// Which errors end the job and not one entry.
static void test_fatal(void)
{
    static const struct {
        int error;
        bool fatal;
    } table[] = {
        {-ENOSPC, true},  {-EDQUOT, true},  {-EIO, true},     {-EROFS, true},         {-ENOMEM, true},
        {-ESTALE, true},  {-EMFILE, true},  {-ENFILE, true},  {-EACCES, false},       {-EPERM, false},
        {-ENOENT, false}, {-EEXIST, false}, {-EISDIR, false}, {-ENAMETOOLONG, false}, {-ELOOP, false},
        {-EFBIG, false},  {-EXDEV, false},  {0, false},       {ENOSPC, false},
    };
    for (size_t i = 0; i < ARRAY_LEN(table); i++)
        CU_ASSERT_EQUAL(dest_is_fatal(table[i].error), table[i].fatal);
}

// The destination fails once, with the first reason.
static void test_stop_storage(void)
{
    struct kit k;
    kit_begin(&k);
    CU_ASSERT_FALSE(dest_has_failed(k.d));
    dest_stop_storage(k.d, -ENOSPC, "write", &k.work.segment->entries[LARGE]);
    CU_ASSERT_TRUE(dest_has_failed(k.d));
    dest_stop_storage(k.d, -EIO, "sync", NULL);
    const struct msg_fail *m = &kit_expect(&k, MESSAGE_FAIL)->fail;
    CU_ASSERT(m->class == ERR_STORAGE && m->os == ENOSPC && m->text.len > 0);
    CU_ASSERT(m->path.len == 5 && memcmp(m->path.bytes, "large", 5) == 0);
    CU_ASSERT_PTR_NULL(kit_word(&k));
    kit_end(&k);
    kit_begin(&k);
    dest_stop_storage(k.d, -EIO, "sync", NULL);
    m = &kit_expect(&k, MESSAGE_FAIL)->fail;
    CU_ASSERT(m->os == EIO && m->path.len == 0 && m->op.len == 4);
    kit_end(&k);
}

void suite_dest_settle(void)
{
    CU_pSuite s = CU_add_suite("dest_settle", NULL, NULL);
    CU_add_test(s, "failed", test_failed);
    CU_add_test(s, "failed_small", test_failed_small);
    CU_add_test(s, "segment_done", test_segment_done);
    CU_add_test(s, "records", test_records);
    CU_add_test(s, "fatal", test_fatal);
    CU_add_test(s, "stop_storage", test_stop_storage);
}
