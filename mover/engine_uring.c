// The engine on io_uring: one ring made and used by one thread, files and sockets in it, one system call a
// step. Kept to what liburing 2.3 has and kernel 5.11 can: no links, no registered buffers, no zero copy, no
// polling thread. A file operation that the ring cannot do (-EAGAIN twice, -ENOMEM) is done by a file thread.
#include <assert.h>
#include <errno.h>
#include <liburing.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "mover/engine_ops.h"
#include "mover/transfer.h"

enum {
    ENTRIES_MIN = 64,                 // on -ENOMEM the ring is halved down to this
    ENTRIES_MAX = 4096,               // more operations than that are submitted in turns
    CQ_FACTOR = 4,                    // completion entries for one submission entry
    REFUSALS_MAX = 100,               // -EAGAIN and -EBUSY in a row before the ring counts as broken
    REFUSAL_WAIT_MS = 10,             // from one to the next
    CHUNK_BYTES = 1024 * 1024 * 1024, // one submission entry holds a length of 32 bits
};

// user_data: an operation; with this bit, the poll of its socket; 0: the poll of the wake descriptor.
#define POLL_TAG UINT64_C(1)

// Without these there is no use (all in kernel 5.11).
#define FEATURES \
    (IORING_FEAT_NODROP | IORING_FEAT_SUBMIT_STABLE | IORING_FEAT_EXT_ARG | IORING_FEAT_FAST_POLL)

// SUBMIT_ALL: one bad entry must not stop the batch behind it.
#define SETUP_PLAIN (IORING_SETUP_CQSIZE | IORING_SETUP_CLAMP)
#define SETUP_BATCH (SETUP_PLAIN | IORING_SETUP_SUBMIT_ALL)
#define SETUP_COOP  (SETUP_BATCH | IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG)
#define SETUP_DEFER (SETUP_COOP | IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN)

// What kernels learned in turn, the newest first; -EINVAL leads to the next.
static const struct {
    unsigned flags;
    const char *name;
} ladder[] = {
    {SETUP_DEFER, "DEFER_TASKRUN"}, // 6.1
    {SETUP_COOP, "COOP_TASKRUN"},   // 5.19
    {SETUP_BATCH, "SUBMIT_ALL"},    // 5.18
    {SETUP_PLAIN, "plain"},
};

struct uring {
    struct io_uring ring;
    struct op_queue queued;  // for the next submission
    struct op_queue unready; // sends and receives whose socket is to be polled first
    bool wake_polled;        // a poll of the wake descriptor is in the ring
    unsigned refusals;       // in a row
};

// Makes the ring with the most that this kernel knows. Returns the rung of the ladder.
static int make_ring(struct io_uring *ring, unsigned wanted)
{
    int rc = -EINVAL;
    for (size_t rung = 0; rung < ARRAY_LEN(ladder) && rc == -EINVAL; rung++) {
        for (unsigned n = wanted;; n /= 2) {
            struct io_uring_params params = {.flags = ladder[rung].flags, .cq_entries = n * CQ_FACTOR};
            rc = io_uring_queue_init_params(n, ring, &params);
            if (rc == 0)
                return (int)rung;
            if (rc != -ENOMEM || n / 2 < ENTRIES_MIN)
                break;
        }
    }
    return rc;
}

static bool has_operations(struct io_uring *ring)
{
    static const int needed[] = {IORING_OP_READ, IORING_OP_WRITE, IORING_OP_SEND, IORING_OP_RECV,
                                 IORING_OP_POLL_ADD};
    struct io_uring_probe *probe = io_uring_get_probe_ring(ring);
    bool all = probe != NULL;
    for (size_t i = 0; all && i < ARRAY_LEN(needed); i++)
        all = io_uring_opcode_supported(probe, needed[i]);
    io_uring_free_probe(probe);
    return all;
}

static const char *refusal(int rc)
{
    switch (-rc) {
    case ENOSYS:
        return "not in this kernel, or refused by a seccomp filter";
    case EPERM:
    case EACCES:
        return "kernel.io_uring_disabled, or refused by a seccomp filter";
    case ENOMEM:
        return "memory, or the limit of locked memory";
    default:
        return "io_uring_setup";
    }
}

