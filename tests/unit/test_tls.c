#include "mover/tls.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <CUnit/CUnit.h>

#include "proto/limits.h"
#include "tests/unit/tls_kit.h"

enum { ROUNDS_MAX = 20 };

struct pair {
    struct key keys[2];
    struct key_ring ring;
    struct tls *client, *server;
    int client_rc, server_rc;
    char client_why[128], server_why[128];
};

// Two ends; the server knows "one" and "two".
static struct pair *pair_new(struct key client)
{
    struct pair *p = calloc(1, sizeof(*p));
    CU_ASSERT_PTR_NOT_NULL_FATAL(p);
    p->keys[0] = kit_key("one", 1);
    p->keys[1] = kit_key("two", 2);
    p->ring = (struct key_ring){.keys = p->keys, .count = 2};
    CU_ASSERT_EQUAL_FATAL(tls_client_new(&client, &p->client), 0);
    CU_ASSERT_EQUAL_FATAL(tls_server_new(&p->ring, &p->server), 0);
    return p;
}

static void pair_free(struct pair *p)
{
    tls_free(p->client);
    tls_free(p->server);
    free(p);
}

// Carries the handshake on until both ends are done or one has failed.
static void pair_shake(struct pair *p, size_t step)
{
    for (int i = 0; i < ROUNDS_MAX; i++) {
        if (p->client_rc == 0)
            p->client_rc = tls_handshake(p->client, p->client_why);
        kit_carry(p->client, p->server, step);
        if (p->server_rc == 0)
            p->server_rc = tls_handshake(p->server, p->server_why);
        kit_carry(p->server, p->client, step);
    }
}

static void test_good_pair(void)
{
    static const char *const names[] = {"one", "two"};
    for (uint8_t i = 0; i < 2; i++) {
        struct pair *p = pair_new(kit_key(names[i], (uint8_t)(i + 1)));
        CU_ASSERT_STRING_EQUAL(tls_peer_name(p->server), "");
        pair_shake(p, 4096);
        CU_ASSERT_EQUAL(p->client_rc, 1);
        CU_ASSERT_EQUAL(p->server_rc, 1);
        CU_ASSERT_STRING_EQUAL(tls_peer_name(p->server), names[i]);
        CU_ASSERT_STRING_EQUAL(tls_peer_name(p->client), names[i]);
        CU_ASSERT_EQUAL(tls_handshake(p->server, p->server_why), 1);
        pair_free(p);
    }
}

// Sends `len` bytes one way and expects them there.
static void expect_carried(struct tls *from, struct tls *to, size_t len)
{
    uint8_t *sent = malloc(len), *came = malloc(len);
    CU_ASSERT_PTR_NOT_NULL_FATAL(sent);
    CU_ASSERT_PTR_NOT_NULL_FATAL(came);
    for (size_t i = 0; i < len; i++)
        sent[i] = (uint8_t)(i * 7 + i / 251);
    CU_ASSERT_EQUAL(tls_write(from, sent, len), 0);
    CU_ASSERT(kit_carry(from, to, 1000) > len);
    size_t got = 0;
    int64_t n;
    while (got < len && (n = tls_read(to, came + got, len - got)) > 0)
        got += (size_t)n;
    CU_ASSERT_EQUAL(got, len);
    CU_ASSERT_EQUAL(memcmp(sent, came, len), 0);
    CU_ASSERT_EQUAL(tls_read(to, came, 1), 0);
    free(sent);
    free(came);
}

static void test_data_both_ways(void)
{
    static const size_t lens[] = {1, 100, 16 * KIB, 16 * KIB + 1, MIB};
    struct pair *p = pair_new(kit_key("one", 1));
    pair_shake(p, 4096);
    for (size_t i = 0; i < ARRAY_LEN(lens); i++) {
        expect_carried(p->client, p->server, lens[i]);
        expect_carried(p->server, p->client, lens[i]);
    }
    CU_ASSERT_EQUAL(tls_write(p->client, NULL, 0), 0);
    CU_ASSERT_EQUAL(kit_carry(p->client, p->server, 4096), 0);
    pair_free(p);
}

