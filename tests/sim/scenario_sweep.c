// One system call of a small job fails: each in turn, at each host, with each of some errors. Nothing hangs,
// no wrong bytes get a final name, and the next run completes the copy.
#include <errno.h>

#include "tests/sim/runs.h"
#include "tests/sim/scenario.h"
#include "tests/sim/watch.h"
#include "tests/sim/world.h"

// Each pass is a world of its own for each host, in which calls come in the same order every time.
static const struct pass {
    int errors[2]; // by turns
    bool resumed;  // the run that is struck goes on where another was cut off
} passes[] = {{{EIO, EIO}, false}, {{EIO, EIO}, true}, {{ENOSPC, EACCES}, false}};

// All passes from so many seeds on, else the first ones.
enum { SEEDS_FOR_ALL = 200, FIRST_PASSES = 2, CUT_ONCE_IN = 200 };

struct strike {
    unsigned host, pass;
    uint64_t call;
};

static struct strike strike_now;

// The next one of this seed, which has every so many calls; `fired`: there are more calls than that. False:
// that was all.
static bool strike_next(const struct turn *t, bool fired)
{
    struct strike *s = &strike_now;
    s->call += t->seeds;
    if (fired)
        return true;
    s->call = t->seed;
    if (++s->host < HOSTS)
        return true;
    s->host = 0;
    return ++s->pass < (t->seeds < SEEDS_FOR_ALL ? FIRST_PASSES : ARRAY_LEN(passes));
}

void sweep_prepare(struct turn *t)
{
    if (t->number == 0)
        strike_now = (struct strike){.call = t->seed};
    t->world_seed = 1 + strike_now.pass + ARRAY_LEN(passes) * strike_now.host;
}

static int error_now(void)
{
    return passes[strike_now.pass].errors[strike_now.call % 2];
}

static bool may_end_with(int exit_status)
{
    return exit_status == 1 || exit_status == 3 || exit_status == 4 || exit_status == 6;
}

static void set_run(struct run *r)
{
    run_random(r);
    r->streams = (uint32_t)rng_range(world_rng(), 1, 2);
}

// An earlier run that ends in the middle, where always it does in this world.
static void cut_run(struct model *m)
{
    struct host *dest = world_host(HOST_DEST);
    struct run r;
    set_run(&r);
    dest->trouble = (struct trouble){.armed = true, .end_once_in = CUT_ONCE_IN};
    run_copy(&r);
    dest->trouble.armed = false;
    check_safe(m);
}

static void failing_run(struct model *m, struct host *h)
{
    struct run r;
    set_run(&r);
    for (unsigned i = 0; i < HOSTS; i++)
        world_host(i)->trouble = (struct trouble){0};
    h->trouble.fail_at = strike_now.call;
    h->trouble.fail_errno = error_now();
    run_copy(&r);
    h->trouble.fail_at = 0;
    if (r.result.exit_status == 0) {
        run_check(&r, m, 0);
        check_equal(m);
        check_tidy();
        return;
    }
    check_safe(m);
    if (!h->trouble.failed || !may_end_with(r.result.exit_status))
        world_fail("exit %d", r.result.exit_status);
}

void scenario_sweep(void *turn)
{
    struct turn *t = turn;
    static struct model m;
    const struct shape shape = {.files = 7, .dirs = 2, .links = 2, .bytes = 2 * MIB, .full = true};
    struct host *h = world_host(strike_now.host);
    const struct pass *pass = &passes[strike_now.pass];
    struct run r;
    world_note("errno %d at call %llu of %s%s", error_now(), (unsigned long long)strike_now.call, h->name,
               pass->resumed ? " in a second run" : "");
    model_make(&m, &shape);
    model_make_old(&m, 20, 10);
    watch_begin(&m);
    if (pass->resumed)
        cut_run(&m);
    failing_run(&m, h);
    set_run(&r);
    run_copy(&r);
    run_check_copy(&r, &m);
    t->again = strike_next(t, h->trouble.failed);
}
