// The coordinator machine: entries and problems as they are counted, and the exit status that they lead to.
#include <errno.h>
#include <string.h>

#include <CUnit/CUnit.h>

#include "mover/plan/coord_state.h"
#include "tests/unit/coord_kit.h"

// Ends a job whose one segment is done, in order; its exit status.
static int finish(struct coord_kit *k)
{
    kit_segment_done(k, 0);
    kit_retry_segment(k, 1, 0, true);
    kit_finished(k);
    kit_closed(k, COORD_SOURCE);
    kit_closed(k, COORD_DEST);
    CU_ASSERT_EQUAL(k->ends, 1);
    return k->exit_status;
}

static void begin(struct coord_kit *k, uint32_t entries)
{
    kit_begin_in(k, KIT_RUN);
    kit_segment(k, 0, entries, 0, true);
}

// What entries came to, told by their records alone: the status must not say more than the records do.
static void test_records(void)
{
    static const struct {
        uint32_t moved, skipped, changed, vanished, failed;
        int exit;
    } table[] = {
        {0, 0, 0, 0, 0, 0}, {3, 0, 0, 0, 0, 0}, {0, 3, 0, 0, 0, 0},
        {2, 1, 0, 0, 0, 0}, {0, 0, 1, 0, 0, 8}, {9, 0, 0, 1, 0, 8},
        {0, 0, 0, 0, 1, 1}, {1, 1, 1, 1, 1, 1}, {500, 300, 0, 0, 0, 0},
    };
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        struct coord_kit k;
        uint32_t total =
            table[i].moved + table[i].skipped + table[i].changed + table[i].vanished + table[i].failed;
        kit_begin_in(&k, KIT_RUN);
        if (total > 0)
            kit_segment(&k, 0, total, 0, true);
        else
            kit_closed_segment(&k, 0, 0, true);
        kit_entries(&k, 0, RECEIPT_MOVED, table[i].moved);
        kit_entries(&k, 0, RECEIPT_SKIPPED, table[i].skipped);
        kit_entries(&k, 0, RECEIPT_CHANGED, table[i].changed);
        kit_entries(&k, 0, RECEIPT_VANISHED, table[i].vanished);
        kit_entries(&k, 0, RECEIPT_FAILED, table[i].failed);
        struct coord_counters n = kit_counters(&k);
        CU_ASSERT(n.total == total && n.moved == table[i].moved && n.skipped == table[i].skipped);
        CU_ASSERT(n.changed == table[i].changed && n.vanished == table[i].vanished);
        CU_ASSERT(n.failed == table[i].failed && n.files_moved == table[i].moved && n.walked);
        CU_ASSERT_EQUAL(k.records, total);
        if (total == 0) {
            kit_retry_segment(&k, 0, 0, true);
            kit_finished(&k);
            kit_closed(&k, COORD_SOURCE);
            kit_closed(&k, COORD_DEST);
            CU_ASSERT_EQUAL(k.exit_status, table[i].exit);
        } else {
            CU_ASSERT_EQUAL(finish(&k), table[i].exit);
        }
        kit_end(&k);
    }
}

// Files are counted for themselves.
static void test_files(void)
{
    static const enum entry_type types[] = {ENTRY_DIR, ENTRY_FILE, ENTRY_SYMLINK, ENTRY_FILE};
    uint8_t one[128], list[512];
    struct wire_writer w;
    struct coord_kit k;
    wire_writer_init(&w, list, sizeof list);
    for (size_t i = 0; i < ARRAY_LEN(types); i++) {
        struct receipt_entry e = {.type = types[i], .outcome = RECEIPT_MOVED, .path = blob_text("a")};
        int64_t len = receipt_entry_encode(&e, one, sizeof one);
        CU_ASSERT_FATAL(len > 0);
        wire_put_blob(&w, one, (size_t)len);
    }
    begin(&k, ARRAY_LEN(types));
    kit_say(&k, COORD_DEST,
            &(struct message){.type = MESSAGE_ENTRIES_DONE,
                              .entries_done = {.records = blob_of(list, (size_t)wire_written(&w))}});
    CU_ASSERT(kit_counters(&k).moved == 4 && kit_counters(&k).files_moved == 2);
    kit_end(&k);
}

