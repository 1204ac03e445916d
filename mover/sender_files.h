// The files of a sender: opened once per stream and file, read in the slot's pieces, checked after each
// stripe (DESIGN §4.3). What may wait runs as a call on a file thread of the engine.
#ifndef PENSTOCK_MOVER_SENDER_FILES_H
#define PENSTOCK_MOVER_SENDER_FILES_H

#include "mover/slot.h"
#include "storage/walk.h"
#include "storage/source.h"

struct sender_file;

struct sender_files {
    struct engine *engine;
    const struct walk_source *roots;
    enum direct_mode direct;
    bool in_memory;
    struct sender_file *open; // those in use, and the last one used
};

void sender_files_init(struct sender_files *f, struct engine *engine, const struct walk_source *roots,
                       enum direct_mode direct, bool in_memory);
void sender_files_fini(struct sender_files *f); // closes; nothing may be in flight

// Opens the file of a large stripe (or finds it open): result 0, slot->fd and direct are set; otherwise
// slot->status says why not, and the body is zeroed.
void sender_files_open(struct sender_files *f, struct slot *slot,
                       void (*done)(struct op *op, int64_t result));

enum { SENDER_READ_AGAIN = 1 };
// After the read: compares the file with the manifest and settles the status; the body of a bad stripe is
// zeroed. Result SENDER_READ_AGAIN: only the ctime moved, read the stripe once more.
void sender_files_check(struct sender_files *f, struct slot *slot,
                        void (*done)(struct op *op, int64_t result));

// Opens, reads, checks and closes every file of a packed stripe.
void sender_files_packed(struct sender_files *f, struct slot *slot,
                         void (*done)(struct op *op, int64_t result));

#endif
