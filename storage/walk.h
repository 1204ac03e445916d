// Walks the sources of a job and says entry by entry what lies there, in an order in which a directory comes
// before what it holds. Streaming: memory does not grow with the number of entries; a directory of millions
// is read as it comes. Deep trees: descriptors of the directories on the way are held up to a limit, deeper
// levels are opened again.
//
// A source (one SRC argument) is a directory whose contents, or an entry which by name, becomes part of the
// destination: `from` is the path beneath `fd` of what is taken, `to` is its path beneath the destination
// root. So "dir" is {fd of its parent, "dir", "dir"}, "dir/" is {fd of dir, "", ""}, a file to a new name {fd
// of its parent, "a", "b"}.
//
// What is not a regular file, directory or link (device, fifo, socket) is a problem of class ERR_UNSUPPORTED,
// something that cannot be read one of class ERR_ENTRY; something that vanished between listing and looking
// is no problem and no entry, but what a source names must be there. What became something else meanwhile is
// a problem of class ERR_CHANGED. A directory that cannot be opened is a problem only; one that cannot be
// read to its end was an entry before. A directory named ".penstock" at the top of a destination path is
// passed over, anything else of that name there is a problem. Mount points are crossed. Directories are
// opened without following links, so a directory cannot be seen twice except by bind mounts: a (dev, inode)
// that is among its own ancestors is a problem (loop).
#ifndef PENSTOCK_STORAGE_WALK_H
#define PENSTOCK_STORAGE_WALK_H

#include "proto/base.h"
#include "proto/err.h"
#include "proto/manifest.h"

struct walk_source {
    int fd;          // a directory, borrowed
    char *from, *to; // terminated; "" = the directory itself
};

struct walk;
// Borrows `sources` until walk_free. Nothing is read yet. NULL: out of memory.
MUST_CHECK struct walk *walk_new(const struct walk_source *sources, uint32_t count);
void walk_free(struct walk *w);

enum walk_result { WALK_END, WALK_ENTRY, WALK_PROBLEM };

// The next entry or problem. The entry's bytes and ranges are the walk's and valid until the next call. For a
// file with fewer allocated blocks than its size the data ranges are found by SEEK_DATA/SEEK_HOLE (widened to
// BLOCK_BYTES, merged across the smallest holes beyond ENTRY_RANGES_MAX); where the file system cannot say,
// it is dense. WALK_PROBLEM fills *problem (path = destination path) and the walk goes on with the next call.
enum walk_result walk_next(struct walk *w, struct entry *out, struct err *problem);
// Which of the sources the last entry or problem is of. (entry.root has its low 16 bits.)
uint32_t walk_source_at(const struct walk *w);

// Refuses to descend into the directory {dev, inode} (the destination, when it lies inside the source on the
// same host): it is passed over with a problem of class ERR_ENTRY. At most 8 directories.
void walk_avoid(struct walk *w, uint64_t dev, uint64_t inode);

#endif
