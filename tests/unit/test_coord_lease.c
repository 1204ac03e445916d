// The coordinator machine: leases that are answered, done, or of no use any more; stripes that are settled
// before, while and after they are leased.
#include <stdlib.h>
#include <string.h>

#include <CUnit/CUnit.h>

#include "mover/plan/coord_state.h"
#include "tests/unit/coord_kit.h"
#include "tests/unit/starve.h"

enum { UNIT = 64 }; // stripes of a lease at the kit's stripe size

static struct msg_lease expect_lease(struct coord_kit *k, unsigned node, uint64_t first, uint32_t count)
{
    struct msg_lease m = kit_expect(k, node, MESSAGE_LEASE)->lease;
    CU_ASSERT(m.first == first && m.count == count && m.session == 0);
    return m;
}

static void expect_lease_done(struct coord_kit *k, unsigned node, uint64_t lease)
{
    CU_ASSERT_EQUAL(kit_expect(k, node, MESSAGE_LEASE_DONE)->lease_done.lease, lease);
}

static void expect_segment_done(struct coord_kit *k, uint64_t segment)
{
    for (unsigned n = 0; n < COORD_NODES; n++)
        CU_ASSERT_EQUAL(kit_expect(k, n, MESSAGE_SEGMENT_DONE)->segment_done.segment, segment);
}

// The source is told that these are never to be sent, in this order.
static void expect_settled(struct coord_kit *k, const struct range *runs, uint32_t count)
{
    const struct msg_stripes_done *m = &kit_expect(k, COORD_SOURCE, MESSAGE_STRIPES_DONE)->stripes_done;
    struct wire_reader r;
    CU_ASSERT_EQUAL(m->settled, 1);
    wire_reader_init(&r, m->runs.bytes, m->runs.len);
    for (uint32_t i = 0; i < count; i++) {
        CU_ASSERT_EQUAL(wire_get_u64(&r), runs[i].offset);
        CU_ASSERT_EQUAL(wire_get_u64(&r), runs[i].len);
    }
    CU_ASSERT_EQUAL(wire_done(&r), 0);
}

// A job with one segment of so many stripes, placed.
static void begin(struct coord_kit *k, uint64_t stripes)
{
    kit_begin_in(k, KIT_RUN);
    kit_segment(k, 0, 3, stripes, true);
}

// The destination hears of a lease first; the source when that has answered.
static void test_answered(void)
{
    struct coord_kit k;
    begin(&k, 10);
    struct msg_lease l = expect_lease(&k, COORD_DEST, 0, 10);
    kit_expect_none(&k);
    kit_answer(&k, &l);
    expect_lease(&k, COORD_SOURCE, 0, 10);
    kit_durable(&k, 0, 10);
    expect_lease_done(&k, COORD_SOURCE, l.lease);
    expect_lease_done(&k, COORD_DEST, l.lease);
    CU_ASSERT_EQUAL(kit_counters(&k).bytes_moved, 100);
    // An answer that comes again when all is over is one that was on its way.
    kit_answer(&k, &l);
    kit_expect_none(&k);
    kit_expect_running(&k);
    kit_end(&k);
}

// All of it is settled, or its segment over, before the answer comes: the source never hears of it.
static void test_answered_late(void)
{
    for (int by_segment = 0; by_segment < 2; by_segment++) {
        struct coord_kit k;
        begin(&k, 10);
        struct msg_lease l = expect_lease(&k, COORD_DEST, 0, 10);
        if (by_segment) {
            kit_segment_over(&k, 0);
            expect_lease_done(&k, COORD_DEST, l.lease);
            expect_segment_done(&k, 0);
            kit_expect(&k, COORD_SOURCE, MESSAGE_RETRY);
        } else {
            kit_settled(&k, 0, 10);
            expect_settled(&k, &(struct range){0, 10}, 1);
            expect_lease_done(&k, COORD_DEST, l.lease);
        }
        kit_expect_none(&k);
        kit_answer(&k, &l);
        kit_expect_none(&k);
        kit_expect_running(&k);
        kit_end(&k);
    }
}

