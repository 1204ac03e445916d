// Test vectors of tests/vectors/, which tests/peer.py makes: cases of lines `KEY VALUE...`. They are looked
// for where the environment variable PENSTOCK_VECTORS says, else in tests/vectors. What does not work here
// aborts the test program.
#ifndef PENSTOCK_TESTS_UNIT_VECTORS_H
#define PENSTOCK_TESTS_UNIT_VECTORS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct vector_case {
    const char *kind, *name;
    char **lines; // without their ends
    size_t count;
};

struct vector_check {
    const char *kind;
    void (*check)(const struct vector_case *c);
};

// Hands each case of the file to the check of its kind; a case of another kind is a failure, and a check that
// had no case.
void vectors_run(const char *file, const struct vector_check *checks, size_t count);

// The words behind the key's `at`-th line (from 0); NULL: there is none.
const char *vector_words(const struct vector_case *c, const char *key, size_t at);
uint64_t vector_number(const struct vector_case *c, const char *key);
// Whether the line is these bytes, written in hex.
bool vector_is(const struct vector_case *c, const char *key, const void *bytes, size_t len);

// Bytes in memory of exactly their length, so that a sanitizer sees a read beyond it.
struct vector_bytes {
    uint8_t *bytes; // to be freed
    size_t len;
};
struct vector_bytes vector_bytes(const struct vector_case *c, const char *key);
// The bytes of one word of a line, and the word behind it.
struct vector_bytes vector_hex(const char **words);
// Exactly `len` bytes.
void vector_copy(const struct vector_case *c, const char *key, void *out, size_t len);

// The next number of a line, and what follows it (a blank, ':' or ',' is passed over).
uint64_t vector_next(const char **words);

#endif
