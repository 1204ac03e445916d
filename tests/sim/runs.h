// Runs of the program under test: a coordinator process on its host, as `penstock copy` would be one.
#ifndef PENSTOCK_TESTS_SIM_RUNS_H
#define PENSTOCK_TESTS_SIM_RUNS_H

#include "mover/job.h"
#include "tests/sim/model.h"

struct run {
    // set by the caller
    uint32_t streams, stripe_bytes;
    bool encrypt;
    enum direct_mode direct;
    enum job_dial dial;
    uint32_t io_timeout_s;
    // filled
    struct process *process;
    struct job *job; // while there is one
    bool ended;      // job_result was taken: it was not killed
    struct job_result result;
    struct job_counters counters;
    unsigned problems;
};

void run_random(struct run *r); // settings by chance
void run_start(struct run *r);
// Waits for the end of the coordinator, and then of all agents; too long a time is a failure.
void run_wait(struct run *r, bool agents);
void run_copy(struct run *r);       // both
void run_cancel(struct run *r);     // as a user does
void run_sums(const struct run *r); // the counters add up, nothing is pending
// The run has ended with this status, all entries accounted for.
void run_check(const struct run *r, const struct model *m, int exit_status);

// The copy is complete, its receipt true, and all of that outlives a power cut, which it gets here.
void run_check_copy(const struct run *r, struct model *m);

#endif
