#include "proto/seal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <CUnit/CUnit.h>

#include "tests/unit/hex.h"

static struct secret secret_of(const char *hex)
{
    struct secret s = {{0}};
    hex_bytes(hex, s.bytes, sizeof(s.bytes));
    return s;
}

static struct secret counting_secret(void)
{
    struct secret s;
    count_up(s.bytes, sizeof(s.bytes), 0);
    return s;
}

static struct seal *new_seal(const struct secret *key)
{
    struct seal *s = NULL;
    CU_ASSERT_EQUAL_FATAL(seal_new(key, &s), 0);
    CU_ASSERT_PTR_NOT_NULL_FATAL(s);
    return s;
}

// HMAC pads a shorter key with zeros, so that RFC 4231's keys of up to 32 bytes can be used as they are.
static void test_proof_rfc4231(void)
{
    static const struct {
        const char *key, *data, *mac;
    } cases[] = {
        {"0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b", "Hi There",
         "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"},
        {"4a656665", "what do ya want for nothing?",
         "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct secret key = secret_of(cases[i].key);
        uint8_t mac[PROOF_BYTES];
        CU_ASSERT_EQUAL(seal_proof(&key, cases[i].data, strlen(cases[i].data), mac), 0);
        CU_ASSERT(hex_equal(mac, sizeof(mac), cases[i].mac));
    }
}

// The first block of RFC 5869's expand step is an HMAC under the pseudo-random key, of 32 bytes in all its
// cases.
static void test_expand_rfc5869(void)
{
    static const struct {
        const char *prk, *info_and_1, *okm;
    } cases[] = {
        {"077709362c2e32df0ddc3f0dc47bba6390b6c73bb50f9c3122ec844ad7c2b3e5", "f0f1f2f3f4f5f6f7f8f901",
         "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf"},
        {"19ef24a32c717b167f33a91d6f648bdf96596776afdb6377ac434c1c293ccb04", "01",
         "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct secret prk = secret_of(cases[i].prk);
        uint8_t info[16], okm[PROOF_BYTES];
        size_t len = hex_bytes(cases[i].info_and_1, info, sizeof(info));
        CU_ASSERT_EQUAL(seal_proof(&prk, info, len, okm), 0);
        CU_ASSERT(hex_equal(okm, sizeof(okm), cases[i].okm));
    }
}

// RFC 5869 in terms of the HMAC that the two tests above hold against their RFCs.
static void test_derive_is_extract_and_expand(void)
{
    struct secret key = counting_secret(), salt, prk, derived;
    count_up(salt.bytes, sizeof(salt.bytes), 0x80);
    static const char info[] = "some info\x01";
    uint8_t okm[PROOF_BYTES];
    CU_ASSERT_EQUAL(seal_proof(&salt, key.bytes, sizeof(key.bytes), prk.bytes), 0);
    CU_ASSERT_EQUAL(seal_proof(&prk, info, sizeof(info) - 1, okm), 0);
    CU_ASSERT_EQUAL(seal_derive(&key, salt.bytes, sizeof(salt.bytes), info, sizeof(info) - 2, &derived), 0);
    CU_ASSERT_EQUAL(memcmp(derived.bytes, okm, sizeof(okm)), 0);

    memset(salt.bytes, 0, sizeof(salt.bytes)); // no salt is a salt of zeros
    CU_ASSERT_EQUAL(seal_proof(&salt, key.bytes, sizeof(key.bytes), prk.bytes), 0);
    CU_ASSERT_EQUAL(seal_proof(&prk, "\x01", 1, okm), 0);
    CU_ASSERT_EQUAL(seal_derive(&key, NULL, 0, NULL, 0, &derived), 0);
    CU_ASSERT_EQUAL(memcmp(derived.bytes, okm, sizeof(okm)), 0);
}

// HKDF with and without salt, by python3-cryptography. Secret: 00 01 .. 1f.
static void test_derive_known_answers(void)
{
    uint8_t salt[64];
    count_up(salt, sizeof(salt), 0x40);
    static const char info[] = "penstock key dial\x03";
    struct secret key = counting_secret(), derived;
    CU_ASSERT_EQUAL(seal_derive(&key, salt, sizeof(salt), info, sizeof(info) - 1, &derived), 0);
    CU_ASSERT(hex_equal(derived.bytes, SECRET_BYTES,
                        "c2fef594d690b0a81364ffd94660d1a5cee7d845937132c0094f163773edf5ff"));
    CU_ASSERT_EQUAL(seal_derive(&key, "", 0, "penstock proof", 14, &derived), 0);
    CU_ASSERT(hex_equal(derived.bytes, SECRET_BYTES,
                        "5588c24fd066b0eeaae6f3bd2942767d679425744a7c16be4da0fa231599dd6f"));
}

static void test_proof_equal(void)
{
    uint8_t a[PROOF_BYTES], b[PROOF_BYTES];
    count_up(a, sizeof(a), 7);
    for (size_t i = 0; i < sizeof(a); i++) {
        memcpy(b, a, sizeof(a));
        CU_ASSERT(seal_proof_equal(a, b));
        b[i] ^= 0x80;
        CU_ASSERT_FALSE(seal_proof_equal(a, b));
    }
}

static void test_wipe(void)
{
    uint8_t bytes[4] = {1, 2, 3, 4};
    seal_wipe(bytes, 3);
    CU_ASSERT(hex_equal(bytes, sizeof(bytes), "00000004"));
}

// AES-256-GCM by python3-cryptography; on both sides of a change of keys, and far beyond.
static const struct {
    uint64_t n;
    const char *sealed; // with the tag behind
} messages[] = {
    {0, "da28881cc0687799ae6c09e7d884a44bdd4d6aa2533762b314"},
    {1, "3e103e64d4bdbc2e71be271e58e3e0504324496f8baead5424"},
    {FRAMES_PER_KEY - 1, "6f23e42be6d9d85b4377bde78da5f2c590e664a8868c78beee"},
    {FRAMES_PER_KEY, "594d3500e6deb0d9a04d21f8f1b5fa3ace3627140322c04363"},
    {UINT64_C(1) << 40, "6e2b7c206609880df590d433eac80cd72f68930fae729a4f64"},
};

static const char bulk[] = "bulk data";

enum { BULK_BYTES = sizeof(bulk) - 1 };

static void test_close_known_answers(void)
{
    struct secret key = counting_secret();
    struct seal *s = new_seal(&key);
    for (size_t i = 0; i < ARRAY_LEN(messages); i++) {
        uint8_t buf[BULK_BYTES + FRAME_TAG_BYTES];
        memcpy(buf, bulk, BULK_BYTES);
        CU_ASSERT_EQUAL(seal_close(s, messages[i].n, "head", 4, buf, BULK_BYTES, buf + BULK_BYTES), 0);
        CU_ASSERT(hex_equal(buf, sizeof(buf), messages[i].sealed));
    }
    seal_free(s);
    seal_free(NULL);
}

static int open_message(struct seal *s, size_t i, uint64_t n, uint8_t buf[BULK_BYTES])
{
    uint8_t sealed[BULK_BYTES + FRAME_TAG_BYTES];
    hex_bytes(messages[i].sealed, sealed, sizeof(sealed));
    memcpy(buf, sealed, BULK_BYTES);
    return seal_open(s, n, "head", 4, buf, BULK_BYTES, sealed + BULK_BYTES);
}

static void test_open_in_any_order(void)
{
    static const size_t order[] = {4, 0, 3, 2, 1, 2, 0}; // changes the key back and forth, opens again
    struct secret key = counting_secret();
    struct seal *s = new_seal(&key);
    for (size_t i = 0; i < ARRAY_LEN(order); i++) {
        uint8_t buf[BULK_BYTES];
        CU_ASSERT_EQUAL(open_message(s, order[i], messages[order[i]].n, buf), 0);
        CU_ASSERT_EQUAL(memcmp(buf, bulk, BULK_BYTES), 0);
    }
    seal_free(s);
}

static void test_open_under_another_number(void)
{
    struct secret key = counting_secret();
    struct seal *s = new_seal(&key);
    uint8_t buf[BULK_BYTES];
    CU_ASSERT_EQUAL(open_message(s, 0, 1, buf), -EBADMSG);
    CU_ASSERT_EQUAL(open_message(s, 2, FRAMES_PER_KEY, buf), -EBADMSG);
    CU_ASSERT_EQUAL(open_message(s, 0, FRAMES_PER_KEY, buf), -EBADMSG); // same place under the next key
    CU_ASSERT_EQUAL(open_message(s, 0, UINT64_C(1) << 32, buf), -EBADMSG);
    CU_ASSERT_EQUAL(open_message(s, 0, 0, buf), 0); // a failure leaves nothing behind
    seal_free(s);
}

static void test_never_closes_twice(void)
{
    struct secret key = counting_secret();
    struct seal *s = new_seal(&key);
    uint8_t buf[BULK_BYTES] = {0}, before[BULK_BYTES], tag[FRAME_TAG_BYTES];
    CU_ASSERT_EQUAL(seal_close(s, 5, NULL, 0, buf, sizeof(buf), tag), 0);
    memcpy(before, buf, sizeof(buf));
    CU_ASSERT_EQUAL(seal_close(s, 5, NULL, 0, buf, sizeof(buf), tag), -EINVAL);
    CU_ASSERT_EQUAL(seal_close(s, 4, NULL, 0, buf, sizeof(buf), tag), -EINVAL);
    CU_ASSERT_EQUAL(memcmp(before, buf, sizeof(buf)), 0);
    CU_ASSERT_EQUAL(seal_close(s, 6, NULL, 0, buf, sizeof(buf), tag), 0);
    CU_ASSERT_EQUAL(seal_close(s, UINT64_MAX, NULL, 0, buf, sizeof(buf), tag), -EINVAL);
    seal_free(s);
}

static void test_every_bit_counts(void)
{
    struct secret key = counting_secret();
    struct seal *s = new_seal(&key);
    uint8_t head[] = {'h', 'e', 'a', 'd'};
    uint8_t frame[BULK_BYTES + FRAME_TAG_BYTES], changed[sizeof(frame)];
    hex_bytes(messages[0].sealed, frame, sizeof(frame));
    for (size_t bit = 0; bit < 8 * sizeof(frame); bit++) {
        memcpy(changed, frame, sizeof(frame));
        changed[bit / 8] ^= (uint8_t)(1 << bit % 8);
        CU_ASSERT_EQUAL(seal_open(s, 0, head, sizeof(head), changed, BULK_BYTES, changed + BULK_BYTES),
                        -EBADMSG);
    }
    for (size_t bit = 0; bit < 8 * sizeof(head); bit++) {
        memcpy(changed, frame, sizeof(frame));
        head[bit / 8] ^= (uint8_t)(1 << bit % 8);
        CU_ASSERT_EQUAL(seal_open(s, 0, head, sizeof(head), changed, BULK_BYTES, changed + BULK_BYTES),
                        -EBADMSG);
        head[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    memcpy(changed, frame, sizeof(frame));
    CU_ASSERT_EQUAL(seal_open(s, 0, head, sizeof(head) - 1, changed, BULK_BYTES, changed + BULK_BYTES),
                    -EBADMSG);
    memcpy(changed, frame, sizeof(frame));
    CU_ASSERT_EQUAL(seal_open(s, 0, head, sizeof(head), changed, BULK_BYTES - 1, changed + BULK_BYTES),
                    -EBADMSG);
    seal_free(s);
}

static void test_another_key(void)
{
    struct secret key = counting_secret();
    key.bytes[31] ^= 1;
    struct seal *s = new_seal(&key);
    uint8_t buf[BULK_BYTES];
    CU_ASSERT_EQUAL(open_message(s, 0, 0, buf), -EBADMSG);
    seal_free(s);
}

static void test_head_only(void)
{
    struct secret key = counting_secret();
    struct seal *s = new_seal(&key);
    uint8_t tag[FRAME_TAG_BYTES];
    CU_ASSERT_EQUAL(seal_close(s, 0, "head", 4, NULL, 0, tag), 0);
    CU_ASSERT_EQUAL(seal_open(s, 0, "head", 4, NULL, 0, tag), 0);
    CU_ASSERT_EQUAL(seal_open(s, 0, "Head", 4, NULL, 0, tag), -EBADMSG);
    seal_free(s);
}

static void test_largest_frame(void)
{
    size_t len = (size_t)STRIPE_BYTES_MAX + TRAILER_BYTES_MAX;
    uint8_t *buf = malloc(len), *before = malloc(len), tag[FRAME_TAG_BYTES];
    assert(buf != NULL && before != NULL);
    count_up(buf, len, 3);
    memcpy(before, buf, len);
    struct secret key = counting_secret();
    struct seal *s = new_seal(&key);
    CU_ASSERT_EQUAL(seal_close(s, 0, "head", 4, buf, len, tag), 0);
    CU_ASSERT_NOT_EQUAL(memcmp(before, buf, len), 0);
    CU_ASSERT_EQUAL(seal_open(s, 0, "head", 4, buf, len, tag), 0);
    CU_ASSERT_EQUAL(memcmp(before, buf, len), 0);
    CU_ASSERT_EQUAL(seal_open(s, 0, "head", 4, buf, (size_t)INT32_MAX + 1, tag), -EMSGSIZE);
    seal_free(s);
    free(buf);
    free(before);
}

void suite_seal(void)
{
    CU_pSuite suite = CU_add_suite("seal", NULL, NULL);
    CU_add_test(suite, "proof_rfc4231", test_proof_rfc4231);
    CU_add_test(suite, "expand_rfc5869", test_expand_rfc5869);
    CU_add_test(suite, "derive_is_extract_and_expand", test_derive_is_extract_and_expand);
    CU_add_test(suite, "derive_known_answers", test_derive_known_answers);
    CU_add_test(suite, "proof_equal", test_proof_equal);
    CU_add_test(suite, "wipe", test_wipe);
    CU_add_test(suite, "close_known_answers", test_close_known_answers);
    CU_add_test(suite, "open_in_any_order", test_open_in_any_order);
    CU_add_test(suite, "open_under_another_number", test_open_under_another_number);
    CU_add_test(suite, "never_closes_twice", test_never_closes_twice);
    CU_add_test(suite, "every_bit_counts", test_every_bit_counts);
    CU_add_test(suite, "another_key", test_another_key);
    CU_add_test(suite, "head_only", test_head_only);
    CU_add_test(suite, "largest_frame", test_largest_frame);
}
