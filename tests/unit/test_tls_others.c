// Other people's TLS, made with OpenSSL, against ours.
#include "mover/tls.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <CUnit/CUnit.h>
#include <openssl/evp.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include "tests/unit/tls_kit.h"

enum { ROUNDS_MAX = 20 };

struct other {
    SSL_CTX *ctx;
    SSL *ssl;
    struct key key; // of its PSK, when it has one
};

static X509 *certificate_new(EVP_PKEY *key)
{
    X509 *x = X509_new();
    CU_ASSERT_PTR_NOT_NULL_FATAL(x);
    X509_set_version(x, X509_VERSION_3);
    ASN1_INTEGER_set(X509_get_serialNumber(x), 1);
    X509_gmtime_adj(X509_getm_notBefore(x), 0);
    X509_gmtime_adj(X509_getm_notAfter(x), 3600);
    X509_set_pubkey(x, key);
    X509_NAME *name = X509_get_subject_name(x);
    X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, (const unsigned char *)"stranger", -1, -1, 0);
    X509_set_issuer_name(x, name);
    CU_ASSERT_TRUE(X509_sign(x, key, EVP_sha256()) > 0);
    return x;
}

static void other_certify(struct other *o)
{
    EVP_PKEY *key = EVP_EC_gen("P-256");
    CU_ASSERT_PTR_NOT_NULL_FATAL(key);
    X509 *x = certificate_new(key);
    CU_ASSERT_EQUAL(SSL_CTX_use_certificate(o->ctx, x), 1);
    CU_ASSERT_EQUAL(SSL_CTX_use_PrivateKey(o->ctx, key), 1);
    X509_free(x);
    EVP_PKEY_free(key);
}

static unsigned other_psk(SSL *ssl, const char *hint, char *identity, unsigned identity_len,
                          unsigned char *psk, unsigned psk_len)
{
    const struct other *o = SSL_get_app_data(ssl);
    (void)hint;
    CU_ASSERT_FATAL(psk_len >= sizeof(o->key.secret.bytes));
    snprintf(identity, identity_len, "%s", o->key.name);
    memcpy(psk, o->key.secret.bytes, sizeof(o->key.secret.bytes));
    return sizeof(o->key.secret.bytes);
}

static void other_start(struct other *o, bool server)
{
    o->ssl = SSL_new(o->ctx);
    CU_ASSERT_PTR_NOT_NULL_FATAL(o->ssl);
    SSL_set_app_data(o->ssl, o);
    SSL_set_bio(o->ssl, BIO_new(BIO_s_mem()), BIO_new(BIO_s_mem()));
    BIO_set_mem_eof_return(SSL_get_rbio(o->ssl), -1);
    BIO_set_mem_eof_return(SSL_get_wbio(o->ssl), -1);
    if (server)
        SSL_set_accept_state(o->ssl);
    else
        SSL_set_connect_state(o->ssl);
}

static void other_free(struct other *o)
{
    SSL_free(o->ssl);
    SSL_CTX_free(o->ctx);
}

// Shakes hands with ours until that is done or has failed.
static int shake_with(struct other *o, struct tls *ours, char why[128])
{
    uint8_t bytes[4096];
    int rc = 0;
    for (int i = 0; i < ROUNDS_MAX && rc == 0; i++) {
        size_t n;
        int64_t got;
        SSL_do_handshake(o->ssl);
        while (BIO_read_ex(SSL_get_wbio(o->ssl), bytes, sizeof(bytes), &n) > 0)
            CU_ASSERT_EQUAL(tls_put_wire(ours, bytes, n), 0);
        rc = tls_handshake(ours, why);
        while ((got = tls_get_wire(ours, bytes, sizeof(bytes))) > 0)
            BIO_write_ex(SSL_get_rbio(o->ssl), bytes, (size_t)got, &n);
    }
    SSL_do_handshake(o->ssl);
    return rc;
}

