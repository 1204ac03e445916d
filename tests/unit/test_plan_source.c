// The source agent's machine: stripes that are leased, taken, sent, and come back.
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <CUnit/CUnit.h>

#include "mover/plan/source.h"
#include "tests/unit/tree.h"

static struct source_plan *plan_new(void)
{
    struct source_plan *p = source_plan_new();
    CU_ASSERT_PTR_NOT_NULL_FATAL(p);
    return p;
}

static struct source_plan *plan_leased(uint64_t first, uint32_t count)
{
    struct source_plan *p = plan_new();
    CU_ASSERT_EQUAL_FATAL(source_plan_lease(p, 1, 9, first, count), 0);
    return p;
}

// The stripe that the attempt takes; UINT64_MAX: none.
static uint64_t take(struct source_plan *p, uint32_t stream, uint32_t attempt, bool again)
{
    uint64_t segment = 0, stripe = UINT64_MAX;
    bool was_again = false;
    if (!source_plan_take(p, stream, attempt, &segment, &stripe, &was_again))
        return UINT64_MAX;
    CU_ASSERT_EQUAL(was_again, again);
    CU_ASSERT_TRUE(source_plan_wanted(p, stripe, stream, attempt));
    return stripe;
}

static void test_lease_refused(void)
{
    static const struct {
        uint64_t first;
        uint32_t count;
        int rc;
    } table[] = {
        {100, 10, -EPROTO}, // the same
        {95, 6, -EPROTO},   // over its beginning
        {109, 1, -EPROTO},  // over its end
        {103, 2, -EPROTO},  // inside
        {99, 12, -EPROTO},  // around it
        {99, LEASE_STRIPES_MAX, -EPROTO},
        {200, 0, -EPROTO},
        {200, LEASE_STRIPES_MAX + 1, -EPROTO},
        {200, UINT32_MAX, -EPROTO},
        {UINT64_MAX, 1, -EPROTO}, // its end is no number
        {UINT64_MAX - 9, 10, -EPROTO},
        {UINT64_MAX - 10, 10, 0},
        {200, LEASE_STRIPES_MAX, 0},
        {90, 10, 0}, // up to it
        {110, 1, 0}, // behind it
        {0, 1, 0},
    };
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        struct source_plan *p = plan_leased(100, 10);
        CU_ASSERT_EQUAL(source_plan_lease(p, 2, 9, table[i].first, table[i].count), table[i].rc);
        if (table[i].rc == 0)
            CU_ASSERT_EQUAL(take(p, 0, 0, false), table[i].first < 100 ? table[i].first : 100);
        source_plan_free(p);
    }
    source_plan_free(NULL);
}

// A lease that is done makes room for another one of the same stripes.
static void test_lease_done(void)
{
    struct source_plan *p = plan_leased(100, 10);
    CU_ASSERT_EQUAL(source_plan_lease_done(p, 2), -EPROTO);
    CU_ASSERT_EQUAL(take(p, 0, 0, false), 100);
    CU_ASSERT_EQUAL(take(p, 0, 0, false), 101);
    source_plan_sent(p, 101, 0, 0, 0);
    CU_ASSERT_EQUAL(source_plan_lease_done(p, 1), 0);
    CU_ASSERT_EQUAL(source_plan_lease_done(p, 1), -EPROTO);
    // Late words about its stripes.
    CU_ASSERT_FALSE(source_plan_wanted(p, 100, 0, 0));
    source_plan_sent(p, 100, 0, 0, 1);
    CU_ASSERT_FALSE(source_plan_bad(p, 101));
    source_plan_settle(p, 100, 10);
    CU_ASSERT_EQUAL(source_plan_stream_ended(p, 0, 0, 0), 0);
    CU_ASSERT_EQUAL(source_plan_lease(p, 1, 9, 95, 10), 0);
    CU_ASSERT_EQUAL(take(p, 0, 1, false), 95);
    source_plan_free(p);
}

static void test_leased(void)
{
    struct source_plan *p = plan_leased(100, 10);
    CU_ASSERT_EQUAL(source_plan_lease(p, 2, 9, 200, 10), 0);
    CU_ASSERT_EQUAL(source_plan_lease(p, 3, 8, 50, 10), 0);
    CU_ASSERT(source_plan_leased(p, 9) && source_plan_leased(p, 8) && !source_plan_leased(p, 7));
    CU_ASSERT_EQUAL(source_plan_lease_done(p, 3), 0);
    CU_ASSERT(source_plan_leased(p, 9) && !source_plan_leased(p, 8));
    CU_ASSERT_EQUAL(source_plan_lease_done(p, 1), 0);
    CU_ASSERT_TRUE(source_plan_leased(p, 9));
    source_plan_settle(p, 200, 10); // settled is not done
    CU_ASSERT_TRUE(source_plan_leased(p, 9));
    CU_ASSERT_EQUAL(source_plan_lease_done(p, 2), 0);
    CU_ASSERT_FALSE(source_plan_leased(p, 9));
    source_plan_free(p);
}

