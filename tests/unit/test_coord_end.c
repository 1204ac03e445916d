// The coordinator machine: how a job comes to its end, in order or not, in whatever phase it is.
#include <errno.h>
#include <string.h>

#include <CUnit/CUnit.h>

#include "mover/plan/coord_state.h"
#include "tests/unit/coord_kit.h"

static void close_both(struct coord_kit *k)
{
    for (unsigned n = 0; n < COORD_NODES; n++)
        if (!k->gone[n])
            kit_closed(k, n);
    CU_ASSERT_EQUAL(k->ends, 1);
}

// Nothing to copy, nothing to try again.
static void test_in_order(void)
{
    struct coord_kit k;
    kit_begin_in(&k, KIT_RUN);
    kit_closed_segment(&k, 0, 0, true);
    kit_expect(&k, COORD_SOURCE, MESSAGE_RETRY);
    kit_expect_none(&k);
    kit_retry_segment(&k, 0, 0, true);
    kit_expect(&k, COORD_DEST, MESSAGE_FINISH);
    kit_expect_none(&k);
    kit_finished(&k);
    for (unsigned n = 0; n < COORD_NODES; n++)
        CU_ASSERT_EQUAL(kit_expect(&k, n, MESSAGE_CLOSE)->close.finished, 1);
    kit_expect_none(&k);
    kit_closed(&k, COORD_DEST);
    CU_ASSERT_EQUAL(k.ends, 0);
    kit_closed(&k, COORD_SOURCE);
    CU_ASSERT(k.ends == 1 && k.exit_status == 0 && k.problems == 0);
    CU_ASSERT_EQUAL(kit_tick(&k, 10 * CLOSE_NS), UINT64_MAX);
    kit_end(&k);
}

// The end of the walk may be said with the last segment or behind it; the rest waits until segments are done.
static void test_walk_over(void)
{
    for (int behind = 0; behind < 2; behind++) {
        struct coord_kit k;
        kit_begin_in(&k, KIT_RUN);
        kit_segment(&k, 0, 1, 0, !behind);
        kit_entries(&k, 0, RECEIPT_MOVED, 1);
        CU_ASSERT_EQUAL(kit_counters(&k).walked, !behind);
        if (behind)
            kit_closed_segment(&k, 1, 0, true);
        CU_ASSERT_TRUE(kit_counters(&k).walked);
        kit_expect_none(&k);
        kit_segment_done(&k, 0);
        kit_expect(&k, COORD_SOURCE, MESSAGE_SEGMENT_DONE);
        kit_expect(&k, COORD_SOURCE, MESSAGE_RETRY);
        kit_end(&k);
        // The walk goes on: nothing is tried again yet.
        kit_begin_in(&k, KIT_RUN);
        kit_segment(&k, 0, 1, 0, false);
        kit_segment_over(&k, 0);
        kit_expect(&k, COORD_SOURCE, MESSAGE_SEGMENT_DONE);
        kit_expect(&k, COORD_DEST, MESSAGE_SEGMENT_DONE);
        kit_closed_segment(&k, 1, 0, false); // an empty one that is not the last says nothing
        kit_expect_none(&k);
        kit_expect_running(&k);
        kit_end(&k);
    }
}

// A file of segment `number` is tried again in a segment of its own.
static void retry_one(struct coord_kit *k, uint64_t number, bool last)
{
    kit_retry_segment(k, number, 1, last);
    kit_compared(k, number, 0, 0);
    kit_laid(k, number, 0, 0);
    kit_read_all(k);
    kit_expect_running(k);
    kit_entries(k, number, RECEIPT_MOVED, 1);
    kit_segment_done(k, number);
    for (unsigned n = 0; n < COORD_NODES; n++)
        kit_expect(k, n, MESSAGE_SEGMENT_DONE);
}

