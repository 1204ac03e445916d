// The destination's answer to a segment: what it needs of each entry.
//
// Encoded: u32 "PSKN" (0x4e4b5350) | u32 entries | u64 segment number | per entry: u8 verdict, then for
// NEED_LEAVES: u32 count and per range u64 first leaf, u64 leaves.
#ifndef PENSTOCK_PROTO_NEED_H
#define PENSTOCK_PROTO_NEED_H

#include "proto/base.h"
#include "proto/manifest.h"

enum need_verdict {
    NEED_NOTHING =
        0, // it is there (skipped), or needs no data (directory, link, empty or all-hole file), or cannot be
    NEED_ALL = 1,    // every leaf
    NEED_LEAVES = 2, // these leaves of a file larger than PACKED_FILE_BYTES_MAX
};

struct entry_need {
    enum need_verdict verdict;
    const struct range
        *leaves; // NEED_LEAVES: whole leaves: sorted, disjoint, not touching, inside the file; at least one
    uint32_t count;
};

struct need {
    uint64_t segment;
    uint32_t entry_count;
    struct entry_need *entries;
};

// A need of NEED_NOTHING for `entries` entries, to be filled by need_set. NULL: out of memory.
MUST_CHECK struct need *need_new(uint64_t segment, uint32_t entries);
void need_free(struct need *n);
// Sets the answer for one entry, in place of an earlier one; copies `leaves`, which only NEED_LEAVES looks
// at. -ENOMEM.
MUST_CHECK int need_set(struct need *n, uint32_t entry, enum need_verdict verdict, const struct range *leaves,
                        uint32_t count);
// Whether `n` can be the answer to `segment`: -EPROTO when number or entries differ, when data is asked of an
// entry that has none, or leaves of a packed file, or leaf ranges are not as struct entry_need wants them.
MUST_CHECK int need_check(const struct need *n, const struct segment *segment);
// Makes a need of a segment's entries fit NEED_BYTES_MAX, whatever is asked of them: ranges of leaves are
// joined, across the smallest gaps and no more of them than must be. What was asked for still is, and what
// lies in those gaps too. To be called before anything is laid out by it. -ENOMEM, and nothing changed.
MUST_CHECK int need_fit(struct need *n);
// Bytes written into out, or -EMSGSIZE (NEED_BYTES_MAX or out_len).
MUST_CHECK int64_t need_encode(const struct need *n, void *out, size_t out_len);
// Decodes and checks it against the segment it answers (need_check). -EPROTO, -EMSGSIZE (longer than
// NEED_BYTES_MAX), -ENOMEM.
MUST_CHECK int need_decode(const void *bytes, size_t len, const struct segment *segment, struct need **out);

#endif
