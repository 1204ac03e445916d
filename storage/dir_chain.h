// The way down to a directory: the directories from a base to the one that is being read, each in the middle
// of its own reading. However deep it is, a bounded number of descriptors and buffers is held: the deepest
// ones. Those above are closed and opened again on the way back, by path from the base and without following
// links; a directory that is not the same any more (device, inode) is refused.
#ifndef PENSTOCK_STORAGE_DIR_CHAIN_H
#define PENSTOCK_STORAGE_DIR_CHAIN_H

#include "proto/base.h"
#include "storage/dir_reader.h"

enum {
    DIR_CHAIN_HELD_MAX = 64, // directories open at once
    DIR_CHAIN_REFILL = 32,   // opened again at once, so that the way back costs about one open a level
};

struct dir_level {
    struct dir_reader reader;
    uint64_t dev, ino;
    size_t path_len; // of the chain's path down to this level
    bool changed;    // for the user: false when pushed
};

struct dir_chain {
    int base_fd; // borrowed
    char *path;  // from the base down to the last level, not terminated
    size_t path_cap;
    struct dir_level *levels;
    uint32_t count, cap;
    uint32_t held; // levels [held, count) are open
};

void dir_chain_init(struct dir_chain *c, int base_fd);
void dir_chain_fini(struct dir_chain *c);

// Goes down into the directory `fd` (taken over, also on failure) of which *st is the fstat. `name`: its
// component, or for the first level its path beneath the base, maybe "". -ENOMEM, -ENAMETOOLONG.
MUST_CHECK int dir_chain_push(struct dir_chain *c, const char *name, size_t len, int fd,
                              const struct stat *st);
// Goes back up. The chain must not be empty.
void dir_chain_pop(struct dir_chain *c);

// The last level, its directory open. Where it had been closed it is opened again and stands where its
// reading was left; errors of that: -ESTALE when another directory lies there now. The chain must not be
// empty.
MUST_CHECK int dir_chain_last(struct dir_chain *c, struct dir_level **out);

// Whether the directory is one of the chain: then it lies in itself.
bool dir_chain_holds(const struct dir_chain *c, uint64_t dev, uint64_t ino);

// The last component of the path; name holds NAME_BYTES_MAX + 1. (Of the first level the whole path, which
// must fit.)
void dir_chain_name(const struct dir_chain *c, char *name);

#endif
