#include "mover/engine.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>

#include "proto/limits.h"
#include "tests/unit/engine_kit.h"

enum { BLOCK = 256 * KIB, BLOCKS = KIT_DEPTH * 2 };

static uint8_t *blocks_new(void)
{
    uint8_t *buf = aligned_alloc(BLOCK_BYTES, (size_t)BLOCKS * BLOCK);
    CU_ASSERT_PTR_NOT_NULL_FATAL(buf);
    return buf;
}

// Writes or reads all blocks, KIT_DEPTH at a time and never in order.
static void move_blocks(struct engine *e, enum op_kind kind, int fd, uint8_t *buf)
{
    struct kit_op ops[KIT_DEPTH];
    for (unsigned first = 0; first < BLOCKS; first += KIT_DEPTH) {
        for (unsigned i = 0; i < KIT_DEPTH; i++) {
            size_t at = (size_t)((first + i) * 7 % BLOCKS) * BLOCK;
            ops[i] = kit_transfer(kind, fd, buf + at, BLOCK, at);
            engine_start(e, &ops[i].op);
        }
        CU_ASSERT_EQUAL(engine_in_flight(e), KIT_DEPTH);
        CU_ASSERT_TRUE_FATAL(kit_drain(e));
        for (unsigned i = 0; i < KIT_DEPTH; i++)
            CU_ASSERT_TRUE(ops[i].done == 1 && ops[i].result == (kind == OP_READ ? BLOCK : 0));
    }
}

static void round_trip(struct engine *e, const char *dir, int flags)
{
    int fd = kit_file(dir, flags);
    if (fd < 0 && flags != 0) {
        fprintf(stderr, "  no direct I/O in %s\n", dir);
        return;
    }
    CU_ASSERT_FATAL(fd >= 0);
    uint8_t *buf = blocks_new(), *back = blocks_new();
    size_t len = (size_t)BLOCKS * BLOCK;
    kit_fill(buf, len, 1);
    memset(back, 0, len);
    CU_ASSERT_EQUAL(sys_fallocate(fd, 0, 0, len), 0);
    move_blocks(e, OP_WRITE, fd, buf);
    CU_ASSERT_EQUAL(sys_pread_full(fd, back, len, 0), (ssize_t)len);
    CU_ASSERT_EQUAL(memcmp(buf, back, len), 0);
    memset(back, 0, len);
    move_blocks(e, OP_READ, fd, back);
    CU_ASSERT_EQUAL(memcmp(buf, back, len), 0);
    free(buf);
    free(back);
    close(fd);
}

static void round_trips(struct engine *e)
{
    round_trip(e, kit_disk(), 0);
    round_trip(e, kit_disk(), O_RDWR | O_DIRECT);
    round_trip(e, "/dev/shm", 0);
    round_trip(e, "/dev/shm", O_RDWR | O_DIRECT);
    round_trip(e, kit_disk(), O_RDWR | O_NONBLOCK);
}

static void test_round_trip(void)
{
    kit_each(round_trips);
}

enum { DEEP = 5000 };

// More at a time than any queue of the kernel is made for.
static void deep(struct engine *e)
{
    uint16_t numbers[DEEP], back[DEEP] = {0};
    struct kit_op *ops = calloc(DEEP, sizeof(*ops));
    int fd = kit_file("/dev/shm", 0);
    CU_ASSERT_FATAL(ops != NULL && fd >= 0);
    for (unsigned i = 0; i < DEEP; i++)
        numbers[i] = (uint16_t)(i * 7);
    CU_ASSERT_EQUAL(sys_pwrite_full(fd, numbers, sizeof(numbers), 0), 0);
    for (unsigned i = 0; i < DEEP; i++) {
        ops[i] = kit_transfer(OP_READ, fd, &back[i], sizeof(back[i]), i * sizeof(back[i]));
        engine_start(e, &ops[i].op);
    }
    CU_ASSERT_EQUAL(engine_in_flight(e), DEEP);
    CU_ASSERT_TRUE_FATAL(kit_drain(e));
    for (unsigned i = 0; i < DEEP; i++)
        if (ops[i].done != 1 || ops[i].result != sizeof(back[i]))
            CU_FAIL("a read that did not end well");
    CU_ASSERT_EQUAL(memcmp(numbers, back, sizeof(numbers)), 0);
    free(ops);
    close(fd);
}

