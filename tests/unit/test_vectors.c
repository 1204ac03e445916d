// What tests/peer.py, a second implementation, says the bytes are: greetings, frames, messages, receipts.
// Segments, needs and layouts are in test_vectors_layout.c.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <CUnit/CUnit.h>

#include "proto/frame.h"
#include "proto/greet.h"
#include "proto/message.h"
#include "proto/receipt.h"
#include "proto/record.h"
#include "tests/unit/vectors.h"

// ---- greetings ----

static void check_greeting(const struct vector_case *c)
{
    struct preamble p = {.kind = (enum greet_kind)vector_number(c, "kind"), .version = WIRE_VERSION},
                    back = {0};
    struct greet_ask ask = {.session = (uint32_t)vector_number(c, "session"),
                            .stream = (uint32_t)vector_number(c, "stream"),
                            .attempt = (uint32_t)vector_number(c, "attempt")},
                     asked = {0};
    struct greeting said;
    struct secret secret, dialler, acceptor;
    uint8_t proof[PROOF_BYTES];
    vector_copy(c, "job", p.job.bytes, sizeof(p.job.bytes));
    vector_copy(c, "secret", secret.bytes, sizeof(secret.bytes));
    vector_copy(c, "dialler_nonce", ask.nonce, sizeof(ask.nonce));
    vector_copy(c, "acceptor_nonce", said.acceptor_nonce, sizeof(said.acceptor_nonce));
    preamble_encode(&p, said.preamble);
    greet_ask_encode(&ask, said.ask);
    CU_ASSERT(vector_is(c, "preamble", said.preamble, sizeof(said.preamble)));
    CU_ASSERT(vector_is(c, "ask", said.ask, sizeof(said.ask)));
    CU_ASSERT_EQUAL(preamble_decode(said.preamble, &back), 0);
    CU_ASSERT(back.kind == p.kind && back.version == p.version &&
              memcmp(&back.job, &p.job, sizeof(p.job)) == 0);
    CU_ASSERT_EQUAL(greet_ask_decode(said.ask, &asked), 0);
    CU_ASSERT_EQUAL(memcmp(&asked, &ask, sizeof(ask)), 0);
    CU_ASSERT_EQUAL(greet_proof(&secret, &said, true, proof), 0);
    CU_ASSERT(vector_is(c, "acceptor_proof", proof, sizeof(proof)));
    CU_ASSERT_EQUAL(greet_proof(&secret, &said, false, proof), 0);
    CU_ASSERT(vector_is(c, "dialler_proof", proof, sizeof(proof)));
    CU_ASSERT_EQUAL(greet_keys(&secret, &said, &dialler, &acceptor), 0);
    CU_ASSERT(vector_is(c, "dialler_key", dialler.bytes, sizeof(dialler.bytes)));
    CU_ASSERT(vector_is(c, "acceptor_key", acceptor.bytes, sizeof(acceptor.bytes)));
}

static void check_bad_preamble(const struct vector_case *c)
{
    uint8_t bytes[PREAMBLE_BYTES];
    struct preamble out;
    vector_copy(c, "preamble", bytes, sizeof(bytes));
    CU_ASSERT(preamble_decode(bytes, &out) < 0);
}

static void check_bad_ask(const struct vector_case *c)
{
    uint8_t bytes[GREET_ASK_BYTES];
    struct greet_ask out;
    vector_copy(c, "ask", bytes, sizeof(bytes));
    CU_ASSERT(greet_ask_decode(bytes, &out) < 0);
}

static void test_greetings(void)
{
    static const struct vector_check checks[] = {
        {"greeting", check_greeting}, {"bad-preamble", check_bad_preamble}, {"bad-ask", check_bad_ask}};
    vectors_run("greeting.txt", checks, ARRAY_LEN(checks));
}

// ---- frames ----

