// Bytes handed on between a pair of descriptors and a socket, both ways, until both ways have ended: the far
// end of a connection inside ssh (mover/inside.h).
#ifndef PENSTOCK_MOVER_RELAY_H
#define PENSTOCK_MOVER_RELAY_H

#include "proto/base.h"
#include "proto/limits.h"

enum { RELAY_BYTES = 256 * KIB }; // the most that waits in one direction

// Relays in the calling thread between `in` and `out` (two pipes, or one socket twice) and `sock`, and closes
// all of them, also on failure. `first`: bytes (at most RELAY_BYTES) that were read from `in` before.
//
// A direction ends when its reader has come to the end: what was read is written first, then the end is
// passed on (a socket is shut down for writing, a pipe closed) and the other direction goes on. It also ends
// when there is nobody any more at the other end of its writer: then that of its reader learns of it, and
// what comes the other way is still passed on.
//
// Returns 0, or the -errno by which the first direction broke: of a read, or of a write of bytes that were
// read (that the other end has gone while nothing was to be written is an end like any other). SIGPIPE must
// be ignored where `out` is a pipe.
MUST_CHECK int relay_run(int in, int out, int sock, const void *first, size_t first_len);

#endif
