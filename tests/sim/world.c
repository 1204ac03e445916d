#include "tests/sim/world.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/sim/descriptor.h"
#include "tests/sim/fs.h"
#include "tests/sim/memory.h"
#include "tests/sim/net.h"
#include "tests/sim/sched.h"

struct process {
    struct host *host;
    char name[24];
    pid_t id;
    bool alive;
    int status;
    int (*main)(void *arg);
    void *arg;
    struct process *next;
};

struct world {
    uint64_t seed;
    struct rng rng;
    struct host hosts[HOSTS];
    struct process *processes;
    pid_t last_id;
    bool trace;
    char note[128];
};

static struct world the_world;

void world_begin(uint64_t seed)
{
    static const char *const names[HOSTS] = {"co", "src", "dst"};
    static const char *const addresses[HOSTS] = {"10.0.0.1", "10.0.0.2", "10.0.0.3"};
    bool trace = the_world.trace;
    the_world = (struct world){.seed = seed, .rng = {.state = rng_mix(seed)}, .trace = trace, .last_id = 100};
    sched_begin(seed);
    for (unsigned i = 0; i < HOSTS; i++) {
        struct host *h = &the_world.hosts[i];
        *h = (struct host){.name = names[i], .address = addresses[i]};
        h->fs = fs_new(i + 1, rng_next(&the_world.rng));
        h->root = rng_once_in(&the_world.rng, 3);
        h->knows_openat2 = !rng_once_in(&the_world.rng, 4);
        h->in_memory = rng_once_in(&the_world.rng, 6);
        h->slow_ns = rng_once_in(&the_world.rng, 4) ? rng_below(&the_world.rng, 120 * NS_PER_MS) : 0;
        h->stall_once_in = rng_once_in(&the_world.rng, 4) ? 20 : 0;
        h->direct_align = rng_once_in(&the_world.rng, 3) ? 0 : 4096;
    }
}

void world_end(void)
{
    sched_end();
    descriptor_end();
    net_end();
    for (unsigned i = 0; i < HOSTS; i++)
        fs_free(the_world.hosts[i].fs);
    while (the_world.processes != NULL) {
        struct process *p = the_world.processes;
        the_world.processes = p->next;
        memory_release(p);
        free(p);
    }
}

uint64_t world_seed(void)
{
    return the_world.seed;
}

struct rng *world_rng(void)
{
    return &the_world.rng;
}

struct host *world_host(unsigned which)
{
    assert(which < HOSTS);
    return &the_world.hosts[which];
}

struct host *world_host_named(const char *name)
{
    for (unsigned i = 0; i < HOSTS; i++)
        if (strcmp(the_world.hosts[i].name, name) == 0 || strcmp(the_world.hosts[i].address, name) == 0)
            return &the_world.hosts[i];
    return NULL;
}

void world_fail(const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    fprintf(stderr, "world %llu, after %.6f s%s%s: ", (unsigned long long)the_world.seed,
            (double)sched_now_ns() / 1e9, the_world.note[0] != '\0' ? ", " : "", the_world.note);
    vfprintf(stderr, fmt, args);
    fprintf(stderr, "\n");
    va_end(args);
    sched_dump();
    fflush(stderr);
    _exit(1);
}

void world_note(const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vsnprintf(the_world.note, sizeof the_world.note, fmt, args);
    va_end(args);
}

void world_set_trace(bool on)
{
    the_world.trace = on;
}

void world_trace(const char *fmt, ...)
{
    if (!the_world.trace)
        return;
    const struct process *p = process_current();
    fprintf(stderr, "%12.6f %-10s ", (double)sched_now_ns() / 1e9, p != NULL ? p->name : "");
    va_list args;
    va_start(args, fmt);
    vfprintf(stderr, fmt, args);
    va_end(args);
    fprintf(stderr, "\n");
}

// ---- processes ----

static void thaw(void *arg)
{
    const struct host *h = arg;
    world_trace("%s goes on", h->name);
}

void host_freeze(struct host *h, uint64_t ns)
{
    world_trace("%s stands still", h->name);
    h->frozen_until_ns = sched_now_ns() + ns;
    sched_at(h->frozen_until_ns, NULL, thaw, h);
}

void host_stick(struct host *h, uint64_t ns)
{
    world_trace("the disk of %s %s", h->name, ns > 0 ? "is stuck" : "answers");
    h->stuck_until_ns = sched_now_ns() + ns;
    task_wake_all(&h->stuck_until_ns);
}

