// A thread that owns one connection of a session at a time: a data stream, or the peer connection. It waits
// for an order (dial, or take a socket that came in by the door), runs the role's function on the connection
// until that ends, reports, and waits again. A lost stream is one order more.
#ifndef PENSTOCK_MOVER_STREAM_H
#define PENSTOCK_MOVER_STREAM_H

#include "mover/dial.h"
#include "mover/mailbox.h"

// A connection that stands: its socket is blocking, its directions are keyed.
struct conn {
    int fd;
    pid_t program; // whose standard input and output the connection is (dial_inside), 0: none
    uint32_t attempt;
    struct secret key_in, key_out;
};

// How a run ended.
struct conn_end {
    bool clean;      // both sides said what they had to say
    uint64_t frames; // received whole, or sent
    struct err err;  // not clean: why
};

struct stream;

struct stream_config {
    enum greet_kind kind; // GREET_DATA or GREET_PEER
    uint32_t index;
    struct mailbox *mailbox; // gets LINKED, LINK_FAILED, STREAM_ENDED
    // Runs the connection to its end in the stream's thread; returns only when nothing of it is in flight.
    // The socket stays the stream's (it closes it).
    void (*run)(void *arg, struct stream *s, const struct conn *conn, struct conn_end *end);
    // Called in the stream's thread before its first and after its last run; may be NULL.
    void (*begin)(void *arg, struct stream *s);
    void (*end)(void *arg, struct stream *s);
    void *arg;
    struct dial_target target; // job and addresses are set by stream_dial
    char *const *inside;       // the program of stream_dial_inside, or NULL
};

MUST_CHECK int stream_new(const struct stream_config *cfg, struct stream **out);
// Dial the agent that goes by `acceptor` in preambles, at `addresses` (list of blobs, copied), as this
// attempt; ends a connection of an earlier attempt.
void stream_dial(struct stream *s, uint32_t attempt, const struct job_id *acceptor,
                 const struct blob *addresses);
// The same inside ssh (mover/inside.h).
void stream_dial_inside(struct stream *s, uint32_t attempt, const struct job_id *acceptor);
// A connection that came in and proved itself (taken over); ends a connection of an earlier attempt. One of
// an earlier attempt is closed.
void stream_give(struct stream *s, const struct conn *conn);
// The run in progress is to end in order when its work is done (stream_stopping tells it), then the thread
// ends.
void stream_stop(struct stream *s);
// Shuts the socket down: the run ends at once; then the thread ends.
void stream_kill(struct stream *s);
void stream_join_free(struct stream *s); // after stop or kill; waits for the thread; NULL is fine

// For the run, in its own thread: how others wake it (NULL: nothing to wake). Set in begin, called under a
// lock by stream_wake.
void stream_set_wake(struct stream *s, void (*wake)(void *arg), void *arg);
void stream_wake(struct stream *s);
bool stream_stopping(const struct stream *s);
uint32_t stream_index(const struct stream *s);

#endif
