// The coordinator machine: what a job comes to does not depend on who is heard first, and who is named is who
// is lost.
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <CUnit/CUnit.h>

#include "mover/plan/coord_state.h"
#include "proto/greet.h"
#include "tests/unit/coord_kit.h"

enum event { FAIL_SOURCE, FAIL_DEST, END_SOURCE, END_DEST, EVENTS };

// One end of a job: what each agent says (ERR_NONE: nothing), and whether it then closes or is lost.
struct course {
    enum err_class said[COORD_NODES];
    bool lost[COORD_NODES];
};

// An agent closes only when it was told to: the job may have to wait for that. false: that is never.
static bool end_one(struct coord_kit *k, unsigned node, bool lost)
{
    if (!lost && !k->closing)
        kit_tick(k, SUSPECT_NS);
    if (!lost && !k->closing)
        return false;
    if (lost)
        kit_lose(k, node);
    else
        kit_closed(k, node);
    return true;
}

// The exit status when the events come in this order; -1: they cannot.
static int run_order(enum kit_phase phase, const struct course *course, const enum event order[EVENTS])
{
    struct coord_kit k;
    kit_begin_in(&k, phase);
    bool possible = true;
    for (int i = 0; i < EVENTS && possible; i++) {
        unsigned node = order[i] == FAIL_SOURCE || order[i] == END_SOURCE ? COORD_SOURCE : COORD_DEST;
        bool fails = order[i] == FAIL_SOURCE || order[i] == FAIL_DEST;
        if (!fails)
            possible = end_one(&k, node, course->lost[node]);
        else if (k.gone[node])
            possible = false;
        else if (course->said[node] != ERR_NONE)
            kit_fail(&k, node, course->said[node]);
    }
    CU_ASSERT(!possible || k.ends == 1);
    int exit_status = possible ? k.exit_status : -1;
    if (possible && k.exit_status != 0)
        CU_ASSERT(k.problems > 0);
    kit_end(&k);
    return exit_status;
}

// All orders come to the same, which is returned (-1: there was none).
static int run_orders(enum kit_phase phase, const struct course *course)
{
    int exit_status = -1;
    for (unsigned code = 0; code < EVENTS * EVENTS * EVENTS * EVENTS; code++) {
        enum event order[EVENTS];
        unsigned seen = 0;
        for (unsigned i = 0, rest = code; i < EVENTS; i++, rest /= EVENTS) {
            order[i] = (enum event)(rest % EVENTS);
            seen |= 1u << order[i];
        }
        if (seen != (1u << EVENTS) - 1)
            continue;
        int got = run_order(phase, course, order);
        if (got < 0)
            continue;
        if (exit_status >= 0 && got != exit_status)
            fprintf(stderr, "  phase %u, %s and %s: %d or %d\n", phase, err_class_name(course->said[0]),
                    err_class_name(course->said[1]), got, exit_status);
        CU_ASSERT(exit_status < 0 || got == exit_status);
        exit_status = got;
    }
    return exit_status;
}

// One class of each exit status, and of each way to take it.
static const enum err_class said[] = {ERR_NONE,        ERR_ENTRY, ERR_START,    ERR_STORAGE,
                                      ERR_INTERRUPTED, ERR_LOST,  ERR_PROTOCOL, ERR_LOCKED};

static void check_courses(enum kit_phase phase, enum err_class a, enum err_class b)
{
    for (unsigned lost = 0; lost < 4; lost++) {
        struct course course = {.said = {a, b}, .lost = {(lost & 1) != 0, (lost & 2) != 0}};
        int exit_status = run_orders(phase, &course);
        bool heard = a != ERR_NONE || b != ERR_NONE || lost != 0;
        CU_ASSERT(!heard || phase == KIT_CLOSE || exit_status > 0);
        // Who says why it ends, and not of the other, is not lost.
        bool gone = (course.lost[0] && err_class_exit(course.said[0]) % 6 < 2) ||
                    (course.lost[1] && err_class_exit(course.said[1]) % 6 < 2);
        if (gone)
            CU_ASSERT(exit_status == 6 || exit_status == 4 || exit_status == 5);
    }
}

