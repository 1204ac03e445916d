#include "mover/net.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <CUnit/CUnit.h>

#include "proto/limits.h"
#include "proto/wire.h"
#include "tests/unit/scratch.h"

static void test_parse(void)
{
    static const struct {
        const char *text, *host;
        uint16_t port;
    } good[] = {
        {"host:1234", "host", 1234},
        {"host", "host", 7420},
        {"host.example.org:65535", "host.example.org", 65535},
        {"192.0.2.7:80", "192.0.2.7", 80},
        {":8000", "", 8000},
        {":0", "", 0},
        {"[::1]:9", "::1", 9},
        {"[::1]", "::1", 7420},
        {"::1", "::1", 7420},
        {"::", "::", 7420},
        {"2001:db8::7", "2001:db8::7", 7420},
        {"[fe80::1%eth0]:7", "fe80::1%eth0", 7},
        {"fe80::1%eth0", "fe80::1%eth0", 7420},
        {"::ffff:192.0.2.1", "::ffff:192.0.2.1", 7420},
    };
    static const char *const bad[] = {
        "",           ":",       "host:",         "host:x",   "host:65536",  "host:70000",  "host:-1",
        "host:+1",    "host: 1", "host:1 ",       "host:1x",  "host:000001", "a:b:c",       "[::1",
        "::1]",       "[::1]x",  "[::1]:",        "[host]:1", "[]:1",        "[192.0.2.1]", "-oProxy:1",
        "-x",         "a b:1",   "a\x1b:1",       "a/b:1",    "a@b:1",       "::1:99999",   "fe80::1%",
        "[fe80::1%]", "[:::]:1", "host:\xd9\xa1",
    };
    char host[ADDRESS_BYTES_MAX];
    uint16_t port;
    for (size_t i = 0; i < ARRAY_LEN(good); i++) {
        CU_ASSERT_EQUAL(net_parse(good[i].text, 7420, host, sizeof(host), &port), 0);
        CU_ASSERT_STRING_EQUAL(host, good[i].host);
        CU_ASSERT_EQUAL(port, good[i].port);
    }
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        strcpy(host, "before");
        port = 4711;
        CU_ASSERT_EQUAL(net_parse(bad[i], 7420, host, sizeof(host), &port), -EINVAL);
        CU_ASSERT_STRING_EQUAL(host, "before");
        CU_ASSERT_EQUAL(port, 4711);
    }
}

static void test_parse_long(void)
{
    char text[400], host[ADDRESS_BYTES_MAX];
    uint16_t port;
    memset(text, 'a', sizeof(text));
    text[ADDRESS_BYTES_MAX] = '\0';
    CU_ASSERT_EQUAL(net_parse(text, 1, host, sizeof(host), &port), -EINVAL);
    text[ADDRESS_BYTES_MAX - 1] = '\0';
    CU_ASSERT_EQUAL(net_parse(text, 1, host, sizeof(host), &port), 0);
    CU_ASSERT_EQUAL(strlen(host), ADDRESS_BYTES_MAX - 1);
}

static int listen_at(const char *host, uint16_t port, uint16_t *bound)
{
    int fds[NET_LISTEN_MAX];
    struct err err;
    int count = net_listen(host, port, 0, NET_ANY, fds, bound, &err);
    CU_ASSERT_EQUAL_FATAL(count, 1);
    return fds[0];
}

static void close_all(const int *fds, int count)
{
    for (int i = 0; i < count; i++)
        close(fds[i]);
}

static void test_listen_everywhere(void)
{
    int fds[NET_LISTEN_MAX];
    uint16_t bound = 0;
    struct err err;
    int count = net_listen("", 0, 0, NET_ANY, fds, &bound, &err);
    CU_ASSERT_FATAL(count >= 1 && count <= 2); // IPv6 may be off
    CU_ASSERT_NOT_EQUAL(bound, 0);
    for (int i = 0; i < count; i++) {
        char address[ADDRESS_BYTES_MAX], expected[32];
        net_local(fds[i], address, sizeof(address));
        snprintf(expected, sizeof(expected), ":%u", bound);
        CU_ASSERT_STRING_EQUAL(strrchr(address, ':'), expected);
        CU_ASSERT((fcntl(fds[i], F_GETFL) & O_NONBLOCK) != 0);
        CU_ASSERT((fcntl(fds[i], F_GETFD) & FD_CLOEXEC) != 0);
    }
    close_all(fds, count);
}

