// What only a conversation under TLS can come to.
#include "mover/channel.h"

#include <stdlib.h>
#include <string.h>

#include <CUnit/CUnit.h>

#include "proto/greet.h"
#include "tests/unit/channel_kit.h"

static void test_wrong_key(void)
{
    struct key known = kit_key("one", 1), wrong = kit_key("one", 2);
    struct key_ring ring = {.keys = &known, .count = 1};
    int fds[2];
    kit_pair(fds);
    struct channel *client = kit_client(fds[0], &wrong), *server = kit_server(fds[1], &ring);
    CU_ASSERT_EQUAL(channel_send_bytes(client, 1, "secret", 6), 0); // held, and never sent
    CU_ASSERT_EQUAL(kit_pump_end(server, client), -EACCES);
    CU_ASSERT_EQUAL(channel_pump(server), -EACCES);
    CU_ASSERT_PTR_NOT_NULL(strstr(channel_why(server), "key one"));
    CU_ASSERT_FALSE(channel_ready(server));
    CU_ASSERT_STRING_EQUAL(channel_peer_name(server), "");
    // The client hears of it by the alert.
    CU_ASSERT_EQUAL(kit_pump_end(client, NULL), -EACCES);
    CU_ASSERT_PTR_NOT_NULL(strstr(channel_why(client), "unknown there"));
    channel_free(client);
    channel_free(server);
}

static void test_closed_in_handshake(void)
{
    struct key key = kit_key("one", 1);
    int fds[2];
    kit_pair(fds);
    struct channel *client = kit_client(fds[0], &key);
    CU_ASSERT_EQUAL(channel_events(client) & POLLOUT, POLLOUT); // the client speaks first
    close(fds[1]);
    int rc = kit_pump_end(client, NULL);
    CU_ASSERT_EQUAL(rc, -EACCES);
    CU_ASSERT_PTR_NOT_NULL(strstr(channel_why(client), "closed"));
    channel_free(client);
}

// Waits until both have shaken hands.
static void ends_ready(struct kit_ends *e)
{
    uint16_t type;
    const uint8_t *fields;
    size_t len;
    kit_ends_begin(e, KIT_TLS);
    CU_ASSERT_EQUAL(channel_send_bytes(e->a, 1, "x", 1), 0);
    CU_ASSERT_EQUAL(kit_next(e->b, e->a, &type, &fields, &len), 1);
    CU_ASSERT_TRUE(channel_ready(e->a));
    CU_ASSERT_TRUE(channel_ready(e->b));
}

// A connection that ends without TLS's word for it was cut, perhaps by somebody in between.
static void test_cut(void)
{
    struct kit_ends e;
    ends_ready(&e);
    CU_ASSERT_EQUAL(shutdown(channel_fd_in(e.a), SHUT_RDWR), 0);
    CU_ASSERT_EQUAL(kit_pump_end(e.b, NULL), -ECONNRESET);
    kit_ends_end(&e);
}

static void test_garbage_after_handshake(void)
{
    struct kit_ends e;
    ends_ready(&e);
    uint8_t record[] = {23, 3,  3,  0,  20, 1,  2,  3,  4,  5,  6,  7, 8,
                        9,  10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20};
    CU_ASSERT_EQUAL(write(channel_fd_out(e.a), record, sizeof(record)), sizeof(record));
    CU_ASSERT_EQUAL(kit_pump_end(e.b, NULL), -EBADMSG);
    kit_ends_end(&e);
}

// A listener that speaks another wire version answers with its preamble, in whatever pieces.
static void expect_version(uint8_t version, size_t step, int expected, const char *words)
{
    struct key key = kit_key("one", 1);
    struct preamble p = {.kind = GREET_CONTROL, .version = version};
    uint8_t bytes[PREAMBLE_BYTES];
    int fds[2], rc = 0;
    kit_pair(fds);
    struct channel *client = kit_client(fds[0], &key);
    preamble_encode(&p, bytes);
    size_t at = 0;
    for (; at < sizeof(bytes) && rc == 0; at += step) {
        CU_ASSERT_EQUAL(write(fds[1], bytes + at, step), (ssize_t)step);
        rc = channel_pump(client);
    }
    CU_ASSERT_EQUAL(at, sizeof(bytes)); // told when all of it was there
    CU_ASSERT_EQUAL(rc, expected);
    CU_ASSERT_PTR_NOT_NULL(strstr(channel_why(client), words));
    close(fds[1]);
    channel_free(client);
}

static void test_other_wire_version(void)
{
    expect_version(77, PREAMBLE_BYTES, -EPROTONOSUPPORT, "version 77, this one 1");
    expect_version(77, 1, -EPROTONOSUPPORT, "version 77, this one 1");
    expect_version(0, 8, -EPROTONOSUPPORT, "version 0, this one 1");
    expect_version(WIRE_VERSION, PREAMBLE_BYTES, -EACCES, "does not speak TLS"); // an echo
}

static void test_stranger_on_the_port(void)
{
    static const char *const words[] = {"SSH-2.0-OpenSSH_9.2\r\n", "HTTP/1.1 400 Bad Request\r\n\r\n",
                                        "PENSTOCK but not really: 0123456789012345678901234567890123456789"};
    for (size_t i = 0; i < ARRAY_LEN(words); i++) {
        struct key key = kit_key("one", 1);
        int fds[2];
        kit_pair(fds);
        struct channel *client = kit_client(fds[0], &key);
        CU_ASSERT_EQUAL(write(fds[1], words[i], strlen(words[i])), (ssize_t)strlen(words[i]));
        CU_ASSERT_EQUAL(kit_pump_end(client, NULL), -EACCES);
        CU_ASSERT_PTR_NOT_NULL(strstr(channel_why(client), "does not speak TLS"));
        close(fds[1]);
        channel_free(client);
    }
}

void suite_channel_tls(void)
{
    CU_pSuite suite = CU_add_suite("channel_tls", NULL, NULL);
    CU_add_test(suite, "wrong_key", test_wrong_key);
    CU_add_test(suite, "closed_in_handshake", test_closed_in_handshake);
    CU_add_test(suite, "cut", test_cut);
    CU_add_test(suite, "garbage_after_handshake", test_garbage_after_handshake);
    CU_add_test(suite, "other_wire_version", test_other_wire_version);
    CU_add_test(suite, "stranger_on_the_port", test_stranger_on_the_port);
}
