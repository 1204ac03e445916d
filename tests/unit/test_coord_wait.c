// The coordinator machine: agents that answer pings and nothing else do not keep a job for ever.
#include <string.h>

#include <CUnit/CUnit.h>

#include "mover/plan/coord_state.h"
#include "tests/unit/coord_kit.h"

#define PATIENCE_NS (IO_TIMEOUT_S_DEFAULT * KIT_S + IO_MARGIN_NS)

// Time passes in steps, in which both agents answer pings and the source tells that nothing goes. Stops with
// the job.
static void pass(struct coord_kit *k, uint64_t pass_ns)
{
    uint64_t end_ns = k->now_ns + pass_ns;
    while (k->now_ns < end_ns && !k->closing) {
        kit_tick(k, u64_min(5 * KIT_S, end_ns - k->now_ns));
        for (unsigned n = 0; n < COORD_NODES && !k->closing; n++) {
            kit_say(k, n, &(struct message){.type = MESSAGE_PING});
            kit_say(k, n, &(struct message){.type = MESSAGE_PONG});
        }
        if (k->streams > 0)
            kit_say(k, COORD_SOURCE,
                    &(struct message){.type = MESSAGE_STREAM_STATS, .stream_stats = {.bytes = 7}});
        kit_read_all(k);
    }
}

// The job goes on until `wait_ns` from now, and then stops and names who was waited for.
static void expect_patience(struct coord_kit *k, uint64_t wait_ns, const char *node)
{
    pass(k, wait_ns - 1);
    kit_expect_running(k);
    kit_tick(k, 1);
    CU_ASSERT_TRUE(k->closing);
    CU_ASSERT_EQUAL(k->problem.class, ERR_LOST);
    CU_ASSERT_STRING_EQUAL(k->problem.node, node);
    CU_ASSERT_PTR_NOT_NULL(strstr(k->problem.text, "nothing came of it"));
    kit_closed(k, COORD_SOURCE);
    kit_closed(k, COORD_DEST);
    CU_ASSERT(k->ends == 1 && k->exit_status == 6);
}

// Phase by phase, nothing comes any more.
static void test_phases(void)
{
    static const struct {
        enum kit_phase phase;
        const char *node;
    } table[] = {{KIT_OPEN_SOURCE, "there"},
                 {KIT_OPEN_DEST, "here"},
                 {KIT_RUN, "there"},
                 {KIT_RETRY, "there"},
                 {KIT_FINISH, "here"}};
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        struct coord_kit k;
        kit_begin(&k, NULL);
        kit_to(&k, table[i].phase);
        kit_say(&k, COORD_SOURCE,
                &(struct message){.type = MESSAGE_STREAM_STATS, .stream_stats = {.bytes = 7}});
        if (table[i].phase < KIT_LINK) { // no such words yet
            kit_end(&k);
            kit_begin_in(&k, table[i].phase);
            k.streams = 0;
        }
        expect_patience(&k, PATIENCE_NS, table[i].node);
        kit_end(&k);
    }
}

// How far one segment of one stripe has come when everybody falls silent.
enum stage { CLOSED, COMPARED, LEASED, ANSWERED, DURABLE, SETTLED, STAGES };

static void bring(struct coord_kit *k, enum stage stage)
{
    kit_begin_in(k, KIT_RUN);
    kit_say(k, COORD_SOURCE, &(struct message){.type = MESSAGE_STREAM_STATS, .stream_stats = {.bytes = 7}});
    kit_closed_segment(k, 0, 1, true);
    if (stage >= COMPARED)
        kit_compared(k, 0, 1, 100);
    if (stage >= LEASED)
        kit_laid(k, 0, 1, 100);
    if (stage >= ANSWERED)
        kit_answer(k, &k->leases[0].words);
    if (stage >= DURABLE)
        kit_durable(k, 0, 1);
    if (stage >= SETTLED)
        kit_entries(k, 0, RECEIPT_MOVED, 1);
    kit_read_all(k);
}

static void test_stages(void)
{
    static const struct {
        const char *node;
        uint64_t wait_ns;
    } table[STAGES] = {
        [CLOSED] = {"here", PATIENCE_NS},  [COMPARED] = {"there", PATIENCE_NS},
        [LEASED] = {"here", ANSWER_NS},    [ANSWERED] = {"", PATIENCE_NS},
        [DURABLE] = {"here", PATIENCE_NS}, [SETTLED] = {"here", PATIENCE_NS},
    };
    for (enum stage stage = CLOSED; stage < STAGES; stage++) {
        struct coord_kit k;
        bring(&k, stage);
        expect_patience(&k, table[stage].wait_ns, table[stage].node);
        kit_end(&k);
    }
}

