// Memory that runs out: the linker puts ours in the place of calloc (see the Makefile).
#ifndef PENSTOCK_TESTS_UNIT_STARVE_H
#define PENSTOCK_TESTS_UNIT_STARVE_H

#include "proto/base.h"

// The next calloc of this thread but `after` others finds no memory, once. UINT32_MAX: none.
void starve_calloc(uint32_t after);

#endif