// The destination may speak of entries before the source has said how many there are.
static void test_records_first(void)
{
    struct coord_kit k;
    kit_begin_in(&k, KIT_RUN);
    kit_entries(&k, 0, RECEIPT_MOVED, 3);
    CU_ASSERT_EQUAL(kit_counters(&k).total, 3);
    kit_closed_segment(&k, 0, 5, true);
    CU_ASSERT_EQUAL(kit_counters(&k).total, 5);
    kit_end(&k);
}

static void test_records_unread(void)
{
    static const uint8_t table[][4] = {{1, 0, 0, 0}, {0, 0, 0, 0}, {9, 0, 0, 0}, {255, 255, 255, 255}};
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        for (size_t len = 1; len <= 4; len++) {
            struct coord_kit k;
            begin(&k, 1);
            kit_say(&k, COORD_DEST,
                    &(struct message){.type = MESSAGE_ENTRIES_DONE,
                                      .entries_done = {.records = blob_of(table[i], len)}});
            CU_ASSERT_EQUAL(k.records, 0);
            kit_expect_stopped(&k, ERR_PROTOCOL);
            kit_end(&k);
        }
    }
}

// Problems that are told beside a record, or are an entry of their own.
static void test_problems(void)
{
    static const struct {
        enum problem_count count;
        enum err_class class;
        uint64_t total, changed, vanished, failed;
        int exit;
    } table[] = {
        {PROBLEM_RECORDED, ERR_ENTRY, 1, 0, 0, 0, 1},
        {PROBLEM_RECORDED, ERR_VANISHED, 1, 0, 0, 0, 8},
        {PROBLEM_RECORDED, ERR_DIGEST, 1, 0, 0, 0, 7},
        {PROBLEM_RECORDED, ERR_CLASS_COUNT, 1, 0, 0, 0, 6},
        {PROBLEM_UNLISTED, ERR_ENTRY, 2, 0, 0, 1, 1},
        {PROBLEM_UNLISTED, ERR_CHANGED, 2, 1, 0, 0, 8},
        {PROBLEM_UNLISTED, ERR_UNSUPPORTED, 2, 0, 0, 1, 1},
        {PROBLEM_UNLISTED, ERR_VANISHED, 2, 0, 1, 0, 8},
        {PROBLEM_UNLISTED, ERR_DIGEST, 2, 0, 0, 1, 7},
        {PROBLEM_UNLISTED, ERR_CLASS_COUNT, 2, 0, 0, 1, 6},
    };
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        for (unsigned node = 0; node < COORD_NODES; node++) {
            struct coord_kit k;
            begin(&k, 1);
            kit_entries(&k, 0, RECEIPT_MOVED, 1);
            kit_problem(&k, node, table[i].count, table[i].class);
            if (table[i].count == PROBLEM_UNLISTED && node == COORD_DEST) { // it lists nothing
                kit_expect_stopped(&k, ERR_PROTOCOL);
                kit_end(&k);
                continue;
            }
            CU_ASSERT_STRING_EQUAL(k.problem.node, node == COORD_SOURCE ? "there" : "here");
            CU_ASSERT_STRING_EQUAL(k.problem.path, "a file");
            struct coord_counters n = kit_counters(&k);
            CU_ASSERT(n.total == table[i].total && n.changed == table[i].changed);
            CU_ASSERT(n.vanished == table[i].vanished && n.failed == table[i].failed && n.moved == 1);
            CU_ASSERT_EQUAL(k.problems, 1);
            kit_expect_running(&k);
            CU_ASSERT_EQUAL(finish(&k), table[i].exit);
            kit_end(&k);
        }
    }
}

static void test_problem_refused(void)
{
    static const uint8_t counts[] = {PROBLEM_UNLISTED + 1, 255};
    for (size_t i = 0; i < ARRAY_LEN(counts); i++) {
        struct coord_kit k;
        begin(&k, 1);
        kit_problem(&k, COORD_DEST, (enum problem_count)counts[i], ERR_ENTRY);
        kit_expect_stopped(&k, ERR_PROTOCOL);
        kit_end(&k);
    }
    struct coord_kit k; // the source has nothing to leave to itself
    begin(&k, 1);
    kit_problem(&k, COORD_SOURCE, PROBLEM_RETRY, ERR_CHANGED);
    kit_expect_stopped(&k, ERR_PROTOCOL);
    kit_end(&k);
}

