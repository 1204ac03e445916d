// The results of a comparison: bytes, and words.
#include "proto/check.h"

#include <errno.h>
#include <string.h>

#include <CUnit/CUnit.h>

#include "tests/unit/hex.h"

static void test_layout(void)
{
    static const struct {
        struct check_result result;
        const char *hex;
    } rows[] = {
        {{.verdict = CHECK_RIGHT}, "000000000000000000000000"},
        {{.verdict = CHECK_UNPROVED}, "010000000000000000000000"},
        {{.verdict = CHECK_WRONG, .difference = DIFFERS_PATH}, "020100000000000000000000"},
        {{.verdict = CHECK_WRONG, .difference = DIFFERS_TYPE, .found = ENTRY_SYMLINK},
         "020200000300000000000000"},
        {{.verdict = CHECK_WRONG, .difference = DIFFERS_TYPE}, "020200000000000000000000"},
        {{.verdict = CHECK_WRONG, .difference = DIFFERS_SIZE, .found = INT64_MAX},
         "02030000ffffffffffffff7f"},
        {{.verdict = CHECK_WRONG, .difference = DIFFERS_TIME}, "020400000000000000000000"},
        {{.verdict = CHECK_WRONG, .difference = DIFFERS_CONTENT}, "020500000000000000000000"},
        {{.verdict = CHECK_WRONG, .difference = DIFFERS_MODE, .found = 07777}, "02060000ff0f000000000000"},
        {{.verdict = CHECK_MISSING}, "030000000000000000000000"},
        {{.verdict = CHECK_UNREADABLE, .os = 0x105}, "040005010000000000000000"},
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        uint8_t buf[2 * CHECK_RESULT_BYTES];
        struct wire_writer w;
        struct wire_reader r;
        struct check_result back;
        wire_writer_init(&w, buf, sizeof buf);
        check_put(&w, &rows[i].result);
        CU_ASSERT_EQUAL_FATAL(wire_written(&w), CHECK_RESULT_BYTES);
        CU_ASSERT(hex_equal(buf, CHECK_RESULT_BYTES, rows[i].hex));
        wire_reader_init(&r, buf, CHECK_RESULT_BYTES);
        CU_ASSERT_EQUAL_FATAL(check_get(&r, &back), 0);
        CU_ASSERT(back.verdict == rows[i].result.verdict && back.difference == rows[i].result.difference &&
                  back.os == rows[i].result.os && back.found == rows[i].result.found);
        CU_ASSERT_EQUAL(wire_done(&r), 0);
    }
}

// What no reader finds, and bytes that end too soon: refused, and the output is not touched.
static void test_impossible(void)
{
    static const char *const rows[] = {
        "",
        "00000000000000000000",     // cut off
        "050000000000000000000000", // no such verdict
        "000100000000000000000000", // right, but different
        "000001000000000000000000", // right, with an errno
        "000000000100000000000000", // right, but found something
        "030500000000000000000000", // missing, but different
        "020000000000000000000000", // wrong, but not different
        "020700000000000000000000", // no such difference
        "020501000000000000000000",
        "020500000100000000000000",
        "020400000100000000000000", // a time has nothing that is found
        "020200000400000000000000", // no such type
        "020300000000000000000080", // no such size
        "020600000010000000000000", // no such mode
        "040000000000000000000000", // unreadable for no reason
        "040000100000000000000000", // no such errno
        "040105000000000000000000",
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        uint8_t buf[CHECK_RESULT_BYTES];
        struct wire_reader r;
        struct check_result back = {.found = 77};
        wire_reader_init(&r, buf, hex_bytes(rows[i], buf, sizeof buf));
        CU_ASSERT_EQUAL(check_get(&r, &back), -EPROTO);
        CU_ASSERT_EQUAL(back.found, 77);
    }
}