static void test_close_in_order(void)
{
    struct pair *p = pair_new(kit_key("one", 1));
    uint8_t byte;
    pair_shake(p, 4096);
    CU_ASSERT_EQUAL(tls_write(p->client, "x", 1), 0);
    tls_close(p->client);
    kit_carry(p->client, p->server, 4096);
    CU_ASSERT_EQUAL(tls_read(p->server, &byte, 1), 1);
    CU_ASSERT_EQUAL(tls_read(p->server, &byte, 1), -ENODATA);
    CU_ASSERT_EQUAL(tls_read(p->server, &byte, 1), -ENODATA);
    pair_free(p);
}

static void test_byte_by_byte(void)
{
    struct pair *p = pair_new(kit_key("two", 2));
    uint8_t byte;
    for (int i = 0; i < 4000 && (p->client_rc == 0 || p->server_rc == 0); i++) {
        if (p->client_rc == 0)
            p->client_rc = tls_handshake(p->client, p->client_why);
        if (p->server_rc == 0)
            p->server_rc = tls_handshake(p->server, p->server_why);
        int64_t n = tls_get_wire(p->client, &byte, 1);
        CU_ASSERT_EQUAL(n > 0 ? tls_put_wire(p->server, &byte, 1) : 0, 0);
        n = tls_get_wire(p->server, &byte, 1);
        CU_ASSERT_EQUAL(n > 0 ? tls_put_wire(p->client, &byte, 1) : 0, 0);
    }
    CU_ASSERT_EQUAL(p->client_rc, 1);
    CU_ASSERT_EQUAL(p->server_rc, 1);
    pair_free(p);
}

// Nothing that could be resumed or replayed is handed out: after the handshake the server has nothing to say.
static void test_no_tickets(void)
{
    struct pair *p = pair_new(kit_key("one", 1));
    uint8_t byte;
    for (int i = 0; i < ROUNDS_MAX && p->server_rc == 0; i++) {
        if (p->client_rc == 0)
            p->client_rc = tls_handshake(p->client, p->client_why);
        kit_carry(p->client, p->server, 4096);
        p->server_rc = tls_handshake(p->server, p->server_why);
        if (p->server_rc == 0)
            kit_carry(p->server, p->client, 4096);
    }
    CU_ASSERT_EQUAL(p->server_rc, 1);
    CU_ASSERT_EQUAL(tls_get_wire(p->server, &byte, 1), 0);
    pair_free(p);
}

// What an unknown name and a wrong secret look like from outside: the last words of the server.
static size_t refused_words(struct key key, uint32_t known, uint8_t *words, size_t len)
{
    struct pair *p = pair_new(key);
    p->ring.count = known;
    p->client_rc = tls_handshake(p->client, p->client_why);
    kit_carry(p->client, p->server, 4096);
    p->server_rc = tls_handshake(p->server, p->server_why);
    CU_ASSERT_EQUAL(p->server_rc, -EACCES);
    CU_ASSERT_STRING_EQUAL(tls_peer_name(p->server), "");
    CU_ASSERT_PTR_NOT_NULL(strstr(p->server_why, "unknown here, or its secret differs"));
    CU_ASSERT_EQUAL(tls_handshake(p->server, p->server_why), -EACCES);
    int64_t n = tls_get_wire(p->server, words, len);
    CU_ASSERT(n > 0);
    CU_ASSERT_EQUAL(tls_put_wire(p->client, words, (size_t)n), 0);
    CU_ASSERT_EQUAL(tls_handshake(p->client, p->client_why), -EACCES);
    CU_ASSERT_PTR_NOT_NULL(strstr(p->client_why, "unknown there, or its secret differs"));
    CU_ASSERT_PTR_NOT_NULL(strstr(p->client_why, key.name));
    pair_free(p);
    return n > 0 ? (size_t)n : 0;
}

