// Where data lies in a sparse file, as the file system tells it (SEEK_DATA, SEEK_HOLE).
#ifndef PENSTOCK_STORAGE_DATA_MAP_H
#define PENSTOCK_STORAGE_DATA_MAP_H

#include "proto/base.h"
#include "proto/limits.h"

struct data_map {
    struct range *data; // sorted, disjoint, not touching
    uint32_t count, cap;
};

void data_map_fini(struct data_map *m); // a zeroed one is ready for use

// Fills the map of a file of `size` bytes with at most ENTRY_RANGES_MAX ranges, widened to BLOCK_BYTES.
// *sparse is false when it is all data or the file system cannot say; then the map means nothing. Reused from
// call to call. -ENOMEM.
MUST_CHECK int data_map_find(struct data_map *m, int fd, uint64_t size, bool *sparse);

// The parts of it. Adds [start, end) of a file of `size` bytes, widened to blocks; it begins at or behind the
// start of the last one. Beyond twice ENTRY_RANGES_MAX the map is thinned: that loses no hole which thinning
// at the end would keep.
MUST_CHECK int data_map_add(struct data_map *m, uint64_t start, uint64_t end, uint64_t size);
// Merges across the smallest holes until `keep` ranges (at least 1) are left; of equal holes the later ones
// go. -ENOMEM.
MUST_CHECK int data_map_thin(struct data_map *m, uint32_t keep);

#endif
