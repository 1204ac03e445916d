// mover/engine.h in virtual time: transfers of files end in any order after any time, calls run on tasks of
// the engine, sockets move as far as the network lets them.
#include "mover/engine.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/descriptor.h"
#include "tests/sim/net.h"
#include "tests/sim/sched.h"
#include "tests/sim/sys_inner.h"
#include "tests/sim/world.h"

enum { SLOW_ONCE_IN = 100 };

struct engine {
    struct process *process;
    struct engine_config cfg;
    struct op *ended;              // in any order
    struct op *sockets;            // in progress
    struct op *calls, **last_call; // waiting for a task
    unsigned idle_tasks, tasks;
    unsigned in_flight, transfers;
    bool woken, stepping, closing;
    struct pollfd *fds; // [depth]
};

const char *engine_kind_name(enum engine_kind kind)
{
    static const char *const names[ENGINE_KINDS] = {"auto", "uring", "aio", "threads"};
    return names[kind];
}

enum engine_kind engine_kind_of(const struct engine *e)
{
    return e->cfg.kind;
}

unsigned engine_in_flight(const struct engine *e)
{
    return e->in_flight;
}

int engine_new(const struct engine_config *cfg, struct engine **out, char why[160])
{
    struct engine *e = calloc(1, sizeof *e);
    assert(e != NULL && cfg->depth > 0 && cfg->file_threads > 0);
    *e = (struct engine){.process = process_current(), .cfg = *cfg};
    e->last_call = &e->calls;
    e->fds = calloc(cfg->depth, sizeof *e->fds);
    assert(e->fds != NULL);
    if (why != NULL)
        snprintf(why, 160, "simulated");
    *out = e;
    return 0;
}

void engine_free(struct engine *e)
{
    if (e == NULL)
        return;
    assert(e->in_flight == 0 && !e->stepping);
    e->closing = true;
    task_wake_all(&e->calls);
    while (e->tasks > 0)
        (void)task_wait(&e->tasks, NEVER_NS);
    free(e->fds);
    free(e);
}

void engine_wake(struct engine *e)
{
    e->woken = true;
    task_wake_all(e);
}

static void finish(struct engine *e, struct op *op, int64_t result)
{
    op->result = result;
    op->next = e->ended;
    e->ended = op;
    task_wake_all(e);
}

// ---- calls ----

static void *call_main(void *arg)
{
    struct engine *e = arg;
    while (!e->closing) {
        struct op *op = e->calls;
        if (op == NULL) {
            e->idle_tasks++;
            (void)task_wait(&e->calls, NEVER_NS);
            e->idle_tasks--;
            continue;
        }
        e->calls = op->next;
        if (e->calls == NULL)
            e->last_call = &e->calls;
        finish(e, op, op->call(op->arg));
    }
    e->tasks--;
    task_wake_all(&e->tasks);
    return NULL;
}

static void start_call(struct engine *e, struct op *op)
{
    op->next = NULL;
    *e->last_call = op;
    e->last_call = &op->next;
    if (e->idle_tasks == 0 && e->tasks < e->cfg.file_threads) {
        e->tasks++;
        task_new(e->process, "file thread", call_main, e);
    }
    task_wake_one(&e->calls);
}

// ---- files ----

// A transfer under way. The engine outlives it, unless the process does not.
struct transfer {
    struct engine *engine;
    struct open_file *file;
    struct op *op;
};

static int64_t transfer_now(const struct engine *e, struct open_file *f, struct op *op)
{
    int rc = host_call(process_host(e->process), op->kind == OP_READ ? "read" : "write");
    if (rc < 0 || !process_alive(e->process)) // the call may have been its end
        return rc < 0 ? rc : -ECANCELED;
    if (op->kind == OP_READ)
        return file_read(f, op->buf, op->len, op->offset);
    int64_t n = file_write(f, op->buf, op->len, op->offset);
    return n < 0 ? n : 0;
}

static void transfer_end(void *arg)
{
    struct transfer *t = arg;
    struct engine *e = t->engine;
    const struct host *h = process_host(e->process);
    if (h->stuck_until_ns > sched_now_ns()) { // somebody may make it answer before that
        sched_at(u64_min(h->stuck_until_ns, sched_now_ns() + NS_PER_S), e->process, transfer_end, t);
        return;
    }
    int64_t result = transfer_now(e, t->file, t->op);
    if (process_alive(e->process))
        finish(e, t->op, result);
    free(t);
}

