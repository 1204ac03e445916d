// Sends and receives in progress on sockets, carried out with poll and calls that do not block, for engines
// that cannot hand them to the kernel whole. Works with blocking and non-blocking sockets. For the engine's
// own files.
#ifndef PENSTOCK_MOVER_SOCKETS_H
#define PENSTOCK_MOVER_SOCKETS_H

#include "mover/op_queue.h"

struct pollfd;
struct sockets {
    struct op **ops;      // [capacity] in progress, in any order
    struct pollfd *polls; // [1 + capacity] the wake descriptor, then that of each of ops
    unsigned capacity;
    unsigned count;
    unsigned tried; // ops beyond were not tried yet
};

// Room for `capacity` operations; wake_fd stays the caller's. -ENOMEM.
MUST_CHECK int sockets_init(struct sockets *s, unsigned capacity, int wake_fd);
void sockets_fini(struct sockets *s); // nothing may be in progress; all zero is fine

// Takes a SEND or RECV; nothing is tried before sockets_wait.
void sockets_start(struct sockets *s, struct op *op);
// Moves what can be moved; waits for timeout_ms (-1: no limit) when nothing has ended and wake_fd is not
// readable. What has ended goes to `ended` with its result. Returns 1 when wake_fd is readable, 0, or -errno
// when it could not wait.
MUST_CHECK int sockets_wait(struct sockets *s, int timeout_ms, struct op_queue *ended);

#endif
