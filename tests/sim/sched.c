#include "tests/sim/sched.h"

#include <assert.h>
#include <execinfo.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/descriptor.h"
#include "tests/sim/fiber.h"
#include "tests/sim/world.h"

enum { STEPS_MAX = 5000000, BACKTRACE_MAX = 32 };
#define TIME_MAX_NS (UINT64_C(48) * 3600 * NS_PER_S)

enum task_state { TASK_READY, TASK_WAITING, TASK_ENDED };

struct task {
    struct fiber *fiber;
    struct process *process;
    char name[32];
    void *(*run)(void *arg);
    void *arg;
    enum task_state state;
    const void *object; // waited for
    struct pollfd *fds; // waited for
    size_t fd_count;
    uint64_t deadline_ns;
    bool late; // woken by the deadline
    struct task *next;
};

struct timer {
    uint64_t due_ns, number;
    struct process *process;
    void (*run)(void *arg);
    void *arg;
};

struct sched {
    struct rng rng;
    uint64_t now_ns, stamp_ns, steps;
    struct fiber *home;
    struct task *tasks, *current;
    struct task *dead;    // kept for who joins them
    struct timer *timers; // a heap
    size_t timer_count, timer_room;
    uint64_t timer_number;
    bool look_again, dumping;
    unsigned pause_once_in;
};

static struct sched the_sched;

void sched_begin(uint64_t seed)
{
    the_sched = (struct sched){.rng = {.state = rng_mix(seed ^ 1)}, .home = fiber_of_thread()};
    // Some simulations switch at nearly every call, some seldom: both find what the other does not.
    the_sched.pause_once_in = 1u << rng_below(&the_sched.rng, 5);
}

uint64_t sched_now_ns(void)
{
    return the_sched.now_ns;
}

uint64_t sched_stamp_ns(void)
{
    the_sched.stamp_ns = u64_max(the_sched.stamp_ns + 1, the_sched.now_ns);
    return the_sched.stamp_ns;
}

struct rng *sched_rng(void)
{
    return &the_sched.rng;
}

struct task *task_current(void)
{
    return the_sched.current;
}

struct process *task_process(const struct task *t)
{
    return t->process;
}

bool task_ended(const struct task *t)
{
    return t->state == TASK_ENDED;
}

// ---- timers ----

static bool timer_before(const struct timer *a, const struct timer *b)
{
    return a->due_ns != b->due_ns ? a->due_ns < b->due_ns : a->number < b->number;
}

static void timer_swap(size_t a, size_t b)
{
    struct timer t = the_sched.timers[a];
    the_sched.timers[a] = the_sched.timers[b];
    the_sched.timers[b] = t;
}

void sched_at(uint64_t due_ns, struct process *process, void (*run)(void *arg), void *arg)
{
    struct sched *s = &the_sched;
    if (s->timer_count == s->timer_room) {
        s->timer_room = s->timer_room > 0 ? 2 * s->timer_room : 64;
        s->timers = reallocarray(s->timers, s->timer_room, sizeof *s->timers);
        assert(s->timers != NULL);
    }
    size_t at = s->timer_count++;
    s->timers[at] = (struct timer){
        .due_ns = due_ns, .number = s->timer_number++, .process = process, .run = run, .arg = arg};
    for (; at > 0 && timer_before(&s->timers[at], &s->timers[(at - 1) / 2]); at = (at - 1) / 2)
        timer_swap(at, (at - 1) / 2);
}

static struct timer timer_take(void)
{
    struct sched *s = &the_sched;
    struct timer first = s->timers[0];
    s->timers[0] = s->timers[--s->timer_count];
    for (size_t at = 0;;) {
        size_t least = at;
        for (size_t child = 2 * at + 1; child <= 2 * at + 2 && child < s->timer_count; child++)
            if (timer_before(&s->timers[child], &s->timers[least]))
                least = child;
        if (least == at)
            return first;
        timer_swap(at, least);
        at = least;
    }
}

