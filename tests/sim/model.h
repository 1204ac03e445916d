// What the source holds and has held, and what a destination may hold: the judge of every simulation. It
// knows nothing of the product: contents follow from a key, the path and the offset, so that a byte in the
// wrong place shows.
#ifndef PENSTOCK_TESTS_SIM_MODEL_H
#define PENSTOCK_TESTS_SIM_MODEL_H

#include "tests/sim/fs.h"
#include "tests/sim/rng.h"

enum { RANGES_MAX = 6, VERSIONS_MAX = 12, ITEMS_MAX = 96 };

// One state of an entry.
struct version {
    mode_t mode; // with the type
    struct timespec mtime;
    uint64_t size, key;
    uint64_t split, old_key; // half rewritten: bytes from `split` on are of the old key; 0: they are not
    bool sparse;
    uint32_t range_count; // data of a sparse file, whole blocks but for the end
    struct range ranges[RANGES_MAX];
    char target[128]; // of a link
};

struct item {
    char path[512];
    struct version versions[VERSIONS_MAX]; // of the source; the last one counts, unless it is gone
    unsigned count;
    bool gone;
    struct version old; // what the destination held before the first run
    bool had_old;
    bool absent_ok; // a check passes over it: its fate depends on when it was looked at
};

struct model {
    struct item items[ITEMS_MAX];
    unsigned count;
    uint64_t user;     // owner of the source's entries
    bool temps_lost;   // somebody has removed temporary files at the destination
    bool temps_spoilt; // or its disk did not keep what it called synced
};

struct shape {
    unsigned files, dirs, links; // at most
    uint64_t bytes;              // of data, about
    bool large;                  // files above a MiB too
    bool full;                   // as many as that, a large and a sparse file among them
};

// Fills the model and the source's file system (beneath /data).
void model_make(struct model *m, const struct shape *shape);
// Puts older versions of some entries, and copies of others, at the destination (beneath /store).
void model_make_old(struct model *m, unsigned old_percent, unsigned same_percent);
// Writes a version to a file of the fs, with its attributes; everything durable.
void version_write(struct inode *f, const struct version *v);
// Regular file with attributes and contents by chance.
void version_random(struct version *v, uint64_t size, bool may_be_sparse);
uint64_t version_data_bytes(const struct version *v);
const struct version *item_now(const struct item *item);
struct item *model_find(struct model *m, const char *path);
struct inode *model_source_dir(const char *path, const char **name); // the parent of an entry, and its name

// Whether the file has the contents of the version: as it is seen, or as a crash would leave it.
bool version_is(const struct inode *f, const struct version *v, bool kept);
bool version_block_is(const struct inode *f, const struct version *v, uint64_t number, bool kept);
bool version_attributes_are(const struct attributes *a, const struct version *v);

// The destination equals the source, and holds nothing else but what it had before. Fails the simulation.
void check_equal(struct model *m);
void check_tidy(void); // and no `.penstock/` is left behind
// Every name at the destination holds the old version or a whole version of the source. Fails the simulation.
void check_safe(struct model *m);
// An entry that was acknowledged would survive a crash now.
void check_durable(struct model *m, const char *path, uint64_t size, struct timespec mtime);
// The receipt of a complete copy is on stable storage and says of every entry what is true.
void check_receipt(struct model *m, const char *path);
// Data bytes of the newest versions that the destination did not hold before the first run.
uint64_t model_needed_bytes(const struct model *m);

#endif
