#include "proto/greet.h"

#include <errno.h>
#include <string.h>

#include <CUnit/CUnit.h>

#include "proto/digest.h"
#include "tests/unit/hex.h"

// Made with python3-xxhash and python3-cryptography from PROTOCOL.md: secret 00..1f, job a0..af,
// nonces 40..5f and 60..7f, session 1, stream 2, attempt 3.
static const char preamble_hex[] =
    "50454e53544f434b0103000000000000a0a1a2a3a4a5a6a7a8a9aaabacadaeaf3499fc4424646771";
static const char ask_hex[] = "01000000020000000300000000000000"
                              "404142434445464748494a4b4c4d4e4f505152535455565758595a5b5c5d5e5f";

static struct preamble example_preamble(void)
{
    struct preamble p = {.kind = GREET_DATA, .version = 1};
    count_up(p.job.bytes, sizeof(p.job.bytes), 0xa0);
    return p;
}

static struct greeting example_greeting(void)
{
    struct greeting g;
    hex_bytes(preamble_hex, g.preamble, sizeof(g.preamble));
    hex_bytes(ask_hex, g.ask, sizeof(g.ask));
    count_up(g.acceptor_nonce, sizeof(g.acceptor_nonce), 0x60);
    return g;
}

static struct secret example_secret(void)
{
    struct secret s;
    count_up(s.bytes, sizeof(s.bytes), 0);
    return s;
}

static void test_preamble_known_answer(void)
{
    struct preamble p = example_preamble(), back;
    uint8_t bytes[PREAMBLE_BYTES];
    preamble_encode(&p, bytes);
    CU_ASSERT(hex_equal(bytes, sizeof(bytes), preamble_hex));
    CU_ASSERT_EQUAL(preamble_decode(bytes, &back), 0);
    CU_ASSERT_EQUAL(back.kind, GREET_DATA);
    CU_ASSERT_EQUAL(back.version, 1);
    CU_ASSERT_EQUAL(memcmp(back.job.bytes, p.job.bytes, sizeof(p.job.bytes)), 0);
}