static void check_head(const struct vector_case *c)
{
    struct frame_head head = {.kind = (enum frame_kind)vector_number(c, "kind"),
                              .session = (uint32_t)vector_number(c, "session"),
                              .segment = vector_number(c, "segment"),
                              .stripe = vector_number(c, "stripe"),
                              .sequence = vector_number(c, "sequence"),
                              .body_bytes = (uint32_t)vector_number(c, "body"),
                              .trailer_bytes = (uint32_t)vector_number(c, "trailer"),
                              .extents = (uint32_t)vector_number(c, "extents"),
                              .leaves = (uint32_t)vector_number(c, "leaves"),
                              .sealed = vector_number(c, "sealed") == 1},
                      got = {0};
    uint8_t bytes[FRAME_HEAD_BYTES];
    frame_head_encode(&head, bytes);
    CU_ASSERT(vector_is(c, "head", bytes, sizeof(bytes)));
    CU_ASSERT_EQUAL_FATAL(frame_head_decode(bytes, &got), 0);
    CU_ASSERT(got.kind == head.kind && got.session == head.session && got.segment == head.segment);
    CU_ASSERT(got.stripe == head.stripe && got.sequence == head.sequence && got.sealed == head.sealed);
    CU_ASSERT(got.body_bytes == head.body_bytes && got.trailer_bytes == head.trailer_bytes);
    CU_ASSERT(got.extents == head.extents && got.leaves == head.leaves);
}

static void check_bad_head(const struct vector_case *c)
{
    uint8_t bytes[FRAME_HEAD_BYTES];
    struct frame_head out;
    vector_copy(c, "head", bytes, sizeof(bytes));
    CU_ASSERT(frame_head_decode(bytes, &out) < 0);
}

static void check_trailer(const struct vector_case *c)
{
    struct extent_status status[8], got_status[8];
    struct digest leaves[8], got_leaves[8];
    uint32_t extents = 0, leaf_count = 0;
    for (const char *words = vector_words(c, "states", 0); *words != '\0'; extents++) {
        status[extents].state = (enum extent_state)vector_next(&words);
        status[extents].os = (uint16_t)vector_next(&words);
    }
    for (const char *words = vector_words(c, "leaves", 0); *words != '\0'; leaf_count++) {
        struct vector_bytes leaf = vector_hex(&words);
        memcpy(leaves[leaf_count].bytes, leaf.bytes, sizeof(leaves[0].bytes));
        free(leaf.bytes);
    }
    uint8_t bytes[512];
    size_t len = trailer_bytes(extents, leaf_count);
    trailer_encode(status, extents, leaves, leaf_count, bytes);
    CU_ASSERT(vector_is(c, "trailer", bytes, len));
    CU_ASSERT_EQUAL_FATAL(trailer_decode(bytes, extents, leaf_count, got_status, got_leaves), 0);
    for (uint32_t i = 0; i < extents; i++)
        CU_ASSERT(got_status[i].state == status[i].state && got_status[i].os == status[i].os);
    CU_ASSERT_EQUAL(memcmp(got_leaves, leaves, leaf_count * sizeof(leaves[0])), 0);
}

static void check_bad_trailer(const struct vector_case *c)
{
    struct vector_bytes b = vector_bytes(c, "trailer");
    uint32_t extents = (uint32_t)vector_number(c, "extents"),
             leaf_count = (uint32_t)vector_number(c, "leaf_count");
    struct extent_status status[8];
    struct digest leaves[8];
    CU_ASSERT_EQUAL_FATAL(b.len, trailer_bytes(extents, leaf_count));
    CU_ASSERT(trailer_decode(b.bytes, extents, leaf_count, status, leaves) < 0);
    free(b.bytes);
}

static struct seal *seal_of(const struct vector_case *c)
{
    struct secret key;
    struct seal *s = NULL;
    vector_copy(c, "key", key.bytes, sizeof(key.bytes));
    CU_ASSERT_EQUAL_FATAL(seal_new(&key, &s), 0);
    return s;
}

