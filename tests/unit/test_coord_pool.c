// The coordinator machine: segments as they are closed, compared and laid out; leases, and what becomes of
// their stripes.
#include <string.h>

#include <CUnit/CUnit.h>

#include "mover/plan/coord_state.h"
#include "tests/unit/coord_kit.h"

enum { UNIT = 64 }; // stripes of a lease at the kit's stripe size

static void expect_place(struct coord_kit *k, uint64_t segment, uint64_t first)
{
    for (unsigned n = 0; n < COORD_NODES; n++) {
        const struct msg_segment_place *m = &kit_expect(k, n, MESSAGE_SEGMENT_PLACE)->segment_place;
        CU_ASSERT(m->segment == segment && m->first == first);
    }
}

// The next lease, which the destination hears of first.
static struct msg_lease expect_lease(struct coord_kit *k, uint64_t segment, uint64_t first, uint32_t count)
{
    struct msg_lease m = kit_expect(k, COORD_DEST, MESSAGE_LEASE)->lease;
    CU_ASSERT(m.segment == segment && m.first == first && m.count == count && m.session == 0);
    return m;
}

static void expect_lease_done(struct coord_kit *k, unsigned node, uint64_t lease)
{
    CU_ASSERT_EQUAL(kit_expect(k, node, MESSAGE_LEASE_DONE)->lease_done.lease, lease);
}

// Closed, compared, laid out: in each order that the connections allow. It is placed when all three have
// come.
static void test_order(void)
{
    static const char orders[][4] = {"clo", "col", "lco", "loc", "ocl", "olc"};
    for (size_t i = 0; i < ARRAY_LEN(orders); i++) {
        struct coord_kit k;
        kit_begin_in(&k, KIT_RUN);
        for (uint32_t w = 0; w < 3; w++) {
            kit_expect_none(&k);
            if (orders[i][w] == 'c')
                kit_closed_segment(&k, 0, 5, false);
            else if (orders[i][w] == 'o')
                kit_compared(&k, 0, 3, 300);
            else
                kit_laid(&k, 0, 3, 300);
        }
        expect_place(&k, 0, 0);
        expect_lease(&k, 0, 0, 3);
        kit_expect_none(&k);
        struct coord_counters n = kit_counters(&k);
        CU_ASSERT(n.total == 5 && n.files_total == 5 && n.bytes_total == 5 && n.bytes_needed == 300);
        CU_ASSERT_FALSE(n.walked);
        kit_end(&k);
    }
}

// Stripes are numbered through all segments, in the order in which these are laid out.
static void test_numbers(void)
{
    struct coord_kit k;
    kit_begin_in(&k, KIT_RUN);
    for (uint64_t s = 0; s < 3; s++)
        kit_closed_segment(&k, s, 1, false);
    kit_compared(&k, 1, 4, 1);
    kit_laid(&k, 1, 4, 1);
    expect_place(&k, 1, 0);
    struct msg_lease later = expect_lease(&k, 1, 0, 4);
    kit_compared(&k, 0, 2, 1);
    kit_laid(&k, 0, 2, 1);
    expect_place(&k, 0, 4);
    expect_lease(&k, 0, 4, 2);
    kit_compared(&k, 2, 0, 0);
    kit_laid(&k, 2, 0, 0); // nothing to send: placed all the same
    expect_place(&k, 2, 6);
    kit_expect_none(&k);
    kit_answer(&k, &later);
    CU_ASSERT_EQUAL(kit_expect(&k, COORD_SOURCE, MESSAGE_LEASE)->lease.segment, 1);
    kit_end(&k);
}

// What cannot be a segment.
static void test_segment_refused(void)
{
    static const struct {
        const char *words; // c closed, o compared, l laid out; a digit the segment
    } table[] = {
        {"c1"},         // not the next
        {"c0c0"},       // twice
        {"c0c2"},       // one left out
        {"o0o0"},       // twice
        {"l0l0"},       // twice
        {"c0o0l0o0"},   // again when it is placed
        {"o4"},         // too far ahead
        {"l4"},         // too far ahead
        {"c0c1c2c3o9"}, // too far ahead
        {"c0o0l0d0o0"}, // it is over
        {"d0"},         // the end of one that is not there
        {"c0d0"},       // or not compared
        {"c0o0d0"},     // or not laid out
        {"c0o0l0d0d0"}, // or over
        {"c0o0l0d1"},   // or another one
        {"e0c1"},       // one after the last
        {"e0e1"},       // the last twice
        {"r0"},         // one of files to be tried again, before that was asked for
        {"c0c1c2c3c4"}, // more than may be open
    };
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        struct coord_kit k;
        kit_begin_in(&k, KIT_RUN);
        for (const char *w = table[i].words; *w != '\0'; w += 2) {
            uint64_t segment = (uint64_t)(w[1] - '0');
            if (w[2] == '\0')
                kit_expect_running(&k);
            if (w[0] == 'c' || w[0] == 'e')
                kit_closed_segment(&k, segment, 1, w[0] == 'e');
            else if (w[0] == 'r')
                kit_retry_segment(&k, segment, 1, true);
            else if (w[0] == 'o')
                kit_compared(&k, segment, 1, 1);
            else if (w[0] == 'l')
                kit_laid(&k, segment, 1, 1);
            else
                kit_segment_over(&k, segment);
        }
        if (!k.closing)
            fprintf(stderr, "  %s\n", table[i].words);
        kit_expect_stopped(&k, ERR_PROTOCOL);
        kit_end(&k);
    }
}