static void test_any_order(void)
{
    static const enum kit_phase phases[] = {KIT_HELLO, KIT_LINK, KIT_RUN, KIT_FINISH, KIT_CLOSE};
    for (size_t i = 0; i < ARRAY_LEN(phases); i++)
        for (size_t a = 0; a < ARRAY_LEN(said); a++)
            for (size_t b = 0; b < ARRAY_LEN(said); b++)
                check_courses(phases[i], said[a], said[b]);
}

// The reason counts, not what it does to the other.
static void test_reasons(void)
{
    static const struct {
        enum err_class source, dest;
        int exit, finished; // while the job runs; while it closes, finished
    } table[] = {
        {ERR_LOST, ERR_NONE, 6, 0},    {ERR_PROTOCOL, ERR_NONE, 6, 0},    {ERR_LOST, ERR_STORAGE, 4, 4},
        {ERR_LOST, ERR_START, 3, 3},   {ERR_PROTOCOL, ERR_START, 3, 3},   {ERR_LOST, ERR_LOCKED, 9, 9},
        {ERR_LOST, ERR_LOST, 6, 0},    {ERR_STORAGE, ERR_START, 4, 4},    {ERR_START, ERR_LOCKED, 9, 9},
        {ERR_VERSION, ERR_LOST, 3, 3}, {ERR_INTERRUPTED, ERR_LOST, 5, 5}, {ERR_NONE, ERR_ENTRY, 6, 0},
    };
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        struct course course = {.said = {table[i].source, table[i].dest}};
        for (enum kit_phase phase = KIT_LINK; phase < KIT_CLOSE; phase++)
            CU_ASSERT_EQUAL(run_orders(phase, &course), table[i].exit);
        CU_ASSERT_EQUAL(run_orders(KIT_CLOSE, &course), table[i].finished);
    }
}

// What an agent says of itself stands, whatever its class: the user is not sent to the other one.
static void test_of_itself(void)
{
    struct coord_kit k;
    kit_begin_in(&k, KIT_RUN);
    kit_say(&k, COORD_SOURCE,
            &(struct message){.type = MESSAGE_FAIL,
                              .fail = {.class = ERR_LOST,
                                       .op = blob_text("read"),
                                       .path = blob_text("a/file"),
                                       .text = blob_text("no answer for 3600 s, on /mnt")}});
    CU_ASSERT(k.closing && k.problems == 1 && k.problem.class == ERR_LOST);
    CU_ASSERT_STRING_EQUAL(k.problem.node, "there");
    CU_ASSERT_STRING_EQUAL(k.problem.op, "read");
    CU_ASSERT_STRING_EQUAL(k.problem.path, "a/file");
    CU_ASSERT_STRING_EQUAL(k.problem.text, "no answer for 3600 s, on /mnt");
    kit_closed(&k, COORD_SOURCE);
    kit_closed(&k, COORD_DEST);
    CU_ASSERT(k.ends == 1 && k.exit_status == 6);
    kit_end(&k);
}

// What makes a job that closes end otherwise is told; what it ends with anyway is not.
static void test_told(void)
{
    struct coord_kit k;
    kit_begin_in(&k, KIT_RUN);
    kit_fail(&k, COORD_SOURCE, ERR_START);
    kit_fail(&k, COORD_DEST, ERR_AUTH);
    CU_ASSERT_EQUAL(k.problems, 1);
    kit_fail(&k, COORD_DEST, ERR_STORAGE);
    CU_ASSERT(k.problems == 2 && k.problem.class == ERR_STORAGE);
    kit_fail(&k, COORD_SOURCE, ERR_LOST);
    kit_closed(&k, COORD_SOURCE);
    kit_lose(&k, COORD_DEST);
    CU_ASSERT(k.problems == 2 && k.ends == 1 && k.exit_status == 4);
    kit_end(&k);
    // An agent without a place for the job says so and hangs up.
    kit_begin(&k, NULL);
    kit_fail(&k, COORD_DEST, ERR_START);
    kit_lose(&k, COORD_DEST);
    kit_closed(&k, COORD_SOURCE);
    CU_ASSERT(k.problems == 1 && k.ends == 1 && k.exit_status == 3);
    kit_end(&k);
    // An agent that does not end in time, of a job that had come to its end.
    kit_begin_in(&k, KIT_CLOSE);
    kit_closed(&k, COORD_SOURCE);
    kit_tick(&k, CLOSE_NS);
    CU_ASSERT(k.ends == 1 && k.exit_status == 6 && k.problems == 1 && k.problem.class == ERR_LOST);
    CU_ASSERT_PTR_NOT_NULL(strstr(k.problem.text, "here did not end"));
    kit_end(&k);
    // One that never spoke was never there.
    kit_begin(&k, NULL);
    kit_hello(&k, COORD_DEST);
    kit_fail(&k, COORD_DEST, ERR_VERSION);
    kit_closed(&k, COORD_DEST);
    kit_tick(&k, CLOSE_NS);
    CU_ASSERT(k.ends == 1 && k.exit_status == 3);
    kit_end(&k);
}

