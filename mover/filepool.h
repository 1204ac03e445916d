// Threads that do what would block: the calls (OP_CALL) of every engine, the reads and writes of an engine or
// file that has no better way. Operations are begun in the order they came and end in any. For the engine's
// own files.
#ifndef PENSTOCK_MOVER_FILEPOOL_H
#define PENSTOCK_MOVER_FILEPOOL_H

#include "mover/op_queue.h"

struct filepool;

// Starts `threads` (at least 1) threads that take no signals. wake_fd (mover/wake.h; stays the caller's,
// until after filepool_free) is signalled when there is something to take. -errno when a thread could not be
// made.
MUST_CHECK int filepool_new(unsigned threads, int wake_fd, struct filepool **out);
// Ends and joins the threads. What was started must have been taken. NULL is fine.
void filepool_free(struct filepool *pool);

// Does a READ, WRITE or CALL in this thread, from op->moved on, and sets op->result.
void filepool_run(struct op *op);
// Has a thread do it; the operation is the pool's until it is taken.
void filepool_start(struct filepool *pool, struct op *op);
// Moves what has ended to the end of `to`. After wake_drain: what ends later signals again.
void filepool_take(struct filepool *pool, struct op_queue *to);

#endif
