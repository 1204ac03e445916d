#include "proto/err.h"

#include <errno.h>
#include <string.h>

#include <CUnit/CUnit.h>

#define BYTES(literal) literal, sizeof(literal) - 1

static void test_escape(void)
{
    static const struct {
        const char *in;
        size_t len;
        const char *out;
    } cases[] = {
        {BYTES(""), ""},
        {BYTES("plain name.txt"), "plain name.txt"},
        {BYTES("a\\b"), "a\\\\b"},
        {BYTES("\0"), "\\x00"},
        {BYTES("\t\n\r\x1b[31m"), "\\x09\\x0a\\x0d\\x1b[31m"},
        {BYTES("\x1f\x20\x7e\x7f"), "\\x1f ~\\x7f"},
        {BYTES("\xc2\x80\xc2\x9f"), "\\xc2\\x80\\xc2\\x9f"}, // C1
        {BYTES("\xc2\xa0"), "\xc2\xa0"},                     // the first character after C1
        {BYTES("\x80\x9b\xff\xfe"), "\\x80\\x9b\\xff\\xfe"}, // no first byte
        {BYTES("\xc0\xaf\xc1\xbf"), "\\xc0\\xaf\\xc1\\xbf"}, // '/' and DEL, overlong
        {BYTES("\xdf\xbf\xe0\xa0\x80"), "\xdf\xbf\xe0\xa0\x80"},
        {BYTES("\xe0\x9f\xbf"), "\\xe0\\x9f\\xbf"}, // overlong
        {BYTES("\xed\x9f\xbf\xee\x80\x80"), "\xed\x9f\xbf\xee\x80\x80"},
        {BYTES("\xed\xa0\x80"), "\\xed\\xa0\\x80"},          // a surrogate
        {BYTES("\xf0\x8f\xbf\xbf"), "\\xf0\\x8f\\xbf\\xbf"}, // overlong
        {BYTES("\xf0\x90\x80\x80\xf4\x8f\xbf\xbf"), "\xf0\x90\x80\x80\xf4\x8f\xbf\xbf"},
        {BYTES("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80"}, // above U+10FFFF
        {BYTES("\xf5\x80\x80\x80"), "\\xf5\\x80\\x80\\x80"},
        {BYTES("\xe2\x82"), "\\xe2\\x82"}, // a character that ends too early
        {"\xe2\x82\xac", 2, "\\xe2\\x82"}, // the rest lies beyond the end
        {BYTES("\xe2\x82x"), "\\xe2\\x82x"},
        {BYTES("\xf0\x9f\x98"), "\\xf0\\x9f\\x98"},
        {BYTES("\xf0\x9f\x98(\xe2\x82\xac"), "\\xf0\\x9f\\x98(\xe2\x82\xac"},
        {BYTES("caf\xc3\xa9 \xe6\x97\xa5\xe6\x9c\xac"), "caf\xc3\xa9 \xe6\x97\xa5\xe6\x9c\xac"},
        {BYTES("caf\xe9"), "caf\\xe9"}, // Latin-1
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char out[128];
        size_t len = err_escape(out, sizeof(out), cases[i].in, cases[i].len);
        CU_ASSERT_STRING_EQUAL(out, cases[i].out);
        CU_ASSERT_EQUAL(len, strlen(cases[i].out));
    }
}

static void test_escape_cuts_between_characters(void)
{
    // Lengths of what comes out for a, a backslash, U+20AC and 0x01, and so the only places for a cut.
    static const char in[] = "a\\\xe2\x82\xac\x01", whole[] = "a\\\\\xe2\x82\xac\\x01";
    static const size_t cuts[] = {0, 1, 1, 3, 3, 3, 6, 6, 6, 6, 10, 10};
    for (size_t room = 0; room < ARRAY_LEN(cuts); room++) {
        char out[16];
        memset(out, '#', sizeof(out));
        size_t len = err_escape(out, room + 1, in, sizeof(in) - 1);
        CU_ASSERT_EQUAL(len, cuts[room]);
        CU_ASSERT_EQUAL(memcmp(out, whole, len), 0);
        CU_ASSERT_EQUAL(out[len], '\0');
        CU_ASSERT_EQUAL(out[room + 1], '#');
    }
    char untouched = '#';
    CU_ASSERT_EQUAL(err_escape(&untouched, 0, "a", 1), 0);
    CU_ASSERT_EQUAL(untouched, '#');
}

static void test_classes(void)
{
    static const struct {
        enum err_class class;
        const char *name;
        enum err_action action;
        int exit;
    } cases[] = {
        {ERR_NONE, "none", ERR_FAIL_ENTRY, 0},
        {ERR_ENTRY, "entry", ERR_FAIL_ENTRY, 1},
        {ERR_USAGE, "usage", ERR_REFUSE, 2},
        {ERR_AUTH, "auth", ERR_REFUSE, 3},
        {ERR_STORAGE, "storage", ERR_STOP_JOB, 4},
        {ERR_INTERRUPTED, "interrupted", ERR_STOP_JOB, 5},
        {ERR_STREAM, "stream", ERR_RETRY_PATH, 6},
        {ERR_STRIPE, "stripe", ERR_RETRY_STRIPE, 7},
        {ERR_VANISHED, "vanished", ERR_FAIL_ENTRY, 8},
        {ERR_LOCKED, "locked", ERR_REFUSE, 9},
        {ERR_CLASS_COUNT, "protocol", ERR_STOP_JOB, 6},
        {(enum err_class) - 1, "protocol", ERR_STOP_JOB, 6},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        CU_ASSERT_STRING_EQUAL(err_class_name(cases[i].class), cases[i].name);
        CU_ASSERT_EQUAL(err_class_action(cases[i].class), cases[i].action);
        CU_ASSERT_EQUAL(err_class_exit(cases[i].class), cases[i].exit);
    }
    for (unsigned a = 0; a < ERR_CLASS_COUNT; a++) {
        for (unsigned b = 0; b < a; b++)
            CU_ASSERT_STRING_NOT_EQUAL(err_class_name(a), err_class_name(b));
    }
}

static void test_exit_worse(void)
{
    static const int order[] = {2, 5, 4, 6, 7, 9, 3, 1, 8, 99, 0};
    for (size_t a = 0; a < ARRAY_LEN(order); a++) {
        for (size_t b = 0; b < ARRAY_LEN(order); b++)
            CU_ASSERT_EQUAL(err_exit_worse(order[a], order[b]), order[a < b ? a : b]);
    }
}

static void test_set(void)
{
    struct err err;
    memset(&err, 0x55, sizeof(err));
    err_set(&err, ERR_ENTRY, EACCES, "open", BYTES("dir/\xff\n"), "at byte %d of\t%s", 12, "it");
    CU_ASSERT_EQUAL(err.class, ERR_ENTRY);
    CU_ASSERT_EQUAL(err.os, EACCES);
    CU_ASSERT_STRING_EQUAL(err.op, "open");
    CU_ASSERT_STRING_EQUAL(err.node, "");
    CU_ASSERT_STRING_EQUAL(err.path, "dir/\\xff\\x0a");
    CU_ASSERT_STRING_EQUAL(err.text, "at byte 12 of\\x09it");
    err_set(&err, ERR_NONE, 0, NULL, NULL, 0, NULL);
    CU_ASSERT_STRING_EQUAL(err.op, "");
    CU_ASSERT_STRING_EQUAL(err.path, "");
    CU_ASSERT_STRING_EQUAL(err.text, "");
}

static void test_set_keeps_the_end_of_a_long_path(void)
{
    struct err err;
    char path[PATH_BYTES_MAX];
    size_t room = sizeof(err.path) - 1;
    memset(path, 'a', sizeof(path));
    err_set(&err, ERR_ENTRY, 0, "open", path, room, NULL);
    CU_ASSERT_EQUAL(strlen(err.path), room);
    CU_ASSERT_EQUAL(err.path[0], 'a');
    err_set(&err, ERR_ENTRY, 0, "open", path, room + 1, NULL);
    CU_ASSERT_EQUAL(strlen(err.path), room);
    CU_ASSERT_EQUAL(memcmp(err.path, "...a", 4), 0);

    // Characters of three bytes: the room behind "..." is 1020, a multiple, then one less.
    for (size_t i = 0; i < sizeof(path); i++)
        path[i] = "\xe2\x82\xac"[i % 3];
    size_t len = sizeof(path) / 3 * 3;
    err_set(&err, ERR_ENTRY, 0, "open", path, len, NULL);
    CU_ASSERT_EQUAL(strlen(err.path), 3 + 1020);
    CU_ASSERT_EQUAL(memcmp(err.path, "...\xe2\x82\xac", 6), 0);
    path[len - 1] = '\\'; // the last character becomes two escaped bytes and a doubled backslash
    err_set(&err, ERR_ENTRY, 0, "open", path, len, NULL);
    CU_ASSERT_EQUAL(strlen(err.path), 3 + 336 * 3 + 10);
    CU_ASSERT_STRING_EQUAL(err.path + strlen(err.path) - 10, "\\xe2\\x82\\\\");
}

static void test_set_cuts_long_text(void)
{
    struct err err;
    char text[2 * TEXT_BYTES_MAX];
    for (size_t pad = 0; pad < 4; pad++) { // every place at which the end of the room can cut a character
        memset(text, 'x', pad);
        for (size_t i = pad; i < sizeof(text) - 1; i++)
            text[i] = "\xf0\x9f\x98\x80"[(i - pad) % 4];
        text[sizeof(text) - 1] = '\0';
        err_set(&err, ERR_ENTRY, 0, "open", NULL, 0, "%s", text);
        size_t expected = pad + (TEXT_BYTES_MAX - 1 - pad) / 4 * 4;
        CU_ASSERT_EQUAL(strlen(err.text), expected);
        CU_ASSERT_EQUAL(memcmp(err.text, text, expected), 0);
    }
}

static void test_line(void)
{
    static const struct {
        struct err err;
        const char *line;
    } cases[] = {
        {{.class = ERR_ENTRY, .os = EACCES, .op = "open", .node = "dtn1", .path = "a/b", .text = "twice"},
         "dtn1: open a/b: twice: Permission denied"},
        {{.os = ENOSPC, .op = "write", .path = "a\\x0a"}, "write a\\x0a: No space left on device"},
        {{.os = ENOSPC, .path = "a"}, "a: No space left on device"},
        {{.node = "dtn1", .path = "a"}, "dtn1: a"},
        {{.node = "dtn1", .text = "gone"}, "dtn1: gone"},
        {{.os = EIO}, "Input/output error"},
        {{.os = 99999, .op = "read"}, "read: error 99999"},
        {{.class = ERR_LOST}, "lost"},
        // A peer's fields that should have been escaped.
        {{.op = "op\n", .text = "\x1b[2J\xff\xc3\xa9"}, "op\\x0a: \\x1b[2J\\xff\xc3\xa9"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char buf[256];
        CU_ASSERT_PTR_EQUAL(err_line(&cases[i].err, buf, sizeof(buf)), buf);
        CU_ASSERT_STRING_EQUAL(buf, cases[i].line);
    }
}

static void test_line_in_any_room(void)
{
    struct err err = {.os = EIO, .op = "read", .node = "n\xc3\xb6", .path = "p\xe2\x82\xac", .text = "t"};
    char whole[64];
    err_line(&err, whole, sizeof(whole));
    for (size_t room = 1; room <= strlen(whole) + 1; room++) {
        char buf[64];
        memset(buf, '#', sizeof(buf));
        err_line(&err, buf, room);
        CU_ASSERT(strlen(buf) < room);
        CU_ASSERT_EQUAL(buf[room], '#');
        char again[64]; // what was cut still is valid UTF-8: escaping leaves it alone
        err_escape(again, sizeof(again), buf, strlen(buf));
        CU_ASSERT_STRING_EQUAL(buf, again);
    }
    char none = '#';
    CU_ASSERT_PTR_EQUAL(err_line(&err, &none, 0), &none);
    CU_ASSERT_EQUAL(none, '#');
}

void suite_err(void)
{
    CU_pSuite suite = CU_add_suite("err", NULL, NULL);
    CU_add_test(suite, "escape", test_escape);
    CU_add_test(suite, "escape_cuts_between_characters", test_escape_cuts_between_characters);
    CU_add_test(suite, "classes", test_classes);
    CU_add_test(suite, "exit_worse", test_exit_worse);
    CU_add_test(suite, "set", test_set);
    CU_add_test(suite, "set_keeps_the_end_of_a_long_path", test_set_keeps_the_end_of_a_long_path);
    CU_add_test(suite, "set_cuts_long_text", test_set_cuts_long_text);
    CU_add_test(suite, "line", test_line);
    CU_add_test(suite, "line_in_any_room", test_line_in_any_room);
}
