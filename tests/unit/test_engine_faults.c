// What the kernel answers only on rare days: nothing without waiting, no memory, half of it. The calls by
// which the engines take answers are taken over here; they do what liburing's and libaio's own do and then
// change the answers to operations that ask for it: `arg`, which only calls use otherwise, points at what to
// answer.
#include <dlfcn.h>
#include <errno.h>
#include <libaio.h>
#include <liburing.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

#include "proto/limits.h"
#include "tests/unit/engine_kit.h"

enum { ANSWERS_MAX = 6, KEEP = 1 };

struct answers {
    int res[ANSWERS_MAX]; // in place of the kernel's own, one after the other; KEEP leaves it
    unsigned count;
    unsigned seen; // answers so far
};

// What to answer to `op` in place of res. The operations of this file are known by their `done`.
static int64_t answer(struct op *op, int64_t res)
{
    struct answers *a = op->arg;
    if (op->done != kit_on_done || a == NULL)
        return res;
    unsigned i = a->seen++;
    return i < a->count && a->res[i] != KEEP ? a->res[i] : res;
}

static void change_answers(struct io_uring *ring)
{
    struct io_uring_cqe *cqe;
    unsigned head;
    io_uring_for_each_cqe(ring, head, cqe) if (cqe->user_data != 0 && (cqe->user_data & 1) == 0) cqe->res =
        (int)answer((struct op *)(uintptr_t)cqe->user_data, cqe->res);
}

int io_uring_submit_and_get_events(struct io_uring *ring)
{
    static const char name[] = "io_uring_submit_and_get_events";
    int (*real)(struct io_uring *) = (int (*)(struct io_uring *))dlsym(RTLD_NEXT, name);
    int rc = real(ring);
    change_answers(ring);
    return rc;
}

typedef int submit_and_wait_fn(struct io_uring *, struct io_uring_cqe **, unsigned,
                               struct __kernel_timespec *, sigset_t *);

int io_uring_submit_and_wait_timeout(struct io_uring *ring, struct io_uring_cqe **cqe, unsigned count,
                                     struct __kernel_timespec *limit, sigset_t *mask)
{
    static const char name[] = "io_uring_submit_and_wait_timeout";
    submit_and_wait_fn *real = (submit_and_wait_fn *)dlsym(RTLD_NEXT, name);
    int rc = real(ring, cqe, count, limit, mask);
    change_answers(ring);
    return rc;
}

typedef int getevents_fn(io_context_t, long, long, struct io_event *, struct timespec *);

int io_getevents(io_context_t context, long count_min, long count_max, struct io_event *events,
                 struct timespec *limit)
{
    getevents_fn *real = (getevents_fn *)dlsym(RTLD_NEXT, "io_getevents");
    int count = real(context, count_min, count_max, events, limit);
    for (int i = 0; i < count; i++)
        events[i].res = (unsigned long)answer(events[i].data, (long)events[i].res);
    return count;
}

// An older kernel refuses the flags that it does not know: those in the environment, as it carries no other
// word here.
static const char unknown_flags[] = "TEST_UNKNOWN_RING_FLAGS";

typedef int queue_init_fn(unsigned, struct io_uring *, struct io_uring_params *);

int io_uring_queue_init_params(unsigned entries, struct io_uring *ring, struct io_uring_params *params)
{
    queue_init_fn *real = (queue_init_fn *)dlsym(RTLD_NEXT, "io_uring_queue_init_params");
    const char *flags = getenv(unknown_flags);
    if (flags != NULL && (params->flags & strtoul(flags, NULL, 0)) != 0)
        return -EINVAL;
    return real(entries, ring, params);
}

// `seen` tells who did it: an operation that a file thread took over gets no further answer of the kernel's
// queue.
struct file_case {
    enum op_kind kind;
    int direct; // 0 or O_DIRECT
    struct answers answers;
    int64_t result;
};

enum { FILE_LEN = 16 * KIB };

static uint8_t *aligned_new(void)
{
    uint8_t *buf = aligned_alloc(BLOCK_BYTES, FILE_LEN);
    CU_ASSERT_PTR_NOT_NULL_FATAL(buf);
    return buf;
}

static void run_file_case(struct engine *e, const struct file_case *c, int fd)
{
    uint8_t *want = aligned_new(), *buf = aligned_new(), *back = aligned_new();
    struct answers answers = c->answers; // whose `seen` is what is expected
    answers.seen = 0;
    kit_fill(want, FILE_LEN, 5);
    memset(buf, 0, FILE_LEN);
    CU_ASSERT_EQUAL(sys_pwrite_full(fd, c->kind == OP_READ ? want : buf, FILE_LEN, 0), 0);
    if (c->kind == OP_WRITE)
        memcpy(buf, want, FILE_LEN);
    struct kit_op op = kit_transfer(c->kind, fd, buf, FILE_LEN, 0);
    op.op.arg = &answers;
    CU_ASSERT_EQUAL(kit_run(e, op), c->result);
    CU_ASSERT_EQUAL(answers.seen, c->answers.seen);
    if (c->result >= 0) {
        CU_ASSERT_EQUAL(sys_pread_full(fd, back, FILE_LEN, 0), FILE_LEN);
        CU_ASSERT_EQUAL(memcmp(back, want, FILE_LEN), 0);
        CU_ASSERT_EQUAL(memcmp(buf, want, FILE_LEN), 0);
    }
    free(want);
    free(buf);
    free(back);
}