// The lowest first, through all leases, whatever their order of coming.
static void test_take_order(void)
{
    static const struct {
        uint64_t id, segment, first;
        uint32_t count;
    } leases[] = {{5, 2, 40, 3}, {6, 0, 10, 2}, {7, 1, 20, 1}, {8, 3, 43, 1}};
    static const uint64_t order[][2] = {{10, 0}, {11, 0}, {20, 1}, {40, 2}, {41, 2}, {42, 2}, {43, 3}};
    struct source_plan *p = plan_new();
    for (size_t i = 0; i < ARRAY_LEN(leases); i++)
        CU_ASSERT_EQUAL(
            source_plan_lease(p, leases[i].id, leases[i].segment, leases[i].first, leases[i].count), 0);
    for (size_t i = 0; i < ARRAY_LEN(order); i++) {
        uint64_t segment, stripe;
        bool again = true;
        CU_ASSERT_TRUE(source_plan_take(p, (uint32_t)i % 3, 0, &segment, &stripe, &again));
        CU_ASSERT(stripe == order[i][0] && segment == order[i][1] && !again);
    }
    CU_ASSERT_EQUAL(take(p, 0, 0, false), UINT64_MAX);
    CU_ASSERT_EQUAL(source_plan_stream_ended(p, 1, 0, 0), 2); // 11 and 41
    CU_ASSERT_EQUAL(take(p, 0, 0, false), 11);
    CU_ASSERT_EQUAL(take(p, 0, 0, false), 41);
    source_plan_free(p);
}

// Many leases, and the first of them done first and last.
static void test_many_leases(void)
{
    struct source_plan *p = plan_new();
    for (uint64_t i = 0; i < 200; i++)
        CU_ASSERT_EQUAL(source_plan_lease(p, i, i, (i * 37 % 200) * 10, 10), 0);
    for (uint64_t stripe = 0; stripe < 1000; stripe++)
        CU_ASSERT_EQUAL(take(p, 0, 0, false), stripe);
    for (uint64_t i = 0; i < 200; i += 2)
        CU_ASSERT_EQUAL(source_plan_lease_done(p, i), 0);
    uint64_t left = 0;
    for (uint64_t i = 1; i < 200; i += 2)
        left += i * 37 % 200 >= 100 ? 10 : 0;
    for (uint64_t last = 0; left > 0; left--) {
        uint64_t stripe = take(p, 0, 0, false);
        CU_ASSERT(stripe > last);
        last = stripe;
    }
    CU_ASSERT_EQUAL(take(p, 0, 0, false), UINT64_MAX);
    source_plan_free(p);
}

// What came whole stays; everything else that the attempt had goes back, what was on the wire as "again".
static void test_ended(void)
{
    static const struct {
        uint64_t frames, back;
    } table[] = {{0, 6}, {1, 5}, {3, 3}, {4, 2}, {5, 2}, {UINT64_MAX, 2}};
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        struct source_plan *p = plan_leased(100, 10);
        for (uint64_t k = 0; k < 6; k++)
            CU_ASSERT_EQUAL(take(p, 2, 0, false), 100 + k);
        for (uint64_t k = 0; k < 4; k++) // four are on the wire, two are being read
            source_plan_sent(p, 103 - k, 2, 0, k);
        CU_ASSERT_EQUAL(take(p, 3, 0, false), 106);
        CU_ASSERT_EQUAL(source_plan_stream_ended(p, 2, 0, table[i].frames), table[i].back);
        CU_ASSERT_EQUAL(source_plan_stream_ended(p, 2, 0, table[i].frames), 0); // twice is once
        CU_ASSERT_TRUE(source_plan_wanted(p, 106, 3, 0));
        uint64_t lost = table[i].back - 2; // of those on the wire, the lowest numbers were sent last
        for (uint64_t k = 0; k < lost; k++)
            CU_ASSERT_EQUAL(take(p, 3, 0, true), 100 + k);
        CU_ASSERT_EQUAL(take(p, 3, 0, false), 104);
        CU_ASSERT_EQUAL(take(p, 3, 0, false), 105);
        CU_ASSERT_EQUAL(take(p, 3, 0, false), 107);
        source_plan_free(p);
    }
}

