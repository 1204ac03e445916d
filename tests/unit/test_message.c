#include "proto/message.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <CUnit/CUnit.h>

#include "tests/unit/hex.h"
#include "tests/unit/tree.h"

enum { BUF_BYTES = MESSAGE_HEAD_BYTES + MESSAGE_BYTES_MAX };

// ---- each type, from the same table as the product: filled, compared, and encoded without the product's
// codec ----

// What blobs are made from: how long they are to be, and their bytes.
enum blob_len { LEN_ZERO, LEN_SMALL, LEN_MAX };

struct filler {
    struct rnd rnd;
    enum blob_len len;
    const uint8_t *bytes;
};

static void fill_raw(struct filler *f, void *out, size_t len)
{
    uint8_t *at = out;
    for (size_t i = 0; i < len; i++)
        at[i] = (uint8_t)rnd_next(&f->rnd);
}

static struct blob fill_blob(struct filler *f, size_t max)
{
    size_t len = f->len == LEN_ZERO ? 0 : f->len == LEN_MAX ? max : 1 + rnd_below(&f->rnd, max < 9 ? max : 9);
    return blob_of(f->bytes + rnd_below(&f->rnd, 64), len);
}

static bool blob_equal(struct blob a, struct blob b)
{
    return a.len == b.len && (a.len == 0 || memcmp(a.bytes, b.bytes, a.len) == 0);
}

#define F(type, name) fill_raw(f, &m->name, sizeof(m->name));
#define B(name, max)  m->name = fill_blob(f, max);
#define M(number, NAME, name)                                          \
    static void fill_##name(struct filler *f, struct message *message) \
    {                                                                  \
        struct msg_##name *m = &message->name;                         \
        MSG_##NAME(F, B)                                               \
    }
MESSAGES(M)
#undef M
#undef B
#undef F

#define F(type, name) &&memcmp(&a->name, &b->name, sizeof(a->name)) == 0
#define B(name, max)  &&blob_equal(a->name, b->name)
#define M(number, NAME, name)                                                        \
    static bool equal_##name(const struct message *one, const struct message *other) \
    {                                                                                \
        const struct msg_##name *a = &one->name, *b = &other->name;                  \
        return one->type == other->type MSG_##NAME(F, B);                            \
    }
MESSAGES(M)
#undef M
#undef B
#undef F

// The fields as zeros, but blob `over` (counted from 0) is one byte longer than it may be. How many blobs.
#define F(type, name) wire_put_zeros(w, sizeof(msg_##type));
#define B(name, max)  wire_put_blob(w, bytes, blobs++ == over ? (max) + 1 : 0);
#define M(number, NAME, name)                                                               \
    static unsigned over_##name(struct wire_writer *w, const uint8_t *bytes, unsigned over) \
    {                                                                                       \
        unsigned blobs = 0;                                                                 \
        (void)bytes, (void)over;                                                            \
        MSG_##NAME(F, B) return blobs;                                                      \
    }
MESSAGES(M)
#undef M
#undef B
#undef F

// The same as a value.
#define F(type, name)
#define B(name, max) m->name = blob_of(bytes, blobs++ == over ? (max) + 1 : 0);
#define M(number, NAME, name)                                                                   \
    static void over_value_##name(struct message *message, const uint8_t *bytes, unsigned over) \
    {                                                                                           \
        struct msg_##name *m = &message->name;                                                  \
        unsigned blobs = 0;                                                                     \
        (void)m, (void)blobs, (void)bytes, (void)over;                                          \
        MSG_##NAME(F, B)                                                                        \
    }
MESSAGES(M)
#undef M
#undef B
#undef F

struct type_row {
    const char *name;
    void (*fill)(struct filler *f, struct message *message);
    bool (*equal)(const struct message *one, const struct message *other);
    unsigned (*over)(struct wire_writer *w, const uint8_t *bytes, unsigned over);
    void (*over_value)(struct message *message, const uint8_t *bytes, unsigned over);
};

static const struct type_row types[MESSAGE_TYPES] = {
#define M(number, NAME, name) [number] = {#NAME, fill_##name, equal_##name, over_##name, over_value_##name},
    MESSAGES(M)
#undef M
};

// ---- the tests ----

struct buffers {
    uint8_t *source, *wire; // bytes for blobs; an encoded message
};