// The peer connection stands, from the source at 10.0.0.1 to the destination at 10.0.0.2.
static void begin_linked(struct coord_kit *k)
{
    kit_begin_in(k, KIT_LINK);
    for (unsigned n = 0; n < COORD_NODES; n++)
        kit_say(k, n,
                &(struct message){
                    .type = MESSAGE_LINKED,
                    .linked = {.kind = GREET_PEER,
                               .remote = blob_text(n == COORD_SOURCE ? "10.0.0.2:7420" : "10.0.0.1:33000")}});
    for (uint32_t i = 0; i < k->streams; i++)
        for (unsigned n = 0; n < COORD_NODES; n++)
            kit_linked(k, n, i, 0);
    kit_read_all(k);
}

static bool names(const struct coord_kit *k, const char *name, const char *address)
{
    char line[2048];
    err_line(&k->problem, line, sizeof line);
    return strstr(line, name) != NULL && strstr(line, address) != NULL;
}

static void fail_lost(struct coord_kit *k, unsigned node)
{
    kit_say(k, node,
            &(struct message){.type = MESSAGE_FAIL,
                              .fail = {.class = ERR_LOST,
                                       .os = ECONNRESET,
                                       .op = blob_text("talk"),
                                       .node = blob_text(FAIL_OTHER)}});
}

// One agent dies. The other may tell of its connection first: who is named is who died, with its address.
static void test_named(void)
{
    for (unsigned dead = 0; dead < COORD_NODES; dead++) {
        for (int first = 0; first < 2; first++) {
            struct coord_kit k;
            begin_linked(&k);
            if (first) {
                fail_lost(&k, coord_other(dead));
                CU_ASSERT_EQUAL(kit_tick(&k, 0), k.now_ns + SUSPECT_NS);
                kit_tick(&k, SUSPECT_NS - 1);
                kit_expect_running(&k);
            }
            kit_lose(&k, dead);
            if (!first)
                fail_lost(&k, coord_other(dead));
            kit_expect_stopped(&k, ERR_LOST);
            const char *name = dead == COORD_SOURCE ? "there" : "here";
            CU_ASSERT_TRUE(strncmp(k.problem.node, name, strlen(name)) == 0);
            CU_ASSERT_TRUE(names(&k, name, dead == COORD_SOURCE ? "10.0.0.1:33000" : "10.0.0.2:7420"));
            kit_closed(&k, coord_other(dead));
            CU_ASSERT(k.ends == 1 && k.exit_status == 6 && k.problems == 1);
            kit_end(&k);
        }
    }
}

