#include "proto/frame.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <CUnit/CUnit.h>

#include "proto/seal.h"
#include "tests/unit/hex.h"

// A packed stripe of two files: "abc", and four bytes that could not be read (EIO). Made with python3-xxhash
// and python3-cryptography from PROTOCOL.md.
static const char head_hex[] =
    "50534b46010101000100000002000000030000000000000009000000000000000000000000000000"
    "07000000400000000200000000000000360de388f3292daf";
static const char trailer_hex[] = "79f8ac472a8a07d7dfd4a0f26f6e6f3d"
                                  "0000000003000500"
                                  "06b05ab6733a618578af5f94892f39502a33816ed7e0c373dbe563c737220b65"
                                  "fa8d2d6271cf5c6d";
static const char end_hex[] =
    "50534b46010201000100000000000000000000000000000000000000000000000100000000000000"
    "000000000000000000000000000000009094c9913c2fc45b";

enum { SMALL_TRAILER_BYTES = 64, SMALL_BODY_BYTES = 7 };

static const struct frame_head small_head = {
    .kind = FRAME_STRIPE,
    .session = 1,
    .segment = 3,
    .stripe = 9,
    .sequence = 0,
    .body_bytes = SMALL_BODY_BYTES,
    .trailer_bytes = SMALL_TRAILER_BYTES,
    .extents = 2,
    .leaves = 2,
    .sealed = true,
};

static const struct extent_status small_status[] = {{EXTENT_OK, 0}, {EXTENT_UNREADABLE, EIO}};

static void assert_heads_equal(const struct frame_head *a, const struct frame_head *b)
{
    CU_ASSERT_EQUAL(a->kind, b->kind);
    CU_ASSERT_EQUAL(a->session, b->session);
    CU_ASSERT_EQUAL(a->segment, b->segment);
    CU_ASSERT_EQUAL(a->stripe, b->stripe);
    CU_ASSERT_EQUAL(a->sequence, b->sequence);
    CU_ASSERT_EQUAL(a->body_bytes, b->body_bytes);
    CU_ASSERT_EQUAL(a->trailer_bytes, b->trailer_bytes);
    CU_ASSERT_EQUAL(a->extents, b->extents);
    CU_ASSERT_EQUAL(a->leaves, b->leaves);
    CU_ASSERT_EQUAL(a->sealed, b->sealed);
}

static void test_head_known_answers(void)
{
    static const struct frame_head end = {.kind = FRAME_END, .session = 1, .sequence = 1, .sealed = true};
    const struct {
        const struct frame_head *head;
        const char *hex;
    } cases[] = {{&small_head, head_hex}, {&end, end_hex}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        uint8_t bytes[FRAME_HEAD_BYTES];
        struct frame_head back;
        frame_head_encode(cases[i].head, bytes);
        CU_ASSERT(hex_equal(bytes, sizeof(bytes), cases[i].hex));
        CU_ASSERT_EQUAL(frame_head_decode(bytes, &back), 0);
        assert_heads_equal(&back, cases[i].head);
    }
}

static void test_head_extreme_values(void)
{
    struct frame_head head = small_head, back;
    head.session = UINT32_MAX;
    head.segment = head.stripe = head.sequence = UINT64_MAX;
    head.body_bytes = STRIPE_BYTES_MAX;
    head.extents = STRIPE_EXTENTS_MAX;
    head.leaves = STRIPE_LEAVES_MAX;
    head.trailer_bytes = TRAILER_BYTES_MAX;
    head.sealed = false;
    uint8_t bytes[FRAME_HEAD_BYTES];
    frame_head_encode(&head, bytes);
    CU_ASSERT_EQUAL(frame_head_decode(bytes, &back), 0);
    assert_heads_equal(&back, &head);
}

