// A whole job without threads, sockets and files: the coordinator's machine and both agents' machines, wired
// together by queues with random delays. Streams break, frames arrive damaged, files go bad, all from one
// seed. The agents are played after the real ones, as simply as can be.
//
// plan_model.c: time, queues, the coordinator's owner; plan_model_source.c, plan_model_dest.c: the agents;
// plan_model_net.c: streams.
#ifndef PENSTOCK_TESTS_UNIT_PLAN_MODEL_H
#define PENSTOCK_TESTS_UNIT_PLAN_MODEL_H

#include "mover/plan/coord.h"
#include "mover/plan/dest.h"
#include "mover/plan/source.h"
#include "proto/receipt.h"
#include "tests/unit/tree.h"

enum {
    MODEL_STREAMS_MAX = 6,
    MODEL_SEGMENTS_MAX = 64,
    MODEL_SLOTS = 4,        // stripes that a stream has under way at each end
    MODEL_ENTRIES_MAX = 12, // of a segment
};

struct model_setup {
    uint32_t segments;   // at most
    uint32_t stripes;    // of a file, at most
    uint32_t cut;        // of a thousand frames, so many break their stream;
    uint32_t damage;     // so many arrive damaged, none of them for the third time;
    uint32_t spoil;      // so many are of a file that goes bad at the source
    uint32_t dial_fails; // of a hundred
};

struct model_entry {
    uint64_t first, count; // stripes, in the segment
    bool packed;
    bool needed;   // has data that the destination needs
    bool bad;      // at the source
    bool vanishes; // what it comes to then, else it changes
    bool failed;   // at the destination
    bool settled;
};

struct model_stripe {
    struct dest_written written;
    uint32_t entry, entries; // a packed one has several
    uint32_t durable;        // how often
    uint32_t damaged;
};

// Both agents share it: what goes over the peer connection is its number.
struct model_segment {
    uint64_t number, first; // of the job's stripes, when placed
    bool last, retry, placed;
    uint32_t entry_count;
    struct model_entry entries[MODEL_ENTRIES_MAX];
    uint64_t stripe_count;
    struct model_stripe *stripes;
};

struct model_frame {
    struct model_segment *segment;
    uint64_t stripe; // in the job
    bool bad;        // a file of a large stripe went bad
    uint64_t due_ns;
};

// One attempt of a stream that stands at the source and, unless it is half, at the destination.
struct model_conn {
    uint32_t stream, attempt;
    bool half, cut;
    bool source_over, source_told, dest_over, dest_told;
    uint32_t reading;      // stripes that the source has taken and not sent
    uint64_t sent, heads;  // frames
    uint64_t whole;        // frames received
    bool receiving, taken; // a body is on its way, and wanted
    struct model_frame body;
    uint32_t writing; // stripes that the destination writes
    struct model_frame *frames;
    uint64_t frame_room;
    struct model_conn *all;
};

struct model_stream {
    struct model_conn *source, *dest; // what each end runs
    struct model_conn *given;         // waits for the destination's end to be free
    bool dialling, redial;
    uint32_t redial_attempt;
};

enum model_queue {
    QUEUE_TO_SOURCE,
    QUEUE_TO_DEST,
    QUEUE_FROM_SOURCE,
    QUEUE_FROM_DEST,
    QUEUE_PEER,
    QUEUE_NEED,
    QUEUES
};

struct model_mail {
    struct model_mail *next;
    struct message m;
    uint8_t *bytes;
    struct model_segment *segment; // on the peer connection
};

struct model;
struct model_event {
    uint64_t at_ns, order;
    void (*run)(struct model *m, void *what, uint64_t number);
    void *what;
    uint64_t number;
};

struct model {
    struct rnd *r;
    struct model_setup setup;
    uint64_t now_ns, delay_ns;  // messages take up to so long
    struct model_event *events; // a heap
    uint32_t event_count, event_room;
    uint64_t event_order, events_run;
    struct {
        struct model_mail *first, **end;
        uint64_t last_ns;
    } queues[QUEUES];
    struct coord *coord;
    uint64_t tick_ns;
    bool ended;
    int exit_status;
    uint64_t records;
    uint8_t encoded[MESSAGE_HEAD_BYTES + MESSAGE_BYTES_MAX]; // for model_post
    uint32_t stream_count;
    struct model_stream streams[MODEL_STREAMS_MAX];
    struct model_conn *conns;
    // the source agent
    struct source_plan *source;
    uint32_t walk_left, open_segments;
    bool walking, walk_over, retrying, closing, end_alone;
    struct model_segment *segments[MODEL_SEGMENTS_MAX];
    uint32_t segment_count;
    uint32_t retry_left, retry_total;
    uint64_t resent;
    // the destination agent
    struct dest_plan *dest;
    bool committing;
    struct dest_written *group;
    bool *completes; // of each stripe of the group: its file is complete
    uint64_t groups;
};

// Runs a job to its end; the checks are made on the way. Returns its exit status.
int model_run(struct rnd *r, const struct model_setup *setup, struct coord_counters *counters);

// For the parts of the model.
void model_at(struct model *m, uint64_t delay_ns, void (*run)(struct model *, void *, uint64_t), void *what,
              uint64_t number);
uint64_t model_delay(struct model *m); // at random
void model_post(struct model *m, enum model_queue queue, const struct message *message,
                struct model_segment *segment);
bool model_chance(struct model *m, uint32_t of, uint32_t all);
struct model_segment *model_segment_at(struct model *m, uint64_t number);
void model_source_message(struct model *m, const struct message *message);
void model_source_need(struct model *m, struct model_segment *s); // the need answer came
void model_dest_message(struct model *m, const struct message *message);
void model_dest_compare(struct model *m, struct model_segment *s);
void model_dest_group(struct model *m); // a group may be due
// A frame came whole; `conn` may be told to have ended when it is written.
void model_dest_frame(struct model *m, struct model_conn *conn, const struct model_frame *f);
void model_dial_all(struct model *m);
void model_redial(struct model *m, uint32_t stream, uint32_t attempt);
void model_pump_all(struct model *m); // the source may have work
void model_conn_settle(struct model *m, struct model_conn *conn);
void model_net_free(struct model *m);

#endif