static void start_file(struct engine *e, struct op *op)
{
    struct open_file *file = file_of(op->fd);
    if (op->at_once) {
        finish(e, op, transfer_now(e, file, op));
        return;
    }
    struct transfer *t = malloc(sizeof *t);
    assert(t != NULL);
    *t = (struct transfer){.engine = e, .file = file, .op = op};
    uint64_t most_ns = rng_once_in(sched_rng(), SLOW_ONCE_IN) ? 2 * NS_PER_S : 2 * NS_PER_MS;
    sched_at(sched_now_ns() + rng_below(sched_rng(), most_ns), e->process, transfer_end, t);
}

// ---- sockets ----

static void check_alone(const struct engine *e, const struct op *op)
{
    for (const struct op *other = e->sockets; other != NULL; other = other->next)
        if (other->fd == op->fd && other->kind == op->kind)
            world_fail("two transfers of a kind at once on socket %d", op->fd);
}

// True: it is over.
static bool socket_move(struct engine *e, struct op *op)
{
    struct socket *s = descriptor_object(op->fd, DESCRIPTOR_SOCKET);
    while (op->moved < op->len) {
        uint8_t *at = (uint8_t *)op->buf + op->moved;
        size_t left = op->len - op->moved;
        int64_t n = op->kind == OP_SEND ? socket_send(s, at, left) : socket_recv(s, at, left);
        if (n == -EAGAIN)
            return false;
        if (n == 0)
            n = op->moved == 0 ? -ENODATA : -ECONNRESET;
        if (n < 0) {
            finish(e, op, n);
            return true;
        }
        op->moved += (size_t)n;
    }
    finish(e, op, 0);
    return true;
}

static void sockets_move(struct engine *e)
{
    for (struct op **at = &e->sockets; *at != NULL;) {
        struct op *op = *at;
        struct op *next = op->next;
        if (socket_move(e, op))
            *at = next;
        else
            at = &op->next;
    }
}

static size_t sockets_watch(const struct engine *e)
{
    size_t count = 0;
    for (const struct op *op = e->sockets; op != NULL; op = op->next)
        e->fds[count++] = (struct pollfd){.fd = op->fd, .events = op->kind == OP_SEND ? POLLOUT : POLLIN};
    return count;
}

// ---- steps ----

void engine_start(struct engine *e, struct op *op)
{
    assert(op->done != NULL && process_current() == e->process);
    op->moved = 0;
    e->in_flight++;
    if (op->kind == OP_CALL) {
        if (op->at_once)
            finish(e, op, op->call(op->arg));
        else
            start_call(e, op);
        return;
    }
    e->transfers++;
    assert(e->transfers <= e->cfg.depth);
    if (op->len == 0) {
        finish(e, op, 0);
    } else if (op->kind == OP_READ || op->kind == OP_WRITE) {
        start_file(e, op);
    } else {
        check_alone(e, op);
        op->next = e->sockets;
        e->sockets = op;
    }
}

// One of those that have ended, whichever.
static struct op *take_ended(struct op **list)
{
    uint64_t count = 0;
    for (const struct op *op = *list; op != NULL; op = op->next)
        count++;
    struct op **at = list;
    for (uint64_t which = rng_below(sched_rng(), count); which > 0; which--)
        at = &(*at)->next;
    struct op *op = *at;
    if (op != NULL)
        *at = op->next;
    return op;
}

int engine_step(struct engine *e, int timeout_ms)
{
    assert(!e->stepping);
    e->stepping = true;
    uint64_t until_ns = timeout_ms < 0 ? NEVER_NS : sched_now_ns() + (uint64_t)timeout_ms * NS_PER_MS;
    task_pause();
    sockets_move(e);
    while (e->ended == NULL && !e->woken && sched_now_ns() < until_ns) {
        (void)task_wait_ready(e, e->fds, sockets_watch(e), until_ns);
        sockets_move(e);
    }
    e->woken = false;
    struct op *now = e->ended;
    e->ended = NULL;
    int count = 0;
    for (struct op *op = take_ended(&now); op != NULL; op = take_ended(&now)) {
        e->in_flight--;
        e->transfers -= op->kind != OP_CALL;
        op->done(op, op->result);
        count++;
    }
    e->stepping = false;
    return count;
}
