#include "tests/sim/runs.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "tests/sim/sched.h"
#include "tests/sim/world.h"

// Longer than any of the product's own deadlines together.
#define RUN_NS    (UINT64_C(3600) * NS_PER_S)
#define AGENTS_NS (UINT64_C(120) * NS_PER_S)

void run_random(struct run *r)
{
    struct rng *rng = world_rng();
    *r = (struct run){.streams = (uint32_t)rng_range(rng, 1, 4),
                      .stripe_bytes = (uint32_t)MIB << (rng_once_in(rng, 4) ? rng_below(rng, 3) : 0),
                      .encrypt = rng_once_in(rng, 4),
                      .direct = (enum direct_mode)rng_below(rng, 3),
                      .dial = (enum job_dial)rng_below(rng, 3),
                      .io_timeout_s = 3600};
}

static void take_event(struct run *r, const struct job_event *e)
{
    char line[2048];
    if (e->kind == JOB_PROBLEM) {
        r->problems++;
        world_trace("problem (%s): %s", err_class_name(e->err.class), err_line(&e->err, line, sizeof line));
    } else if (e->kind != JOB_ENDED) {
        world_trace("%s", e->text);
    }
}

static int copy_main(void *arg)
{
    struct run *r = arg;
    char source_path[] = "/data/", dest_path[] = "/store", source[] = "src:/data/", dest[] = "dst:/store";
    char state[] = "/state", rsh[] = "ssh";
    struct place from = {.kind = PLACE_SSH, .host = "src", .path = source_path, .text = source};
    struct place to = {.kind = PLACE_SSH, .host = "dst", .path = dest_path, .text = dest};
    struct job_config cfg = {.sources = &from,
                             .source_count = 1,
                             .destination = &to,
                             .streams = r->streams,
                             .stripe_bytes = r->stripe_bytes,
                             .direct = r->direct,
                             .encrypt = r->encrypt,
                             .dial = r->dial,
                             .rsh = rsh,
                             .state_dir = state,
                             .io_timeout_s = r->io_timeout_s};
    struct job *job;
    int rc = job_start(&cfg, &job);
    assert(rc == 0);
    r->job = job;
    struct job_event e;
    do {
        bool got = job_next(job, -1, &e);
        assert(got);
        take_event(r, &e);
    } while (e.kind != JOB_ENDED);
    struct job_snapshot snapshot;
    job_snapshot(job, &snapshot);
    job_result(job, &r->result);
    r->counters = snapshot.counters;
    r->job = NULL;
    job_free(job);
    r->ended = true;
    return r->result.exit_status;
}

void run_start(struct run *r)
{
    r->ended = false;
    r->job = NULL;
    r->problems = 0;
    r->process = process_new(world_host(HOST_COORD), "copy", copy_main, r);
}

static void wait_agents(unsigned host)
{
    uint64_t deadline_ns = sched_now_ns() + AGENTS_NS;
    while (host_processes(world_host(host)) > 0) {
        if (sched_now_ns() > deadline_ns)
            world_fail("an agent of %s outlives its job", world_host(host)->name);
        task_sleep(NS_PER_S);
    }
}

void run_cancel(struct run *r)
{
    if (r->job != NULL && process_alive(r->process))
        job_cancel(r->job);
}

void run_wait(struct run *r, bool agents)
{
    if (!process_wait(r->process, sched_now_ns() + RUN_NS))
        world_fail("the job does not end");
    if (agents) {
        wait_agents(HOST_SOURCE);
        wait_agents(HOST_DEST);
    }
    world_trace("exit %d: %llu entries, %llu moved, %llu skipped, %llu failed, %llu bytes moved",
                r->result.exit_status, (unsigned long long)r->counters.entries_total,
                (unsigned long long)r->counters.entries_moved,
                (unsigned long long)r->counters.entries_skipped,
                (unsigned long long)r->counters.entries_failed, (unsigned long long)r->counters.bytes_moved);
}

void run_copy(struct run *r)
{
    run_start(r);
    run_wait(r, true);
}

void run_sums(const struct run *r)
{
    const struct job_counters *c = &r->counters;
    uint64_t sum =
        c->entries_moved + c->entries_skipped + c->entries_changed + c->entries_vanished + c->entries_failed;
    if (sum + c->entries_pending != c->entries_total || c->entries_pending != 0)
        world_fail("the counters do not add up: %llu entries, %llu settled, %llu pending",
                   (unsigned long long)c->entries_total, (unsigned long long)sum,
                   (unsigned long long)c->entries_pending);
}

// Entries of the source, its root among them.
static uint64_t entries_of(const struct model *m)
{
    uint64_t count = 1;
    for (unsigned i = 0; i < m->count; i++)
        count += !m->items[i].gone;
    return count;
}

void run_check(const struct run *r, const struct model *m, int exit_status)
{
    if (!r->ended || r->result.exit_status != exit_status)
        world_fail("exit %d where %d was due", r->result.exit_status, exit_status);
    if (exit_status != 0)
        return;
    run_sums(r);
    if (r->counters.entries_moved + r->counters.entries_skipped != r->counters.entries_total ||
        r->problems != 0)
        world_fail("a complete job with entries not moved, or problems");
    if (r->counters.entries_total != entries_of(m))
        world_fail("%llu entries where there are %llu", (unsigned long long)r->counters.entries_total,
                   (unsigned long long)entries_of(m));
}

void run_check_copy(const struct run *r, struct model *m)
{
    run_check(r, m, 0);
    check_receipt(m, r->result.receipt);
    host_crash(world_host(HOST_DEST));
    check_equal(m);
    check_tidy();
}