// A file to be tried again is not settled: the source is told, nobody else. What became of it then counts.
static void test_retried(void)
{
    static const struct {
        enum receipt_outcome outcome; // 0: it could not be listed again
        int exit;
    } table[] = {{RECEIPT_MOVED, 0}, {RECEIPT_CHANGED, 8}, {RECEIPT_SKIPPED, 0}, {0, 8}};
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        struct coord_kit k;
        begin(&k, 2);
        kit_entries(&k, 0, RECEIPT_MOVED, 1);
        kit_say(&k, COORD_DEST,
                &(struct message){.type = MESSAGE_PROBLEM,
                                  .problem = {.segment = 0,
                                              .entry = 1,
                                              .count = PROBLEM_RETRY,
                                              .class = ERR_CHANGED,
                                              .path = blob_text("a file")}});
        const struct msg_problem *m = &kit_expect(&k, COORD_SOURCE, MESSAGE_PROBLEM)->problem;
        CU_ASSERT(m->segment == 0 && m->entry == 1 && m->count == PROBLEM_RETRY && m->path.len == 6);
        CU_ASSERT_EQUAL(k.problems, 0);
        kit_segment_done(&k, 0);
        kit_expect(&k, COORD_SOURCE, MESSAGE_SEGMENT_DONE);
        kit_expect(&k, COORD_SOURCE, MESSAGE_RETRY);
        if (table[i].outcome != 0) {
            kit_retry_segment(&k, 1, 1, true);
            kit_compared(&k, 1, 0, 0);
            kit_laid(&k, 1, 0, 0);
            kit_entries(&k, 1, table[i].outcome, 1);
            kit_segment_done(&k, 1);
        } else {
            kit_records(&k, COORD_SOURCE, UINT64_MAX, RECEIPT_VANISHED, 1);
            kit_problem(&k, COORD_SOURCE, PROBLEM_RECORDED, ERR_VANISHED);
            kit_retry_segment(&k, 1, 0, true);
        }
        CU_ASSERT_EQUAL(kit_counters(&k).total, 2);
        CU_ASSERT_EQUAL(k.records, 2); // one each
        kit_finished(&k);
        kit_closed(&k, COORD_SOURCE);
        kit_closed(&k, COORD_DEST);
        CU_ASSERT(k.ends == 1 && k.exit_status == table[i].exit);
        kit_end(&k);
    }
}

// The segment is done, and of an entry nobody ever spoke: that is no end.
static void test_never_settled(void)
{
    struct coord_kit k;
    begin(&k, 3);
    kit_entries(&k, 0, RECEIPT_MOVED, 2);
    kit_segment_done(&k, 0);
    kit_expect_stopped(&k, ERR_PROTOCOL);
    CU_ASSERT_STRING_EQUAL(k.problem.node, "here");
    kit_end(&k);
    // Left to the retry, and forgotten there.
    begin(&k, 2);
    kit_entries(&k, 0, RECEIPT_MOVED, 1);
    kit_problem(&k, COORD_DEST, PROBLEM_RETRY, ERR_CHANGED);
    kit_segment_done(&k, 0);
    kit_retry_segment(&k, 1, 0, true);
    kit_expect_stopped(&k, ERR_PROTOCOL);
    kit_end(&k);
}