static void check_sealed(const struct vector_case *c)
{
    struct vector_bytes head = vector_bytes(c, "head"), text = vector_bytes(c, "text");
    struct seal *s = seal_of(c);
    uint64_t n = vector_number(c, "number");
    uint8_t *bytes = malloc(text.len + FRAME_TAG_BYTES);
    CU_ASSERT_PTR_NOT_NULL_FATAL(bytes);
    memcpy(bytes, text.bytes, text.len);
    CU_ASSERT_EQUAL(seal_close(s, n, head.bytes, head.len, bytes, text.len, bytes + text.len), 0);
    CU_ASSERT(vector_is(c, "sealed", bytes, text.len + FRAME_TAG_BYTES));
    CU_ASSERT_EQUAL(seal_open(s, n, head.bytes, head.len, bytes, text.len, bytes + text.len), 0);
    CU_ASSERT_EQUAL(memcmp(bytes, text.bytes, text.len), 0);
    seal_free(s);
    free(bytes);
    free(head.bytes);
    free(text.bytes);
}

static void check_bad_sealed(const struct vector_case *c)
{
    struct vector_bytes head = vector_bytes(c, "head"), sealed = vector_bytes(c, "sealed");
    struct seal *s = seal_of(c);
    size_t len = sealed.len - FRAME_TAG_BYTES;
    CU_ASSERT_EQUAL(
        seal_open(s, vector_number(c, "number"), head.bytes, head.len, sealed.bytes, len, sealed.bytes + len),
        -EBADMSG);
    seal_free(s);
    free(head.bytes);
    free(sealed.bytes);
}

static void test_frames(void)
{
    static const struct vector_check checks[] = {
        {"head", check_head},       {"bad-head", check_bad_head},
        {"trailer", check_trailer}, {"bad-trailer", check_bad_trailer},
        {"sealed", check_sealed},   {"bad-sealed", check_bad_sealed}};
    vectors_run("frames.txt", checks, ARRAY_LEN(checks));
}

// ---- messages: each field by its name in the table ----

static bool same_msg_u8(const struct vector_case *c, const char *name, uint8_t value)
{
    return vector_number(c, name) == value;
}
static bool same_msg_u16(const struct vector_case *c, const char *name, uint16_t value)
{
    return vector_number(c, name) == value;
}
static bool same_msg_u32(const struct vector_case *c, const char *name, uint32_t value)
{
    return vector_number(c, name) == value;
}
static bool same_msg_u64(const struct vector_case *c, const char *name, uint64_t value)
{
    return vector_number(c, name) == value;
}
static bool same_msg_id(const struct vector_case *c, const char *name, struct job_id value)
{
    return vector_is(c, name, value.bytes, sizeof(value.bytes));
}
static bool same_msg_digest(const struct vector_case *c, const char *name, struct digest value)
{
    return vector_is(c, name, value.bytes, sizeof(value.bytes));
}
static bool same_msg_secret(const struct vector_case *c, const char *name, struct secret value)
{
    return vector_is(c, name, value.bytes, sizeof(value.bytes));
}

static bool is_named(const struct vector_case *c, const char *name)
{
    return strcmp(c->name, name) == 0;
}

