// The yardstick: the same bytes with no product around them. A pair of processes a stream, one TCP connection
// over loopback; the one reads, digests every MiB, (seals) and sends; the other receives, (opens), digests,
// compares and writes. Both know the plan, so a frame says no more than which unit it is:
//
//     unit number (u32) | bytes | a digest for every MiB or packed file | tag of AES-256-GCM, when sealed
//
// Large files are cut into units; small ones are packed into units of their own. The senders take units from
// one cursor in shared memory. Bytes pass in pieces small enough to stay in a core's cache from step to step.
// Files are written under their final names, and the job dies at the first fault: it is a measure, not a
// mover.
#ifndef PENSTOCK_TESTS_BENCH_LIMIT_H
#define PENSTOCK_TESTS_BENCH_LIMIT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    LIMIT_LEAF_BYTES = 1 << 20,                 // a digest covers so much, a write too
    LIMIT_UNIT_BYTES_MAX = 64 << 20,            // more digests than that make no sense
    LIMIT_PACKED_FILES_MAX = 1024,              // files in a packed unit
    LIMIT_BLOCK_BYTES = 4096,                   // of direct writes
    LIMIT_END = -1,                             // unit number of the last frame
    LIMIT_TAG_BYTES = 16,                       // of AES-256-GCM
    LIMIT_DIGESTS_MAX = LIMIT_PACKED_FILES_MAX, // of a unit; >= LIMIT_UNIT_BYTES_MAX / LIMIT_LEAF_BYTES
};

enum limit_write { LIMIT_WRITE_RING, LIMIT_WRITE_PLAIN, LIMIT_WRITE_NONE };

struct limit_options {
    const char *source, *target; // NULL: a pattern in memory; bytes are dropped
    uint64_t memory_bytes;       // without a source
    uint32_t streams, slots, unit_bytes, piece_bytes, lowat_bytes, socket_bytes;
    bool sealed;
    bool pin; // every process to a processor
    bool map; // digest, seal and send from a mapping of the source instead of reading it
    enum limit_write write;
};

struct limit_digest {
    uint8_t bytes[16];
};

struct limit_file {
    char *path; // beneath source and target
    uint64_t size;
    int fd; // of a large file at the target
};

struct limit_unit {
    uint32_t file, files; // files > 1 or a small file: packed
    uint64_t offset;
    uint32_t bytes;
};

struct limit_plan {
    struct limit_file *files;
    size_t file_count;
    struct limit_unit *units;
    size_t unit_count;
    uint64_t bytes;
    atomic_uint *cursor; // shared by all processes
    int source_fd, target_fd;
};

// One end of a stream.
struct limit_end {
    const struct limit_options *options;
    const struct limit_plan *plan;
    int socket;
    struct limit_cipher *cipher; // NULL: in clear
};

// ---- limit_plan.c ----

// Lists the source, cuts it into units, makes directories and preallocated files at the target.
void limit_plan_make(const struct limit_options *options, struct limit_plan *plan);
// Whether a unit is of small files, whole.
bool limit_unit_packed(const struct limit_plan *plan, const struct limit_unit *unit);
// Makes everything durable.
void limit_plan_sync(const struct limit_options *options, const struct limit_plan *plan);

// ---- limit_send.c, limit_receive.c: the life of a process ----

void limit_send(struct limit_end *end);
void limit_receive(struct limit_end *end);

// ---- limit_bytes.c ----

// Digests pieces; every MiB gives one. limit_leaves_end closes the last.
struct limit_leaves;
struct limit_leaves *limit_leaves_new(void);
void limit_leaves_add(struct limit_leaves *leaves, const uint8_t *bytes, size_t len);
// The digests so far, `*count` of them, and starts again. Valid until the next call.
const struct limit_digest *limit_leaves_end(struct limit_leaves *leaves, uint32_t *count);
struct limit_digest limit_digest_of(const uint8_t *bytes, size_t len);

// AES-256-GCM under a fixed key, the number of the unit as nonce: as costly as the real thing.
struct limit_cipher;
struct limit_cipher *limit_cipher_new(bool sealing);
void limit_cipher_begin(struct limit_cipher *c, uint32_t number);
void limit_cipher_run(struct limit_cipher *c, const uint8_t *from, uint8_t *to, size_t len);
void limit_cipher_seal_end(struct limit_cipher *c, uint8_t tag[LIMIT_TAG_BYTES]);
void limit_cipher_open_end(struct limit_cipher *c,
                           const uint8_t tag[LIMIT_TAG_BYTES]); // dies when it is wrong

// ---- limit.c ----

// Says what failed, with errno when that is not 0, and ends the process.
_Noreturn void limit_die(const char *what, const char *name);
uint8_t *limit_memory(size_t bytes); // aligned, of huge pages where they are given

#endif
