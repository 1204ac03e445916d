// Control messages as values: a plain struct per message (declared in proto/messages.h), encode and decode.
// No I/O, no allocation: blobs point into the caller's bytes.
//
// On a connection a message is u32 length of what follows | u16 type | fields in order. On a peer connection
// the same form carries PEER_SEGMENT and PEER_NEED, whose body is the encoded segment or need.
//
// lists: a list inside a blob is its elements one after the other, each encoded as it says; read with a
// wire_reader until nothing is left.
#ifndef PENSTOCK_PROTO_MESSAGE_H
#define PENSTOCK_PROTO_MESSAGE_H

#include "proto/base.h"
#include "proto/digest.h"
#include "proto/err.h"
#include "proto/messages.h"
#include "proto/seal.h"
#include "proto/wire.h"

// Feature bits of HELLO. None is optional yet: both ends of this version have them all.
#define FEATURE_SEAL      (UINT64_C(1) << 0)
#define FEATURES_HAVE     (FEATURE_SEAL)
#define FEATURES_REQUIRED (FEATURE_SEAL)

// PEER_RETRY is a segment too: files that changed while they were read, tried once more.
enum { MESSAGE_HEAD_BYTES = 6, PEER_SEGMENT = 0x100, PEER_NEED = 0x101, PEER_RETRY = 0x102 };

enum open_role { OPEN_SOURCE = 0, OPEN_DEST = 1, OPEN_VERIFY = 2 };

// Where the bytes are at this end.
enum open_memory {
    OPEN_STORAGE = 0, // in files
    OPEN_MEMORY = 1,  // nowhere: a source makes them, a destination forgets them (storage/memory.h)
    OPEN_STAMPED =
        2, // of a destination: and they come from such a source, so that their stamps are looked at
};

// What a LINK asks of an agent for the connections of a session.
enum link_way {
    LINK_EXPECT = 0,
    LINK_DIAL = 1,   // dial the addresses
    LINK_INSIDE = 2, // dial inside ssh, by the program that the agent was started with: no words of a message
                     // ever name a program
};

// How a PROBLEM is counted among the job's entries.
enum problem_count {
    PROBLEM_RECORDED = 0, // the entry has its record in ENTRIES_DONE, which counts it
    PROBLEM_RETRY = 1,    // not settled: it will be in the retry segment
    PROBLEM_UNLISTED = 2, // it is in no segment: one entry more, of the outcome that the class says
};

struct blob {
    const uint8_t *bytes; // not terminated
    size_t len;
};

enum message_type {
#define M(number, NAME, name) MESSAGE_##NAME = number,
    MESSAGES(M)
#undef M
        MESSAGE_TYPES,
};

typedef uint8_t msg_u8;
typedef uint16_t msg_u16;
typedef uint32_t msg_u32;
typedef uint64_t msg_u64;
typedef struct job_id msg_id;
typedef struct digest msg_digest;
typedef struct secret msg_secret;

#define F(type, name) msg_##type name;
#define B(name, max)  struct blob name;
#define M(number, NAME, name) \
    struct msg_##name {       \
        MSG_##NAME(F, B)      \
    };
MESSAGES(M)
#undef M
#undef B
#undef F

struct message {
    enum message_type type;
    union {
#define M(number, NAME, name) struct msg_##name name;
        MESSAGES(M)
#undef M
    };
};

const char *message_name(unsigned type); // "LEASE", or "?" for an unknown one

// Encodes head and fields. Bytes written, or -EMSGSIZE: a blob over its limit, or no room.
MUST_CHECK int64_t message_encode(const struct message *m, void *out, size_t out_len);
// The head: length of the fields and type. -EMSGSIZE when the length is over `max`.
MUST_CHECK int message_head(const uint8_t in[MESSAGE_HEAD_BYTES], size_t max, uint32_t *len, uint16_t *type);
// Decodes the fields of a message of `type`. -EPROTO: unknown type, a field missing, bytes left over, a blob
// over its limit.
MUST_CHECK int message_decode(uint16_t type, const void *fields, size_t len, struct message *out);

struct blob blob_of(const void *bytes, size_t len);
struct blob blob_text(const char *text);
// Copies into a terminated string; cut when too long.
void blob_string(const struct blob *b, char *out, size_t out_len);
// A terminated copy, the caller's to free. NULL: out of memory.
MUST_CHECK char *blob_copy(const struct blob *b);

// An error value as FAIL, and back (texts are escaped again when they come from outside).
void message_from_err(const struct err *err, struct message *out); // blobs point into err
void message_to_err(const struct msg_fail *fail, struct err *out);

#endif
