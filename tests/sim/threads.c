// Threads, locks and the clock. A lock keeps its state in the mutex itself, where nobody else looks.
#include <assert.h>
#include <errno.h>
#include <string.h>

#include "tests/sim/sched.h"
#include "tests/sim/world.h"
#include "tests/sim/wraps.h"

enum { WALL_S = 1700000000, SPURIOUS_ONCE_IN = 50 };

int __wrap_pthread_create(pthread_t *out, const pthread_attr_t *attr, void *(*run)(void *), void *arg)
{
    assert(attr == NULL);
    struct task *t = task_new(process_current(), "thread", run, arg);
    *out = (pthread_t)(uintptr_t)t;
    task_pause();
    return 0;
}

static struct task *task_of(pthread_t thread)
{
    return (struct task *)(uintptr_t)thread;
}

int __wrap_pthread_join(pthread_t thread, void **result)
{
    assert(result == NULL);
    task_join(task_of(thread));
    return 0;
}

int __wrap_pthread_detach(pthread_t thread)
{
    (void)thread;
    return 0;
}

static int *locked(pthread_mutex_t *m)
{
    return &m->__data.__lock;
}

int __wrap_pthread_mutex_lock(pthread_mutex_t *m)
{
    task_pause();
    while (*locked(m) != 0)
        (void)task_wait(m, NEVER_NS);
    *locked(m) = 1;
    return 0;
}

int __wrap_pthread_mutex_unlock(pthread_mutex_t *m)
{
    if (*locked(m) == 0)
        world_fail("a mutex is unlocked that is not locked");
    *locked(m) = 0;
    task_wake_all(m);
    return 0;
}

static bool wait_on(pthread_cond_t *c, pthread_mutex_t *m, uint64_t deadline_ns)
{
    // A wait may end for no reason.
    uint64_t until_ns = deadline_ns;
    if (rng_once_in(sched_rng(), SPURIOUS_ONCE_IN))
        until_ns = u64_min(until_ns, sched_now_ns() + rng_below(sched_rng(), 100 * NS_PER_MS));
    __wrap_pthread_mutex_unlock(m);
    bool woken = task_wait(c, until_ns);
    __wrap_pthread_mutex_lock(m);
    return woken || sched_now_ns() < deadline_ns;
}

int __wrap_pthread_cond_wait(pthread_cond_t *c, pthread_mutex_t *m)
{
    (void)wait_on(c, m, NEVER_NS);
    return 0;
}

int __wrap_pthread_cond_timedwait(pthread_cond_t *c, pthread_mutex_t *m, const struct timespec *until)
{
    uint64_t deadline_ns = (uint64_t)until->tv_sec * NS_PER_S + (uint64_t)until->tv_nsec;
    return wait_on(c, m, deadline_ns) ? 0 : ETIMEDOUT;
}

int __wrap_pthread_cond_signal(pthread_cond_t *c)
{
    task_wake_one(c);
    return 0;
}

int __wrap_pthread_cond_broadcast(pthread_cond_t *c)
{
    task_wake_all(c);
    return 0;
}

int __wrap_clock_gettime(clockid_t clock, struct timespec *out)
{
    uint64_t now_ns = sched_now_ns();
    *out = (struct timespec){.tv_sec = (time_t)(now_ns / NS_PER_S), .tv_nsec = (long)(now_ns % NS_PER_S)};
    if (clock == CLOCK_REALTIME)
        out->tv_sec += WALL_S;
    return 0;
}
