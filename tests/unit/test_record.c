#include "proto/record.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <CUnit/CUnit.h>

#include "proto/digest.h"
#include "tests/unit/hex.h"

// Made with python3-xxhash from PROTOCOL.md: a journal of version 1, job a0..af, salt b0..bf; a record of
// type 1, "penstock", and one of type 2 without payload.
static const char header_hex[] = "50454e53544f434b0100000001000000a0a1a2a3a4a5a6a7a8a9aaabacadaeaf"
                                 "b0b1b2b3b4b5b6b7b8b9babbbcbdbebf0000000000000000b0d7e5864d267d72";
static const char records_hex[] = "0800000001000000000000000000000070656e73746f636b5bd1547f619f83f9"
                                  "00000000020000000100000000000000d37ab855f141103a";

enum { FIRST_BYTES = 32, SECOND_BYTES = 24, RECORDS_BYTES = FIRST_BYTES + SECOND_BYTES };

static struct record_header example_header(void)
{
    struct record_header h = {.kind = RECORD_JOURNAL, .version = 1};
    count_up(h.job.bytes, sizeof(h.job.bytes), 0xa0);
    count_up(h.salt, sizeof(h.salt), 0xb0);
    return h;
}

static struct record_chain example_chain(void)
{
    struct record_header h = example_header();
    uint8_t bytes[RECORD_HEADER_BYTES];
    struct record_chain chain;
    record_header_encode(&h, bytes, &chain);
    return chain;
}

static void test_header_known_answer(void)
{
    struct record_header h = example_header(), back;
    struct record_chain written, read = {7, 7};
    uint8_t bytes[RECORD_HEADER_BYTES];
    record_header_encode(&h, bytes, &written);
    CU_ASSERT(hex_equal(bytes, sizeof(bytes), header_hex));
    CU_ASSERT_EQUAL(record_header_decode(bytes, RECORD_JOURNAL, 1, &back, &read), 0);
    CU_ASSERT_EQUAL(back.kind, RECORD_JOURNAL);
    CU_ASSERT_EQUAL(back.version, 1);
    CU_ASSERT_EQUAL(memcmp(back.job.bytes, h.job.bytes, sizeof(h.job.bytes)), 0);
    CU_ASSERT_EQUAL(memcmp(back.salt, h.salt, sizeof(h.salt)), 0);
    CU_ASSERT(read.number == 0 && written.number == 0);
    CU_ASSERT_EQUAL(read.sum, 0x727d264d86e5d7b0);
    CU_ASSERT_EQUAL(written.sum, read.sum);
}

