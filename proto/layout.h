// The line: what a segment needs, laid out in stripes. A pure function of (segment, need, stripe size): all
// agents of a segment compute it alike and the coordinator compares the digests; it alone gives out the
// number of the first stripe.
//
// Order: first the needed files larger than PACKED_FILE_BYTES_MAX in manifest order, each cut at multiples of
// the stripe size S: stripe k of a file holds those of its bytes [kS, (k+1)S) that are needed and data; a
// stripe with none is dropped. Then the smaller needed files with data, in manifest order, packed: a file is
// one extent and goes into the current packed stripe unless that would pass S bytes or PACKED_EXTENTS_MAX
// extents. (S >= LEAF_BYTES >= any packed file.) A packed sparse file is sent whole, holes as zeros: at most
// 1 MiB. Empty and all-hole files have no stripe.
//
// Leaves of a stripe: of a large one the leaves of the file that its extents touch, in order; of a packed one
// a leaf an extent. Memory: O(needed files + ranges) of the segment, never O(stripes of a file).
#ifndef PENSTOCK_PROTO_LAYOUT_H
#define PENSTOCK_PROTO_LAYOUT_H

#include "proto/base.h"
#include "proto/digest.h"
#include "proto/manifest.h"
#include "proto/need.h"

struct extent {
    uint32_t entry;
    uint32_t len;    // at most the stripe size
    uint64_t offset; // in the file
};

// A stripe is a value: computed when asked for, stored by nobody.
struct stripe {
    uint64_t number; // in the job
    bool packed;
    uint32_t entry; // large: the file; packed: of the first extent
    uint32_t extent_count;
    uint32_t leaf_count;
    uint32_t body_bytes;  // sum of the extents' lengths
    uint64_t file_stripe; // large: k, so that the stripe lies in [kS, (k+1)S)
};

struct layout;
// Keeps pointers to segment and need: they must outlive it and not change. stripe_bytes: a power of two
// within the limits. O(entries + ranges). -EINVAL (stripe_bytes, or a need that is no answer to the segment),
// -ENOMEM, -EOVERFLOW (stripes or bytes do not fit u64; cannot happen with a decoded segment).
MUST_CHECK int layout_new(const struct segment *segment, const struct need *need, uint32_t stripe_bytes,
                          struct layout **out);
void layout_free(struct layout *l);
// Numbers then run from first_stripe; from 0 before. -EOVERFLOW, and nothing changed, when the last number
// would not fit u64.
MUST_CHECK int layout_place(struct layout *l, uint64_t first_stripe);
const struct segment *layout_segment(const struct layout *l);
uint64_t layout_first(const struct layout *l);
uint64_t layout_count(const struct layout *l); // stripes
uint64_t layout_bytes(const struct layout *l); // body bytes of all of them
uint32_t layout_stripe_bytes(const struct layout *l);
// Names the line, not its place in the job (first_stripe is no part of it). Equal digests: the same stripes
// with the same extents. XXH3-128 over these fields, little-endian, one after the other:
//
//   u32 "PSKL" (0x4c4b5350) | u32 stripe size | segment digest (16) | u64 segment number | u64 stripes
//       | u64 body bytes | u32 large files | u32 packed files
//
//   per large file with at least one stripe, in order: u32 entry | u32 runs | u32 leaf ranges
//
//       | per run of consecutive stripes that are not empty, as long as can be: u64 first k | u64 count
//
//       | per needed leaf range: u64 first leaf | u64 leaves (one range of all when all are needed)
//
//   per packed file, in order: u32 entry | u32 index of its packed stripe, counted from 0
struct digest layout_digest(const struct layout *l);

// Stripe `number` and its extents (into extents[STRIPE_EXTENTS_MAX]); number must lie in [first, first +
// count). `number` from a peer is held against these bounds by the caller. Binary searches among runs, leaf
// ranges and data ranges: O(log ranges + extents); no allocation; safe from several threads at once.
void layout_stripe(const struct layout *l, uint64_t number, struct stripe *out, struct extent *extents);

// Stripes of one entry: how many, and the first one's number; 0 (and *first untouched) when it has none. A
// large file's stripes are consecutive. A packed entry: its packed stripe, shared with others, and 1. O(log
// files).
uint64_t layout_entry_stripes(const struct layout *l, uint32_t entry, uint64_t *first);

// A leaf of a large stripe, or of a packed one, in the order of the trailer.
struct leaf_span {
    uint64_t leaf; // index in the file
    uint32_t entry;
    uint32_t len; // logical bytes, holes included
};
// Fills spans[0..leaf_count); spans holds STRIPE_LEAVES_MAX. Leaves that are all hole are in no stripe: their
// digest is digest_zeros. No leaf is in two stripes.
void layout_leaves(const struct layout *l, const struct stripe *stripe, const struct extent *extents,
                   struct leaf_span *spans);
// Digests of the leaves of a stripe from its body (body_bytes long), holes as zeros; leaves holds
// stripe->leaf_count. `scratch` is the caller's, reused.
void layout_digest_body(const struct layout *l, const struct stripe *stripe, const struct extent *extents,
                        const uint8_t *body, struct digest_stream *scratch, struct digest *leaves);

#endif
