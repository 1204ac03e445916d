// The engine on libaio: reads and writes with direct I/O go to the kernel's queue, all others to the file
// threads (io_submit would do them at once and block). Sockets are polled; an ended read or write signals
// e->wake_fd, so that poll stays the only wait.
#include <errno.h>
#include <fcntl.h>
#include <libaio.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mover/engine_ops.h"
#include "mover/sockets.h"
#include "mover/transfer.h"

struct aio {
    io_context_t context;
    struct sockets sockets;
    struct op_queue queued; // for the next io_submit
    unsigned submitted;     // in the kernel
    // [depth] each; the kernel copies an iocb when it is submitted, so these serve one io_submit after the
    // other
    struct iocb *iocbs;
    struct iocb **pointers;
    struct io_event *events;
};

static void aio_free(struct aio *a)
{
    free(a->iocbs);
    free(a->pointers);
    free(a->events);
    sockets_fini(&a->sockets);
    free(a);
}

static struct aio *aio_new(const struct engine *e)
{
    struct aio *a = calloc(1, sizeof(*a));
    if (a == NULL)
        return NULL;
    a->iocbs = calloc(e->depth, sizeof(a->iocbs[0]));
    a->pointers = calloc(e->depth, sizeof(struct iocb *));
    a->events = calloc(e->depth, sizeof(a->events[0]));
    bool made = a->iocbs != NULL && a->pointers != NULL && a->events != NULL &&
                sockets_init(&a->sockets, e->depth, e->wake_fd) == 0;
    if (!made) {
        aio_free(a);
        return NULL;
    }
    return a;
}

static const char *refusal(int rc)
{
    switch (-rc) {
    case EAGAIN:
        return "fs.aio-max-nr is used up";
    case ENOSYS:
    case EPERM:
        return "not in this kernel, or refused by a seccomp filter";
    default:
        return "io_setup";
    }
}

static int aio_open(struct engine *e, char detail[ENGINE_DETAIL_BYTES])
{
    struct aio *a = aio_new(e);
    if (a == NULL) {
        snprintf(detail, ENGINE_DETAIL_BYTES, "libaio: out of memory");
        return -ENOMEM;
    }
    int rc = io_setup((int)e->depth, &a->context);
    if (rc < 0) {
        snprintf(detail, ENGINE_DETAIL_BYTES, "libaio: %s, %s", strerrorname_np(-rc), refusal(rc));
        aio_free(a);
        return rc;
    }
    snprintf(detail, ENGINE_DETAIL_BYTES, "direct I/O; poll and file threads for the rest");
    e->state = a;
    return 0;
}

static void aio_close(struct engine *e)
{
    struct aio *a = e->state;
    io_destroy(a->context);
    aio_free(a);
}

static void aio_start(struct engine *e, struct op *op)
{
    struct aio *a = e->state;
    if (!transfer_is_file(op)) {
        sockets_start(&a->sockets, op);
        return;
    }
    int flags = fcntl(op->fd, F_GETFL);
    if (flags >= 0 && (flags & O_DIRECT) != 0)
        op_queue_push(&a->queued, op);
    else
        filepool_start(e->pool, op);
}

// Makes an iocb of each queued operation; returns how many.
static unsigned prepare(const struct engine *e, struct aio *a)
{
    unsigned count = 0;
    for (struct op *op = a->queued.first; op != NULL; op = op->next) {
        struct iocb *cb = a->pointers[count] = &a->iocbs[count];
        if (op->kind == OP_READ)
            io_prep_pread(cb, op->fd, transfer_at(op), transfer_left(op),
                          (long long)(op->offset + op->moved));
        else
            io_prep_pwrite(cb, op->fd, transfer_at(op), transfer_left(op),
                           (long long)(op->offset + op->moved));
        io_set_eventfd(cb, e->wake_fd);
        cb->data = op;
        count++;
    }
    return count;
}

static void submit(struct engine *e, struct aio *a)
{
    while (!op_queue_empty(&a->queued)) {
        int rc = io_submit(a->context, prepare(e, a), a->pointers);
        for (int i = 0; i < rc; i++)
            op_queue_pop(&a->queued);
        // What is refused at the door (a bad descriptor, no memory) a file thread does, or finds the error
        // that it is.
        if (rc > 0)
            a->submitted += (unsigned)rc;
        else if (rc != -EINTR)
            filepool_start(e->pool, op_queue_pop(&a->queued));
    }
}

// One read or write ended with n bytes or -errno.
static void ended(struct engine *e, struct aio *a, struct op *op, int64_t n)
{
    if (n == -EAGAIN || n == -ENOMEM)
        filepool_start(e->pool, op); // what the kernel cannot do without waiting
    else if (transfer_advance(op, n))
        engine_finish(e, op, op->result);
    else
        op_queue_push(&a->queued, op);
}

static int reap(struct engine *e, struct aio *a)
{
    struct timespec now = {0};
    int count = a->submitted > 0 ? io_getevents(a->context, 0, (long)e->depth, a->events, &now) : 0;
    for (int i = 0; i < count; i++) {
        const struct io_event *event = &a->events[i];
        a->submitted--;
        ended(e, a, event->data, (long)event->res2 < 0 ? (long)event->res2 : (long)event->res);
    }
    return count < 0 && count != -EINTR ? count : 0;
}

static int aio_wait(struct engine *e, int timeout_ms)
{
    struct aio *a = e->state;
    submit(e, a);
    int rc = sockets_wait(&a->sockets, timeout_ms, &e->ended);
    if (rc <= 0)
        return rc;
    engine_woken(e); // first: what ends after reap signals again
    return reap(e, a);
}

const struct engine_ops engine_aio_ops = {
    .kind = ENGINE_AIO,
    .open = aio_open,
    .close = aio_close,
    .start = aio_start,
    .wait = aio_wait,
};
