// Connections inside ssh, for two agents that cannot reach each other by TCP. The end that can start ssh
// starts `ssh HOST penstock serve --stdio` once more for each connection (the peer connection and every
// stream) and speaks over its standard input and output as over a socket (dial_inside, mover/dial.h). At the
// far end that program sees by the first bytes of its input that it is not to be an agent but carries a
// connection: it connects to the agent named in the preamble, which runs on the same host, and hands bytes on
// both ways.
//
// The agent listens for it, beside TCP, on a socket whose abstract name is made of what the agent is called
// in preambles: nothing lies in the file system, and the name goes with the process. Whoever connects there
// must prove the job secret, as over TCP; the name need not be secret.
#ifndef PENSTOCK_MOVER_INSIDE_H
#define PENSTOCK_MOVER_INSIDE_H

#include "proto/greet.h"

// A listening socket (non-blocking, close-on-exec) for the agent of this name on this host. -errno.
MUST_CHECK int inside_listen(const struct job_id *agent);

// How the far end ended: the exit status of its process, which says nothing else.
enum inside_status {
    INSIDE_ENDED = 0,
    INSIDE_BROKE = 1,     // what came was no preamble, or the connection broke, which both agents see
    INSIDE_NO_AGENT = 68, // no such agent runs on this host (EX_NOHOST of sysexits.h)
};

// The far end: of a connection whose first bytes were read from `in`, takes the rest of the preamble,
// connects to its agent and relays until the connection is over. Takes over `in` and `out`, blocks.
MUST_CHECK enum inside_status inside_serve(int in, int out, const uint8_t magic[PREAMBLE_MAGIC_BYTES]);

#endif
