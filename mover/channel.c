#include "mover/channel_inner.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "proto/limits.h"
#include "proto/wire.h"
#include "storage/sys.h"

enum {
    SEALED_HEAD_BYTES = 4, // length of the sealed bytes
    SEALED_TYPE_BYTES = 2,
    SEALED_OVERHEAD = SEALED_HEAD_BYTES + SEALED_TYPE_BYTES + FRAME_TAG_BYTES,
    INBOX_BYTES = 64 * KIB, // to start with; a larger message makes it grow up to that message
    OUTBOX_EXTRA = MIB,
};

static int nonblocking_set(int fd)
{
    int flags = fcntl(fd, F_GETFL);
    if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0)
        return -errno;
    return 0;
}

static bool is_socket(int fd)
{
    int type;
    socklen_t len = sizeof(type);
    return getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len) == 0;
}

static int channel_init(struct channel *c)
{
    int rc = nonblocking_set(c->fd_in);
    if (rc == 0)
        rc = nonblocking_set(c->fd_out);
    if (rc < 0)
        return rc;
    c->out_is_socket = is_socket(c->fd_out);
    c->heard_ns = sys_clock_ns();
    c->scratch = malloc(MESSAGE_HEAD_BYTES + c->max);
    return c->scratch != NULL ? buffer_reserve(&c->in, INBOX_BYTES) : -ENOMEM;
}

int channel_make(const struct channel *parts, struct channel **out)
{
    struct channel *c = malloc(sizeof(*c));
    if (c == NULL) {
        tls_free(parts->tls);
        seal_free(parts->seal_out);
        seal_free(parts->seal_in);
        close(parts->fd_in);
        if (parts->fd_out != parts->fd_in)
            close(parts->fd_out);
        return -ENOMEM;
    }
    *c = *parts;
    int rc = channel_init(c);
    if (rc < 0) {
        channel_free(c);
        return rc;
    }
    *out = c;
    return 0;
}

int channel_plain_new(int fd_in, int fd_out, size_t max, struct channel **out)
{
    struct channel parts = {.form = FORM_PLAIN, .fd_in = fd_in, .fd_out = fd_out, .max = max, .ready = true};
    return channel_make(&parts, out);
}

int channel_plain_begun(int fd_in, int fd_out, size_t max, const void *begun, size_t len,
                        struct channel **out)
{
    struct channel *c;
    int rc = channel_plain_new(fd_in, fd_out, max, &c);
    if (rc < 0)
        return rc;
    rc = buffer_reserve(&c->in, len);
    if (rc < 0) {
        channel_free(c);
        return rc;
    }
    memcpy(c->in.bytes + c->in.end, begun, len);
    c->in.end += len;
    *out = c;
    return 0;
}

int channel_sealed_new(int fd, struct seal *seal_out, struct seal *seal_in, size_t max, struct channel **out)
{
    struct channel parts = {.form = FORM_SEALED,
                            .fd_in = fd,
                            .fd_out = fd,
                            .max = max,
                            .ready = true,
                            .seal_out = seal_out,
                            .seal_in = seal_in};
    return channel_make(&parts, out);
}

size_t channel_outbox_bytes(const struct channel *c)
{
    return buffer_len(&c->out) + buffer_len(&c->held);
}

size_t channel_outbox_max(const struct channel *c)
{
    return 4 * c->max + OUTBOX_EXTRA;
}

static ssize_t out_write(struct channel *c)
{
    const void *bytes = buffer_at(&c->out);
    size_t len = buffer_len(&c->out);
    ssize_t n;
    do {
        n = c->out_is_socket ? send(c->fd_out, bytes, len, MSG_NOSIGNAL) : write(c->fd_out, bytes, len);
    } while (n < 0 && errno == EINTR);
    return n < 0 ? -errno : n;
}

// Sends as far as it goes. What cannot be sent any more is dropped, since what the other side said last may
// still wait to be read: the error is told by channel_pump when nothing is left to read.
static void out_flush(struct channel *c)
{
    while (buffer_len(&c->out) > 0 && c->out_error == 0) {
        ssize_t n = out_write(c);
        if (n == -EAGAIN || n == -EWOULDBLOCK)
            return;
        if (n < 0) {
            c->out_error = n == -EPIPE ? -ECONNRESET : (int)n;
            buffer_drop(&c->out, buffer_len(&c->out));
            return;
        }
        buffer_drop(&c->out, (size_t)n);
    }
}

