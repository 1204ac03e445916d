// A conversation under TLS.
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "mover/channel_inner.h"

enum {
    CHUNK_BYTES = 16 * KIB, // ciphertext read at once
    CHUNKS_PER_PUMP = 64,   // so that a fast peer does not keep its owner
    // What TLS says by itself (alerts, key updates) may go over the limit of the outbox by this.
    OUTBOX_SLACK = 64 * KIB,
};

int channel_tls_drain(struct channel *c)
{
    uint8_t chunk[CHUNK_BYTES];
    for (;;) {
        int64_t n = tls_get_wire(c->tls, chunk, sizeof(chunk));
        if (n <= 0)
            return (int)n;
        if (channel_outbox_bytes(c) + (size_t)n > channel_outbox_max(c) + OUTBOX_SLACK)
            return -ENOBUFS;
        int rc = buffer_add(&c->out, chunk, (size_t)n);
        if (rc < 0)
            return rc;
    }
}

// Goes on with the handshake; when it is over, what was held goes out.
static int tls_greet(struct channel *c)
{
    int rc = tls_handshake(c->tls, c->why);
    if (rc == 1) {
        c->ready = true;
        rc = tls_write(c->tls, buffer_at(&c->held), buffer_len(&c->held));
        buffer_fini(&c->held);
    }
    int drained = channel_tls_drain(c);
    return rc < 0 ? rc : drained;
}

int channel_tls_new(int fd, struct tls *tls, size_t max, struct channel **out)
{
    struct channel parts = {.form = FORM_TLS, .fd_in = fd, .fd_out = fd, .max = max, .tls = tls};
    struct channel *c;
    int rc = channel_make(&parts, &c);
    if (rc < 0)
        return rc;
    rc = tls_greet(c); // the client speaks first: this puts its words into the outbox
    if (rc < 0) {
        channel_free(c);
        return rc;
    }
    *out = c;
    return 0;
}

int64_t channel_tls_fill(struct channel *c)
{
    int64_t sum = 0;
    while (buffer_room(&c->in) > 0) {
        int64_t n = tls_read(c->tls, c->in.bytes + c->in.end, buffer_room(&c->in));
        if (n < 0)
            c->ended = n == -ENODATA && !channel_is_whole(c) ? -ECONNRESET : (int)n;
        if (n <= 0)
            return n < 0 ? n : sum;
        c->in.end += (size_t)n;
        sum += n;
    }
    return sum;
}

// Looks at the first bytes before TLS does. 1: they are for TLS; 0: more are needed; -EPROTONOSUPPORT: the
// other side speaks another wire version.
static int first_look(struct channel *c, const uint8_t *bytes, size_t len)
{
    static const uint8_t start = 'P'; // no TLS record starts like this
    if (c->first_len == 0 && bytes[0] != start) {
        c->first_seen = true;
        return 1;
    }
    size_t more = u64_min(len, sizeof(c->first) - c->first_len);
    memcpy(c->first + c->first_len, bytes, more);
    c->first_len += more;
    if (c->first_len < sizeof(c->first))
        return 0;
    struct preamble p;
    if (preamble_decode(c->first, &p) < 0 || (p.version >= WIRE_VERSION_MIN && p.version <= WIRE_VERSION)) {
        snprintf(c->why, sizeof(c->why), "the other side does not speak TLS");
        return -EACCES;
    }
    snprintf(c->why, sizeof(c->why), "the other side speaks wire version %u, this one %d to %d", p.version,
             WIRE_VERSION_MIN, WIRE_VERSION);
    return -EPROTONOSUPPORT;
}

static int put_wire(struct channel *c, const uint8_t *bytes, size_t len)
{
    if (!c->first_seen) {
        int rc = first_look(c, bytes, len);
        if (rc <= 0)
            return rc;
    }
    return tls_put_wire(c->tls, bytes, len);
}

// The connection ended before TLS said that it would.
static int tls_cut(struct channel *c, int rc)
{
    if (c->ready || rc != -ENODATA)
        return rc == -ENODATA ? -ECONNRESET : rc;
    snprintf(c->why, sizeof(c->why), "the other side closed the connection in the handshake");
    return -EACCES;
}

int channel_tls_pump(struct channel *c)
{
    uint8_t chunk[CHUNK_BYTES];
    for (int i = 0; i < CHUNKS_PER_PUMP; i++) {
        int rc = c->ready ? 0 : tls_greet(c);
        int64_t got = rc == 0 && c->ready ? channel_tls_fill(c) : 0;
        if (rc < 0 || got < 0)
            return rc < 0 ? rc : (int)c->ended;
        if (c->ready && buffer_room(&c->in) == 0)
            return 0;
        ssize_t n = channel_read(c, chunk, sizeof(chunk));
        if (n == 0)
            return 0;
        rc = n < 0 ? tls_cut(c, (int)n) : put_wire(c, chunk, (size_t)n);
        if (rc < 0)
            return rc;
    }
    return 0;
}