static void test_wrong_key(void)
{
    static const struct {
        const char *name;
        uint8_t first;
        uint32_t known;
    } cases[] = {{"one", 2, 2},   {"two", 1, 2},  {"three", 1, 2},
                 {"three", 1, 1}, {"one ", 1, 2}, {"on", 1, 2}};
    uint8_t words[ARRAY_LEN(cases)][64];
    size_t lens[ARRAY_LEN(cases)];
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        lens[i] =
            refused_words(kit_key(cases[i].name, cases[i].first), cases[i].known, words[i], sizeof(words[i]));
        CU_ASSERT_EQUAL(lens[i], lens[0]);
        CU_ASSERT_EQUAL(memcmp(words[i], words[0], lens[0]), 0);
    }
}

static void expect_garbage_refused(const void *bytes, size_t len)
{
    struct key keys[] = {kit_key("one", 1)};
    struct key_ring ring = {.keys = keys, .count = 1};
    struct tls *ends[2];
    CU_ASSERT_EQUAL_FATAL(tls_server_new(&ring, &ends[0]), 0);
    CU_ASSERT_EQUAL_FATAL(tls_client_new(&keys[0], &ends[1]), 0);
    for (size_t i = 0; i < ARRAY_LEN(ends); i++) {
        char why[128] = "";
        uint8_t byte;
        CU_ASSERT_EQUAL(tls_handshake(ends[i], why), 0);
        CU_ASSERT_EQUAL(tls_put_wire(ends[i], bytes, len), 0);
        CU_ASSERT_EQUAL(tls_handshake(ends[i], why), -EACCES);
        CU_ASSERT_NOT_EQUAL(why[0], '\0');
        CU_ASSERT_EQUAL(tls_read(ends[i], &byte, 1), -EBADMSG);
        tls_free(ends[i]);
    }
}

static void test_garbage(void)
{
    static const char http[] = "GET / HTTP/1.1\r\nHost: here\r\n\r\n";
    static const char ssh[] = "SSH-2.0-OpenSSH_9.2p1\r\n";
    static uint8_t zeros[70000];
    uint8_t ones[300];
    memset(ones, 0xff, sizeof(ones));
    expect_garbage_refused(http, sizeof(http) - 1);
    expect_garbage_refused(ssh, sizeof(ssh) - 1);
    expect_garbage_refused(zeros, sizeof(zeros));
    expect_garbage_refused(ones, sizeof(ones));
}

// A handshake that stops anywhere is neither done nor failed.
static void test_truncated_hello(void)
{
    uint8_t hello[1024];
    struct key key = kit_key("one", 1);
    struct tls *client;
    char why[128] = "";
    CU_ASSERT_EQUAL_FATAL(tls_client_new(&key, &client), 0);
    CU_ASSERT_EQUAL(tls_handshake(client, why), 0);
    int64_t len = tls_get_wire(client, hello, sizeof(hello));
    CU_ASSERT_FATAL(len > 100);
    struct key_ring ring = {.keys = &key, .count = 1};
    for (int64_t cut = 0; cut < len; cut += 7) {
        struct tls *server;
        uint8_t byte;
        CU_ASSERT_EQUAL_FATAL(tls_server_new(&ring, &server), 0);
        CU_ASSERT_EQUAL(tls_put_wire(server, hello, (size_t)cut), 0);
        CU_ASSERT_EQUAL(tls_handshake(server, why), 0);
        CU_ASSERT_EQUAL(tls_get_wire(server, &byte, 1), 0);
        CU_ASSERT_EQUAL(tls_read(server, &byte, 1), 0);
        tls_free(server);
    }
    tls_free(client);
}

