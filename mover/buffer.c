#include "mover/buffer.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "proto/limits.h"
#include "proto/seal.h"

enum { BUFFER_BYTES_MIN = 4 * KIB };

void buffer_fini(struct buffer *b)
{
    if (b->bytes != NULL)
        seal_wipe(b->bytes, b->cap);
    free(b->bytes);
    *b = (struct buffer){0};
}

void buffer_compact(struct buffer *b)
{
    if (b->start == 0)
        return;
    size_t len = buffer_len(b);
    memmove(b->bytes, buffer_at(b), len);
    b->start = 0;
    b->end = len;
}

int buffer_reserve(struct buffer *b, size_t len)
{
    if (buffer_room(b) >= len)
        return 0;
    size_t used = buffer_len(b), need;
    if (__builtin_add_overflow(used, len, &need) || need > SIZE_MAX / 2)
        return -ENOMEM;
    if (need <= b->cap) {
        buffer_compact(b);
        return 0;
    }
    size_t cap = u64_max(need, u64_max(2 * b->cap, BUFFER_BYTES_MIN));
    uint8_t *bytes = malloc(cap);
    if (bytes == NULL)
        return -ENOMEM;
    if (used > 0)
        memcpy(bytes, buffer_at(b), used);
    buffer_fini(b);
    *b = (struct buffer){.bytes = bytes, .end = used, .cap = cap};
    return 0;
}

int buffer_add(struct buffer *b, const void *bytes, size_t len)
{
    int rc = buffer_reserve(b, len);
    if (rc < 0)
        return rc;
    if (len > 0)
        memcpy(b->bytes + b->end, bytes, len);
    b->end += len;
    return 0;
}

void buffer_drop(struct buffer *b, size_t len)
{
    assert(len <= buffer_len(b));
    b->start += len;
    if (b->start == b->end)
        b->start = b->end = 0;
}
