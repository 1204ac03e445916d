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
    if (r.dial == JOB_DIAL_AUTO) // one end that cannot be dialled is no hindrance
        world_host(rng_once_in(world_rng(), 2) ? HOST_SOURCE : HOST_DEST)->refuses_dials =
            rng_once_in(world_rng(), 2);
    run_copy(&r);
    world_host(HOST_SOURCE)->refuses_dials = world_host(HOST_DEST)->refuses_dials = false;
    run_check_copy(&r, &m);
    uint64_t bytes = net_trouble()->body_bytes;
    run_random(&r);
    run_copy(&r);
    run_check_copy(&r, &m);
    if (r.counters.entries_moved != 0 || net_trouble()->body_bytes != bytes)
        world_fail("a second run moves something");
}
