// Memory that runs out, and a sync that tells of a lost write, once as the kernel does: the linker puts ours
// in the place of calloc and sys_syncfs (see the Makefile).
#ifndef PENSTOCK_TESTS_UNIT_STARVE_H
#define PENSTOCK_TESTS_UNIT_STARVE_H

#include "proto/base.h"

// The next calloc of this thread but `after` others finds no memory, once. UINT32_MAX: none.
void starve_calloc(uint32_t after);
// The next sys_syncfs of this thread fails with this -errno. 0: none.
void starve_syncfs(int rc);

#endif
