// Reading files of the source: open beneath the root of the entry's SRC, and the check that the file still is
// what the manifest says (DESIGN §4.3).
#ifndef PENSTOCK_STORAGE_SOURCE_H
#define PENSTOCK_STORAGE_SOURCE_H

#include "proto/base.h"
#include "proto/frame.h"
#include "proto/manifest.h"
#include "storage/walk.h"

// How files are opened for data.
enum direct_mode { DIRECT_AUTO, DIRECT_ON, DIRECT_OFF };

// Opens the file for reading (O_NOFOLLOW | O_NONBLOCK, regular files only; O_NOATIME where allowed). With
// DIRECT_ON the descriptor has O_DIRECT when the file system takes it with blocks of BLOCK_BYTES (*is_direct
// tells). With DIRECT_AUTO also only when the file does not lie in the page cache (its first, middle and last
// byte tell) on a file system that knows: there direct reads take a quarter less CPU time and leave the cache
// to others; from the cache they would only be slower. O_NONBLOCK is off again in what is returned. -ENOENT:
// vanished; -ELOOP: it is no regular file any more (changed); -EPROTO: the path is not of that source.
// e->root must be the index of one of `sources`: the caller knows how many there are.
MUST_CHECK int source_open(const struct walk_source *sources, const struct entry *e, enum direct_mode mode,
                           bool *is_direct);

enum source_check {
    SOURCE_SAME,
    SOURCE_TOUCHED, // only ctime or inode differ: read once more
    SOURCE_CHANGED, // size or mtime differ
};
// Compares an fstat of the open file with the manifest. Negative errno from fstat.
MUST_CHECK int source_compare(int fd, const struct entry *e, enum source_check *out);

// What a frame says of an extent whose open or read failed with this errno (of either sign): vanished,
// changed or unreadable.
struct extent_status source_failure(int os);

#endif
