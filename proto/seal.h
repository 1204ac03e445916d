// Secrets on the wire: AES-256-GCM in place, keys by HKDF-SHA256, proofs by HMAC-SHA256. The only user of
// libcrypto. Pure: random bytes come from the caller. Every function that can fail inside OpenSSL returns
// -EIO; a tag that does not fit returns -EBADMSG. No call leaves anything in the thread's queue of OpenSSL
// errors.
#ifndef PENSTOCK_PROTO_SEAL_H
#define PENSTOCK_PROTO_SEAL_H

#include "proto/base.h"
#include "proto/limits.h"

enum { SECRET_BYTES = 32, NONCE_BYTES = 32, PROOF_BYTES = 32 };

struct secret {
    uint8_t bytes[SECRET_BYTES];
};

// HKDF-SHA256 (RFC 5869): extract with `salt`, expand with `info`, 32 bytes out.
MUST_CHECK int seal_derive(const struct secret *secret, const void *salt, size_t salt_len, const void *info,
                           size_t info_len, struct secret *out);
// HMAC-SHA256 over `bytes`.
MUST_CHECK int seal_proof(const struct secret *secret, const void *bytes, size_t len,
                          uint8_t out[PROOF_BYTES]);
// Compares in constant time.
bool seal_proof_equal(const uint8_t a[PROOF_BYTES], const uint8_t b[PROOF_BYTES]);
// Overwrites, never optimised away.
void seal_wipe(void *bytes, size_t len);

// One direction of one connection. Message n (counted from 0) is sealed under the key of generation
// n / FRAMES_PER_KEY: generation g's key = HKDF(base key, salt "", info "penstock rekey" || g as u64 LE), so
// both ends change keys together without a word. Nonce: 4 zero bytes, then n as u64 LE. Not thread-safe.
struct seal;
MUST_CHECK int seal_new(const struct secret *key, struct seal **out);
void seal_free(struct seal *s); // wipes the keys; NULL is fine
// Seals buf[0..len) in place as message n; `head` is additional authenticated data. Writes the tag. A nonce
// must never serve twice: -EINVAL, and nothing is touched, unless n is greater than in every call before.
MUST_CHECK int seal_close(struct seal *s, uint64_t n, const void *head, size_t head_len, void *buf,
                          size_t len, uint8_t tag[FRAME_TAG_BYTES]);
// Opens in place, in any order of n. -EBADMSG: the tag does not fit, and the bytes in buf are not to be used.
MUST_CHECK int seal_open(struct seal *s, uint64_t n, const void *head, size_t head_len, void *buf, size_t len,
                         const uint8_t tag[FRAME_TAG_BYTES]);

#endif
