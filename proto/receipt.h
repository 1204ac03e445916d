// What a receipt says of one entry (DESIGN §3): the same bytes travel in ENTRIES_DONE and lie in the receipt
// file.
//
// An entry record: u8 type (enum entry_type) | u8 outcome | u8 proof | u8 zero | u32 mode | u64 size | i64
// mtime s | u32 mtime ns |
//   digest (16) | blob path. The digest is a file's (proto/digest.h), of a link digest_of(target), of a
//   directory zeros.
//
// Receipt file (proto/record.h, kind RECORD_RECEIPT): record 1 JOB, then records 2 ENTRIES (each a list of
// blobs, one an entry), last record 3 END. Without END the job did not finish: no receipt. JOB: i64 started |
// blob program | blob sources | blob destination | blob place. END: i64 ended | u32 exit status | u32 zero |
// u64 total, moved, skipped, changed, vanished, failed, bytes.
#ifndef PENSTOCK_PROTO_RECEIPT_H
#define PENSTOCK_PROTO_RECEIPT_H

#include "proto/manifest.h"
#include "proto/message.h"

enum receipt_outcome {
    RECEIPT_MOVED = 1,
    RECEIPT_SKIPPED = 2,
    RECEIPT_CHANGED = 3,
    RECEIPT_VANISHED = 4,
    RECEIPT_FAILED = 5
};
enum receipt_proof {
    PROOF_NONE = 0,    // nobody read it: skipped by size and time
    PROOF_WIRE = 1,    // digest on arrival, then synced
    PROOF_DISK = 2,    // read again after the sync
    PROOF_CARRIED = 3, // by an earlier receipt
};
enum receipt_record { RECEIPT_JOB = 1, RECEIPT_ENTRIES = 2, RECEIPT_END = 3 };
enum { RECEIPT_VERSION = 1 };

struct receipt_entry {
    enum entry_type type;
    enum receipt_outcome outcome;
    enum receipt_proof proof;
    uint32_t mode;
    uint64_t size;
    struct entry_time mtime;
    struct digest digest;
    struct blob path;
};

// Bytes written into out, or -EMSGSIZE.
MUST_CHECK int64_t receipt_entry_encode(const struct receipt_entry *e, void *out, size_t len);
// -EPROTO. The path points into bytes; it is checked as manifest_path_safe ("" for the root directory).
MUST_CHECK int receipt_entry_decode(const void *bytes, size_t len, struct receipt_entry *out);

// Of the job as a whole: what was copied where, when (wall clock, for people).
struct receipt_job {
    int64_t started_s;
    struct blob program;     // "penstock 0.1.0"
    struct blob sources;     // list of blobs: each SRC as it was given
    struct blob destination; // DST as it was given
    struct blob place; // where the destination root can be reached again: a form of path that copy takes
};
MUST_CHECK int64_t receipt_job_encode(const struct receipt_job *j, void *out, size_t len);
MUST_CHECK int receipt_job_decode(const void *bytes, size_t len, struct receipt_job *out);

struct receipt_end {
    int64_t ended_s;
    uint32_t exit_status;
    uint64_t total, moved, skipped, changed, vanished, failed; // entries
    uint64_t bytes;                                            // moved
};
MUST_CHECK int64_t receipt_end_encode(const struct receipt_end *e, void *out, size_t len);
MUST_CHECK int receipt_end_decode(const void *bytes, size_t len, struct receipt_end *out);

#endif
