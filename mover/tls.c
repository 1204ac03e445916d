#include "mover/tls.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <openssl/err.h>
#include <openssl/ssl.h>

#include "proto/err.h"
#include "storage/sys.h"

struct tls {
    SSL_CTX *ctx;
    SSL *ssl;
    BIO *in, *out;               // ciphertext, owned by ssl
    const struct key_ring *keys; // server: the lines it accepts
    struct key key;              // client: its own
    char peer[80]; // name of the key; of a client what it claims, escaped, until the handshake is over
    bool server, done, broken;
};

static const char suites[] = "TLS_AES_128_GCM_SHA256";
static const unsigned char suite_id[2] = {0x13, 0x01}; // the same, in RFC 8446 B.4

// A session that stands for an external PSK (RFC 8446 4.2.11). NULL: out of memory.
static SSL_SESSION *session_of(SSL *ssl, const struct secret *secret)
{
    const SSL_CIPHER *cipher = SSL_CIPHER_find(ssl, suite_id);
    SSL_SESSION *session = SSL_SESSION_new();
    if (session != NULL && cipher != NULL &&
        SSL_SESSION_set1_master_key(session, secret->bytes, sizeof(secret->bytes)) > 0 &&
        SSL_SESSION_set_cipher(session, cipher) > 0 &&
        SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION) > 0)
        return session;
    SSL_SESSION_free(session);
    return NULL;
}

// Client: what it offers. A server that asked for another hash in its HelloRetryRequest gets nothing.
static int offer_session(SSL *ssl, const EVP_MD *md, const unsigned char **id, size_t *id_len,
                         SSL_SESSION **out)
{
    struct tls *t = SSL_get_app_data(ssl);
    if (md != NULL && EVP_MD_get_type(md) != NID_sha256)
        return 0;
    SSL_SESSION *session = session_of(ssl, &t->key.secret);
    if (session == NULL)
        return 0;
    *id = (const unsigned char *)t->key.name;
    *id_len = strlen(t->key.name);
    *out = session;
    return 1;
}

// Server: the PSK of an identity. An unknown one gets a secret that nobody knows, so that the handshake fails
// where and how it fails for a wrong secret, and a stranger cannot find out which names exist. Success
// without a session would mean to go on without a PSK.
static int find_session(SSL *ssl, const unsigned char *id, size_t id_len, SSL_SESSION **out)
{
    struct tls *t = SSL_get_app_data(ssl);
    err_escape(t->peer, sizeof(t->peer), id, id_len);
    struct secret secret;
    if (sys_random(secret.bytes, sizeof(secret.bytes)) < 0)
        return 0;
    const struct key *key = key_ring_find(t->keys, (const char *)id, id_len);
    if (key != NULL)
        secret = key->secret;
    *out = session_of(ssl, &secret);
    seal_wipe(&secret, sizeof(secret));
    return *out != NULL;
}

static bool context_set(SSL_CTX *ctx, bool server)
{
    SSL_CTX_set_options(ctx, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_TICKET | SSL_OP_NO_COMPRESSION);
    SSL_CTX_clear_options(ctx, SSL_OP_ALLOW_NO_DHE_KEX); // psk_dhe_ke only, whatever openssl.cnf says
    SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF);
    if (server)
        SSL_CTX_set_psk_find_session_callback(ctx, find_session);
    else
        SSL_CTX_set_psk_use_session_callback(ctx, offer_session);
    // No store: a server that shows a certificate instead of the PSK is refused, whoever signed it.
    SSL_CTX_set_verify(ctx, server ? SSL_VERIFY_NONE : SSL_VERIFY_PEER, NULL);
    return SSL_CTX_set_min_proto_version(ctx, TLS1_3_VERSION) > 0 &&
           SSL_CTX_set_max_proto_version(ctx, TLS1_3_VERSION) > 0 &&
           SSL_CTX_set_ciphersuites(ctx, suites) > 0 && SSL_CTX_set_num_tickets(ctx, 0) > 0 &&
           SSL_CTX_set_max_early_data(ctx, 0) > 0 && SSL_CTX_set_recv_max_early_data(ctx, 0) > 0;
}

static bool wire_set(struct tls *t)
{
    t->in = BIO_new(BIO_s_mem());
    t->out = BIO_new(BIO_s_mem());
    if (t->in == NULL || t->out == NULL) {
        BIO_free(t->in);
        BIO_free(t->out);
        return false;
    }
    SSL_set_bio(t->ssl, t->in, t->out);
    return true;
}

static int tls_new(bool server, struct tls *t)
{
    t->server = server;
    ERR_clear_error();
    t->ctx = SSL_CTX_new(TLS_method());
    if (t->ctx == NULL || !context_set(t->ctx, server))
        return -EIO;
    t->ssl = SSL_new(t->ctx);
    if (t->ssl == NULL || SSL_set_app_data(t->ssl, t) <= 0)
        return -EIO;
    if (!wire_set(t))
        return -ENOMEM;
    if (server)
        SSL_set_accept_state(t->ssl);
    else
        SSL_set_connect_state(t->ssl);
    return 0;
}

static int tls_make(bool server, const struct key *key, const struct key_ring *keys, struct tls **out)
{
    struct tls *t = calloc(1, sizeof(*t));
    if (t == NULL)
        return -ENOMEM;
    t->keys = keys;
    if (key != NULL) {
        t->key = *key;
        memcpy(t->peer, key->name, sizeof(key->name));
    }
    int rc = tls_new(server, t);
    ERR_clear_error();
    if (rc < 0) {
        tls_free(t);
        return rc;
    }
    *out = t;
    return 0;
}

