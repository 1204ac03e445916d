// A queue of operations, first in, first out, linked through op->next: an operation is in at most one queue,
// so queueing never allocates and never fails. For the engine's own files.
#ifndef PENSTOCK_MOVER_OP_QUEUE_H
#define PENSTOCK_MOVER_OP_QUEUE_H

#include "mover/engine.h"

// All zero = empty.
struct op_queue {
    struct op *first;
    struct op *last; // undefined while first is NULL
};

static inline bool op_queue_empty(const struct op_queue *q)
{
    return q->first == NULL;
}

static inline void op_queue_push(struct op_queue *q, struct op *op)
{
    op->next = NULL;
    if (q->first == NULL)
        q->first = op;
    else
        q->last->next = op;
    q->last = op;
}

// The oldest operation, NULL when there is none.
static inline struct op *op_queue_pop(struct op_queue *q)
{
    struct op *op = q->first;
    if (op != NULL)
        q->first = op->next;
    return op;
}

// Moves all of `from` to the end of `q`.
static inline void op_queue_append(struct op_queue *q, struct op_queue *from)
{
    if (from->first == NULL)
        return;
    if (q->first == NULL)
        q->first = from->first;
    else
        q->last->next = from->first;
    q->last = from->last;
    from->first = NULL;
}

#endif
