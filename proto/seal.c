#include "proto/seal.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/kdf.h>
#include <openssl/params.h>

#include "proto/wire.h"

enum { IV_BYTES = 12 };

struct seal {
    EVP_CIPHER_CTX *ctx; // keeps the cipher and, from generation to generation, the key
    struct secret base;
    uint64_t generation; // of the key in ctx, when keyed
    bool keyed;
    uint64_t closed; // messages below this number are not to be closed (again)
};

static OSSL_PARAM octets(const char *name, const void *bytes, size_t len)
{
    // The parameter is only read, its type does not say so.
    return OSSL_PARAM_construct_octet_string(name, (void *)(uintptr_t)bytes, len);
}

static int derive(EVP_KDF_CTX *ctx, const OSSL_PARAM *params, struct secret *out)
{
    struct secret derived;
    int ok = EVP_KDF_derive(ctx, derived.bytes, sizeof(derived.bytes), params);
    if (ok > 0)
        *out = derived;
    seal_wipe(&derived, sizeof(derived));
    return ok > 0 ? 0 : -EIO;
}

int seal_derive(const struct secret *secret, const void *salt, size_t salt_len, const void *info,
                size_t info_len, struct secret *out)
{
    char digest[] = "SHA256";
    OSSL_PARAM params[5];
    size_t count = 0;
    params[count++] = OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, digest, 0);
    params[count++] = octets(OSSL_KDF_PARAM_KEY, secret->bytes, sizeof(secret->bytes));
    if (salt_len > 0)
        params[count++] = octets(OSSL_KDF_PARAM_SALT, salt, salt_len);
    if (info_len > 0)
        params[count++] = octets(OSSL_KDF_PARAM_INFO, info, info_len);
    params[count] = OSSL_PARAM_construct_end();

    ERR_set_mark(); // nothing of ours stays in the thread's error queue, which TLS looks at
    EVP_KDF *kdf = EVP_KDF_fetch(NULL, OSSL_KDF_NAME_HKDF, NULL);
    EVP_KDF_CTX *ctx = kdf != NULL ? EVP_KDF_CTX_new(kdf) : NULL;
    int ret = ctx != NULL ? derive(ctx, params, out) : -EIO;
    EVP_KDF_CTX_free(ctx);
    EVP_KDF_free(kdf);
    ERR_pop_to_mark();
    return ret;
}

int seal_proof(const struct secret *secret, const void *bytes, size_t len, uint8_t out[PROOF_BYTES])
{
    uint8_t mac[PROOF_BYTES];
    size_t written = 0;
    ERR_set_mark();
    const unsigned char *made = EVP_Q_mac(NULL, OSSL_MAC_NAME_HMAC, NULL, "SHA256", NULL, secret->bytes,
                                          sizeof(secret->bytes), bytes, len, mac, sizeof(mac), &written);
    ERR_pop_to_mark();
    if (made == NULL || written != sizeof(mac))
        return -EIO;
    memcpy(out, mac, sizeof(mac));
    return 0;
}

bool seal_proof_equal(const uint8_t a[PROOF_BYTES], const uint8_t b[PROOF_BYTES])
{
    return CRYPTO_memcmp(a, b, PROOF_BYTES) == 0;
}

void seal_wipe(void *bytes, size_t len)
{
    OPENSSL_cleanse(bytes, len);
}

// Gives ctx its cipher; the key comes with the first message.
static bool ctx_start(EVP_CIPHER_CTX *ctx)
{
    EVP_CIPHER *cipher = EVP_CIPHER_fetch(NULL, "AES-256-GCM", NULL);
    bool ok = cipher != NULL && EVP_CipherInit_ex2(ctx, cipher, NULL, NULL, 1, NULL) > 0;
    EVP_CIPHER_free(cipher); // ctx holds a reference of its own
    return ok;
}

int seal_new(const struct secret *key, struct seal **out)
{
    struct seal *s = calloc(1, sizeof(*s));
    if (s == NULL)
        return -ENOMEM;
    s->base = *key;
    ERR_set_mark();
    s->ctx = EVP_CIPHER_CTX_new();
    bool ok = s->ctx != NULL && ctx_start(s->ctx);
    ERR_pop_to_mark();
    if (!ok) {
        seal_free(s);
        return -EIO;
    }
    *out = s;
    return 0;
}

void seal_free(struct seal *s)
{
    if (s == NULL)
        return;
    EVP_CIPHER_CTX_free(s->ctx); // wipes its key schedule
    seal_wipe(s, sizeof(*s));
    free(s);
}

