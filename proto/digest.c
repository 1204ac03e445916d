#include "proto/digest.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define XXH_STATIC_LINKING_ONLY // the state lies on the stack where nobody keeps it
#include <xxhash.h>

#include "proto/wire.h"

// The dispatching calls pick AVX2 or AVX-512 at run time; the plain ones are what the library was built for
// (SSE2 on most distributions, a quarter of the speed). DIGEST_PLAIN is for a library without them.
#if (defined(__x86_64__) || defined(__i386__)) && !defined(DIGEST_PLAIN)
#if __has_include(<xxh_x86dispatch.h>)
#include <xxh_x86dispatch.h>
#endif
#endif

static_assert(sizeof(struct digest) == sizeof(XXH128_canonical_t), "a digest is the canonical form");

struct digest_stream {
    XXH3_state_t state;
};

// A whole leaf of zeros: sparse files have so many that computing each would show.
static const struct digest leaf_of_zeros = {
    {0xb6, 0xef, 0x17, 0xa3, 0x44, 0x84, 0x92, 0xb6, 0x91, 0x87, 0x80, 0xb9, 0x05, 0x50, 0xbf, 0x34}};

static const uint8_t zeros[16 * KIB];

static void u64_bytes(uint64_t v, uint8_t out[8])
{
    struct wire_writer w;
    wire_writer_init(&w, out, 8);
    wire_put_u64(&w, v);
    assert(wire_written(&w) == 8);
}

static struct digest to_digest(XXH128_hash_t hash)
{
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, hash);
    struct digest d;
    memcpy(d.bytes, canonical.digest, sizeof(d.bytes));
    return d;
}

// The library's calls on a state fail only for a NULL state or NULL input.
static void state_start(XXH3_state_t *state)
{
    XXH3_INITSTATE(state);
    XXH_errorcode code = XXH3_128bits_reset(state);
    assert(code == XXH_OK);
}

static void state_add(XXH3_state_t *state, const void *bytes, size_t len)
{
    if (len == 0)
        return;
    XXH_errorcode code = XXH3_128bits_update(state, bytes, len);
    assert(code == XXH_OK);
}

static void state_add_zeros(XXH3_state_t *state, size_t len)
{
    while (len > 0) {
        size_t piece = len < sizeof(zeros) ? len : sizeof(zeros);
        state_add(state, zeros, piece);
        len -= piece;
    }
}

struct digest digest_of(const void *bytes, size_t len)
{
    return to_digest(XXH3_128bits(len > 0 ? bytes : zeros, len));
}

bool digest_equal(const struct digest *a, const struct digest *b)
{
    return memcmp(a->bytes, b->bytes, sizeof(a->bytes)) == 0;
}

uint64_t digest_check64(const void *bytes, size_t len)
{
    return XXH3_64bits(len > 0 ? bytes : zeros, len);
}

uint64_t digest_check64_after(uint64_t before, const void *bytes, size_t len)
{
    uint8_t prefix[8];
    u64_bytes(before, prefix);
    XXH3_state_t state;
    XXH3_INITSTATE(&state);
    XXH_errorcode code = XXH3_64bits_reset(&state);
    assert(code == XXH_OK);
    code = XXH3_64bits_update(&state, prefix, sizeof(prefix));
    assert(code == XXH_OK);
    if (len > 0)
        code = XXH3_64bits_update(&state, bytes, len);
    assert(code == XXH_OK);
    return XXH3_64bits_digest(&state);
}

struct digest_stream *digest_stream_new(void)
{
    struct digest_stream *s = aligned_alloc(_Alignof(struct digest_stream), sizeof(*s));
    if (s != NULL)
        state_start(&s->state);
    return s;
}

void digest_stream_free(struct digest_stream *s)
{
    free(s);
}

void digest_stream_reset(struct digest_stream *s)
{
    state_start(&s->state);
}

void digest_stream_add(struct digest_stream *s, const void *bytes, size_t len)
{
    state_add(&s->state, bytes, len);
}

void digest_stream_add_zeros(struct digest_stream *s, size_t len)
{
    state_add_zeros(&s->state, len);
}

struct digest digest_stream_end(struct digest_stream *s)
{
    return to_digest(XXH3_128bits_digest(&s->state));
}

struct digest digest_zeros(size_t len)
{
    assert(len <= LEAF_BYTES);
    if (len == LEAF_BYTES)
        return leaf_of_zeros;
    XXH3_state_t state;
    state_start(&state);
    state_add_zeros(&state, len);
    return to_digest(XXH3_128bits_digest(&state));
}

struct digest digest_file(const struct digest *leaves, uint64_t size)
{
    uint8_t suffix[8];
    u64_bytes(size, suffix);
    XXH3_state_t state;
    state_start(&state);
    state_add(&state, leaves, (size_t)u64_div_up(size, LEAF_BYTES) * sizeof(*leaves));
    state_add(&state, suffix, sizeof(suffix));
    return to_digest(XXH3_128bits_digest(&state));
}

void digest_hex(const struct digest *d, char out[33])
{
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < sizeof(d->bytes); i++) {
        out[2 * i] = digits[d->bytes[i] >> 4];
        out[2 * i + 1] = digits[d->bytes[i] & 15];
    }
    out[32] = '\0';
}