bool process_runs(const struct process *p)
{
    return p == NULL || p->host->frozen_until_ns <= sched_now_ns();
}

static void ended(struct process *p, int status)
{
    p->alive = false;
    p->status = status;
    task_wake_all(p);
}

static void *process_main(void *arg)
{
    struct process *p = arg;
    int status = p->main(p->arg);
    world_trace("exits with %d", status);
    if (sched_is_alone()) // a thread that still waits for a lock has its file open
        descriptor_check_closed(p);
    descriptor_close_all(p, false);
    ended(p, status << 8);
    sched_kill(p); // threads that were left behind end with it
    return NULL;
}

struct process *process_new(struct host *host, const char *name, int (*main)(void *arg), void *arg)
{
    struct process *p = calloc(1, sizeof *p);
    assert(p != NULL);
    *p = (struct process){.host = host,
                          .id = ++the_world.last_id,
                          .alive = true,
                          .main = main,
                          .arg = arg,
                          .next = the_world.processes};
    snprintf(p->name, sizeof p->name, "%s/%s", host->name, name);
    the_world.processes = p;
    task_new(p, "main", process_main, p);
    return p;
}

struct process *process_current(void)
{
    const struct task *t = task_current();
    return t != NULL ? task_process(t) : NULL;
}

struct host *process_host(const struct process *p)
{
    return p->host;
}

const char *process_name(const struct process *p)
{
    return p->name;
}

bool process_alive(const struct process *p)
{
    return p->alive;
}

pid_t process_id(const struct process *p)
{
    return p->id;
}

struct process *process_find(pid_t id)
{
    struct process *p = the_world.processes;
    while (p != NULL && p->id != id)
        p = p->next;
    return p;
}

int process_status(const struct process *p)
{
    return p->status;
}

bool process_wait(struct process *p, uint64_t deadline_ns)
{
    while (p->alive)
        if (!task_wait(p, deadline_ns))
            return !p->alive;
    return true;
}

static void end(struct process *p, bool silently)
{
    if (!p->alive)
        return;
    descriptor_close_all(p, silently);
    memory_release(p);
    ended(p, 9);
    sched_kill(p);
}

void process_kill(struct process *p)
{
    world_trace("%s is killed", p->name);
    end(p, false);
}

// The running process last: its end does not return.
static void end_all(struct host *h, bool silently)
{
    struct process *self = process_current();
    for (struct process *p = the_world.processes; p != NULL; p = p->next)
        if (p->host == h && p != self)
            end(p, silently);
    if (self != NULL && self->host == h)
        end(self, silently);
}

void host_crash(struct host *h)
{
    world_trace("%s loses power", h->name);
    h->boots++;
    fs_crash(h->fs);
    end_all(h, true);
}

void host_kill(struct host *h)
{
    world_trace("the processes of %s are killed", h->name);
    end_all(h, false);
}

unsigned host_processes(const struct host *h)
{
    unsigned count = 0;
    for (const struct process *p = the_world.processes; p != NULL; p = p->next)
        count += p->host == h && p->alive;
    return count;
}

void host_strike(struct host *h)
{
    h->trouble.armed = false;
    if (h->trouble.end_is_crash)
        host_crash(h);
    else
        host_kill(h);
}

// A slow walk closes many segments, a slow sync makes large groups.
static void delay(const struct host *h, const char *what)
{
    if (h->stuck_until_ns > sched_now_ns())
        world_trace("%s waits for the disk", what);
    while (h->stuck_until_ns > sched_now_ns())
        (void)task_wait(&h->stuck_until_ns, h->stuck_until_ns);
    bool syncs = strstr(what, "sync") != NULL;
    if (syncs && rng_once_in(&the_world.rng, h->stall_once_in))
        task_sleep(rng_below(&the_world.rng, 6 * NS_PER_S));
    else if (h->slow_ns > 0)
        task_sleep(rng_below(&the_world.rng, h->slow_ns));
    else
        task_pause();
}

int host_call(struct host *h, const char *what)
{
    struct trouble *t = &h->trouble;
    t->calls++;
    if (t->calls == h->stick_at_call)
        host_stick(h, h->stick_ns);
    if (task_current() != NULL)
        delay(h, what);
    if (t->armed && rng_once_in(&the_world.rng, t->end_once_in))
        host_strike(h);
    if (t->calls != t->fail_at)
        return 0;
    t->failed = true;
    world_trace("call %llu, %s, fails with errno %d", (unsigned long long)t->calls, what, t->fail_errno);
    return -t->fail_errno;
}
