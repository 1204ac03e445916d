// A conversation that somebody else has begun to read.
#include <string.h>

#include "tests/unit/channel_kit.h"

enum { COOKIES = 2 };

// Two messages as they are on a pipe.
static size_t messages_of(uint8_t *out, size_t out_len)
{
    size_t at = 0;
    for (uint64_t i = 0; i < COOKIES; i++) {
        struct message m = {.type = MESSAGE_PING, .ping = {.cookie = 1000 + i}};
        int64_t len = message_encode(&m, out + at, out_len - at);
        CU_ASSERT_FATAL(len > 0);
        at += (size_t)len;
    }
    return at;
}

static void expect_cookie(struct channel *c, uint64_t cookie)
{
    uint16_t type;
    const uint8_t *fields;
    size_t len;
    struct message m;
    CU_ASSERT_EQUAL_FATAL(channel_next(c, &type, &fields, &len), 1);
    CU_ASSERT_EQUAL_FATAL(message_decode(type, fields, len, &m), 0);
    CU_ASSERT_EQUAL(m.ping.cookie, cookie);
}

static void expect_no_more(struct channel *c)
{
    uint16_t type;
    const uint8_t *fields;
    size_t len;
    CU_ASSERT_EQUAL(channel_next(c, &type, &fields, &len), 0);
}

// Wherever the cut is, nothing is lost or doubled; what is whole already needs no pump.
static void test_cuts(void)
{
    uint8_t bytes[64];
    size_t len = messages_of(bytes, sizeof bytes);
    for (size_t cut = 0; cut <= len; cut++) {
        struct channel *c;
        int fds[2];
        kit_pair(fds);
        CU_ASSERT_EQUAL_FATAL(channel_plain_begun(fds[0], fds[0], MESSAGE_BYTES_MAX, bytes, cut, &c), 0);
        uint64_t next = 0;
        for (; next < cut / (len / COOKIES); next++)
            expect_cookie(c, 1000 + next);
        expect_no_more(c);
        CU_ASSERT_EQUAL(send(fds[1], bytes + cut, len - cut, MSG_NOSIGNAL), (ssize_t)(len - cut));
        CU_ASSERT_EQUAL(channel_pump(c), 0);
        for (; next < COOKIES; next++)
            expect_cookie(c, 1000 + next);
        expect_no_more(c);
        channel_free(c);
        close(fds[1]);
    }
}

// The end comes in the middle of what was begun.
static void test_ends(void)
{
    uint8_t bytes[64];
    size_t len = messages_of(bytes, sizeof bytes);
    struct channel *c;
    int fds[2];
    kit_pair(fds);
    close(fds[1]);
    CU_ASSERT_EQUAL_FATAL(channel_plain_begun(fds[0], fds[0], MESSAGE_BYTES_MAX, bytes, len - 1, &c), 0);
    CU_ASSERT_EQUAL(channel_pump(c), -ECONNRESET);
    expect_cookie(c, 1000);
    expect_no_more(c);
    channel_free(c);
}

void suite_channel_begun(void)
{
    CU_pSuite s = CU_add_suite("channel_begun", NULL, NULL);
    CU_add_test(s, "cuts", test_cuts);
    CU_add_test(s, "ends", test_ends);
}
