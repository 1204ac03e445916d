// Runs that are cut off, again and again, at any moment: by a power cut of the destination, by the end of one
// process, by the user, by a host that stands still, by the loss of the connection between the agents. Each
// time the same command is run again, with other settings. What was acknowledged is never sent again, what
// has a final name is old or whole, and in the end the copy is complete.
#include "tests/sim/net.h"
#include "tests/sim/runs.h"
#include "tests/sim/scenario.h"
#include "tests/sim/sched.h"
#include "tests/sim/watch.h"
#include "tests/sim/world.h"

enum { RUNS_MAX = 4, EXIT_START = 3, EXIT_INTERRUPTED = 5, EXIT_LOST = 6, EXIT_LOCKED = 9 };

enum blow { BLOW_NONE, BLOW_CRASH, BLOW_KILL, BLOW_CANCEL, BLOW_PEER, BLOW_FREEZE };

struct attempt {
    struct run run;
    enum blow blow;
    struct host *victim; // of BLOW_CRASH, BLOW_KILL and BLOW_FREEZE
    bool leftovers;      // agents of an earlier run are still there
    bool hasty;          // what the run leaves behind is not waited for
    bool over;
    uint64_t began_ns;
};

static void strike_later(void *arg)
{
    struct host *h = arg;
    if (h->trouble.armed)
        host_strike(h);
}

static uint64_t sometime(void)
{
    return sched_now_ns() + rng_below(world_rng(), NS_PER_MS << rng_below(world_rng(), 14));
}

// Makes the end of the host's processes likely: by the count of their calls, or by the clock.
static void arm(struct host *h, bool crash)
{
    static const unsigned rates[] = {20, 60, 150, 300, 600};
    struct rng *rng = world_rng();
    h->trouble.armed = true;
    h->trouble.end_is_crash = crash;
    h->trouble.end_once_in = 0;
    if (h != world_host(HOST_COORD) && rng_once_in(rng, 2))
        h->trouble.end_once_in = rates[rng_below(rng, ARRAY_LEN(rates))];
    else
        sched_at(sometime(), NULL, strike_later, h);
}

static void cancel_later(void *arg)
{
    run_cancel(arg);
}

static void freeze_later(void *arg)
{
    const struct attempt *a = arg;
    if (!a->over)
        host_freeze(a->victim, rng_below(world_rng(), 100 * NS_PER_S));
}

static void prepare(struct attempt *a)
{
    net_trouble()->peer_bytes = 0;
    if (a->blow == BLOW_FREEZE)
        sched_at(sometime(), NULL, freeze_later, a);
    else if (a->victim != NULL)
        arm(a->victim, a->blow == BLOW_CRASH);
    if (a->blow == BLOW_CANCEL)
        sched_at(sometime(), NULL, cancel_later, &a->run);
    if (a->blow == BLOW_PEER)
        net_trouble()->peer_bytes = 1 + rng_below(world_rng(), UINT64_C(1) << rng_below(world_rng(), 14));
}

static uint64_t frozen_until(void)
{
    return u64_max(world_host(HOST_SOURCE)->frozen_until_ns, world_host(HOST_DEST)->frozen_until_ns);
}

// How it ended is how it may end: complete, or for the reason that there was.
static void check_end(const struct attempt *a, const struct model *m)
{
    int status = a->run.result.exit_status;
    if (!a->run.ended) // it was the victim
        return;
    if (status == 0) {
        run_check(&a->run, m, 0);
        return;
    }
    bool struck = a->victim != NULL && !a->victim->trouble.armed;
    bool lost =
        struck || frozen_until() > a->began_ns || (a->blow == BLOW_PEER && net_trouble()->peer_bytes == 0);
    if ((lost && (status == EXIT_LOST || status == EXIT_START)) ||
        (a->blow == BLOW_CANCEL && status == EXIT_INTERRUPTED) || (a->leftovers && status == EXIT_LOCKED))
        return;
    world_fail("exit %d after blow %d", status, a->blow);
}

