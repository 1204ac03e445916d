#include "proto/wire.h"

#include <errno.h>
#include <string.h>

#include <CUnit/CUnit.h>

#include "tests/unit/hex.h"

// One of everything, 1 + 2 + 4 + 8 + 3 + (4 + 2) + 2 bytes.
static const char everything[] = "01"
                                 "2301"
                                 "67452301"
                                 "efcdab8967452301"
                                 "616263"
                                 "020000007879"
                                 "0000";

enum { EVERYTHING_BYTES = 26 };

static void put_everything(struct wire_writer *w)
{
    wire_put_u8(w, 0x01);
    wire_put_u16(w, 0x0123);
    wire_put_u32(w, 0x01234567);
    wire_put_u64(w, 0x0123456789abcdef);
    wire_put_bytes(w, "abc", 3);
    wire_put_blob(w, "xy", 2);
    wire_put_zeros(w, 2);
}

static void test_layout(void)
{
    uint8_t buf[EVERYTHING_BYTES];
    struct wire_writer w;
    memset(buf, 0xff, sizeof(buf));
    wire_writer_init(&w, buf, sizeof(buf));
    put_everything(&w);
    CU_ASSERT_EQUAL(wire_written(&w), EVERYTHING_BYTES);
    CU_ASSERT(hex_equal(buf, sizeof(buf), everything));
}

static void test_read_back(void)
{
    uint8_t buf[EVERYTHING_BYTES], abc[3];
    size_t len;
    struct wire_reader r;
    wire_reader_init(&r, buf, hex_bytes(everything, buf, sizeof(buf)));
    CU_ASSERT_EQUAL(wire_get_u8(&r), 0x01);
    CU_ASSERT_EQUAL(wire_get_u16(&r), 0x0123);
    CU_ASSERT_EQUAL(wire_get_u32(&r), 0x01234567);
    CU_ASSERT_EQUAL(wire_get_u64(&r), 0x0123456789abcdef);
    wire_get_bytes(&r, abc, sizeof(abc));
    CU_ASSERT_EQUAL(memcmp(abc, "abc", 3), 0);
    CU_ASSERT_PTR_EQUAL(wire_get_blob(&r, 2, &len), buf + 22);
    CU_ASSERT_EQUAL(len, 2);
    CU_ASSERT_EQUAL(wire_done(&r), -EPROTO); // two bytes are left over
    CU_ASSERT_EQUAL(wire_left(&r), 2);
    CU_ASSERT_PTR_EQUAL(wire_get_span(&r, 2), buf + 24);
    CU_ASSERT_EQUAL(wire_done(&r), 0);
}

static void test_writer_full_at_every_length(void)
{
    for (size_t len = 0; len < EVERYTHING_BYTES; len++) {
        uint8_t buf[EVERYTHING_BYTES + 1];
        struct wire_writer w;
        memset(buf, 0xee, sizeof(buf));
        wire_writer_init(&w, buf, len);
        put_everything(&w);
        CU_ASSERT_EQUAL(wire_written(&w), -EMSGSIZE);
        CU_ASSERT_EQUAL(buf[len], 0xee);
    }
}

static void test_writer_stays_full(void)
{
    uint8_t buf[3] = {9, 9, 9};
    struct wire_writer w;
    wire_writer_init(&w, buf, sizeof(buf));
    wire_put_u32(&w, 1);
    wire_put_u8(&w, 1); // would fit
    CU_ASSERT_EQUAL(wire_written(&w), -EMSGSIZE);
    CU_ASSERT(hex_equal(buf, sizeof(buf), "090909"));
}

static void test_nothing(void)
{
    struct wire_writer w;
    wire_writer_init(&w, NULL, 0);
    wire_put_bytes(&w, NULL, 0);
    wire_put_zeros(&w, 0);
    CU_ASSERT_EQUAL(wire_written(&w), 0);
    wire_put_u8(&w, 0);
    CU_ASSERT_EQUAL(wire_written(&w), -EMSGSIZE);

    struct wire_reader r;
    wire_reader_init(&r, NULL, 0);
    wire_get_bytes(&r, NULL, 0);
    CU_ASSERT_PTR_NOT_NULL(wire_get_span(&r, 0));
    CU_ASSERT_EQUAL(wire_done(&r), 0);
    CU_ASSERT_EQUAL(wire_get_u8(&r), 0);
    CU_ASSERT_EQUAL(wire_done(&r), -EPROTO);
}

