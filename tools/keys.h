// The keys that a command was given for the running agents it is to reach.
#ifndef PENSTOCK_TOOLS_KEYS_H
#define PENSTOCK_TOOLS_KEYS_H

#include "mover/key.h"
#include "mover/place.h"

// When the place is a running agent: loads `file` into `keys` unless that has been done, and sees that it has
// a key for the host. `file` NULL: none was given. -errno with *err.
MUST_CHECK int keys_for_place(const char *file, const struct place *place, struct key_ring *keys,
                              struct err *err);

#endif
