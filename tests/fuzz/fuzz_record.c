// A file of records: once as it comes, and once with magic, numbers and checksums that fit as far as the
// lengths go. What decodes must encode to the same bytes, and the two ends of the chain must agree.
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "proto/digest.h"
#include "proto/record.h"
#include "proto/wire.h"

enum { SUM_BYTES = 8, VERSION_MAX = 3 };

// Decodes the header at `in`, of whatever kind it is.
static bool try_header(const uint8_t *in, struct record_chain *chain)
{
    static const enum record_file kinds[] = {RECORD_JOURNAL, RECORD_RECEIPT};
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
        struct record_header h;
        if (record_header_decode(in, kinds[i], VERSION_MAX, &h, chain) < 0)
            continue;
        uint8_t again[RECORD_HEADER_BYTES];
        struct record_chain written;
        record_header_encode(&h, again, &written);
        assert(memcmp(in, again, sizeof(again)) == 0);
        assert(written.number == chain->number && written.sum == chain->sum);
        return true;
    }
    return false;
}

static void try_record(const uint8_t *in, size_t taken, const struct record *r, struct record_chain before,
                       const struct record_chain *after)
{
    uint8_t *again = malloc(taken);
    assert(again != NULL);
    assert(record_encode(&before, r->type, r->payload, r->payload_bytes, again, taken) == (int64_t)taken);
    assert(memcmp(in, again, taken) == 0);
    assert(before.number == after->number && before.sum == after->sum);
    free(again);
}

static void try_file(const uint8_t *in, size_t len)
{
    struct record_chain chain;
    if (!try_header(in, &chain))
        return;
    for (size_t at = RECORD_HEADER_BYTES; at < len;) {
        struct record_chain before = chain;
        struct record r;
        int64_t taken = record_decode(&chain, in + at, len - at, &r);
        if (taken <= 0) {
            assert(before.number == chain.number && before.sum == chain.sum);
            return;
        }
        assert((uint64_t)taken <= len - at);
        try_record(in + at, (size_t)taken, &r, before, &chain);
        at += (size_t)taken;
    }
}

static void put_u64(uint8_t *out, uint64_t v)
{
    struct wire_writer w;
    wire_writer_init(&w, out, sizeof(v));
    wire_put_u64(&w, v);
    assert(wire_written(&w) == sizeof(v));
}

static void repair_file(uint8_t *in, size_t len)
{
    memcpy(in, "PENSTOCK", 8);
    uint64_t sum = digest_check64(in, RECORD_HEADER_BYTES - SUM_BYTES), number = 0;
    put_u64(in + RECORD_HEADER_BYTES - SUM_BYTES, sum);
    for (size_t at = RECORD_HEADER_BYTES; len - at >= RECORD_FRAME_BYTES; number++) {
        struct wire_reader r;
        wire_reader_init(&r, in + at, len - at);
        size_t payload = wire_get_u32(&r);
        if (payload > len - at - RECORD_FRAME_BYTES)
            return;
        put_u64(in + at + 8, number);
        sum = digest_check64_after(sum, in + at, RECORD_FRAME_BYTES - SUM_BYTES + payload);
        at += RECORD_FRAME_BYTES + payload;
        put_u64(in + at - SUM_BYTES, sum);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    if (len < RECORD_HEADER_BYTES)
        return 0;
    try_file(data, len);
    uint8_t *copy = malloc(len);
    assert(copy != NULL);
    memcpy(copy, data, len);
    repair_file(copy, len);
    try_file(copy, len);
    free(copy);
    return 0;
}
