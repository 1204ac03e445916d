// Reads what a receipt tells of again and compares: type, size, digest of files and links. Several threads
// read, each a whole file at a time, past the page cache where the file system lets them; memory does not
// grow with the number of entries.
#ifndef PENSTOCK_TOOLS_CHECKER_H
#define PENSTOCK_TOOLS_CHECKER_H

#include "proto/err.h"
#include "proto/receipt.h"

enum check_verdict {
    CHECK_RIGHT,
    CHECK_UNPROVED, // size and time fit, but the receipt has no digest of it
    CHECK_WRONG,    // another type, size, time (unproved), content
    CHECK_MISSING,
    CHECK_UNREADABLE, // nobody knows
    CHECK_VERDICTS,
};

struct check_tally {
    uint64_t entries[CHECK_VERDICTS];
    uint64_t bytes; // read
};

struct checker;
// Looks beneath root_fd (borrowed). `found` is told of every entry that is wrong, missing or unreadable: by
// one thread at a time, in no order. threads >= 1. -ENOMEM or the errno of thread creation.
MUST_CHECK int checker_new(int root_fd, unsigned threads, void (*found)(void *arg, const struct err *problem),
                           void *arg, struct checker **out);
// Hands an entry to the threads (copied), waiting while they have enough. -ENOMEM.
MUST_CHECK int checker_add(struct checker *c, const struct receipt_entry *e);
// Waits until all of them are compared, and frees the checker.
void checker_end(struct checker *c, struct check_tally *tally);

#endif