// An entry that is settled twice, in whatever way, ends the job: also where the sum comes out right in the
// end, since another one is never settled, and before it is known how many there are.
static void test_settled_twice(void)
{
    for (int way = 0; way < 8; way++) {
        struct coord_kit k;
        uint64_t total = 2;
        kit_begin_in(&k, KIT_RUN);
        if (way < 6)
            kit_segment(&k, 0, 2, 0, true);
        if (way == 0) {
            kit_entries(&k, 0, RECEIPT_MOVED, 3);
        } else if (way == 1) {
            kit_entries(&k, 0, RECEIPT_MOVED, 2);
            kit_entries(&k, 0, RECEIPT_SKIPPED, 1);
        } else if (way == 2) {
            kit_entries(&k, 0, RECEIPT_MOVED, 2);
            kit_problem(&k, COORD_DEST, PROBLEM_RETRY, ERR_CHANGED);
        } else if (way == 3) { // when its segment is done
            kit_entries(&k, 0, RECEIPT_MOVED, 2);
            kit_segment_done(&k, 0);
            kit_entries(&k, 0, RECEIPT_MOVED, 1);
        } else if (way == 4) { // by the source, of an entry that was not left to it
            kit_entries(&k, 0, RECEIPT_MOVED, 2);
            kit_segment_done(&k, 0);
            kit_records(&k, COORD_SOURCE, UINT64_MAX, RECEIPT_VANISHED, 1);
        } else if (way == 5) { // by the source, and tried again all the same
            kit_entries(&k, 0, RECEIPT_MOVED, 1);
            kit_problem(&k, COORD_DEST, PROBLEM_RETRY, ERR_CHANGED);
            kit_segment_done(&k, 0);
            kit_records(&k, COORD_SOURCE, UINT64_MAX, RECEIPT_VANISHED, 1);
            kit_retry_segment(&k, 1, 1, true);
        } else if (way == 6) { // before the source has spoken of the segment
            kit_entries(&k, 0, RECEIPT_MOVED, 3);
            kit_closed_segment(&k, 0, 2, true);
            total = 3;
        } else {
            kit_entries(&k, 0, RECEIPT_MOVED, 2);
            for (int i = 0; i < 4; i++)
                kit_entries(&k, 0, RECEIPT_MOVED, SEGMENT_ENTRIES_MAX / 4);
            total = SEGMENT_ENTRIES_MAX / 4 * 3 + 2;
        }
        kit_expect_stopped(&k, ERR_PROTOCOL);
        CU_ASSERT_STRING_EQUAL(k.problem.node, way == 4 || way == 5 ? "there" : "here");
        CU_ASSERT_EQUAL(kit_counters(&k).total, total);
        kit_closed(&k, COORD_SOURCE);
        kit_closed(&k, COORD_DEST);
        CU_ASSERT(k.ends == 1 && k.exit_status == 6);
        kit_end(&k);
    }
}

// What the source settles itself did not move, and was left to it.
static void test_source_records(void)
{
    static const enum receipt_outcome outcomes[] = {RECEIPT_MOVED, RECEIPT_SKIPPED, RECEIPT_CHANGED,
                                                    RECEIPT_VANISHED, RECEIPT_FAILED};
    for (size_t i = 0; i < ARRAY_LEN(outcomes); i++) {
        for (int early = 0; early < 2; early++) { // before it was asked to list them again
            struct coord_kit k;
            begin(&k, 1);
            kit_problem(&k, COORD_DEST, PROBLEM_RETRY, ERR_CHANGED);
            if (!early)
                kit_segment_done(&k, 0);
            kit_records(&k, COORD_SOURCE, UINT64_MAX, outcomes[i], 1);
            if (early || outcomes[i] == RECEIPT_MOVED || outcomes[i] == RECEIPT_SKIPPED)
                kit_expect_stopped(&k, ERR_PROTOCOL);
            else
                kit_expect_running(&k);
            kit_end(&k);
        }
    }
}

// The heaviest counts: 5, 4, 6, 7, 9, 3, 1, 8.
static void test_heaviest(void)
{
    static const struct {
        enum err_class problem, stop; // ERR_NONE: the job comes to its end
        int exit;
    } table[] = {
        {ERR_CHANGED, ERR_NONE, 8},    {ERR_ENTRY, ERR_NONE, 1},     {ERR_DIGEST, ERR_NONE, 7},
        {ERR_CHANGED, ERR_STORAGE, 4}, {ERR_DIGEST, ERR_STORAGE, 4}, {ERR_DIGEST, ERR_LOST, 6},
        {ERR_DIGEST, ERR_START, 7},    {ERR_ENTRY, ERR_START, 3},    {ERR_ENTRY, ERR_INTERRUPTED, 5},
    };
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        struct coord_kit k;
        begin(&k, 1);
        kit_entries(&k, 0, RECEIPT_MOVED, 1);
        kit_problem(&k, COORD_DEST, PROBLEM_RECORDED, ERR_CHANGED);
        kit_problem(&k, COORD_DEST, PROBLEM_RECORDED, table[i].problem);
        if (table[i].stop != ERR_NONE) {
            kit_fail(&k, COORD_DEST, table[i].stop);
            kit_tick(&k, SUSPECT_NS);
            kit_closed(&k, COORD_SOURCE);
            kit_closed(&k, COORD_DEST);
            CU_ASSERT_EQUAL(k.exit_status, table[i].exit);
        } else {
            CU_ASSERT_EQUAL(finish(&k), table[i].exit);
        }
        kit_end(&k);
    }
}