// What is to be tried again may fill several segments; the last one says so, and may be empty.
static void test_retry(void)
{
    for (uint32_t count = 1; count < 4; count++) {
        for (int empty_last = 0; empty_last < 2; empty_last++) {
            struct coord_kit k;
            kit_begin_in(&k, KIT_RUN);
            kit_segment(&k, 0, count, 0, true);
            for (uint32_t i = 0; i < count; i++)
                kit_problem(&k, COORD_DEST, PROBLEM_RETRY, ERR_CHANGED);
            kit_segment_done(&k, 0);
            kit_read_all(&k);
            for (uint32_t i = 0; i < count; i++)
                retry_one(&k, 1 + i, !empty_last && i + 1 == count);
            if (empty_last) {
                kit_expect_none(&k);
                kit_retry_segment(&k, 1 + count, 0, true);
            }
            kit_expect(&k, COORD_DEST, MESSAGE_FINISH);
            CU_ASSERT_EQUAL(kit_counters(&k).total, count); // counted once
            kit_finished(&k);
            close_both(&k);
            CU_ASSERT_EQUAL(k.exit_status, 0);
            kit_end(&k);
        }
    }
}

static void test_retry_refused(void)
{
    for (int i = 0; i < 4; i++) {
        struct coord_kit k;
        kit_begin_in(&k, KIT_RUN);
        kit_segment(&k, 0, 2, 0, true);
        kit_problem(&k, COORD_DEST, PROBLEM_RETRY, ERR_CHANGED);
        kit_problem(&k, COORD_DEST, PROBLEM_RETRY, ERR_CHANGED);
        kit_segment_done(&k, 0);
        kit_expect_running(&k);
        if (i == 0) { // the walk is over
            kit_closed_segment(&k, 1, 1, true);
        } else if (i == 1) { // one after the last, which is not done
            kit_retry_segment(&k, 1, 1, true);
            kit_retry_segment(&k, 2, 1, true);
        } else if (i == 2) { // and empty
            kit_retry_segment(&k, 1, 1, true);
            kit_retry_segment(&k, 2, 0, true);
        } else { // more than were left to it
            kit_retry_segment(&k, 1, 3, true);
        }
        kit_expect_stopped(&k, ERR_PROTOCOL);
        kit_end(&k);
    }
}

// Words about stripes of files that failed, on their way while the closing pass runs: no fault.
static void test_late_words(void)
{
    struct coord_kit k;
    kit_begin_in(&k, KIT_RUN);
    kit_segment(&k, 0, 1, 10, true);
    struct msg_lease l = kit_expect(&k, COORD_DEST, MESSAGE_LEASE)->lease;
    kit_problem(&k, COORD_DEST, PROBLEM_RECORDED, ERR_VANISHED);
    kit_entries(&k, 0, RECEIPT_VANISHED, 1);
    kit_segment_done(&k, 0);
    kit_retry_segment(&k, 1, 0, true);
    kit_read_all(&k);
    kit_answer(&k, &l);
    kit_durable(&k, 2, 3);
    kit_say(&k, COORD_DEST, &(struct message){.type = MESSAGE_STRIPE_BAD, .stripe_bad = {.stripe = 5}});
    kit_expect(&k, COORD_SOURCE, MESSAGE_STRIPE_BAD);
    kit_expect_none(&k);
    CU_ASSERT_EQUAL(kit_counters(&k).bytes_moved, 100);
    kit_finished(&k);
    close_both(&k);
    CU_ASSERT_EQUAL(k.exit_status, 8);
    kit_end(&k);
}

// The user stops the job; twice is once. Of a job that is finished already nothing is taken back.
static void test_cancel(void)
{
    for (enum kit_phase phase = KIT_HELLO; phase < KIT_PHASES; phase++) {
        struct coord_kit k;
        kit_begin_in(&k, phase);
        kit_cancel(&k);
        if (phase < KIT_CLOSE)
            kit_expect_stopped(&k, ERR_INTERRUPTED);
        kit_cancel(&k);
        kit_expect_none(&k);
        CU_ASSERT_EQUAL(k.problems, 1);
        CU_ASSERT_EQUAL(k.ends, 0);
        close_both(&k);
        CU_ASSERT_EQUAL(k.exit_status, 5);
        kit_cancel(&k); // when all is over
        CU_ASSERT_EQUAL(k.ends, 1);
        kit_end(&k);
    }
}

