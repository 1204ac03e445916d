// The openssl program at the other end of a real connection: what we speak is TLS 1.3 with a pre-shared key.
#include "mover/channel.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <CUnit/CUnit.h>

#include "mover/launch.h"
#include "mover/net.h"
#include "storage/sys.h"
#include "tests/unit/channel_kit.h"

static const char secret_hex[] =
    "0102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f20"; // kit_key(.., 1)
static const char wrong_hex[] = "0102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f21";
// A PING with cookie 0x6c6c6568 and its PONG, as they stand on the wire.
static const uint8_t ping[] = {8, 0, 0, 0, 3, 0, 'h', 'e', 'l', 'l', 0, 0, 0, 0};

static uint64_t soon(void)
{
    return sys_clock_ns() + UINT64_C(10000000000);
}

static struct launched openssl_run(const char *const args[], size_t count)
{
    char *argv[24] = {NULL};
    struct launched l;
    struct err err;
    CU_ASSERT_FATAL(count < ARRAY_LEN(argv));
    for (size_t i = 0; i < count; i++)
        argv[i] = strdup(args[i]);
    CU_ASSERT_EQUAL_FATAL(launch_spawn(argv, &l, &err), 0);
    for (size_t i = 0; i < count; i++)
        free(argv[i]);
    return l;
}

// `openssl s_client` connects to our server; how the handshake went there.
static int serve_client(const char *name, const char *hex, const char *version, struct launched *l,
                        struct channel **c, struct key_ring *ring)
{
    int fds[NET_LISTEN_MAX];
    uint16_t port;
    struct err err;
    char address[32];
    CU_ASSERT_EQUAL_FATAL(net_listen("127.0.0.1", 0, 0, NET_V4, fds, &port, &err), 1);
    snprintf(address, sizeof(address), "127.0.0.1:%u", port);
    const char *args[] = {"openssl", "s_client",      version, "-connect", address,      "-psk",
                          hex,       "-psk_identity", name,    "-quiet",   "-no_ign_eof"};
    *l = openssl_run(args, ARRAY_LEN(args));
    struct pollfd p = {.fd = fds[0], .events = POLLIN};
    CU_ASSERT_EQUAL_FATAL(poll(&p, 1, 10000), 1);
    int fd = accept4(fds[0], NULL, NULL, SOCK_CLOEXEC);
    close(fds[0]);
    CU_ASSERT_FATAL(fd >= 0);
    *c = kit_server(fd, ring);
    int rc = 0;
    while (rc == 0 && !channel_ready(*c)) {
        CU_ASSERT_TRUE_FATAL(kit_wait(*c, 10000));
        rc = channel_pump(*c);
    }
    return rc;
}

static void test_s_client(void)
{
    struct key key = kit_key("one", 1);
    struct key_ring ring = {.keys = &key, .count = 1};
    struct launched l;
    struct channel *c;
    uint16_t type;
    const uint8_t *fields;
    size_t len;
    uint8_t back[sizeof(ping)];
    CU_ASSERT_EQUAL(serve_client("one", secret_hex, "-tls1_3", &l, &c, &ring), 0);
    CU_ASSERT_STRING_EQUAL(channel_peer_name(c), "one");
    CU_ASSERT_EQUAL(write(l.fd, ping, sizeof(ping)), sizeof(ping));
    CU_ASSERT_EQUAL(kit_next(c, NULL, &type, &fields, &len), 1);
    CU_ASSERT_EQUAL(type, MESSAGE_PING);
    CU_ASSERT_EQUAL(memcmp(fields, ping + 6, len), 0);
    CU_ASSERT_EQUAL(channel_send_bytes(c, MESSAGE_PING, ping + 6, 8), 0);
    CU_ASSERT_EQUAL(net_read_full(l.fd, back, sizeof(back), soon(), -1), 0);
    CU_ASSERT_EQUAL(memcmp(back, ping, sizeof(back)), 0);
    CU_ASSERT_EQUAL(shutdown(l.fd, SHUT_WR), 0); // it says close_notify
    CU_ASSERT_EQUAL(kit_pump_end(c, NULL), -ENODATA);
    channel_free(c);
    launch_end(&l, 5000);
}

