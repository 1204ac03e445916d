// Between mover/engine.c, which has what all engines do alike, and the implementations mover/engine_*.c: how
// READ, WRITE, SEND and RECV are carried out and what is waited on. For those files only.
#ifndef PENSTOCK_MOVER_ENGINE_OPS_H
#define PENSTOCK_MOVER_ENGINE_OPS_H

#include <stdatomic.h>

#include "mover/engine.h"
#include "mover/filepool.h"
#include "mover/op_queue.h"

enum { ENGINE_DETAIL_BYTES = 128 };

struct engine_ops {
    enum engine_kind kind;
    // Sets e->state up. `detail` gets words: about the engine, or on failure what is missing. -errno.
    int (*open)(struct engine *e, char detail[ENGINE_DETAIL_BYTES]);
    // Undoes open; nothing is in flight.
    void (*close)(struct engine *e);
    // Takes a READ, WRITE, SEND or RECV of at least one byte that is not to be done at once.
    void (*start)(struct engine *e, struct op *op);
    // Submits what was taken and waits, at most timeout_ms (-1: no limit, 0: does not wait), until the kernel
    // has an answer or e->wake_fd is readable, which it tells by engine_woken. May return early for any
    // reason. What is over goes to engine_finish. -errno when the engine itself broke.
    int (*wait)(struct engine *e, int timeout_ms);
};

extern const struct engine_ops engine_uring_ops;
extern const struct engine_ops engine_aio_ops;
extern const struct engine_ops engine_threads_ops;

struct engine {
    const struct engine_ops *ops;
    void *state;           // of the implementation
    unsigned depth;        // as configured
    int wake_fd;           // of engine_wake and of the file pool
    struct filepool *pool; // its operations are taken by engine_woken
    struct op_queue ended; // their `done` is to be called by engine_step
    unsigned in_flight;    // started, `done` not called yet
    unsigned transfers;    // of these, all but the calls
    int failure;           // -errno of a wait, to be returned by the next engine_step that has no completions
    bool stepping;         // in engine_step
    atomic_bool woken;     // by engine_wake, not told to the stepping thread yet
};

// The operation is over with this result.
void engine_finish(struct engine *e, struct op *op, int64_t result);
// e->wake_fd is readable.
void engine_woken(struct engine *e);

#endif