#define F(type, field) same = same_msg_##type(c, #field, m->field) && same;
#define B(field, max)  same = vector_is(c, #field, m->field.bytes, m->field.len) && same;
#define M(number, NAME, name)                                                           \
    static bool same_##name(const struct vector_case *c, const struct message *message) \
    {                                                                                   \
        const struct msg_##name *m = &message->name;                                    \
        bool same = is_named(c, #NAME);                                                 \
        MSG_##NAME(F, B) return same;                                                   \
    }
MESSAGES(M)
#undef M
#undef B
#undef F

static bool (*const same[MESSAGE_TYPES])(const struct vector_case *c, const struct message *message) = {
#define M(number, NAME, name) [number] = same_##name,
    MESSAGES(M)
#undef M
};

static void check_message(const struct vector_case *c)
{
    struct vector_bytes wire = vector_bytes(c, "wire");
    struct message m;
    uint32_t len = 0;
    uint16_t type = 0;
    CU_ASSERT_FATAL(wire.len >= MESSAGE_HEAD_BYTES);
    CU_ASSERT_EQUAL(message_head(wire.bytes, MESSAGE_BYTES_MAX, &len, &type), 0);
    CU_ASSERT_EQUAL_FATAL(len, wire.len - MESSAGE_HEAD_BYTES);
    CU_ASSERT_EQUAL_FATAL(type, vector_number(c, "number"));
    CU_ASSERT_EQUAL_FATAL(message_decode(type, wire.bytes + MESSAGE_HEAD_BYTES, len, &m), 0);
    CU_ASSERT(same[type](c, &m));
    uint8_t *again = malloc(wire.len);
    CU_ASSERT_PTR_NOT_NULL_FATAL(again);
    CU_ASSERT_EQUAL(message_encode(&m, again, wire.len), (int64_t)wire.len);
    CU_ASSERT_EQUAL(memcmp(again, wire.bytes, wire.len), 0);
    free(again);
    free(wire.bytes);
}

static void check_bad_message(const struct vector_case *c)
{
    struct vector_bytes body = vector_bytes(c, "body");
    struct message out;
    CU_ASSERT(message_decode((uint16_t)vector_number(c, "number"), body.bytes, body.len, &out) < 0);
    free(body.bytes);
}

static void test_messages(void)
{
    static const struct vector_check checks[] = {{"message", check_message},
                                                 {"bad-message", check_bad_message}};
    vectors_run("messages.txt", checks, ARRAY_LEN(checks));
}

// ---- receipts ----

static void check_record(const struct vector_case *c)
{
    struct vector_bytes path = vector_bytes(c, "path"), wire = vector_bytes(c, "bytes");
    struct receipt_entry e = {.type = (enum entry_type)vector_number(c, "type"),
                              .outcome = (enum receipt_outcome)vector_number(c, "outcome"),
                              .proof = (enum receipt_proof)vector_number(c, "proof"),
                              .mode = (uint32_t)vector_number(c, "mode"),
                              .size = vector_number(c, "size"),
                              .mtime = {(int64_t)vector_number(c, "mtime_s"),
                                        (uint32_t)vector_number(c, "mtime_ns")},
                              .path = blob_of(path.bytes, path.len)},
                         got;
    uint8_t out[1024];
    vector_copy(c, "digest", e.digest.bytes, sizeof(e.digest.bytes));
    CU_ASSERT_EQUAL(receipt_entry_encode(&e, out, sizeof(out)), (int64_t)wire.len);
    CU_ASSERT_EQUAL(memcmp(out, wire.bytes, wire.len), 0);
    CU_ASSERT_EQUAL_FATAL(receipt_entry_decode(wire.bytes, wire.len, &got), 0);
    CU_ASSERT(got.type == e.type && got.outcome == e.outcome && got.proof == e.proof && got.mode == e.mode);
    CU_ASSERT(got.size == e.size && got.mtime.s == e.mtime.s && got.mtime.ns == e.mtime.ns);
    CU_ASSERT(digest_equal(&got.digest, &e.digest) && vector_is(c, "path", got.path.bytes, got.path.len));
    free(path.bytes);
    free(wire.bytes);
}

static void check_bad_record(const struct vector_case *c)
{
    struct vector_bytes wire = vector_bytes(c, "bytes");
    struct receipt_entry out;
    CU_ASSERT(receipt_entry_decode(wire.bytes, wire.len, &out) < 0);
    free(wire.bytes);
}

static void check_job(const struct vector_case *c)
{
    struct vector_bytes wire = vector_bytes(c, "bytes");
    struct receipt_job j;
    uint8_t out[1024];
    CU_ASSERT_EQUAL_FATAL(receipt_job_decode(wire.bytes, wire.len, &j), 0);
    CU_ASSERT_EQUAL(j.started_s, (int64_t)vector_number(c, "started"));
    CU_ASSERT(vector_is(c, "program", j.program.bytes, j.program.len));
    CU_ASSERT(vector_is(c, "sources", j.sources.bytes, j.sources.len));
    CU_ASSERT(vector_is(c, "destination", j.destination.bytes, j.destination.len));
    CU_ASSERT(vector_is(c, "place", j.place.bytes, j.place.len));
    CU_ASSERT_EQUAL(receipt_job_encode(&j, out, sizeof(out)), (int64_t)wire.len);
    CU_ASSERT(vector_is(c, "bytes", out, wire.len));
    free(wire.bytes);
}

static void check_end(const struct vector_case *c)
{
    struct vector_bytes wire = vector_bytes(c, "bytes");
    struct receipt_end e;
    uint8_t out[128];
    CU_ASSERT_EQUAL_FATAL(receipt_end_decode(wire.bytes, wire.len, &e), 0);
    CU_ASSERT_EQUAL(e.ended_s, (int64_t)vector_number(c, "ended"));
    CU_ASSERT_EQUAL(e.exit_status, vector_number(c, "exit"));
    const uint64_t counts[] = {e.total, e.moved, e.skipped, e.changed, e.vanished, e.failed, e.bytes};
    const char *words = vector_words(c, "counts", 0);
    for (size_t i = 0; i < ARRAY_LEN(counts); i++)
        CU_ASSERT_EQUAL(counts[i], vector_next(&words));
    CU_ASSERT_EQUAL(receipt_end_encode(&e, out, sizeof(out)), (int64_t)wire.len);
    CU_ASSERT(vector_is(c, "bytes", out, wire.len));
    free(wire.bytes);
}

// A whole file: taken apart, and made again from its parts.
static void check_file(const struct vector_case *c)
{
    struct vector_bytes file = vector_bytes(c, "bytes");
    struct record_header h;
    struct record_chain chain, again;
    struct record record;
    uint8_t out[4096];
    CU_ASSERT_FATAL(file.len >= RECORD_HEADER_BYTES);
    int rc = record_header_decode(file.bytes, (enum record_file)vector_number(c, "kind"), 1, &h, &chain);
    CU_ASSERT_EQUAL_FATAL(rc, 0);
    CU_ASSERT_EQUAL(h.version, vector_number(c, "version"));
    CU_ASSERT(vector_is(c, "job", h.job.bytes, sizeof(h.job.bytes)));
    record_header_encode(&h, out, &again);
    CU_ASSERT_EQUAL(memcmp(out, file.bytes, RECORD_HEADER_BYTES), 0);
    uint64_t records = 0;
    for (size_t at = RECORD_HEADER_BYTES; at < file.len; records++) {
        int64_t taken = record_decode(&chain, file.bytes + at, file.len - at, &record);
        CU_ASSERT_FATAL(taken > 0);
        int64_t made =
            record_encode(&again, record.type, record.payload, record.payload_bytes, out, sizeof(out));
        CU_ASSERT_EQUAL_FATAL(made, taken);
        CU_ASSERT_EQUAL(memcmp(out, file.bytes + at, (size_t)taken), 0);
        at += (size_t)taken;
    }
    CU_ASSERT_EQUAL(records, vector_number(c, "records"));
    free(file.bytes);
}

static void test_receipts(void)
{
    static const struct vector_check checks[] = {{"record", check_record},
                                                 {"bad-record", check_bad_record},
                                                 {"job", check_job},
                                                 {"end", check_end},
                                                 {"file", check_file}};
    vectors_run("receipts.txt", checks, ARRAY_LEN(checks));
}

void suite_vectors(void)
{
    CU_pSuite suite = CU_add_suite("vectors", NULL, NULL);
    CU_add_test(suite, "greetings", test_greetings);
    CU_add_test(suite, "frames", test_frames);
    CU_add_test(suite, "messages", test_messages);
    CU_add_test(suite, "receipts", test_receipts);
}
