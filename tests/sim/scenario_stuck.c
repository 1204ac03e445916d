// A disk that stops to answer in the middle of a job, at the source or the destination: for less than
// --io-timeout, and the copy is whole; or for good, and the job ends, says where, and goes on when the disk
// is back.
#include "tests/sim/runs.h"
#include "tests/sim/scenario.h"
#include "tests/sim/sched.h"
#include "tests/sim/watch.h"
#include "tests/sim/world.h"

#define FOR_GOOD_NS (UINT64_C(100000) * NS_PER_S)

enum { TIMEOUT_S = 40, SHORT_S = 15, EXIT_STORAGE = 4, EXIT_LOST = 6 };

// Opening and closing are done by the control thread: that it is stuck is seen by its silence.
static bool was_moving(const struct run *r)
{
    const struct job_counters *c = &r->counters;
    return c->entries_total > 0 && c->entries_pending > 0;
}

void scenario_stuck(void *turn)
{
    (void)turn;
    static struct model m;
    const struct shape shape = {.files = 14, .dirs = 3, .links = 2, .bytes = 5 * MIB, .large = true};
    bool dest = rng_once_in(world_rng(), 2), for_good = rng_once_in(world_rng(), 2);
    struct host *h = world_host(dest ? HOST_DEST : HOST_SOURCE);
    struct run r;
    model_make(&m, &shape);
    model_make_old(&m, 20, 10);
    watch_begin(&m);
    run_random(&r);
    r.io_timeout_s = TIMEOUT_S;
    h->stick_at_call = rng_range(world_rng(), 1, UINT64_C(100) << rng_below(world_rng(), 5));
    h->stick_ns = for_good ? FOR_GOOD_NS : rng_below(world_rng(), SHORT_S * NS_PER_S);
    run_start(&r);
    run_wait(&r, false);
    bool stuck = h->stuck_until_ns > sched_now_ns();
    int due = !stuck ? 0 : dest ? EXIT_STORAGE : EXIT_LOST;
    bool silent = due != 0 && !was_moving(&r) && r.result.exit_status == EXIT_LOST;
    if (r.result.exit_status != due && !silent)
        world_fail("exit %d where %d was due, the disk was stuck for %.1f s", r.result.exit_status, due,
                   (double)h->stick_ns / 1e9);
    if (due != 0 && r.problems == 0)
        world_fail("nobody was told of the disk");
    check_safe(&m);
    h->stick_at_call = 0;
    host_stick(h, 0);
    run_wait(&r, true);
    run_random(&r);
    run_copy(&r);
    run_check_copy(&r, &m);
}