// Both agents are there, and only what connects them is lost: who told, and what to.
static void test_path_named(void)
{
    struct coord_kit k;
    begin_linked(&k);
    fail_lost(&k, COORD_SOURCE);
    fail_lost(&k, COORD_DEST);
    kit_expect_running(&k);
    kit_tick(&k, SUSPECT_NS);
    kit_expect_stopped(&k, ERR_LOST);
    CU_ASSERT_STRING_EQUAL(k.problem.node, "there");
    CU_ASSERT_STRING_EQUAL(k.problem.text, "lost the connection to here (10.0.0.2:7420)");
    CU_ASSERT_EQUAL(k.problem.os, ECONNRESET);
    kit_end(&k);
    // All streams are gone, and then a node.
    begin_linked(&k);
    kit_ended(&k, COORD_SOURCE, 0, 0, 0);
    kit_ended(&k, COORD_SOURCE, 1, 0, 0);
    kit_tick(&k, LOST_NS);
    kit_expect_running(&k);
    kit_lose(&k, COORD_DEST);
    kit_expect_stopped(&k, ERR_LOST);
    CU_ASSERT_TRUE(names(&k, "here", "10.0.0.2:7420"));
    kit_end(&k);
    begin_linked(&k);
    kit_ended(&k, COORD_SOURCE, 0, 0, 0);
    kit_ended(&k, COORD_SOURCE, 1, 0, 0);
    kit_tick(&k, LOST_NS);
    kit_tick(&k, SUSPECT_NS);
    kit_expect_stopped(&k, ERR_LOST);
    CU_ASSERT_TRUE(names(&k, "there and here", "10.0.0.2:7420"));
    kit_end(&k);
    // All streams are gone, because an agent has a reason of its own to end.
    begin_linked(&k);
    kit_ended(&k, COORD_SOURCE, 0, 0, 0);
    kit_ended(&k, COORD_SOURCE, 1, 0, 0);
    kit_tick(&k, LOST_NS);
    kit_fail(&k, COORD_DEST, ERR_START);
    kit_closed(&k, COORD_SOURCE);
    kit_closed(&k, COORD_DEST);
    CU_ASSERT(k.ends == 1 && k.problems == 1 && k.exit_status == 3);
    kit_end(&k);
}

// The user, or another reason, does not wait for that; an agent that cannot go on spoils an end in order.
static void test_suspected(void)
{
    struct coord_kit k;
    begin_linked(&k);
    fail_lost(&k, COORD_SOURCE);
    kit_cancel(&k);
    kit_expect_stopped(&k, ERR_INTERRUPTED);
    kit_end(&k);
    kit_begin_in(&k, KIT_FINISH);
    fail_lost(&k, COORD_SOURCE);
    kit_finished(&k);
    kit_expect_stopped(&k, ERR_LOST);
    kit_closed(&k, COORD_SOURCE);
    kit_closed(&k, COORD_DEST);
    CU_ASSERT(k.ends == 1 && k.exit_status == 6);
    kit_end(&k);
}

// Whether the job came to its end is what CLOSE said, whatever the exit status: the kit compares.
static void test_finished(void)
{
    struct coord_kit
        k; // data was found wrong, and then the receipt could not be written: not finished, and 7
    kit_begin_in(&k, KIT_RUN);
    kit_segment(&k, 0, 1, 0, false);
    kit_entries(&k, 0, RECEIPT_FAILED, 1);
    kit_problem(&k, COORD_DEST, PROBLEM_RECORDED, ERR_DIGEST);
    kit_fail(&k, COORD_SOURCE, ERR_START);
    kit_closed(&k, COORD_SOURCE);
    kit_closed(&k, COORD_DEST);
    CU_ASSERT(k.ends == 1 && k.exit_status == 7 && !k.finished);
    kit_end(&k);
    kit_begin_in(&k, KIT_CLOSE); // and the other way round
    kit_closed(&k, COORD_SOURCE);
    kit_lose(&k, COORD_DEST);
    CU_ASSERT(k.ends == 1 && k.exit_status == 6 && k.finished);
    kit_end(&k);
}

void suite_coord_order(void)
{
    CU_pSuite s = CU_add_suite("coord_order", NULL, NULL);
    CU_add_test(s, "any_order", test_any_order);
    CU_add_test(s, "reasons", test_reasons);
    CU_add_test(s, "of_itself", test_of_itself);
    CU_add_test(s, "told", test_told);
    CU_add_test(s, "named", test_named);
    CU_add_test(s, "path_named", test_path_named);
    CU_add_test(s, "suspected", test_suspected);
    CU_add_test(s, "finished", test_finished);
}
