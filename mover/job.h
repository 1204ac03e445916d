// A job, seen from the tools: start it, take its events, look at its counters, cancel it, free it. The only
// interface to a job: progress, JSON, page and tests are fed from the one stream of events and the one
// snapshot. The job runs in a thread of its own (the coordinator): it starts or dials the agents, runs
// plan/coord.h, writes the receipt. Nothing here prints, exits or handles signals.
#ifndef PENSTOCK_MOVER_JOB_H
#define PENSTOCK_MOVER_JOB_H

#include "mover/engine.h"
#include "mover/key.h"
#include "mover/net.h"
#include "mover/place.h"
#include "proto/err.h"
#include "storage/source.h"

enum job_dial { JOB_DIAL_AUTO, JOB_DIAL_SRC, JOB_DIAL_DST };

struct job_config {
    const struct place *sources;
    uint32_t source_count;
    const struct place *destination;
    const struct key_ring *keys; // for penstock:// ends; may be NULL
    uint32_t streams;            // 0: auto
    uint32_t stripe_bytes;       // 0: default
    uint64_t rate_bits;          // 0: no cap
    enum engine_kind engine;
    enum direct_mode direct;
    bool encrypt;
    enum net_family family;
    const char *bind_to;    // local address of this host's connections, or NULL
    uint16_t port, port_hi; // --ports for agents that this job starts; 0: any
    enum job_dial dial;
    const char *rsh;         // "ssh"; split at spaces
    const char *remote_path; // "penstock"
    const char *state_dir;   // receipts/ lie here; NULL: no receipt
    uint32_t io_timeout_s;
};

enum job_event_kind {
    JOB_RESOLVED, // text: "SRC -> DST", before anything moves
    JOB_NOTICE,   // text: engines, how the streams were dialled, a re-dial, a slow disk
    JOB_PROBLEM,  // err: an entry that is not moved, or why the job ends
    JOB_ENDED,    // the last one; job_result tells the rest
};

struct job_event {
    enum job_event_kind kind;
    char text[1024];
    struct err err;
};

// The counters add up at any moment: moved + skipped + changed + vanished + failed + pending = total.
struct job_counters {
    uint64_t entries_total, entries_moved, entries_skipped, entries_changed, entries_vanished, entries_failed,
        entries_pending;
    uint64_t files_total, files_moved; // regular files among them
    uint64_t bytes_total;  // data bytes of files found so far, also of those that are there already
    uint64_t bytes_needed; // of them to be moved, known so far
    uint64_t bytes_moved;  // durable at the destination
    uint64_t bytes_sent;   // put on streams, without repeats
    uint64_t bytes_resent;
    bool walked; // the totals are final
};

struct job_stream {
    uint32_t session, stream;
    char source[ADDRESS_BYTES_MAX], destination[ADDRESS_BYTES_MAX];
    uint64_t bytes, resent_bytes, retransmits;
    double seconds;
    uint32_t rtt_us;
};

struct job_snapshot {
    struct job_counters counters;
    double seconds; // since the start
    uint32_t stream_count;
    struct job_stream streams[64]; // the first 64
    char engine_source[160], engine_destination[160];
};

struct job_result {
    char job[33];       // hex
    int exit_status;    // DESIGN §11
    bool retryable;     // the same command goes on from here
    char receipt[1024]; // path, "" = none written
    uint64_t source_resident_bytes, destination_resident_bytes;
};

// Whether there can be such a job at all: -EINVAL with *err (ERR_USAGE), which names the limit, when the
// sources are too many or too long together, a path is too long, or --rsh has too many words or none.
MUST_CHECK int job_check(const struct job_config *cfg, struct err *err);

struct job;
// Copies what it needs of cfg. -ENOMEM or the errno of thread creation; everything else comes as events.
MUST_CHECK int job_start(const struct job_config *cfg, struct job **out);
// The next event; waits up to timeout_ms (-1: for ever). false: none in that time, or JOB_ENDED was taken
// before.
bool job_next(struct job *j, int timeout_ms, struct job_event *out);
void job_snapshot(struct job *j, struct job_snapshot *out);
// Asks for an orderly stop: what is durable is kept, the job ends as interrupted. A second call ends it at
// once. Any thread.
void job_cancel(struct job *j);
// After JOB_ENDED was taken.
void job_result(struct job *j, struct job_result *out);
void job_free(struct job *j); // cancels and joins when it still runs; NULL is fine

#endif
