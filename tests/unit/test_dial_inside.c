// Dialling by a program: what it does, and how it ends.
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CUnit/CUnit.h>

#include "mover/dial.h"
#include "mover/door.h"
#include "mover/inside.h"
#include "proto/limits.h"
#include "storage/sys.h"
#include "tests/unit/hex.h"
#include "tests/unit/scratch.h"

#define NS_PER_MS UINT64_C(1000000)

struct dialled {
    uint64_t wait_ms;
    int cancel_fd;
    struct launched program;
    struct secret key_in, key_out;
    struct err err;
    int rc;
};

static struct dialled dial_argv(char *const argv[], uint64_t wait_ms, int cancel_fd)
{
    struct dialled d = {.program = {.pid = -1, .fd = -1}};
    struct dial_target target = {.family = NET_ANY};
    struct greet_ask ask = {.session = 1, .stream = 2, .attempt = 3};
    count_up(target.job.bytes, sizeof target.job.bytes, 1);
    count_up(target.secret.bytes, sizeof target.secret.bytes, 1);
    d.rc = dial_inside(&target, argv, GREET_DATA, &ask, sys_clock_ns() + wait_ms * NS_PER_MS, cancel_fd,
                       &d.program, &d.key_in, &d.key_out, &d.err);
    return d;
}

static struct dialled dial_script(const char *script, uint64_t wait_ms, int cancel_fd)
{
    char bash[] = "bash", c[] = "-c", *text = strdup(script);
    CU_ASSERT_PTR_NOT_NULL_FATAL(text);
    char *argv[] = {bash, c, text, NULL};
    struct dialled d = dial_argv(argv, wait_ms, cancel_fd);
    free(text);
    return d;
}

// A dial that fails leaves nothing: no child, alive or not, and no descriptor.
static void expect_nothing_left(uint32_t open_before)
{
    CU_ASSERT_EQUAL(waitpid(-1, NULL, WNOHANG), -1);
    CU_ASSERT_EQUAL(errno, ECHILD);
    CU_ASSERT_EQUAL(scratch_open_files(), open_before);
}

// Stands at the door of job and secret 1 until somebody has arrived.
struct host {
    pthread_t thread;
    int listener;
    bool arrived;
    struct arrival arrival;
};

static void *host_run(void *arg)
{
    struct host *h = arg;
    struct door *d = door_new();
    struct job_id job;
    struct secret secret;
    count_up(job.bytes, sizeof job.bytes, 1);
    count_up(secret.bytes, sizeof secret.bytes, 1);
    door_know(d, &job, &secret);
    uint64_t end_ns = sys_clock_ns() + 10000 * NS_PER_MS;
    while (!h->arrived && sys_clock_ns() < end_ns) {
        struct pollfd fds[1 + GREETING_CONNECTIONS] = {{.fd = h->listener, .events = POLLIN}};
        int timeout_ms = 100;
        size_t count = door_poll(d, fds + 1, GREETING_CONNECTIONS, &timeout_ms);
        if (poll(fds, 1 + count, timeout_ms) < 0 || door_accept(d, h->listener) < 0)
            break;
        door_step(d, fds + 1, count);
        h->arrived = door_next(d, &h->arrival);
    }
    door_free(d);
    return NULL;
}

// The program comes to an agent's door: both ends have the keys, and what one says the other hears.
static void test_connects(void)
{
    uint32_t open_before = scratch_open_files();
    struct host h = {0};
    uint16_t port;
    int fds[NET_LISTEN_MAX];
    struct err err;
    char script[128], heard[8];
    CU_ASSERT_EQUAL_FATAL(net_listen("127.0.0.1", 0, 0, NET_V4, fds, &port, &err), 1);
    h.listener = fds[0];
    CU_ASSERT_EQUAL_FATAL(pthread_create(&h.thread, NULL, host_run, &h), 0);
    snprintf(script, sizeof script, "exec 3<>/dev/tcp/127.0.0.1/%u; cat <&3 3>&- & exec cat >&3", port);
    struct dialled d = dial_script(script, 10000, -1);
    CU_ASSERT_EQUAL_FATAL(pthread_join(h.thread, NULL), 0);
    CU_ASSERT_EQUAL_FATAL(d.rc, 0);
    CU_ASSERT_FATAL(h.arrived && h.arrival.proved && d.program.pid > 0);
    CU_ASSERT(h.arrival.preamble.kind == GREET_DATA && h.arrival.ask.stream == 2 &&
              h.arrival.ask.attempt == 3);
    CU_ASSERT_EQUAL(memcmp(&h.arrival.key_in, &d.key_out, sizeof d.key_out), 0);
    CU_ASSERT_EQUAL(memcmp(&h.arrival.key_out, &d.key_in, sizeof d.key_in), 0);
    CU_ASSERT_EQUAL(net_write_full(d.program.fd, "frame", 5, sys_clock_ns() + 5000 * NS_PER_MS, -1), 0);
    CU_ASSERT_EQUAL(net_read_full(h.arrival.fd, heard, 5, sys_clock_ns() + 5000 * NS_PER_MS, -1), 0);
    CU_ASSERT_EQUAL(memcmp(heard, "frame", 5), 0);
    close(h.arrival.fd);
    close(h.listener);
    CU_ASSERT_NOT_EQUAL(launch_end(&d.program, 5000), -1);
    expect_nothing_left(open_before);
}