static void test_deep(void)
{
    kit_each_deep(deep, DEEP);
}

static void read_end(struct engine *e, const char *dir, int flags)
{
    static const struct {
        uint64_t size, offset;
        size_t len;
        int64_t result;
    } cases[] = {
        {0, 0, 4096, 0},           {1, 0, 4096, 1},          {511, 0, 4096, 511},
        {4096, 0, 4096, 4096},     {4096, 0, 16384, 4096},   {4096, 4096, 4096, 0},
        {4096, 40960, 4096, 0},    {10000, 0, 8192, 8192},   {10000, 0, 16384, 10000},
        {10000, 8192, 4096, 1808}, {10000, 12288, 4096, 0},  {12800, 0, 65536, 12800},
        {12288, 0, 65536, 12288},  {65536, 0, 65536, 65536},
    };
    uint8_t *buf = aligned_alloc(BLOCK_BYTES, 65536), *want = malloc(65536);
    CU_ASSERT_FATAL(buf != NULL && want != NULL);
    kit_fill(want, 65536, 2);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        int plain = kit_file(dir, 0);
        CU_ASSERT_FATAL(plain >= 0);
        CU_ASSERT_EQUAL(sys_pwrite_full(plain, want, cases[i].size, 0), 0);
        char name[64];
        snprintf(name, sizeof(name), "/proc/self/fd/%d", plain);
        int fd = open(name, O_RDONLY | flags);
        CU_ASSERT_FATAL(fd >= 0 || flags != 0);
        if (fd >= 0) {
            memset(buf, 0xee, 65536);
            int64_t result = kit_run(e, kit_transfer(OP_READ, fd, buf, cases[i].len, cases[i].offset));
            CU_ASSERT_EQUAL(result, cases[i].result);
            if (result > 0)
                CU_ASSERT_EQUAL(memcmp(buf, want + cases[i].offset, (size_t)result), 0);
            close(fd);
        }
        close(plain);
    }
    free(buf);
    free(want);
}

static void read_ends(struct engine *e)
{
    read_end(e, kit_disk(), 0);
    read_end(e, kit_disk(), O_DIRECT);
    read_end(e, "/dev/shm", 0);
}

static void test_read_end(void)
{
    kit_each(read_ends);
}

static void file_errors(struct engine *e)
{
    static const struct {
        enum op_kind kind;
        const char *path;
        int flags;
        int64_t result;
    } cases[] = {
        {OP_READ, NULL, 0, -EBADF},
        {OP_WRITE, NULL, 0, -EBADF},
        {OP_READ, "/dev/null", O_WRONLY, -EBADF},
        {OP_WRITE, "/dev/null", O_RDONLY, -EBADF},
        {OP_READ, "/dev/null", O_RDONLY, 0},
        {OP_READ, "/", O_RDONLY | O_DIRECTORY, -EISDIR},
        {OP_WRITE, "/dev/full", O_WRONLY, -ENOSPC},
        {OP_WRITE, "/dev/null", O_WRONLY, 0},
    };
    char *buf = aligned_alloc(BLOCK_BYTES, BLOCK_BYTES);
    CU_ASSERT_PTR_NOT_NULL_FATAL(buf);
    memset(buf, 0, BLOCK_BYTES);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        int fd = cases[i].path == NULL ? 999999 : open(cases[i].path, cases[i].flags | O_CLOEXEC);
        CU_ASSERT_FATAL(fd >= 0);
        CU_ASSERT_EQUAL(kit_run(e, kit_transfer(cases[i].kind, fd, buf, BLOCK_BYTES, 0)), cases[i].result);
        if (cases[i].path != NULL)
            close(fd);
    }
    // The descriptor of a direct file that may only be read: what a queue of the kernel refuses at its door.
    int fd = kit_file(kit_disk(), O_RDONLY | O_DIRECT);
    if (fd >= 0) {
        CU_ASSERT_EQUAL(kit_run(e, kit_transfer(OP_WRITE, fd, buf, BLOCK_BYTES, 0)), -EBADF);
        CU_ASSERT_EQUAL(kit_run(e, kit_transfer(OP_READ, fd, buf, BLOCK_BYTES, UINT64_MAX - 4095)), -EINVAL);
        close(fd);
    }
    free(buf);
}

