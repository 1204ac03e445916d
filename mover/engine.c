// What all engines do alike: which one it is, the count of operations, what is done at once, and the order of
// a step: submit, wait, gather, then call the `done`s.
#include "mover/engine.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "mover/engine_ops.h"
#include "mover/wake.h"
#include "storage/sys.h"

enum { WHY_BYTES = 160 };

static const char *const kind_names[ENGINE_KINDS] = {
    [ENGINE_AUTO] = "auto",
    [ENGINE_URING] = "uring",
    [ENGINE_AIO] = "aio",
    [ENGINE_THREADS] = "threads",
};

const char *engine_kind_name(enum engine_kind kind)
{
    assert(kind < ENGINE_KINDS);
    return kind_names[kind];
}

static const struct engine_ops *ops_of(enum engine_kind kind)
{
    switch (kind) {
    case ENGINE_URING:
        return &engine_uring_ops;
    case ENGINE_AIO:
        return &engine_aio_ops;
    case ENGINE_THREADS:
        return &engine_threads_ops;
    case ENGINE_AUTO:
    case ENGINE_KINDS:
        break;
    }
    assert(0 && "no such engine");
    return NULL;
}

static int open_kind(struct engine *e, enum engine_kind kind, char detail[ENGINE_DETAIL_BYTES])
{
    const struct engine_ops *ops = ops_of(kind);
    int rc = ops->open(e, detail);
    if (rc == 0)
        e->ops = ops;
    return rc;
}

// `why` says what was opened with the words of its own, or with those of the one that it stands in for.
static int open_auto(struct engine *e, char why[WHY_BYTES])
{
    char refused[ENGINE_DETAIL_BYTES] = "", detail[ENGINE_DETAIL_BYTES] = "";
    if (open_kind(e, ENGINE_URING, refused) == 0) {
        snprintf(why, WHY_BYTES, "%s (%s)", kind_names[ENGINE_URING], refused);
        return 0;
    }
    int rc = open_kind(e, ENGINE_THREADS, detail);
    if (rc == 0)
        snprintf(why, WHY_BYTES, "%s (%s)", kind_names[ENGINE_THREADS], refused);
    else
        snprintf(why, WHY_BYTES, "%s", detail);
    return rc;
}

static int open_named(struct engine *e, enum engine_kind kind, char why[WHY_BYTES])
{
    char detail[ENGINE_DETAIL_BYTES] = "";
    int rc = open_kind(e, kind, detail);
    if (rc == 0)
        snprintf(why, WHY_BYTES, "%s (%s)", kind_names[kind], detail);
    else
        snprintf(why, WHY_BYTES, "%s", detail);
    return rc;
}

static int open_common(struct engine *e, unsigned file_threads)
{
    e->wake_fd = wake_open();
    return e->wake_fd < 0 ? e->wake_fd : filepool_new(file_threads, e->wake_fd, &e->pool);
}

int engine_new(const struct engine_config *cfg, struct engine **out, char why[WHY_BYTES])
{
    assert(cfg->kind < ENGINE_KINDS && cfg->depth > 0 && cfg->file_threads > 0);
    char words[WHY_BYTES] = "";
    struct engine *e = calloc(1, sizeof(*e));
    if (e == NULL)
        return -ENOMEM;
    e->depth = cfg->depth;
    int rc = open_common(e, cfg->file_threads);
    if (rc < 0)
        snprintf(words, sizeof(words), "file threads: %s", strerrordesc_np(-rc));
    else
        rc = cfg->kind == ENGINE_AUTO ? open_auto(e, words) : open_named(e, cfg->kind, words);
    if (why != NULL)
        memcpy(why, words, sizeof(words));
    if (rc < 0) {
        engine_free(e);
        return rc;
    }
    *out = e;
    return 0;
}

void engine_free(struct engine *e)
{
    if (e == NULL)
        return;
    assert(e->in_flight == 0 && !e->stepping);
    if (e->ops != NULL)
        e->ops->close(e);
    filepool_free(e->pool);
    if (e->wake_fd >= 0)
        close(e->wake_fd);
    free(e);
}

enum engine_kind engine_kind_of(const struct engine *e)
{
    return e->ops->kind;
}

unsigned engine_in_flight(const struct engine *e)
{
    return e->in_flight;
}

void engine_finish(struct engine *e, struct op *op, int64_t result)
{
    op->result = result;
    op_queue_push(&e->ended, op);
}

static void start_call(struct engine *e, struct op *op)
{
    if (op->at_once)
        engine_finish(e, op, op->call(op->arg));
    else
        filepool_start(e->pool, op);
}

static void start_transfer(struct engine *e, struct op *op)
{
    bool file = op->kind == OP_READ || op->kind == OP_WRITE;
    e->transfers++;
    assert(e->transfers <= e->depth);
    if (op->len == 0) {
        engine_finish(e, op, 0);
    } else if (file && op->at_once) {
        filepool_run(op);
        op_queue_push(&e->ended, op);
    } else {
        e->ops->start(e, op);
    }
}

void engine_start(struct engine *e, struct op *op)
{
    assert(op->done != NULL);
    op->moved = 0;
    op->result = 0;
    op->tries = 0;
    e->in_flight++;
    if (op->kind == OP_CALL)
        start_call(e, op);
    else
        start_transfer(e, op);
}

void engine_woken(struct engine *e)
{
    // In this order: what ends after it was looked for signals again.
    wake_drain(e->wake_fd);
    filepool_take(e->pool, &e->ended);
}

void engine_wake(struct engine *e)
{
    // One signal is enough until the stepping thread has seen it.
    if (!atomic_exchange(&e->woken, true))
        wake_signal(e->wake_fd);
}

// Calls the `done`s of what has ended so far. What they start is for the next step, also when it ends at
// once.
static int deliver(struct engine *e)
{
    struct op_queue now = {0};
    struct op *op;
    int count = 0;
    op_queue_append(&now, &e->ended);
    while ((op = op_queue_pop(&now)) != NULL) {
        e->in_flight--;
        e->transfers -= op->kind != OP_CALL;
        op->done(op, op->result);
        count++;
    }
    return count;
}

// Milliseconds until then, rounded up; 0: it is past.
static int ms_until(uint64_t deadline_ns)
{
    uint64_t now_ns = sys_clock_ns();
    return now_ns >= deadline_ns ? 0 : (int)u64_div_up(deadline_ns - now_ns, 1000000);
}

static int take_failure(struct engine *e)
{
    int rc = e->failure;
    e->failure = 0;
    return rc;
}

int engine_step(struct engine *e, int timeout_ms)
{
    assert(!e->stepping);
    if (e->failure != 0)
        return take_failure(e);
    e->stepping = true;
    uint64_t deadline_ns = timeout_ms > 0 ? sys_clock_ns() + (uint64_t)timeout_ms * 1000000 : 0;
    int left_ms = timeout_ms, rc;
    do {
        rc = e->ops->wait(e, op_queue_empty(&e->ended) ? left_ms : 0);
        // Asked for in any case: the signal is drained by now, and one that stayed noted would be the last.
        bool woken = atomic_exchange(&e->woken, false);
        if (rc < 0 || !op_queue_empty(&e->ended) || woken)
            break;
        if (timeout_ms > 0)
            left_ms = ms_until(deadline_ns);
    } while (left_ms != 0);
    e->failure = rc;
    int count = deliver(e);
    e->stepping = false;
    return count > 0 ? count : take_failure(e);
}
