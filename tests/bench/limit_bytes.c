// Digests and ciphers of the yardstick: the libraries that the product uses, called directly.
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <openssl/evp.h>
#define XXH_STATIC_LINKING_ONLY
#include <xxhash.h>
#if defined(__x86_64__) && __has_include(<xxh_x86dispatch.h>)
#include <xxh_x86dispatch.h>
#endif

#include "tests/bench/limit.h"

struct limit_leaves {
    XXH3_state_t state; // of the leaf that is open
    size_t open_bytes;
    uint32_t count;
    struct limit_digest digests[LIMIT_UNIT_BYTES_MAX / LIMIT_LEAF_BYTES];
};

static struct limit_digest canonical(XXH128_hash_t hash)
{
    XXH128_canonical_t bytes;
    struct limit_digest digest;
    XXH128_canonicalFromHash(&bytes, hash);
    memcpy(&digest, &bytes, sizeof(digest));
    return digest;
}

struct limit_digest limit_digest_of(const uint8_t *bytes, size_t len)
{
    return canonical(XXH3_128bits(bytes, len));
}

struct limit_leaves *limit_leaves_new(void)
{
    size_t size = (sizeof(struct limit_leaves) + 63) & ~(size_t)63;
    struct limit_leaves *leaves = aligned_alloc(64, size);
    if (leaves == NULL)
        limit_die("memory", "digests");
    memset(leaves, 0, size);
    return leaves;
}

static void close_leaf(struct limit_leaves *leaves)
{
    leaves->digests[leaves->count++] = canonical(XXH3_128bits_digest(&leaves->state));
    leaves->open_bytes = 0;
}

// A part of a leaf, or all of it.
static void add_to_leaf(struct limit_leaves *leaves, const uint8_t *bytes, size_t len)
{
    if (len == LIMIT_LEAF_BYTES) {
        leaves->digests[leaves->count++] = limit_digest_of(bytes, len);
        return;
    }
    if (leaves->open_bytes == 0)
        XXH3_128bits_reset(&leaves->state);
    XXH3_128bits_update(&leaves->state, bytes, len);
    leaves->open_bytes += len;
    if (leaves->open_bytes == LIMIT_LEAF_BYTES)
        close_leaf(leaves);
}

// A piece is as large as a leaf divided by or times a whole number, so a leaf never ends inside a smaller
// piece.
void limit_leaves_add(struct limit_leaves *leaves, const uint8_t *bytes, size_t len)
{
    for (; len > LIMIT_LEAF_BYTES; bytes += LIMIT_LEAF_BYTES, len -= LIMIT_LEAF_BYTES)
        add_to_leaf(leaves, bytes, LIMIT_LEAF_BYTES);
    if (len > 0)
        add_to_leaf(leaves, bytes, len);
}

const struct limit_digest *limit_leaves_end(struct limit_leaves *leaves, uint32_t *count)
{
    if (leaves->open_bytes > 0)
        close_leaf(leaves);
    *count = leaves->count;
    leaves->count = 0;
    return leaves->digests;
}

struct limit_cipher {
    EVP_CIPHER_CTX *ctx;
};

static void must(int ok)
{
    if (ok <= 0) {
        errno = 0;
        limit_die("cipher", "AES-256-GCM");
    }
}

struct limit_cipher *limit_cipher_new(bool sealing)
{
    static const uint8_t key[32] = "a measure needs no secret: 32 B.";
    struct limit_cipher *c = calloc(1, sizeof(*c));
    if (c == NULL)
        limit_die("memory", "cipher");
    c->ctx = EVP_CIPHER_CTX_new();
    must(EVP_CipherInit_ex(c->ctx, EVP_aes_256_gcm(), NULL, key, NULL, sealing));
    return c;
}

void limit_cipher_begin(struct limit_cipher *c, uint32_t number)
{
    uint8_t nonce[12] = {0};
    memcpy(nonce, &number, sizeof(number));
    must(EVP_CipherInit_ex(c->ctx, NULL, NULL, NULL, nonce, -1));
}

void limit_cipher_run(struct limit_cipher *c, const uint8_t *from, uint8_t *to, size_t len)
{
    int done = 0;
    must(EVP_CipherUpdate(c->ctx, to, &done, from, (int)len));
}

static void finish(struct limit_cipher *c)
{
    uint8_t none[16];
    int done = 0;
    must(EVP_CipherFinal_ex(c->ctx, none, &done));
}

void limit_cipher_seal_end(struct limit_cipher *c, uint8_t tag[LIMIT_TAG_BYTES])
{
    finish(c);
    must(EVP_CIPHER_CTX_ctrl(c->ctx, EVP_CTRL_AEAD_GET_TAG, LIMIT_TAG_BYTES, tag));
}

void limit_cipher_open_end(struct limit_cipher *c, const uint8_t tag[LIMIT_TAG_BYTES])
{
    uint8_t expected[LIMIT_TAG_BYTES];
    memcpy(expected, tag, sizeof(expected));
    must(EVP_CIPHER_CTX_ctrl(c->ctx, EVP_CTRL_AEAD_SET_TAG, LIMIT_TAG_BYTES, expected));
    finish(c);
}
