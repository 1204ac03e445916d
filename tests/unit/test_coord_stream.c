// The coordinator machine: the attempts of a stream, as both ends tell of them in whatever order, and the
// times of dialling again.
#include <string.h>

#include <CUnit/CUnit.h>

#include "mover/plan/coord_state.h"
#include "tests/unit/coord_kit.h"

// The source learns that the attempt is over at the destination.
static void expect_ended(struct coord_kit *k, uint32_t stream, uint32_t attempt, uint64_t frames)
{
    const struct msg_stream_ended *m = &kit_expect(k, COORD_SOURCE, MESSAGE_STREAM_ENDED)->stream_ended;
    CU_ASSERT(m->stream == stream && m->attempt == attempt && m->frames == frames && m->session == 0);
}

static void expect_redial(struct coord_kit *k, unsigned node, uint32_t stream, uint32_t attempt)
{
    const struct msg_redial *m = &kit_expect(k, node, MESSAGE_REDIAL)->redial;
    CU_ASSERT(m->stream == stream && m->attempt == attempt && m->session == 0);
}

// Either end tells, or both in either order: the source hears of what came at the destination once, and the
// stream is dialled again once.
static void test_ended(void)
{
    static const struct {
        unsigned words[3]; // who tells, in order
        uint32_t count;
    } table[] = {
        {{COORD_DEST}, 1},
        {{COORD_SOURCE, COORD_DEST}, 2},
        {{COORD_DEST, COORD_SOURCE}, 2},
        {{COORD_DEST, COORD_DEST}, 2}, // the second adds nothing
        {{COORD_SOURCE, COORD_SOURCE, COORD_DEST}, 3},
    };
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        struct coord_kit k;
        kit_begin_in(&k, KIT_RUN);
        bool told = false;
        for (uint32_t w = 0; w < table[i].count; w++) {
            kit_ended(&k, table[i].words[w], 1, 0, 17);
            if (table[i].words[w] == COORD_DEST && !told) {
                expect_ended(&k, 1, 0, 17);
                told = true;
            }
            kit_expect_none(&k);
        }
        CU_ASSERT_EQUAL(k.notices, 3); // engines, who dials, and the loss, once
        CU_ASSERT_PTR_NOT_NULL(strstr(k.notice, "stream 1 lost"));
        CU_ASSERT_EQUAL(kit_tick(&k, REDIAL_FIRST_NS - 1), k.now_ns + 1);
        kit_expect_none(&k);
        kit_tick(&k, 1);
        expect_redial(&k, COORD_SOURCE, 1, 1);
        kit_expect_none(&k);
        kit_expect_running(&k);
        kit_end(&k);
    }
}

// Only the source tells: what came at the destination is not known, so nothing goes back to the pool until
// the next attempt stands there. Then it had none of the frames that it did not tell of.
static void test_ended_at_source_only(void)
{
    struct coord_kit k;
    kit_begin_in(&k, KIT_RUN);
    kit_ended(&k, COORD_SOURCE, 0, 0, 9);
    kit_tick(&k, REDIAL_FIRST_NS);
    expect_redial(&k, COORD_SOURCE, 0, 1);
    kit_linked(&k, COORD_SOURCE, 0, 1);
    kit_expect_none(&k);
    kit_linked(&k, COORD_DEST, 0, 1);
    expect_ended(&k, 0, 0, 0);
    kit_expect_none(&k);
    // Its own word, should it come all the same, is too late to count.
    kit_ended(&k, COORD_DEST, 0, 0, 9);
    kit_expect_none(&k);
    kit_end(&k);
}

// The destination's word of the older attempt comes before that of the newer one: its count holds.
static void test_late_count(void)
{
    struct coord_kit k;
    kit_begin_in(&k, KIT_RUN);
    kit_ended(&k, COORD_SOURCE, 0, 0, 9);
    kit_tick(&k, REDIAL_FIRST_NS);
    expect_redial(&k, COORD_SOURCE, 0, 1);
    kit_ended(&k, COORD_DEST, 0, 0, 5); // of an attempt that is no longer the newest: no other dial
    expect_ended(&k, 0, 0, 5);
    kit_tick(&k, KIT_S);
    kit_expect_none(&k);
    kit_linked(&k, COORD_DEST, 0, 1);
    kit_expect_none(&k);
    kit_expect_running(&k);
    kit_end(&k);
}

// Attempts that never stood at the destination: all of them are over when a later one stands, or ends.
static void test_never_linked(void)
{
    for (unsigned by_end = 0; by_end < 2; by_end++) {
        struct coord_kit k;
        kit_begin_in(&k, KIT_RUN);
        kit_ended(&k, COORD_SOURCE, 0, 0, 1);
        for (uint32_t attempt = 1; attempt < 4; attempt++) {
            kit_tick(&k, REDIAL_MAX_NS);
            expect_redial(&k, COORD_SOURCE, 0, attempt);
            if (attempt < 3)
                kit_link_failed(&k, COORD_SOURCE, GREET_DATA, 0, attempt);
        }
        if (by_end)
            kit_ended(&k, COORD_DEST, 0, 3, 4);
        else
            kit_linked(&k, COORD_DEST, 0, 3);
        for (uint32_t attempt = 0; attempt < 3; attempt++)
            expect_ended(&k, 0, attempt, 0);
        if (by_end)
            expect_ended(&k, 0, 3, 4);
        kit_expect_none(&k);
        kit_end(&k);
    }
}