static void test_server_with_certificate(void)
{
    struct key key = kit_key("one", 1);
    struct other o = {.ctx = SSL_CTX_new(TLS_method())};
    struct tls *client;
    char why[128] = "";
    uint8_t byte;
    CU_ASSERT_PTR_NOT_NULL_FATAL(o.ctx);
    other_certify(&o);
    other_start(&o, true);
    CU_ASSERT_EQUAL_FATAL(tls_client_new(&key, &client), 0);
    CU_ASSERT_EQUAL(shake_with(&o, client, why), -EACCES);
    CU_ASSERT_PTR_NOT_NULL(strstr(why, "certificate"));
    CU_ASSERT_EQUAL(tls_read(client, &byte, 1), -EBADMSG);
    tls_free(client);
    other_free(&o);
}

// Everything here is a client that might be let in by a careless server.
static void expect_client_refused(struct other *o, const char *words)
{
    struct key keys[] = {kit_key("one", 1)};
    struct key_ring ring = {.keys = keys, .count = 1};
    struct tls *server;
    char why[128] = "";
    other_start(o, false);
    CU_ASSERT_EQUAL_FATAL(tls_server_new(&ring, &server), 0);
    CU_ASSERT_EQUAL(shake_with(o, server, why), -EACCES);
    CU_ASSERT_PTR_NOT_NULL(strstr(why, words));
    CU_ASSERT_FALSE(SSL_is_init_finished(o->ssl));
    tls_free(server);
    other_free(o);
}

static void test_client_without_key(void)
{
    struct other o = {.ctx = SSL_CTX_new(TLS_method())};
    CU_ASSERT_PTR_NOT_NULL_FATAL(o.ctx);
    other_certify(&o);
    expect_client_refused(&o, "no key");
}

static void test_client_of_tls_1_2(void)
{
    struct other o = {.ctx = SSL_CTX_new(TLS_method()), .key = kit_key("one", 1)};
    CU_ASSERT_PTR_NOT_NULL_FATAL(o.ctx);
    SSL_CTX_set_max_proto_version(o.ctx, TLS1_2_VERSION);
    SSL_CTX_set_psk_client_callback(o.ctx, other_psk); // the right one: TLS 1.2 has PSK suites too
    expect_client_refused(&o, "TLS 1.3");
}

static void test_client_of_other_suite(void)
{
    struct other o = {.ctx = SSL_CTX_new(TLS_method()), .key = kit_key("one", 1)};
    CU_ASSERT_PTR_NOT_NULL_FATAL(o.ctx);
    CU_ASSERT_EQUAL(SSL_CTX_set_ciphersuites(o.ctx, "TLS_AES_256_GCM_SHA384"), 1);
    SSL_CTX_set_psk_client_callback(o.ctx, other_psk);
    expect_client_refused(&o, "no cipher suite");
}

// The same, set as it should be, is let in: the refusals above are not for another reason.
static void test_client_of_openssl(void)
{
    struct key keys[] = {kit_key("one", 1)};
    struct key_ring ring = {.keys = keys, .count = 1};
    struct other o = {.ctx = SSL_CTX_new(TLS_method()), .key = keys[0]};
    struct tls *server;
    char why[128] = "";
    CU_ASSERT_PTR_NOT_NULL_FATAL(o.ctx);
    SSL_CTX_set_psk_client_callback(o.ctx, other_psk);
    other_start(&o, false);
    CU_ASSERT_EQUAL_FATAL(tls_server_new(&ring, &server), 0);
    CU_ASSERT_EQUAL(shake_with(&o, server, why), 1);
    CU_ASSERT_TRUE(SSL_is_init_finished(o.ssl));
    CU_ASSERT_STRING_EQUAL(SSL_get_cipher_name(o.ssl), "TLS_AES_128_GCM_SHA256");
    CU_ASSERT_NOT_EQUAL(SSL_get_negotiated_group(o.ssl), 0); // a key exchange: psk_dhe_ke
    CU_ASSERT_STRING_EQUAL(tls_peer_name(server), "one");
    tls_free(server);
    other_free(&o);
}

void suite_tls_others(void)
{
    CU_pSuite suite = CU_add_suite("tls_others", NULL, NULL);
    CU_add_test(suite, "server_with_certificate", test_server_with_certificate);
    CU_add_test(suite, "client_without_key", test_client_without_key);
    CU_add_test(suite, "client_of_tls_1_2", test_client_of_tls_1_2);
    CU_add_test(suite, "client_of_other_suite", test_client_of_other_suite);
    CU_add_test(suite, "client_of_openssl", test_client_of_openssl);
}
