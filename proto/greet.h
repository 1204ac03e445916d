// How a connection begins, before anything else is believed.
//
// Every connection, whatever it carries, opens with a clear preamble by which the listener finds the job.
// Then:
// - control: TLS 1.3 with a pre-shared key (mover/tls.h), the coordinator being the client whoever dialled;
// - data and peer: three messages by which both ends prove that they know the job secret,
//     dialler -> acceptor   ask    {session, stream, attempt, nonce}
//     acceptor -> dialler   answer {nonce, proof}
//     dialler -> acceptor   proof
//   Each proof is an HMAC under a key derived from the secret, over the preamble and all that was said before
//   and the speaker's role ("dial" or "accept"), so that no side can be shown its own words.
// The keys of the two directions are derived from the secret with both nonces as salt (greet_keys).
#ifndef PENSTOCK_PROTO_GREET_H
#define PENSTOCK_PROTO_GREET_H

#include "proto/base.h"
#include "proto/limits.h"
#include "proto/seal.h"

enum greet_kind {
    GREET_CONTROL = 1,
    GREET_PEER = 2, // manifest segments and need answers between two agents
    GREET_DATA = 3, // one stream
};

struct preamble {
    enum greet_kind kind;
    uint8_t version;   // of the wire; the listener keeps it even where it is not its own, to say so
    struct job_id job; // control: the job that the coordinator starts or comes back to
};

enum { PREAMBLE_MAGIC_BYTES = 8 };

// 40 bytes: "PENSTOCK" (8) | u8 version | u8 kind | u16 zero | u32 zero | job id (16) | u64 XXH3-64 of bytes
// 0..31
void preamble_encode(const struct preamble *p, uint8_t out[PREAMBLE_BYTES]);
// -EBADMSG: not a preamble; -EPROTO: kind or reserved bytes; a foreign version is returned as it is with 0,
// and then kind and reserved bytes, which may mean something else there, are not looked at: test the version
// first.
MUST_CHECK int preamble_decode(const uint8_t in[PREAMBLE_BYTES], struct preamble *out);
// Whether these are the first bytes of a preamble. No control message begins with them: as a length they are
// over its limit.
bool preamble_begins(const uint8_t in[PREAMBLE_MAGIC_BYTES]);

enum {
    GREET_ASK_BYTES = 48,
    GREET_ANSWER_BYTES = NONCE_BYTES + PROOF_BYTES,
    GREET_PROOF_BYTES = PROOF_BYTES
};

struct greet_ask {
    uint32_t session;
    uint32_t stream;  // 0 for a peer connection
    uint32_t attempt; // counts the dials of this stream: a later attempt replaces an earlier one
    uint8_t nonce[NONCE_BYTES];
};

// 48 bytes: u32 session | u32 stream | u32 attempt | u32 zero | nonce (32)
void greet_ask_encode(const struct greet_ask *ask, uint8_t out[GREET_ASK_BYTES]);
// -EPROTO: reserved bytes; -EMSGSIZE: a stream that is not below STREAMS_MAX.
MUST_CHECK int greet_ask_decode(const uint8_t in[GREET_ASK_BYTES], struct greet_ask *out);

// All that was said on a connection so far; both ends fill the same.
struct greeting {
    uint8_t preamble[PREAMBLE_BYTES];
    uint8_t ask[GREET_ASK_BYTES];
    uint8_t acceptor_nonce[NONCE_BYTES];
};

// The proof of one side: HMAC(HKDF(secret, salt "", info "penstock proof"), role || preamble || ask ||
// acceptor_nonce) with role the 6 bytes "accept" or "dial\0\0".
MUST_CHECK int greet_proof(const struct secret *job_secret, const struct greeting *g, bool acceptor,
                           uint8_t out[PROOF_BYTES]);

// The keys of the two directions of the connection: HKDF(secret, salt = dialler nonce || acceptor nonce,
// info = "penstock key " || "dial" or "accept" (who writes) || preamble kind as u8).
MUST_CHECK int greet_keys(const struct secret *job_secret, const struct greeting *g,
                          struct secret *dialler_writes, struct secret *acceptor_writes);

#endif
