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
    // filled
    struct process *process;
    bool ended; // job_result was taken: it was not killed
    struct job_result result;
    struct job_counters counters;
    char receipt[1024];
    unsigned problems;
    uint64_t acknowledged; // bytes
};

void run_random(struct run *r); // settings by chance
void run_start(struct run *r);
// Waits for the end of the coordinator and then of both agents; too long a time is a failure.
void run_wait(struct run *r);
void run_copy(struct run *r);       // both
void run_sums(const struct run *r); // the counters add up, nothing is pending
// The run has ended with this status, all entries accounted for.
void run_check(const struct run *r, const struct model *m, int exit_status);

#endif