// An attempt that is over gets nothing, nor does an earlier one; of other streams it says nothing.
static void test_attempts_over(void)
{
    static const uint32_t attempts[] = {0, 1, 7, UINT32_MAX - 1, UINT32_MAX};
    for (size_t i = 0; i < ARRAY_LEN(attempts); i++) {
        struct source_plan *p = plan_leased(0, 10);
        uint32_t attempt = attempts[i];
        CU_ASSERT_EQUAL(source_plan_stream_ended(p, 1, attempt, 0), 0);
        CU_ASSERT_EQUAL(take(p, 1, attempt, false), UINT64_MAX);
        CU_ASSERT_EQUAL(take(p, 1, 0, false), UINT64_MAX);
        if (attempt < UINT32_MAX)
            CU_ASSERT_EQUAL(take(p, 1, attempt + 1, false), 0);
        // An older one ends later: that brings the newer ones to no end.
        CU_ASSERT_EQUAL(source_plan_stream_ended(p, 1, attempt / 2, 0), 0);
        CU_ASSERT_EQUAL(take(p, 1, attempt, false), UINT64_MAX);
        CU_ASSERT_NOT_EQUAL(take(p, 0, 0, false), UINT64_MAX);
        CU_ASSERT_NOT_EQUAL(take(p, STREAMS_MAX - 1, 0, false), UINT64_MAX);
        source_plan_free(p);
    }
}

// The end of an attempt frees what that attempt had, not what a later one of the same stream has.
static void test_old_attempt(void)
{
    struct source_plan *p = plan_leased(0, 10);
    CU_ASSERT_EQUAL(take(p, 0, 0, false), 0);
    source_plan_sent(p, 0, 0, 0, 0);
    CU_ASSERT_EQUAL(take(p, 0, 1, false), 1);
    source_plan_sent(p, 1, 0, 1, 0);
    CU_ASSERT_EQUAL(source_plan_stream_ended(p, 0, 0, 0), 1);
    CU_ASSERT_EQUAL(take(p, 0, 1, true), 0);
    source_plan_sent(p, 0, 0, 1, 1);
    CU_ASSERT_EQUAL(source_plan_stream_ended(p, 0, 0, 0), 0);
    CU_ASSERT_EQUAL(source_plan_stream_ended(p, 0, 1, 1), 1); // the first frame, stripe 1, came
    CU_ASSERT_EQUAL(take(p, 0, 2, true), 0);
    CU_ASSERT_EQUAL(take(p, 0, 2, false), 2);
    source_plan_free(p);
}

// Only who took a stripe may say that it was sent.
static void test_sent(void)
{
    struct source_plan *p = plan_leased(0, 3);
    CU_ASSERT_EQUAL(take(p, 4, 2, false), 0);
    CU_ASSERT_FALSE(source_plan_wanted(p, 0, 4, 1));
    CU_ASSERT_FALSE(source_plan_wanted(p, 0, 4, 3));
    CU_ASSERT_FALSE(source_plan_wanted(p, 0, 3, 2));
    CU_ASSERT_FALSE(source_plan_wanted(p, 1, 4, 2)); // free
    CU_ASSERT_FALSE(source_plan_wanted(p, 3, 4, 2)); // of no lease
    source_plan_sent(p, 0, 4, 1, 0);
    source_plan_sent(p, 0, 3, 2, 0);
    source_plan_sent(p, 3, 4, 2, 0);
    CU_ASSERT_TRUE(source_plan_wanted(p, 0, 4, 2));
    source_plan_sent(p, 0, 4, 2, 5);
    CU_ASSERT_FALSE(source_plan_wanted(p, 0, 4, 2)); // once
    source_plan_sent(p, 0, 4, 2, 0);                 // its number stays
    CU_ASSERT_EQUAL(source_plan_stream_ended(p, 4, 2, 5), 1);
    source_plan_free(p);
}

static void test_bad(void)
{
    struct source_plan *p = plan_leased(0, 4);
    CU_ASSERT_FALSE(source_plan_bad(p, 0)); // never sent
    CU_ASSERT_FALSE(source_plan_bad(p, 4)); // never leased
    CU_ASSERT_FALSE(source_plan_bad(p, UINT64_MAX));
    CU_ASSERT_EQUAL(take(p, 0, 0, false), 0);
    CU_ASSERT_FALSE(source_plan_bad(p, 0)); // on its way
    source_plan_sent(p, 0, 0, 0, 0);
    CU_ASSERT_TRUE(source_plan_bad(p, 0));
    CU_ASSERT_FALSE(source_plan_bad(p, 0)); // twice is once
    // It came whole, if damaged: the end of the stream does not free it a second time, nor take it from who
    // has it now.
    CU_ASSERT_EQUAL(source_plan_stream_ended(p, 0, 0, 1), 0);
    CU_ASSERT_EQUAL(take(p, 1, 0, true), 0);
    CU_ASSERT_EQUAL(source_plan_stream_ended(p, 0, 0, 0), 0);
    source_plan_sent(p, 0, 1, 0, 0);
    source_plan_settle(p, 0, 1);
    CU_ASSERT_FALSE(source_plan_bad(p, 0)); // not needed any more
    source_plan_free(p);
}

