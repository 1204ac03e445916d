// The needed data of one file, piece by piece and in order: the bytes of its data ranges that lie in needed
// leaves and in a window. What the layout is made of; nobody else needs it.
#ifndef PENSTOCK_PROTO_CUT_H
#define PENSTOCK_PROTO_CUT_H

#include "proto/base.h"
#include "proto/manifest.h"
#include "proto/need.h"

// A walk. Points into entry and need, and into itself: it is not to be copied.
struct cut {
    const struct range *leaves, *data;
    uint32_t leaf_at, leaf_count;      // in `leaves`
    uint32_t data_at, data_count;      // in `data`
    uint64_t at, end;                  // what is left of the window
    struct range all_leaves, all_data; // stand in for "every leaf" and "no holes"
};

// Begins a walk over the bytes [start, end) of file `e`, of which `need` is needed. O(log ranges).
void cut_init(struct cut *c, const struct entry *e, const struct entry_need *need, uint64_t start,
              uint64_t end);

// The next piece, never empty, never touching the one before; false when there is none. Pieces that follow
// each other in a data range list cost O(1), each gap between needed leaves O(log data ranges).
bool cut_next(struct cut *c, struct range *out);

#endif