static void test_preamble_every_bit_counts(void)
{
    uint8_t bytes[PREAMBLE_BYTES];
    struct preamble out, before;
    memset(&before, 0x5a, sizeof(before));
    memcpy(&out, &before, sizeof(out));
    hex_bytes(preamble_hex, bytes, sizeof(bytes));
    for (size_t bit = 0; bit < 8 * sizeof(bytes); bit++) {
        bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
        CU_ASSERT_EQUAL(preamble_decode(bytes, &out), -EBADMSG);
        bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    CU_ASSERT_EQUAL(memcmp(&out, &before, sizeof(out)), 0);
}

static void test_what_others_send_first(void)
{
    static const char *const others[] = {
        "GET / HTTP/1.1\r\nHost: example.com\r\n\r\n....",
        "SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n..........",
        "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03..................................",
    };
    for (size_t i = 0; i < ARRAY_LEN(others); i++) {
        uint8_t bytes[PREAMBLE_BYTES] = {0};
        struct preamble out;
        memcpy(bytes, others[i], PREAMBLE_BYTES - 1);
        CU_ASSERT_EQUAL(preamble_decode(bytes, &out), -EBADMSG);
    }
}

static void test_preamble_rules(void)
{
    // One byte changed behind a good checksum. A foreign version says nothing about the other fields.
    static const struct {
        size_t at;
        uint8_t value;
        int ret;
    } cases[] = {
        {9, GREET_CONTROL, 0}, {9, GREET_PEER, 0},  {9, GREET_DATA, 0}, {9, 0, -EPROTO},
        {9, 4, -EPROTO},       {9, 0xff, -EPROTO},  {10, 1, -EPROTO},   {11, 0x80, -EPROTO},
        {12, 1, -EPROTO},      {15, 0x80, -EPROTO}, {16, 0, 0},         {8, WIRE_VERSION + 1, 0},
        {8, 0xff, 0},          {8, 0, 0},           {0, 'p', -EBADMSG}, {7, 'k', -EBADMSG},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        uint8_t bytes[PREAMBLE_BYTES];
        struct preamble out = {.version = 99};
        hex_bytes(preamble_hex, bytes, sizeof(bytes));
        bytes[cases[i].at] = cases[i].value;
        uint64_t sum = digest_check64(bytes, 32);
        for (size_t j = 0; j < 8; j++)
            bytes[32 + j] = (uint8_t)(sum >> (8 * j));
        CU_ASSERT_EQUAL(preamble_decode(bytes, &out), cases[i].ret);
        if (cases[i].ret == 0)
            CU_ASSERT_EQUAL(out.version, bytes[8]);
    }
}

static void test_foreign_version_is_told(void)
{
    struct preamble p = example_preamble(), out;
    uint8_t bytes[PREAMBLE_BYTES];
    p.version = WIRE_VERSION + 7;
    p.kind = 200; // means something there
    preamble_encode(&p, bytes);
    CU_ASSERT_EQUAL(preamble_decode(bytes, &out), 0);
    CU_ASSERT_EQUAL(out.version, WIRE_VERSION + 7);
}

static void test_ask(void)
{
    struct greet_ask ask = {.session = 1, .stream = 2, .attempt = 3}, back;
    uint8_t bytes[GREET_ASK_BYTES];
    count_up(ask.nonce, sizeof(ask.nonce), 0x40);
    greet_ask_encode(&ask, bytes);
    CU_ASSERT(hex_equal(bytes, sizeof(bytes), ask_hex));
    CU_ASSERT_EQUAL(greet_ask_decode(bytes, &back), 0);
    CU_ASSERT_EQUAL(back.session, 1);
    CU_ASSERT_EQUAL(back.stream, 2);
    CU_ASSERT_EQUAL(back.attempt, 3);
    CU_ASSERT_EQUAL(memcmp(back.nonce, ask.nonce, sizeof(ask.nonce)), 0);
}

static void test_ask_rules(void)
{
    struct greet_ask ask = {.session = UINT32_MAX, .stream = STREAMS_MAX - 1, .attempt = UINT32_MAX}, back;
    uint8_t bytes[GREET_ASK_BYTES];
    greet_ask_encode(&ask, bytes);
    CU_ASSERT_EQUAL(greet_ask_decode(bytes, &back), 0);
    CU_ASSERT_EQUAL(back.session, UINT32_MAX);
    ask.stream = STREAMS_MAX;
    greet_ask_encode(&ask, bytes);
    CU_ASSERT_EQUAL(greet_ask_decode(bytes, &back), -EMSGSIZE);
    CU_ASSERT_EQUAL(back.stream, STREAMS_MAX - 1);
    for (size_t bit = 0; bit < 32; bit++) {
        hex_bytes(ask_hex, bytes, sizeof(bytes));
        bytes[12 + bit / 8] ^= (uint8_t)(1 << bit % 8);
        CU_ASSERT_EQUAL(greet_ask_decode(bytes, &back), -EPROTO);
    }
}

static void test_proofs_known_answers(void)
{
    struct secret secret = example_secret();
    struct greeting g = example_greeting();
    uint8_t proof[PROOF_BYTES];
    CU_ASSERT_EQUAL(greet_proof(&secret, &g, true, proof), 0);
    CU_ASSERT(
        hex_equal(proof, sizeof(proof), "857fe971cab0f02e2c4e213320b02772f0f7ea37a5c861e891af8aa7a948691e"));
    CU_ASSERT_EQUAL(greet_proof(&secret, &g, false, proof), 0);
    CU_ASSERT(
        hex_equal(proof, sizeof(proof), "a295a4fecac2e2ef4117ea3bcec52c9a830092962f40e460ff27a1a978ba6f41"));
}

// The greeting is told by a running index of its bytes.
static uint8_t *greeting_byte(struct greeting *g, size_t i)
{
    if (i < PREAMBLE_BYTES)
        return &g->preamble[i];
    i -= PREAMBLE_BYTES;
    return i < GREET_ASK_BYTES ? &g->ask[i] : &g->acceptor_nonce[i - GREET_ASK_BYTES];
}

static void test_every_word_is_proved(void)
{
    struct secret secret = example_secret();
    struct greeting g = example_greeting();
    uint8_t proof[PROOF_BYTES], other[PROOF_BYTES];
    CU_ASSERT_EQUAL(greet_proof(&secret, &g, false, proof), 0);
    for (size_t i = 0; i < PREAMBLE_BYTES + GREET_ASK_BYTES + NONCE_BYTES; i++) {
        *greeting_byte(&g, i) ^= 1;
        CU_ASSERT_EQUAL(greet_proof(&secret, &g, false, other), 0);
        CU_ASSERT_FALSE(seal_proof_equal(proof, other));
        *greeting_byte(&g, i) ^= 1;
    }
    secret.bytes[31] ^= 0x80;
    CU_ASSERT_EQUAL(greet_proof(&secret, &g, false, other), 0);
    CU_ASSERT_FALSE(seal_proof_equal(proof, other));
}

static void test_keys_known_answers(void)
{
    struct secret secret = example_secret(), dialler, acceptor;
    struct greeting g = example_greeting();
    CU_ASSERT_EQUAL(greet_keys(&secret, &g, &dialler, &acceptor), 0);
    CU_ASSERT(hex_equal(dialler.bytes, SECRET_BYTES,
                        "c2fef594d690b0a81364ffd94660d1a5cee7d845937132c0094f163773edf5ff"));
    CU_ASSERT(hex_equal(acceptor.bytes, SECRET_BYTES,
                        "04797922a42de5114bad205b2fd93e563e66580053b4dab835284e888c994c9a"));
}

static void test_keys_depend_on_nonces_and_kind(void)
{
    static const size_t at[] = {
        9,                                     // kind
        PREAMBLE_BYTES + 16,                   // first and last byte of the dialler's nonce
        PREAMBLE_BYTES + GREET_ASK_BYTES - 1,  //
        PREAMBLE_BYTES + GREET_ASK_BYTES,      // of the acceptor's
        PREAMBLE_BYTES + GREET_ASK_BYTES + 31, //
    };
    struct secret secret = example_secret(), dialler[2], acceptor[2];
    struct greeting g = example_greeting();
    CU_ASSERT_EQUAL(greet_keys(&secret, &g, &dialler[0], &acceptor[0]), 0);
    for (size_t i = 0; i < ARRAY_LEN(at); i++) {
        *greeting_byte(&g, at[i]) ^= 1;
        CU_ASSERT_EQUAL(greet_keys(&secret, &g, &dialler[1], &acceptor[1]), 0);
        CU_ASSERT_NOT_EQUAL(memcmp(&dialler[0], &dialler[1], sizeof(dialler[0])), 0);
        CU_ASSERT_NOT_EQUAL(memcmp(&acceptor[0], &acceptor[1], sizeof(acceptor[0])), 0);
        *greeting_byte(&g, at[i]) ^= 1;
    }
}

void suite_greet(void)
{
    CU_pSuite suite = CU_add_suite("greet", NULL, NULL);
    CU_add_test(suite, "preamble_known_answer", test_preamble_known_answer);
    CU_add_test(suite, "preamble_every_bit_counts", test_preamble_every_bit_counts);
    CU_add_test(suite, "what_others_send_first", test_what_others_send_first);
    CU_add_test(suite, "preamble_rules", test_preamble_rules);
    CU_add_test(suite, "foreign_version_is_told", test_foreign_version_is_told);
    CU_add_test(suite, "ask", test_ask);
    CU_add_test(suite, "ask_rules", test_ask_rules);
    CU_add_test(suite, "proofs_known_answers", test_proofs_known_answers);
    CU_add_test(suite, "every_word_is_proved", test_every_word_is_proved);
    CU_add_test(suite, "keys_known_answers", test_keys_known_answers);
    CU_add_test(suite, "keys_depend_on_nonces_and_kind", test_keys_depend_on_nonces_and_kind);
}
