// The journal in memory, shared by its writer (journal.c) and its reader (journal_replay.c); nobody else but
// their tests includes it.
#ifndef PENSTOCK_STORAGE_JOURNAL_INNER_H
#define PENSTOCK_STORAGE_JOURNAL_INNER_H

#include "proto/record.h"
#include "storage/journal.h"

enum journal_record { JOURNAL_FILE = 1, JOURNAL_LEAVES = 2, JOURNAL_GONE = 3 };

enum {
    JOURNAL_VERSION = 1,
    JOURNAL_LEAVES_MAX = 4096,                         // of one record
    JOURNAL_FILE_BYTES = 8 + 8 + 12 + 12 + 8 + 16 + 4, // a FILE payload up to the path
    JOURNAL_LEAVES_BYTES = 8 + 8,                      // a LEAVES payload up to the digests
};

struct journal_file {
    struct journal_file *next; // in its bucket, or among the forgotten
    uint64_t hash;             // of the path
    uint64_t number;           // in the journal being written, once named
    bool named;                // its FILE record is in it
    bool asked;                // found or made since open
    struct digest boot;        // under which its ranges were journalled; zero: unknown
    struct entry entry;        // type, path, size, times and inode; nothing else is known
    struct range *held;        // in leaves: sorted, disjoint, not touching
    uint32_t count, capacity;
    struct digest *leaves; // NULL until one is held or set
    uint8_t path[];
};

// The files by path: chained, at most one version of a path.
struct journal_table {
    struct journal_file **buckets;
    size_t bucket_count; // a power of two
    size_t files;
};

MUST_CHECK int journal_table_init(struct journal_table *t); // -ENOMEM
void journal_table_fini(struct journal_table *t);           // frees the files too
// The file of that path in whatever version, or NULL.
struct journal_file *journal_table_find(const struct journal_table *t, const void *path, size_t len);
// A file of that version with nothing held, in the table; the path must not be in it. -ENOMEM.
MUST_CHECK int journal_table_add(struct journal_table *t, const struct entry *e, struct journal_file **out);
// Takes it out; the file is then the caller's.
void journal_table_remove(struct journal_table *t, struct journal_file *f);
void journal_file_free(struct journal_file *f);

uint64_t journal_file_leaves(const struct journal_file *f); // how many it has
// Room for one more range and for the digests, so that journal_file_hold cannot fail. -ENOMEM, -EFBIG.
MUST_CHECK int journal_file_reserve(struct journal_file *f);
// Remembers [first, first + count), which lies in the file, with digests in wire order of which `leaves` is
// the first byte.
void journal_file_hold(struct journal_file *f, uint64_t first, const void *leaves, uint64_t count);

// Reads the journal beneath state_fd into the empty table, see storage/journal.h; 0 also where there is none.
MUST_CHECK int journal_replay(int state_fd, struct journal_table *table, bool *damaged);

#endif