// Source and destination must have laid out the same.
static void test_layouts_differ(void)
{
    static const struct {
        uint64_t stripes, bytes;
        uint8_t digest;
    } table[] = {{4, 100, 1}, {3, 101, 1}, {3, 100, 2}, {UINT64_MAX, 100, 1}, {0, 0, 1}};
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        for (int source_first = 0; source_first < 2; source_first++) {
            struct coord_kit k;
            kit_begin_in(&k, KIT_RUN);
            kit_closed_segment(&k, 0, 1, true);
            struct message words[2] = {{.type = MESSAGE_SEGMENT_COMPARED,
                                        .segment_compared = {.stripes = 3, .bytes = 100, .layout = {{1}}}},
                                       {.type = MESSAGE_SEGMENT_LAID,
                                        .segment_laid = {.stripes = table[i].stripes,
                                                         .bytes = table[i].bytes,
                                                         .layout = {{table[i].digest}}}}};
            kit_say(&k, source_first ? COORD_SOURCE : COORD_DEST, &words[source_first]);
            kit_expect_none(&k);
            kit_say(&k, source_first ? COORD_DEST : COORD_SOURCE, &words[!source_first]);
            kit_expect_stopped(&k, ERR_PROTOCOL);
            kit_end(&k);
        }
    }
}

// As many stripes as there are numbers, and one more.
static void test_numbers_end(void)
{
    struct coord_kit k;
    kit_begin_in(&k, KIT_RUN);
    kit_closed_segment(&k, 0, 1, false);
    kit_closed_segment(&k, 1, 1, false);
    kit_compared(&k, 0, UINT64_MAX, 1);
    kit_laid(&k, 0, UINT64_MAX, 1);
    expect_place(&k, 0, 0);
    expect_lease(&k, 0, 0, UNIT);
    kit_expect_running(&k);
    kit_compared(&k, 1, 1, 1);
    kit_laid(&k, 1, 1, 1);
    kit_expect_stopped(&k, ERR_PROTOCOL);
    kit_end(&k);
}

// Leases of a bounded size, so many at a time that the path does not idle; the next when one is done.
static void test_bounds(void)
{
    static const struct {
        uint32_t stripe_bytes, unit;
    } table[] = {{STRIPE_BYTES_MIN, 256}, {4 * MIB, 64}, {STRIPE_BYTES_MAX, 16}};
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        uint64_t room = LEASED_BYTES_MAX / table[i].stripe_bytes;
        struct coord_kit k;
        kit_begin(&k, &(struct kit_setup){.stripe_bytes = table[i].stripe_bytes});
        kit_to(&k, KIT_RUN);
        kit_segment(&k, 0, 1, room * 3 + 1, true);
        uint64_t first = 0;
        for (; first < room; first += table[i].unit) {
            struct msg_lease l = expect_lease(&k, 0, first, table[i].unit);
            kit_answer(&k, &l);
        }
        CU_ASSERT_EQUAL(k.leased_most, room);
        CU_ASSERT_PTR_NULL(kit_take(&k, COORD_DEST));
        for (uint64_t done = 0; done < 3 * room + 1; done += table[i].unit, first += table[i].unit) {
            kit_read_all(&k);
            uint64_t count = u64_min(table[i].unit, 3 * room + 1 - done);
            if (count > 1)
                kit_durable(&k, done, count - 1);
            kit_expect_none(&k); // all but one is not all
            kit_durable(&k, done + count - 1, 1);
            expect_lease_done(&k, COORD_DEST, done / table[i].unit);
            if (first < 3 * room + 1) {
                uint64_t left = 3 * room + 1 - first;
                struct msg_lease l = expect_lease(&k, 0, first, (uint32_t)u64_min(left, table[i].unit));
                kit_answer(&k, &l);
            }
        }
        CU_ASSERT_EQUAL(k.leased_most, room);
        CU_ASSERT_EQUAL(k.leased_stripes, 0);
        kit_end(&k);
    }
}

void suite_coord_pool(void)
{
    CU_pSuite s = CU_add_suite("coord_pool", NULL, NULL);
    CU_add_test(s, "order", test_order);
    CU_add_test(s, "numbers", test_numbers);
    CU_add_test(s, "segment_refused", test_segment_refused);
    CU_add_test(s, "layouts_differ", test_layouts_differ);
    CU_add_test(s, "numbers_end", test_numbers_end);
    CU_add_test(s, "bounds", test_bounds);
}
