// The inside of the coordinator machine, shared by the files coord*.c and nobody else.
#ifndef PENSTOCK_MOVER_PLAN_COORD_STATE_H
#define PENSTOCK_MOVER_PLAN_COORD_STATE_H

#include "mover/plan/coord.h"
#include "proto/greet.h"

// Outstanding work of a session: leases cover two round trips and a commit interval on any path that one
// session can fill.
#define LEASE_BYTES      (UINT64_C(256) << 20)
#define LEASED_BYTES_MAX (UINT64_C(4) << 30)
#define REDIAL_FIRST_NS  UINT64_C(200000000)
#define REDIAL_MAX_NS    UINT64_C(8000000000)
#define LOST_NS          UINT64_C(30000000000)  // without any stream for so long the path is lost
#define LOGIN_NS         UINT64_C(120000000000) // the longest that a dial inside ssh takes
#define CLOSE_NS         UINT64_C(30000000000)  // an agent says CLOSED within this, or is left
// Of whom the other is lost, an agent may tell before its own loss is seen: so long is waited for that.
#define SUSPECT_NS UINT64_C(1000000000)
// Waits (coord_wait.c): for answers that need no storage; for others what storage may take, and this.
#define ANSWER_NS            UINT64_C(60000000000)
#define IO_MARGIN_NS         UINT64_C(60000000000)
#define IO_TIMEOUT_S_DEFAULT 3600

enum coord_phase {
    PHASE_HELLO,
    PHASE_OPEN_SOURCE,
    PHASE_OPEN_DEST,
    PHASE_LINK,
    PHASE_RUN,
    PHASE_RETRY,
    PHASE_FINISH,
    PHASE_CLOSE,
    PHASE_ENDED
};

struct coord_node {
    bool hello, lost, closed;
    bool failed;                     // it said why it ends, and not of the other
    char address[ADDRESS_BYTES_MAX]; // as the other end of the peer connection sees it; "" before
    uint16_t port;
    char boot[64];
    char engine[160];
    uint8_t *addresses; // list of blobs
    size_t addresses_len;
};

// One stream of the session: both ends report, the dialler dials.
struct coord_stream {
    uint32_t attempt; // the newest that was asked for
    uint32_t ended;   // attempts below this are over at the destination, and the source knows
    bool linked[COORD_NODES];
    bool redialling; // waits for redial_ns
    uint64_t redial_ns;
    uint64_t wait_ns; // the next back-off
    uint64_t sent;    // bytes, as the source told last
};

struct coord_session {
    unsigned way;               // of coord_way.c, in which the peer connection was or is tried
    unsigned dialler;           // node, of that way
    bool inside;                // that way is inside ssh
    char tried[TEXT_BYTES_MAX]; // the ways that failed, in words
    bool peer[COORD_NODES];     // the peer connection stands at that end
    uint32_t stream_count;
    struct coord_stream *streams;
    uint64_t alone_ns; // since when no stream stands; 0: one does
    bool stood;        // one has
};

struct coord_run {
    uint64_t first, count;
    struct coord_run *next;
};

struct coord_segment {
    uint64_t number;
    bool closed, compared, laid, placed;
    bool retry;
    uint32_t entries;        // as the source said
    uint32_t recorded, left; // of them: told in records; left to the retry
    uint64_t told_ns;        // when it was first heard of, or laid out
    uint64_t stripes, bytes; // of the layout
    struct digest layout;
    uint64_t first, next;      // stripe numbers: of the segment; of the next lease
    struct coord_run *settled; // runs that were settled before they were leased
    struct coord_segment *after;
};

struct coord_lease {
    uint64_t id, segment, first;
    uint32_t count, left;
    uint64_t given_ns;
    bool with_source; // the destination knows it, so the source was told
    uint8_t done[LEASE_STRIPES_MAX];
    struct coord_lease *after;
};

struct coord {
    struct coord_config cfg;
    struct coord_sink sink;
    enum coord_phase phase;
    struct coord_node nodes[COORD_NODES];
    struct coord_session session;
    uint8_t *owned[12]; // copies of the configuration's blobs and words
    uint32_t owned_count;
    uint8_t *sources; // S's word about its sources
    size_t sources_len;
    uint8_t *dest_names; // D's word: the path of each source beneath its root
    size_t dest_names_len;
    uint64_t avoid_dev, avoid_inode; // the destination root, where the walk could meet it
    struct coord_segment *segments;  // in order
    struct coord_lease *leases;      // in order
    uint64_t next_segment, next_stripe, next_lease, leased_stripes;
    struct coord_counters counters;
    uint64_t retries;     // entries left to the retry, of which nothing was heard since
    bool retry_closed;    // the retry segment, maybe empty, has come
    uint64_t progress_ns; // when an agent last told of something new
    // The end (coord_end.c).
    int exit_status;  // of all that was told but hearsay
    bool stopped;     // by more than hearsay
    bool hearsay;     // an agent told that the other is lost, or broke the rules
    bool finished;    // as CLOSE said
    bool stop_untold; // storage stopped it: `stop` waits for the destination's last word
    struct err stop;
    uint64_t deadline_ns; // of the closing; UINT64_MAX: none
    struct {
        struct err err;
        unsigned node;     // who told; COORD_NODES: seen here
        uint64_t until_ns; // UINT64_MAX: nobody is suspected
    } suspicion;
};

