// Digests of a file's own bytes (DESIGN §2): independent of streams, stripes, holes and runs.
//   leaf   = XXH3-128 over one MiB of logical bytes (holes count as zeros; the last leaf ends with the file)
//   stripe = XXH3-128 over its leaves in order
//   file   = XXH3-128 over its leaves in order, then its size as a little-endian u64
// Digests are kept in XXH128_canonicalFromHash order (big-endian), so bytes compare as text does.
// XXH3 proves faults, not forgery. The only user of xxHash; run-time dispatch where the library has it.
#ifndef PENSTOCK_PROTO_DIGEST_H
#define PENSTOCK_PROTO_DIGEST_H

#include "proto/base.h"
#include "proto/limits.h"

struct digest {
    uint8_t bytes[16];
};

struct digest digest_of(const void *bytes, size_t len); // also the digest of a stripe: over its leaves
bool digest_equal(const struct digest *a, const struct digest *b);
uint64_t digest_check64(const void *bytes, size_t len); // XXH3-64: checksum of heads, trailers, records
// XXH3-64 over `before` as a little-endian u64, then the bytes: one link of a chain of checksums.
uint64_t digest_check64_after(uint64_t before, const void *bytes, size_t len);

// A digest over pieces: leaves with holes, files leaf by leaf. Allocates its state (aligned as XXH3 wants);
// reused through digest_stream_reset. Not thread-safe.
struct digest_stream;
MUST_CHECK struct digest_stream *digest_stream_new(void); // NULL: out of memory
void digest_stream_free(struct digest_stream *s);
void digest_stream_reset(struct digest_stream *s);
void digest_stream_add(struct digest_stream *s, const void *bytes, size_t len);
void digest_stream_add_zeros(struct digest_stream *s, size_t len);
struct digest digest_stream_end(struct digest_stream *s);

// The leaf of `len` zero bytes (len <= LEAF_BYTES): a leaf that is all hole.
struct digest digest_zeros(size_t len);

// A file's digest from its leaves; `leaves` are all of them, in order (u64_div_up(size, LEAF_BYTES)).
struct digest digest_file(const struct digest *leaves, uint64_t size);

// 32 hex digits and a terminator; fixed width, leading zeros kept.
void digest_hex(const struct digest *d, char out[33]);

#endif