// Without a name: also where no file says what localhost is.
static void test_listen_loopback(void)
{
    int fds[NET_LISTEN_MAX];
    uint16_t bound = 0;
    struct err err;
    int count = net_listen(NULL, 0, 0, NET_ANY, fds, &bound, &err);
    CU_ASSERT_FATAL(count >= 1 && count <= 2); // IPv6 may be off
    for (int i = 0; i < count; i++) {
        char address[ADDRESS_BYTES_MAX];
        net_local(fds[i], address, sizeof(address));
        CU_ASSERT(strncmp(address, "127.0.0.1:", 10) == 0 || strncmp(address, "[::1]:", 6) == 0);
    }
    close_all(fds, count);
    CU_ASSERT_EQUAL_FATAL(net_listen(NULL, 0, 0, NET_V4, fds, &bound, &err), 1);
    close_all(fds, 1);
}

static void test_listen_family(void)
{
    int fds[NET_LISTEN_MAX];
    uint16_t bound;
    struct err err;
    char address[ADDRESS_BYTES_MAX];
    int count = net_listen("", 0, 0, NET_V4, fds, &bound, &err);
    CU_ASSERT_EQUAL_FATAL(count, 1);
    net_local(fds[0], address, sizeof(address));
    CU_ASSERT_EQUAL(strncmp(address, "0.0.0.0:", 8), 0);
    close_all(fds, count);
    CU_ASSERT_EQUAL(net_listen("127.0.0.1", 0, 0, NET_V6, fds, &bound, &err), -EADDRNOTAVAIL);
}

static void test_listen_in_use(void)
{
    int fds[NET_LISTEN_MAX];
    uint16_t bound, other = 4711;
    struct err err;
    char line[256], expected[64];
    int fd = listen_at("127.0.0.1", 0, &bound);
    CU_ASSERT_EQUAL(net_listen("127.0.0.1", bound, 0, NET_ANY, fds, &other, &err), -EADDRINUSE);
    CU_ASSERT_EQUAL(err.class, ERR_START);
    snprintf(expected, sizeof(expected), "listen on 127.0.0.1:%u: ", bound);
    CU_ASSERT_EQUAL(strncmp(err_line(&err, line, sizeof(line)), expected, strlen(expected)), 0);
    CU_ASSERT_EQUAL(other, 4711);
    close(fd);
}

// Both families or none: whichever the kernel has bound first is closed again.
static void test_listen_half_in_use(void)
{
    static const char *const hosts[] = {"127.0.0.1", "::1"};
    size_t count = access("/proc/net/if_inet6", F_OK) == 0 ? 2 : 1;
    for (size_t i = 0; i < count; i++) {
        int fds[NET_LISTEN_MAX];
        uint16_t bound, other = 4711;
        struct err err;
        int fd = listen_at(hosts[i], 0, &bound);
        uint32_t open_before = scratch_open_files();
        CU_ASSERT_EQUAL(net_listen("", bound, 0, NET_ANY, fds, &other, &err), -EADDRINUSE);
        CU_ASSERT_EQUAL(scratch_open_files(), open_before);
        CU_ASSERT_EQUAL(other, 4711);
        close(fd);
    }
}

static void test_listen_range(void)
{
    int fds[NET_LISTEN_MAX];
    uint16_t low, bound = 0;
    struct err err;
    int fd = listen_at("127.0.0.1", 0, &low);
    if (low < UINT16_MAX - 50) {
        CU_ASSERT_EQUAL_FATAL(net_listen("127.0.0.1", low, (uint16_t)(low + 50), NET_ANY, fds, &bound, &err),
                              1);
        CU_ASSERT(bound > low && bound <= low + 50);
        close(fds[0]);
    }
    close(fd);
}