static void timers_run(void)
{
    struct sched *s = &the_sched;
    while (s->timer_count > 0 && s->timers[0].due_ns <= s->now_ns) {
        struct timer t = timer_take();
        if (t.process == NULL || process_alive(t.process))
            t.run(t.arg);
    }
}

// ---- tasks ----

static void task_main(void *arg)
{
    struct task *t = arg;
    t->run(t->arg);
    t->state = TASK_ENDED;
    task_wake_all(t);
}

struct task *task_new(struct process *process, const char *name, void *(*run)(void *arg), void *arg)
{
    struct task *t = calloc(1, sizeof *t);
    assert(t != NULL);
    snprintf(t->name, sizeof t->name, "%s", name);
    t->process = process;
    t->run = run;
    t->arg = arg;
    t->fiber = fiber_new(task_main, t);
    struct task **at = &the_sched.tasks;
    while (*at != NULL)
        at = &(*at)->next;
    *at = t;
    return t;
}

static void ready(struct task *t, bool late)
{
    t->state = TASK_READY;
    t->object = NULL;
    t->fds = NULL;
    t->late = late;
    t->deadline_ns = NEVER_NS;
}

static void go_home(struct task *t)
{
    do {
        fiber_switch(t->fiber, the_sched.home);
        if (the_sched.dumping) {
            void *frames[BACKTRACE_MAX];
            backtrace_symbols_fd(frames, backtrace(frames, BACKTRACE_MAX), 2);
        }
    } while (the_sched.dumping);
}

bool task_wait_ready(const void *object, struct pollfd *fds, size_t count, uint64_t deadline_ns)
{
    struct task *t = the_sched.current;
    assert(t != NULL && t->state == TASK_READY); // a timer must not wait
    if (count > 0 && descriptor_poll(fds, count) > 0)
        return true;
    t->state = TASK_WAITING;
    t->object = object;
    t->fds = fds;
    t->fd_count = count;
    t->deadline_ns = deadline_ns;
    go_home(t);
    return !t->late;
}

bool task_wait(const void *object, uint64_t deadline_ns)
{
    return task_wait_ready(object, NULL, 0, deadline_ns);
}

void task_sleep(uint64_t ns)
{
    (void)task_wait(NULL, the_sched.now_ns + ns);
}

void task_pause(void)
{
    struct task *t = the_sched.current;
    if (t != NULL && rng_once_in(&the_sched.rng, the_sched.pause_once_in))
        go_home(t);
}

void task_join(struct task *t)
{
    while (t->state != TASK_ENDED)
        (void)task_wait(t, NEVER_NS);
}

static bool waits_for(const struct task *t, const void *object)
{
    return t->state == TASK_WAITING && t->object == object && object != NULL;
}

void task_wake_all(const void *object)
{
    for (struct task *t = the_sched.tasks; t != NULL; t = t->next)
        if (waits_for(t, object))
            ready(t, false);
}

void task_wake_one(const void *object)
{
    uint64_t count = 0;
    for (struct task *t = the_sched.tasks; t != NULL; t = t->next)
        count += waits_for(t, object);
    uint64_t which = rng_below(&the_sched.rng, count);
    for (struct task *t = the_sched.tasks; t != NULL; t = t->next) {
        if (waits_for(t, object) && which-- == 0) {
            ready(t, false);
            return;
        }
    }
}

void sched_look_again(void)
{
    the_sched.look_again = true;
}

bool sched_is_alone(void)
{
    unsigned count = 0;
    for (const struct task *t = the_sched.tasks; t != NULL; t = t->next)
        count += t->process == the_sched.current->process && t->state != TASK_ENDED;
    return count == 1;
}

void sched_kill(struct process *process)
{
    struct task *current = the_sched.current;
    for (struct task *t = the_sched.tasks; t != NULL; t = t->next) {
        if (t->process == process && t->state != TASK_ENDED) {
            t->state = TASK_ENDED;
            task_wake_all(t);
        }
    }
    if (current != NULL && current->process == process)
        fiber_switch(current->fiber, the_sched.home);
}

