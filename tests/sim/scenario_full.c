// The destination is too small, or two jobs come to it at once.
#include "tests/sim/runs.h"
#include "tests/sim/scenario.h"
#include "tests/sim/watch.h"
#include "tests/sim/world.h"

enum { EXIT_STORAGE = 4, EXIT_LOCKED = 9, NO_LIMIT = 1 << 30 };

static const struct shape small_tree = {.files = 10, .dirs = 3, .links = 2, .bytes = 4 * MIB, .large = true};

static void finish(struct model *m)
{
    struct run r;
    run_random(&r);
    run_copy(&r);
    run_check_copy(&r, m);
}

void scenario_full(void *turn)
{
    (void)turn;
    static struct model m;
    struct run r;
    struct fs *fs = world_host(HOST_DEST)->fs;
    model_make(&m, &small_tree);
    model_make_old(&m, 20, 10);
    watch_begin(&m);
    fs_limit(fs, fs_used(fs) + rng_below(world_rng(), 8 + model_needed_bytes(&m) / BLOCK_BYTES));
    run_random(&r);
    run_copy(&r);
    check_safe(&m);
    if (r.result.exit_status != 0 && r.result.exit_status != EXIT_STORAGE && r.result.exit_status != 3)
        world_fail("exit %d where there is no space", r.result.exit_status);
    fs_limit(fs, NO_LIMIT);
    finish(&m);
}

void scenario_rivals(void *turn)
{
    (void)turn;
    static struct model m;
    struct run runs[2];
    model_make(&m, &small_tree);
    model_make_old(&m, 20, 10);
    watch_begin(&m);
    for (unsigned i = 0; i < 2; i++) {
        run_random(&runs[i]);
        run_start(&runs[i]);
    }
    unsigned complete = 0;
    for (unsigned i = 0; i < 2; i++) {
        run_wait(&runs[i], i == 1);
        complete += runs[i].result.exit_status == 0;
        if (runs[i].result.exit_status != 0 && runs[i].result.exit_status != EXIT_LOCKED)
            world_fail("exit %d of one of two", runs[i].result.exit_status);
    }
    if (complete == 0)
        world_fail("neither of two jobs is complete");
    finish(&m);
}
