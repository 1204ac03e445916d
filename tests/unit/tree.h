// Makes entries, segments and needs for tests, by hand or at random from a printed seed.
#ifndef PENSTOCK_TESTS_UNIT_TREE_H
#define PENSTOCK_TESTS_UNIT_TREE_H

#include "proto/layout.h"
#include "proto/manifest.h"
#include "proto/need.h"

// A small generator (splitmix64): the same numbers from the same seed everywhere.
struct rnd {
    uint64_t state;
};
// Begins from PENSTOCK_TEST_SEED, else from a fixed seed, and prints which for `test`.
struct rnd rnd_begin(const char *test);
uint64_t rnd_next(struct rnd *r);
uint64_t rnd_below(struct rnd *r, uint64_t n); // in [0, n), n > 0

// Entries with plausible metadata. `path` and ranges are not copied.
struct entry tree_dir(const char *path);
struct entry tree_link(const char *path, const char *target);
struct entry tree_file(const char *path, uint64_t size);
struct entry tree_sparse(const char *path, uint64_t size, const struct range *data, uint32_t count);

// Encodes and decodes; aborts when that is refused.
struct segment *tree_segment(uint64_t number, const struct entry *entries, uint32_t count);
// The segment encoded, in memory of its own.
uint8_t *tree_encode(uint64_t number, const struct entry *entries, uint32_t count, size_t *len);

// Random valid ranges over [0, units): gaps and lengths up to `step`, at most `max` of them. Returns how
// many.
uint32_t tree_ranges(struct rnd *r, uint64_t units, uint64_t step, struct range *out, uint32_t max);
// The same as data ranges of a file of `size` bytes, gaps and lengths up to `step` blocks.
uint32_t tree_data(struct rnd *r, uint64_t size, uint64_t step, struct range *out, uint32_t max);

// A segment of `files` random files of up to `size_max` bytes, sizes at the borders of the format among them,
// dense and sparse, with directories and links between.
struct segment *tree_random(struct rnd *r, uint32_t files, uint64_t size_max);
// A need with a random valid answer for each entry; with every entry that has data needed whole.
struct need *tree_need_random(struct rnd *r, const struct segment *segment);
struct need *tree_need_all(const struct segment *segment);

// layout_new that has to work.
struct layout *tree_layout(const struct segment *segment, const struct need *need, uint32_t stripe_bytes);

#endif