static void test_s_client_refused(void)
{
    static const struct {
        const char *name, *hex, *version, *why;
    } cases[] = {
        {"one", wrong_hex, "-tls1_3", "its secret differs"},
        {"two", secret_hex, "-tls1_3", "unknown here"},
        {"one", secret_hex, "-tls1_2", "TLS 1.3"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct key key = kit_key("one", 1);
        struct key_ring ring = {.keys = &key, .count = 1};
        struct launched l;
        struct channel *c;
        CU_ASSERT_EQUAL(serve_client(cases[i].name, cases[i].hex, cases[i].version, &l, &c, &ring), -EACCES);
        CU_ASSERT_PTR_NOT_NULL(strstr(channel_why(c), cases[i].why));
        channel_free(c);
        int status = launch_end(&l, 5000);
        CU_ASSERT_NOT_EQUAL(status, 0);
    }
}

// The port that `openssl s_server` says it accepts at.
static uint16_t server_port(const struct launched *l)
{
    char line[128];
    size_t len = 0;
    static const char start[] = "ACCEPT 127.0.0.1:";
    for (;;) {
        CU_ASSERT_EQUAL_FATAL(net_read_full(l->fd, line + len, 1, soon(), -1), 0);
        if (line[len] != '\n' && len < sizeof(line) - 2) {
            len++;
            continue;
        }
        line[len] = '\0';
        len = 0;
        if (strncmp(line, start, strlen(start)) == 0)
            return (uint16_t)strtoul(line + strlen(start), NULL, 10);
    }
}

static struct channel *client_of(const struct launched *l, const struct key *key)
{
    struct err err;
    int fd = net_connect("127.0.0.1", server_port(l), NET_V4, NULL, soon(), -1, &err);
    CU_ASSERT_FATAL(fd >= 0);
    return kit_client(fd, key);
}

static void test_s_server(void)
{
    const char *args[] = {"openssl", "s_server", "-tls1_3", "-accept",  "127.0.0.1:0",   "-naccept",
                          "1",       "-nocert",  "-psk",    secret_hex, "-psk_identity", "one"};
    struct key key = kit_key("one", 1);
    struct launched l = openssl_run(args, ARRAY_LEN(args));
    struct channel *c = client_of(&l, &key);
    uint16_t type;
    const uint8_t *fields;
    size_t len;
    CU_ASSERT_EQUAL(write(l.fd, ping, sizeof(ping)), sizeof(ping));
    CU_ASSERT_EQUAL(kit_next(c, NULL, &type, &fields, &len), 1); // past the tickets that it hands out
    CU_ASSERT_EQUAL(type, MESSAGE_PING);
    CU_ASSERT_EQUAL(memcmp(fields, ping + 6, len), 0);
    channel_free(c);
    launch_end(&l, 5000);
}

static void test_s_server_refused(void)
{
    const char *args[] = {"openssl", "s_server", "-tls1_3", "-accept", "127.0.0.1:0",   "-naccept",
                          "1",       "-nocert",  "-psk",    wrong_hex, "-psk_identity", "one"};
    struct key key = kit_key("one", 1);
    struct launched l = openssl_run(args, ARRAY_LEN(args));
    struct channel *c = client_of(&l, &key);
    CU_ASSERT_EQUAL(kit_pump_end(c, NULL), -EACCES);
    CU_ASSERT_FALSE(channel_ready(c));
    channel_free(c);
    launch_end(&l, 5000);
}

void suite_tls_program(void)
{
    CU_pSuite suite = CU_add_suite("tls_program", NULL, NULL);
    CU_add_test(suite, "s_client", test_s_client);
    CU_add_test(suite, "s_client_refused", test_s_client_refused);
    CU_add_test(suite, "s_server", test_s_server);
    CU_add_test(suite, "s_server_refused", test_s_server_refused);
}
