// Quantities in words for people. What is said always has its unit.
#ifndef PENSTOCK_PROTO_WORDS_H
#define PENSTOCK_PROTO_WORDS_H

#include "proto/base.h"

enum { WORDS_BYTES = 32 }; // the longest text, with its terminator

// Three figures and the unit whose prefix leaves a number below `step`; whole numbers of the first unit.
const char *words_scaled(double value, double step, const char *const *names, size_t count,
                         char out[WORDS_BYTES]);
const char *words_bytes(uint64_t bytes, char out[WORDS_BYTES]); // "512 B", "1.50 KiB", "12.3 GiB"

#endif
