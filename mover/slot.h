// A slot: memory for one frame and what is known of the stripe in it. The slot travels through the life of a
// stripe (DESIGN §4), the bytes are not copied: they are read to where they are sent from, and received to
// where they are written from.
//
// Memory: one block whose end holds the head, so that head and body are contiguous while the body is aligned
// for direct I/O; the body (stripe size, and a block more: a direct read or write of a tail is rounded up);
// after the body's real end the trailer and the tag.
#ifndef PENSTOCK_MOVER_SLOT_H
#define PENSTOCK_MOVER_SLOT_H

#include <sys/stat.h>

#include "mover/engine.h"
#include "mover/storage_watch.h"
#include "mover/work.h"
#include "proto/frame.h"
#include "proto/layout.h"
#include "proto/message.h"

enum { SLOT_IO = 4, SLOT_IO_BYTES = MIB }; // file operations of a slot in flight; bytes of each

struct slot {
    struct op op;      // the one operation on a socket, or the call
    void *owner;       // sender or receiver
    struct slot *next; // in the owner's lists
    uint8_t *memory, *head, *body;
    uint32_t body_bytes; // room of the body
    uint64_t segment, number;
    bool again;        // source: it was sent before
    struct work *work; // held
    struct stripe stripe;
    struct extent *extents;       // STRIPE_EXTENTS_MAX
    struct extent_status *status; // STRIPE_EXTENTS_MAX
    struct digest *leaves;        // STRIPE_LEAVES_MAX
    struct frame_head frame;
    void *file; // of a large stripe: the owner's handle
    int fd;
    bool direct; // fd wants whole blocks
    // pieces of the stripe on their way from or to the file
    struct slot_piece {
        struct op op;
        struct slot *slot;
        size_t want; // bytes of the piece that count; a direct one may ask for more
    } pieces[SLOT_IO];
    uint32_t piece_extent; // where the next piece begins
    uint32_t piece_at;
    uint32_t piece_body;
    uint32_t pieces_out;
    int64_t io_error; // the first
    bool io_short;    // a read ended early
    bool at_once;     // the file is in memory
    enum open_memory
        nowhere;  // not OPEN_STORAGE: there is no file, the bytes are made or looked at and forgotten
    bool noisy;   // the memory holds noise to be stamped
    bool touched; // source: the ctime moved; `seen` is how the file looked then
    struct stat seen;
    struct storage_watch *watch; // who looks how long storage takes, or NULL
    struct storage_wait wait;
    void (*then)(struct op *op, int64_t result); // what follows the call under way
    struct engine *engine;
    void (*io_done)(struct slot *s);
};

// Slots for stripes of up to stripe_bytes. Their memory is one anonymous mapping, not inherited by children.
// -ENOMEM.
MUST_CHECK int slots_new(struct engine *engine, uint32_t count, uint32_t stripe_bytes, void *owner,
                         struct slot **out);
void slots_free(struct slot *slots, uint32_t count, uint32_t stripe_bytes);

// The entry of one of its extents.
const struct entry *slot_entry(const struct slot *s, uint32_t extent);
// Reads or writes all extents of a large stripe from or to s->fd, SLOT_IO pieces at a time, then calls
// s->io_done from engine_step. What a read could not get is zeroed and io_short set; errors in io_error.
void slot_io(struct slot *s, enum op_kind kind);

#endif
