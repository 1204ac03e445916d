// Every limit that a length, a count or a size from outside is held against before it is used, in one
// place. The sizes of the format (leaf, frame head) are part of the wire version and never change
// within it; the other figures may be lowered by either side.
#ifndef PENSTOCK_PROTO_LIMITS_H
#define PENSTOCK_PROTO_LIMITS_H

#include "proto/base.h"

enum {
    KIB = 1024,
    MIB = 1024 * 1024,

    PENSTOCK_PORT = 7420, // the default port of an agent
    WIRE_VERSION = 1,     // of preamble, frames and messages
    WIRE_VERSION_MIN = 1, // the oldest that this release speaks

    LEAF_BYTES = MIB,                   // unit of digests: one leaf = one MiB of a file's logical bytes
    PACKED_FILE_BYTES_MAX = LEAF_BYTES, // a file of at most this is packed, every larger one is not
    BLOCK_BYTES = 4096,                 // unit of direct I/O, of data ranges and of slots

    STRIPE_BYTES_MIN = LEAF_BYTES, // a stripe is a power of two of bytes between these
    STRIPE_BYTES_MAX = 16 * MIB,
    STRIPE_BYTES_DEFAULT = 4 * MIB,
    PACKED_EXTENTS_MAX = 1024, // files in one packed stripe
    // A data range and the hole after it take at least two blocks, so that no stripe has more extents.
    STRIPE_EXTENTS_MAX = STRIPE_BYTES_MAX / (2 * BLOCK_BYTES) + 1,
    STRIPE_LEAVES_MAX = PACKED_EXTENTS_MAX, // a large stripe has at most 16, a packed one a leaf a file

    FRAME_HEAD_BYTES = 64,
    FRAME_TAG_BYTES = 16,
    // stripe digest, one status of 4 bytes per extent, one digest per leaf, checksum: see proto/frame.h
    TRAILER_BYTES_MAX = 16 + 4 * STRIPE_EXTENTS_MAX + 16 * STRIPE_LEAVES_MAX + 8,

    NAME_BYTES_MAX = 255,        // one component of a path
    PATH_BYTES_MAX = 32768,      // a whole path; longer than PATH_MAX since paths are walked by descriptor
    TARGET_BYTES_MAX = 4096,     // text of a symbolic link
    ENTRY_RANGES_MAX = 16384,    // data ranges of one sparse file; more are merged across the smallest holes
    SEGMENT_ENTRIES_MAX = 4096,  // entries of one segment of the manifest
    SEGMENT_BYTES_MAX = 1 * MIB, // its encoded bytes
    NEED_BYTES_MAX = 1 * MIB,    // an encoded need answer
    SOURCES_MAX = 256,           // SRC arguments of one job
    SRC_BYTES_MAX = 64 * KIB,    // all of them together, each with 4 bytes for its length
    NAMES_BYTES_MAX = 72 * KIB,  // what agents tell of them: as many as can be, with the longest names
    SEGMENTS_OPEN_MAX = 4,       // segments of a job between walk and retirement

    MESSAGE_BYTES_MAX = 144 * KIB, // a control message
    PEER_BYTES_MAX = 2 * MIB,      // a message between agents
    TEXT_BYTES_MAX = 512,          // words of an error
    ADDRESS_BYTES_MAX = 256,       // a host name or address in text
    ADDRESSES_MAX = 16,            // addresses that an agent offers
    STREAMS_MAX = 1024,            // streams of one session
    LEASE_STRIPES_MAX = 1024,      // stripes of one lease
    CHECKS_OPEN_MAX = 16,          // CHECKs that an agent has not answered yet

    PREAMBLE_BYTES = 40,
    GREETING_WAIT_MS = 10000,   // from accept to proof, absolute
    GREETING_CONNECTIONS = 256, // connections that have not proved themselves yet, per process
    HEARTBEAT_MS = 5000,
    SILENCE_MS = 30000, // a control connection without a word for so long is lost
};

// Data bytes after which a segment closes; a single larger file still is one segment.
#define SEGMENT_DATA_BYTES (UINT64_C(16) << 30)
// The largest size of a file: what off_t can say.
#define FILE_BYTES_MAX ((uint64_t)INT64_MAX)
// A key of AES-GCM seals at most this many frames (64 GiB of default stripes), far below the cipher's limit.
#define FRAMES_PER_KEY UINT64_C(16384)

#endif
