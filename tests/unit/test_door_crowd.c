// Deadlines and limits of the door.
#include "mover/door.h"

#include <errno.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <CUnit/CUnit.h>

#include "mover/net.h"
#include "proto/limits.h"
#include "storage/sys.h"
#include "tests/unit/door_kit.h"
#include "tests/unit/scratch.h"

static const uint64_t NS_PER_MS = 1000000;

// Waits as an owner does, until the guest is sent away; how long that took.
static uint64_t refusal_ms(struct door *d, const struct guest *g, bool trickle)
{
    uint64_t start = sys_clock_ns(), said = start;
    struct preamble p = {.kind = GREET_DATA, .version = WIRE_VERSION, .job = job_of(1)};
    uint8_t words[PREAMBLE_BYTES];
    size_t at = 0;
    preamble_encode(&p, words);
    while (door_refused(d) == 0 && sys_clock_ns() - start < 5000 * NS_PER_MS) {
        struct pollfd fds[GREETING_CONNECTIONS];
        int timeout_ms = trickle ? 20 : -1;
        size_t count = door_poll(d, fds, ARRAY_LEN(fds), &timeout_ms);
        CU_ASSERT_EQUAL(count, 1);
        CU_ASSERT(timeout_ms >= 0);
        CU_ASSERT(poll(fds, count, timeout_ms) >= 0);
        door_step(d, fds, count);
        if (trickle && at < sizeof(words) && sys_clock_ns() - said > 20 * NS_PER_MS) {
            send(g->fd, &words[at++], 1, MSG_NOSIGNAL);
            said = sys_clock_ns();
        }
    }
    return (sys_clock_ns() - start) / NS_PER_MS;
}

static void test_deadline(void)
{
    for (int trickle = 0; trickle < 2; trickle++) {
        struct door *d = door_begin(200);
        struct guest g = guest_come(d);
        uint64_t took = refusal_ms(d, &g, trickle);
        CU_ASSERT(took >= 190 && took < 2000); // one byte now and then buys no time
        CU_ASSERT_TRUE(is_refused(&g));
        close(g.fd);
        door_free(d);
    }
}

static int guest_connect(uint16_t port)
{
    struct err err;
    int fd = net_connect("127.0.0.1", port, NET_V4, NULL, sys_clock_ns() + 5000 * NS_PER_MS, -1, &err);
    CU_ASSERT_FATAL(fd >= 0);
    return fd;
}

static int listen_begin(uint16_t *port)
{
    int fds[NET_LISTEN_MAX];
    struct err err;
    CU_ASSERT_EQUAL_FATAL(net_listen("127.0.0.1", 0, 0, NET_V4, fds, port, &err), 1);
    return fds[0];
}

// More than may wait: the oldest go, and who knows what to say still gets in.
static void test_idle_crowd(void)
{
    enum { CROWD = 300 };
    struct door *d = door_begin(60000);
    uint16_t port;
    int listener = listen_begin(&port);
    struct guest crowd[CROWD] = {0};
    uint32_t open_before = scratch_open_files();
    for (int i = 0; i < CROWD; i++) {
        crowd[i].fd = guest_connect(port);
        CU_ASSERT_EQUAL(door_accept(d, listener), 0);
    }
    CU_ASSERT_EQUAL(door_refused(d), CROWD - GREETING_CONNECTIONS);
    CU_ASSERT_EQUAL(scratch_open_files(), open_before + CROWD + GREETING_CONNECTIONS);
    for (int i = 0; i < CROWD; i++)
        CU_ASSERT_EQUAL(is_refused(&crowd[i]), i < CROWD - GREETING_CONNECTIONS);

    struct guest good = {.fd = guest_connect(port)};
    struct arrival a;
    guest_preamble(&good, GREET_DATA, WIRE_VERSION, 1);
    guest_ask(&good, 7);
    CU_ASSERT_EQUAL(door_accept(d, listener), 0);
    door_turn(d);
    guest_hear_answer(&good);
    guest_prove(&good, 1);
    door_turn(d);
    CU_ASSERT_TRUE_FATAL(door_next(d, &a));
    CU_ASSERT_TRUE(a.proved);
    CU_ASSERT_EQUAL(door_refused(d), CROWD - GREETING_CONNECTIONS + 1);
    close(a.fd);
    close(good.fd);
    for (int i = 0; i < CROWD; i++)
        close(crowd[i].fd);
    door_free(d);
    CU_ASSERT_EQUAL(scratch_open_files(), open_before);
    close(listener);
}

static void test_out_of_descriptors(void)
{
    struct door *d = door_begin(60000);
    uint16_t port;
    int listener = listen_begin(&port), fd = guest_connect(port);
    struct rlimit before, none;
    CU_ASSERT_EQUAL(getrlimit(RLIMIT_NOFILE, &before), 0);
    none = before;
    none.rlim_cur = 0; // as if all were taken
    CU_ASSERT_EQUAL(setrlimit(RLIMIT_NOFILE, &none), 0);
    CU_ASSERT_EQUAL(door_accept(d, listener), -EMFILE);
    CU_ASSERT_EQUAL(setrlimit(RLIMIT_NOFILE, &before), 0);
    CU_ASSERT_EQUAL(door_accept(d, listener), 0);
    struct pollfd fds[GREETING_CONNECTIONS];
    int timeout_ms = -1;
    CU_ASSERT_EQUAL(door_poll(d, fds, ARRAY_LEN(fds), &timeout_ms), 1);
    close(fd);
    close(listener);
    door_free(d);
    door_free(NULL);
}

static void test_empty(void)
{
    struct door *d = door_begin(60000);
    struct pollfd fds[GREETING_CONNECTIONS];
    int timeout_ms = -1;
    CU_ASSERT_EQUAL(door_poll(d, fds, ARRAY_LEN(fds), &timeout_ms), 0);
    CU_ASSERT_EQUAL(timeout_ms, -1);
    timeout_ms = 7;
    struct guest g = guest_come(d);
    CU_ASSERT_EQUAL(door_poll(d, fds, ARRAY_LEN(fds), &timeout_ms), 1);
    CU_ASSERT_EQUAL(timeout_ms, 7); // only lowered
    close(g.fd);
    door_free(d);
}

void suite_door_crowd(void)
{
    CU_pSuite suite = CU_add_suite("door_crowd", NULL, NULL);
    CU_add_test(suite, "deadline", test_deadline);
    CU_add_test(suite, "idle_crowd", test_idle_crowd);
    CU_add_test(suite, "out_of_descriptors", test_out_of_descriptors);
    CU_add_test(suite, "empty", test_empty);
}
