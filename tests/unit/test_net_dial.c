#include "mover/net.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <CUnit/CUnit.h>

#include "proto/limits.h"
#include "storage/sys.h"
#include "tests/unit/scratch.h"

static const uint64_t NS_PER_MS = 1000000;

static uint64_t in_ms(uint64_t ms)
{
    return sys_clock_ns() + ms * NS_PER_MS;
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

static int option_get(int fd, int level, int name)
{
    int value = -1;
    socklen_t len = sizeof(value);
    CU_ASSERT_EQUAL(getsockopt(fd, level, name, &value, &len), 0);
    return value;
}

static void expect_connect(const char *host, const char *prefix)
{
    uint16_t bound;
    struct err err = {0};
    char here[ADDRESS_BYTES_MAX], there[ADDRESS_BYTES_MAX];
    int listener = listen_at(host, 0, &bound);
    int fd = net_connect(host, bound, NET_ANY, NULL, in_ms(5000), -1, &err);
    CU_ASSERT_FATAL(fd >= 0);
    CU_ASSERT_EQUAL(fcntl(fd, F_GETFL) & O_NONBLOCK, 0);
    CU_ASSERT((fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0);
    CU_ASSERT_EQUAL(option_get(fd, IPPROTO_TCP, TCP_NODELAY), 1);
    CU_ASSERT_EQUAL(option_get(fd, SOL_SOCKET, SO_KEEPALIVE), 1);
    net_local(fd, here, sizeof(here));
    net_remote(fd, there, sizeof(there));
    CU_ASSERT_EQUAL(strncmp(here, prefix, strlen(prefix)), 0);
    CU_ASSERT_EQUAL(strncmp(there, prefix, strlen(prefix)), 0);
    CU_ASSERT_EQUAL(atoi(there + strlen(prefix)), bound);
    close(fd);
    close(listener);
}

static void test_connect_both_families(void)
{
    expect_connect("127.0.0.1", "127.0.0.1:");
    if (access("/proc/net/if_inet6", F_OK) == 0)
        expect_connect("::1", "[::1]:");
}

// A port that was free a moment ago.
static uint16_t closed_port(void)
{
    uint16_t port;
    close(listen_at("127.0.0.1", 0, &port));
    return port;
}

static void test_connect_refused(void)
{
    struct err err = {0};
    char line[256];
    uint16_t port = closed_port();
    CU_ASSERT_EQUAL(net_connect("127.0.0.1", port, NET_ANY, NULL, in_ms(5000), -1, &err), -ECONNREFUSED);
    CU_ASSERT_EQUAL(err.class, ERR_START);
    CU_ASSERT_EQUAL(err.os, ECONNREFUSED);
    CU_ASSERT_PTR_NOT_NULL(strstr(err_line(&err, line, sizeof(line)), "connect to 127.0.0.1:"));
    CU_ASSERT(net_connect("no-such-host.invalid", 1, NET_ANY, NULL, in_ms(5000), -1, &err) < 0);
    CU_ASSERT_PTR_NOT_NULL(strstr(err.path, "no-such-host.invalid"));
    CU_ASSERT(net_connect("127.0.0.1", port, NET_V6, NULL, in_ms(5000), -1, &err) < 0);
}

static void test_connect_from(void)
{
    uint16_t bound;
    struct err err = {0};
    char here[ADDRESS_BYTES_MAX];
    int listener = listen_at("127.0.0.1", 0, &bound);
    int fd = net_connect("127.0.0.1", bound, NET_ANY, "127.0.0.2", in_ms(5000), -1, &err);
    CU_ASSERT_FATAL(fd >= 0);
    net_local(fd, here, sizeof(here));
    CU_ASSERT_EQUAL(strncmp(here, "127.0.0.2:", 10), 0);
    close(fd);
    CU_ASSERT_EQUAL(net_connect("127.0.0.1", bound, NET_ANY, "192.0.2.99", in_ms(5000), -1, &err),
                    -EADDRNOTAVAIL);
    CU_ASSERT_EQUAL(net_connect("127.0.0.1", bound, NET_ANY, "::1", in_ms(5000), -1, &err), -EADDRNOTAVAIL);
    CU_ASSERT(net_connect("127.0.0.1", bound, NET_ANY, "localhost", in_ms(5000), -1, &err) <
              0); // a name is no address
    close(listener);
}

// A listener whose queue is full drops what comes next, as a black hole does.
struct full {
    int listener;
    int fds[8];
    uint16_t port;
};

static struct full full_begin(void)
{
    struct full f = {.listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    struct sockaddr_in addr = {.sin_family = AF_INET};
    socklen_t len = sizeof(addr);
    addr.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    CU_ASSERT_EQUAL_FATAL(bind(f.listener, (struct sockaddr *)&addr, sizeof(addr)), 0);
    CU_ASSERT_EQUAL_FATAL(listen(f.listener, 0), 0);
    CU_ASSERT_EQUAL_FATAL(getsockname(f.listener, (struct sockaddr *)&addr, &len), 0);
    f.port = ntohs(addr.sin_port);
    for (size_t i = 0; i < ARRAY_LEN(f.fds); i++) {
        f.fds[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        int rc = connect(f.fds[i], (struct sockaddr *)&addr, sizeof(addr));
        CU_ASSERT(rc == 0 || errno == EINPROGRESS);
    }
    return f;
}

static void full_end(struct full *f)
{
    close_all(f->fds, ARRAY_LEN(f->fds));
    close(f->listener);
}

static void test_connect_deadline(void)
{
    struct full f = full_begin();
    struct err err = {0};
    uint32_t open_before = scratch_open_files();
    uint64_t start = sys_clock_ns();
    CU_ASSERT_EQUAL(net_connect("127.0.0.1", f.port, NET_ANY, NULL, in_ms(200), -1, &err), -ETIMEDOUT);
    uint64_t took_ms = (sys_clock_ns() - start) / NS_PER_MS;
    CU_ASSERT(took_ms >= 200 && took_ms < 5000);
    CU_ASSERT_EQUAL(scratch_open_files(), open_before);
    CU_ASSERT_EQUAL(net_connect("127.0.0.1", f.port, NET_ANY, NULL, 0, -1, &err), -ETIMEDOUT);
    full_end(&f);
}

static void *write_later(void *arg)
{
    struct timespec wait = {.tv_nsec = 100 * 1000 * 1000};
    nanosleep(&wait, NULL);
    ssize_t n = write(*(int *)arg, "x", 1);
    return n == 1 ? arg : NULL;
}

static void test_connect_cancel(void)
{
    struct full f = full_begin();
    struct err err = {0};
    int pipe_fds[2];
    pthread_t thread;
    void *wrote;
    CU_ASSERT_EQUAL_FATAL(pipe2(pipe_fds, O_CLOEXEC), 0);
    CU_ASSERT_EQUAL_FATAL(pthread_create(&thread, NULL, write_later, &pipe_fds[1]), 0);
    CU_ASSERT_EQUAL(net_connect("127.0.0.1", f.port, NET_ANY, NULL, in_ms(30000), pipe_fds[0], &err),
                    -ECANCELED);
    CU_ASSERT_EQUAL(err.class, ERR_INTERRUPTED);
    CU_ASSERT_EQUAL(pthread_join(thread, &wrote), 0);
    CU_ASSERT_PTR_NOT_NULL(wrote);
    close_all(pipe_fds, 2);
    full_end(&f);
}

struct feeder {
    int fd;
    size_t len, step;
};

static void *feed(void *arg)
{
    struct feeder *f = arg;
    for (size_t at = 0; at < f->len; at += f->step) {
        uint8_t bytes[64];
        size_t n = f->len - at < f->step ? f->len - at : f->step;
        for (size_t i = 0; i < n; i++)
            bytes[i] = (uint8_t)(at + i);
        if (write(f->fd, bytes, n) != (ssize_t)n)
            break;
    }
    close(f->fd);
    return NULL;
}

static void expect_read(int in, int out)
{
    struct feeder f = {.fd = out, .len = 2003, .step = 7};
    pthread_t thread;
    uint8_t bytes[2000];
    CU_ASSERT_EQUAL_FATAL(pthread_create(&thread, NULL, feed, &f), 0);
    CU_ASSERT_EQUAL(net_read_full(in, bytes, sizeof(bytes), in_ms(10000), -1), 0);
    for (size_t i = 0; i < sizeof(bytes); i++)
        CU_ASSERT_EQUAL_FATAL(bytes[i], (uint8_t)i);
    CU_ASSERT_EQUAL(pthread_join(thread, NULL), 0);
    CU_ASSERT_EQUAL(net_read_full(in, bytes, 4, in_ms(10000), -1), -ECONNRESET); // three are left: cut
    CU_ASSERT_EQUAL(net_read_full(in, bytes, 4, in_ms(10000), -1), -ENODATA);
    CU_ASSERT_EQUAL(net_read_full(in, bytes, 0, in_ms(10000), -1), 0);
    close(in);
}

static void test_read_full(void)
{
    int fds[2];
    CU_ASSERT_EQUAL_FATAL(pipe2(fds, O_CLOEXEC), 0);
    expect_read(fds[0], fds[1]);
    CU_ASSERT_EQUAL_FATAL(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    expect_read(fds[0], fds[1]);
}

// Blocking descriptors that take no more: the deadline and the cancel descriptor still count.
static void expect_write(int in, int out)
{
    static uint8_t bytes[8 * MIB];
    int cancel[2];
    CU_ASSERT_EQUAL_FATAL(pipe2(cancel, O_CLOEXEC), 0);
    CU_ASSERT_EQUAL(net_write_full(out, bytes, 3, in_ms(1000), cancel[0]), 0);
    CU_ASSERT_EQUAL(net_write_full(out, bytes, sizeof(bytes), in_ms(100), cancel[0]), -ETIMEDOUT);
    CU_ASSERT_EQUAL(write(cancel[1], "x", 1), 1);
    CU_ASSERT_EQUAL(net_write_full(out, bytes, sizeof(bytes), in_ms(30000), cancel[0]), -ECANCELED);
    CU_ASSERT_EQUAL(net_read_full(out, bytes, 1, in_ms(30000), cancel[0]), -ECANCELED);
    close(in);
    CU_ASSERT_EQUAL(net_write_full(out, bytes, 1, in_ms(1000), -1), -ECONNRESET);
    close(out);
    close_all(cancel, 2);
}

static void test_write_full(void)
{
    int fds[2];
    void (*before)(int) = signal(SIGPIPE, SIG_IGN); // as the program does, for the pipe
    CU_ASSERT_EQUAL_FATAL(pipe2(fds, O_CLOEXEC), 0);
    expect_write(fds[0], fds[1]);
    CU_ASSERT_EQUAL_FATAL(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    expect_write(fds[0], fds[1]);
    signal(SIGPIPE, before);
}

void suite_net_dial(void)
{
    CU_pSuite suite = CU_add_suite("net_dial", NULL, NULL);
    CU_add_test(suite, "connect_both_families", test_connect_both_families);
    CU_add_test(suite, "connect_refused", test_connect_refused);
    CU_add_test(suite, "connect_from", test_connect_from);
    CU_add_test(suite, "connect_deadline", test_connect_deadline);
    CU_add_test(suite, "connect_cancel", test_connect_cancel);
    CU_add_test(suite, "read_full", test_read_full);
    CU_add_test(suite, "write_full", test_write_full);
}