static void test_words(void)
{
    static const struct {
        struct check_result result;
        enum entry_type type;
        const char *text;
    } rows[] = {
        {{.verdict = CHECK_MISSING}, ENTRY_FILE, "is missing"},
        {{.verdict = CHECK_WRONG, .difference = DIFFERS_TYPE, .found = ENTRY_DIR},
         ENTRY_FILE,
         "is a directory, not a file"},
        {{.verdict = CHECK_WRONG, .difference = DIFFERS_TYPE},
         ENTRY_SYMLINK,
         "is something else, not a link"},
        {{.verdict = CHECK_WRONG, .difference = DIFFERS_SIZE, .found = 5}, ENTRY_FILE, "has 5 bytes, not 9"},
        {{.verdict = CHECK_WRONG, .difference = DIFFERS_MODE, .found = 02600},
         ENTRY_FILE,
         "has mode 0600, not 0640"},
        {{.verdict = CHECK_WRONG, .difference = DIFFERS_CONTENT}, ENTRY_FILE, "other content"},
        {{.verdict = CHECK_WRONG, .difference = DIFFERS_CONTENT}, ENTRY_SYMLINK, "points elsewhere"},
        {{.verdict = CHECK_WRONG, .difference = DIFFERS_TIME}, ENTRY_FILE, "modification time"},
        {{.verdict = CHECK_WRONG, .difference = DIFFERS_PATH}, ENTRY_FILE, "no directory any more"},
    };
    struct receipt_entry e = {.size = 9, .mode = 04640, .path = blob_text("a\nb")};
    struct check_result unreadable = {.verdict = CHECK_UNREADABLE, .os = EACCES};
    struct err err;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        e.type = rows[i].type;
        check_err(&rows[i].result, &e, &err);
        CU_ASSERT(err.class == ERR_DIGEST && err.os == 0 && err.node[0] == '\0');
        CU_ASSERT_STRING_EQUAL(err.path, "a\\x0ab");
        CU_ASSERT_PTR_NOT_NULL(strstr(err.text, rows[i].text));
    }
    check_err(&unreadable, &e, &err);
    CU_ASSERT(err.class == ERR_ENTRY && err.os == EACCES);
    CU_ASSERT_STRING_EQUAL(err.path, "a\\x0ab");
}

// The messages of PROTOCOL.md.
static void test_messages(void)
{
    static const char check_hex[] = "3b000000200037000000"
                                    "3300000002010100a001000002010000000000000500000000000000"
                                    "07000000a0a1a2a3a4a5a6a7a8a9aaabacadaeaf03000000612f62",
                      checked_hex[] = "18000000210000000000000000000c000000"
                                      "020300000101000000000000";
    struct receipt_entry e = {.type = ENTRY_FILE,
                              .outcome = RECEIPT_MOVED,
                              .proof = PROOF_WIRE,
                              .mode = 0640,
                              .size = 258,
                              .mtime = {.s = 5, .ns = 7},
                              .path = blob_text("a/b")};
    struct check_result result = {.verdict = CHECK_WRONG, .difference = DIFFERS_SIZE, .found = 257};
    uint8_t one[64], buf[128], wire[128];
    struct wire_writer w;
    count_up(e.digest.bytes, sizeof e.digest.bytes, 0xa0);
    int64_t len = receipt_entry_encode(&e, one, sizeof one);
    CU_ASSERT_FATAL(len > 0);
    wire_writer_init(&w, buf, sizeof buf);
    wire_put_blob(&w, one, (size_t)len);
    struct message m = {.type = MESSAGE_CHECK, .check = {.records = blob_of(buf, (size_t)wire_written(&w))}};
    len = message_encode(&m, wire, sizeof wire);
    CU_ASSERT(len > 0 && hex_equal(wire, (size_t)len, check_hex));
    wire_writer_init(&w, buf, sizeof buf);
    check_put(&w, &result);
    m = (struct message){.type = MESSAGE_CHECKED,
                         .checked = {.results = blob_of(buf, (size_t)wire_written(&w))}};
    len = message_encode(&m, wire, sizeof wire);
    CU_ASSERT(len > 0 && hex_equal(wire, (size_t)len, checked_hex));
}

void suite_check(void)
{
    CU_pSuite suite = CU_add_suite("check", NULL, NULL);
    CU_add_test(suite, "layout", test_layout);
    CU_add_test(suite, "impossible", test_impossible);
    CU_add_test(suite, "words", test_words);
    CU_add_test(suite, "messages", test_messages);
}