static int open_ring(struct engine *e, struct uring *u, char detail[ENGINE_DETAIL_BYTES])
{
    unsigned wanted = 2;
    while (wanted < e->depth + 1 && wanted < ENTRIES_MAX) // 1: the poll of the wake descriptor
        wanted *= 2;
    int rung = make_ring(&u->ring, wanted);
    if (rung < 0) {
        snprintf(detail, ENGINE_DETAIL_BYTES, "io_uring: %s, %s", strerrorname_np(-rung), refusal(rung));
        return rung;
    }
    if ((u->ring.features & FEATURES) != FEATURES || !has_operations(&u->ring)) {
        snprintf(detail, ENGINE_DETAIL_BYTES, "io_uring: this kernel's is too old, 5.11 is needed");
        io_uring_queue_exit(&u->ring);
        return -ENOSYS;
    }
    snprintf(detail, ENGINE_DETAIL_BYTES, "%s, %u entries", ladder[rung].name, u->ring.sq.ring_entries);
    return 0;
}

static int uring_open(struct engine *e, char detail[ENGINE_DETAIL_BYTES])
{
    struct uring *u = calloc(1, sizeof(*u));
    if (u == NULL) {
        snprintf(detail, ENGINE_DETAIL_BYTES, "io_uring: out of memory");
        return -ENOMEM;
    }
    int rc = open_ring(e, u, detail);
    if (rc < 0) {
        free(u);
        return rc;
    }
    e->state = u;
    return 0;
}

static void uring_close(struct engine *e)
{
    struct uring *u = e->state;
    io_uring_queue_exit(&u->ring);
    free(u);
}

static void uring_start(struct engine *e, struct op *op)
{
    struct uring *u = e->state;
    op_queue_push(&u->queued, op);
}

// A free submission entry; NULL: the kernel takes no more now.
static struct io_uring_sqe *get_entry(struct uring *u)
{
    struct io_uring_sqe *sqe = io_uring_get_sqe(&u->ring);
    if (sqe == NULL && io_uring_submit(&u->ring) > 0)
        sqe = io_uring_get_sqe(&u->ring);
    return sqe;
}

static void set_user_data(struct io_uring_sqe *sqe, const struct op *op, uint64_t tag)
{
    sqe->user_data = (uint64_t)(uintptr_t)op | tag;
}

static void prepare_poll(struct io_uring_sqe *sqe, const struct op *op)
{
    io_uring_prep_poll_add(sqe, op->fd, op->kind == OP_SEND ? POLLOUT : POLLIN);
    set_user_data(sqe, op, POLL_TAG);
}

static void prepare_transfer(struct io_uring_sqe *sqe, const struct op *op)
{
    unsigned len = (unsigned)u64_min(transfer_left(op), CHUNK_BYTES);
    uint64_t offset = op->offset + op->moved;
    switch (op->kind) {
    case OP_READ:
        io_uring_prep_read(sqe, op->fd, transfer_at(op), len, offset);
        break;
    case OP_WRITE:
        io_uring_prep_write(sqe, op->fd, transfer_at(op), len, offset);
        break;
    case OP_SEND:
        io_uring_prep_send(sqe, op->fd, transfer_at(op), len, MSG_WAITALL | MSG_NOSIGNAL);
        break;
    case OP_RECV:
        io_uring_prep_recv(sqe, op->fd, transfer_at(op), len, MSG_WAITALL);
        break;
    case OP_CALL:
        assert(0 && "a call has no place in the ring");
    }
    set_user_data(sqe, op, 0);
}