// Attempts that nobody asked for change nothing.
static void test_attempt_ahead(void)
{
    static const uint32_t attempts[] = {1, 2, UINT32_MAX};
    for (size_t i = 0; i < ARRAY_LEN(attempts); i++) {
        for (unsigned n = 0; n < COORD_NODES; n++) {
            struct coord_kit k;
            kit_begin_in(&k, KIT_RUN);
            kit_linked(&k, n, 0, attempts[i]);
            kit_ended(&k, n, 0, attempts[i], 100);
            kit_link_failed(&k, n, GREET_DATA, 0, attempts[i]);
            kit_tick(&k, REDIAL_MAX_NS);
            kit_expect_none(&k);
            kit_expect_running(&k);
            kit_end(&k);
        }
    }
}

// A stream that stands at no end is dialled ever more seldom, up to a cap; one that stood begins anew.
static void test_back_off(void)
{
    struct coord_kit k;
    kit_begin_in(&k, KIT_RUN);
    kit_ended(&k, COORD_DEST, 0, 0, 0);
    expect_ended(&k, 0, 0, 0);
    uint64_t wait_ns = REDIAL_FIRST_NS;
    for (uint32_t attempt = 1; attempt < 10; attempt++) {
        CU_ASSERT_EQUAL(kit_tick(&k, 0), k.now_ns + wait_ns);
        kit_tick(&k, wait_ns - 1);
        kit_expect_none(&k);
        kit_tick(&k, 1);
        expect_redial(&k, COORD_SOURCE, 0, attempt);
        kit_link_failed(&k, COORD_SOURCE, GREET_DATA, 0, attempt);
        kit_link_failed(&k, COORD_SOURCE, GREET_DATA, 0, attempt); // twice is once
        wait_ns = u64_min(wait_ns * 2, REDIAL_MAX_NS);
    }
    CU_ASSERT_EQUAL(wait_ns, REDIAL_MAX_NS);
    kit_tick(&k, wait_ns);
    expect_redial(&k, COORD_SOURCE, 0, 10);
    kit_linked(&k, COORD_SOURCE, 0, 10); // at one end: not yet
    kit_linked(&k, COORD_DEST, 0, 10);
    kit_read_all(&k);
    kit_ended(&k, COORD_SOURCE, 0, 10, 0);
    CU_ASSERT_EQUAL(kit_tick(&k, 0), k.now_ns + REDIAL_FIRST_NS);
    kit_end(&k);
}

// The word of one end that an attempt stands comes when the other has told of its end: it does not count for
// the attempt after it.
static void test_stale_linked(void)
{
    struct coord_kit k;
    kit_begin_in(&k, KIT_LINK);
    kit_peer(&k, COORD_SOURCE);
    kit_peer(&k, COORD_DEST);
    kit_linked(&k, COORD_DEST, 0, 0);
    kit_ended(&k, COORD_DEST, 0, 0, 0);
    kit_linked(&k, COORD_SOURCE, 0, 0);
    kit_read_all(&k);
    kit_tick(&k, REDIAL_FIRST_NS);
    expect_redial(&k, COORD_SOURCE, 0, 1);
    kit_linked(&k, COORD_DEST, 0, 1); // and the source could not: no stream stands
    kit_link_failed(&k, COORD_SOURCE, GREET_DATA, 0, 1);
    CU_ASSERT_EQUAL(kit_tick(&k, 0), k.now_ns + 2 * REDIAL_FIRST_NS);
    kit_read_all(&k);
    kit_tick(&k, LOST_NS);
    kit_tick(&k, SUSPECT_NS);
    kit_expect_stopped(&k, ERR_LOST);
    kit_end(&k);
}

// The end that dialled the peer connection dials the streams.
static void test_dest_dials(void)
{
    struct coord_kit k;
    kit_begin(&k, &(struct kit_setup){.no_dial = {true, false}});
    kit_to(&k, KIT_RUN);
    kit_ended(&k, COORD_SOURCE, 1, 0, 0);
    kit_tick(&k, REDIAL_FIRST_NS);
    expect_redial(&k, COORD_DEST, 1, 1);
    kit_expect_none(&k);
    kit_end(&k);
}

