#include "proto/greet.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "proto/digest.h"
#include "proto/wire.h"

enum { PREAMBLE_KIND_AT = 9, PREAMBLE_SUM_AT = PREAMBLE_BYTES - 8, ROLE_BYTES = 6 };

static const char magic[PREAMBLE_MAGIC_BYTES] = {'P', 'E', 'N', 'S', 'T', 'O', 'C', 'K'};

void preamble_encode(const struct preamble *p, uint8_t out[PREAMBLE_BYTES])
{
    struct wire_writer w;
    wire_writer_init(&w, out, PREAMBLE_BYTES);
    wire_put_bytes(&w, magic, sizeof(magic));
    wire_put_u8(&w, p->version);
    wire_put_u8(&w, (uint8_t)p->kind);
    wire_put_zeros(&w, 6);
    wire_put_bytes(&w, p->job.bytes, sizeof(p->job.bytes));
    wire_put_u64(&w, digest_check64(out, PREAMBLE_SUM_AT));
    assert(wire_written(&w) == PREAMBLE_BYTES);
}

int preamble_decode(const uint8_t in[PREAMBLE_BYTES], struct preamble *out)
{
    struct wire_reader r;
    struct preamble p;
    wire_reader_init(&r, in, PREAMBLE_BYTES);
    const uint8_t *start = wire_get_span(&r, sizeof(magic));
    p.version = wire_get_u8(&r);
    uint8_t kind = wire_get_u8(&r);
    uint32_t reserved = wire_get_u16(&r);
    reserved |= wire_get_u32(&r);
    wire_get_bytes(&r, p.job.bytes, sizeof(p.job.bytes));
    uint64_t sum = wire_get_u64(&r);
    if (wire_done(&r) < 0 || memcmp(start, magic, sizeof(magic)) != 0 ||
        sum != digest_check64(in, PREAMBLE_SUM_AT))
        return -EBADMSG;
    bool foreign = p.version < WIRE_VERSION_MIN || p.version > WIRE_VERSION;
    bool known = kind == GREET_CONTROL || kind == GREET_PEER || kind == GREET_DATA;
    if (!foreign && (!known || reserved != 0))
        return -EPROTO;
    p.kind = kind;
    *out = p;
    return 0;
}

bool preamble_begins(const uint8_t in[PREAMBLE_MAGIC_BYTES])
{
    return memcmp(in, magic, sizeof(magic)) == 0;
}

void greet_ask_encode(const struct greet_ask *ask, uint8_t out[GREET_ASK_BYTES])
{
    struct wire_writer w;
    wire_writer_init(&w, out, GREET_ASK_BYTES);
    wire_put_u32(&w, ask->session);
    wire_put_u32(&w, ask->stream);
    wire_put_u32(&w, ask->attempt);
    wire_put_u32(&w, 0);
    wire_put_bytes(&w, ask->nonce, sizeof(ask->nonce));
    assert(wire_written(&w) == GREET_ASK_BYTES);
}

int greet_ask_decode(const uint8_t in[GREET_ASK_BYTES], struct greet_ask *out)
{
    struct wire_reader r;
    struct greet_ask ask;
    wire_reader_init(&r, in, GREET_ASK_BYTES);
    ask.session = wire_get_u32(&r);
    ask.stream = wire_get_u32(&r);
    ask.attempt = wire_get_u32(&r);
    uint32_t reserved = wire_get_u32(&r);
    wire_get_bytes(&r, ask.nonce, sizeof(ask.nonce));
    if (wire_done(&r) < 0 || reserved != 0)
        return -EPROTO;
    if (ask.stream >= STREAMS_MAX)
        return -EMSGSIZE;
    *out = ask;
    return 0;
}

int greet_proof(const struct secret *job_secret, const struct greeting *g, bool acceptor,
                uint8_t out[PROOF_BYTES])
{
    static const char info[] = "penstock proof";
    uint8_t said[ROLE_BYTES + PREAMBLE_BYTES + GREET_ASK_BYTES + NONCE_BYTES];
    struct wire_writer w;
    wire_writer_init(&w, said, sizeof(said));
    wire_put_bytes(&w, acceptor ? "accept" : "dial\0\0", ROLE_BYTES);
    wire_put_bytes(&w, g->preamble, sizeof(g->preamble));
    wire_put_bytes(&w, g->ask, sizeof(g->ask));
    wire_put_bytes(&w, g->acceptor_nonce, sizeof(g->acceptor_nonce));
    assert(wire_written(&w) == (int64_t)sizeof(said));

    struct secret key;
    int ret = seal_derive(job_secret, NULL, 0, info, sizeof(info) - 1, &key);
    if (ret < 0)
        return ret;
    ret = seal_proof(&key, said, sizeof(said), out);
    seal_wipe(&key, sizeof(key));
    return ret;
}

static int direction_key(const struct secret *job_secret, const struct greeting *g, const char *writer,
                         struct secret *out)
{
    uint8_t salt[2 * NONCE_BYTES], info[32];
    memcpy(salt, g->ask + GREET_ASK_BYTES - NONCE_BYTES, NONCE_BYTES);
    memcpy(salt + NONCE_BYTES, g->acceptor_nonce, NONCE_BYTES);
    static const char label[] = "penstock key ";
    struct wire_writer w;
    wire_writer_init(&w, info, sizeof(info));
    wire_put_bytes(&w, label, sizeof(label) - 1);
    wire_put_bytes(&w, writer, strlen(writer));
    wire_put_u8(&w, g->preamble[PREAMBLE_KIND_AT]);
    int64_t info_len = wire_written(&w);
    assert(info_len > 0);
    return seal_derive(job_secret, salt, sizeof(salt), info, (size_t)info_len, out);
}

int greet_keys(const struct secret *job_secret, const struct greeting *g, struct secret *dialler_writes,
               struct secret *acceptor_writes)
{
    struct secret by_dialler, by_acceptor;
    int ret = direction_key(job_secret, g, "dial", &by_dialler);
    if (ret == 0)
        ret = direction_key(job_secret, g, "accept", &by_acceptor);
    if (ret == 0) {
        *dialler_writes = by_dialler;
        *acceptor_writes = by_acceptor;
    }
    seal_wipe(&by_dialler, sizeof(by_dialler));
    seal_wipe(&by_acceptor, sizeof(by_acceptor));
    return ret;
}
