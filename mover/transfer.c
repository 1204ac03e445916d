#include "mover/transfer.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>

#include "proto/limits.h"
#include "storage/sys.h"

static bool over(struct op *op, int64_t result)
{
    op->result = result;
    return true;
}

// Nothing came: the end of a file or stream, or a device that takes nothing and does not say why.
static bool advance_nothing(struct op *op)
{
    if (op->kind == OP_READ)
        return over(op, (int64_t)op->moved);
    if (op->kind == OP_RECV)
        return over(op, op->moved == 0 ? -ENODATA : -ECONNRESET);
    return ++op->tries >= TRANSFER_TRIES && over(op, -EIO);
}

static bool is_direct(int fd)
{
    int flags = fcntl(fd, F_GETFL);
    return flags >= 0 && (flags & O_DIRECT) != 0;
}

static bool at_end(const struct op *op)
{
    struct stat st;
    return sys_fstat(op->fd, &st) == 0 && S_ISREG(st.st_mode) &&
           (uint64_t)st.st_size <= op->offset + op->moved;
}

// A file operation stopped `n` bytes further than before, short of its end.
static bool advance_partly(struct op *op, size_t n)
{
    size_t odd = op->moved % BLOCK_BYTES;
    if (odd != 0 && is_direct(op->fd)) {
        if (op->kind == OP_READ && at_end(op))
            return over(op, (int64_t)op->moved);
        op->moved -= odd;
        if (n <= odd) // back where it was: this must not go round for ever
            return ++op->tries >= TRANSFER_TRIES && over(op, -EIO);
    }
    op->tries = 0;
    return false;
}

bool transfer_advance(struct op *op, int64_t n)
{
    assert(op->kind != OP_CALL && n <= (int64_t)transfer_left(op));
    if (n == -EINTR)
        return false;
    if (n < 0)
        return over(op, n);
    if (n == 0)
        return advance_nothing(op);
    op->moved += (size_t)n;
    if (op->moved == op->len)
        return over(op, op->kind == OP_READ ? (int64_t)op->len : 0);
    if (transfer_is_file(op))
        return advance_partly(op, (size_t)n);
    op->tries = 0;
    return false;
}
