// The sending end of a data stream: takes stripes from the agent's cursor, reads, digests, seals and sends
// them; one frame after the other on the socket, several stripes on the way to it. Functions stand in the
// order of a stripe's life.
//   sender_fill -> opened -> read -> checked -> queued -> sent
// All in the stream's thread, in `done`s of its engine; what waits runs as a call on a file thread.
#ifndef PENSTOCK_MOVER_SENDER_H
#define PENSTOCK_MOVER_SENDER_H

#include "mover/slot.h"
#include "mover/stream.h"
#include "storage/walk.h"
#include "storage/source.h"

// What the source agent gives to its senders. The functions may be called from any stream's thread.
struct sender_source {
    void *arg;
    // The next stripe for this stream attempt, its work held for the caller. false: none now; the sender is
    // woken when there may be one.
    bool (*take)(void *arg, uint32_t stream, uint32_t attempt, struct work **work, uint64_t *stripe,
                 bool *again);
    // The stripe will be frame number `frame`. false: it is not wanted any more.
    bool (*sending)(void *arg, uint64_t stripe, uint32_t stream, uint32_t attempt, uint64_t frame);
    struct worktab *works;
    const struct walk_source *roots;
    enum direct_mode direct;
    bool in_memory; // the source lies on tmpfs
    enum open_memory memory;
};

struct sender_config {
    const struct sender_source *source;
    struct engine_config engine;
    uint32_t slots, stripe_bytes;
    uint32_t session;
    bool encrypt;
    uint64_t rate_bytes_s;   // of this stream; 0: no cap
    struct mailbox *mailbox; // gets STREAM_STATS
    struct storage_watch *watch;
};

struct sender;
// In the stream's thread. -errno of the engine or memory.
MUST_CHECK int sender_new(const struct sender_config *cfg, struct stream *stream, struct sender **out);
void sender_free(struct sender *s);
// Runs one connection to its end.
void sender_run(struct sender *s, const struct conn *conn, struct conn_end *end);

#endif