static int put_plain(struct channel *c, const uint8_t head[MESSAGE_HEAD_BYTES], const void *fields,
                     size_t len)
{
    if (c->form == FORM_TLS && c->ready) {
        int rc = tls_write(c->tls, head, MESSAGE_HEAD_BYTES);
        if (rc == 0)
            rc = tls_write(c->tls, fields, len);
        return rc < 0 ? rc : channel_tls_drain(c);
    }
    struct buffer *b = c->form == FORM_TLS ? &c->held : &c->out;
    int rc = buffer_reserve(b, MESSAGE_HEAD_BYTES + len); // all of it or nothing
    if (rc == 0)
        rc = buffer_add(b, head, MESSAGE_HEAD_BYTES);
    if (rc == 0)
        rc = buffer_add(b, fields, len);
    return rc;
}

static int put_sealed(struct channel *c, uint16_t type, const void *fields, size_t len)
{
    size_t sealed_bytes = SEALED_TYPE_BYTES + len, total = SEALED_OVERHEAD + len;
    int rc = buffer_reserve(&c->out, total);
    if (rc < 0)
        return rc;
    uint8_t *at = c->out.bytes + c->out.end;
    struct wire_writer w;
    wire_writer_init(&w, at, total);
    wire_put_u32(&w, (uint32_t)sealed_bytes);
    wire_put_u16(&w, type);
    wire_put_bytes(&w, fields, len);
    assert(wire_written(&w) == (int64_t)(total - FRAME_TAG_BYTES));
    rc = seal_close(c->seal_out, c->sealed++, at, SEALED_HEAD_BYTES, at + SEALED_HEAD_BYTES, sealed_bytes,
                    at + total - FRAME_TAG_BYTES);
    if (rc < 0)
        return rc;
    c->out.end += total;
    return 0;
}

int channel_send_bytes(struct channel *c, uint16_t type, const void *fields, size_t len)
{
    if (len > c->max)
        return -EMSGSIZE;
    if (c->out_error != 0)
        return 0; // told by channel_pump
    if (channel_outbox_bytes(c) + SEALED_OVERHEAD + len > channel_outbox_max(c))
        return -ENOBUFS;
    uint8_t head[MESSAGE_HEAD_BYTES];
    struct wire_writer w;
    wire_writer_init(&w, head, sizeof(head));
    wire_put_u32(&w, (uint32_t)len);
    wire_put_u16(&w, type);
    assert(wire_written(&w) == MESSAGE_HEAD_BYTES);
    int rc = c->form == FORM_SEALED ? put_sealed(c, type, fields, len) : put_plain(c, head, fields, len);
    if (rc < 0)
        c->out_error = rc; // half a message may be on its way
    out_flush(c);
    return rc;
}

int channel_send(struct channel *c, const struct message *m)
{
    int64_t len = message_encode(m, c->scratch, MESSAGE_HEAD_BYTES + c->max);
    if (len < 0)
        return (int)len;
    return channel_send_bytes(c, (uint16_t)m->type, c->scratch + MESSAGE_HEAD_BYTES,
                              (size_t)len - MESSAGE_HEAD_BYTES);
}

// What the message at `at` takes up in all. 1; 0: its head is not there yet; -EMSGSIZE, -EPROTO.
static int next_bytes(const struct channel *c, const uint8_t *at, size_t len, size_t *total)
{
    uint32_t claimed;
    if (c->form != FORM_SEALED) {
        uint16_t type;
        if (len < MESSAGE_HEAD_BYTES)
            return 0;
        int rc = message_head(at, c->max, &claimed, &type);
        if (rc < 0)
            return rc;
        *total = MESSAGE_HEAD_BYTES + (size_t)claimed;
        return 1;
    }
    if (len < SEALED_HEAD_BYTES)
        return 0;
    struct wire_reader r;
    wire_reader_init(&r, at, SEALED_HEAD_BYTES);
    claimed = wire_get_u32(&r);
    if (claimed > SEALED_TYPE_BYTES + c->max)
        return -EMSGSIZE;
    if (claimed < SEALED_TYPE_BYTES)
        return -EPROTO;
    *total = SEALED_HEAD_BYTES + (size_t)claimed + FRAME_TAG_BYTES;
    return 1;
}

bool channel_is_whole(const struct channel *c)
{
    const uint8_t *at = buffer_at(&c->in);
    size_t left = buffer_len(&c->in), total;
    while (left > 0) {
        int rc = next_bytes(c, at, left, &total);
        if (rc < 0)
            return true; // channel_next tells what is wrong with it
        if (rc == 0 || total > left)
            return false;
        at += total;
        left -= total;
    }
    return true;
}