static void test_file_errors(void)
{
    kit_each(file_errors);
}

// A limit on the size of files stops a write in its middle: first a part, then the error.
static void error_after_part(struct engine *e)
{
    static const int flags[] = {0, O_RDWR | O_DIRECT};
    char *buf = aligned_alloc(BLOCK_BYTES, 8 * BLOCK_BYTES);
    CU_ASSERT_PTR_NOT_NULL_FATAL(buf);
    memset(buf, 'x', 8 * BLOCK_BYTES);
    for (size_t i = 0; i < ARRAY_LEN(flags); i++) {
        int fd = kit_file(kit_disk(), flags[i]);
        struct stat st;
        if (fd < 0)
            continue;
        CU_ASSERT_EQUAL(kit_run(e, kit_transfer(OP_WRITE, fd, buf, 8 * BLOCK_BYTES, 0)), -EFBIG);
        CU_ASSERT_EQUAL(sys_fstat(fd, &st), 0);
        CU_ASSERT_EQUAL(st.st_size, 3 * BLOCK_BYTES);
        close(fd);
    }
    free(buf);
}

static void test_error_after_part(void)
{
    struct rlimit before, small;
    struct sigaction ignore = {.sa_handler = SIG_IGN}, old;
    CU_ASSERT_EQUAL_FATAL(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = (struct rlimit){.rlim_cur = 3 * BLOCK_BYTES, .rlim_max = before.rlim_max};
    CU_ASSERT_EQUAL(sigaction(SIGXFSZ, &ignore, &old), 0);
    CU_ASSERT_EQUAL(setrlimit(RLIMIT_FSIZE, &small), 0);
    kit_each(error_after_part);
    CU_ASSERT_EQUAL(setrlimit(RLIMIT_FSIZE, &before), 0);
    CU_ASSERT_EQUAL(sigaction(SIGXFSZ, &old, NULL), 0);
}

static int answer_7(void *arg)
{
    *(pthread_t *)arg = pthread_self();
    return 7;
}

// Done when engine_start returns, told by the next step, which does not wait.
static void at_once(struct engine *e)
{
    char out[] = "at once", in[sizeof(out)] = "";
    pthread_t where;
    int fd = kit_file("/dev/shm", 0);
    CU_ASSERT_FATAL(fd >= 0);
    struct kit_op ops[] = {
        kit_transfer(OP_WRITE, fd, out, sizeof(out), 0),
        kit_transfer(OP_READ, fd, in, sizeof(in), 0),
        kit_transfer(OP_WRITE, 999999, out, sizeof(out), 0),
        kit_call(answer_7, &where),
        kit_transfer(OP_RECV, 999999, in, 0, 0), // nothing to do is done at once, too
    };
    static const int64_t results[] = {0, sizeof(out), -EBADF, 7, 0};
    for (size_t i = 0; i < ARRAY_LEN(ops); i++) {
        ops[i].op.at_once = true;
        engine_start(e, &ops[i].op);
        CU_ASSERT_EQUAL(ops[i].done, 0);
    }
    CU_ASSERT_STRING_EQUAL(in, out);
    CU_ASSERT_TRUE(pthread_equal(where, pthread_self()));
    CU_ASSERT_EQUAL(engine_in_flight(e), ARRAY_LEN(ops));
    CU_ASSERT_EQUAL(engine_step(e, -1), ARRAY_LEN(ops));
    CU_ASSERT_EQUAL(engine_in_flight(e), 0);
    for (size_t i = 0; i < ARRAY_LEN(ops); i++)
        CU_ASSERT_TRUE(ops[i].done == 1 && ops[i].result == results[i]);
    close(fd);
}

static void test_at_once(void)
{
    kit_each(at_once);
}

// An operation that starts itself again from its `done`.
struct again {
    struct op op;
    struct engine *e;
    unsigned left;
    unsigned wrong;
    uintptr_t stack_low, stack_high;
};

static void on_again(struct op *op, int64_t result)
{
    struct again *a = CONTAINER_OF(op, struct again, op);
    uintptr_t here = (uintptr_t)__builtin_frame_address(0);
    a->stack_low = here < a->stack_low ? here : a->stack_low;
    a->stack_high = here > a->stack_high ? here : a->stack_high;
    a->wrong += result != 1;
    if (--a->left > 0)
        engine_start(a->e, op);
}

static int answer_1(void *arg)
{
    (void)arg;
    return 1;
}

static void again(struct engine *e)
{
    char byte;
    int fd = kit_file("/dev/shm", 0);
    CU_ASSERT_FATAL(fd >= 0);
    CU_ASSERT_EQUAL(sys_pwrite_full(fd, "x", 1, 0), 0);
    const struct op kinds[] = {
        {.kind = OP_READ, .fd = fd, .buf = &byte, .len = 1},
        {.kind = OP_READ, .fd = fd, .buf = &byte, .len = 1, .at_once = true},
        {.kind = OP_CALL, .call = answer_1},
        {.kind = OP_CALL, .call = answer_1, .at_once = true},
    };
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
        struct again a = {.op = kinds[i], .e = e, .left = 10000, .stack_low = UINTPTR_MAX};
        a.op.done = on_again;
        engine_start(e, &a.op);
        // Also what ends at once is for the next step when a `done` starts it: a step always returns.
        CU_ASSERT_EQUAL(engine_step(e, KIT_WAIT_MS), 1);
        CU_ASSERT_EQUAL(a.left, 9999);
        CU_ASSERT_TRUE_FATAL(kit_drain(e));
        CU_ASSERT_EQUAL(a.left, 0);
        CU_ASSERT_EQUAL(a.wrong, 0);
        CU_ASSERT(a.stack_high - a.stack_low < 4096);
    }
    close(fd);
}

