// A preamble and, behind it, the ask of a data or peer connection: once as they come, and once with magic and
// checksum that fit. What decodes must encode to the same bytes; only of a foreign preamble the rest is not
// understood.
#include <assert.h>
#include <string.h>

#include "proto/digest.h"
#include "proto/greet.h"
#include "proto/wire.h"

enum { SUM_BYTES = 8 };

static void try_preamble(const uint8_t *bytes)
{
    struct preamble p;
    uint8_t again[PREAMBLE_BYTES];
    if (preamble_decode(bytes, &p) < 0 || p.version != WIRE_VERSION)
        return;
    preamble_encode(&p, again);
    assert(memcmp(bytes, again, sizeof(again)) == 0);
}

static void try_ask(const uint8_t *bytes)
{
    struct greet_ask ask;
    uint8_t again[GREET_ASK_BYTES];
    if (greet_ask_decode(bytes, &ask) < 0)
        return;
    greet_ask_encode(&ask, again);
    assert(memcmp(bytes, again, sizeof(again)) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    uint8_t repaired[PREAMBLE_BYTES];
    if (len < PREAMBLE_BYTES)
        return 0;
    try_preamble(data);
    memcpy(repaired, data, sizeof(repaired));
    memcpy(repaired, "PENSTOCK", 8);
    struct wire_writer w;
    wire_writer_init(&w, repaired + PREAMBLE_BYTES - SUM_BYTES, SUM_BYTES);
    wire_put_u64(&w, digest_check64(repaired, PREAMBLE_BYTES - SUM_BYTES));
    assert(wire_written(&w) == SUM_BYTES);
    try_preamble(repaired);
    if (len - PREAMBLE_BYTES >= GREET_ASK_BYTES)
        try_ask(data + PREAMBLE_BYTES);
    return 0;
}