static inline unsigned coord_other(unsigned node)
{
    return node == COORD_SOURCE ? COORD_DEST : COORD_SOURCE;
}

// coord.c
void coord_send(struct coord *c, unsigned node, const struct message *m);
void coord_notice(struct coord *c, const char *fmt, ...) PRINTF_LIKE(2, 3);

// coord_end.c: how a job ends
// The job stops with this error.
void coord_stop(struct coord *c, const struct err *err, uint64_t now_ns);
// And names the node (COORD_NODES: none).
void coord_stop_words(struct coord *c, enum err_class class, unsigned node, uint64_t now_ns, const char *fmt,
                      ...) PRINTF_LIKE(5, 6);
// The two do not reach each other any more, as `node` says (COORD_NODES: as is seen here): the job stops,
// unless one of them turns out to be lost within SUSPECT_NS; then with that.
void end_suspect(struct coord *c, unsigned node, const struct err *err, uint64_t now_ns);
void end_on_fail(struct coord *c, unsigned node, const struct message *message, uint64_t now_ns);
void end_on_finished(struct coord *c, unsigned node, const struct message *message, uint64_t now_ns);
void end_on_closed(struct coord *c, unsigned node, const struct message *message, uint64_t now_ns);
uint64_t end_tick(struct coord *c, uint64_t now_ns); // when it wants to be called again

// coord_wait.c: an agent that is there and does not answer
uint64_t wait_tick(struct coord *c, uint64_t now_ns); // when it wants to be called again

// coord_open.c: versions and roles
void open_on_hello(struct coord *c, unsigned node, const struct message *message, uint64_t now_ns);
void open_on_source_opened(struct coord *c, unsigned node, const struct message *message, uint64_t now_ns);
void open_on_dest_opened(struct coord *c, unsigned node, const struct message *message, uint64_t now_ns);

// coord_count.c: entries and problems
// Adds to the words of an error of the destination's storage what is kept, what the next run needs and what
// is free.
void count_stop_words(const struct coord *c, const struct msg_closed *closed, struct err *err);
uint64_t count_settled(const struct coord_counters *n);
// Entries of segments of which only the destination has spoken so far.
uint64_t count_unclosed(const struct coord *c);
void count_on_entries_done(struct coord *c, unsigned node, const struct message *message, uint64_t now_ns);
void count_on_problem(struct coord *c, unsigned node, const struct message *message, uint64_t now_ns);

// coord_way.c: who dials, and how
bool way_begin(struct coord *c, uint64_t now_ns); // false: nobody may
// The peer connection could not be dialled: tries the next way; after the last one the job stops.
void way_failed(struct coord *c, const char *why, uint64_t now_ns);

// coord_link.c: sessions, streams
void link_begin(struct coord *c, uint64_t now_ns);
void link_linked(struct coord *c, unsigned node, const struct msg_linked *m, uint64_t now_ns);
void link_failed(struct coord *c, unsigned node, const struct msg_link_failed *m, uint64_t now_ns);
void link_stream_ended(struct coord *c, unsigned node, const struct message *m, uint64_t now_ns);
uint64_t link_tick(struct coord *c, uint64_t now_ns); // when it wants to be called again

// coord_pool.c: segments and leases
// The record of a segment, made by whoever speaks of it first: the source's word that it is closed and the
// destination's that it is compared come over different connections. NULL: the number cannot be, or out of
// memory; the job is stopped.
struct coord_segment *pool_segment(struct coord *c, unsigned node, uint64_t number, uint64_t now_ns);
void pool_segment_closed(struct coord *c, const struct msg_segment_closed *m, uint64_t now_ns);
void pool_layout(struct coord *c, bool compared, uint64_t segment, uint64_t stripes, uint64_t bytes,
                 const struct digest *layout, uint64_t now_ns);
// The destination knows the lease: the source may have it.
void pool_leased(struct coord *c, const struct msg_lease *m, uint64_t now_ns);
void pool_stripes_done(struct coord *c, const struct msg_stripes_done *m, uint64_t now_ns);
void pool_segment_done(struct coord *c, uint64_t segment, uint64_t now_ns);
void pool_lease_more(struct coord *c, uint64_t now_ns);
bool pool_empty(const struct coord *c);
bool pool_compared(const struct coord *c); // of every segment that is known it is known what it needs
void pool_free(struct coord *c);

#endif
