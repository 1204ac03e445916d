// Dialling a data or peer connection: blocking, by the thread that will use it.
#ifndef PENSTOCK_MOVER_DIAL_H
#define PENSTOCK_MOVER_DIAL_H

#include "mover/launch.h"
#include "mover/net.h"
#include "proto/greet.h"
#include "proto/message.h"

struct dial_target {
    struct blob addresses; // dial_connect: list of blobs "HOST:PORT", tried in order; the one that worked
                           // last first is the caller's business
    enum net_family family;
    const char *bind_to; // or NULL
    struct job_id job;
    struct secret secret;
};

// Connects, gives preamble, ask and proof, checks the answer. On 0: a blocking socket and the keys of the two
// directions. ask->nonce is filled here from sys_random. Errors name the address tried last.
MUST_CHECK int dial_connect(const struct dial_target *t, enum greet_kind kind, struct greet_ask *ask,
                            uint64_t deadline_ns, int cancel_fd, int *fd, struct secret *key_in,
                            struct secret *key_out, struct err *err);

// The same over a program whose standard input and output are the connection: ssh, and at its far end what
// hands the bytes on (mover/inside.h). On 0 *child is the program, and its fd the connection; whoever is done
// with it ends the program (launch_end). On failure it has ended. Errors name the program and, when that is
// why nobody answered, its exit status.
MUST_CHECK int dial_inside(const struct dial_target *t, char *const argv[], enum greet_kind kind,
                           struct greet_ask *ask, uint64_t deadline_ns, int cancel_fd, struct launched *child,
                           struct secret *key_in, struct secret *key_out, struct err *err);

// Dials a control connection: connects to HOST:PORT and gives the preamble.
MUST_CHECK int dial_control(const char *host, uint16_t port, enum net_family family, const char *bind_to,
                            const struct job_id *job, uint64_t deadline_ns, int cancel_fd, int *fd,
                            struct err *err);

#endif
