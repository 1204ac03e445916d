// Bytes that wait: taken at the front, added at the end, moved together only when room is needed.
#ifndef PENSTOCK_MOVER_BUFFER_H
#define PENSTOCK_MOVER_BUFFER_H

#include "proto/base.h"

struct buffer {
    uint8_t *bytes; // what waits is bytes[start..end)
    size_t start, end, cap;
};

// Zeros are an empty buffer. buffer_fini wipes: messages carry secrets.
void buffer_fini(struct buffer *b);
static inline size_t buffer_len(const struct buffer *b)
{
    return b->end - b->start;
}
static inline size_t buffer_room(const struct buffer *b) // at the end, without moving anything
{
    return b->cap - b->end;
}
static inline uint8_t *buffer_at(const struct buffer *b)
{
    return b->bytes + b->start;
}
// Moves what waits to the front.
void buffer_compact(struct buffer *b);
// Makes room for `len` bytes at the end, moving and growing as needed; they are written to bytes + end, and
// end moved by the caller. -ENOMEM, with the buffer as it was.
MUST_CHECK int buffer_reserve(struct buffer *b, size_t len);
// Puts bytes at the end. -ENOMEM, with the buffer as it was.
MUST_CHECK int buffer_add(struct buffer *b, const void *bytes, size_t len);
// Takes len bytes off the front; an empty buffer starts at its front again.
void buffer_drop(struct buffer *b, size_t len);

#endif
