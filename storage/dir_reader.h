// A directory that is read as it comes: memory does not grow with the number of names in it.
#ifndef PENSTOCK_STORAGE_DIR_READER_H
#define PENSTOCK_STORAGE_DIR_READER_H

#include "proto/base.h"
#include "storage/sys.h"

struct dir_reader {
    int fd;       // owned; -1 = closed
    uint8_t *buf; // of getdents64
    uint32_t cap, len, at;
    uint64_t offset; // where the reading goes on after the last name taken: a d_off of the file system
};

// Reads the directory `fd` (taken over, also on failure) from `offset` on: 0 = from its start, else the
// `offset` of an earlier reader of the same directory, which then has come that far. `cap`: bytes of the
// buffer, at least DIR_READER_BYTES_MIN. -ENOMEM, and what lseek says; r->offset is then set all the same.
enum { DIR_READER_BYTES_MIN = 4096 };
MUST_CHECK int dir_reader_init(struct dir_reader *r, int fd, uint32_t cap, uint64_t offset);
// Closes the descriptor and frees the buffer; `offset` stays, for dir_reader_seek of the same directory
// opened again.
void dir_reader_fini(struct dir_reader *r);

// The next name but "." and "..": 1, 0 at the end (also when the directory has been removed meanwhile), a
// negative errno from the kernel, -EIO when what it gives makes no sense. *name is terminated and the
// reader's, valid until its next call.
MUST_CHECK int dir_reader_next(struct dir_reader *r, const char **name, size_t *len);

// Begins again at the start.
MUST_CHECK int dir_reader_rewind(struct dir_reader *r);

#endif