static void test_head_every_bit_counts(void)
{
    uint8_t bytes[FRAME_HEAD_BYTES];
    struct frame_head out, before;
    memset(&before, 0x5a, sizeof(before));
    memcpy(&out, &before, sizeof(out));
    hex_bytes(head_hex, bytes, sizeof(bytes));
    for (size_t bit = 0; bit < 8 * sizeof(bytes); bit++) {
        bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
        CU_ASSERT_EQUAL(frame_head_decode(bytes, &out), -EBADMSG);
        bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    CU_ASSERT_EQUAL(memcmp(&out, &before, sizeof(out)), 0);
}

// Decodes the small head with `len` bytes at `at` changed to `value` and a checksum that fits.
static int decode_changed(const char *hex, size_t at, uint64_t value, size_t len)
{
    uint8_t bytes[FRAME_HEAD_BYTES];
    struct frame_head out, before;
    memset(&before, 0x5a, sizeof(before));
    memcpy(&out, &before, sizeof(out));
    hex_bytes(hex, bytes, sizeof(bytes));
    for (size_t i = 0; i < len; i++)
        bytes[at + i] = (uint8_t)(value >> (8 * i));
    uint64_t sum = digest_check64(bytes, 56);
    for (size_t i = 0; i < 8; i++)
        bytes[56 + i] = (uint8_t)(sum >> (8 * i));
    int ret = frame_head_decode(bytes, &out);
    CU_ASSERT_EQUAL(memcmp(&out, &before, sizeof(out)) == 0, ret < 0);
    return ret;
}

static void test_head_rules(void)
{
    static const struct {
        size_t at;
        uint64_t value;
        size_t len;
        int ret;
    } cases[] = {
        {8, 77, 4, 0}, // the session: shows that the change is taken
        {0, 0x464b5351, 4, -EBADMSG},
        {4, 0, 1, -EPROTO},
        {4, WIRE_VERSION + 1, 1, -EPROTO},
        {5, 0, 1, -EPROTO},
        {5, 3, 1, -EPROTO},
        {5, FRAME_END, 1, -EPROTO}, // with lengths
        {6, 0, 2, 0},
        {6, 2, 2, -EPROTO},
        {6, 0x8001, 2, -EPROTO},
        {12, 0, 4, -EPROTO},
        {12, 3, 4, -EPROTO}, // another trailer
        {12, STRIPE_EXTENTS_MAX + 1, 4, -EPROTO},
        {12, UINT32_MAX, 4, -EPROTO},
        {40, 2, 4, 0}, // one byte an extent
        {40, 1, 4, -EPROTO},
        {40, 0, 4, -EPROTO},
        {40, STRIPE_BYTES_MAX, 4, 0},
        {40, STRIPE_BYTES_MAX + 1, 4, -EMSGSIZE},
        {40, UINT32_MAX, 4, -EMSGSIZE},
        {44, SMALL_TRAILER_BYTES + 1, 4, -EPROTO},
        {44, SMALL_TRAILER_BYTES - 1, 4, -EPROTO},
        {44, 0, 4, -EPROTO},
        {44, TRAILER_BYTES_MAX + 1, 4, -EMSGSIZE},
        {48, 0, 4, -EPROTO},
        {48, 1, 4, -EPROTO},
        {48, STRIPE_LEAVES_MAX + 1, 4, -EPROTO},
        {48, UINT32_MAX, 4, -EPROTO},
        {52, 1, 4, -EPROTO},
        {52, 0x80000000, 4, -EPROTO},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        CU_ASSERT_EQUAL(decode_changed(head_hex, cases[i].at, cases[i].value, cases[i].len), cases[i].ret);
}

static void test_head_counts_over_their_limit(void)
{
    // With a trailer that fits the counts and its own limit.
    static const struct {
        uint32_t extents, leaves;
        int ret;
    } cases[] = {
        {STRIPE_EXTENTS_MAX, 1, 0},
        {STRIPE_EXTENTS_MAX + 1, 1, -EPROTO},
        {1, STRIPE_LEAVES_MAX, 0},
        {1, STRIPE_LEAVES_MAX + 1, -EPROTO},
        {0, 1, -EPROTO},
        {1, 0, -EPROTO},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct frame_head head = small_head, out;
        uint8_t bytes[FRAME_HEAD_BYTES];
        head.body_bytes = MIB;
        head.extents = cases[i].extents;
        head.leaves = cases[i].leaves;
        head.trailer_bytes = (uint32_t)trailer_bytes(head.extents, head.leaves);
        frame_head_encode(&head, bytes);
        CU_ASSERT_EQUAL(frame_head_decode(bytes, &out), cases[i].ret);
    }
}

static void test_end_rules(void)
{
    static const size_t zero_at[] = {12, 16, 24, 40, 44, 48, 52};
    CU_ASSERT_EQUAL(decode_changed(end_hex, 32, 1234, 8), 0);
    CU_ASSERT_EQUAL(decode_changed(end_hex, 5, 0, 1), -EPROTO);
    CU_ASSERT_EQUAL(decode_changed(end_hex, 5, 3, 1), -EPROTO);
    CU_ASSERT_EQUAL(decode_changed(end_hex, 5, FRAME_STRIPE, 1), -EPROTO);
    for (size_t i = 0; i < ARRAY_LEN(zero_at); i++)
        CU_ASSERT_EQUAL(decode_changed(end_hex, zero_at[i], 1, 4), -EPROTO);
}

static void test_trailer_known_answer(void)
{
    const struct digest leaves[] = {digest_of("abc", 3), digest_zeros(4)};
    uint8_t bytes[SMALL_TRAILER_BYTES];
    CU_ASSERT_EQUAL_FATAL(trailer_bytes(2, 2), sizeof(bytes));
    trailer_encode(small_status, 2, leaves, 2, bytes);
    CU_ASSERT(hex_equal(bytes, sizeof(bytes), trailer_hex));

    struct extent_status status[2];
    struct digest back[2];
    CU_ASSERT_EQUAL(trailer_decode(bytes, 2, 2, status, back), 0);
    for (size_t i = 0; i < 2; i++) {
        CU_ASSERT_EQUAL(status[i].state, small_status[i].state);
        CU_ASSERT_EQUAL(status[i].os, small_status[i].os);
        CU_ASSERT(digest_equal(&back[i], &leaves[i]));
    }
}

static void test_trailer_every_bit_counts(void)
{
    uint8_t bytes[SMALL_TRAILER_BYTES];
    struct extent_status status[2] = {{EXTENT_CHANGED, 7}, {EXTENT_CHANGED, 7}};
    struct digest leaves[2] = {{{1}}, {{2}}};
    hex_bytes(trailer_hex, bytes, sizeof(bytes));
    for (size_t bit = 0; bit < 8 * sizeof(bytes); bit++) {
        bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
        CU_ASSERT_EQUAL(trailer_decode(bytes, 2, 2, status, leaves), -EBADMSG);
        bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    for (size_t i = 0; i < 2; i++) {
        CU_ASSERT(status[i].state == EXTENT_CHANGED && status[i].os == 7);
        CU_ASSERT_EQUAL(leaves[i].bytes[0], i + 1);
    }
}

static void trailer_sum(uint8_t *bytes, size_t len)
{
    uint64_t sum = digest_check64(bytes, len - 8);
    for (size_t i = 0; i < 8; i++)
        bytes[len - 8 + i] = (uint8_t)(sum >> (8 * i));
}

static void test_trailer_rules(void)
{
    // Changes behind a good checksum. The statuses lie at 16..19 and 20..23, the second has an errno.
    static const struct {
        size_t at;
        uint8_t value;
        int ret;
    } cases[] = {
        {16, EXTENT_CHANGED, 0},
        {16, EXTENT_UNREADABLE, 0},
        {16, EXTENT_UNREADABLE + 1, -EPROTO},
        {16, 0xff, -EPROTO},
        {17, 1, -EPROTO},
        {18, 1, -EPROTO}, // an errno of what is good
        {20, EXTENT_CHANGED, -EPROTO},
        {20, EXTENT_OK, -EPROTO},
        {21, 0x80, -EPROTO},
        {0, 0, -EBADMSG},  // the stripe digest
        {24, 0, -EBADMSG}, // the first leaf
        {55, 0, -EBADMSG}, // the last one
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        uint8_t bytes[SMALL_TRAILER_BYTES];
        struct extent_status status[2] = {{EXTENT_VANISHED, 0}, {EXTENT_VANISHED, 0}};
        struct digest leaves[2] = {{{1}}, {{2}}};
        hex_bytes(trailer_hex, bytes, sizeof(bytes));
        bytes[cases[i].at] = cases[i].value;
        trailer_sum(bytes, sizeof(bytes));
        CU_ASSERT_EQUAL(trailer_decode(bytes, 2, 2, status, leaves), cases[i].ret);
        CU_ASSERT_EQUAL(status[0].state, cases[i].ret == 0 ? cases[i].value : EXTENT_VANISHED);
        CU_ASSERT_EQUAL(leaves[1].bytes[0], cases[i].ret == 0 ? 0x2a : 2);
    }
}

static void test_largest_trailer(void)
{
    size_t len = trailer_bytes(STRIPE_EXTENTS_MAX, STRIPE_LEAVES_MAX);
    CU_ASSERT_EQUAL(len, TRAILER_BYTES_MAX);
    struct extent_status *status = calloc(STRIPE_EXTENTS_MAX, sizeof(*status));
    struct digest *leaves = calloc(STRIPE_LEAVES_MAX, sizeof(*leaves));
    uint8_t *bytes = malloc(len), *again = malloc(len);
    assert(status != NULL && leaves != NULL && bytes != NULL && again != NULL);
    for (uint32_t i = 0; i < STRIPE_EXTENTS_MAX; i++)
        status[i] = (struct extent_status){EXTENT_UNREADABLE, (uint16_t)(i + 1)};
    trailer_encode(status, STRIPE_EXTENTS_MAX, leaves, STRIPE_LEAVES_MAX, bytes);
    memset(status, 0, STRIPE_EXTENTS_MAX * sizeof(*status));
    CU_ASSERT_EQUAL(trailer_decode(bytes, STRIPE_EXTENTS_MAX, STRIPE_LEAVES_MAX, status, leaves), 0);
    CU_ASSERT_EQUAL(status[STRIPE_EXTENTS_MAX - 1].os, STRIPE_EXTENTS_MAX);
    trailer_encode(status, STRIPE_EXTENTS_MAX, leaves, STRIPE_LEAVES_MAX, again);
    CU_ASSERT_EQUAL(memcmp(bytes, again, len), 0);
    free(again);
    free(bytes);
    free(leaves);
    free(status);
}

// Whole frames, sealed under the key of the dialler of the greeting's test vector.
static void test_sealed_frames(void)
{
    static const struct {
        uint64_t sequence;
        const char *sealed, *tag;
    } cases[] = {
        {0,
         "daba765ed70b672577172860286f68d07741356e30d2960ac2bd8f5bd602fd09b5442fcea2d884188f087a3b3cede118"
         "adc5ac7f22f30ca5203fb4000b9bcf6e6b084c1fcc64ff",
         "d3e9bfb85f6b3c24c4e20523e1424e52"},
        {FRAMES_PER_KEY,
         "4fbdddcab1fd2e89a1f19cde01ae70db2f220a6cef731ef03eaa28cba8c2c521aeaab11560536859e9e76feb90e4ba59"
         "23b08145e64de2617d5f7ac2a9dffe8fc94182bc27599b",
         "e47a7dcd133144ecfba87480e25eaa72"},
    };
    struct secret key;
    hex_bytes("c2fef594d690b0a81364ffd94660d1a5cee7d845937132c0094f163773edf5ff", key.bytes,
              sizeof(key.bytes));
    struct seal *s = NULL;
    CU_ASSERT_EQUAL_FATAL(seal_new(&key, &s), 0);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct frame_head head = small_head;
        head.sequence = cases[i].sequence;
        uint8_t head_bytes[FRAME_HEAD_BYTES], slot[SMALL_BODY_BYTES + SMALL_TRAILER_BYTES],
            tag[FRAME_TAG_BYTES];
        frame_head_encode(&head, head_bytes);
        memcpy(slot, "abc\0\0\0\0", SMALL_BODY_BYTES);
        hex_bytes(trailer_hex, slot + SMALL_BODY_BYTES, SMALL_TRAILER_BYTES);
        CU_ASSERT_EQUAL(seal_close(s, head.sequence, head_bytes, sizeof(head_bytes), slot, sizeof(slot), tag),
                        0);
        CU_ASSERT(hex_equal(slot, sizeof(slot), cases[i].sealed));
        CU_ASSERT(hex_equal(tag, sizeof(tag), cases[i].tag));
    }
    seal_free(s);
}

void suite_frame(void)
{
    CU_pSuite suite = CU_add_suite("frame", NULL, NULL);
    CU_add_test(suite, "head_known_answers", test_head_known_answers);
    CU_add_test(suite, "head_extreme_values", test_head_extreme_values);
    CU_add_test(suite, "head_every_bit_counts", test_head_every_bit_counts);
    CU_add_test(suite, "head_rules", test_head_rules);
    CU_add_test(suite, "head_counts_over_their_limit", test_head_counts_over_their_limit);
    CU_add_test(suite, "end_rules", test_end_rules);
    CU_add_test(suite, "trailer_known_answer", test_trailer_known_answer);
    CU_add_test(suite, "trailer_every_bit_counts", test_trailer_every_bit_counts);
    CU_add_test(suite, "trailer_rules", test_trailer_rules);
    CU_add_test(suite, "largest_trailer", test_largest_trailer);
    CU_add_test(suite, "sealed_frames", test_sealed_frames);
}
