#include "mover/relay.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <CUnit/CUnit.h>

#include "mover/net.h"
#include "storage/sys.h"
#include "tests/unit/scratch.h"

enum flavour { PIPES, SOCKET, FLAVOURS };
enum { BULK_BYTES = 6 * MIB, PERIOD = 65521, WAIT_S = 20 };

// A relay in its thread, and the far sides of what it has. -1: closed.
struct rig {
    pthread_t thread;
    int in, out, sock; // the relay's
    int to_in;         // what is written here comes to `in`
    int from_out;      // what it writes to `out` comes here; with SOCKET the same as to_in
    int agent;         // the other end of `sock`
    const void *first;
    size_t first_len;
    uint32_t open_before;
    int rc;
};

static void *run(void *arg)
{
    struct rig *r = arg;
    r->rc = relay_run(r->in, r->out, r->sock, r->first, r->first_len);
    return NULL;
}

static struct rig rig_of(enum flavour flavour)
{
    struct rig r = {.open_before = scratch_open_files()};
    int pair[2], there[2], back[2];
    CU_ASSERT_EQUAL_FATAL(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    r.sock = pair[0];
    r.agent = pair[1];
    if (flavour == SOCKET) {
        CU_ASSERT_EQUAL_FATAL(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
        r.in = r.out = pair[0];
        r.to_in = r.from_out = pair[1];
        return r;
    }
    CU_ASSERT_EQUAL_FATAL(pipe2(there, O_CLOEXEC), 0);
    CU_ASSERT_EQUAL_FATAL(pipe2(back, O_CLOEXEC), 0);
    r.in = there[0];
    r.to_in = there[1];
    r.out = back[1];
    r.from_out = back[0];
    return r;
}

static void rig_start(struct rig *r)
{
    CU_ASSERT_EQUAL_FATAL(pthread_create(&r->thread, NULL, run, r), 0);
}

static void far_close(struct rig *r, int *fd)
{
    if (*fd < 0)
        return;
    close(*fd);
    if (fd != &r->agent && r->to_in == r->from_out)
        r->to_in = r->from_out = -1;
    *fd = -1;
}

// The relay ends by itself by now, and has left nothing open. Returns what it returned.
static int rig_end(struct rig *r)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += WAIT_S;
    CU_ASSERT_EQUAL_FATAL(pthread_timedjoin_np(r->thread, NULL, &until), 0);
    far_close(r, &r->to_in);
    far_close(r, &r->from_out);
    far_close(r, &r->agent);
    CU_ASSERT_EQUAL(scratch_open_files(), r->open_before);
    return r->rc;
}

static uint64_t deadline(void)
{
    return sys_clock_ns() + WAIT_S * UINT64_C(1000000000);
}

static void say(int fd, const char *text)
{
    CU_ASSERT_EQUAL(net_write_full(fd, text, strlen(text), deadline(), -1), 0);
}

// The next bytes are these, and with `end` the last ones.
static void hear(int fd, const char *text, bool end)
{
    char got[64];
    size_t len = strlen(text);
    CU_ASSERT_EQUAL_FATAL(len == 0 ? 0 : net_read_full(fd, got, len, deadline(), -1), 0);
    CU_ASSERT_EQUAL(memcmp(got, text, len), 0);
    if (end)
        CU_ASSERT_EQUAL(net_read_full(fd, got, 1, deadline(), -1), -ENODATA);
}

// Nobody takes what is written here any more, if not at once then soon.
static bool is_deaf(int fd)
{
    static const uint8_t bytes[4096];
    int rc;
    do {
        rc = net_write_full(fd, bytes, sizeof bytes, deadline(), -1);
    } while (rc == 0);
    return rc == -ECONNRESET;
}

static void write_end(struct rig *r, int fd)
{
    if (fd != r->agent && r->to_in != r->from_out)
        far_close(r, &r->to_in);
    else
        CU_ASSERT_EQUAL(shutdown(fd, SHUT_WR), 0);
}

// Each side ends before the other, and what the other says after that still comes.
static void test_half_close(void)
{
    for (enum flavour f = 0; f < FLAVOURS; f++) {
        struct rig r = rig_of(f);
        rig_start(&r);
        say(r.to_in, "there");
        say(r.agent, "back");
        hear(r.agent, "there", false);
        hear(r.from_out, "back", false);
        say(r.to_in, "last");
        write_end(&r, r.to_in);
        hear(r.agent, "last", true);
        say(r.agent, "the answer to the last");
        hear(r.from_out, "the answer to the last", false);
        write_end(&r, r.agent);
        hear(r.from_out, "", true);
        CU_ASSERT_EQUAL(rig_end(&r), 0);

        r = rig_of(f);
        rig_start(&r);
        say(r.agent, "all I have");
        write_end(&r, r.agent);
        hear(r.from_out, "all I have", true);
        say(r.to_in, "more");
        hear(r.agent, "more", false);
        write_end(&r, r.to_in);
        hear(r.agent, "", true);
        CU_ASSERT_EQUAL(rig_end(&r), 0);
    }
}

// What was read before comes first, whether or not anything follows.
static void test_first(void)
{
    for (int ends = 0; ends < 2; ends++) {
        struct rig r = rig_of(PIPES);
        r.first = "first";
        r.first_len = 5;
        say(r.to_in, ", then the rest");
        if (ends)
            far_close(&r, &r.to_in);
        rig_start(&r);
        hear(r.agent, "first, then the rest", ends);
        far_close(&r, &r.to_in);
        far_close(&r, &r.agent);
        CU_ASSERT_EQUAL(rig_end(&r), 0);
    }
}

// The byte at a place of the bulk that goes one way; the period is odd, so that pieces that are lost, doubled
// or exchanged show.
static uint8_t bulk_at(size_t at, bool there)
{
    return (uint8_t)((at % PERIOD) * 7 + (there ? 1 : 2));
}

struct bulk {
    int fd;
    bool there;
    size_t wrong;
    int rc;
};

static void *bulk_write(void *arg)
{
    struct bulk *b = arg;
    uint8_t bytes[50000];
    for (size_t at = 0; at < BULK_BYTES && b->rc == 0;) {
        size_t len = u64_min(sizeof bytes, BULK_BYTES - at);
        for (size_t i = 0; i < len; i++)
            bytes[i] = bulk_at(at + i, b->there);
        b->rc = net_write_full(b->fd, bytes, len, deadline(), -1);
        at += len;
    }
    return NULL;
}

static void *bulk_read(void *arg)
{
    struct bulk *b = arg;
    uint8_t bytes[70000];
    for (size_t at = 0; at < BULK_BYTES && b->rc == 0;) {
        size_t len = u64_min(sizeof bytes, BULK_BYTES - at);
        b->rc = net_read_full(b->fd, bytes, len, deadline(), -1);
        for (size_t i = 0; i < len && b->rc == 0; i++)
            b->wrong += bytes[i] != bulk_at(at + i, b->there);
        at += len;
    }
    return NULL;
}

// Much more than all buffers hold, both ways at once.
static void test_bulk(void)
{
    for (enum flavour f = 0; f < FLAVOURS; f++) {
        struct rig r = rig_of(f);
        struct bulk bulk[4] = {{.fd = r.to_in, .there = true},
                               {.fd = r.agent, .there = true},
                               {.fd = r.agent},
                               {.fd = r.from_out}};
        pthread_t threads[4];
        rig_start(&r);
        for (int i = 0; i < 4; i++)
            CU_ASSERT_EQUAL_FATAL(pthread_create(&threads[i], NULL, i % 2 ? bulk_read : bulk_write, &bulk[i]),
                                  0);
        for (int i = 0; i < 4; i++) {
            CU_ASSERT_EQUAL(pthread_join(threads[i], NULL), 0);
            CU_ASSERT(bulk[i].rc == 0 && bulk[i].wrong == 0);
        }
        far_close(&r, &r.to_in);
        far_close(&r, &r.agent);
        CU_ASSERT_EQUAL(rig_end(&r), 0);
    }
}

// A side that does not read holds the other one up: little waits in between.
static void test_back_pressure(void)
{
    for (enum flavour f = 0; f < FLAVOURS; f++) {
        static const uint8_t bytes[4096];
        struct rig r = rig_of(f);
        size_t taken = 0;
        rig_start(&r);
        while (taken < BULK_BYTES &&
               net_write_full(r.to_in, bytes, sizeof bytes, sys_clock_ns() + 1000000000, -1) == 0)
            taken += sizeof bytes;
        // RELAY_BYTES is the most that waits here; how much the kernel's two buffers hold depends on the
        // pieces.
        CU_ASSERT(taken > 0 && taken < RELAY_BYTES + 2 * MIB);
        far_close(&r, &r.agent);
        CU_ASSERT_TRUE(is_deaf(r.to_in));
        far_close(&r, &r.to_in);
        CU_ASSERT_EQUAL(rig_end(&r), -EPIPE);
    }
}

// The agent goes, idle or after its last words: those come, the relay ends and both directions with it.
static void test_agent_dies(void)
{
    for (enum flavour f = 0; f < FLAVOURS; f++) {
        for (int words = 0; words < 2; words++) {
            struct rig r = rig_of(f);
            rig_start(&r);
            say(r.to_in, "something");
            hear(r.agent, "something", false);
            if (words)
                say(r.agent, "the last words");
            far_close(&r, &r.agent);
            hear(r.from_out, words ? "the last words" : "", true);
            CU_ASSERT_TRUE(is_deaf(r.to_in));
            CU_ASSERT_EQUAL(rig_end(&r), 0);
        }
    }
}

// ssh goes, both pipes at once.
static void test_ssh_dies(void)
{
    for (enum flavour f = 0; f < FLAVOURS; f++) {
        struct rig r = rig_of(f);
        rig_start(&r);
        say(r.agent, "something");
        hear(r.from_out, "something", false);
        far_close(&r, &r.to_in);
        far_close(&r, &r.from_out);
        hear(r.agent, "", true);
        CU_ASSERT_TRUE(is_deaf(r.agent));
        CU_ASSERT_EQUAL(rig_end(&r), 0);
    }
}

// Only the way back is gone: the agent learns of it, and what comes the other way goes on.
static void test_one_way_dies(void)
{
    struct rig r = rig_of(PIPES);
    rig_start(&r);
    far_close(&r, &r.from_out);
    CU_ASSERT_TRUE(is_deaf(r.agent));
    say(r.to_in, "still here");
    hear(r.agent, "still here", false);
    far_close(&r, &r.to_in);
    hear(r.agent, "", true);
    CU_ASSERT(rig_end(&r) == 0 || r.rc == -EPIPE); // as far as it had read when it saw that
}

// Nobody keeps a processor busy while nothing moves.
static void test_rests(void)
{
    struct timespec before, after;
    clockid_t clock;
    struct rig r = rig_of(SOCKET);
    rig_start(&r);
    write_end(&r, r.to_in);
    hear(r.agent, "", true);
    CU_ASSERT_EQUAL_FATAL(pthread_getcpuclockid(r.thread, &clock), 0);
    clock_gettime(clock, &before);
    CU_ASSERT_EQUAL(poll(NULL, 0, 200), 0);
    clock_gettime(clock, &after);
    CU_ASSERT((after.tv_sec - before.tv_sec) * 1000000000 + after.tv_nsec - before.tv_nsec < 50000000);
    far_close(&r, &r.agent);
    CU_ASSERT_EQUAL(rig_end(&r), 0);
}

static void (*pipe_before)(int);

static int suite_begin(void)
{
    pipe_before = signal(SIGPIPE, SIG_IGN); // as the program does
    return pipe_before == SIG_ERR;
}

static int suite_end(void)
{
    return signal(SIGPIPE, pipe_before) == SIG_ERR;
}

void suite_relay(void)
{
    CU_pSuite s = CU_add_suite("relay", suite_begin, suite_end);
    CU_add_test(s, "half_close", test_half_close);
    CU_add_test(s, "first", test_first);
    CU_add_test(s, "bulk", test_bulk);
    CU_add_test(s, "back_pressure", test_back_pressure);
    CU_add_test(s, "agent_dies", test_agent_dies);
    CU_add_test(s, "ssh_dies", test_ssh_dies);
    CU_add_test(s, "one_way_dies", test_one_way_dies);
    CU_add_test(s, "rests", test_rests);
}
