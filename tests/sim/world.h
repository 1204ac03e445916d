// The world of one simulation: three hosts, the processes on them, and what befalls them. One world a program
// run: the functions that stand for the kernel have no other way to find theirs.
#ifndef PENSTOCK_TESTS_SIM_WORLD_H
#define PENSTOCK_TESTS_SIM_WORLD_H

#include <sys/types.h>

#include "proto/base.h"
#include "tests/sim/rng.h"

enum { HOST_COORD, HOST_SOURCE, HOST_DEST, HOSTS };

// What a host does to the system calls of its processes.
struct trouble {
    uint64_t calls;   // counted so far
    uint64_t fail_at; // the call with this number (from 1) fails; 0: none does
    int fail_errno;
    bool failed;            // it has
    unsigned short_once_in; // reads and writes that move less than asked for
    bool armed;             // the host will be struck, once: it crashes, or its processes are killed
    bool end_is_crash;
    unsigned end_once_in; // at a call, once in so many; 0: at another time
};

struct fs;
struct host {
    const char *name, *address;
    unsigned boots;
    struct fs *fs;
    bool root; // processes run as root
    bool knows_openat2;
    bool in_memory;        // the file system says that it is tmpfs
    uint32_t direct_align; // 0: no direct I/O
    bool refuses_dials;    // nobody can connect to it
    uint64_t frozen_until_ns;
    uint64_t stuck_until_ns;          // its disk answers nothing before
    uint64_t stick_at_call, stick_ns; // from that call on it is stuck for so long; 0: it never is
    uint64_t slow_ns;                 // most that a call takes
    unsigned stall_once_in;           // calls that sync, which take seconds
    struct trouble trouble;
};

void world_begin(uint64_t seed);
void world_end(void);
uint64_t world_seed(void);
struct rng *world_rng(void); // for scenarios and faults; tasks have a generator of their own
struct host *world_host(unsigned which);
struct host *world_host_named(const char *name); // or its address; NULL: no such host

// Ends the program: says what is wrong and where everybody is.
void world_fail(const char *fmt, ...) PRINTF_LIKE(1, 2) __attribute__((noreturn));
// What a failure says besides.
void world_note(const char *fmt, ...) PRINTF_LIKE(1, 2);
// A line of the trace, when there is one.
void world_trace(const char *fmt, ...) PRINTF_LIKE(1, 2);
void world_set_trace(bool on);

// ---- processes ----

struct process;
// Starts a process with one task. `main` returns its exit status.
struct process *process_new(struct host *host, const char *name, int (*main)(void *arg), void *arg);
struct process *process_current(void); // NULL: the world outside
struct host *process_host(const struct process *p);
const char *process_name(const struct process *p);
bool process_alive(const struct process *p);
pid_t process_id(const struct process *p);
struct process *process_find(pid_t id);
int process_status(const struct process *p); // of waitpid
// Waits for its end; false: the deadline came first.
bool process_wait(struct process *p, uint64_t deadline_ns);
// Ends it where it is: its descriptors close as the kernel closes them.
void process_kill(struct process *p);

// Stops the processes of the host for so long, as a suspended machine does.
void host_freeze(struct host *h, uint64_t ns);
// The disk of the host answers nothing for so long; 0: it does again.
void host_stick(struct host *h, uint64_t ns);
bool process_runs(const struct process *p); // it is not frozen
// Power fails: its processes are gone, the file system keeps what was durable (and some of the rest), nobody
// tells the peers. The host is up again at once.
void host_crash(struct host *h);
void host_kill(struct host *h);                // all its processes
void host_strike(struct host *h);              // one of the two, as h->trouble says
unsigned host_processes(const struct host *h); // that are alive
// Called where a system call of a process of the host begins: counts, lets others run, makes trouble. 0, or
// the -errno that it is to return.
int host_call(struct host *h, const char *what);

#endif