static struct buffers buffers_begin(void)
{
    struct buffers b = {.source = malloc(BUF_BYTES), .wire = malloc(BUF_BYTES)};
    CU_ASSERT_PTR_NOT_NULL_FATAL(b.source);
    CU_ASSERT_PTR_NOT_NULL_FATAL(b.wire);
    for (size_t i = 0; i < BUF_BYTES; i++)
        b.source[i] = (uint8_t)(i * 11 + i / 256);
    return b;
}

static void buffers_end(struct buffers *b)
{
    free(b->source);
    free(b->wire);
}

static struct message message_fill(unsigned type, enum blob_len len, uint64_t seed, const struct buffers *b)
{
    struct message m = {.type = (enum message_type)type};
    struct filler f = {.rnd = {seed}, .len = len, .bytes = b->source};
    types[type].fill(&f, &m);
    return m;
}

static void test_round_trip(void)
{
    struct buffers b = buffers_begin();
    for (unsigned type = 1; type < MESSAGE_TYPES; type++) {
        for (enum blob_len len = LEN_ZERO; len <= LEN_MAX; len++) {
            struct message m = message_fill(type, len, type, &b), back;
            uint32_t fields = 0;
            uint16_t told = 0;
            int64_t n = message_encode(&m, b.wire, BUF_BYTES);
            CU_ASSERT_FATAL(n >= MESSAGE_HEAD_BYTES); // also at all limits at once it is a control message
            CU_ASSERT_EQUAL(message_head(b.wire, MESSAGE_BYTES_MAX, &fields, &told), 0);
            CU_ASSERT_EQUAL(fields, n - MESSAGE_HEAD_BYTES);
            CU_ASSERT_EQUAL(told, type);
            CU_ASSERT_EQUAL(message_decode(told, b.wire + MESSAGE_HEAD_BYTES, fields, &back), 0);
            CU_ASSERT_TRUE(types[type].equal(&m, &back));
        }
    }
    buffers_end(&b);
}

static void test_over_limits(void)
{
    struct buffers b = buffers_begin();
    for (unsigned type = 1; type < MESSAGE_TYPES; type++) {
        for (unsigned over = 0, blobs = 1; over < blobs; over++) {
            struct wire_writer w;
            struct message m = {.type = (enum message_type)type}, out;
            wire_writer_init(&w, b.wire, BUF_BYTES);
            blobs = types[type].over(&w, b.source, over);
            int64_t n = wire_written(&w);
            CU_ASSERT_FATAL(n > 0);
            if (blobs == 0)
                break;
            CU_ASSERT_EQUAL(message_decode((uint16_t)type, b.wire, (size_t)n, &out), -EPROTO);
            types[type].over_value(&m, b.source, over);
            CU_ASSERT_EQUAL(message_encode(&m, b.wire, BUF_BYTES), -EMSGSIZE);
        }
    }
    buffers_end(&b);
}

static void test_truncated(void)
{
    struct buffers b = buffers_begin();
    for (unsigned type = 1; type < MESSAGE_TYPES; type++) {
        struct message m = message_fill(type, LEN_SMALL, 100 + type, &b), out, before;
        int64_t n = message_encode(&m, b.wire, BUF_BYTES);
        CU_ASSERT_FATAL(n > MESSAGE_HEAD_BYTES);
        size_t len = (size_t)n - MESSAGE_HEAD_BYTES;
        memset(&before, 0x5a, sizeof(before));
        memcpy(&out, &before, sizeof(out));
        for (size_t cut = 0; cut < len; cut++) {
            uint8_t *exact = malloc(cut + 1); // so that a sanitizer sees a read beyond it
            CU_ASSERT_PTR_NOT_NULL_FATAL(exact);
            memcpy(exact + 1, b.wire + MESSAGE_HEAD_BYTES, cut);
            CU_ASSERT_EQUAL(message_decode((uint16_t)type, exact + 1, cut, &out), -EPROTO);
            free(exact);
        }
        CU_ASSERT_EQUAL(message_decode((uint16_t)type, b.wire + MESSAGE_HEAD_BYTES, len + 1, &out), -EPROTO);
        CU_ASSERT_EQUAL(memcmp(&out, &before, sizeof(out)), 0);
    }
    buffers_end(&b);
}

