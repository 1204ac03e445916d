// The engine: asynchronous operations on files and sockets for one thread. Three implementations behind this
// seam (io_uring, libaio, plain threads), each passing the same tests; the simulator links a fourth in place
// of engine.c.
//
// - An operation (struct op) is embedded in its owner and belongs to the engine from engine_start until its
// `done` is
//   called; it is never copied. `done` may start further operations, also the same one again.
// - Whole or error: partial transfers, EINTR and EAGAIN stay inside. A read gives fewer bytes only at the end
// of the file.
// - On one socket at most one send and one receive are in flight (several would interleave their bytes).
// - Completions are gathered first and `done`s called afterwards, from engine_step only: never from
// engine_start, never
//   recursively.
// - Nothing waits but engine_step. A call (OP_CALL) runs on a file thread of the engine: open, create,
// metadata, rename, sync.
// - Stopping: shut the socket down, let operations drain (engine_in_flight reaches 0), free. Nothing is
// cancelled.
#ifndef PENSTOCK_MOVER_ENGINE_H
#define PENSTOCK_MOVER_ENGINE_H

#include "proto/base.h"

enum op_kind {
    OP_READ,  // result: bytes read, fewer than len only at the end of the file; or -errno
    OP_WRITE, // result: 0 when all of it was written; or -errno
    OP_SEND,  // result: 0 when all of it was taken by the socket; or -errno (-EPIPE, -ECONNRESET ...)
    OP_RECV,  // result: 0 when all of it came; -ENODATA: end of stream before the first byte; -ECONNRESET:
              // later; -errno
    OP_CALL,  // result: what `call` returned
};

struct op {
    // set by the owner before engine_start
    enum op_kind kind;
    int fd;
    void *buf; // READ, WRITE, SEND, RECV (only read from for WRITE and SEND)
    size_t len;
    uint64_t offset; // READ, WRITE
    bool at_once; // READ, WRITE, CALL: the file is in memory (tmpfs): do it in this thread, a handoff costs
                  // more
    int (*call)(void *arg); // CALL; must not touch the engine
    void *arg;              // CALL
    void (*done)(struct op *op, int64_t result);
    // the engine's own
    size_t moved;
    int64_t result;
    struct op *next;
    unsigned tries;
};

enum engine_kind { ENGINE_AUTO, ENGINE_URING, ENGINE_AIO, ENGINE_THREADS, ENGINE_KINDS };

struct engine_config {
    enum engine_kind
        kind; // AUTO: the first of uring, threads that works here (a reason is kept for each that does not)
    unsigned depth;        // READ, WRITE, SEND, RECV in flight at most (asserted)
    unsigned file_threads; // for CALL, and for READ and WRITE of the threads engine; at least 1
};

struct engine;
// Made by the thread that will step it. *why (may be NULL) gets a line: which engine and why, e.g. "threads
// (io_uring: EPERM, kernel.io_uring_disabled)". A kind that was asked for by name and does not work is an
// error: -ENOSYS, -EPERM, -ENOMEM ... with the reason in why.
MUST_CHECK int engine_new(const struct engine_config *cfg, struct engine **out, char why[160]);
void engine_free(struct engine *e);                  // nothing may be in flight; NULL is fine
const char *engine_kind_name(enum engine_kind kind); // "uring", "aio", "threads", "auto"
enum engine_kind engine_kind_of(const struct engine *e);

// Queues the operation. Cannot fail: what fails, fails in `done`.
void engine_start(struct engine *e, struct op *op);
// Submits what was queued, waits until something has completed, engine_wake was called, or timeout_ms has
// passed (-1: no limit; 0: does not wait), then calls the `done`s. Returns how many (0: timeout or wake), or
// -errno when the engine itself broke.
MUST_CHECK int engine_step(struct engine *e, int timeout_ms);
unsigned engine_in_flight(const struct engine *e); // operations started whose done has not been called
// Makes the running or next engine_step return. The only function for other threads; safe until engine_free.
void engine_wake(struct engine *e);

#endif
