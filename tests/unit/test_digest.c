#include "proto/digest.h"

#include <stdlib.h>
#include <string.h>

#include <CUnit/CUnit.h>

#include "tests/unit/hex.h"

// Expected values of this file come from another binding of the same function (python3-xxhash).

static uint8_t *pattern_new(size_t len)
{
    uint8_t *bytes = malloc(len + 1);
    assert(bytes != NULL);
    for (size_t i = 0; i < len; i++)
        bytes[i] = (uint8_t)(i * 7 + (i >> 8) * 13);
    return bytes;
}

static void test_known_answers(void)
{
    // Lengths on both sides of every change of method inside XXH3.
    static const struct {
        size_t len;
        const char *digest;
        uint64_t check;
    } cases[] = {
        {0, "99aa06d3014798d86001c324468d497f", 0x2d06800538d394c2},
        {1, "a6cd5e9392000f6ac44bdff4074eecdb", 0xc44bdff4074eecdb},
        {3, "656e81c56e41fe02c3489259e968ad9e", 0xc3489259e968ad9e},
        {16, "ddf6c1254d70f76794eaa17b20756f46", 0x9da23836adf2be1e},
        {17, "263f67af63088041735fe434ded90c3c", 0xf34c3c9cf5a112d1},
        {128, "dd9e5aa9bd51cc9cc6bd21ecc865f29f", 0x65f3c2c00fa93185},
        {129, "00433635cf8d872e7f4accb76587485b", 0x28065c6ec25f5b25},
        {240, "89e3a0a2ee355d25d10beb4e0599e4b3", 0x4917a75c0ef8eed7},
        {241, "75f4da43f23cce5a541b19226f0052e8", 0x541b19226f0052e8},
        {1024, "25bdb537bd627db3cbeb9f3a1aeccda2", 0xcbeb9f3a1aeccda2},
        {4097, "0b79768806fbbde9504103a868d36967", 0x504103a868d36967},
        {LEAF_BYTES, "6cf0e255c2b2d21e0897bfa3a6d80f14", 0x0897bfa3a6d80f14},
    };
    uint8_t *bytes = pattern_new(LEAF_BYTES);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct digest d = digest_of(bytes, cases[i].len);
        CU_ASSERT(hex_equal(d.bytes, sizeof(d.bytes), cases[i].digest));
        CU_ASSERT_EQUAL(digest_check64(bytes, cases[i].len), cases[i].check);
    }
    free(bytes);
}

static void test_nothing_may_be_null(void)
{
    struct digest null = digest_of(NULL, 0), empty = digest_of("", 0);
    CU_ASSERT(digest_equal(&null, &empty));
    CU_ASSERT_EQUAL(digest_check64(NULL, 0), digest_check64("", 0));
}

static void test_equal(void)
{
    struct digest a = digest_of("a", 1);
    for (size_t i = 0; i < sizeof(a.bytes); i++) {
        struct digest b = a;
        CU_ASSERT(digest_equal(&a, &b));
        b.bytes[i] ^= 1;
        CU_ASSERT_FALSE(digest_equal(&a, &b));
    }
}