static void test_reader_cut_at_every_length(void)
{
    uint8_t buf[EVERYTHING_BYTES];
    hex_bytes(everything, buf, sizeof(buf));
    for (size_t cut = 0; cut < sizeof(buf); cut++) {
        struct wire_reader r;
        size_t len;
        wire_reader_init(&r, buf, cut);
        wire_get_u8(&r);
        wire_get_u16(&r);
        wire_get_u32(&r);
        wire_get_u64(&r);
        wire_get_span(&r, 3);
        wire_get_blob(&r, 16, &len);
        wire_get_u16(&r);
        CU_ASSERT(r.bad);
        CU_ASSERT_EQUAL(wire_done(&r), -EPROTO);
    }
}

static void test_reader_stays_bad(void)
{
    static const uint8_t buf[8] = {1, 1, 1, 1, 1, 1, 1, 1};
    struct wire_reader r;
    size_t len = 77;
    uint8_t out[2] = {5, 5};
    wire_reader_init(&r, buf, sizeof(buf));
    wire_fail(&r);
    CU_ASSERT_EQUAL(wire_get_u8(&r), 0);
    CU_ASSERT_EQUAL(wire_get_u64(&r), 0);
    CU_ASSERT_PTR_NULL(wire_get_span(&r, 1));
    CU_ASSERT_PTR_NULL(wire_get_blob(&r, 8, &len));
    CU_ASSERT_EQUAL(len, 0);
    wire_get_bytes(&r, out, sizeof(out));
    CU_ASSERT(hex_equal(out, sizeof(out), "0000"));
    CU_ASSERT_EQUAL(wire_left(&r), sizeof(buf));
    CU_ASSERT_EQUAL(wire_done(&r), -EPROTO);
}

static void test_blob_limits(void)
{
    static const struct {
        const char *hex;
        size_t max, len;
        bool good;
    } cases[] = {
        {"00000000", 0, 0, true},      {"0100000061", 1, 1, true},      {"0100000061", 0, 0, false},
        {"030000006162", 9, 0, false}, {"ffffffff6162", 9, 0, false},   {"ffffffff", SIZE_MAX, 0, false},
        {"0000", 9, 0, false},         {"02000000616263", 9, 2, false}, // one byte is left over
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        uint8_t buf[16];
        size_t len;
        struct wire_reader r;
        wire_reader_init(&r, buf, hex_bytes(cases[i].hex, buf, sizeof(buf)));
        const uint8_t *blob = wire_get_blob(&r, cases[i].max, &len);
        CU_ASSERT_EQUAL(len, cases[i].len);
        CU_ASSERT_EQUAL(blob != NULL, cases[i].good || cases[i].len > 0);
        CU_ASSERT_EQUAL(wire_done(&r), cases[i].good ? 0 : -EPROTO);
    }
}

static void test_blob_too_long_for_its_length(void)
{
    uint8_t buf[8];
    struct wire_writer w;
    wire_writer_init(&w, buf, sizeof(buf));
    wire_put_blob(&w, buf, (size_t)UINT32_MAX + 1);
    CU_ASSERT_EQUAL(wire_written(&w), -EMSGSIZE);
}

void suite_wire(void)
{
    CU_pSuite suite = CU_add_suite("wire", NULL, NULL);
    CU_add_test(suite, "layout", test_layout);
    CU_add_test(suite, "read_back", test_read_back);
    CU_add_test(suite, "writer_full_at_every_length", test_writer_full_at_every_length);
    CU_add_test(suite, "writer_stays_full", test_writer_stays_full);
    CU_add_test(suite, "nothing", test_nothing);
    CU_add_test(suite, "reader_cut_at_every_length", test_reader_cut_at_every_length);
    CU_add_test(suite, "reader_stays_bad", test_reader_stays_bad);
    CU_add_test(suite, "blob_limits", test_blob_limits);
    CU_add_test(suite, "blob_too_long_for_its_length", test_blob_too_long_for_its_length);
}
