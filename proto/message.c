// Codec of the control messages, generated from the table in proto/messages.h.
#include "proto/message.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static void put_id(struct wire_writer *w, struct job_id v)
{
    wire_put_bytes(w, v.bytes, sizeof v.bytes);
}

static void put_digest(struct wire_writer *w, struct digest v)
{
    wire_put_bytes(w, v.bytes, sizeof v.bytes);
}

static void put_secret(struct wire_writer *w, struct secret v)
{
    wire_put_bytes(w, v.bytes, sizeof v.bytes);
}

// A blob over its limit makes the writer full: the message is refused as a whole.
static void put_blob(struct wire_writer *w, struct blob b, size_t max)
{
    if (b.len > max)
        w->full = true;
    else
        wire_put_blob(w, b.bytes, b.len);
}

static struct job_id get_id(struct wire_reader *r)
{
    struct job_id v;
    wire_get_bytes(r, v.bytes, sizeof v.bytes);
    return v;
}

static struct digest get_digest(struct wire_reader *r)
{
    struct digest v;
    wire_get_bytes(r, v.bytes, sizeof v.bytes);
    return v;
}

static struct secret get_secret(struct wire_reader *r)
{
    struct secret v;
    wire_get_bytes(r, v.bytes, sizeof v.bytes);
    return v;
}

static struct blob get_blob(struct wire_reader *r, size_t max)
{
    struct blob b;
    b.bytes = wire_get_blob(r, max, &b.len);
    return b;
}

// The names that the table below pastes together.
#define put_u8  wire_put_u8
#define put_u16 wire_put_u16
#define put_u32 wire_put_u32
#define put_u64 wire_put_u64
#define get_u8  wire_get_u8
#define get_u16 wire_get_u16
#define get_u32 wire_get_u32
#define get_u64 wire_get_u64

#define F(type, field) put_##type(w, m->field);
#define B(field, max)  put_blob(w, m->field, max);
#define M(number, NAME, name)                                                       \
    static void encode_##name(struct wire_writer *w, const struct message *message) \
    {                                                                               \
        const struct msg_##name *m = &message->name;                                \
        MSG_##NAME(F, B)                                                            \
    }
MESSAGES(M)
#undef M
#undef B
#undef F

#define F(type, field) m->field = get_##type(r);
#define B(field, max)  m->field = get_blob(r, max);
#define M(number, NAME, name)                                                 \
    static void decode_##name(struct wire_reader *r, struct message *message) \
    {                                                                         \
        struct msg_##name *m = &message->name;                                \
        MSG_##NAME(F, B)                                                      \
    }
MESSAGES(M)
#undef M
#undef B
#undef F

struct codec {
    const char *name;
    void (*encode)(struct wire_writer *w, const struct message *message);
    void (*decode)(struct wire_reader *r, struct message *message);
};

// Indexed by message type; type 0 stays empty.
static const struct codec codecs[MESSAGE_TYPES] = {
#define M(number, NAME, name) [number] = {#NAME, encode_##name, decode_##name},
    MESSAGES(M)
#undef M
};

const char *message_name(unsigned type)
{
    if (type == PEER_SEGMENT)
        return "PEER_SEGMENT";
    if (type == PEER_NEED)
        return "PEER_NEED";
    if (type == PEER_RETRY)
        return "PEER_RETRY";
    return type < MESSAGE_TYPES && codecs[type].name != NULL ? codecs[type].name : "?";
}

int64_t message_encode(const struct message *m, void *out, size_t out_len)
{
    assert(m->type > 0 && m->type < MESSAGE_TYPES);
    struct wire_writer w;
    wire_writer_init(&w, out, out_len);
    wire_put_u32(&w, 0);
    wire_put_u16(&w, (uint16_t)m->type);
    codecs[m->type].encode(&w, m);
    int64_t written = wire_written(&w);
    if (written < 0)
        return written;
    wire_writer_init(&w, out, sizeof(uint32_t));
    wire_put_u32(&w, (uint32_t)(written - MESSAGE_HEAD_BYTES));
    return written;
}

int message_head(const uint8_t in[MESSAGE_HEAD_BYTES], size_t max, uint32_t *len, uint16_t *type)
{
    struct wire_reader r;
    wire_reader_init(&r, in, MESSAGE_HEAD_BYTES);
    uint32_t fields = wire_get_u32(&r);
    uint16_t kind = wire_get_u16(&r);
    if (fields > max)
        return -EMSGSIZE;
    *len = fields;
    *type = kind;
    return 0;
}

int message_decode(uint16_t type, const void *fields, size_t len, struct message *out)
{
    if (type == 0 || type >= MESSAGE_TYPES)
        return -EPROTO;
    struct message m = {.type = type};
    struct wire_reader r;
    wire_reader_init(&r, fields, len);
    codecs[type].decode(&r, &m);
    int rc = wire_done(&r);
    if (rc == 0)
        *out = m;
    return rc;
}

struct blob blob_of(const void *bytes, size_t len)
{
    return (struct blob){.bytes = bytes, .len = len};
}

struct blob blob_text(const char *text)
{
    return blob_of(text, strlen(text));
}

void blob_string(const struct blob *b, char *out, size_t out_len)
{
    size_t len = b->len < out_len - 1 ? b->len : out_len - 1;
    if (len > 0)
        memcpy(out, b->bytes, len);
    out[len] = '\0';
}

char *blob_copy(const struct blob *b)
{
    char *copy = malloc(b->len + 1);
    if (copy != NULL)
        blob_string(b, copy, b->len + 1);
    return copy;
}

void message_from_err(const struct err *err, struct message *out)
{
    out->type = MESSAGE_FAIL;
    out->fail = (struct msg_fail){
        .class = (uint8_t)err->class,
        .os = (uint32_t)err->os,
        .op = blob_text(err->op),
        .node = blob_text(err->node),
        .path = blob_text(err->path),
        .text = blob_text(err->text),
    };
}

// Text of a peer is in escaped form already (err_set); one that is not must not reach a terminal raw. So it
// is escaped again but for its backslashes, which leaves a text that is well-formed as it is.
static void clean_text(const struct blob *b, char *out, size_t out_len)
{
    size_t at = 0;
    for (size_t i = 0; i < b->len && at + 1 < out_len;) {
        const uint8_t *slash = memchr(b->bytes + i, '\\', b->len - i);
        size_t piece = slash != NULL ? (size_t)(slash - (b->bytes + i)) : b->len - i;
        at += err_escape(out + at, out_len - at, b->bytes + i, piece);
        i += piece;
        if (slash != NULL && at + 1 < out_len) {
            out[at++] = '\\';
            i++;
        }
    }
    out[at] = '\0';
}

void message_to_err(const struct msg_fail *fail, struct err *out)
{
    *out = (struct err){
        .class = fail->class > ERR_NONE && fail->class < ERR_CLASS_COUNT ? (enum err_class)fail->class
                                                                         : ERR_PROTOCOL,
        .os = fail->os < 4096 ? (int)fail->os : 0,
    };
    clean_text(&fail->op, out->op, sizeof out->op);
    clean_text(&fail->node, out->node, sizeof out->node);
    clean_text(&fail->path, out->path, sizeof out->path);
    clean_text(&fail->text, out->text, sizeof out->text);
}
