// What one answer of the kernel means for an operation that moves bytes: the rules by which partial transfers
// become "whole or error" (mover/engine.h), the same for each engine. For the engine's own files.
#ifndef PENSTOCK_MOVER_TRANSFER_H
#define PENSTOCK_MOVER_TRANSFER_H

#include "mover/engine.h"

// Calls in a row that move nothing before a transfer is given up with -EIO.
enum { TRANSFER_TRIES = 3 };

// What is left of the operation.
static inline void *transfer_at(const struct op *op)
{
    return (char *)op->buf + op->moved;
}
static inline size_t transfer_left(const struct op *op)
{
    return op->len - op->moved;
}
static inline bool transfer_is_file(const struct op *op)
{
    return op->kind == OP_READ || op->kind == OP_WRITE;
}

// Notes that a call for the rest of `op` (not OP_CALL) answered n: a count or -errno. True: the operation is
// over and op->result is set. False: what is left has to be asked for again (after -EINTR, a partial
// transfer, or nothing moved). On a descriptor with O_DIRECT a partial transfer that ends off a block border
// is the end of the file for a read that reached it; otherwise op->moved is put back to the border, since the
// kernel refuses to go on from where it stopped. -EAGAIN and -ENOMEM, where they are no result, are for the
// caller to handle first.
MUST_CHECK bool transfer_advance(struct op *op, int64_t n);

#endif
