// The coordinator of a job, as a pure machine: messages of the agents in, messages to them and words to the
// owner out. It knows per segment {first stripe, counts, bytes, digest}, which stripes are leased to which
// session and which are done; it never sees a name but to pass it on, and no data. No socket, clock, thread
// or file inside: times are given, everything out goes through struct coord_sink.
//
// Phases: HELLO with every node -> OPEN_SOURCE -> OPEN_DEST -> LINK (peer connection and streams of each
// session) -> WALK; then segments flow: CLOSED, COMPARED and LAID (their layout digests must be equal) ->
// PLACE -> LEASEs -> STRIPES_DONE -> SEGMENT_DONE; then RETRY once, FINISH, CLOSE. A failure ends the job:
// CLOSE without `finished` to those that are left, what is durable stays. Then the last words of both are
// waited for, and everything that is heard counts: the exit status does not depend on who is heard first
// (coord_end.c). No wait is without an end (coord_wait.c).
//
// Nodes and sessions are lists; one source node, one destination node and one session are made today.
#ifndef PENSTOCK_MOVER_PLAN_COORD_H
#define PENSTOCK_MOVER_PLAN_COORD_H

#include "proto/base.h"
#include "proto/err.h"
#include "proto/message.h"

enum { COORD_SOURCE = 0, COORD_DEST = 1, COORD_NODES = 2 };

struct coord_config {
    struct job_id job;
    struct secret secret;
    uint32_t streams, stripe_bytes;
    uint8_t engine, direct, encrypt; // as enum engine_kind, enum direct_mode; bool
    uint64_t rate_bits;
    uint32_t io_timeout_s;       // how long storage may take for one answer; 0: an hour
    const char *host, *user;     // of the coordinator, for the lock
    const char *software;        // "penstock 0.1.0"
    uint8_t memory[COORD_NODES]; // as enum open_memory
    uint32_t memory_files;       // of a source that is made: so many files of so many bytes
    uint64_t memory_bytes;
    struct blob source_paths; // list of blobs
    struct blob dest_path;
    const char *names[COORD_NODES]; // what each end is called in words to people
    // The host name and port by which the user reaches that end, dialled first: maybe a forwarder. "" = none;
    // port 0: the one that the agent names.
    const char *dial_host[COORD_NODES];
    uint16_t dial_port[COORD_NODES];
    bool may_dial[COORD_NODES];     // --dial: the source dials, the destination dials
    bool dials_inside[COORD_NODES]; // that end can dial inside ssh: tried when nobody can be dialled
};

// Counters of the job so far; entries add up as DESIGN §11 says (pending = total less the rest).
struct coord_counters {
    uint64_t total, moved, skipped, changed, vanished, failed;
    uint64_t files_total, files_moved;
    uint64_t bytes_total, bytes_needed, bytes_moved;
    bool walked;
};

// What comes out. All pointers are valid only during the call.
struct coord_sink {
    void *arg;
    void (*send)(void *arg, unsigned node, const struct message *m);
    // The destination root before anything moves, raw: its path for people, and what OPEN takes for it there
    // ("": unknown).
    void (*resolved)(void *arg, const char *root, const struct blob *place);
    void (*notice)(void *arg, const char *text);
    void (*problem)(void *arg, const struct err *err);
    void (*records)(void *arg, const struct blob *records); // ENTRIES_DONE, for the receipt
    void (*stats)(void *arg, const struct msg_stream_stats *stats);
    void (*closed)(void *arg, unsigned node, const struct msg_closed *closed);
    // Once: nothing follows. finished: every entry was settled, and CLOSE said so.
    void (*ended)(void *arg, int exit_status, bool finished);
};

struct coord;
// Copies what it needs of cfg (names and blobs too). NULL: out of memory.
MUST_CHECK struct coord *coord_new(const struct coord_config *cfg, const struct coord_sink *sink);
void coord_free(struct coord *c);

void coord_start(struct coord *c, uint64_t now_ns);
void coord_message(struct coord *c, unsigned node, const struct message *m, uint64_t now_ns);
// The control connection of a node is gone, or the node broke the rules; err tells, and is given the node.
void coord_lost(struct coord *c, unsigned node, const struct err *err, uint64_t now_ns);
// The user asks to stop.
void coord_cancel(struct coord *c, uint64_t now_ns);
// Something of the owner's failed (the receipt could not be written): stops the job with this error.
void coord_fail(struct coord *c, const struct err *err, uint64_t now_ns);
// Time passes: re-dials, deadlines. What agents have said already is to be handed over first. Returns when it
// wants to be called next (UINT64_MAX: not at all).
uint64_t coord_tick(struct coord *c, uint64_t now_ns);

void coord_counters(const struct coord *c, struct coord_counters *out);
const char *coord_engine(const struct coord *c,
                         unsigned node); // what the agent said of its engine; "" before

#endif