static void test_hex_keeps_its_width(void)
{
    static const struct {
        const char *text, *hex;
    } cases[] = {
        {"30", "0b165d236bdc00c3213488a6525340f6"},
        {"168", "007fb8d6d88bcdd8c9205eb3ffe83e67"},
        {"abc", "06b05ab6733a618578af5f94892f3950"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char hex[33];
        memset(hex, '!', sizeof(hex));
        struct digest d = digest_of(cases[i].text, strlen(cases[i].text));
        digest_hex(&d, hex);
        CU_ASSERT_STRING_EQUAL(hex, cases[i].hex);
    }
    char hex[33];
    struct digest none = {{0}};
    digest_hex(&none, hex);
    CU_ASSERT_STRING_EQUAL(hex, "00000000000000000000000000000000");
}

static void test_check_after(void)
{
    CU_ASSERT_EQUAL(digest_check64_after(0x0123456789abcdef, "record", 6), 0xfd940af6b9b2359c);
    CU_ASSERT_EQUAL(digest_check64_after(5, NULL, 0), 0x8e03e9aa39aaa78c);
}

static void test_stream_in_pieces(void)
{
    static const size_t pieces[] = {1, 255, 256, 257, 4096, 65536, LEAF_BYTES};
    uint8_t *bytes = pattern_new(LEAF_BYTES);
    struct digest_stream *s = digest_stream_new();
    CU_ASSERT_PTR_NOT_NULL_FATAL(s);
    struct digest whole = digest_of(bytes, LEAF_BYTES);
    for (size_t i = 0; i < ARRAY_LEN(pieces); i++) {
        digest_stream_reset(s);
        for (size_t at = 0; at < LEAF_BYTES; at += pieces[i])
            digest_stream_add(s, bytes + at, (size_t)u64_min(pieces[i], LEAF_BYTES - at));
        digest_stream_add(s, NULL, 0);
        struct digest d = digest_stream_end(s);
        CU_ASSERT(digest_equal(&d, &whole));
    }
    digest_stream_free(s);
    digest_stream_free(NULL);
    free(bytes);
}

static void test_stream_is_new_without_reset(void)
{
    struct digest_stream *s = digest_stream_new();
    CU_ASSERT_PTR_NOT_NULL_FATAL(s);
    struct digest d = digest_stream_end(s), empty = digest_of("", 0);
    CU_ASSERT(digest_equal(&d, &empty));
    digest_stream_free(s);
}

static void test_stream_with_a_hole(void)
{
    enum { DATA = 5000, HOLE = 3 * 16384 + 1 };
    uint8_t *bytes = calloc(1, 2 * DATA + HOLE);
    CU_ASSERT_PTR_NOT_NULL_FATAL(bytes);
    memset(bytes, 'a', DATA);
    memset(bytes + DATA + HOLE, 'z', DATA);
    struct digest_stream *s = digest_stream_new();
    CU_ASSERT_PTR_NOT_NULL_FATAL(s);
    digest_stream_add(s, bytes, DATA);
    digest_stream_add_zeros(s, HOLE);
    digest_stream_add_zeros(s, 0);
    digest_stream_add(s, bytes + DATA + HOLE, DATA);
    struct digest d = digest_stream_end(s), whole = digest_of(bytes, 2 * DATA + HOLE);
    CU_ASSERT(digest_equal(&d, &whole));
    digest_stream_free(s);
    free(bytes);
}

static void test_zeros(void)
{
    static const struct {
        size_t len;
        const char *hex;
    } cases[] = {
        {0, "99aa06d3014798d86001c324468d497f"},
        {1, "a6cd5e9392000f6ac44bdff4074eecdb"},
        {4096, "3ee8dc4f9e7ee49593d76fe148c689ba"},
        {65537, "f897c2780d6751d68315ad333792a23c"},
        {LEAF_BYTES - 1, "9ed1913bcb5ba2c3c9abdbb2d908948e"},
        {LEAF_BYTES, "b6ef17a3448492b6918780b90550bf34"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct digest d = digest_zeros(cases[i].len);
        CU_ASSERT(hex_equal(d.bytes, sizeof(d.bytes), cases[i].hex));
    }
}

static void test_file(void)
{
    uint8_t *bytes = pattern_new(LEAF_BYTES);
    struct digest leaves[3] = {digest_of(bytes, LEAF_BYTES), digest_zeros(LEAF_BYTES), digest_of("tail", 4)};
    free(bytes);
    struct digest file = digest_file(leaves, 2 * LEAF_BYTES + 4);
    CU_ASSERT(hex_equal(file.bytes, sizeof(file.bytes), "5adb569e12b8f1b5ba2b5503ced696a4"));
    struct digest longer = digest_file(leaves, 2 * LEAF_BYTES + 5); // same leaves, another size
    CU_ASSERT_FALSE(digest_equal(&file, &longer));
    struct digest empty = digest_file(NULL, 0);
    CU_ASSERT(hex_equal(empty.bytes, sizeof(empty.bytes), "2c0a8a99dc147d5445c3b49d035665b2"));
}

void suite_digest(void)
{
    CU_pSuite suite = CU_add_suite("digest", NULL, NULL);
    CU_add_test(suite, "known_answers", test_known_answers);
    CU_add_test(suite, "nothing_may_be_null", test_nothing_may_be_null);
    CU_add_test(suite, "equal", test_equal);
    CU_add_test(suite, "hex_keeps_its_width", test_hex_keeps_its_width);
    CU_add_test(suite, "check_after", test_check_after);
    CU_add_test(suite, "stream_in_pieces", test_stream_in_pieces);
    CU_add_test(suite, "stream_is_new_without_reset", test_stream_is_new_without_reset);
    CU_add_test(suite, "stream_with_a_hole", test_stream_with_a_hole);
    CU_add_test(suite, "zeros", test_zeros);
    CU_add_test(suite, "file", test_file);
}
