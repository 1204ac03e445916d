#include "mover/filepool.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>

#include "mover/transfer.h"
#include "mover/wake.h"
#include "storage/sys.h"

struct filepool {
    pthread_mutex_t mutex;  // over the fields up to `stop`
    pthread_cond_t changed; // `waiting` grew, or `stop`
    struct op_queue waiting;
    struct op_queue ended;
    bool stop;
    int wake_fd;
    unsigned count;
    pthread_t threads[];
};

void filepool_run(struct op *op)
{
    uint64_t offset = op->offset + op->moved;
    int64_t n;
    switch (op->kind) {
    case OP_READ:
        n = sys_pread_full(op->fd, transfer_at(op), transfer_left(op), offset);
        op->result = n < 0 ? n : (int64_t)op->moved + n;
        break;
    case OP_WRITE:
        op->result = sys_pwrite_full(op->fd, transfer_at(op), transfer_left(op), offset);
        break;
    case OP_CALL:
        op->result = op->call(op->arg);
        break;
    case OP_SEND:
    case OP_RECV:
        assert(0 && "a socket has no place on a file thread");
    }
}

// The next operation; NULL: stop. Called and returns with the mutex held.
static struct op *next_op(struct filepool *pool)
{
    while (op_queue_empty(&pool->waiting) && !pool->stop)
        pthread_cond_wait(&pool->changed, &pool->mutex);
    return op_queue_pop(&pool->waiting);
}

static void *thread_main(void *arg)
{
    struct filepool *pool = arg;
    struct op *op;
    pthread_mutex_lock(&pool->mutex);
    while ((op = next_op(pool)) != NULL) {
        pthread_mutex_unlock(&pool->mutex);
        filepool_run(op);
        pthread_mutex_lock(&pool->mutex);
        bool first = op_queue_empty(&pool->ended);
        op_queue_push(&pool->ended, op);
        if (first)
            wake_signal(pool->wake_fd);
    }
    pthread_mutex_unlock(&pool->mutex);
    return NULL;
}

// Signals are the business of the thread that has a handler for them, not of one that may be stuck in a file
// system.
static int start_threads(struct filepool *pool, unsigned threads)
{
    sigset_t all, before;
    sigfillset(&all);
    int rc = pthread_sigmask(SIG_SETMASK, &all, &before);
    if (rc != 0)
        return -rc;
    while (rc == 0 && pool->count < threads) {
        rc = pthread_create(&pool->threads[pool->count], NULL, thread_main, pool);
        pool->count += rc == 0;
    }
    int restored = pthread_sigmask(SIG_SETMASK, &before, NULL);
    assert(restored == 0);
    return -rc;
}

int filepool_new(unsigned threads, int wake_fd, struct filepool **out)
{
    assert(threads > 0);
    struct filepool *pool = calloc(1, sizeof(*pool) + threads * sizeof(pool->threads[0]));
    if (pool == NULL)
        return -ENOMEM;
    pthread_mutex_init(&pool->mutex, NULL);
    pthread_cond_init(&pool->changed, NULL);
    pool->wake_fd = wake_fd;
    int rc = start_threads(pool, threads);
    if (rc < 0) {
        filepool_free(pool);
        return rc;
    }
    *out = pool;
    return 0;
}

void filepool_free(struct filepool *pool)
{
    if (pool == NULL)
        return;
    pthread_mutex_lock(&pool->mutex);
    assert(op_queue_empty(&pool->waiting) && op_queue_empty(&pool->ended));
    pool->stop = true;
    pthread_cond_broadcast(&pool->changed);
    pthread_mutex_unlock(&pool->mutex);
    for (unsigned i = 0; i < pool->count; i++) {
        int rc = pthread_join(pool->threads[i], NULL);
        assert(rc == 0);
    }
    pthread_cond_destroy(&pool->changed);
    pthread_mutex_destroy(&pool->mutex);
    free(pool);
}

void filepool_start(struct filepool *pool, struct op *op)
{
    pthread_mutex_lock(&pool->mutex);
    op_queue_push(&pool->waiting, op);
    pthread_cond_signal(&pool->changed);
    pthread_mutex_unlock(&pool->mutex);
}

void filepool_take(struct filepool *pool, struct op_queue *to)
{
    pthread_mutex_lock(&pool->mutex);
    op_queue_append(to, &pool->ended);
    pthread_mutex_unlock(&pool->mutex);
}
