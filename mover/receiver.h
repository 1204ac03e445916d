// The receiving end of a data stream: head, body, open, check, write; then the stripe goes to commit.
// Functions stand in the order of a stripe's life.
//   want_head -> on_head -> on_body -> write_stripe -> on_written
// A stream without a free slot posts no receive: TCP closes the window and the sender stops reading. That is
// the whole back-pressure.
#ifndef PENSTOCK_MOVER_RECEIVER_H
#define PENSTOCK_MOVER_RECEIVER_H

#include "mover/plan/dest.h"
#include "mover/slot.h"
#include "mover/stream.h"

// What the destination agent gives to its receivers. The functions may be called from any stream's thread
// (prepare, small: file threads).
struct receiver_dest {
    void *arg;
    // The head of a stripe came. DEST_TAKE: its work is held for the caller, and the stripe is to be handed
    // to `written` or `lost`.
    enum dest_answer (*arrive)(void *arg, uint64_t segment, uint64_t stripe, struct work **work);
    // On a file thread: the open temporary file of a large stripe. 0, or -errno: the entry or the job has
    // failed, and that is told already.
    int (*prepare)(void *arg, struct slot *slot);
    // On a file thread: writes the files of a packed stripe under temporary names. As prepare.
    int (*small)(void *arg, struct slot *slot);
    // Everything is written and checked: leaves, status and extents of the slot are to be taken over now; the
    // slot is used again after it.
    void (*written)(void *arg, struct slot *slot);
    // A write failed with -errno.
    void (*write_failed)(void *arg, struct slot *slot, int error);
    // Did not come whole (the source's pool learns of it by the count of frames), or the entry failed.
    void (*lost)(void *arg, uint64_t stripe);
    // The slot is about to be freed: what `small` kept in slot->file goes too.
    void (*slot_end)(void *arg, struct slot *slot);
    // Came whole but damaged: to be sent again, or after the third time its files fail.
    void (*damaged)(void *arg, struct slot *slot);
    struct worktab *works;
    bool in_memory; // the destination lies on tmpfs
    enum open_memory memory;
};

struct receiver_config {
    const struct receiver_dest *dest;
    struct engine_config engine;
    uint32_t slots, stripe_bytes;
    uint32_t session;
    bool encrypt;
    struct storage_watch *watch;
    uint64_t rate_bytes_s; // cap of this stream, by which a trickle is judged; 0: none
};

struct receiver;
MUST_CHECK int receiver_new(const struct receiver_config *cfg, struct stream *stream, struct receiver **out);
void receiver_free(struct receiver *r);
void receiver_run(struct receiver *r, const struct conn *conn, struct conn_end *end);

#endif