static void test_listen_bad(void)
{
    int fds[NET_LISTEN_MAX];
    uint16_t bound;
    struct err err;
    // TEST-NET-1 (RFC 5737): no address of this host.
    CU_ASSERT_EQUAL(net_listen("192.0.2.99", 0, 0, NET_ANY, fds, &bound, &err), -EADDRNOTAVAIL);
    CU_ASSERT_PTR_NOT_NULL(strstr(err.path, "192.0.2.99"));
    CU_ASSERT(net_listen("no-such-host.invalid", 0, 0, NET_ANY, fds, &bound, &err) < 0);
    CU_ASSERT_PTR_NOT_NULL(strstr(err.path, "no-such-host.invalid"));
    CU_ASSERT_EQUAL(err.class, ERR_START);
}

static void test_names_of_no_socket(void)
{
    int fds[2];
    char text[ADDRESS_BYTES_MAX];
    CU_ASSERT_EQUAL_FATAL(pipe(fds), 0);
    net_local(fds[0], text, sizeof(text));
    CU_ASSERT_STRING_EQUAL(text, "pipe");
    close_all(fds, 2);
    CU_ASSERT_EQUAL_FATAL(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    net_remote(fds[0], text, sizeof(text));
    CU_ASSERT_STRING_EQUAL(text, "pipe");
    close_all(fds, 2);
    net_local(-1, text, sizeof(text));
    CU_ASSERT_STRING_EQUAL(text, "pipe");
}

static void test_addresses(void)
{
    uint8_t list[4 * KIB];
    int64_t len = net_addresses(7421, list, sizeof(list));
    CU_ASSERT_FATAL(len > 0);
    struct wire_reader r;
    wire_reader_init(&r, list, (size_t)len);
    unsigned count = 0, loopback_at = 0;
    while (wire_left(&r) > 0) {
        size_t text_len;
        char text[ADDRESS_BYTES_MAX], host[ADDRESS_BYTES_MAX];
        uint16_t port = 0;
        const uint8_t *bytes = wire_get_blob(&r, sizeof(text) - 1, &text_len);
        CU_ASSERT_PTR_NOT_NULL_FATAL(bytes);
        memcpy(text, bytes, text_len);
        text[text_len] = '\0';
        CU_ASSERT_EQUAL(net_parse(text, 0, host, sizeof(host), &port), 0);
        CU_ASSERT_EQUAL(port, 7421);
        count++;
        if (strcmp(host, "127.0.0.1") == 0)
            loopback_at = count;
        else if (strcmp(host, "::1") != 0)
            CU_ASSERT_EQUAL(loopback_at, 0); // loopback comes last
    }
    CU_ASSERT_EQUAL(wire_done(&r), 0);
    CU_ASSERT(count >= 1 && count <= ADDRESSES_MAX);
    CU_ASSERT_NOT_EQUAL(loopback_at, 0);
    CU_ASSERT_EQUAL(net_addresses(7421, list, 3), -EMSGSIZE);
}

void suite_net(void)
{
    CU_pSuite suite = CU_add_suite("net", NULL, NULL);
    CU_add_test(suite, "parse", test_parse);
    CU_add_test(suite, "parse_long", test_parse_long);
    CU_add_test(suite, "listen_everywhere", test_listen_everywhere);
    CU_add_test(suite, "listen_loopback", test_listen_loopback);
    CU_add_test(suite, "listen_family", test_listen_family);
    CU_add_test(suite, "listen_in_use", test_listen_in_use);
    CU_add_test(suite, "listen_half_in_use", test_listen_half_in_use);
    CU_add_test(suite, "listen_range", test_listen_range);
    CU_add_test(suite, "listen_bad", test_listen_bad);
    CU_add_test(suite, "names_of_no_socket", test_names_of_no_socket);
    CU_add_test(suite, "addresses", test_addresses);
}