// A node is lost: the other is let go. Then that one is lost too, or closes.
static void test_lost(void)
{
    for (enum kit_phase phase = KIT_HELLO; phase < KIT_PHASES; phase++) {
        for (unsigned node = 0; node < COORD_NODES; node++) {
            for (int both = 0; both < 2; both++) {
                struct coord_kit k;
                kit_begin_in(&k, phase);
                kit_lose(&k, node);
                if (phase < KIT_CLOSE)
                    kit_expect_stopped(&k, ERR_LOST);
                CU_ASSERT_EQUAL(k.ends, 0);
                kit_lose(&k, node);
                kit_hello(&k, node); // what it said last and comes now
                CU_ASSERT_EQUAL(k.ends, 0);
                if (both)
                    kit_lose(&k, 1 - node);
                else
                    kit_closed(&k, 1 - node);
                CU_ASSERT(k.ends == 1 && k.exit_status == 6);
                kit_lose(&k, 1 - node);
                kit_end(&k);
            }
        }
    }
}

// One that has said its last word may go, and says no more.
static void test_closed(void)
{
    struct coord_kit k;
    kit_begin_in(&k, KIT_CLOSE);
    kit_closed(&k, COORD_SOURCE);
    kit_closed(&k, COORD_SOURCE);
    kit_problem(&k, COORD_SOURCE, PROBLEM_UNLISTED, ERR_ENTRY);
    kit_say(&k, COORD_SOURCE, &(struct message){.type = MESSAGE_PING});
    CU_ASSERT(k.ends == 0 && k.problems == 0 && kit_counters(&k).total == 0);
    kit_lose(&k, COORD_SOURCE);
    CU_ASSERT_EQUAL(k.ends, 0);
    kit_closed(&k, COORD_DEST);
    CU_ASSERT(k.ends == 1 && k.exit_status == 0);
    kit_end(&k);
}

// What an agent cannot put right while it closes still counts.
static void test_problem_while_closing(void)
{
    struct coord_kit k;
    kit_begin_in(&k, KIT_CLOSE);
    kit_problem(&k, COORD_DEST, PROBLEM_RECORDED, ERR_ENTRY);
    CU_ASSERT_EQUAL(k.problems, 1);
    close_both(&k);
    CU_ASSERT_EQUAL(k.exit_status, 1);
    kit_end(&k);
}

// An agent that does not say its last word in time is left.
static void test_deadline(void)
{
    for (unsigned left = 0; left < 3; left++) { // who is: source, destination, both
        struct coord_kit k;
        kit_begin_in(&k, KIT_CLOSE);
        kit_tick(&k, 1);
        if (left < COORD_NODES)
            kit_closed(&k, 1 - left);
        uint64_t wake_ns = kit_tick(&k, 0);
        CU_ASSERT_EQUAL(wake_ns, k.now_ns - 1 + CLOSE_NS);
        CU_ASSERT_EQUAL(kit_tick(&k, wake_ns - k.now_ns - 1), wake_ns);
        CU_ASSERT_EQUAL(k.ends, 0);
        CU_ASSERT_EQUAL(kit_tick(&k, 1), UINT64_MAX);
        CU_ASSERT(k.ends == 1 && k.exit_status == 6);
        CU_ASSERT_EQUAL(kit_tick(&k, CLOSE_NS), UINT64_MAX);
        kit_end(&k);
    }
    // A second reason to close does not begin the time anew.
    struct coord_kit k;
    kit_begin_in(&k, KIT_RUN);
    kit_cancel(&k);
    kit_tick(&k, CLOSE_NS - 1);
    kit_cancel(&k);
    kit_tick(&k, 1);
    CU_ASSERT_EQUAL(k.ends, 1);
    kit_end(&k);
}

