// What a walk said, as lines of text that tests compare: "d PATH", "f PATH SIZE", "l PATH -> TARGET", "!
// CLASS ERRNO PATH".
#ifndef PENSTOCK_TESTS_UNIT_WALKED_H
#define PENSTOCK_TESTS_UNIT_WALKED_H

#include "storage/walk.h"

struct walked {
    char **lines; // as they came, until they are sorted
    uint32_t count, cap;
    uint32_t bad; // entries that the format refuses, or that came before their directory
};

// Walks to the end. Bytes are written raw; a problem's path is escaped as err_set does it.
struct walked walked_all(struct walk *w);
struct walked walked_sources(const struct walk_source *sources, uint32_t count);
// The same for the contents of one directory.
struct walked walked_dir(int fd);
void walked_free(struct walked *l);

// Whether the lines, sorted, are the `count` expected ones, which are sorted. Prints the first difference.
bool walked_is(struct walked *l, const char *const *expected, uint32_t count);
// How many lines begin with `start`.
uint32_t walked_count(const struct walked *l, const char *start);

#endif
