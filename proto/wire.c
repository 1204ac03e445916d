#include "proto/wire.h"

#include <errno.h>
#include <string.h>

// What a reader of nothing points at, so that no pointer arithmetic starts from NULL.
static const uint8_t nowhere[1];

void wire_writer_init(struct wire_writer *w, void *buf, size_t len)
{
    w->start = w->at = buf;
    w->end = len > 0 ? w->start + len : w->start;
    w->full = false;
}

// Room for `len` bytes, or NULL once something did not fit.
static uint8_t *writer_take(struct wire_writer *w, size_t len)
{
    if (w->full || len > (size_t)(w->end - w->at)) {
        w->full = true;
        return NULL;
    }
    uint8_t *room = w->at;
    w->at += len;
    return room;
}

static void put_little_endian(struct wire_writer *w, uint64_t v, size_t len)
{
    uint8_t *room = writer_take(w, len);
    for (size_t i = 0; room != NULL && i < len; i++)
        room[i] = (uint8_t)(v >> (8 * i));
}

void wire_put_u8(struct wire_writer *w, uint8_t v)
{
    put_little_endian(w, v, sizeof(v));
}

void wire_put_u16(struct wire_writer *w, uint16_t v)
{
    put_little_endian(w, v, sizeof(v));
}

void wire_put_u32(struct wire_writer *w, uint32_t v)
{
    put_little_endian(w, v, sizeof(v));
}

void wire_put_u64(struct wire_writer *w, uint64_t v)
{
    put_little_endian(w, v, sizeof(v));
}

void wire_put_bytes(struct wire_writer *w, const void *bytes, size_t len)
{
    if (len == 0)
        return; // `bytes` and the room may be NULL then, which memcpy does not take
    uint8_t *room = writer_take(w, len);
    if (room != NULL)
        memcpy(room, bytes, len);
}

void wire_put_blob(struct wire_writer *w, const void *bytes, size_t len)
{
    if (len > UINT32_MAX) {
        w->full = true;
        return;
    }
    wire_put_u32(w, (uint32_t)len);
    wire_put_bytes(w, bytes, len);
}

void wire_put_zeros(struct wire_writer *w, size_t len)
{
    if (len == 0)
        return;
    uint8_t *room = writer_take(w, len);
    if (room != NULL)
        memset(room, 0, len);
}

int64_t wire_written(const struct wire_writer *w)
{
    return w->full ? -EMSGSIZE : (int64_t)(w->at - w->start);
}

void wire_reader_init(struct wire_reader *r, const void *buf, size_t len)
{
    r->at = len > 0 ? buf : nowhere;
    r->end = r->at + len;
    r->bad = false;
}

const uint8_t *wire_get_span(struct wire_reader *r, size_t len)
{
    if (r->bad || len > wire_left(r)) {
        r->bad = true;
        return NULL;
    }
    const uint8_t *span = r->at;
    r->at += len;
    return span;
}

static uint64_t get_little_endian(struct wire_reader *r, size_t len)
{
    const uint8_t *span = wire_get_span(r, len);
    uint64_t v = 0;
    for (size_t i = 0; span != NULL && i < len; i++)
        v |= (uint64_t)span[i] << (8 * i);
    return v;
}

uint8_t wire_get_u8(struct wire_reader *r)
{
    return (uint8_t)get_little_endian(r, sizeof(uint8_t));
}

uint16_t wire_get_u16(struct wire_reader *r)
{
    return (uint16_t)get_little_endian(r, sizeof(uint16_t));
}

uint32_t wire_get_u32(struct wire_reader *r)
{
    return (uint32_t)get_little_endian(r, sizeof(uint32_t));
}

uint64_t wire_get_u64(struct wire_reader *r)
{
    return get_little_endian(r, sizeof(uint64_t));
}

void wire_get_bytes(struct wire_reader *r, void *out, size_t len)
{
    if (len == 0)
        return;
    const uint8_t *span = wire_get_span(r, len);
    if (span != NULL)
        memcpy(out, span, len);
    else
        memset(out, 0, len);
}

const uint8_t *wire_get_blob(struct wire_reader *r, size_t max, size_t *len)
{
    *len = 0;
    uint32_t claimed = wire_get_u32(r);
    if (claimed > max)
        r->bad = true;
    const uint8_t *span = wire_get_span(r, claimed);
    if (span != NULL)
        *len = claimed;
    return span;
}

void wire_fail(struct wire_reader *r)
{
    r->bad = true;
}

size_t wire_left(const struct wire_reader *r)
{
    return (size_t)(r->end - r->at);
}

int wire_done(const struct wire_reader *r)
{
    return !r->bad && r->at == r->end ? 0 : -EPROTO;
}