ssize_t channel_read(struct channel *c, void *buf, size_t len)
{
    ssize_t n;
    do {
        n = read(c->fd_in, buf, len);
    } while (n < 0 && errno == EINTR);
    if (n > 0)
        c->heard_ns = sys_clock_ns();
    if (n < 0)
        return errno == EAGAIN || errno == EWOULDBLOCK ? 0 : -errno;
    return n == 0 ? -ENODATA : n;
}

static int pump_in(struct channel *c)
{
    while (buffer_room(&c->in) > 0) {
        ssize_t n = channel_read(c, c->in.bytes + c->in.end, buffer_room(&c->in));
        if (n < 0)
            return n == -ENODATA && !channel_is_whole(c) ? -ECONNRESET : (int)n;
        if (n == 0)
            return 0;
        c->in.end += (size_t)n;
    }
    return 0;
}

int channel_pump(struct channel *c)
{
    buffer_compact(&c->in);
    if (c->ended == 0)
        c->ended = c->form == FORM_TLS ? channel_tls_pump(c) : pump_in(c);
    int drained = c->form == FORM_TLS ? channel_tls_drain(c) : 0;
    if (drained < 0 && c->out_error == 0)
        c->out_error = drained;
    out_flush(c);
    if (c->ended != 0)
        return c->ended;
    // A full inbox hides what else has come.
    return buffer_room(&c->in) > 0 ? c->out_error : 0;
}

// Hands out the message that takes up `total` bytes at the front.
static int next_take(struct channel *c, size_t total, uint16_t *type, const uint8_t **fields, size_t *len)
{
    uint8_t *at = buffer_at(&c->in);
    size_t head = MESSAGE_HEAD_BYTES, end = total;
    if (c->form == FORM_SEALED) {
        head = SEALED_HEAD_BYTES + SEALED_TYPE_BYTES;
        end = total - FRAME_TAG_BYTES;
        int rc = seal_open(c->seal_in, c->opened, at, SEALED_HEAD_BYTES, at + SEALED_HEAD_BYTES,
                           end - SEALED_HEAD_BYTES, at + end);
        if (rc < 0)
            return rc;
        c->opened++;
    }
    struct wire_reader r;
    wire_reader_init(&r, at + head - sizeof(*type), sizeof(*type));
    *type = wire_get_u16(&r);
    *fields = at + head;
    *len = end - head;
    buffer_drop(&c->in, total);
    return 1;
}

int channel_next(struct channel *c, uint16_t *type, const uint8_t **fields, size_t *len)
{
    while (c->broken == 0) {
        size_t total = 0, have = buffer_len(&c->in);
        int rc = next_bytes(c, buffer_at(&c->in), have, &total);
        if (rc > 0 && have >= total)
            rc = next_take(c, total, type, fields, len);
        else if (rc >= 0)
            rc = buffer_reserve(&c->in, total > have ? total - have : MESSAGE_HEAD_BYTES);
        if (rc > 0)
            return rc;
        c->broken = rc;
        // TLS may hold what the kernel will not tell of again.
        if (rc == 0 && (c->form != FORM_TLS || !c->ready || c->ended != 0 || channel_tls_fill(c) <= 0))
            return 0;
    }
    return c->broken;
}

void channel_free(struct channel *c)
{
    if (c == NULL)
        return;
    if (c->tls != NULL && c->ready && c->ended == 0) {
        tls_close(c->tls);
        if (channel_tls_drain(c) == 0)
            out_flush(c);
    }
    tls_free(c->tls);
    seal_free(c->seal_out);
    seal_free(c->seal_in);
    buffer_fini(&c->in);
    buffer_fini(&c->out);
    buffer_fini(&c->held);
    if (c->scratch != NULL)
        seal_wipe(c->scratch, MESSAGE_HEAD_BYTES + c->max);
    free(c->scratch);
    close(c->fd_in);
    if (c->fd_out != c->fd_in)
        close(c->fd_out);
    free(c);
}

int channel_fd_in(const struct channel *c)
{
    return c->fd_in;
}

int channel_fd_out(const struct channel *c)
{
    return c->fd_out;
}

short channel_events(const struct channel *c)
{
    // POLLOUT with an error too, so that poll reports what channel_pump has to tell.
    return (short)(POLLIN | (buffer_len(&c->out) > 0 || c->out_error != 0 ? POLLOUT : 0));
}

bool channel_ready(const struct channel *c)
{
    return c->ready;
}

const char *channel_peer_name(const struct channel *c)
{
    return c->tls != NULL ? tls_peer_name(c->tls) : "";
}

const char *channel_why(const struct channel *c)
{
    return c->why;
}

uint64_t channel_heard_ns(const struct channel *c)
{
    return c->heard_ns;
}
