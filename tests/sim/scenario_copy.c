// A plain copy: the destination equals the source, the counters add up, and a second run moves nothing.
#include "tests/sim/net.h"
#include "tests/sim/runs.h"
#include "tests/sim/scenario.h"
#include "tests/sim/watch.h"
#include "tests/sim/world.h"

void scenario_copy(void *turn)
{
    (void)turn;
    static struct model m;
    const struct shape shape = {.files = 14, .dirs = 5, .links = 3, .bytes = 5 * MIB, .large = true};
    struct run r;
    model_make(&m, &shape);
    model_make_old(&m, 20, 20);
    watch_begin(&m);
    run_random(&r);
    run_copy(&r);
    run_check(&r, &m, 0);
    check_equal(&m);
    uint64_t bytes = net_trouble()->body_bytes;
    run_random(&r);
    run_copy(&r);
    run_check(&r, &m, 0);
    check_equal(&m);
    if (r.counters.entries_moved != 0 || net_trouble()->body_bytes != bytes)
        world_fail("a second run moves something");
}
