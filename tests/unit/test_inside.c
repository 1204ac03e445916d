#include "mover/inside.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <CUnit/CUnit.h>

#include "mover/net.h"
#include "mover/tcp.h"
#include "proto/message.h"
#include "storage/sys.h"
#include "tests/unit/hex.h"
#include "tests/unit/scratch.h"

#define WAIT_NS UINT64_C(5000000000)

// The far end in a thread of its own, as a process of its own runs it.
struct far {
    pthread_t thread;
    int fd; // what is said here comes to its input, and its output comes here
    int own;
    uint8_t magic[PREAMBLE_MAGIC_BYTES];
    enum inside_status status;
};

static void *far_run(void *arg)
{
    struct far *f = arg;
    f->status = inside_serve(f->own, f->own, f->magic);
    return NULL;
}

// Its input begins with these bytes, of which the first have been looked at.
static void far_begin(struct far *f, const void *bytes, size_t len)
{
    int pair[2];
    CU_ASSERT_EQUAL_FATAL(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    *f = (struct far){.own = pair[0], .fd = pair[1], .status = 99};
    CU_ASSERT_EQUAL(net_write_full(f->fd, bytes, len, sys_clock_ns() + WAIT_NS, -1), 0);
    CU_ASSERT_EQUAL(read(f->own, f->magic, sizeof f->magic), (ssize_t)sizeof f->magic);
    CU_ASSERT_TRUE(preamble_begins(f->magic));
    CU_ASSERT_EQUAL_FATAL(pthread_create(&f->thread, NULL, far_run, f), 0);
}

static enum inside_status far_end(struct far *f)
{
    CU_ASSERT_EQUAL_FATAL(pthread_join(f->thread, NULL), 0);
    if (f->fd >= 0)
        close(f->fd);
    return f->status;
}

// Of this process alone: the names are those of the host.
static struct job_id agent_of(uint8_t first)
{
    struct job_id id;
    pid_t self = getpid();
    count_up(id.bytes, sizeof id.bytes, first);
    memcpy(id.bytes, &self, sizeof self);
    return id;
}

static void preamble_of(enum greet_kind kind, uint8_t version, uint8_t agent, uint8_t out[PREAMBLE_BYTES])
{
    struct preamble p = {.kind = kind, .version = version, .job = agent_of(agent)};
    preamble_encode(&p, out);
}

static int accept_soon(int listener)
{
    struct pollfd p = {.fd = listener, .events = POLLIN};
    CU_ASSERT_EQUAL_FATAL(poll(&p, 1, 5000), 1);
    return accept4(listener, NULL, NULL, SOCK_CLOEXEC);
}

static void test_to_agent(void)
{
    uint32_t open_before = scratch_open_files();
    struct job_id id = agent_of(1), other = agent_of(2);
    int listener = inside_listen(&id), other_listener = inside_listen(&other);
    CU_ASSERT_FATAL(listener >= 0 && other_listener >= 0);
    CU_ASSERT_EQUAL(fcntl(listener, F_GETFD), FD_CLOEXEC);
    CU_ASSERT((fcntl(listener, F_GETFL) & O_NONBLOCK) != 0);
    for (enum greet_kind kind = GREET_PEER; kind <= GREET_DATA; kind++) {
        struct far f;
        uint8_t said[PREAMBLE_BYTES + 3], got[PREAMBLE_BYTES + 3];
        preamble_of(kind, WIRE_VERSION, 1, said);
        memcpy(said + PREAMBLE_BYTES, "ask", 3);
        far_begin(&f, said, sizeof said);
        int agent = accept_soon(listener);
        CU_ASSERT_FATAL(agent >= 0);
        CU_ASSERT_EQUAL(net_read_full(agent, got, sizeof got, sys_clock_ns() + WAIT_NS, -1), 0);
        CU_ASSERT_EQUAL(memcmp(got, said, sizeof said), 0);
        CU_ASSERT_EQUAL(net_write_full(agent, "answer", 6, sys_clock_ns() + WAIT_NS, -1), 0);
        CU_ASSERT_EQUAL(net_read_full(f.fd, got, 6, sys_clock_ns() + WAIT_NS, -1), 0);
        CU_ASSERT_EQUAL(memcmp(got, "answer", 6), 0);
        close(agent);
        CU_ASSERT_EQUAL(far_end(&f), INSIDE_ENDED);
    }
    close(listener);
    close(other_listener);
    CU_ASSERT_EQUAL(scratch_open_files(), open_before);
}

// The name belongs to one agent, and goes with it.
static void test_name(void)
{
    struct job_id id = agent_of(1);
    int listener = inside_listen(&id);
    CU_ASSERT(listener >= 0);
    CU_ASSERT_EQUAL(inside_listen(&id), -EADDRINUSE);
    close(listener);
    listener = inside_listen(&id);
    CU_ASSERT(listener >= 0);
    close(listener);
}

static void test_no_agent(void)
{
    uint32_t open_before = scratch_open_files();
    struct job_id id = agent_of(1);
    int listener = inside_listen(&id);
    struct far f;
    uint8_t said[PREAMBLE_BYTES];
    preamble_of(GREET_DATA, WIRE_VERSION, 2, said);
    far_begin(&f, said, sizeof said);
    CU_ASSERT_EQUAL(far_end(&f), INSIDE_NO_AGENT);
    struct pollfd p = {.fd = listener, .events = POLLIN};
    CU_ASSERT_EQUAL(poll(&p, 1, 0), 0);
    close(listener);
    CU_ASSERT_EQUAL(scratch_open_files(), open_before);
}

// What begins as a preamble and is none comes to no agent, also when it names one.
static void test_no_preamble(void)
{
    struct job_id id = agent_of(1);
    int listener = inside_listen(&id);
    for (int bad = 0; bad < 5; bad++) {
        struct far f;
        uint8_t said[PREAMBLE_BYTES];
        preamble_of(bad == 0 ? GREET_CONTROL : GREET_DATA, bad == 1 ? WIRE_VERSION + 1 : WIRE_VERSION, 1,
                    said);
        said[PREAMBLE_BYTES - 1] ^= bad == 2;
        far_begin(&f, said, bad == 3 ? PREAMBLE_BYTES - 1 : bad == 4 ? PREAMBLE_MAGIC_BYTES : PREAMBLE_BYTES);
        if (bad >= 3) {
            close(f.fd); // in the middle
            f.fd = -1;
        }
        CU_ASSERT_EQUAL(far_end(&f), INSIDE_BROKE);
    }
    struct pollfd p = {.fd = listener, .events = POLLIN};
    CU_ASSERT_EQUAL(poll(&p, 1, 0), 0);
    close(listener);
}

// No message can be taken for a preamble: as a length its first bytes are over every limit.
static void test_no_message(void)
{
    uint8_t said[PREAMBLE_BYTES];
    uint32_t len;
    uint16_t type;
    preamble_of(GREET_PEER, WIRE_VERSION, 1, said);
    CU_ASSERT_EQUAL(message_head(said, PEER_BYTES_MAX, &len, &type), -EMSGSIZE);
    said[7] = 'k';
    CU_ASSERT_FALSE(preamble_begins(said));
}

// The kernel would take a cap for a socket of this host, and not keep it.
static void test_pace(void)
{
    int pair[2], fds[NET_LISTEN_MAX];
    uint16_t port;
    struct err err;
    CU_ASSERT_EQUAL_FATAL(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    CU_ASSERT_EQUAL(tcp_pace(pair[0], 1000000), -EOPNOTSUPP);
    CU_ASSERT_EQUAL(net_tune(pair[0]), 0);
    CU_ASSERT_EQUAL_FATAL(net_listen("127.0.0.1", 0, 0, NET_V4, fds, &port, &err), 1);
    CU_ASSERT_EQUAL(tcp_pace(fds[0], 1000000), 0);
    close(pair[0]);
    close(pair[1]);
    close(fds[0]);
}

void suite_inside(void)
{
    CU_pSuite s = CU_add_suite("inside", NULL, NULL);
    CU_add_test(s, "to_agent", test_to_agent);
    CU_add_test(s, "name", test_name);
    CU_add_test(s, "no_agent", test_no_agent);
    CU_add_test(s, "no_preamble", test_no_preamble);
    CU_add_test(s, "no_message", test_no_message);
    CU_add_test(s, "pace", test_pace);
}
