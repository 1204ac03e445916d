// Where one end of a copy is (DESIGN §11): PATH | [USER@]HOST:PATH | penstock://HOST[:PORT]/PATH. A name with
// `/` before the first `:` is a local path; `[v6]:PATH`.
#ifndef PENSTOCK_MOVER_PLACE_H
#define PENSTOCK_MOVER_PLACE_H

#include "proto/base.h"
#include "proto/err.h"

enum place_kind { PLACE_LOCAL, PLACE_SSH, PLACE_AGENT };

struct place {
    enum place_kind kind;
    char host[ADDRESS_BYTES_MAX]; // ssh: with USER@ as given; v6 without brackets; "" when local
    uint16_t port;                // agent; 0 else
    char *path;  // as the user wrote it; agent: without the leading slash (beneath the agent's root); ""
                 // becomes "."
    char *text;  // the whole argument, for people
    bool memory; // a data set that is nowhere (storage/memory.h); of a source:
    uint32_t memory_files; // so many files
    uint64_t memory_bytes; // of so many bytes
};

// Owns its strings. -EINVAL with *err (ERR_USAGE): empty, host starting with '-', port out of range, unknown
// scheme. -ENOMEM.
MUST_CHECK int place_parse(const char *text, struct place *out, struct err *err);
void place_free(struct place *p);
// The words for another path at the same end, such that place_parse finds it there: `path` as the end's agent
// takes it (absolute, or beneath its root). The caller's to free; NULL: out of memory.
MUST_CHECK char *place_words(const struct place *p, const char *path);
// Both at the same agent: one process can open all of them (sources of a job must be).
bool place_same_agent(const struct place *a, const struct place *b);

#endif
