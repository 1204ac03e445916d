// The manifest: what a job must move, cut into segments. A segment is a bounded number of entries and bytes;
// a file never spans two. The source closes segments while it walks; the destination decodes and answers each
// (proto/need.h); both compute the same layout from (segment, need, stripe size) (proto/layout.h).
//
// Encoded segment: u32 "PSKM" (0x4d4b5350) | u32 entries | u64 number | u8 last | 7 zero | entries.
// Entry: u8 type | u8 flags (1 = sparse) | u16 root | u32 mode | u32 uid | u32 gid | u64 size | i64 mtime s |
// u32 mtime ns |
//        u32 ctime ns | i64 ctime s | u64 inode | blob path | for a link: blob target | for a sparse file:
//        u32 count, then per data range u64 offset, u64 length.
#ifndef PENSTOCK_PROTO_MANIFEST_H
#define PENSTOCK_PROTO_MANIFEST_H

#include "proto/base.h"
#include "proto/digest.h"
#include "proto/limits.h"

enum entry_type { ENTRY_DIR = 1, ENTRY_FILE = 2, ENTRY_SYMLINK = 3 };

struct entry_time {
    int64_t s;
    uint32_t ns; // < 10^9
};

struct entry {
    enum entry_type type;
    uint16_t root; // which SRC of the job it came from; only the source looks at it
    uint32_t mode; // permission bits, 07777
    uint32_t uid, gid;
    uint64_t size; // of a file, at most FILE_BYTES_MAX; 0 for others
    struct entry_time mtime, ctime;
    uint64_t inode;
    const uint8_t *path; // beneath the destination root, raw bytes, "" only for the root directory itself
    uint32_t path_len;
    const uint8_t *target; // text of a link, else NULL
    uint32_t target_len;
    bool sparse; // `data` says where data lies (maybe nowhere); else the file is all data
    const struct range
        *data; // sorted, disjoint, not touching; offset and length multiples of BLOCK_BYTES but for the
    uint32_t data_count; // last range, which may end with the file
};

struct segment {
    uint64_t number; // from 0, consecutive in a job
    bool last;       // no segment follows (a retry segment may still come after it: it is last too)
    uint32_t entry_count;
    const struct entry *entries;
    struct digest digest; // of the encoded bytes: names the segment
};

// Whether a name is ".penstock", which every destination root keeps for itself.
bool manifest_is_own(const void *name, size_t len);

// Whether bytes are a safe path beneath a root: relative, components of 1..NAME_BYTES_MAX bytes that are
// neither
// ".", ".." nor ".penstock", no NUL, no leading, doubled or trailing slash, at most PATH_BYTES_MAX. Not the
// empty path: only a directory may have it, and then it is the root itself.
bool manifest_path_safe(const void *path, size_t len);

// Same version of a source file: size, mtime, ctime and inode.
bool entry_same_version(const struct entry *a, const struct entry *b);

// Bytes of data of an entry, holes left out; 0 for what is not a file: then it needs no stripe. (A packed
// sparse file is sent whole all the same, up to LEAF_BYTES.)
uint64_t entry_data_bytes(const struct entry *e);

// Everything that the format demands of one entry: -EPROTO, or -EMSGSIZE for a path, target, root, size or
// number of ranges over its limit. Used at both ends.
MUST_CHECK int entry_check(const struct entry *e);

// Builds the encoded form of one segment. Owns its buffer (SEGMENT_BYTES_MAX); reused after _begin.
struct segment_builder;
MUST_CHECK struct segment_builder *segment_builder_new(void);
void segment_builder_free(struct segment_builder *b);
void segment_builder_begin(struct segment_builder *b, uint64_t number);
// 0: added (copied). -ENOSPC: the segment is full (entries, bytes, or with it more than SEGMENT_DATA_BYTES of
// file data and at least one entry in it): end it, begin the next and add again. An entry always fits an
// empty segment: else the errors of entry_check, for an entry that no segment can say (a path longer than
// PATH_BYTES_MAX). Paths are not compared: that no two are alike is the caller's promise, kept by
// segment_decode.
MUST_CHECK int segment_builder_add(struct segment_builder *b, const struct entry *e);
uint32_t segment_builder_count(const struct segment_builder *b);
// The encoded segment; valid until the next begin. Nothing is added after it.
const uint8_t *segment_builder_end(struct segment_builder *b, bool last, size_t *len);

// Decodes and checks everything: every field in range, paths safe, ranges sorted and inside the file, no two
// entries with the same path in one segment (sorted, O(n log n)), not more than SEGMENT_DATA_BYTES unless in
// a single entry. The segment owns a copy of the bytes. -EPROTO, -EMSGSIZE, -ENOMEM.
MUST_CHECK int segment_decode(const void *bytes, size_t len, struct segment **out);
void segment_free(struct segment *s);

#endif