// In whatever state it is, and for good.
static void test_settle(void)
{
    struct source_plan *p = plan_leased(0, 5);
    CU_ASSERT_EQUAL(source_plan_lease(p, 2, 9, 7, 5), 0);
    CU_ASSERT_EQUAL(take(p, 0, 0, false), 0);
    CU_ASSERT_EQUAL(take(p, 0, 0, false), 1);
    source_plan_sent(p, 0, 0, 0, 0);
    source_plan_settle(p, 0, 0);
    source_plan_settle(p, 5, 2); // between the leases
    source_plan_settle(p, 100, UINT64_MAX);
    source_plan_settle(p, 0, 3);
    source_plan_settle(p, 0, 3);
    CU_ASSERT_FALSE(source_plan_wanted(p, 1, 0, 0));
    source_plan_sent(p, 1, 0, 0, 1);
    CU_ASSERT_EQUAL(source_plan_stream_ended(p, 0, 0, 0), 0);
    CU_ASSERT_EQUAL(take(p, 0, 1, false), 3);
    source_plan_settle(p, 4, 5); // over the gap: 4, 7 and 8
    CU_ASSERT_EQUAL(take(p, 0, 1, false), 9);
    source_plan_settle(p, 11, UINT64_MAX); // as far as there are numbers
    CU_ASSERT_EQUAL(take(p, 0, 1, false), 10);
    CU_ASSERT_EQUAL(take(p, 0, 1, false), UINT64_MAX);
    CU_ASSERT_EQUAL(source_plan_lease_done(p, 1), 0);
    CU_ASSERT_EQUAL(source_plan_lease_done(p, 2), 0);
    source_plan_free(p);
}

// ---- against a model that looks at every stripe ----

enum { MODEL_STRIPES = 60, MODEL_STREAMS = 3 };
enum model_state { MODEL_NONE, MODEL_FREE, MODEL_TAKEN, MODEL_SENT, MODEL_SETTLED };

struct model {
    struct source_plan *plan;
    enum model_state state[MODEL_STRIPES];
    uint32_t stream[MODEL_STRIPES], attempt[MODEL_STRIPES], lease[MODEL_STRIPES];
    uint64_t frame[MODEL_STRIPES];
    bool again[MODEL_STRIPES];
    uint32_t attempts[MODEL_STREAMS];
    uint64_t frames[MODEL_STREAMS];
    uint32_t next_lease;
};

static void model_lease(struct model *m, struct rnd *r)
{
    uint64_t first = rnd_below(r, MODEL_STRIPES), count = rnd_below(r, 8);
    bool fits = count > 0 && first + count <= MODEL_STRIPES;
    if (first + count > MODEL_STRIPES)
        return;
    for (uint64_t i = first; i < first + count; i++)
        fits = fits && m->state[i] == MODEL_NONE;
    CU_ASSERT_EQUAL(source_plan_lease(m->plan, m->next_lease, 0, first, (uint32_t)count), fits ? 0 : -EPROTO);
    for (uint64_t i = first; fits && i < first + count; i++) {
        m->state[i] = MODEL_FREE;
        m->again[i] = false;
        m->lease[i] = m->next_lease;
    }
    m->next_lease++;
}

static void model_done(struct model *m, struct rnd *r)
{
    uint64_t at = rnd_below(r, MODEL_STRIPES);
    if (m->state[at] == MODEL_NONE)
        return;
    CU_ASSERT_EQUAL(source_plan_lease_done(m->plan, m->lease[at]), 0);
    for (uint64_t i = 0; i < MODEL_STRIPES; i++)
        if (m->state[i] != MODEL_NONE && m->lease[i] == m->lease[at] && i != at)
            m->state[i] = MODEL_NONE;
    m->state[at] = MODEL_NONE;
}