static void test_header_every_bit_counts(void)
{
    uint8_t bytes[RECORD_HEADER_BYTES];
    struct record_header out, before;
    struct record_chain chain = {7, 7};
    memset(&before, 0x5a, sizeof(before));
    memcpy(&out, &before, sizeof(out));
    hex_bytes(header_hex, bytes, sizeof(bytes));
    for (size_t bit = 0; bit < 8 * sizeof(bytes); bit++) {
        bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
        CU_ASSERT_EQUAL(record_header_decode(bytes, RECORD_JOURNAL, 1, &out, &chain), -EBADMSG);
        bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    CU_ASSERT_EQUAL(memcmp(&out, &before, sizeof(out)), 0);
    CU_ASSERT(chain.number == 7 && chain.sum == 7);
}

static void test_header_versions_and_kinds(void)
{
    static const struct {
        enum record_file kind, asked;
        uint32_t version, max;
        int ret;
    } cases[] = {
        {RECORD_JOURNAL, RECORD_JOURNAL, 1, 3, 0},
        {RECORD_JOURNAL, RECORD_JOURNAL, 3, 3, 0},
        {RECORD_JOURNAL, RECORD_JOURNAL, 4, 3, -EPROTONOSUPPORT},
        {RECORD_JOURNAL, RECORD_JOURNAL, UINT32_MAX, 3, -EPROTONOSUPPORT},
        {RECORD_JOURNAL, RECORD_JOURNAL, 0, 3, -EBADMSG},
        {RECORD_RECEIPT, RECORD_RECEIPT, 1, 1, 0},
        {RECORD_RECEIPT, RECORD_JOURNAL, 1, 1, -EBADMSG},
        {RECORD_RECEIPT, RECORD_JOURNAL, 4, 3, -EBADMSG},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct record_header h = example_header(), out = {.version = 77};
        struct record_chain chain;
        uint8_t bytes[RECORD_HEADER_BYTES];
        h.kind = cases[i].kind;
        h.version = cases[i].version;
        record_header_encode(&h, bytes, &chain);
        CU_ASSERT_EQUAL(record_header_decode(bytes, cases[i].asked, cases[i].max, &out, &chain),
                        cases[i].ret);
        CU_ASSERT_EQUAL(out.version, cases[i].ret == -EBADMSG ? 77 : cases[i].version);
    }
}

static void test_header_rules(void)
{
    // A byte changed behind a good checksum: magic, kind, reserved.
    static const size_t at[] = {0, 7, 8, 11, 48, 55};
    for (size_t i = 0; i < ARRAY_LEN(at); i++) {
        uint8_t bytes[RECORD_HEADER_BYTES];
        struct record_header out;
        struct record_chain chain;
        hex_bytes(header_hex, bytes, sizeof(bytes));
        bytes[at[i]] ^= 0x40;
        uint64_t sum = digest_check64(bytes, 56);
        for (size_t j = 0; j < 8; j++)
            bytes[56 + j] = (uint8_t)(sum >> (8 * j));
        CU_ASSERT_EQUAL(record_header_decode(bytes, RECORD_JOURNAL, 1, &out, &chain), -EBADMSG);
    }
}

static void test_records_known_answer(void)
{
    struct record_chain chain = example_chain();
    uint8_t bytes[RECORDS_BYTES];
    CU_ASSERT_EQUAL(record_encode(&chain, 1, "penstock", 8, bytes, sizeof(bytes)), FIRST_BYTES);
    CU_ASSERT_EQUAL(record_encode(&chain, 2, NULL, 0, bytes + FIRST_BYTES, SECOND_BYTES), SECOND_BYTES);
    CU_ASSERT(hex_equal(bytes, sizeof(bytes), records_hex));
    CU_ASSERT_EQUAL(chain.number, 2);

    struct record_chain reader = example_chain();
    struct record r;
    CU_ASSERT_EQUAL(record_decode(&reader, bytes, sizeof(bytes), &r), FIRST_BYTES);
    CU_ASSERT_EQUAL(r.type, 1);
    CU_ASSERT_EQUAL(r.payload_bytes, 8);
    CU_ASSERT_PTR_EQUAL(r.payload, bytes + 16);
    CU_ASSERT_EQUAL(record_decode(&reader, bytes + FIRST_BYTES, SECOND_BYTES, &r), SECOND_BYTES);
    CU_ASSERT_EQUAL(r.type, 2);
    CU_ASSERT_EQUAL(r.payload_bytes, 0);
    CU_ASSERT(reader.number == chain.number && reader.sum == chain.sum);
}

// The records up to `cut`, in memory that ends there so that a sanitizer sees a byte too many: the first is
// whole or torn, and behind a whole one the second is torn.
static void assert_torn_at(const uint8_t *bytes, size_t cut)
{
    uint8_t *torn = malloc(cut + (cut == 0));
    assert(torn != NULL);
    memcpy(torn, bytes, cut);
    struct record_chain chain = example_chain();
    struct record r;
    size_t at = 0;
    if (cut >= FIRST_BYTES) {
        CU_ASSERT_EQUAL(record_decode(&chain, torn, cut, &r), FIRST_BYTES);
        at = FIRST_BYTES;
    }
    struct record_chain before = chain;
    r.type = 77;
    CU_ASSERT_EQUAL(record_decode(&chain, torn + at, cut - at, &r), 0);
    CU_ASSERT(chain.number == before.number && chain.sum == before.sum && r.type == 77);
    free(torn);
}

static void test_cut_at_every_byte(void)
{
    uint8_t bytes[RECORDS_BYTES];
    hex_bytes(records_hex, bytes, sizeof(bytes));
    for (size_t cut = 0; cut < sizeof(bytes); cut++)
        assert_torn_at(bytes, cut);
}

static void test_every_bit_counts(void)
{
    uint8_t bytes[RECORDS_BYTES];
    hex_bytes(records_hex, bytes, sizeof(bytes));
    for (size_t bit = 0; bit < 8 * FIRST_BYTES; bit++) {
        struct record_chain chain = example_chain(), before = chain;
        struct record r = {.type = 77};
        bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
        int64_t ret = record_decode(&chain, bytes, sizeof(bytes), &r);
        bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
        // A length that grew may ask for more, one that grew a lot is over the limit; nothing is taken.
        CU_ASSERT(ret == -EBADMSG || (bit < 32 && (ret == 0 || ret == -EMSGSIZE)));
        CU_ASSERT(chain.number == before.number && chain.sum == before.sum && r.type == 77);
    }
}

static void test_chain_order(void)
{
    uint8_t bytes[RECORDS_BYTES];
    struct record r;
    hex_bytes(records_hex, bytes, sizeof(bytes));
    struct record_chain chain = example_chain();
    CU_ASSERT_EQUAL(record_decode(&chain, bytes + FIRST_BYTES, SECOND_BYTES, &r), -EBADMSG); // one is missing
    CU_ASSERT_EQUAL(record_decode(&chain, bytes, sizeof(bytes), &r), FIRST_BYTES);
    CU_ASSERT_EQUAL(record_decode(&chain, bytes, sizeof(bytes), &r), -EBADMSG); // again
    struct record_chain other = {.number = 1, .sum = chain.sum ^ 1};
    CU_ASSERT_EQUAL(record_decode(&other, bytes + FIRST_BYTES, SECOND_BYTES, &r), -EBADMSG);
    CU_ASSERT_EQUAL(record_decode(&chain, bytes + FIRST_BYTES, SECOND_BYTES, &r), SECOND_BYTES);
}

static void test_record_of_another_file(void)
{
    struct record_header h = example_header();
    uint8_t header[RECORD_HEADER_BYTES], bytes[RECORDS_BYTES];
    struct record_chain chain;
    struct record r;
    h.salt[15] ^= 1; // the same job and version, a new file
    record_header_encode(&h, header, &chain);
    hex_bytes(records_hex, bytes, sizeof(bytes));
    CU_ASSERT_EQUAL(record_decode(&chain, bytes, sizeof(bytes), &r), -EBADMSG);
}

static void test_zeros_are_no_record(void)
{
    uint8_t bytes[64] = {0};
    struct record_chain chain = example_chain();
    struct record r;
    CU_ASSERT_EQUAL(record_decode(&chain, bytes, sizeof(bytes), &r), -EBADMSG);
}

static void test_limits(void)
{
    size_t len = RECORD_PAYLOAD_MAX + RECORD_FRAME_BYTES + 1;
    uint8_t *payload = calloc(1, len), *bytes = calloc(1, len);
    assert(payload != NULL && bytes != NULL);
    struct record_chain chain = example_chain(), reader = chain;
    CU_ASSERT_EQUAL(record_encode(&chain, 3, payload, RECORD_PAYLOAD_MAX + 1, bytes, len), -EMSGSIZE);
    CU_ASSERT_EQUAL(record_encode(&chain, 3, payload, 8, bytes, 8 + RECORD_FRAME_BYTES - 1), -EMSGSIZE);
    CU_ASSERT_EQUAL(record_encode(&chain, 3, payload, 0, bytes, 0), -EMSGSIZE);
    CU_ASSERT(chain.number == 0 && bytes[4] == 0);
    CU_ASSERT_EQUAL(record_encode(&chain, 3, payload, RECORD_PAYLOAD_MAX, bytes, len - 1), (int64_t)len - 1);

    struct record r;
    CU_ASSERT_EQUAL(record_decode(&reader, bytes, len - 2, &r), 0);
    CU_ASSERT_EQUAL(record_decode(&reader, bytes, len, &r), (int64_t)len - 1);
    CU_ASSERT_EQUAL(r.payload_bytes, RECORD_PAYLOAD_MAX);
    reader = example_chain();
    bytes[0] = 1; // the limit and one more
    CU_ASSERT_EQUAL(record_decode(&reader, bytes, len, &r), -EMSGSIZE);
    CU_ASSERT_EQUAL(record_decode(&reader, bytes, 16, &r), -EMSGSIZE);
    free(bytes);
    free(payload);
}

static void test_rules(void)
{
    // The first record with a byte changed behind a good checksum.
    static const struct {
        size_t at;
        int64_t ret;
    } cases[] = {{4, FIRST_BYTES}, {6, -EBADMSG}, {7, -EBADMSG}, {8, -EBADMSG}, {15, -EBADMSG}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        uint8_t bytes[RECORDS_BYTES];
        struct record_chain chain = example_chain();
        struct record r;
        hex_bytes(records_hex, bytes, sizeof(bytes));
        bytes[cases[i].at] ^= 0x10;
        uint64_t sum = digest_check64_after(chain.sum, bytes, FIRST_BYTES - 8);
        for (size_t j = 0; j < 8; j++)
            bytes[FIRST_BYTES - 8 + j] = (uint8_t)(sum >> (8 * j));
        CU_ASSERT_EQUAL(record_decode(&chain, bytes, FIRST_BYTES, &r), cases[i].ret);
    }
}

void suite_record(void)
{
    CU_pSuite suite = CU_add_suite("record", NULL, NULL);
    CU_add_test(suite, "header_known_answer", test_header_known_answer);
    CU_add_test(suite, "header_every_bit_counts", test_header_every_bit_counts);
    CU_add_test(suite, "header_versions_and_kinds", test_header_versions_and_kinds);
    CU_add_test(suite, "header_rules", test_header_rules);
    CU_add_test(suite, "records_known_answer", test_records_known_answer);
    CU_add_test(suite, "cut_at_every_byte", test_cut_at_every_byte);
    CU_add_test(suite, "every_bit_counts", test_every_bit_counts);
    CU_add_test(suite, "chain_order", test_chain_order);
    CU_add_test(suite, "record_of_another_file", test_record_of_another_file);
    CU_add_test(suite, "zeros_are_no_record", test_zeros_are_no_record);
    CU_add_test(suite, "limits", test_limits);
    CU_add_test(suite, "rules", test_rules);
}