// Makes submission entries of what is queued, as many as there is room for.
static void prepare(const struct engine *e, struct uring *u)
{
    struct io_uring_sqe *sqe;
    if (!u->wake_polled && (sqe = get_entry(u)) != NULL) {
        io_uring_prep_poll_add(sqe, e->wake_fd, POLLIN);
        set_user_data(sqe, NULL, 0);
        u->wake_polled = true;
    }
    while (!op_queue_empty(&u->unready) && (sqe = get_entry(u)) != NULL)
        prepare_poll(sqe, op_queue_pop(&u->unready));
    while (!op_queue_empty(&u->queued) && (sqe = get_entry(u)) != NULL)
        prepare_transfer(sqe, op_queue_pop(&u->queued));
}

// The kernel answered res for the transfer of `op`.
static void transferred(struct engine *e, struct uring *u, struct op *op, int res)
{
    bool file = transfer_is_file(op);
    if (res == -EAGAIN && !file)
        op_queue_push(&u->unready, op);
    else if (res == -EAGAIN && op->tries++ == 0)
        op_queue_push(&u->queued, op);
    else if (file && (res == -EAGAIN || res == -ENOMEM))
        filepool_start(e->pool, op);
    else if (transfer_advance(op, res))
        engine_finish(e, op, op->result);
    else
        op_queue_push(&u->queued, op);
}

static void completed(struct engine *e, struct uring *u, uint64_t user_data, int res)
{
    struct op *op = (struct op *)(uintptr_t)(user_data & ~POLL_TAG);
    if (op == NULL) {
        u->wake_polled = false;
        engine_woken(e);
    } else if ((user_data & POLL_TAG) == 0) {
        transferred(e, u, op, res);
    } else if (res < 0) {
        engine_finish(e, op, res);
    } else {
        op_queue_push(&u->queued, op);
    }
}

static unsigned drain(struct engine *e, struct uring *u)
{
    struct io_uring_cqe *cqe;
    unsigned head, count = 0;
    io_uring_for_each_cqe(&u->ring, head, cqe)
    {
        completed(e, u, cqe->user_data, cqe->res);
        count++;
    }
    io_uring_cq_advance(&u->ring, count);
    return count;
}

// Submits and waits. With deferred task work completions appear only when the kernel is asked for them, so it
// is asked also when there is no wait.
static int enter(struct uring *u, int timeout_ms)
{
    if (timeout_ms == 0)
        return io_uring_submit_and_get_events(&u->ring);
    struct __kernel_timespec limit = {.tv_sec = timeout_ms / 1000, .tv_nsec = timeout_ms % 1000 * 1000000LL};
    struct io_uring_cqe *cqe;
    return io_uring_submit_and_wait_timeout(&u->ring, &cqe, 1, timeout_ms < 0 ? NULL : &limit, NULL);
}

// The kernel has no memory to take entries, or wants completions taken first, and there are none: to wait in
// the ring could be for ever when nothing is in it.
static int refused(struct engine *e, struct uring *u, int rc, int timeout_ms)
{
    struct pollfd wake = {.fd = e->wake_fd, .events = POLLIN};
    int wait_ms = timeout_ms < 0 || timeout_ms > REFUSAL_WAIT_MS ? REFUSAL_WAIT_MS : timeout_ms;
    int n = poll(&wake, 1, wait_ms);
    if (n > 0)
        engine_woken(e);
    else if (n == 0 && wait_ms == REFUSAL_WAIT_MS && ++u->refusals > REFUSALS_MAX)
        return rc;
    return n < 0 && errno != EINTR ? -errno : 0;
}

static int uring_wait(struct engine *e, int timeout_ms)
{
    struct uring *u = e->state;
    prepare(e, u);
    int rc = enter(u, timeout_ms);
    unsigned count = drain(e, u);
    bool busy = rc == -EAGAIN || rc == -EBUSY || rc == -ENOMEM;
    if (busy && count == 0)
        return refused(e, u, rc, timeout_ms);
    u->refusals = 0;
    return rc >= 0 || busy || rc == -ETIME || rc == -EINTR ? 0 : rc;
}

const struct engine_ops engine_uring_ops = {
    .kind = ENGINE_URING,
    .open = uring_open,
    .close = uring_close,
    .start = uring_start,
    .wait = uring_wait,
};
