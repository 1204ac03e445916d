// When a connection stands still: tables of what TCP says over time.
#include <CUnit/CUnit.h>

#include "mover/stall.h"

#define S UINT64_C(1000000000)

// One look: seconds since the begin, what TCP says then, and whether the path is dead.
struct look {
    uint64_t at_s;
    uint32_t unacked, probes;
    uint64_t ack_age_s;
    bool dead;
};

static void check_path(const struct look *looks, size_t count)
{
    struct stall_path p;
    stall_path_begin(&p, 1000 * S);
    for (size_t i = 0; i < count; i++) {
        struct tcp_figures tcp = {
            .unacked = looks[i].unacked, .probes = looks[i].probes, .ack_age_ms = looks[i].ack_age_s * 1000};
        CU_ASSERT_EQUAL(stall_path_dead(&p, &tcp, (1000 + looks[i].at_s) * S), looks[i].dead);
    }
}

static void dead_path(void)
{
    static const struct look looks[] = {
        {10, 50, 0, 0, false}, {20, 50, 0, 10, false}, {39, 50, 0, 29, false}, {40, 50, 0, 30, true}};
    check_path(looks, ARRAY_LEN(looks));
}

// The last acknowledgement is long past because nothing was sent: what goes out now has its own time.
static void idle_before(void)
{
    static const struct look looks[] = {
        {100, 0, 0, 100, false}, {101, 1, 0, 101, false}, {129, 1, 0, 129, false}, {130, 1, 0, 130, true}};
    check_path(looks, ARRAY_LEN(looks));
}

// The very first look comes late: the time before the begin does not count.
static void first_look(void)
{
    static const struct look looks[] = {{29, 1, 0, 500, false}, {30, 1, 0, 501, true}};
    check_path(looks, ARRAY_LEN(looks));
}

// The window is closed for minutes: each probe is answered, one may be lost.
static void closed_window(void)
{
    static const struct look looks[] = {{10, 0, 0, 5, false},    {60, 0, 1, 55, false}, {120, 0, 0, 2, false},
                                        {250, 0, 1, 130, false}, {900, 0, 0, 0, false}, {901, 0, 2, 1, false},
                                        {929, 0, 2, 29, false},  {930, 0, 2, 30, true}};
    check_path(looks, ARRAY_LEN(looks));
}

// A lossy path: data is always on its way, and now and then something is acknowledged.
static void lossy_path(void)
{
    static const struct look looks[] = {
        {20, 9, 0, 15, false}, {40, 9, 0, 29, false}, {60, 9, 0, 3, false}, {86, 9, 0, 29, false}};
    check_path(looks, ARRAY_LEN(looks));
}

static void no_tcp(void)
{
    static const struct look looks[] = {{10, 0, 0, 0, false}, {100000, 0, 0, 0, false}};
    check_path(looks, ARRAY_LEN(looks));
}

static bool trickles_at(struct stall_trickle *t, uint64_t at_s, uint64_t received)
{
    struct tcp_figures tcp = {.received = received};
    return stall_trickles(t, &tcp, at_s * S);
}

static void trickle(void)
{
    struct stall_trickle t;
    struct tcp_figures tcp = {.received = 5000};
    stall_trickle_begin(&t, &tcp, 0, 100 * S);
    CU_ASSERT_FALSE(trickles_at(&t, 129, 5000));
    CU_ASSERT_FALSE(trickles_at(&t, 129, 5000 + STALL_BYTES)); // a new window
    CU_ASSERT_FALSE(trickles_at(&t, 158, 5000 + STALL_BYTES));
    CU_ASSERT_TRUE(trickles_at(&t, 159, 5000 + 2 * STALL_BYTES - 1));
    CU_ASSERT_FALSE(trickles_at(&t, 159, 5000 + 2 * STALL_BYTES));
}

// 1 KiB/s needs 64 s for STALL_BYTES, and gets four times that; a fast cap changes nothing.
static void trickle_capped(void)
{
    struct stall_trickle t;
    struct tcp_figures tcp = {.received = 0};
    stall_trickle_begin(&t, &tcp, 1024, 0);
    CU_ASSERT_FALSE(trickles_at(&t, 255, 0));
    CU_ASSERT_TRUE(trickles_at(&t, 256, 0));
    stall_trickle_begin(&t, &tcp, 1 << 20, 0);
    CU_ASSERT_FALSE(trickles_at(&t, 29, 0));
    CU_ASSERT_TRUE(trickles_at(&t, 30, 0));
    stall_trickle_begin(&t, &tcp, 1, 0); // one byte a second: no overflow
    CU_ASSERT_FALSE(trickles_at(&t, 4 * STALL_BYTES - 1, 0));
    CU_ASSERT_TRUE(trickles_at(&t, 4 * STALL_BYTES, 0));
}

void suite_stall(void)
{
    CU_pSuite s = CU_add_suite("stall", NULL, NULL);
    CU_add_test(s, "a path that acknowledges nothing", dead_path);
    CU_add_test(s, "an idle path", idle_before);
    CU_add_test(s, "the first look", first_look);
    CU_add_test(s, "a closed window", closed_window);
    CU_add_test(s, "a lossy path", lossy_path);
    CU_add_test(s, "what is no TCP", no_tcp);
    CU_add_test(s, "a trickle", trickle);
    CU_add_test(s, "a trickle under a cap", trickle_capped);
}
