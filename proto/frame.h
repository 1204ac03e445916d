// A data frame: one stripe in one slot, one GCM message.
//
//   head     64 bytes, clear, ends in a checksum of itself; additional authenticated data of the rest
//   body     the extents of the stripe back to back, each at its full length in the layout (zeros where a
//   read
//            fell short); sealed
//   trailer  what became of each extent, the leaves, the stripe digest, a checksum; sealed; follows the body
//            without a gap
//   tag      16 bytes: AES-256-GCM over head and (body, trailer); all zero when the stream is not sealed
//
// The head is tested before a length in it is used: a bad head means that the stream is out of step, and the
// stream is closed. A bad tag, checksum or digest behind a good head costs that stripe only.
#ifndef PENSTOCK_PROTO_FRAME_H
#define PENSTOCK_PROTO_FRAME_H

#include "proto/base.h"
#include "proto/digest.h"
#include "proto/limits.h"

enum frame_kind {
    FRAME_STRIPE = 1,
    FRAME_END = 2, // the sender has no more for this stream: no body, no trailer, no tag; EOF follows
};

struct frame_head {
    enum frame_kind kind;
    uint32_t session;
    uint64_t segment;       // number of the segment that the stripe belongs to
    uint64_t stripe;        // number of the stripe in the job
    uint64_t sequence;      // of the frame on this stream attempt, from 0: the number of the GCM message
    uint32_t body_bytes;    // at most STRIPE_BYTES_MAX
    uint32_t trailer_bytes; // at most TRAILER_BYTES_MAX
    uint32_t extents;       // in 1..STRIPE_EXTENTS_MAX
    uint32_t leaves;        // in 1..STRIPE_LEAVES_MAX
    bool sealed;
};

// Layout of the 64 bytes, all little-endian:
//   0 u32 magic "PSKF" (0x464b5350)   4 u8 version   5 u8 kind   6 u16 flags (1 = sealed)   8 u32 session
//   12 u32 extents   16 u64 segment   24 u64 stripe   32 u64 sequence   40 u32 body   44 u32 trailer   48 u32
//   leaves 52 u32 zero   56 u64 XXH3-64 of bytes 0..55
void frame_head_encode(const struct frame_head *head, uint8_t out[FRAME_HEAD_BYTES]);
// -EBADMSG: magic or checksum wrong; -EPROTO: version, kind, flags or reserved bytes unknown, counts out of
// range; -EMSGSIZE: a length over its limit. Of a stripe trailer_bytes must be trailer_bytes(extents,
// leaves), and no extent is empty, so that body_bytes >= extents; of an end all but session, sequence and
// sealed must be 0.
MUST_CHECK int frame_head_decode(const uint8_t in[FRAME_HEAD_BYTES], struct frame_head *out);

// What became of an extent at the source.
enum extent_state {
    EXTENT_OK = 0,
    EXTENT_CHANGED = 1, // the file is not what the manifest says (size, mtime; or ctime/inode twice)
    EXTENT_VANISHED = 2,
    EXTENT_UNREADABLE = 3, // errno says why
};

struct extent_status {
    enum extent_state state;
    uint16_t os; // errno of EXTENT_UNREADABLE, else 0
};

// Trailer: stripe digest (16) | per extent {u8 state, u8 zero, u16 errno} | leaves (16 each) | u64 XXH3-64 of
// all before it. `leaves` counts the leaves that the stripe touches, in order (proto/layout.h). The digest of
// the stripe is over these leaves.
size_t trailer_bytes(uint32_t extents, uint32_t leaves);
// Writes trailer_bytes(extents, leaves) bytes.
void trailer_encode(const struct extent_status *status, uint32_t extents, const struct digest *leaves,
                    uint32_t leaf_count, uint8_t *out);
// Decodes into the caller's arrays. -EBADMSG: checksum or stripe digest does not fit; -EPROTO: an unknown
// state, or an errno of an extent that was readable.
MUST_CHECK int trailer_decode(const uint8_t *in, uint32_t extents, uint32_t leaf_count,
                              struct extent_status *status, struct digest *leaves);

#endif
