// Who waits for storage, and for how long. Threads that touch it mark what they ask of it; the control
// thread, which does not, looks at the oldest mark with each heartbeat.
//
// Slow is not dead (a tape, a failover): after STORAGE_SLOW_NS, or half of the time limit when that is less,
// it is told once, with operation, entry and mount, and once more when it has answered. What has not answered
// within the time limit (--io-timeout) ends the job: the agent says FAIL and hears CLOSE as always. A thread
// that hangs in the kernel cannot be joined, so the agent then leaves its threads where they are (agent_run,
// AGENT_HANGS). The lock on the destination is held until the kernel lets the process go.
//
// A mark belongs to one thread at a time: a stripe's slot has one, the peer thread and the commit thread one
// each. A mark that is made anew begins anew: who does many things in a row marks each and ends once.
#ifndef PENSTOCK_MOVER_STORAGE_WATCH_H
#define PENSTOCK_MOVER_STORAGE_WATCH_H

#include "proto/err.h"
#include "proto/manifest.h"

#define STORAGE_SLOW_NS  UINT64_C(60000000000)
#define STORAGE_QUIET_NS UINT64_C(600000000000) // slow operations are told at most so often

struct storage_watch;

// All zero before its first begin.
struct storage_wait {
    uint64_t since_ns; // 0: not waiting
    const char *op;
    const struct entry *entry;
    bool told;
    struct storage_wait *before, *after; // the older and the younger one
};

struct storage_watch_config {
    uint64_t timeout_ns;
    enum err_class class;                             // of what is over the limit
    void (*notice)(void *arg, const struct err *err); // any thread: what people should know; ERR_NONE
    void *arg;
};

// NULL: out of memory.
MUST_CHECK struct storage_watch *storage_watch_new(const struct storage_watch_config *cfg);
void storage_watch_free(struct storage_watch *w); // NULL is fine
// Says by what mount the entries of this root (entry.root; past the last: the last one) are reached: `fd` is
// open on it. Roots come in order, before the threads start. -ENOMEM.
MUST_CHECK int storage_watch_root(struct storage_watch *w, int fd);

// From now on the thread waits for `op` (a constant) on `entry`, which stays until the end; NULL: on nothing
// in particular. `w` NULL: nobody watches.
void storage_watch_begin(struct storage_watch *w, struct storage_wait *wait, const char *op,
                         const struct entry *entry);
// It has answered; nothing happens when nothing was begun.
void storage_watch_end(struct storage_watch *w, struct storage_wait *wait);

// Control thread, with every heartbeat: tells what is slow. -ETIMEDOUT with *err: over the limit. Time in
// which nobody looked (the process was stopped, the machine suspended) counts against nobody.
MUST_CHECK int storage_watch_look(struct storage_watch *w, uint64_t now_ns, struct err *err);
// Whether something is slow: threads may not end for a long time.
bool storage_watch_is_slow(struct storage_watch *w, uint64_t now_ns);

#endif