// True: the copy is complete.
static bool attempt_run(struct attempt *a, struct model *m)
{
    uint64_t before = watch_acknowledged(), sent = net_trouble()->body_bytes;
    uint64_t needed = model_needed_bytes(m);
    a->began_ns = sched_now_ns();
    a->leftovers = host_processes(world_host(HOST_DEST)) > 0;
    run_random(&a->run);
    prepare(a);
    run_start(&a->run);
    run_wait(&a->run, !a->hasty);
    a->over = true;
    check_end(a, m);
    if (a->victim != NULL)
        a->victim->trouble.armed = false;
    sent = net_trouble()->body_bytes - sent;
    if (!a->leftovers && !m->temps_lost && !m->temps_spoilt && sent + before > needed)
        world_fail("%llu bytes are sent, %llu were acknowledged before, and only %llu are needed",
                   (unsigned long long)sent, (unsigned long long)before, (unsigned long long)needed);
    if (a->run.ended && a->run.result.exit_status == 0) {
        if (a->blow == BLOW_NONE)
            run_check_copy(&a->run, m);
        else
            check_equal(m);
        if (!a->leftovers) // else the next in line for the lock may have made it again
            check_tidy();
        return true;
    }
    check_safe(m);
    check_journal(m, false, false);
    return false;
}

static void choose_blow(struct attempt *a)
{
    static const enum blow blows[] = {BLOW_KILL, BLOW_KILL, BLOW_KILL, BLOW_CANCEL, BLOW_PEER, BLOW_FREEZE};
    struct rng *rng = world_rng();
    a->blow = blows[rng_below(rng, ARRAY_LEN(blows))];
    if (a->blow == BLOW_KILL)
        a->victim = world_host((unsigned)rng_below(rng, HOSTS));
    if (a->blow == BLOW_FREEZE)
        a->victim = world_host(rng_once_in(rng, 2) ? HOST_SOURCE : HOST_DEST);
    bool leaves = a->blow == BLOW_FREEZE || a->victim == world_host(HOST_COORD);
    a->hasty = leaves && rng_once_in(rng, 2);
}

// Somebody tidies up at the destination: some temporary files are gone.
static void lose_temps(struct model *m)
{
    struct inode *dir = fs_find(fs_root(world_host(HOST_DEST)->fs), "store");
    dir = dir != NULL ? fs_find(dir, ".penstock") : NULL;
    dir = dir != NULL ? fs_find(dir, "temp") : NULL;
    for (size_t i = dir != NULL ? dir->names.count : 0; i > 0; i--)
        if (rng_once_in(world_rng(), 2) && fs_remove(dir, dir->names.list[i - 1].text, false) == 0)
            m->temps_lost = true;
    if (dir != NULL)
        fs_sync(dir);
}

// The power was cut, and the disk has lied: of some temporary files not everything is there that it had
// called synced. A copy that is told to be complete must be right all the same.
static void spoil_temps(struct model *m)
{
    struct inode *dir = fs_find(fs_root(world_host(HOST_DEST)->fs), "store");
    dir = dir != NULL ? fs_find(dir, ".penstock") : NULL;
    dir = dir != NULL ? fs_find(dir, "temp") : NULL;
    for (size_t i = dir != NULL ? dir->names.count : 0; i > 0; i--) {
        struct inode *f = dir->names.list[i - 1].inode;
        for (uint64_t b = 0; b < f->room; b++)
            if (rng_once_in(world_rng(), 10)) {
                fs_spoil(f, b);
                m->temps_spoilt = true;
            }
    }
}

static void run_again(bool crash)
{
    static struct model m;
    static struct attempt attempts[RUNS_MAX]; // timers may still point to an earlier one
    const struct shape shape = {.files = 12, .dirs = 4, .links = 2, .bytes = 4 * MIB, .large = true};
    model_make(&m, &shape);
    model_make_old(&m, 20, 10);
    watch_begin(&m);
    unsigned boots = world_host(HOST_DEST)->boots;
    for (unsigned i = 0; i < RUNS_MAX; i++) {
        struct attempt *a = &attempts[i];
        bool last = i + 1 == RUNS_MAX;
        *a = (struct attempt){.blow = BLOW_NONE};
        if (!last && crash)
            *a = (struct attempt){.blow = BLOW_CRASH, .victim = world_host(HOST_DEST)};
        else if (!last)
            choose_blow(a);
        a->hasty = a->hasty && i + 2 < RUNS_MAX;
        if (i > 0 && rng_once_in(world_rng(), 8) && host_processes(world_host(HOST_DEST)) == 0)
            lose_temps(&m);
        if (i > 0 && crash && world_host(HOST_DEST)->boots != boots && rng_once_in(world_rng(), 2))
            spoil_temps(&m);
        boots = world_host(HOST_DEST)->boots;
        if (last && frozen_until() > sched_now_ns())
            task_sleep(frozen_until() - sched_now_ns());
        if (!attempt_run(a, &m) && last)
            world_fail("the last run is not complete");
    }
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