static void run_file_cases(enum engine_kind kind, const struct file_case *cases, size_t count)
{
    struct engine *e = kit_engine(kind);
    CU_PASS("where there is no such engine");
    for (size_t i = 0; e != NULL && i < count; i++) {
        int fd = kit_file(kit_disk(), O_RDWR | cases[i].direct);
        CU_ASSERT_FATAL(fd >= 0 || cases[i].direct != 0);
        if (fd < 0) {
            fprintf(stderr, "  no direct I/O in %s\n", kit_disk());
            continue;
        }
        run_file_case(e, &cases[i], fd);
        close(fd);
    }
    engine_free(e);
}

static void test_uring_files(void)
{
    static const struct file_case cases[] = {
        {OP_READ, 0, {.seen = 1}, FILE_LEN}, // the test itself changes nothing
        {OP_READ, 0, {{-EAGAIN}, 1, 2}, FILE_LEN},
        {OP_READ, 0, {{-EAGAIN, -EAGAIN}, 2, 2}, FILE_LEN}, // the second time it goes to a thread
        {OP_READ, 0, {{-ENOMEM}, 1, 1}, FILE_LEN},
        {OP_READ, 0, {{-EINTR, 5000}, 2, 3}, FILE_LEN},
        {OP_READ, 0, {{5000, -ENOMEM}, 2, 2}, FILE_LEN}, // a thread ends what the ring began
        {OP_READ, 0, {{5000, -EIO}, 2, 2}, -EIO},
        {OP_READ, O_DIRECT, {{5000, -EAGAIN, 4096, -EAGAIN, -EAGAIN}, 5, 5}, FILE_LEN},
        {OP_READ, O_DIRECT, {{4096, 0}, 2, 2}, 4096},
        {OP_WRITE, 0, {{-EAGAIN}, 1, 2}, 0},
        {OP_WRITE, 0, {{5000, -EAGAIN, -EAGAIN}, 3, 3}, 0},
        {OP_WRITE, O_DIRECT, {{4608, -ENOMEM}, 2, 2}, 0},
        {OP_WRITE, O_DIRECT, {{4096, -ENOSPC}, 2, 2}, -ENOSPC},
        {OP_WRITE, 0, {{0, 0, KEEP}, 3, 3}, 0},
        {OP_WRITE, 0, {{0, 0, 0}, 3, 3}, -EIO},
    };
    run_file_cases(ENGINE_URING, cases, ARRAY_LEN(cases));
}

static void test_aio_files(void)
{
    static const struct file_case cases[] = {
        {OP_READ, 0, {.seen = 0}, FILE_LEN}, // not for the kernel's queue
        {OP_READ, O_DIRECT, {.seen = 1}, FILE_LEN},
        {OP_READ, O_DIRECT, {{-EAGAIN}, 1, 1}, FILE_LEN},
        {OP_READ, O_DIRECT, {{-ENOMEM}, 1, 1}, FILE_LEN},
        {OP_READ, O_DIRECT, {{5000, -EAGAIN}, 2, 2}, FILE_LEN},
        {OP_READ, O_DIRECT, {{-EINTR, 5000, 8192}, 3, 4}, FILE_LEN},
        {OP_READ, O_DIRECT, {{4096, -EIO}, 2, 2}, -EIO},
        {OP_READ, O_DIRECT, {{4096, 0}, 2, 2}, 4096},
        {OP_WRITE, O_DIRECT, {{4608, KEEP}, 2, 2}, 0},
        {OP_WRITE, O_DIRECT, {{4096, -ENOSPC}, 2, 2}, -ENOSPC},
        {OP_WRITE, O_DIRECT, {{0, 0, 0}, 3, 3}, -EIO},
    };
    run_file_cases(ENGINE_AIO, cases, ARRAY_LEN(cases));
}

// What a socket answers before it has a connection is hidden by -EAGAIN: now it is to be polled.
struct unready {
    struct answers answers;
    struct kit_op op;
    char byte;
    int fd;
};

static void unready_start(struct unready *u, struct engine *e, enum op_kind kind)
{
    *u = (struct unready){.answers = {.res = {-EAGAIN}, .count = 1}, .byte = 'x'};
    u->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CU_ASSERT_FATAL(u->fd >= 0);
    u->op = kit_transfer(kind, u->fd, &u->byte, 1, 0);
    u->op.op.arg = &u->answers;
    engine_start(e, &u->op.op);
    CU_ASSERT_EQUAL(engine_step(e, 0), 0);
    CU_ASSERT_EQUAL(u->answers.seen, 1);
}