// Answers that nobody asked for, that come twice, or in other words.
static void test_answer_refused(void)
{
    static const struct {
        struct msg_lease add; // to the words that were given
        bool twice;
    } table[] = {
        {{.lease = 1}, false},   {{.lease = UINT64_MAX - 5}, false},
        {{.segment = 1}, false}, {{.first = 1}, false},
        {{.count = 1}, false},   {{.count = UINT32_MAX}, false},
        {{.session = 1}, false}, {{.epoch = 1}, false},
        {{.wait_ms = 1}, false}, {{0}, true},
    };
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        struct coord_kit k;
        begin(&k, 10);
        struct msg_lease l = expect_lease(&k, COORD_DEST, 0, 10);
        const struct msg_lease *add = &table[i].add;
        if (table[i].twice)
            kit_answer(&k, &l);
        kit_read_all(&k);
        l.lease += add->lease;
        l.segment += add->segment;
        l.first += add->first;
        l.count += add->count;
        l.session += add->session;
        l.epoch += add->epoch;
        l.wait_ms += add->wait_ms;
        kit_answer(&k, &l);
        kit_expect_stopped(&k, ERR_PROTOCOL);
        kit_end(&k);
    }
}

// In pieces, in any order, over the ends of leases, and again: done is done once.
static void test_done(void)
{
    struct coord_kit k;
    begin(&k, 2 * UNIT);
    struct msg_lease a = expect_lease(&k, COORD_DEST, 0, UNIT);
    struct msg_lease b = expect_lease(&k, COORD_DEST, UNIT, UNIT);
    kit_answer(&k, &a);
    kit_answer(&k, &b);
    kit_read_all(&k);
    static const struct range some[] = {{60, 8}, {10, 0}, {100, 28}, {62, 4}, {0, 1}};
    kit_runs(&k, false, some, ARRAY_LEN(some));
    kit_expect_none(&k);
    kit_durable(&k, 60, 40);
    expect_lease_done(&k, COORD_DEST, b.lease);
    expect_lease_done(&k, COORD_SOURCE, b.lease);
    kit_expect_none(&k);
    kit_durable(&k, 0, 2 * UNIT);
    expect_lease_done(&k, COORD_DEST, a.lease);
    expect_lease_done(&k, COORD_SOURCE, a.lease);
    kit_durable(&k, 0, 2 * UNIT);
    kit_expect_none(&k);
    CU_ASSERT_EQUAL(k.leased_stripes, 0);
    kit_end(&k);
}

// Runs of stripes that do not exist, or no runs at all; what stands before a bad run is not taken either.
static void test_runs_refused(void)
{
    static const struct range table[][2] = {
        {{0, 11}, {0, 0}},         {{10, 1}, {0, 0}},         {{UINT64_MAX, 1}, {0, 0}},
        {{1, UINT64_MAX}, {0, 0}}, {{0, UINT64_MAX}, {0, 0}}, {{0, 10}, {11, 0}},
    };
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        for (int settled = 0; settled < 2; settled++) {
            struct coord_kit k;
            begin(&k, 10);
            kit_read_all(&k);
            kit_runs(&k, settled, table[i], 2);
            kit_expect(&k, COORD_SOURCE, MESSAGE_CLOSE);
            kit_expect(&k, COORD_DEST, MESSAGE_CLOSE);
            kit_expect_none(&k);
            CU_ASSERT(!k.finished && k.problem.class == ERR_PROTOCOL);
            kit_end(&k);
        }
    }
    struct coord_kit k;
    begin(&k, 10);
    uint8_t cut[15] = {0};
    kit_say(&k, COORD_DEST,
            &(struct message){.type = MESSAGE_STRIPES_DONE, .stripes_done = {.runs = blob_of(cut, 15)}});
    kit_expect_stopped(&k, ERR_PROTOCOL);
    kit_end(&k);
}

