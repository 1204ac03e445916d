// Runs that are cut off, again and again: by a power cut of the destination, or by the end of one process, at
// any moment. Each time the same command is run again, with other settings. What was acknowledged is never
// sent again, what has a final name is old or whole, and in the end the copy is complete.
#include "tests/sim/net.h"
#include "tests/sim/runs.h"
#include "tests/sim/scenario.h"
#include "tests/sim/sched.h"
#include "tests/sim/watch.h"
#include "tests/sim/world.h"

enum { RUNS_MAX = 4, EXIT_START = 3, EXIT_LOST = 6 };

static void strike_later(void *arg)
{
    struct host *h = arg;
    if (h->trouble.armed)
        host_strike(h);
}

// Makes the end of the host's processes likely: by the count of their calls, or by the clock.
static void arm(struct host *h, bool crash)
{
    static const unsigned rates[] = {20, 60, 150, 300, 600};
    struct rng *rng = world_rng();
    h->trouble.armed = true;
    h->trouble.end_is_crash = crash;
    if (h != world_host(HOST_COORD) && rng_once_in(rng, 2))
        h->trouble.end_once_in = rates[rng_below(rng, ARRAY_LEN(rates))];
    else
        sched_at(sched_now_ns() + rng_below(rng, NS_PER_MS << rng_below(rng, 14)), NULL, strike_later, h);
}

// One run in which the host (or NULL) may be struck. True: the copy is complete.
static bool one_run(struct model *m, struct host *victim, bool crash)
{
    struct run r;
    uint64_t before = watch_acknowledged(), sent = net_trouble()->body_bytes;
    uint64_t needed = model_needed_bytes(m);
    run_random(&r);
    if (victim != NULL)
        arm(victim, crash);
    run_copy(&r);
    bool struck = victim != NULL && !victim->trouble.armed;
    if (victim != NULL)
        victim->trouble.armed = false;
    sent = net_trouble()->body_bytes - sent;
    if (sent + before > needed)
        world_fail("%llu bytes are sent, %llu were acknowledged before, and only %llu are needed",
                   (unsigned long long)sent, (unsigned long long)before, (unsigned long long)needed);
    if (!struck) {
        run_check(&r, m, 0);
        check_equal(m);
        return true;
    }
    check_safe(m);
    check_journal(m, false, false);
    int status = r.result.exit_status; // an agent that never spoke could not be started
    if (r.ended && status != EXIT_LOST && status != EXIT_START && status != 0)
        world_fail("exit %d after the end of a process of %s", r.result.exit_status, victim->name);
    return false;
}

static void run_again(bool crash)
{
    static struct model m;
    const struct shape shape = {.files = 12, .dirs = 4, .links = 2, .bytes = 4 * MIB, .large = true};
    model_make(&m, &shape);
    model_make_old(&m, 20, 10);
    watch_begin(&m);
    for (unsigned i = 1; i < RUNS_MAX; i++) {
        struct host *victim = world_host(crash ? HOST_DEST : (unsigned)rng_below(world_rng(), HOSTS));
        (void)one_run(&m, victim, crash);
    }
    (void)one_run(&m, NULL, false);
}

void scenario_crash(void *turn)
{
    (void)turn;
    run_again(true);
}

void scenario_kill(void *turn)
{
    (void)turn;
    run_again(false);
}