// Words that need no storage are on their way, or never will be.
static void test_words(void)
{
    for (int i = 0; i < 3; i++) {
        struct coord_kit k;
        kit_begin_in(&k, KIT_RUN);
        kit_say(&k, COORD_SOURCE,
                &(struct message){.type = MESSAGE_STREAM_STATS, .stream_stats = {.bytes = 7}});
        if (i == 0) { // a segment that was never closed is compared
            kit_compared(&k, 0, 0, 0);
        } else if (i == 1) {
            kit_entries(&k, 0, RECEIPT_MOVED, 1);
        } else { // laid out from an answer that the destination does not speak of
            kit_closed_segment(&k, 0, 1, true);
            kit_laid(&k, 0, 0, 0);
        }
        expect_patience(&k, ANSWER_NS, i < 2 ? "there" : "here");
        kit_end(&k);
    }
}

// News of whatever kind begins the time anew.
static void test_news(void)
{
    for (int i = 0; i < 6; i++) {
        struct coord_kit k;
        bring(&k, ANSWERED);
        pass(&k, PATIENCE_NS - 1);
        if (i == 0)
            kit_durable(&k, 0, 1);
        else if (i == 1)
            kit_entries(&k, 0, RECEIPT_MOVED, 1);
        else if (i == 2)
            kit_problem(&k, COORD_SOURCE, PROBLEM_UNLISTED, ERR_ENTRY);
        else if (i == 3)
            kit_say(
                &k, COORD_SOURCE,
                &(struct message){.type = MESSAGE_STREAM_STATS, .stream_stats = {.stream = 1, .bytes = 1}});
        else // no news
            kit_say(&k, COORD_SOURCE,
                    &(struct message){.type = MESSAGE_STREAM_STATS,
                                      .stream_stats = {.stream = i == 4 ? 0 : 9, .bytes = i == 4 ? 7 : 9}});
        kit_tick(&k, 1);
        CU_ASSERT_EQUAL(k.closing, i >= 4);
        if (i < 4) {
            pass(&k, PATIENCE_NS - 2);
            kit_expect_running(&k);
            pass(&k, 1);
            CU_ASSERT_TRUE(k.closing);
        }
        kit_end(&k);
    }
}

// The closing pass may take as long as it says that it goes on.
static void test_finish(void)
{
    struct coord_kit k;
    kit_begin_in(&k, KIT_FINISH);
    for (uint64_t i = 1; i < 5; i++) {
        kit_tick(&k, PATIENCE_NS - 1);
        kit_say(&k, COORD_DEST,
                &(struct message){.type = MESSAGE_FINISHED, .finished = {.directories = i, .more = 1}});
        kit_expect_none(&k);
        kit_expect_running(&k);
    }
    kit_finished(&k);
    CU_ASSERT(k.closing && k.finished);
    kit_end(&k);
}

// The time is what storage may take, and a cap on the rate adds what one stripe a stream takes.
static void test_patience(void)
{
    static const struct {
        uint32_t io_timeout_s;
        uint64_t rate_bits;
        uint64_t patience_s;
    } table[] = {{0, 0, 3660},          {10, 0, 70},
                 {100, 64 * MIB, 161},  {100, UINT64_C(1) << 40, 160},
                 {1, 1, 61 + 64 * MIB}, {UINT32_MAX, 1, 315360060}};
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        struct coord_kit k;
        kit_begin(
            &k, &(struct kit_setup){.io_timeout_s = table[i].io_timeout_s, .rate_bits = table[i].rate_bits});
        kit_to(&k, KIT_OPEN_DEST);
        CU_ASSERT_EQUAL(kit_tick(&k, 0), k.now_ns + table[i].patience_s * KIT_S);
        kit_end(&k);
    }
}

void suite_coord_wait(void)
{
    CU_pSuite s = CU_add_suite("coord_wait", NULL, NULL);
    CU_add_test(s, "phases", test_phases);
    CU_add_test(s, "stages", test_stages);
    CU_add_test(s, "words", test_words);
    CU_add_test(s, "news", test_news);
    CU_add_test(s, "finish", test_finish);
    CU_add_test(s, "patience", test_patience);
}