// The descriptor gets a connection, one end of a pair, before the poll is submitted; the operation ends when
// it can.
static void unready_sockets(struct engine *e)
{
    struct unready sends, receives, fails;
    int fds[2];
    CU_ASSERT_EQUAL_FATAL(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    unready_start(&sends, e, OP_SEND);
    CU_ASSERT_EQUAL(dup2(fds[1], sends.fd), sends.fd);
    CU_ASSERT_TRUE_FATAL(kit_drain(e)); // there is room to send, though nothing to receive
    CU_ASSERT_EQUAL(sends.op.result, 0);
    CU_ASSERT_EQUAL(sends.answers.seen, 2);

    unready_start(&receives, e, OP_RECV);
    CU_ASSERT_EQUAL(dup2(fds[1], receives.fd), receives.fd);
    CU_ASSERT_EQUAL(engine_step(e, 20), 0);
    CU_ASSERT_EQUAL(receives.answers.seen, 1);
    CU_ASSERT_EQUAL(send(fds[0], "y", 1, 0), 1);
    CU_ASSERT_TRUE_FATAL(kit_drain(e));
    CU_ASSERT_EQUAL(receives.op.result, 0);
    CU_ASSERT_EQUAL(receives.byte, 'y');
    CU_ASSERT_EQUAL(receives.answers.seen, 2);

    unready_start(&fails, e, OP_RECV);
    close(fails.fd);
    CU_ASSERT_TRUE_FATAL(kit_drain(e));
    CU_ASSERT_EQUAL(fails.op.result, -EBADF);
    CU_ASSERT_EQUAL(fails.answers.seen, 1); // the poll's own error
    close(sends.fd);
    close(receives.fd);
    close(fds[0]);
    close(fds[1]);
}

static void test_unready_socket(void)
{
    struct engine *e = kit_engine(ENGINE_URING);
    CU_PASS("where there is no io_uring");
    if (e != NULL)
        unready_sockets(e);
    engine_free(e);
}

// A file and a socket through a ring of an older kernel.
static void use_ring(struct engine *e)
{
    char out[] = "old", in[sizeof(out)] = "", back[sizeof(out)] = "";
    int fds[2], fd = kit_file("/dev/shm", 0);
    CU_ASSERT_EQUAL_FATAL(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    CU_ASSERT_EQUAL(kit_run(e, kit_transfer(OP_WRITE, fd, out, sizeof(out), 0)), 0);
    CU_ASSERT_EQUAL(kit_run(e, kit_transfer(OP_READ, fd, back, sizeof(back), 0)), sizeof(back));
    struct kit_op receives = kit_transfer(OP_RECV, fds[1], in, sizeof(in), 0);
    engine_start(e, &receives.op);
    CU_ASSERT_EQUAL(engine_step(e, 1), 0);
    CU_ASSERT_EQUAL(kit_run(e, kit_transfer(OP_SEND, fds[0], out, sizeof(out), 0)), 0);
    CU_ASSERT_TRUE(receives.done == 1 && receives.result == 0);
    CU_ASSERT_STRING_EQUAL(back, out);
    CU_ASSERT_STRING_EQUAL(in, out);
    close(fd);
    close(fds[0]);
    close(fds[1]);
}

static void test_older_kernels(void)
{
    static const struct {
        unsigned unknown;
        enum engine_kind kind;
        const char *why;
    } cases[] = {
        {IORING_SETUP_DEFER_TASKRUN, ENGINE_URING, "uring (COOP_TASKRUN, 8 entries)"},
        {IORING_SETUP_COOP_TASKRUN, ENGINE_URING, "uring (SUBMIT_ALL, 8 entries)"},
        {IORING_SETUP_SUBMIT_ALL, ENGINE_URING, "uring (plain, 8 entries)"},
        {IORING_SETUP_CQSIZE, ENGINE_THREADS, "threads (io_uring: EINVAL, io_uring_setup)"},
    };
    struct engine_config cfg = {.kind = ENGINE_URING, .depth = 7, .file_threads = 1};
    struct engine *e = NULL;
    CU_PASS("where there is no io_uring");
    if (engine_new(&cfg, &e, NULL) < 0)
        return;
    engine_free(e);
    cfg.kind = ENGINE_AUTO;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char flags[16], why[160];
        snprintf(flags, sizeof(flags), "%u", cases[i].unknown);
        CU_ASSERT_EQUAL(setenv(unknown_flags, flags, 1), 0);
        CU_ASSERT_EQUAL_FATAL(engine_new(&cfg, &e, why), 0);
        CU_ASSERT_EQUAL(unsetenv(unknown_flags), 0);
        CU_ASSERT_EQUAL(engine_kind_of(e), cases[i].kind);
        CU_ASSERT_STRING_EQUAL(why, cases[i].why);
        use_ring(e);
        engine_free(e);
    }
}

void suite_engine_faults(void)
{
    CU_pSuite suite = CU_add_suite("engine_faults", NULL, NULL);
    CU_add_test(suite, "uring_files", test_uring_files);
    CU_add_test(suite, "aio_files", test_aio_files);
    CU_add_test(suite, "unready_socket", test_unready_socket);
    CU_add_test(suite, "older_kernels", test_older_kernels);
}