static void test_again(void)
{
    kit_each(again);
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

static int open_gate(void *arg)
{
    struct gate *g = arg;
    return sem_post(&g->open);
}

// Calls end in any order: the first one waits for the last.
static void calls(struct engine *e)
{
    struct gate gate = {.result = -EXDEV};
    CU_ASSERT_EQUAL_FATAL(sem_init(&gate.open, 0, 0), 0);
    pthread_t where = pthread_self();
    struct kit_op ops[64];
    ops[0] = kit_call(wait_at_gate, &gate);
    for (size_t i = 1; i < ARRAY_LEN(ops) - 1; i++)
        ops[i] = kit_call(answer_1, NULL);
    ops[ARRAY_LEN(ops) - 1] = kit_call(open_gate, &gate);
    for (size_t i = 0; i < ARRAY_LEN(ops); i++)
        engine_start(e, &ops[i].op); // more than the depth: calls do not count
    CU_ASSERT_EQUAL(engine_in_flight(e), ARRAY_LEN(ops));
    CU_ASSERT_TRUE_FATAL(kit_drain(e));
    CU_ASSERT_EQUAL(ops[0].result, -EXDEV);
    for (size_t i = 1; i < ARRAY_LEN(ops) - 1; i++)
        CU_ASSERT_TRUE(ops[i].done == 1 && ops[i].result == 1);
    CU_ASSERT_EQUAL(ops[ARRAY_LEN(ops) - 1].result, 0);
    CU_ASSERT_EQUAL(kit_run(e, kit_call(answer_7, &where)), 7);
    CU_ASSERT_FALSE(pthread_equal(where, pthread_self()));
    sem_destroy(&gate.open);
}

static void test_calls(void)
{
    kit_each(calls);
}

void suite_engine(void)
{
    CU_pSuite suite = CU_add_suite("engine", NULL, NULL);
    CU_add_test(suite, "round_trip", test_round_trip);
    CU_add_test(suite, "deep", test_deep);
    CU_add_test(suite, "read_end", test_read_end);
    CU_add_test(suite, "file_errors", test_file_errors);
    CU_add_test(suite, "error_after_part", test_error_after_part);
    CU_add_test(suite, "at_once", test_at_once);
    CU_add_test(suite, "again", test_again);
    CU_add_test(suite, "calls", test_calls);
}
