// The paths of one segment while it is built: a directory that changes while it is listed may name an entry
// twice, and a segment must not. Fixed memory: room for a full segment.
#ifndef PENSTOCK_MOVER_PATH_SET_H
#define PENSTOCK_MOVER_PATH_SET_H

#include "proto/base.h"
#include "proto/limits.h"

struct path_set;
MUST_CHECK struct path_set *path_set_new(void); // NULL: out of memory
void path_set_free(struct path_set *s);         // NULL is fine
void path_set_clear(struct path_set *s);
bool path_set_has(const struct path_set *s, const void *path, size_t len);
// Adds a path that it has not (copied); at most SEGMENT_ENTRIES_MAX of together SEGMENT_BYTES_MAX bytes.
void path_set_add(struct path_set *s, const void *path, size_t len);

#endif
