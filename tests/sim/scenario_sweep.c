// One system call of a small job fails: each in turn, at each host, with each of some errors. Nothing hangs,
// no wrong bytes get a final name, and the next run completes the copy.
#include <errno.h>

#include "tests/sim/runs.h"
#include "tests/sim/scenario.h"
#include "tests/sim/watch.h"
#include "tests/sim/world.h"

// From so many seeds on, each call fails with each error; below, with one of them.
enum { SEEDS_FOR_ALL = 200, CUT_ONCE_IN = 200 };

static const int errors[] = {EIO, ENOSPC, EACCES};

// The world's number says which error strikes which call where: first all calls of a host that are this
// seed's.
struct strike {
    unsigned host, error;
    uint64_t call;
};

static struct strike strike_now;

static void strike_first(struct turn *t)
{
    strike_now = (struct strike){.call = t->seed, .error = (unsigned)(t->seed % ARRAY_LEN(errors))};
}

// The next one of this seed; `fired`: there are more calls than that. False: that was all.
static bool strike_next(const struct turn *t, bool fired)
{
    struct strike *s = &strike_now;
    if (fired) {
        s->call += t->seeds;
        s->error = t->seeds < SEEDS_FOR_ALL ? (s->error + 1) % ARRAY_LEN(errors) : s->error;
        return true;
    }
    s->call = t->seed;
    if (++s->host < HOSTS)
        return true;
    s->host = 0;
    s->error = (s->error + 1) % ARRAY_LEN(errors);
    return t->seeds >= SEEDS_FOR_ALL && s->error != t->seed % ARRAY_LEN(errors);
}

// Calls come in the same order in worlds of the same seed.
void sweep_prepare(struct turn *t)
{
    if (t->number == 0)
        strike_first(t);
    t->world_seed = 1 + strike_now.error + ARRAY_LEN(errors) * strike_now.host;
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
    h->trouble.fail_errno = errors[strike_now.error];
    run_copy(&r);
    h->trouble.fail_at = 0;
    if (r.result.exit_status == 0) {
        run_check(&r, m, 0);
        check_equal(m);
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
    bool resumed = (strike_now.call + strike_now.error) % 2 == 1;
    struct run r;
    world_note("errno %d at call %llu of %s%s", errors[strike_now.error], (unsigned long long)strike_now.call,
               h->name, resumed ? " in a second run" : "");
    model_make(&m, &shape);
    model_make_old(&m, 20, 10);
    watch_begin(&m);
    if (resumed)
        cut_run(&m);
    failing_run(&m, h);
    set_run(&r);
    run_copy(&r);
    run_check_copy(&r, &m);
    t->again = strike_next(t, h->trouble.failed);
}
