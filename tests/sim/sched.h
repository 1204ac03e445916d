// The scheduler: every thread of the product is a task, one of them runs at a time, and the seed says which
// is next. Time is a number that moves a little with each step and jumps to the next deadline when no task
// can run.
#ifndef PENSTOCK_TESTS_SIM_SCHED_H
#define PENSTOCK_TESTS_SIM_SCHED_H

#include <poll.h>

#include "proto/base.h"
#include "tests/sim/rng.h"

#define NEVER_NS  UINT64_MAX
#define NS_PER_MS UINT64_C(1000000)
#define NS_PER_S  UINT64_C(1000000000)

struct process;
struct task;

void sched_begin(uint64_t seed);
void sched_end(void); // nothing runs any more
// Runs tasks until `first` (which it starts) has returned. A simulation without end and one in which nobody
// can run any more are failures.
void sched_run(void (*first)(void *arg), void *arg);

uint64_t sched_now_ns(void);
uint64_t sched_stamp_ns(void); // the same, but never the same twice
struct rng *sched_rng(void);

// A new task of the process (NULL: of the world outside).
struct task *task_new(struct process *process, const char *name, void *(*run)(void *arg), void *arg);
struct task *task_current(void); // NULL: the scheduler itself, in a timer
struct process *task_process(const struct task *t);
bool task_ended(const struct task *t);
void task_join(struct task *t);

// Lets others run, now and then.
void task_pause(void);
// Waits until somebody wakes the object, or the deadline. False: the deadline.
bool task_wait(const void *object, uint64_t deadline_ns);
// Waits until one of these is ready (as descriptor_poll says), the object is woken, or the deadline (false).
bool task_wait_ready(const void *object, struct pollfd *fds, size_t count, uint64_t deadline_ns);
void task_sleep(uint64_t ns);
void task_wake_all(const void *object);
void task_wake_one(const void *object); // a random one of those that wait
// Something happened to descriptors: who waits for them looks again.
void sched_look_again(void);

// Calls `run` at a time, outside of any task, unless the process (or NULL) has ended by then.
void sched_at(uint64_t due_ns, struct process *process, void (*run)(void *arg), void *arg);

bool sched_is_alone(void); // the running task is the only one of its process
// Ends all tasks of the process where they are. When it is the running one's this does not return.
void sched_kill(struct process *process);
// Where everybody is, on standard error.
void sched_dump(void);

#endif