static void test_no_room(void)
{
    struct buffers b = buffers_begin();
    for (unsigned type = 1; type < MESSAGE_TYPES; type++) {
        struct message m = message_fill(type, LEN_SMALL, 200 + type, &b);
        int64_t n = message_encode(&m, b.wire, BUF_BYTES);
        for (int64_t room = 0; room < n; room++)
            CU_ASSERT_EQUAL(message_encode(&m, b.wire, (size_t)room), -EMSGSIZE);
        CU_ASSERT_EQUAL(message_encode(&m, b.wire, (size_t)n), n);
    }
    buffers_end(&b);
}

static void test_unknown_types(void)
{
    static const uint16_t unknown[] = {0, MESSAGE_TYPES, PEER_SEGMENT, PEER_NEED, 0x7fff, 0xffff};
    uint8_t fields[8] = {0};
    struct message out;
    for (size_t i = 0; i < ARRAY_LEN(unknown); i++) {
        CU_ASSERT_EQUAL(message_decode(unknown[i], fields, sizeof(fields), &out), -EPROTO);
        CU_ASSERT_EQUAL(message_decode(unknown[i], NULL, 0, &out), -EPROTO);
    }
}

static void test_head(void)
{
    static const struct {
        const char *hex;
        size_t max;
        int rc;
    } cases[] = {
        {"000000000300", 0, 0},
        {"0a0000000300", 10, 0},
        {"0b0000000300", 10, -EMSGSIZE},
        {"004002000300", MESSAGE_BYTES_MAX, 0},
        {"014002000300", MESSAGE_BYTES_MAX, -EMSGSIZE},
        {"000000800300", MESSAGE_BYTES_MAX, -EMSGSIZE},
        {"ffffffff0300", PEER_BYTES_MAX, -EMSGSIZE},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        uint8_t head[MESSAGE_HEAD_BYTES];
        uint32_t len = 4711;
        uint16_t type = 4711;
        hex_bytes(cases[i].hex, head, sizeof(head));
        CU_ASSERT_EQUAL(message_head(head, cases[i].max, &len, &type), cases[i].rc);
        CU_ASSERT_EQUAL(type, cases[i].rc == 0 ? 3 : 4711);
        CU_ASSERT_EQUAL(len == 4711, cases[i].rc != 0);
    }
}

// The form on the wire, pinned: written by hand from PROTOCOL.md.
static void test_known_bytes(void)
{
    struct message ping = {.type = MESSAGE_PING, .ping = {.cookie = 0x1122334455667788}};
    struct message fail = {.type = MESSAGE_FAIL};
    uint8_t bytes[64];
    fail.fail = (struct msg_fail){.class = 9, .os = 28, .op = blob_text("write"), .node = blob_text("n1")};
    CU_ASSERT_EQUAL(message_encode(&ping, bytes, sizeof(bytes)), 14);
    CU_ASSERT(hex_equal(bytes, 14, "0800000003008877665544332211"));
    CU_ASSERT_EQUAL(message_encode(&fail, bytes, sizeof(bytes)), 34);
    CU_ASSERT(hex_equal(bytes, 34,
                        "1c0000000200"
                        "091c000000"
                        "050000007772697465"
                        "020000006e31"
                        "00000000"
                        "00000000"));
}

static void test_names(void)
{
    for (unsigned type = 1; type < MESSAGE_TYPES; type++)
        CU_ASSERT_STRING_EQUAL(message_name(type), types[type].name);
    CU_ASSERT_STRING_EQUAL(message_name(PEER_SEGMENT), "PEER_SEGMENT");
    CU_ASSERT_STRING_EQUAL(message_name(PEER_NEED), "PEER_NEED");
    CU_ASSERT_STRING_EQUAL(message_name(0), "?");
    CU_ASSERT_STRING_EQUAL(message_name(MESSAGE_TYPES), "?");
    CU_ASSERT_STRING_EQUAL(message_name(0xffffffff), "?");
}

static void test_blobs(void)
{
    char out[5];
    struct blob b = blob_text("four");
    CU_ASSERT_EQUAL(b.len, 4);
    blob_string(&b, out, sizeof(out));
    CU_ASSERT_STRING_EQUAL(out, "four");
    b = blob_text("fives");
    blob_string(&b, out, sizeof(out));
    CU_ASSERT_STRING_EQUAL(out, "five");
    b = blob_of("fives", 4); // not terminated
    char *copy = blob_copy(&b);
    CU_ASSERT_PTR_NOT_NULL_FATAL(copy);
    CU_ASSERT_STRING_EQUAL(copy, "five");
    free(copy);
    b = blob_of(NULL, 0);
    blob_string(&b, out, sizeof(out));
    CU_ASSERT_STRING_EQUAL(out, "");
    copy = blob_copy(&b);
    CU_ASSERT_PTR_NOT_NULL_FATAL(copy);
    CU_ASSERT_STRING_EQUAL(copy, "");
    free(copy);
}