// What stopped the job says what is kept, what the next run needs and what is free: of what is known.
static void test_room(void)
{
    static const struct {
        int os;
        bool walked, compared, says_closed;
        uint64_t moved; // of it the last 100 are told when the job is being closed
        uint64_t kept, room;
        const char *text;
    } table[] = {
        {ENOSPC, true, true, true, 100, 100, MIB,
         "100 B are kept in .penstock for the next run, which needs 200 B "
         "more; 1.00 MiB are free"},
        {ENOSPC, true, false, true, 0, 0, 0, "the next run needs at least 300 B; 0 B are free"},
        {ENOSPC, false, true, true, 0, 0, 5, "the next run needs at least 300 B; 5 B are free"},
        {EDQUOT, true, true, true, 100, 100, MIB,
         "words; 100 B are kept in .penstock for the next run, which needs 200 B "
         "more"},
        {EIO, true, true, true, 300, 7, 9, "words; 7 B are kept in .penstock for the next run"},
        {EIO, true, true, true, 300, 0, 9, "words"},
        {ENOSPC, true, true, true, 300, 0, 9, "9 B are free"},
        {ENOSPC, true, true, false, 100, 0, 0, "words"},
    };
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        struct coord_kit k;
        struct err err;
        kit_begin_in(&k, KIT_RUN);
        kit_segment(&k, 0, 3, 3, table[i].walked && table[i].compared);
        if (!table[i].compared)
            kit_closed_segment(&k, 1, 5, table[i].walked);
        struct msg_lease lease = kit_expect(&k, COORD_DEST, MESSAGE_LEASE)->lease;
        kit_answer(&k, &lease);
        uint64_t stripes = table[i].moved / 100;
        for (uint64_t stripe = 0; stripe + 1 < stripes; stripe++)
            kit_durable(&k, stripe, 1);
        err_set(&err, ERR_STORAGE, table[i].os, "write", "f", 1, "words");
        struct message fail = {0}, closed = {.type = MESSAGE_CLOSED};
        message_from_err(&err, &fail);
        kit_say(&k, COORD_DEST, &fail);
        CU_ASSERT_EQUAL(k.problems, 0);
        if (stripes > 0)
            kit_durable(&k, stripes - 1, 1);
        kit_closed(&k, COORD_SOURCE);
        closed.closed.kept_bytes = table[i].kept;
        closed.closed.free_bytes = table[i].room;
        k.gone[COORD_DEST] = true;
        if (table[i].says_closed)
            kit_say(&k, COORD_DEST, &closed);
        else
            kit_lose(&k, COORD_DEST);
        CU_ASSERT(k.problems == 1 && k.problem.class == ERR_STORAGE && k.problem.os == table[i].os);
        CU_ASSERT_STRING_EQUAL(k.problem.text, table[i].text);
        CU_ASSERT(k.ends == 1 && k.exit_status == 4);
        kit_end(&k);
    }
}

void suite_coord_count(void)
{
    CU_pSuite s = CU_add_suite("coord_count", NULL, NULL);
    CU_add_test(s, "records", test_records);
    CU_add_test(s, "room", test_room);
    CU_add_test(s, "files", test_files);
    CU_add_test(s, "records_first", test_records_first);
    CU_add_test(s, "records_unread", test_records_unread);
    CU_add_test(s, "problems", test_problems);
    CU_add_test(s, "problem_refused", test_problem_refused);
    CU_add_test(s, "retried", test_retried);
    CU_add_test(s, "never_settled", test_never_settled);
    CU_add_test(s, "settled_twice", test_settled_twice);
    CU_add_test(s, "source_records", test_source_records);
    CU_add_test(s, "heaviest", test_heaviest);
}
