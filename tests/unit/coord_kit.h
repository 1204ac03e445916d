// What the tests of the coordinator machine share: a sink that records and holds every word against the
// rules, and two agents played by hand. After each event the counters are checked.
#ifndef PENSTOCK_TESTS_UNIT_COORD_KIT_H
#define PENSTOCK_TESTS_UNIT_COORD_KIT_H

#include "mover/plan/coord.h"
#include "proto/receipt.h"

enum { KIT_LEASES_MAX = 4096 };
#define KIT_S UINT64_C(1000000000) // a second

// A message that the machine sent; blobs point into `bytes`.
struct kit_sent {
    struct message m;
    uint8_t *bytes;
    struct kit_sent *next;
};

struct kit_lease {
    struct msg_lease words;
    bool with_source;
    bool done[COORD_NODES]; // LEASE_DONE was said
};

struct coord_kit {
    struct coord *c;
    uint32_t streams;
    uint64_t now_ns;
    uint64_t wake_ns; // what the last tick answered
    struct kit_sent *first[COORD_NODES], **end[COORD_NODES], *unread[COORD_NODES];
    bool gone[COORD_NODES]; // it said CLOSED or was lost: nothing is sent to it any more
    bool closing;           // CLOSE was sent: no work is given any more
    bool finished;          // as CLOSE said
    struct kit_lease leases[KIT_LEASES_MAX];
    uint32_t lease_count;
    uint64_t leased_stripes, leased_most; // not done: now, and at most
    uint64_t stripe_count;                // of all segments that were placed
    uint32_t unsettled[64];               // entries of each segment (modulo 64)
    uint32_t stats, closed[COORD_NODES], records, notices, problems, ends;
    char notice[1024]; // the last
    char root[2 * KIB], place[64];
    struct err problem; // the last
    int exit_status;
    bool refuse_root; // `resolved` fails the job, as a receipt that cannot be written does
};

struct kit_setup {
    uint32_t streams;      // 0: 2
    uint32_t stripe_bytes; // 0: 4 MiB
    uint32_t io_timeout_s;
    uint64_t rate_bits;
    bool no_dial[COORD_NODES];
    const char *dial_host[COORD_NODES];
    uint16_t dial_port[COORD_NODES];
    bool inside[COORD_NODES]; // it can dial inside ssh
};

// The phases of a job, in order.
enum kit_phase {
    KIT_HELLO,
    KIT_OPEN_SOURCE,
    KIT_OPEN_DEST,
    KIT_LINK,
    KIT_RUN,
    KIT_RETRY,
    KIT_FINISH,
    KIT_CLOSE,
    KIT_PHASES
};

void kit_begin(struct coord_kit *k, const struct kit_setup *setup); // NULL: as it comes; starts the job
void kit_end(struct coord_kit *k);
// An empty job goes well up to the phase; what was sent is taken as read.
void kit_to(struct coord_kit *k, enum kit_phase phase);
// A job that begins in the phase.
void kit_begin_in(struct coord_kit *k, enum kit_phase phase);

// Events.
void kit_say(struct coord_kit *k, unsigned node, const struct message *m);
uint64_t kit_tick(struct coord_kit *k, uint64_t pass_ns); // so much time passes first
void kit_lose(struct coord_kit *k, unsigned node);
void kit_cancel(struct coord_kit *k);

// The next unread message to the node; NULL: there is none.
const struct message *kit_take(struct coord_kit *k, unsigned node);
// It has to be this one (fatal).
const struct message *kit_expect(struct coord_kit *k, unsigned node, enum message_type type);
void kit_expect_none(struct coord_kit *k); // to either
void kit_read_all(struct coord_kit *k);
// The job stopped with an error of this class, and both ends (that are there) were told to close, unfinished.
void kit_expect_stopped(struct coord_kit *k, enum err_class class);
// It has not stopped.
void kit_expect_running(struct coord_kit *k);

// What agents say.
void kit_hello(struct coord_kit *k, unsigned node);
void kit_source_opened(struct coord_kit *k);
void kit_dest_opened(struct coord_kit *k);
void kit_peer(struct coord_kit *k, unsigned node); // the peer connection stands
void kit_linked(struct coord_kit *k, unsigned node, uint32_t stream, uint32_t attempt);
void kit_link_failed(struct coord_kit *k, unsigned node, uint8_t kind, uint32_t stream, uint32_t attempt);
void kit_ended(struct coord_kit *k, unsigned node, uint32_t stream, uint32_t attempt, uint64_t frames);
void kit_closed_segment(struct coord_kit *k, uint64_t segment, uint32_t entries, bool last);
void kit_retry_segment(struct coord_kit *k, uint64_t segment, uint32_t entries, bool last);
void kit_compared(struct coord_kit *k, uint64_t segment, uint64_t stripes, uint64_t bytes);
void kit_laid(struct coord_kit *k, uint64_t segment, uint64_t stripes, uint64_t bytes);
// Closed, compared and laid out; both learn its place, which is taken as read.
void kit_segment(struct coord_kit *k, uint64_t segment, uint32_t entries, uint64_t stripes, bool last);
void kit_answer(struct coord_kit *k, const struct msg_lease *lease);
void kit_durable(struct coord_kit *k, uint64_t first, uint64_t count);
void kit_settled(struct coord_kit *k, uint64_t first, uint64_t count);
void kit_runs(struct coord_kit *k, bool settled, const struct range *runs, uint32_t count);
void kit_entries(struct coord_kit *k, uint64_t segment, enum receipt_outcome outcome, uint32_t count);
void kit_records(struct coord_kit *k, unsigned node, uint64_t segment, enum receipt_outcome outcome,
                 uint32_t count); // from either
void kit_problem(struct coord_kit *k, unsigned node, enum problem_count count, enum err_class class);
void kit_fail(struct coord_kit *k, unsigned node, enum err_class class);
void kit_segment_done(struct coord_kit *k, uint64_t segment);
void kit_segment_over(struct coord_kit *k, uint64_t segment); // what is left of it moved; it is done
void kit_finished(struct coord_kit *k);
void kit_closed(struct coord_kit *k, unsigned node);

struct coord_counters kit_counters(const struct coord_kit *k);

#endif
