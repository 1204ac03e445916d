// A data set that is nowhere: for measuring what paths and processors can do without disks. Its names lie in
// a folder of its own on tmpfs (a KiB each; a destination has none of files that are packed); its bytes are
// made in the slot that would be read into, and looked at in the slot that would be written from. So a job
// from or to memory is a job like any other but for these two steps.
//
// Every block of BLOCK_BYTES begins with a stamp: its offset in the file and a number of the file. What lies
// between is whatever the buffer held, at first random: no two blocks are alike, and none is made anew.
#ifndef PENSTOCK_STORAGE_MEMORY_H
#define PENSTOCK_STORAGE_MEMORY_H

#include "proto/base.h"

enum { MEMORY_FILES_MAX = 100000, MEMORY_PATH_BYTES = 64 };

struct memory_tree {
    char path[MEMORY_PATH_BYTES]; // "": there is none
    int lock_fd;                  // the folder, locked while its job lives
};

// What is wrong with a data set of so many files of so many bytes, in words that follow its name; NULL:
// nothing. Its files are never packed, and not more than can be listed at once.
const char *memory_wrong(uint32_t files, uint64_t file_bytes);

// Makes the folder (locked with flock; those of this user that nobody holds are removed first) and in it
// `files` hollow files of `file_bytes` each (0 files: an empty folder, for a sink). -ENOTSUP: /dev/shm is no
// tmpfs; else the error of a system call.
MUST_CHECK int memory_tree_make(uint32_t files, uint64_t file_bytes, struct memory_tree *out);
// As far as it goes: what stays goes with the next one.
void memory_tree_remove(struct memory_tree *t);

// Random bytes, from a seed: once for every buffer that memory_fill stamps.
void memory_noise(void *buf, size_t len, uint64_t seed);
// The number of a file, from its path.
uint64_t memory_file(const void *path, size_t len);
// Bytes at `offset` (whole blocks) of the file: stamped, or looked at. -EBADMSG: a stamp is another one.
void memory_fill(void *buf, size_t len, uint64_t file, uint64_t offset);
MUST_CHECK int memory_check(const void *buf, size_t len, uint64_t file, uint64_t offset);

#endif
