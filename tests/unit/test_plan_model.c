// Whole jobs of the three machines, at random: whatever breaks on the way, every stripe becomes durable once,
// every entry is settled once, and the job ends with what that comes to.
#include <stdio.h>

#include <CUnit/CUnit.h>

#include "tests/unit/plan_model.h"

static void run_many(const char *name, const struct model_setup *setup, int runs, bool may_spoil)
{
    struct rnd r = rnd_begin(name);
    for (int i = 0; i < runs; i++) {
        struct rnd one = {.state = rnd_next(&r)};
        struct coord_counters n;
        unsigned failures = CU_get_number_of_failures();
        int exit_status = model_run(&one, setup, &n);
        if (CU_get_number_of_failures() > failures)
            fprintf(stderr, "  run %d\n", i);
        CU_ASSERT_EQUAL(n.moved + n.skipped + n.changed + n.vanished, n.total);
        CU_ASSERT(n.walked && n.failed == 0);
        CU_ASSERT_EQUAL(exit_status, n.changed + n.vanished > 0 ? 8 : 0);
        CU_ASSERT(may_spoil || n.changed + n.vanished == 0);
    }
}

// Nothing goes wrong.
static void test_quiet(void)
{
    run_many("plan_model.quiet", &(struct model_setup){.segments = 6, .stripes = 40}, 50, false);
}

// Streams break, cannot be dialled, and carry damaged frames.
static void test_streams(void)
{
    run_many("plan_model.streams",
             &(struct model_setup){.segments = 8, .stripes = 60, .cut = 20, .damage = 20, .dial_fails = 20},
             200, false);
}

// More stripes than are leased at a time.
static void test_large(void)
{
    run_many("plan_model.large",
             &(struct model_setup){.segments = 3, .stripes = 3000, .cut = 2, .damage = 2, .dial_fails = 20},
             6, false);
}

// Files change and vanish while they are read, too.
static void test_spoilt(void)
{
    run_many("plan_model.spoilt",
             &(struct model_setup){
                 .segments = 8, .stripes = 60, .cut = 10, .damage = 10, .spoil = 20, .dial_fails = 20},
             200, true);
}

// Single files in their segments, most of which go bad with stripes of them at every stage.
static void test_mostly_spoilt(void)
{
    run_many("plan_model.mostly_spoilt", &(struct model_setup){.segments = 20, .stripes = 300, .spoil = 200},
             100, true);
}

void suite_plan_model(void)
{
    CU_pSuite s = CU_add_suite("plan_model", NULL, NULL);
    CU_add_test(s, "quiet", test_quiet);
    CU_add_test(s, "streams", test_streams);
    CU_add_test(s, "large", test_large);
    CU_add_test(s, "spoilt", test_spoilt);
    CU_add_test(s, "mostly_spoilt", test_mostly_spoilt);
}
