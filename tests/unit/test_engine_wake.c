// A wake that comes together with the end of an operation is not the last one that counts.
#include "tests/unit/engine_kit.h"

static int nothing(void *arg)
{
    (void)arg;
    return 0;
}

static void wake_again(struct engine *e)
{
    for (int i = 0; i < 3; i++) {
        struct kit_op k = kit_call(nothing, NULL);
        k.op.at_once = true;
        engine_start(e, &k.op);
        engine_wake(e);
        CU_ASSERT_EQUAL(engine_step(e, KIT_WAIT_MS), 1);
        CU_ASSERT_EQUAL(k.done, 1);
        uint64_t began_ns = sys_clock_ns();
        engine_wake(e);
        CU_ASSERT_EQUAL(engine_step(e, 2000), 0);
        CU_ASSERT(sys_clock_ns() - began_ns < UINT64_C(1000000000));
    }
}

static void test_wake_again(void)
{
    kit_each(wake_again);
}

void suite_engine_wake(void)
{
    CU_pSuite s = CU_add_suite("engine_wake", NULL, NULL);
    CU_add_test(s, "wake_again", test_wake_again);
}