int tls_client_new(const struct key *key, struct tls **out)
{
    return tls_make(false, key, NULL, out);
}

int tls_server_new(const struct key_ring *keys, struct tls **out)
{
    return tls_make(true, NULL, keys, out);
}

void tls_free(struct tls *t)
{
    if (t == NULL)
        return;
    SSL_free(t->ssl);
    SSL_CTX_free(t->ctx);
    seal_wipe(t, sizeof(*t));
    free(t);
}

int tls_put_wire(struct tls *t, const void *bytes, size_t len)
{
    size_t written = 0;
    if (len == 0)
        return 0;
    ERR_clear_error();
    if (BIO_write_ex(t->in, bytes, len, &written) <= 0 || written != len)
        return -ENOMEM;
    return 0;
}

int64_t tls_get_wire(struct tls *t, void *out, size_t len)
{
    size_t got = 0;
    if (len == 0 || BIO_ctrl_pending(t->out) == 0)
        return 0;
    ERR_clear_error();
    return BIO_read_ex(t->out, out, len, &got) > 0 ? (int64_t)got : -EIO;
}

static const char *reason_words(const struct tls *t, int reason)
{
    switch (reason) {
    case SSL_R_BINDER_DOES_NOT_VERIFY:
        return "the key is unknown here, or its secret differs";
    case SSL_R_SSLV3_ALERT_ILLEGAL_PARAMETER:
    case SSL_R_TLSV1_ALERT_DECRYPT_ERROR:
    case SSL_R_TLSV1_ALERT_INTERNAL_ERROR:
        return t->server ? NULL : "the key is unknown there, or its secret differs";
    case SSL_R_NO_SHARED_CIPHER:
        return "the other side has no cipher suite of ours";
    case SSL_R_NO_SUITABLE_SIGNATURE_ALGORITHM:
    case SSL_R_NO_CERTIFICATE_SET:
        return "the other side offered no key";
    case SSL_R_CERTIFICATE_VERIFY_FAILED:
        return "the other side shows a certificate and does not know the key";
    case SSL_R_UNSUPPORTED_PROTOCOL:
    case SSL_R_TLSV1_ALERT_PROTOCOL_VERSION:
        return "the other side does not speak TLS 1.3";
    case SSL_R_WRONG_VERSION_NUMBER:
    case SSL_R_HTTP_REQUEST:
    case SSL_R_HTTPS_PROXY_REQUEST:
    case SSL_R_BAD_RECORD_TYPE:
        return "the other side does not speak TLS";
    default:
        return NULL;
    }
}

// Words for the first error that OpenSSL queued: later ones only follow from it.
static int refuse(struct tls *t, char why[128])
{
    unsigned long code = ERR_peek_error();
    const char *words =
        code != 0 ? reason_words(t, ERR_GET_REASON(code)) : "the other side closed the connection";
    if (words == NULL)
        words = ERR_reason_error_string(code);
    snprintf(why, 128, "%s%s%s%s", t->peer[0] != '\0' ? "key " : "", t->peer, t->peer[0] != '\0' ? ": " : "",
             words != NULL ? words : "the TLS handshake failed");
    ERR_clear_error();
    t->broken = true;
    return -EACCES;
}

int tls_handshake(struct tls *t, char why[128])
{
    if (t->done)
        return 1;
    if (t->broken) {
        snprintf(why, 128, "the TLS handshake has failed");
        return -EACCES;
    }
    ERR_clear_error();
    int rc = SSL_do_handshake(t->ssl);
    if (rc != 1)
        return SSL_get_error(t->ssl, rc) == SSL_ERROR_WANT_READ ? 0 : refuse(t, why);
    if (SSL_session_reused(t->ssl) != 1 || SSL_version(t->ssl) != TLS1_3_VERSION) {
        snprintf(why, 128, "the other side went on without the key");
        t->broken = true;
        return -EACCES;
    }
    t->done = true;
    return 1;
}

const char *tls_peer_name(const struct tls *t)
{
    return t->done ? t->peer : "";
}

int64_t tls_read(struct tls *t, void *out, size_t len)
{
    size_t got = 0;
    if (t->broken)
        return -EBADMSG;
    if (!t->done || len == 0)
        return 0;
    ERR_clear_error();
    int rc = SSL_read_ex(t->ssl, out, len, &got);
    if (rc > 0)
        return (int64_t)got;
    int error = SSL_get_error(t->ssl, rc);
    ERR_clear_error();
    if (error == SSL_ERROR_WANT_READ)
        return 0;
    if (error == SSL_ERROR_ZERO_RETURN)
        return -ENODATA;
    t->broken = true;
    return -EBADMSG;
}

int tls_write(struct tls *t, const void *bytes, size_t len)
{
    size_t written = 0;
    assert(t->done);
    if (t->broken)
        return -EIO;
    if (len == 0)
        return 0;
    ERR_clear_error();
    int rc = SSL_write_ex(t->ssl, bytes, len, &written);
    ERR_clear_error();
    if (rc > 0 && written == len)
        return 0;
    t->broken = true;
    return -EIO;
}

void tls_close(struct tls *t)
{
    if (!t->done || t->broken)
        return;
    ERR_clear_error();
    int rc = SSL_shutdown(t->ssl);
    t->broken = rc < 0;
    ERR_clear_error();
}
