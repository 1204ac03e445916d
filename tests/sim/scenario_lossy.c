// Data connections that are cut in the middle of frames, flip bits and stall: the copy is whole all the same.
// A wrong bit behind a good head costs that stripe only, one in a head the stream.
#include "tests/sim/net.h"
#include "tests/sim/runs.h"
#include "tests/sim/scenario.h"
#include "tests/sim/watch.h"
#include "tests/sim/world.h"

enum { DIGEST_TRIES = 3, EXIT_DATA = 7 };

static unsigned sometimes(unsigned low, unsigned high)
{
    return rng_once_in(world_rng(), 2) ? (unsigned)rng_range(world_rng(), low, high) : 0;
}

void scenario_lossy(void *turn)
{
    (void)turn;
    static struct model m;
    const struct shape shape = {.files = 12, .dirs = 3, .links = 2, .bytes = 6 * MIB, .large = true};
    struct net_trouble *t = net_trouble();
    struct run r;
    model_make(&m, &shape);
    model_make_old(&m, 10, 10);
    watch_begin(&m);
    run_random(&r);
    t->flip_body_once_in = sometimes(2, 10);
    t->flip_head_once_in = sometimes(6, 30);
    t->cut_once_in = sometimes(4, 30);
    t->stall_once_in = sometimes(4, 20);
    run_copy(&r);
    if (t->worst_flips >= DIGEST_TRIES && r.result.exit_status == EXIT_DATA) {
        *t = (struct net_trouble){.delay_ns_max = t->delay_ns_max};
        check_safe(&m);
        run_copy(&r);
    }
    run_check_copy(&r, &m);
    uint64_t dials = r.streams + 1 + t->cuts + t->flipped_heads;
    if (t->data_dials > dials)
        world_fail("%llu dials, %llu were due", (unsigned long long)t->data_dials, (unsigned long long)dials);
    if (t->flipped_heads + t->cuts == 0 &&
        t->body_bytes > model_needed_bytes(&m) + t->flipped_bodies * r.stripe_bytes)
        world_fail("%llu bytes were sent for %llu that are needed, with %llu stripes damaged",
                   (unsigned long long)t->body_bytes, (unsigned long long)model_needed_bytes(&m),
                   (unsigned long long)t->flipped_bodies);
}