static void test_flipped_bit(void)
{
    for (size_t at = 0; at < 40; at += 3) {
        struct pair *p = pair_new(kit_key("one", 1));
        uint8_t bytes[256], out[64];
        pair_shake(p, 4096);
        CU_ASSERT_EQUAL(tls_write(p->client, "a message of some length", 24), 0);
        int64_t n = tls_get_wire(p->client, bytes, sizeof(bytes));
        CU_ASSERT_FATAL(n > 40);
        if (at < 3 || at > 4) { // a longer record only waits for its rest
            bytes[at] ^= 1;
            CU_ASSERT_EQUAL(tls_put_wire(p->server, bytes, (size_t)n), 0);
            CU_ASSERT_EQUAL(tls_read(p->server, out, sizeof(out)), -EBADMSG);
            CU_ASSERT_EQUAL(tls_write(p->server, "x", 1), -EIO);
        }
        pair_free(p);
    }
}

static void test_replayed_record(void)
{
    struct pair *p = pair_new(kit_key("one", 1));
    uint8_t bytes[256], out[64];
    pair_shake(p, 4096);
    CU_ASSERT_EQUAL(tls_write(p->client, "once", 4), 0);
    int64_t n = tls_get_wire(p->client, bytes, sizeof(bytes));
    CU_ASSERT_FATAL(n > 0);
    CU_ASSERT_EQUAL(tls_put_wire(p->server, bytes, (size_t)n), 0);
    CU_ASSERT_EQUAL(tls_read(p->server, out, sizeof(out)), 4);
    CU_ASSERT_EQUAL(tls_put_wire(p->server, bytes, (size_t)n), 0);
    CU_ASSERT_EQUAL(tls_read(p->server, out, sizeof(out)), -EBADMSG);
    pair_free(p);
}

// A ClientHello recorded from an honest client opens nothing: its binder fits, but who replays it cannot go
// on.
static void test_replayed_hello(void)
{
    struct pair *p = pair_new(kit_key("one", 1));
    uint8_t hello[1024], byte;
    CU_ASSERT_EQUAL(tls_handshake(p->client, p->client_why), 0);
    int64_t n = tls_get_wire(p->client, hello, sizeof(hello));
    CU_ASSERT_FATAL(n > 0);
    CU_ASSERT_EQUAL(tls_put_wire(p->server, hello, (size_t)n), 0);
    CU_ASSERT_EQUAL(tls_handshake(p->server, p->server_why), 0);
    CU_ASSERT_EQUAL(tls_put_wire(p->server, hello, (size_t)n), 0);
    CU_ASSERT_EQUAL(tls_handshake(p->server, p->server_why), -EACCES);
    CU_ASSERT_EQUAL(tls_read(p->server, &byte, 1), -EBADMSG);
    pair_free(p);
}

// A server's words shown to itself, and a client's: both refused.
static void test_reflected(void)
{
    struct pair *p = pair_new(kit_key("one", 1));
    CU_ASSERT_EQUAL(tls_handshake(p->client, p->client_why), 0);
    kit_carry(p->client, p->client, 4096);
    CU_ASSERT_EQUAL(tls_handshake(p->client, p->client_why), -EACCES);
    pair_free(p);
}

void suite_tls(void)
{
    CU_pSuite suite = CU_add_suite("tls", NULL, NULL);
    CU_add_test(suite, "good_pair", test_good_pair);
    CU_add_test(suite, "data_both_ways", test_data_both_ways);
    CU_add_test(suite, "close_in_order", test_close_in_order);
    CU_add_test(suite, "byte_by_byte", test_byte_by_byte);
    CU_add_test(suite, "no_tickets", test_no_tickets);
    CU_add_test(suite, "wrong_key", test_wrong_key);
    CU_add_test(suite, "garbage", test_garbage);
    CU_add_test(suite, "truncated_hello", test_truncated_hello);
    CU_add_test(suite, "flipped_bit", test_flipped_bit);
    CU_add_test(suite, "replayed_record", test_replayed_record);
    CU_add_test(suite, "replayed_hello", test_replayed_hello);
    CU_add_test(suite, "reflected", test_reflected);
}
