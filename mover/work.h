// The segments that an agent has under way, shared by its threads: a table under a lock, each segment
// counted, so that a worker that still holds a stripe of a segment that is done never sees it go.
#ifndef PENSTOCK_MOVER_WORK_H
#define PENSTOCK_MOVER_WORK_H

#include "proto/layout.h"
#include "proto/manifest.h"
#include "proto/need.h"

// One segment. Once it is in the table the source still sets need and layout (its peer thread, before
// SEGMENT_LAID) and both agents the place (their control thread, on SEGMENT_PLACE, which the coordinator says
// after that): before any lease, so before any stream looks. The rest but `next` and the count is constant.
struct work {
    uint64_t number;
    struct segment *segment;
    struct need *need; // the source has none until the answer comes
    struct layout *layout;
    bool placed; // the layout has its first stripe; the control thread's
    void *side;  // what the role keeps of it
    void (*side_free)(void *side);
    unsigned refs; // of the table's lock
    struct work *next;
};

struct worktab;
MUST_CHECK struct worktab *worktab_new(void);
void worktab_free(struct worktab *t); // everything in it, whatever is held
// Takes the work over: the table's own reference. Numbers are unique.
void worktab_add(struct worktab *t, struct work *w);
// Holds it for the caller; NULL: not there.
struct work *worktab_get(struct worktab *t, uint64_t number);
void worktab_put(struct worktab *t, struct work *w); // NULL is fine
// Out of the table; it lives on while somebody holds it.
void worktab_drop(struct worktab *t, uint64_t number);
// The first stripe of its layout is known now. -EPROTO: it was before; -EOVERFLOW.
MUST_CHECK int work_place(struct work *w, uint64_t first);
// Whether all of these stripes are laid out in it.
bool work_has(const struct work *w, uint64_t first, uint64_t count);
// Frees a work that is in no table.
void work_free(struct work *w);

#endif