static void test_ends(void)
{
    static const struct {
        const char *script, *words;
    } table[] = {
        {"exit 255", "255"},
        {"head -c 88 >/dev/null; exit 7", "7"}, // after it has taken what it was told
        {"exit 68", "68: that is not the host of the agent"},
    };
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        uint32_t open_before = scratch_open_files();
        struct dialled d = dial_script(table[i].script, 10000, -1);
        CU_ASSERT_EQUAL(d.rc, -ECONNRESET);
        CU_ASSERT(d.err.class == ERR_STREAM && d.err.os == 0);
        CU_ASSERT_PTR_NOT_NULL(strstr(d.err.path, "bash -c"));
        CU_ASSERT_PTR_NOT_NULL(strstr(d.err.text, table[i].words));
        CU_ASSERT_EQUAL(d.program.fd, -1);
        expect_nothing_left(open_before);
    }
}

// It ends well, but without a word.
static void test_says_nothing(void)
{
    uint32_t open_before = scratch_open_files();
    struct dialled d = dial_script("true", 10000, -1);
    CU_ASSERT_EQUAL(d.rc, -ECONNRESET);
    CU_ASSERT_EQUAL(d.err.os, ECONNRESET);
    expect_nothing_left(open_before);
}

static void test_no_program(void)
{
    uint32_t open_before = scratch_open_files();
    char none[] = "no-such-program-here", *argv[] = {none, NULL};
    struct dialled d = dial_argv(argv, 10000, -1);
    CU_ASSERT_EQUAL(d.rc, -ENOENT);
    CU_ASSERT_EQUAL(d.err.class, ERR_STREAM);
    expect_nothing_left(open_before);
}

// Who answers does not know the secret: that is told, not how the program ended.
static void test_stranger(void)
{
    uint32_t open_before = scratch_open_files();
    struct dialled d = dial_script("head -c 88 >/dev/null; head -c 64 /dev/zero; exit 9", 10000, -1);
    CU_ASSERT_EQUAL(d.rc, -EACCES);
    CU_ASSERT_EQUAL(d.err.class, ERR_AUTH);
    CU_ASSERT_PTR_NOT_NULL(strstr(d.err.path, "bash -c"));
    expect_nothing_left(open_before);
}

// One that hangs, and does not end with its input, is ended.
static void test_hangs(void)
{
    uint32_t open_before = scratch_open_files();
    struct dialled d = dial_script("exec sleep 1000", 100, -1);
    CU_ASSERT_EQUAL(d.rc, -ETIMEDOUT);
    expect_nothing_left(open_before);
    int fds[2];
    CU_ASSERT_EQUAL_FATAL(pipe2(fds, O_CLOEXEC), 0);
    CU_ASSERT_EQUAL(write(fds[1], "x", 1), 1);
    d = dial_script("exec sleep 1000", 60000, fds[0]);
    CU_ASSERT_EQUAL(d.rc, -ECANCELED);
    CU_ASSERT_EQUAL(d.err.class, ERR_INTERRUPTED);
    close(fds[0]);
    close(fds[1]);
    expect_nothing_left(open_before);
}

void suite_dial_inside(void)
{
    CU_pSuite s = CU_add_suite("dial_inside", NULL, NULL);
    CU_add_test(s, "connects", test_connects);
    CU_add_test(s, "ends", test_ends);
    CU_add_test(s, "says_nothing", test_says_nothing);
    CU_add_test(s, "no_program", test_no_program);
    CU_add_test(s, "stranger", test_stranger);
    CU_add_test(s, "hangs", test_hangs);
}
