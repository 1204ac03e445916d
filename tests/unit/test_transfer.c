#include "mover/transfer.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "tests/unit/engine_kit.h"

enum { STEPS_MAX = 6 };

// Answers of the kernel in turn, and what comes of them: over with the last one and not before.
struct transfer_case {
    enum op_kind kind;
    size_t len;
    int64_t answers[STEPS_MAX];
    unsigned count;
    int64_t result;
};

static void run_case(const struct transfer_case *c, int fd)
{
    char unused[1];
    struct op op = {.kind = c->kind, .fd = fd, .buf = unused, .len = c->len};
    for (unsigned i = 0; i < c->count; i++) {
        bool over = transfer_advance(&op, c->answers[i]);
        CU_ASSERT_EQUAL(over, i + 1 == c->count);
    }
    CU_ASSERT_EQUAL(op.result, c->result);
}

static void test_whole_or_error(void)
{
    static const struct transfer_case cases[] = {
        {OP_READ, 10, {10}, 1, 10},
        {OP_READ, 10, {3, 7}, 2, 10},
        {OP_READ, 10, {0}, 1, 0},
        {OP_READ, 10, {3, -EINTR, 0}, 3, 3},
        {OP_READ, 10, {3, -EIO}, 2, -EIO},
        {OP_WRITE, 10, {10}, 1, 0},
        {OP_WRITE, 10, {1, -EINTR, 9}, 3, 0},
        {OP_WRITE, 10, {4, -ENOSPC}, 2, -ENOSPC},
        {OP_WRITE, 10, {0, 0, 0}, 3, -EIO},
        {OP_WRITE, 10, {0, 0, 5, 0, 0, 5}, 6, 0}, // what moves starts the count again
        {OP_SEND, 10, {2, 8}, 2, 0},
        {OP_SEND, 10, {0, 0, 0}, 3, -EIO},
        {OP_SEND, 10, {2, -EPIPE}, 2, -EPIPE},
        {OP_RECV, 10, {2, 8}, 2, 0},
        {OP_RECV, 10, {0}, 1, -ENODATA},
        {OP_RECV, 10, {9, 0}, 2, -ECONNRESET},
        {OP_RECV, 10, {-EINTR, -ETIMEDOUT}, 2, -ETIMEDOUT},
    };
    int fd = kit_file(kit_disk(), 0);
    CU_ASSERT_FATAL(fd >= 0);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        run_case(&cases[i], fd);
    close(fd);
}

static void test_rest(void)
{
    char buf[8];
    struct op op = {.kind = OP_RECV, .fd = -1, .buf = buf, .len = sizeof(buf)};
    CU_ASSERT_FALSE(transfer_advance(&op, 3));
    CU_ASSERT_PTR_EQUAL(transfer_at(&op), buf + 3);
    CU_ASSERT_EQUAL(transfer_left(&op), 5);
    CU_ASSERT_FALSE(transfer_is_file(&op));
}

// The file has 10,000 bytes: a block border lies at 4,096 and 8,192.
static void test_direct(void)
{
    static const struct {
        struct transfer_case c;
        size_t moved;
    } cases[] = {
        {{OP_READ, 16384, {10000}, 1, 10000}, 10000},
        {{OP_READ, 16384, {8192, 1808}, 2, 10000}, 10000},
        {{OP_READ, 16384, {5000, 5904}, 2, 10000}, 10000},         // stopped before the end: again from 4,096
        {{OP_READ, 16384, {100, 100, 100}, 3, -EIO}, 0},           // never gets to the first border
        {{OP_READ, 8192, {4608, 4096}, 2, 8192}, 8192},            // off the border by a sector
        {{OP_WRITE, 16384, {5000, 4096, 8192}, 3, 0}, 16384},      // 4,096, 8,192, end
        {{OP_WRITE, 16384, {4608, -ENOSPC}, 2, -ENOSPC}, 4096},    // and not -EINVAL
        {{OP_WRITE, 16384, {4608, 512, 512, 512}, 4, -EIO}, 4096}, // back at 4,096 each time
    };
    int fd = kit_file(kit_disk(), O_RDWR | O_DIRECT);
    if (fd < 0) {
        CU_PASS("no direct I/O here");
        printf("skip unit.transfer.direct no direct I/O in %s\n", kit_disk());
        return;
    }
    CU_ASSERT_EQUAL(ftruncate(fd, 10000), 0);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char unused[1];
        struct op op = {.kind = cases[i].c.kind, .fd = fd, .buf = unused, .len = cases[i].c.len};
        for (unsigned k = 0; k < cases[i].c.count; k++)
            CU_ASSERT_EQUAL(transfer_advance(&op, cases[i].c.answers[k]), k + 1 == cases[i].c.count);
        CU_ASSERT_EQUAL(op.result, cases[i].c.result);
        CU_ASSERT_EQUAL(op.moved, cases[i].moved);
    }
    close(fd);
}

void suite_transfer(void)
{
    CU_pSuite suite = CU_add_suite("transfer", NULL, NULL);
    CU_add_test(suite, "whole_or_error", test_whole_or_error);
    CU_add_test(suite, "rest", test_rest);
    CU_add_test(suite, "direct", test_direct);
}