// No stream for 30 s: the path is lost, be it from the beginning or later. One stream is enough.
static void test_lost(void)
{
    struct coord_kit k;
    kit_begin_in(&k, KIT_LINK);
    kit_peer(&k, COORD_SOURCE);
    kit_peer(&k, COORD_DEST);
    kit_linked(&k, COORD_SOURCE, 0, 0); // at one end
    kit_linked(&k, COORD_DEST, 1, 0);
    CU_ASSERT_EQUAL(kit_tick(&k, LOST_NS - 1), k.now_ns + 1);
    kit_expect_running(&k);
    kit_tick(&k, 1);
    kit_tick(&k, SUSPECT_NS);
    kit_expect_stopped(&k, ERR_LOST);
    CU_ASSERT_EQUAL(k.wake_ns, k.now_ns + CLOSE_NS); // the closing has a time of its own
    kit_end(&k);

    kit_begin_in(&k, KIT_RUN);
    kit_tick(&k, 10 * LOST_NS);
    kit_expect_running(&k);
    kit_ended(&k, COORD_DEST, 0, 0, 0);
    kit_tick(&k, LOST_NS);
    kit_expect_running(&k); // the other one stands
    kit_ended(&k, COORD_SOURCE, 1, 0, 0);
    kit_tick(&k, LOST_NS - 1);
    kit_expect_running(&k);
    kit_tick(&k, 1);
    kit_tick(&k, SUSPECT_NS);
    kit_expect_stopped(&k, ERR_LOST);
    CU_ASSERT_EQUAL(k.problem.node[0], '\0'); // neither is to blame
    kit_closed(&k, COORD_SOURCE);
    kit_closed(&k, COORD_DEST);
    CU_ASSERT(k.ends == 1 && k.exit_status == 6);
    kit_end(&k);
}

// Dials that fail, over and over, do not put off the end.
static void test_lost_dialling(void)
{
    struct coord_kit k;
    kit_begin_in(&k, KIT_RUN);
    kit_ended(&k, COORD_DEST, 0, 0, 0);
    kit_ended(&k, COORD_DEST, 1, 0, 0);
    uint64_t began_ns = k.now_ns, dials = 0;
    kit_tick(&k, 0);
    while (!k.closing && k.now_ns < began_ns + 2 * LOST_NS) {
        kit_tick(&k, k.wake_ns - k.now_ns);
        const struct message *m;
        for (; !k.closing && (m = kit_take(&k, COORD_SOURCE)) != NULL; dials += m->type == MESSAGE_REDIAL)
            if (m->type == MESSAGE_REDIAL)
                kit_link_failed(&k, COORD_SOURCE, GREET_DATA, m->redial.stream, m->redial.attempt);
        if (!k.closing)
            kit_tick(&k, 0);
    }
    CU_ASSERT(dials > 10);
    CU_ASSERT_EQUAL(k.now_ns, began_ns + LOST_NS + SUSPECT_NS);
    kit_expect_stopped(&k, ERR_LOST);
    kit_end(&k);
}

// A stream that comes back at the last moment ends the wait.
static void test_back_in_time(void)
{
    struct coord_kit k;
    kit_begin_in(&k, KIT_RUN);
    kit_ended(&k, COORD_DEST, 0, 0, 0);
    kit_ended(&k, COORD_DEST, 1, 0, 0);
    kit_tick(&k, LOST_NS - 1);
    kit_linked(&k, COORD_DEST, 1, 1);
    kit_linked(&k, COORD_SOURCE, 1, 1);
    kit_tick(&k, 10 * LOST_NS);
    kit_expect_running(&k);
    kit_end(&k);
}

// While the job closes the destination's counts are passed on, and nothing is dialled.
static void test_closing(void)
{
    struct coord_kit k;
    kit_begin_in(&k, KIT_CLOSE);
    kit_ended(&k, COORD_DEST, 0, 0, 3);
    expect_ended(&k, 0, 0, 3);
    uint32_t notices = k.notices;
    kit_ended(&k, COORD_SOURCE, 1, 0, 3);
    kit_tick(&k, REDIAL_MAX_NS);
    kit_expect_none(&k);
    CU_ASSERT(k.problems == 0 && k.notices == notices);
    kit_end(&k);
}

// Figures of streams are the sender's.
static void test_stats(void)
{
    struct coord_kit k;
    kit_begin_in(&k, KIT_RUN);
    kit_say(&k, COORD_DEST, &(struct message){.type = MESSAGE_STREAM_STATS});
    CU_ASSERT_EQUAL(k.stats, 0);
    kit_say(&k, COORD_SOURCE, &(struct message){.type = MESSAGE_STREAM_STATS});
    CU_ASSERT_EQUAL(k.stats, 1);
    kit_end(&k);
}

void suite_coord_stream(void)
{
    CU_pSuite s = CU_add_suite("coord_stream", NULL, NULL);
    CU_add_test(s, "ended", test_ended);
    CU_add_test(s, "ended_at_source_only", test_ended_at_source_only);
    CU_add_test(s, "late_count", test_late_count);
    CU_add_test(s, "never_linked", test_never_linked);
    CU_add_test(s, "attempt_ahead", test_attempt_ahead);
    CU_add_test(s, "back_off", test_back_off);
    CU_add_test(s, "stale_linked", test_stale_linked);
    CU_add_test(s, "dest_dials", test_dest_dials);
    CU_add_test(s, "lost", test_lost);
    CU_add_test(s, "lost_dialling", test_lost_dialling);
    CU_add_test(s, "back_in_time", test_back_in_time);
    CU_add_test(s, "closing", test_closing);
    CU_add_test(s, "stats", test_stats);
}