// An agent stops: in any phase, for any reason. Whatever it names, the status tells that the job came to no
// end: not 0, nor one that a job that ran to its end can have.
static void test_fail(void)
{
    for (enum kit_phase phase = KIT_HELLO; phase < KIT_CLOSE; phase++) {
        for (unsigned class = 0; class <= ERR_CLASS_COUNT; class ++) {
            struct coord_kit k;
            kit_begin_in(&k, phase);
            kit_fail(&k, COORD_SOURCE, (enum err_class) class);
            kit_tick(&k, SUSPECT_NS);
            // Of storage that fails more is told when the destination has closed.
            bool waits = class == ERR_STORAGE && phase >= KIT_LINK;
            CU_ASSERT(k.closing && !k.finished && k.problems == !waits);
            close_both(&k);
            CU_ASSERT_EQUAL(k.problems, 1);
            CU_ASSERT_STRING_EQUAL(k.problem.node, "there");
            int exit_status = k.exit_status;
            CU_ASSERT(exit_status != 0 && exit_status != 1 && exit_status != 7 && exit_status != 8);
            if (class == ERR_STORAGE || class == ERR_LOCKED || class == ERR_AUTH || class == ERR_LOST)
                CU_ASSERT_EQUAL(exit_status, err_class_exit((enum err_class) class));
            kit_end(&k);
        }
    }
}

// The owner stops the job; when all is over that is too late.
static void test_owner_fails(void)
{
    struct err err;
    err_set(&err, ERR_START, ENOSPC, "write the receipt", NULL, 0, NULL);
    for (enum kit_phase phase = KIT_HELLO; phase < KIT_CLOSE; phase++) {
        struct coord_kit k;
        kit_begin_in(&k, phase);
        coord_fail(k.c, &err, k.now_ns);
        kit_expect_stopped(&k, ERR_START);
        close_both(&k);
        CU_ASSERT_EQUAL(k.exit_status, 3);
        coord_fail(k.c, &err, k.now_ns);
        CU_ASSERT(k.ends == 1 && k.problems == 1);
        kit_end(&k);
    }
}

static void test_ping(void)
{
    for (enum kit_phase phase = KIT_OPEN_SOURCE; phase < KIT_PHASES; phase++) {
        struct coord_kit k;
        kit_begin_in(&k, phase);
        kit_read_all(&k);
        for (unsigned n = 0; n < COORD_NODES; n++) {
            kit_say(&k, n, &(struct message){.type = MESSAGE_PING, .ping = {.cookie = 40 + n}});
            CU_ASSERT_EQUAL(kit_expect(&k, n, MESSAGE_PONG)->pong.cookie, 40 + n);
            kit_say(&k, n, &(struct message){.type = MESSAGE_PONG});
            kit_expect_none(&k);
        }
        kit_end(&k);
    }
}

void suite_coord_end(void)
{
    CU_pSuite s = CU_add_suite("coord_end", NULL, NULL);
    CU_add_test(s, "in_order", test_in_order);
    CU_add_test(s, "walk_over", test_walk_over);
    CU_add_test(s, "retry", test_retry);
    CU_add_test(s, "retry_refused", test_retry_refused);
    CU_add_test(s, "late_words", test_late_words);
    CU_add_test(s, "cancel", test_cancel);
    CU_add_test(s, "lost", test_lost);
    CU_add_test(s, "closed", test_closed);
    CU_add_test(s, "problem_while_closing", test_problem_while_closing);
    CU_add_test(s, "deadline", test_deadline);
    CU_add_test(s, "fail", test_fail);
    CU_add_test(s, "owner_fails", test_owner_fails);
    CU_add_test(s, "ping", test_ping);
}
