// Steps that wait, that do not, and that are woken.
#include "mover/engine.h"

#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>

#include "proto/limits.h"
#include "tests/unit/engine_kit.h"

static uint64_t ms_since(uint64_t start_ns)
{
    return (sys_clock_ns() - start_ns) / 1000000;
}

struct gate {
    sem_t open;
    int result;
};

static int wait_at_gate(void *arg)
{
    struct gate *g = arg;
    while (sem_wait(&g->open) < 0)
        continue;
    return g->result;
}

static int answer_1(void *arg)
{
    (void)arg;
    return 1;
}

static void timeouts(struct engine *e)
{
    struct gate gate = {.result = 3};
    CU_ASSERT_EQUAL_FATAL(sem_init(&gate.open, 0, 0), 0);
    struct kit_op slow = kit_call(wait_at_gate, &gate);
    CU_ASSERT_EQUAL(engine_step(e, 0), 0); // also with nothing in flight
    engine_start(e, &slow.op);
    uint64_t start_ns = sys_clock_ns();
    for (int i = 0; i < 20; i++)
        CU_ASSERT_EQUAL(engine_step(e, 0), 0);
    CU_ASSERT(ms_since(start_ns) < 5000);
    start_ns = sys_clock_ns();
    CU_ASSERT_EQUAL(engine_step(e, 50), 0);
    CU_ASSERT(ms_since(start_ns) >= 50 && ms_since(start_ns) < KIT_WAIT_MS);
    CU_ASSERT_EQUAL(slow.done, 0);
    CU_ASSERT_EQUAL(sem_post(&gate.open), 0);
    CU_ASSERT_EQUAL(engine_step(e, -1), 1);
    CU_ASSERT_EQUAL(slow.result, 3);
    sem_destroy(&gate.open);
}

static void test_timeout(void)
{
    kit_each(timeouts);
}

// Who never waits gets everything all the same.
static void never_waits(struct engine *e)
{
    int fds[2], fd = kit_file(kit_disk(), O_RDWR | O_DIRECT);
    char *buf = aligned_alloc(BLOCK_BYTES, BLOCK_BYTES), out[] = "out", in[sizeof(out)];
    CU_ASSERT_PTR_NOT_NULL_FATAL(buf);
    memset(buf, 0, BLOCK_BYTES);
    CU_ASSERT_EQUAL_FATAL(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    struct kit_op ops[] = {
        kit_transfer(OP_RECV, fds[0], in, sizeof(in), 0),
        kit_transfer(OP_WRITE, fd, buf, BLOCK_BYTES, 0),
        kit_call(answer_1, NULL),
        kit_transfer(OP_SEND, fds[1], out, sizeof(out), 0),
    };
    uint64_t start_ns = sys_clock_ns();
    for (size_t i = 0; i < ARRAY_LEN(ops); i++) {
        engine_start(e, &ops[i].op);
        while (i > 0 && ops[i].done == 0 && ms_since(start_ns) < KIT_WAIT_MS)
            CU_ASSERT_FATAL(engine_step(e, 0) >= 0);
        CU_ASSERT_EQUAL(ops[i].done, i > 0);
    }
    while (ops[0].done == 0 && ms_since(start_ns) < KIT_WAIT_MS)
        CU_ASSERT_FATAL(engine_step(e, 0) >= 0);
    CU_ASSERT_TRUE(ops[0].done == 1 && ops[0].result == 0);
    CU_ASSERT(ms_since(start_ns) < KIT_WAIT_MS);
    close(fd);
    close(fds[0]);
    close(fds[1]);
    free(buf);
}

static void test_never_waits(void)
{
    kit_each(never_waits);
}

static void on_alarm(int signal_number)
{
    (void)signal_number;
}

// Signals neither end a step early nor break it.
static void interrupted(struct engine *e)
{
    struct itimerval often = {{0, 5000}, {0, 5000}}, never = {0};
    uint64_t start_ns = sys_clock_ns();
    CU_ASSERT_EQUAL(setitimer(ITIMER_REAL, &often, NULL), 0);
    CU_ASSERT_EQUAL(engine_step(e, 100), 0);
    CU_ASSERT(ms_since(start_ns) >= 100);
    CU_ASSERT_EQUAL(setitimer(ITIMER_REAL, &never, NULL), 0);
}

static void test_interrupted(void)
{
    struct sigaction handle = {.sa_handler = on_alarm}, old;
    CU_ASSERT_EQUAL_FATAL(sigaction(SIGALRM, &handle, &old), 0);
    kit_each(interrupted);
    CU_ASSERT_EQUAL(sigaction(SIGALRM, &old, NULL), 0);
}

enum { WAKES = 2000 };

struct waker {
    struct engine *e;
    atomic_uint count;
};

static void *wake_often(void *arg)
{
    struct waker *w = arg;
    struct timespec pause = {.tv_nsec = 20000000}; // the first one is to come into a step that waits
    nanosleep(&pause, NULL);
    for (unsigned i = 0; i < WAKES; i++) {
        atomic_fetch_add(&w->count, 1);
        engine_wake(w->e);
    }
    return NULL;
}

// After each wake a step returns: a lost one would leave the last step waiting.
static void wakes(struct engine *e)
{
    struct waker w = {.e = e};
    pthread_t thread;
    CU_ASSERT_EQUAL_FATAL(pthread_create(&thread, NULL, wake_often, &w), 0);
    uint64_t start_ns = sys_clock_ns();
    while (atomic_load(&w.count) < WAKES)
        CU_ASSERT_EQUAL_FATAL(engine_step(e, KIT_WAIT_MS), 0);
    CU_ASSERT(ms_since(start_ns) < KIT_WAIT_MS);
    CU_ASSERT_EQUAL(pthread_join(thread, NULL), 0);
    CU_ASSERT_EQUAL(engine_step(e, 0), 0); // the last wake may be open still

    // A wake before the step is not lost, and many are one.
    engine_wake(e);
    engine_wake(e);
    start_ns = sys_clock_ns();
    CU_ASSERT_EQUAL(engine_step(e, KIT_WAIT_MS), 0);
    CU_ASSERT(ms_since(start_ns) < KIT_WAIT_MS / 2);
    start_ns = sys_clock_ns();
    CU_ASSERT_EQUAL(engine_step(e, 30), 0);
    CU_ASSERT(ms_since(start_ns) >= 30);
}

static void test_wake(void)
{
    kit_each(wakes);
}

void suite_engine_wait(void)
{
    CU_pSuite suite = CU_add_suite("engine_wait", NULL, NULL);
    CU_add_test(suite, "timeout", test_timeout);
    CU_add_test(suite, "never_waits", test_never_waits);
    CU_add_test(suite, "interrupted", test_interrupted);
    CU_add_test(suite, "wake", test_wake);
}
