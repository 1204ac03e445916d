// A descriptor that becomes readable when another thread says so (an eventfd): what an engine waits on beside
// its disks and sockets. Signals do not add up and are never lost: one that comes before the wait ends the
// wait.
#ifndef PENSTOCK_MOVER_WAKE_H
#define PENSTOCK_MOVER_WAKE_H

#include "proto/base.h"

// Returns the descriptor (non-blocking, close-on-exec) or -errno; the caller closes it.
MUST_CHECK int wake_open(void);
// Makes it readable. For any thread.
void wake_signal(int fd);
// Makes it unreadable until the next signal.
void wake_drain(int fd);

#endif
