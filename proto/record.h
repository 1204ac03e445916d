// Files at rest (journal, receipt): one header form, then records with a chained checksum.
//
//   header  64 bytes: magic "PENSTOCK" | u32 kind | u32 version | job id (16) | salt (16) | u64 zero | u64
//   XXH3-64 of 0..55 record  u32 length of the payload | u16 type | u16 zero | u64 number from 0 | payload |
//   u64 checksum
// The checksum is XXH3-64 over (previous checksum, or the header's for the first) || length..payload, so that
// old bytes of a reused file, or records of another file, cannot pass. All little-endian. Pure: bytes in,
// bytes out; storage/ does the reading and writing.
#ifndef PENSTOCK_PROTO_RECORD_H
#define PENSTOCK_PROTO_RECORD_H

#include "proto/base.h"
#include "proto/limits.h"

enum record_file { RECORD_JOURNAL = 1, RECORD_RECEIPT = 2 };

enum {
    RECORD_HEADER_BYTES = 64,
    RECORD_FRAME_BYTES = 24, // around a payload
    RECORD_PAYLOAD_MAX = 256 * KIB,
};

struct record_header {
    enum record_file kind;
    uint32_t version;
    struct job_id job;
    uint8_t salt[16];
};

// Where a writer or reader stands in the chain.
struct record_chain {
    uint64_t number; // of the next record
    uint64_t sum;    // of the record before it
};

struct record {
    uint16_t type;
    const uint8_t *payload; // in the caller's buffer
    uint32_t payload_bytes;
};

void record_header_encode(const struct record_header *h, uint8_t out[RECORD_HEADER_BYTES],
                          struct record_chain *chain);
// -EBADMSG: no such file or damaged; -EPROTONOSUPPORT: kind fits but the version is newer than `version_max`
// (only out->version is set then). On 0 the chain stands before the first record.
MUST_CHECK int record_header_decode(const uint8_t in[RECORD_HEADER_BYTES], enum record_file kind,
                                    uint32_t version_max, struct record_header *out,
                                    struct record_chain *chain);

// Encodes one record into out[0..out_len) and moves the chain on. Bytes written, or -EMSGSIZE.
MUST_CHECK int64_t record_encode(struct record_chain *chain, uint16_t type, const void *payload, size_t len,
                                 uint8_t *out, size_t out_len);
// Takes the record at `in`. Bytes taken (> 0) and *out; 0: the bytes end before the record does (ask again
// with more, at the end of the file this is a torn tail); -EBADMSG: damaged; -EMSGSIZE: length over the limit
// (damage too).
MUST_CHECK int64_t record_decode(struct record_chain *chain, const uint8_t *in, size_t len,
                                 struct record *out);

#endif
