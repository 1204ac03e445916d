// Compares what lies at a place with a receipt: has the agent of that place read every entry again that the
// receipt says lies there (the verify role), here, over ssh or at a running agent alike. Nothing is written
// there.
#ifndef PENSTOCK_MOVER_VERIFY_H
#define PENSTOCK_MOVER_VERIFY_H

#include "mover/reach.h"
#include "mover/receipt_file.h"
#include "proto/check.h"

struct verify_config {
    struct reach_config reach;
    const struct place *place; // the directory that holds the entries
    // Told of every entry that is wrong, missing or unreadable, in the order of the receipt.
    void (*found)(void *arg, const struct err *problem);
    void *arg;
};

struct verify_tally {
    uint64_t entries[CHECK_VERDICTS];
    uint64_t not_copied; // entries that the job did not bring there, by the receipt's own words
    uint64_t bytes;      // of content, read again
};

// Reaches the agent and blocks until everything is compared. `receipt` stands before its first entry. -errno
// with *err: not all entries were compared; *tally says how far it came.
MUST_CHECK int verify_run(const struct verify_config *cfg, struct receipt_reader *receipt,
                          struct verify_tally *tally, struct err *err);

// An agent that was reached, borrowed.
struct verify_end {
    struct job_id id;        // of the job
    struct channel *control; // nothing was said on it yet
    struct launched child;   // pid 0: none
};
// verify_run with that agent.
MUST_CHECK int verify_over(const struct verify_config *cfg, const struct verify_end *end,
                           struct receipt_reader *receipt, struct verify_tally *tally, struct err *err);

#endif