// An error as it is set here comes out the same there, whatever was in the names.
static void test_err_round_trip(void)
{
    static const char path[] = "a\\b\n\x1b[31m\xff\xc3\xa9\xc2\x9b"
                               "caf";
    struct err sent, came;
    struct message m, back;
    uint8_t wire[4096];
    err_set(&sent, ERR_STORAGE, ENOSPC, "write", path, sizeof(path) - 1, "%s", "needs 5 GiB\r\n100%n");
    strcpy(sent.node, "dtn3");
    message_from_err(&sent, &m);
    int64_t n = message_encode(&m, wire, sizeof(wire));
    CU_ASSERT_FATAL(n > 0);
    CU_ASSERT_EQUAL(
        message_decode(MESSAGE_FAIL, wire + MESSAGE_HEAD_BYTES, (size_t)n - MESSAGE_HEAD_BYTES, &back), 0);
    message_to_err(&back.fail, &came);
    CU_ASSERT_EQUAL(came.class, ERR_STORAGE);
    CU_ASSERT_EQUAL(came.os, ENOSPC);
    CU_ASSERT_STRING_EQUAL(came.op, sent.op);
    CU_ASSERT_STRING_EQUAL(came.node, sent.node);
    CU_ASSERT_STRING_EQUAL(came.path, sent.path);
    CU_ASSERT_STRING_EQUAL(came.text, sent.text);
}

static bool is_clean(const char *text)
{
    for (; *text != '\0'; text++)
        if ((unsigned char)*text < 0x20 || (unsigned char)*text == 0x7f || (unsigned char)*text >= 0x80)
            return false;
    return true;
}

// A peer sends what it likes: nothing of it reaches a terminal raw, and nothing overflows.
static void test_err_hostile(void)
{
    uint8_t raw[1024];
    struct msg_fail fail = {.class = 200, .os = 0xffffffff};
    struct err err;
    for (size_t i = 0; i < sizeof(raw); i++)
        raw[i] = (uint8_t)(i % 3 == 0 ? 0x1b : i % 3 == 1 ? 0xff : 0x00);
    for (size_t len = 0; len <= 31; len++) {
        fail.op = blob_of(raw, len);
        fail.node = blob_of(raw, ADDRESS_BYTES_MAX - len);
        fail.path = blob_of(raw, 1023 - len);
        fail.text = blob_of(raw, TEXT_BYTES_MAX - len);
        message_to_err(&fail, &err);
        CU_ASSERT_EQUAL(err.class, ERR_PROTOCOL);
        CU_ASSERT_EQUAL(err.os, 0);
        CU_ASSERT(is_clean(err.op) && is_clean(err.node) && is_clean(err.path) && is_clean(err.text));
        CU_ASSERT(strlen(err.path) > 1000);
    }
    memset(raw, '\\', sizeof(raw));
    fail.text = blob_of(raw, TEXT_BYTES_MAX);
    message_to_err(&fail, &err);
    CU_ASSERT_EQUAL(strlen(err.text), TEXT_BYTES_MAX - 1);
    fail = (struct msg_fail){.class = ERR_NONE};
    message_to_err(&fail, &err);
    CU_ASSERT_EQUAL(err.class, ERR_PROTOCOL); // a failure that is none
    CU_ASSERT_STRING_EQUAL(err.text, "");
}

void suite_message(void)
{
    CU_pSuite suite = CU_add_suite("message", NULL, NULL);
    CU_add_test(suite, "round_trip", test_round_trip);
    CU_add_test(suite, "over_limits", test_over_limits);
    CU_add_test(suite, "truncated", test_truncated);
    CU_add_test(suite, "no_room", test_no_room);
    CU_add_test(suite, "unknown_types", test_unknown_types);
    CU_add_test(suite, "head", test_head);
    CU_add_test(suite, "known_bytes", test_known_bytes);
    CU_add_test(suite, "names", test_names);
    CU_add_test(suite, "blobs", test_blobs);
    CU_add_test(suite, "err_round_trip", test_err_round_trip);
    CU_add_test(suite, "err_hostile", test_err_hostile);
}
