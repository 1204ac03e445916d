// Key files (DESIGN §7): lines `NAME SECRET`, NAME of [A-Za-z0-9._-]{1,64}, SECRET 64 hex digits, `#`
// comments. Refused when group or others can read them, when they are links, or not owned by the effective
// user or root.
#ifndef PENSTOCK_MOVER_KEY_H
#define PENSTOCK_MOVER_KEY_H

#include "proto/base.h"
#include "proto/err.h"
#include "proto/seal.h"

struct key {
    char name[65];
    struct secret secret;
};

struct key_ring {
    struct key *keys;
    uint32_t count;
};

// -errno with *err set (class ERR_START, or ERR_USAGE with the line number for a malformed line or a doubled
// name).
MUST_CHECK int key_ring_load(const char *path, struct key_ring *out, struct err *err);
void key_ring_free(struct key_ring *r); // wipes
// By name; NULL when it has none.
const struct key *key_ring_find(const struct key_ring *r, const char *name, size_t len);
// The line for a host: the one named like it, else the only line, else NULL.
const struct key *key_ring_for_host(const struct key_ring *r, const char *host);
// Writes one line with a random name and secret; an existing file is refused (-EEXIST); mode 0600; synced.
MUST_CHECK int key_file_make(const char *path, struct err *err);

#endif