static void model_take(struct model *m, uint32_t stream)
{
    uint64_t lowest = 0;
    while (lowest < MODEL_STRIPES && m->state[lowest] != MODEL_FREE)
        lowest++;
    if (lowest == MODEL_STRIPES) {
        CU_ASSERT_EQUAL(take(m->plan, stream, m->attempts[stream], false), UINT64_MAX);
        return;
    }
    CU_ASSERT_EQUAL(take(m->plan, stream, m->attempts[stream], m->again[lowest]), lowest);
    m->state[lowest] = MODEL_TAKEN;
    m->stream[lowest] = stream;
    m->attempt[lowest] = m->attempts[stream];
}

static void model_sent(struct model *m, uint64_t i)
{
    uint32_t stream = m->stream[i];
    bool mine = m->state[i] == MODEL_TAKEN && m->attempt[i] == m->attempts[stream];
    CU_ASSERT_EQUAL(source_plan_wanted(m->plan, i, stream, m->attempts[stream]), mine);
    source_plan_sent(m->plan, i, stream, m->attempts[stream], m->frames[stream]);
    if (!mine)
        return;
    m->state[i] = MODEL_SENT;
    m->frame[i] = m->frames[stream]++;
}

static void model_ended(struct model *m, uint32_t stream, uint64_t frames)
{
    uint64_t back = 0;
    for (uint64_t i = 0; i < MODEL_STRIPES; i++) {
        bool held = m->state[i] == MODEL_TAKEN || (m->state[i] == MODEL_SENT && m->frame[i] >= frames);
        if (!held || m->stream[i] != stream)
            continue;
        m->again[i] = m->again[i] || m->state[i] == MODEL_SENT;
        m->state[i] = MODEL_FREE;
        back++;
    }
    CU_ASSERT_EQUAL(source_plan_stream_ended(m->plan, stream, m->attempts[stream], frames), back);
    m->attempts[stream]++;
    m->frames[stream] = 0;
    // What came of it never comes back.
    for (uint64_t i = 0; i < MODEL_STRIPES; i++)
        if (m->state[i] == MODEL_SENT && m->stream[i] == stream)
            m->stream[i] = MODEL_STREAMS;
}

static void model_step(struct model *m, struct rnd *r)
{
    uint64_t at = rnd_below(r, MODEL_STRIPES);
    uint32_t stream = (uint32_t)rnd_below(r, MODEL_STREAMS);
    switch (rnd_below(r, 16)) {
    case 0:
    case 1:
        model_lease(m, r);
        break;
    case 2:
        model_done(m, r);
        break;
    case 3:
        model_ended(m, stream, rnd_below(r, m->frames[stream] + 2));
        break;
    case 4:
        CU_ASSERT_EQUAL(source_plan_bad(m->plan, at), m->state[at] == MODEL_SENT);
        m->again[at] = m->again[at] || m->state[at] == MODEL_SENT;
        m->state[at] = m->state[at] == MODEL_SENT ? MODEL_FREE : m->state[at];
        break;
    case 5: {
        uint64_t count = rnd_below(r, 4);
        source_plan_settle(m->plan, at, count);
        for (uint64_t i = at; i < at + count && i < MODEL_STRIPES; i++)
            m->state[i] = m->state[i] == MODEL_NONE ? MODEL_NONE : MODEL_SETTLED;
        break;
    }
    case 6:
    case 7:
    case 8:
    case 9:
        if (m->state[at] != MODEL_NONE && m->state[at] != MODEL_FREE && m->stream[at] < MODEL_STREAMS)
            model_sent(m, at);
        break;
    default:
        model_take(m, stream);
    }
}

static void test_random(void)
{
    struct rnd r = rnd_begin("plan_source");
    for (int round = 0; round < 50; round++) {
        struct model m = {.plan = plan_new()};
        for (int step = 0; step < 1000; step++) {
            model_step(&m, &r);
        }
        for (uint64_t i = 0; i <= MODEL_STRIPES; i++) // what is left, and then nothing
            model_take(&m, 0);
        source_plan_free(m.plan);
    }
}

void suite_plan_source(void)
{
    CU_pSuite s = CU_add_suite("plan_source", NULL, NULL);
    CU_add_test(s, "lease_refused", test_lease_refused);
    CU_add_test(s, "lease_done", test_lease_done);
    CU_add_test(s, "leased", test_leased);
    CU_add_test(s, "take_order", test_take_order);
    CU_add_test(s, "many_leases", test_many_leases);
    CU_add_test(s, "ended", test_ended);
    CU_add_test(s, "attempts_over", test_attempts_over);
    CU_add_test(s, "old_attempt", test_old_attempt);
    CU_add_test(s, "sent", test_sent);
    CU_add_test(s, "bad", test_bad);
    CU_add_test(s, "settle", test_settle);
    CU_add_test(s, "random", test_random);
}