// Before it was leased: it never is. Leases go around it.
static void test_settled_before(void)
{
    static const struct {
        struct range runs[3];
        struct range leases[4]; // of what is left behind the first lease
    } table[] = {
        {{{64, 64}}, {{0}}},
        {{{64, 1}}, {{65, 63}}},
        {{{127, 1}}, {{64, 63}}},
        {{{70, 10}}, {{64, 6}, {80, 48}}},
        {{{60, 10}}, {{70, 58}}}, // begins in what is leased
        {{{64, 10}, {74, 10}}, {{84, 44}}},
        {{{100, 10}, {64, 10}, {120, 1}}, {{74, 26}, {110, 10}, {121, 7}}}, // told in no order
        {{{70, 20}, {80, 20}}, {{64, 6}, {100, 28}}},                       // one over the other
        {{{70, 0}}, {{64, 64}}},                                            // nothing
    };
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        struct coord_kit k;
        kit_begin_in(&k, KIT_RUN);
        uint64_t before = 15 * UNIT; // of a segment that fills the room but for one lease
        kit_segment(&k, 0, 1, before, false);
        for (uint32_t n = 0; n < 15; n++)
            expect_lease(&k, COORD_DEST, n * UNIT, UNIT);
        kit_segment(&k, 1, 1, 2 * UNIT, true);
        expect_lease(&k, COORD_DEST, before, UNIT);
        kit_expect_none(&k);
        for (uint32_t r = 0; r < 3; r++) {
            if (table[i].runs[r].offset == 0)
                continue;
            kit_settled(&k, before + table[i].runs[r].offset, table[i].runs[r].len);
            kit_expect(&k, COORD_SOURCE, MESSAGE_STRIPES_DONE);
        }
        kit_expect_none(&k);
        kit_segment_over(&k, 0); // makes room
        for (uint32_t n = 0; n < 15; n++)
            expect_lease_done(&k, COORD_DEST, n);
        expect_segment_done(&k, 0);
        for (uint32_t n = 0; n < 4 && table[i].leases[n].len > 0; n++)
            expect_lease(&k, COORD_DEST, before + table[i].leases[n].offset,
                         (uint32_t)table[i].leases[n].len);
        kit_expect_none(&k);
        kit_end(&k);
    }
}

// One run over the end of a segment counts in both.
static void test_settled_across(void)
{
    struct coord_kit k;
    kit_begin_in(&k, KIT_RUN);
    kit_segment(&k, 0, 1, 16 * UNIT + 10, false);
    kit_read_all(&k);
    kit_segment(&k, 1, 1, 20, true);
    kit_settled(&k, 16 * UNIT + 5, 10);
    kit_read_all(&k);
    kit_durable(&k, 0, UNIT);
    expect_lease_done(&k, COORD_DEST, 0);
    expect_lease(&k, COORD_DEST, 16 * UNIT, 5);
    expect_lease(&k, COORD_DEST, 16 * UNIT + 15, 15);
    kit_expect_none(&k);
    kit_end(&k);
}

// While the destination has not answered: the source hears of the lease, and then what of it not to send.
static void test_settled_unanswered(void)
{
    static const struct {
        struct range settled[3];
        struct range told[3];
    } table[] = {
        {{{0, 3}}, {{0, 3}}},
        {{{7, 3}}, {{7, 3}}},
        {{{2, 2}, {4, 2}, {9, 1}}, {{2, 4}, {9, 1}}},
        {{{0, 1}, {2, 1}, {4, 1}}, {{0, 1}, {2, 1}, {4, 1}}},
    };
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        struct coord_kit k;
        uint32_t told = 0;
        begin(&k, 10);
        struct msg_lease l = expect_lease(&k, COORD_DEST, 0, 10);
        for (uint32_t r = 0; r < 3; r++) {
            if (table[i].settled[r].len > 0)
                kit_settled(&k, table[i].settled[r].offset, table[i].settled[r].len);
            told += table[i].told[r].len > 0;
        }
        kit_read_all(&k);
        kit_answer(&k, &l);
        expect_lease(&k, COORD_SOURCE, 0, 10);
        expect_settled(&k, table[i].told, told);
        kit_expect_none(&k);
        kit_end(&k);
    }
    // As many runs as a lease can have.
    struct coord_kit *k = calloc(1, sizeof *k);
    CU_ASSERT_PTR_NOT_NULL_FATAL(k);
    kit_begin(k, &(struct kit_setup){.stripe_bytes = STRIPE_BYTES_MIN});
    kit_to(k, KIT_RUN);
    kit_segment(k, 0, 1, 256, true);
    struct msg_lease l = expect_lease(k, COORD_DEST, 0, 256);
    struct range every_other[128];
    for (uint32_t i = 0; i < 128; i++)
        every_other[i] = (struct range){.offset = 2 * i + 1, .len = 1};
    kit_runs(k, true, every_other, 128);
    kit_read_all(k);
    kit_answer(k, &l);
    expect_lease(k, COORD_SOURCE, 0, 256);
    expect_settled(k, every_other, 128);
    kit_end(k);
    free(k);
}

// While it is leased: passed on, and counted as done.
static void test_settled_leased(void)
{
    struct coord_kit k;
    begin(&k, 10);
    struct msg_lease l = expect_lease(&k, COORD_DEST, 0, 10);
    kit_answer(&k, &l);
    expect_lease(&k, COORD_SOURCE, 0, 10);
    kit_durable(&k, 0, 4);
    kit_expect_none(&k);
    kit_settled(&k, 2, 8);
    expect_settled(&k, &(struct range){2, 8}, 1);
    expect_lease_done(&k, COORD_SOURCE, l.lease);
    expect_lease_done(&k, COORD_DEST, l.lease);
    kit_expect_none(&k);
    kit_end(&k);
}

