// Quantities as people write and read them: sizes in bytes (powers of 1024), rates in bit/s (powers of 1000),
// times. What is printed always has its unit. Pure.
#ifndef PENSTOCK_TOOLS_UNITS_H
#define PENSTOCK_TOOLS_UNITS_H

#include "proto/words.h"

// Each takes the whole text: decimal digits, then at most one unit (letters in any case). -EINVAL: it is no
// such number (a sign, a fraction, an exponent, spaces, words behind it); -ERANGE: more than a u64 holds.
MUST_CHECK int units_parse_count(const char *text, uint64_t *out);
MUST_CHECK int units_parse_size(const char *text, uint64_t *bytes);   // K M G T, also KiB MiB GiB TiB
MUST_CHECK int units_parse_rate(const char *text, uint64_t *bits);    // k M G of bit/s, "bit/s" may follow
MUST_CHECK int units_parse_time(const char *text, uint64_t *seconds); // s m h; seconds without a unit

// The longest text that the functions below write, with its terminator.
enum { UNITS_TEXT_BYTES = WORDS_BYTES };

const char *units_bytes(uint64_t bytes,
                        char out[UNITS_TEXT_BYTES]); // "512 B", "1.50 KiB", "12.3 GiB", "999 TiB"
const char *units_rate(double bytes_per_s, char out[UNITS_TEXT_BYTES]); // "0 bit/s", "9.42 Gbit/s"
const char *units_seconds(double seconds,
                          char out[UNITS_TEXT_BYTES]); // "0.52 s", "12.3 s", "75.0 s", "3 h 02 min"
const char *units_clock(uint64_t seconds,
                        char out[UNITS_TEXT_BYTES]); // "0:07", "12:34", "1:02:03", "over 99 h"

#endif
