#include "proto/record.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "proto/digest.h"
#include "proto/wire.h"

enum { HEADER_SUM_AT = RECORD_HEADER_BYTES - 8, RECORD_HEAD_BYTES = RECORD_FRAME_BYTES - 8 };

static const char magic[8] = {'P', 'E', 'N', 'S', 'T', 'O', 'C', 'K'};

void record_header_encode(const struct record_header *h, uint8_t out[RECORD_HEADER_BYTES],
                          struct record_chain *chain)
{
    struct wire_writer w;
    wire_writer_init(&w, out, RECORD_HEADER_BYTES);
    wire_put_bytes(&w, magic, sizeof(magic));
    wire_put_u32(&w, (uint32_t)h->kind);
    wire_put_u32(&w, h->version);
    wire_put_bytes(&w, h->job.bytes, sizeof(h->job.bytes));
    wire_put_bytes(&w, h->salt, sizeof(h->salt));
    wire_put_u64(&w, 0);
    uint64_t sum = digest_check64(out, HEADER_SUM_AT);
    wire_put_u64(&w, sum);
    assert(wire_written(&w) == RECORD_HEADER_BYTES);
    *chain = (struct record_chain){.number = 0, .sum = sum};
}

int record_header_decode(const uint8_t in[RECORD_HEADER_BYTES], enum record_file kind, uint32_t version_max,
                         struct record_header *out, struct record_chain *chain)
{
    struct wire_reader r;
    struct record_header h = {.kind = kind};
    wire_reader_init(&r, in, RECORD_HEADER_BYTES);
    const uint8_t *start = wire_get_span(&r, sizeof(magic));
    uint32_t found = wire_get_u32(&r);
    h.version = wire_get_u32(&r);
    wire_get_bytes(&r, h.job.bytes, sizeof(h.job.bytes));
    wire_get_bytes(&r, h.salt, sizeof(h.salt));
    uint64_t reserved = wire_get_u64(&r);
    uint64_t sum = wire_get_u64(&r);
    if (wire_done(&r) < 0 || memcmp(start, magic, sizeof(magic)) != 0 ||
        sum != digest_check64(in, HEADER_SUM_AT) || found != (uint32_t)kind || h.version == 0)
        return -EBADMSG;
    if (h.version > version_max) {
        out->version = h.version;
        return -EPROTONOSUPPORT;
    }
    if (reserved != 0)
        return -EBADMSG;
    *out = h;
    *chain = (struct record_chain){.number = 0, .sum = sum};
    return 0;
}

int64_t record_encode(struct record_chain *chain, uint16_t type, const void *payload, size_t len,
                      uint8_t *out, size_t out_len)
{
    if (len > RECORD_PAYLOAD_MAX || out_len < len + RECORD_FRAME_BYTES)
        return -EMSGSIZE;
    struct wire_writer w;
    wire_writer_init(&w, out, len + RECORD_FRAME_BYTES);
    wire_put_u32(&w, (uint32_t)len);
    wire_put_u16(&w, type);
    wire_put_u16(&w, 0);
    wire_put_u64(&w, chain->number);
    wire_put_bytes(&w, payload, len);
    uint64_t sum = digest_check64_after(chain->sum, out, RECORD_HEAD_BYTES + len);
    wire_put_u64(&w, sum);
    int64_t written = wire_written(&w);
    assert(written > 0);
    chain->number++;
    chain->sum = sum;
    return written;
}

int64_t record_decode(struct record_chain *chain, const uint8_t *in, size_t len, struct record *out)
{
    if (len < RECORD_HEAD_BYTES)
        return 0;
    struct wire_reader r;
    wire_reader_init(&r, in, len);
    uint32_t payload_bytes = wire_get_u32(&r);
    uint16_t type = wire_get_u16(&r);
    uint16_t reserved = wire_get_u16(&r);
    uint64_t number = wire_get_u64(&r);
    if (payload_bytes > RECORD_PAYLOAD_MAX)
        return -EMSGSIZE;
    if (reserved != 0 || number != chain->number)
        return -EBADMSG;
    if (len < (size_t)payload_bytes + RECORD_FRAME_BYTES)
        return 0;
    const uint8_t *payload = wire_get_span(&r, payload_bytes);
    uint64_t sum = digest_check64_after(chain->sum, in, RECORD_HEAD_BYTES + payload_bytes);
    if (wire_get_u64(&r) != sum)
        return -EBADMSG;
    *out = (struct record){.type = type, .payload = payload, .payload_bytes = payload_bytes};
    chain->number++;
    chain->sum = sum;
    return (int64_t)payload_bytes + RECORD_FRAME_BYTES;
}
