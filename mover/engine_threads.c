// The engine of plain threads: files on the file threads, sockets by poll in the stepping thread. Needs
// nothing of the kernel and works for every kind of file: what is left when the other engines are refused.
#include <stdio.h>
#include <stdlib.h>

#include "mover/engine_ops.h"
#include "mover/sockets.h"
#include "mover/transfer.h"

#include <errno.h>

static int threads_open(struct engine *e, char detail[ENGINE_DETAIL_BYTES])
{
    struct sockets *s = calloc(1, sizeof(*s));
    int rc = s == NULL ? -ENOMEM : sockets_init(s, e->depth, e->wake_fd);
    if (rc < 0) {
        free(s);
        snprintf(detail, ENGINE_DETAIL_BYTES, "threads: out of memory");
        return rc;
    }
    snprintf(detail, ENGINE_DETAIL_BYTES, "poll, file threads");
    e->state = s;
    return 0;
}

static void threads_close(struct engine *e)
{
    sockets_fini(e->state);
    free(e->state);
}

static void threads_start(struct engine *e, struct op *op)
{
    if (transfer_is_file(op))
        filepool_start(e->pool, op);
    else
        sockets_start(e->state, op);
}

static int threads_wait(struct engine *e, int timeout_ms)
{
    int rc = sockets_wait(e->state, timeout_ms, &e->ended);
    if (rc > 0)
        engine_woken(e);
    return rc < 0 ? rc : 0;
}

const struct engine_ops engine_threads_ops = {
    .kind = ENGINE_THREADS,
    .open = threads_open,
    .close = threads_close,
    .start = threads_start,
    .wait = threads_wait,
};