// Makes ctx hold the key of `generation`. Once in FRAMES_PER_KEY messages.
static int key_change(struct seal *s, uint64_t generation)
{
    static const char label[] = "penstock rekey";
    uint8_t info[sizeof(label) - 1 + sizeof(generation)];
    struct wire_writer w;
    wire_writer_init(&w, info, sizeof(info));
    wire_put_bytes(&w, label, sizeof(label) - 1);
    wire_put_u64(&w, generation);
    assert(wire_written(&w) == (int64_t)sizeof(info));
    struct secret key;
    int ret = seal_derive(&s->base, NULL, 0, info, sizeof(info), &key);
    if (ret < 0)
        return ret;
    s->keyed = EVP_CipherInit_ex2(s->ctx, NULL, key.bytes, NULL, -1, NULL) > 0;
    s->generation = generation;
    seal_wipe(&key, sizeof(key));
    return s->keyed ? 0 : -EIO;
}

// Everything of message n up to its tag: key, nonce, additional data, and buf enciphered or deciphered in
// place.
static int message_run(struct seal *s, uint64_t n, bool closing, const void *head, size_t head_len, void *buf,
                       size_t len)
{
    if (head_len > INT_MAX || len > INT_MAX)
        return -EMSGSIZE;
    if (!s->keyed || s->generation != n / FRAMES_PER_KEY) {
        int ret = key_change(s, n / FRAMES_PER_KEY);
        if (ret < 0)
            return ret;
    }
    uint8_t iv[IV_BYTES];
    struct wire_writer w;
    wire_writer_init(&w, iv, sizeof(iv));
    wire_put_zeros(&w, sizeof(iv) - sizeof(n));
    wire_put_u64(&w, n);
    assert(wire_written(&w) == IV_BYTES);
    int done = 0;
    if (EVP_CipherInit_ex2(s->ctx, NULL, NULL, iv, closing, NULL) <= 0)
        return -EIO;
    if (head_len > 0 && EVP_CipherUpdate(s->ctx, NULL, &done, head, (int)head_len) <= 0)
        return -EIO;
    if (len > 0 && (EVP_CipherUpdate(s->ctx, buf, &done, buf, (int)len) <= 0 || done != (int)len))
        return -EIO;
    return 0;
}

static int message_close(struct seal *s, uint64_t n, const void *head, size_t head_len, void *buf, size_t len,
                         uint8_t tag[FRAME_TAG_BYTES])
{
    int ret = message_run(s, n, true, head, head_len, buf, len);
    if (ret < 0)
        return ret;
    uint8_t none[16];
    int done = 0;
    if (EVP_CipherFinal_ex(s->ctx, none, &done) <= 0 || done != 0)
        return -EIO;
    return EVP_CIPHER_CTX_ctrl(s->ctx, EVP_CTRL_AEAD_GET_TAG, FRAME_TAG_BYTES, tag) > 0 ? 0 : -EIO;
}

static int message_open(struct seal *s, uint64_t n, const void *head, size_t head_len, void *buf, size_t len,
                        const uint8_t tag[FRAME_TAG_BYTES])
{
    int ret = message_run(s, n, false, head, head_len, buf, len);
    if (ret < 0)
        return ret;
    uint8_t expected[FRAME_TAG_BYTES], none[16];
    memcpy(expected, tag, sizeof(expected));
    int done = 0;
    if (EVP_CIPHER_CTX_ctrl(s->ctx, EVP_CTRL_AEAD_SET_TAG, sizeof(expected), expected) <= 0)
        return -EIO;
    return EVP_CipherFinal_ex(s->ctx, none, &done) > 0 ? 0 : -EBADMSG;
}

int seal_close(struct seal *s, uint64_t n, const void *head, size_t head_len, void *buf, size_t len,
               uint8_t tag[FRAME_TAG_BYTES])
{
    if (n < s->closed || n == UINT64_MAX)
        return -EINVAL;
    s->closed = n + 1; // whatever comes of it: bytes under this nonce may have gone into buf
    ERR_set_mark();
    int ret = message_close(s, n, head, head_len, buf, len, tag);
    ERR_pop_to_mark();
    return ret;
}

int seal_open(struct seal *s, uint64_t n, const void *head, size_t head_len, void *buf, size_t len,
              const uint8_t tag[FRAME_TAG_BYTES])
{
    ERR_set_mark();
    int ret = message_open(s, n, head, head_len, buf, len, tag);
    ERR_pop_to_mark();
    return ret;
}
