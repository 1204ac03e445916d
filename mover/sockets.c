#include "mover/sockets.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "mover/transfer.h"

int sockets_init(struct sockets *s, unsigned capacity, int wake_fd)
{
    struct op **ops = calloc(capacity, sizeof(struct op *));
    struct pollfd *polls = calloc((size_t)capacity + 1, sizeof(*polls));
    if (ops == NULL || polls == NULL) {
        free(ops);
        free(polls);
        return -ENOMEM;
    }
    polls[0] = (struct pollfd){.fd = wake_fd, .events = POLLIN};
    *s = (struct sockets){.ops = ops, .polls = polls, .capacity = capacity};
    return 0;
}

void sockets_fini(struct sockets *s)
{
    assert(s->count == 0);
    free(s->ops);
    free(s->polls);
    *s = (struct sockets){0};
}

void sockets_start(struct sockets *s, struct op *op)
{
    assert(s->count < s->capacity);
    for (unsigned i = 0; i < s->count; i++)
        assert(s->ops[i]->fd != op->fd || s->ops[i]->kind != op->kind);
    s->ops[s->count] = op;
    s->polls[1 + s->count] = (struct pollfd){.fd = op->fd, .events = op->kind == OP_SEND ? POLLOUT : POLLIN};
    s->count++;
}

// Moves what the socket takes or gives now. True: the operation is over.
static bool progress(struct op *op)
{
    for (;;) {
        size_t asked = transfer_left(op);
        ssize_t n = op->kind == OP_SEND ? send(op->fd, transfer_at(op), asked, MSG_DONTWAIT | MSG_NOSIGNAL)
                                        : recv(op->fd, transfer_at(op), asked, MSG_DONTWAIT);
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return false;
        if (transfer_advance(op, n < 0 ? -errno : n))
            return true;
        // Less than asked for: the socket's buffer is full or empty. poll says when that changes, or what
        // else it is.
        if (n > 0)
            return false;
    }
}

// Tries operation i; one that is over changes places with the last one.
static void try_one(struct sockets *s, unsigned i, struct op_queue *ended)
{
    struct op *op = s->ops[i];
    if (!progress(op))
        return;
    s->count--;
    s->ops[i] = s->ops[s->count];
    s->polls[1 + i] = s->polls[1 + s->count];
    op_queue_push(ended, op);
}

int sockets_wait(struct sockets *s, int timeout_ms, struct op_queue *ended)
{
    // From the last to the first, so that the one that changes places has been tried already.
    for (unsigned i = s->count; i > s->tried; i--)
        try_one(s, i - 1, ended);
    int n = poll(s->polls, 1 + s->count, op_queue_empty(ended) ? timeout_ms : 0);
    int rc = n < 0 && errno != EINTR ? -errno : 0;
    if (n > 0) {
        for (unsigned i = s->count; i > 0; i--)
            if (s->polls[i].revents != 0)
                try_one(s, i - 1, ended);
        rc = s->polls[0].revents != 0;
    }
    s->tried = s->count;
    return rc;
}
