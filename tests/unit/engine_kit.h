// What the tests of the engines share: each test runs for each engine that works here.
#ifndef PENSTOCK_TESTS_UNIT_ENGINE_KIT_H
#define PENSTOCK_TESTS_UNIT_ENGINE_KIT_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <CUnit/CUnit.h>

#include "mover/engine.h"
#include "storage/sys.h"

enum { KIT_DEPTH = 16, KIT_FILE_THREADS = 3, KIT_WAIT_MS = 60000 };

// An operation that keeps its result.
struct kit_op {
    struct op op;
    int64_t result;
    unsigned done; // how often
};

static inline void kit_on_done(struct op *op, int64_t result)
{
    struct kit_op *k = CONTAINER_OF(op, struct kit_op, op);
    k->result = result;
    k->done++;
}

static inline struct kit_op kit_transfer(enum op_kind kind, int fd, void *buf, size_t len, uint64_t offset)
{
    return (struct kit_op){
        .op = {.kind = kind, .fd = fd, .buf = buf, .len = len, .offset = offset, .done = kit_on_done}};
}

static inline struct kit_op kit_call(int (*call)(void *arg), void *arg)
{
    return (struct kit_op){.op = {.kind = OP_CALL, .fd = -1, .call = call, .arg = arg, .done = kit_on_done}};
}

// Steps until all has ended; false: the engine broke, or a minute has passed.
static inline bool kit_drain(struct engine *e)
{
    uint64_t end_ns = sys_clock_ns() + UINT64_C(1000000) * KIT_WAIT_MS;
    while (engine_in_flight(e) > 0)
        if (engine_step(e, KIT_WAIT_MS) < 0 || sys_clock_ns() > end_ns)
            return false;
    return true;
}

// Runs one operation to its end.
static inline int64_t kit_run(struct engine *e, struct kit_op op)
{
    struct kit_op *k = malloc(sizeof(*k));
    CU_ASSERT_PTR_NOT_NULL_FATAL(k);
    *k = op;
    engine_start(e, &k->op);
    CU_ASSERT_EQUAL(k->done, 0);
    CU_ASSERT_TRUE_FATAL(kit_drain(e));
    CU_ASSERT_EQUAL(k->done, 1);
    int64_t result = k->result;
    free(k);
    return result;
}

static inline struct engine *kit_engine_deep(enum engine_kind kind, unsigned depth)
{
    struct engine_config cfg = {.kind = kind, .depth = depth, .file_threads = KIT_FILE_THREADS};
    struct engine *e = NULL;
    char why[160];
    int rc = engine_new(&cfg, &e, why);
    if (rc < 0) {
        CU_ASSERT_NOT_EQUAL(kind, ENGINE_THREADS); // which works everywhere
        printf("skip unit.engine.%s %s\n", engine_kind_name(kind), why);
        return NULL;
    }
    CU_ASSERT_EQUAL(engine_kind_of(e), kind);
    fprintf(stderr, "  %s\n", why);
    return e;
}

static inline struct engine *kit_engine(enum engine_kind kind)
{
    return kit_engine_deep(kind, KIT_DEPTH);
}

// Runs the test with each engine.
static inline void kit_each_deep(void (*test)(struct engine *e), unsigned depth)
{
    static const enum engine_kind kinds[] = {ENGINE_URING, ENGINE_AIO, ENGINE_THREADS};
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
        struct engine *e = kit_engine_deep(kinds[i], depth);
        if (e == NULL)
            continue;
        test(e);
        CU_ASSERT_EQUAL_FATAL(engine_in_flight(e), 0);
        engine_free(e);
    }
}

static inline void kit_each(void (*test)(struct engine *e))
{
    kit_each_deep(test, KIT_DEPTH);
}

// Pseudo-random bytes, the same for the same seed; len is a multiple of 8 or the rest stays as it is.
static inline void kit_fill(void *buf, size_t len, uint64_t seed)
{
    uint64_t x = seed * UINT64_C(0x9e3779b97f4a7c15) + 1;
    for (size_t i = 0; i + sizeof(x) <= len; i += sizeof(x)) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        memcpy((uint8_t *)buf + i, &x, sizeof(x));
    }
}

// The folder for files on a real disk.
static inline const char *kit_disk(void)
{
    const char *dir = getenv("TMPDIR");
    return dir != NULL ? dir : "/tmp";
}

// A new file without a name, open for reading and writing, or as the flags say; -1 when they are refused.
static inline int kit_file(const char *dir, int flags)
{
    char name[4096], again[64];
    snprintf(name, sizeof(name), "%s/engine.XXXXXX", dir);
    int fd = mkostemp(name, O_CLOEXEC);
    if (fd < 0)
        return -1;
    unlink(name);
    if (flags == 0)
        return fd;
    snprintf(again, sizeof(again), "/proc/self/fd/%d", fd);
    int other = open(again, flags | O_CLOEXEC);
    close(fd);
    return other;
}

#endif