// ---- the loop ----

// Unlinks tasks that have ended.
static void bury(void)
{
    for (struct task **at = &the_sched.tasks; *at != NULL;) {
        struct task *t = *at;
        if (t->state != TASK_ENDED) {
            at = &t->next;
            continue;
        }
        *at = t->next;
        fiber_free(t->fiber);
        t->fiber = NULL;
        t->next = the_sched.dead;
        the_sched.dead = t;
    }
}

static uint64_t next_event_ns(void)
{
    uint64_t next = the_sched.timer_count > 0 ? the_sched.timers[0].due_ns : NEVER_NS;
    for (const struct task *t = the_sched.tasks; t != NULL; t = t->next)
        if (t->state == TASK_WAITING)
            next = u64_min(next, t->deadline_ns);
    return next;
}

// Makes those ready whose time or descriptor has come; returns how many can run.
static uint64_t find_ready(void)
{
    struct sched *s = &the_sched;
    timers_run();
    uint64_t count = 0;
    bool look = s->look_again;
    s->look_again = false;
    for (struct task *t = s->tasks; t != NULL; t = t->next) {
        if (t->state == TASK_WAITING && t->deadline_ns <= s->now_ns)
            ready(t, true);
        else if (t->state == TASK_WAITING && look && t->fds != NULL &&
                 descriptor_poll(t->fds, t->fd_count) > 0)
            ready(t, false);
        count += t->state == TASK_READY && process_runs(t->process);
    }
    return count;
}

static struct task *pick(uint64_t which)
{
    for (struct task *t = the_sched.tasks;; t = t->next)
        if (t->state == TASK_READY && process_runs(t->process) && which-- == 0)
            return t;
}

static void check_limits(void)
{
    if (++the_sched.steps > STEPS_MAX)
        world_fail("no end after %d steps", STEPS_MAX);
    if (the_sched.now_ns > TIME_MAX_NS)
        world_fail("no end after 48 hours");
}

static void step(void)
{
    struct sched *s = &the_sched;
    uint64_t count = find_ready();
    while (count == 0) {
        uint64_t next = next_event_ns();
        if (next == NEVER_NS)
            world_fail("deadlock: nobody can run any more");
        s->now_ns = u64_max(s->now_ns, next);
        count = find_ready();
    }
    check_limits();
    s->current = pick(rng_below(&s->rng, count));
    s->now_ns += rng_range(&s->rng, 100, 20000);
    fiber_switch(s->home, s->current->fiber);
    s->current = NULL;
    bury();
}

struct first_call {
    void (*run)(void *arg);
    void *arg;
};

static void *first_main(void *arg)
{
    const struct first_call *first = arg;
    first->run(first->arg);
    return NULL;
}

void sched_run(void (*first)(void *arg), void *arg)
{
    struct first_call call = {.run = first, .arg = arg};
    struct task *t = task_new(NULL, "world", first_main, &call);
    while (t->state != TASK_ENDED)
        step();
}

void sched_end(void)
{
    for (struct task *t = the_sched.tasks; t != NULL; t = t->next)
        t->state = TASK_ENDED;
    bury();
    while (the_sched.dead != NULL) {
        struct task *t = the_sched.dead;
        the_sched.dead = t->next;
        free(t);
    }
    free(the_sched.timers);
    free(the_sched.home);
}

void sched_dump(void)
{
    struct task *was = the_sched.current;
    for (struct task *t = the_sched.tasks; t != NULL; t = t->next) {
        fprintf(stderr, "  %s %s: %s%s%s\n", t->process != NULL ? process_name(t->process) : "", t->name,
                t->state == TASK_READY ? "ready" : "waits", t->fds != NULL ? " for descriptors" : "",
                t == was ? " (running)" : "");
        if (was != NULL || t->state != TASK_WAITING)
            continue; // stacks can be shown from the scheduler only
        the_sched.dumping = true;
        the_sched.current = t;
        fiber_switch(the_sched.home, t->fiber);
        the_sched.dumping = false;
    }
}
