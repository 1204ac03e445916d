// The door: connections that have come in and have not yet shown who they are. Non-blocking, one thread,
// fixed buffers, an absolute deadline for each (GREETING_WAIT_MS from accept), at most GREETING_CONNECTIONS;
// when full the oldest goes.
//
// Every connection gives its preamble (struct preamble) first. Then it depends on whether the door knows the
// secret of a job (door_know):
// - without, it only routes: every connection arrives after its preamble, unproved; one with a wrong wire
//   version too (preamble.version tells), so that the owner can answer it;
// - with, data and peer connections of that job go through ask, answer and proof (proto/greet.h) and arrive
//   proved. Control connections arrive after the preamble. Other jobs and other versions are refused.
// A connection that breaks the rules is closed and counted, with no word back.
#ifndef PENSTOCK_MOVER_DOOR_H
#define PENSTOCK_MOVER_DOOR_H

#include <poll.h>

#include "proto/greet.h"

struct door;

struct arrival {
    int fd; // the receiver's; blocking again
    struct preamble preamble;
    struct greet_ask ask;          // data and peer: after the proof
    struct secret key_in, key_out; // data and peer: of the two directions, as seen from here
    bool proved; // ask and keys are set: the other end has shown that it knows the job secret
    // GREETING_WAIT_MS after it came in (sys_clock_ns), for an owner that has more to ask.
    uint64_t deadline_ns;
};

MUST_CHECK struct door *door_new(void);
MUST_CHECK struct door *door_new_waiting(uint32_t wait_ms); // with another deadline than GREETING_WAIT_MS
void door_free(struct door *d);
void door_know(struct door *d, const struct job_id *job, const struct secret *secret);
// Takes over an accepted socket; with `preamble` (not NULL) it has given that already. What it has sent is
// looked at at once.
void door_add(struct door *d, int fd, const struct preamble *preamble);
// Accepts what waits at a listening socket (some of it, when there is much: poll tells again). -EMFILE and
// the like are told so that the owner can rest the listener until something closes; 0 otherwise.
MUST_CHECK int door_accept(struct door *d, int listen_fd);
// Fills fds with what to poll (at most GREETING_CONNECTIONS) and lowers *timeout_ms to the next deadline (-1
// = none).
size_t door_poll(struct door *d, struct pollfd *fds, size_t max, int *timeout_ms);
// Moves the connections on after poll, and ends those whose time is up. `fds` as door_poll filled them.
void door_step(struct door *d, const struct pollfd *fds, size_t count);
// An arrival, or false.
bool door_next(struct door *d, struct arrival *out);
uint64_t door_refused(const struct door *d); // connections that were closed here

#endif
