// Reads what a receipt tells of again and compares: type, size, digest of files and links, mode. Several
// threads read, each a whole file at a time, past the page cache where the file system lets them. Nothing is
// written, and memory does not grow with the number of entries.
#ifndef PENSTOCK_MOVER_CHECKER_H
#define PENSTOCK_MOVER_CHECKER_H

#include "proto/check.h"

// The results for the entries of one batch, in their order, and the bytes of content that were read for it.
struct checked {
    const struct check_result *results;
    uint32_t count;
    uint64_t bytes;
};

struct checker;
// Looks beneath root_fd (borrowed). `done` is told of each batch in the order in which they were added, by
// one thread at a time. threads >= 1. -ENOMEM or the errno of thread creation.
MUST_CHECK int checker_new(int root_fd, unsigned threads,
                           void (*done)(void *arg, const struct checked *checked), void *arg,
                           struct checker **out);
// Hands a batch to the threads, at once: the records of a CHECK (copied). -EPROTO: malformed, empty, or more
// than CHECKS_OPEN_MAX batches are not done yet. -ENOMEM.
MUST_CHECK int checker_add(struct checker *c, const struct blob *records);
// Ends the threads as soon as their reads come back; batches that are not done are dropped. NULL is fine.
void checker_free(struct checker *c);

#endif
