// Lists of ranges as they come from a peer: checked once, then searched. Units are the caller's (bytes or
// leaves).
#ifndef PENSTOCK_PROTO_RANGE_H
#define PENSTOCK_PROTO_RANGE_H

#include "proto/base.h"

// Whether `ranges` are sorted, disjoint, not touching, none of them empty, and all inside [0, end). An empty
// list is valid.
bool ranges_valid(const struct range *ranges, uint32_t count, uint64_t end);

// Index of the first range, not before index `from`, that ends behind `offset`: the one that holds `offset`
// or else the next one; `count` when there is none. `ranges` are valid. Looks at `from` and binary-searches
// the rest only if that is not it, so that a walk in order costs O(1) a step and a jump O(log count).
uint32_t ranges_find(const struct range *ranges, uint32_t count, uint32_t from, uint64_t offset);

// [0, end) less `ranges` (valid), in order, into out[count + 1]. Returns how many.
uint32_t ranges_complement(const struct range *ranges, uint32_t count, uint64_t end, struct range *out);

#endif
