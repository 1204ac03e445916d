// Bounded little-endian cursors: the only place where integers become bytes and back. Errors are sticky:
// a writer or reader that ran over its end ignores further calls and says so at the end, so that a codec
// reads as a list of fields and checks once. Neither owns its bytes.
#ifndef PENSTOCK_PROTO_WIRE_H
#define PENSTOCK_PROTO_WIRE_H

#include "proto/base.h"

struct wire_writer {
    uint8_t *start, *at, *end;
    bool full; // a put did not fit
};

struct wire_reader {
    const uint8_t *at, *end;
    bool bad; // a get ran over the end, or wire_fail was called
};

void wire_writer_init(struct wire_writer *w, void *buf, size_t len);
void wire_put_u8(struct wire_writer *w, uint8_t v);
void wire_put_u16(struct wire_writer *w, uint16_t v);
void wire_put_u32(struct wire_writer *w, uint32_t v);
void wire_put_u64(struct wire_writer *w, uint64_t v);
void wire_put_bytes(struct wire_writer *w, const void *bytes, size_t len); // without a length
void wire_put_blob(struct wire_writer *w, const void *bytes, size_t len);  // u32 length, then the bytes
void wire_put_zeros(struct wire_writer *w, size_t len);
// Bytes written so far, or -EMSGSIZE when something did not fit.
MUST_CHECK int64_t wire_written(const struct wire_writer *w);

void wire_reader_init(struct wire_reader *r, const void *buf, size_t len);
uint8_t wire_get_u8(struct wire_reader *r); // all gets return 0 (or NULL, or zeros) once the reader is bad
uint16_t wire_get_u16(struct wire_reader *r);
uint32_t wire_get_u32(struct wire_reader *r);
uint64_t wire_get_u64(struct wire_reader *r);
void wire_get_bytes(struct wire_reader *r, void *out, size_t len);
// `len` bytes in place (not copied, owned by whoever owns the buffer); NULL once bad.
const uint8_t *wire_get_span(struct wire_reader *r, size_t len);
// A u32 length of at most `max`, then so many bytes in place. Sets *len; longer than max makes the reader
// bad.
const uint8_t *wire_get_blob(struct wire_reader *r, size_t max, size_t *len);
void wire_fail(struct wire_reader *r); // the caller found a value that cannot be
size_t wire_left(const struct wire_reader *r);
// 0 when every get succeeded and nothing is left over, else -EPROTO.
MUST_CHECK int wire_done(const struct wire_reader *r);

#endif