// After it was leased, done, and even its segment is over.
static void test_settled_after(void)
{
    struct coord_kit k;
    begin(&k, 10);
    kit_durable(&k, 0, 10);
    kit_read_all(&k);
    kit_settled(&k, 0, 10);
    expect_settled(&k, &(struct range){0, 10}, 1);
    kit_segment_over(&k, 0);
    kit_read_all(&k);
    kit_settled(&k, 0, 10);
    expect_settled(&k, &(struct range){0, 10}, 1);
    kit_durable(&k, 0, 10);
    kit_expect_none(&k);
    kit_expect_running(&k);
    kit_end(&k);
}

// All entries of a segment are settled while stripes of it are leased, or not yet: nothing of it is waited
// for, and what was not leased never is.
static void test_segment_done_early(void)
{
    struct coord_kit k;
    kit_begin_in(&k, KIT_RUN);
    kit_segment(&k, 0, 1, 20 * UNIT, false);
    struct msg_lease l = expect_lease(&k, COORD_DEST, 0, UNIT);
    kit_answer(&k, &l);
    expect_lease(&k, COORD_SOURCE, 0, UNIT);
    kit_read_all(&k);
    kit_segment(&k, 1, 1, 5, true);
    kit_segment_over(&k, 0);
    expect_lease_done(&k, COORD_SOURCE, l.lease); // of the others it never heard
    for (uint32_t n = 0; n < 16; n++)
        expect_lease_done(&k, COORD_DEST, n);
    expect_segment_done(&k, 0);
    expect_lease(&k, COORD_DEST, 20 * UNIT, 5);
    kit_expect_none(&k);
    kit_end(&k);
}

// A damaged stripe is the source's business.
static void test_bad(void)
{
    struct coord_kit k;
    begin(&k, 10);
    kit_read_all(&k);
    kit_say(&k, COORD_DEST, &(struct message){.type = MESSAGE_STRIPE_BAD, .stripe_bad = {.stripe = 7}});
    CU_ASSERT_EQUAL(kit_expect(&k, COORD_SOURCE, MESSAGE_STRIPE_BAD)->stripe_bad.stripe, 7);
    kit_expect_none(&k);
    kit_end(&k);
}

// Without memory for a lease the job ends, whatever made room for it: nobody would ask for it again.
static void test_no_memory(void)
{
    for (int later = 0; later < 2; later++) {
        struct coord_kit k;
        kit_begin_in(&k, KIT_RUN);
        kit_closed_segment(&k, 0, 1, true);
        kit_compared(&k, 0, LEASED_BYTES_MAX / (4 * MIB) + 1, 1); // one more than are leased at a time
        if (!later)
            starve_calloc(0);
        kit_laid(&k, 0, LEASED_BYTES_MAX / (4 * MIB) + 1, 1);
        if (later) {
            struct msg_lease l = k.leases[0].words;
            kit_answer(&k, &l);
            kit_expect_running(&k);
            starve_calloc(0);
            kit_durable(&k, l.first, l.count);
        }
        starve_calloc(UINT32_MAX);
        kit_expect_stopped(&k, ERR_LOST);
        CU_ASSERT_STRING_EQUAL(k.problem.text, "out of memory");
        kit_end(&k);
    }
}

void suite_coord_lease(void)
{
    CU_pSuite s = CU_add_suite("coord_lease", NULL, NULL);
    CU_add_test(s, "no_memory", test_no_memory);
    CU_add_test(s, "answered", test_answered);
    CU_add_test(s, "answered_late", test_answered_late);
    CU_add_test(s, "answer_refused", test_answer_refused);
    CU_add_test(s, "done", test_done);
    CU_add_test(s, "runs_refused", test_runs_refused);
    CU_add_test(s, "settled_before", test_settled_before);
    CU_add_test(s, "settled_across", test_settled_across);
    CU_add_test(s, "settled_unanswered", test_settled_unanswered);
    CU_add_test(s, "settled_leased", test_settled_leased);
    CU_add_test(s, "settled_after", test_settled_after);
    CU_add_test(s, "segment_done_early", test_segment_done_early);
    CU_add_test(s, "bad", test_bad);
}
