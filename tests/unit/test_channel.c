#include "mover/channel.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include <CUnit/CUnit.h>

#include "storage/sys.h"
#include "tests/unit/channel_kit.h"
#include "tests/unit/scratch.h"
#include "tests/unit/tree.h"

enum { MESSAGES = 10000, OUTBOX_FULL = 64 * KIB };

static const size_t outbox_max = 4 * MESSAGE_BYTES_MAX + MIB;

// One direction: both ends draw the same messages from the same numbers.
struct flow {
    struct rnd sent_rnd, got_rnd;
    unsigned sent, got;
    uint8_t *bytes;
};

static size_t flow_size(struct rnd *r)
{
    uint64_t kind = rnd_below(r, 1000);
    if (kind == 0)
        return MESSAGE_BYTES_MAX - rnd_below(r, 100);
    return rnd_below(r, kind < 20 ? 20000 : 300);
}

static void flow_fill(uint8_t *bytes, size_t len, unsigned number)
{
    for (size_t i = 0; i < len; i++)
        bytes[i] = (uint8_t)(number + i * 5 + i / 256);
}

// Sends as long as there is room in reason.
static void flow_send(struct flow *f, struct channel *c)
{
    while (f->sent < MESSAGES && channel_outbox_bytes(c) < OUTBOX_FULL) {
        size_t len = flow_size(&f->sent_rnd);
        flow_fill(f->bytes, len, f->sent);
        CU_ASSERT_EQUAL_FATAL(channel_send_bytes(c, (uint16_t)f->sent, f->bytes, len), 0);
        f->sent++;
    }
}

static void flow_take(struct flow *f, struct channel *c)
{
    uint16_t type;
    const uint8_t *fields;
    size_t len;
    int rc;
    while ((rc = channel_next(c, &type, &fields, &len)) > 0) {
        size_t expected = flow_size(&f->got_rnd);
        CU_ASSERT_EQUAL_FATAL(type, (uint16_t)f->got);
        CU_ASSERT_EQUAL_FATAL(len, expected);
        flow_fill(f->bytes, len, f->got);
        CU_ASSERT_EQUAL_FATAL(memcmp(fields, f->bytes, len), 0);
        f->got++;
    }
    CU_ASSERT_EQUAL_FATAL(rc, 0);
}

static struct flow flow_begin(uint64_t seed)
{
    struct flow f = {.sent_rnd = {seed}, .got_rnd = {seed}, .bytes = malloc(MESSAGE_BYTES_MAX)};
    CU_ASSERT_PTR_NOT_NULL_FATAL(f.bytes);
    return f;
}

// Waits for both ends as their owners do, and pumps only what poll tells of.
static void ends_turn(struct kit_ends *e)
{
    struct channel *ends[2] = {e->a, e->b};
    struct pollfd fds[4];
    for (size_t i = 0; i < 2; i++) {
        short events = channel_events(ends[i]);
        fds[2 * i] = (struct pollfd){.fd = channel_fd_in(ends[i]), .events = POLLIN};
        fds[2 * i + 1] =
            (struct pollfd){.fd = events & POLLOUT ? channel_fd_out(ends[i]) : -1, .events = POLLOUT};
    }
    CU_ASSERT_FATAL(poll(fds, 4, KIT_WAIT_MS) > 0); // else it is stuck
    for (size_t i = 0; i < 2; i++) {
        if (fds[2 * i].revents != 0 || fds[2 * i + 1].revents != 0)
            CU_ASSERT_EQUAL_FATAL(channel_pump(ends[i]), 0);
    }
}

static void expect_traffic(enum kit_form form)
{
    struct kit_ends e;
    struct rnd r = rnd_begin("channel");
    struct flow there = flow_begin(rnd_next(&r)), back = flow_begin(rnd_next(&r));
    kit_ends_begin(&e, form);
    while (there.got < MESSAGES || back.got < MESSAGES) {
        flow_send(&there, e.a);
        flow_send(&back, e.b);
        ends_turn(&e);
        flow_take(&there, e.b);
        flow_take(&back, e.a);
    }
    CU_ASSERT_EQUAL(channel_outbox_bytes(e.a), 0);
    kit_ends_end(&e);
    free(there.bytes);
    free(back.bytes);
}

static void test_traffic_plain(void)
{
    expect_traffic(KIT_PLAIN);
}

static void test_traffic_pipes(void)
{
    expect_traffic(KIT_PIPES);
}

static void test_traffic_tls(void)
{
    expect_traffic(KIT_TLS);
}

static void test_traffic_sealed(void)
{
    expect_traffic(KIT_SEALED);
}

static void test_sizes(void)
{
    uint8_t *bytes = calloc(1, MESSAGE_BYTES_MAX + 1);
    CU_ASSERT_PTR_NOT_NULL_FATAL(bytes);
    for (enum kit_form form = 0; form < KIT_FORMS; form++) {
        struct kit_ends e;
        uint16_t type;
        const uint8_t *fields;
        size_t len;
        kit_ends_begin(&e, form);
        CU_ASSERT_EQUAL(channel_send_bytes(e.a, 1, bytes, MESSAGE_BYTES_MAX + 1), -EMSGSIZE);
        CU_ASSERT_EQUAL(channel_send_bytes(e.a, 2, bytes, MESSAGE_BYTES_MAX), 0);
        CU_ASSERT_EQUAL(channel_send_bytes(e.a, 3, NULL, 0), 0);
        CU_ASSERT_EQUAL(kit_next(e.b, e.a, &type, &fields, &len), 1);
        CU_ASSERT_EQUAL(type, 2);
        CU_ASSERT_EQUAL(len, MESSAGE_BYTES_MAX);
        CU_ASSERT_EQUAL(kit_next(e.b, e.a, &type, &fields, &len), 1);
        CU_ASSERT_EQUAL(type, 3);
        CU_ASSERT_EQUAL(len, 0);
        kit_ends_end(&e);
    }
    free(bytes);
}

static void test_message(void)
{
    for (enum kit_form form = 0; form < KIT_FORMS; form++) {
        struct kit_ends e;
        struct message m = {.type = MESSAGE_PING, .ping = {.cookie = 0x1122334455667788}}, back;
        uint16_t type;
        const uint8_t *fields;
        size_t len;
        kit_ends_begin(&e, form);
        CU_ASSERT_EQUAL(channel_send(e.b, &m), 0); // under TLS before the handshake: held until it is over
        CU_ASSERT_EQUAL(kit_next(e.a, e.b, &type, &fields, &len), 1);
        CU_ASSERT_EQUAL(message_decode(type, fields, len, &back), 0);
        CU_ASSERT_EQUAL(back.ping.cookie, m.ping.cookie);
        CU_ASSERT_TRUE(channel_ready(e.a));
        CU_ASSERT_STRING_EQUAL(channel_peer_name(e.b), form == KIT_TLS ? "one" : "");
        char long_text[600] = "";
        m = (struct message){.type = MESSAGE_FAIL};
        m.fail.text = blob_of(long_text, sizeof(long_text));
        CU_ASSERT_EQUAL(channel_send(e.b, &m), -EMSGSIZE);
        kit_ends_end(&e);
    }
}

// An end between messages is one in order, but what came before it is still there to take.
static void test_end_in_order(void)
{
    for (enum kit_form form = 0; form < KIT_FORMS; form++) {
        struct kit_ends e;
        uint16_t type;
        const uint8_t *fields;
        size_t len;
        kit_ends_begin(&e, form);
        CU_ASSERT_EQUAL(channel_send_bytes(e.a, 7, "first", 5), 0);
        CU_ASSERT_EQUAL(kit_next(e.b, e.a, &type, &fields, &len), 1);
        CU_ASSERT_EQUAL(channel_send_bytes(e.a, 8, "last", 4), 0);
        channel_free(e.a);
        e.a = NULL;
        CU_ASSERT_EQUAL(kit_pump_end(e.b, NULL), -ENODATA);
        CU_ASSERT_EQUAL(channel_pump(e.b), -ENODATA);
        CU_ASSERT_EQUAL(channel_next(e.b, &type, &fields, &len), 1);
        CU_ASSERT_EQUAL(type, 8);
        CU_ASSERT_EQUAL(channel_next(e.b, &type, &fields, &len), 0);
        kit_ends_end(&e);
    }
}

// The other end of a raw socket.
static struct channel *against_raw(enum kit_form form, int *raw)
{
    struct channel *c = NULL;
    int fds[2];
    kit_pair(fds);
    *raw = fds[0];
    if (form == KIT_SEALED)
        c = kit_sealed(fds[1], 2, 1, MESSAGE_BYTES_MAX);
    else
        CU_ASSERT_EQUAL_FATAL(channel_plain_new(fds[1], fds[1], MESSAGE_BYTES_MAX, &c), 0);
    return c;
}

static void test_end_in_message(void)
{
    static const uint8_t plain[] = {5,   0, 0, 0, 9, 0, 'f', 'i', 'r', 's',
                                    't', 5, 0, 0, 0, 9, 0,   'c', 'u', 't'};
    for (size_t cut = 11; cut <= sizeof(plain); cut++) {
        int raw;
        uint16_t type;
        const uint8_t *fields;
        size_t len;
        struct channel *c = against_raw(KIT_PLAIN, &raw);
        CU_ASSERT_EQUAL(write(raw, plain, cut), (ssize_t)cut);
        close(raw);
        CU_ASSERT_EQUAL(kit_pump_end(c, NULL), cut == 11 ? -ENODATA : -ECONNRESET);
        CU_ASSERT_EQUAL(channel_next(c, &type, &fields, &len), 1);
        CU_ASSERT_EQUAL(memcmp(fields, "first", 5), 0);
        CU_ASSERT_EQUAL(channel_next(c, &type, &fields, &len), 0);
        channel_free(c);
    }
}

static void expect_refused(enum kit_form form, const void *bytes, size_t len, int expected)
{
    int raw;
    uint16_t type;
    const uint8_t *fields;
    size_t fields_len;
    struct channel *c = against_raw(form, &raw);
    CU_ASSERT_EQUAL(write(raw, bytes, len), (ssize_t)len);
    CU_ASSERT_EQUAL(kit_next(c, NULL, &type, &fields, &fields_len), expected);
    CU_ASSERT_EQUAL(channel_next(c, &type, &fields, &fields_len), expected); // and stays so
    channel_free(c);
    close(raw);
}

static void test_bad_lengths(void)
{
    static const uint8_t over[] = {0x01, 0x40, 0x02, 0x00, 1, 0}; // 144 KiB and one
    static const uint8_t huge[] = {0xff, 0xff, 0xff, 0xff, 1, 0};
    static const uint8_t negative[] = {0x00, 0x00, 0x00, 0x80, 1, 0};
    static const uint8_t sealed_over[] = {0x03, 0x40, 0x02, 0x00};
    static const uint8_t none[] = {0, 0, 0, 0}, one[] = {1, 0, 0, 0};
    static const char http[] = "GET / HTTP/1.1\r\nHost: here\r\n\r\n";
    expect_refused(KIT_PLAIN, over, sizeof(over), -EMSGSIZE);
    expect_refused(KIT_PLAIN, huge, sizeof(huge), -EMSGSIZE);
    expect_refused(KIT_PLAIN, negative, sizeof(negative), -EMSGSIZE);
    expect_refused(KIT_PLAIN, http, sizeof(http) - 1, -EMSGSIZE);
    expect_refused(KIT_SEALED, sealed_over, sizeof(sealed_over), -EMSGSIZE);
    expect_refused(KIT_SEALED, huge, sizeof(huge), -EMSGSIZE);
    expect_refused(KIT_SEALED, http, sizeof(http) - 1, -EMSGSIZE);
    expect_refused(KIT_SEALED, none, sizeof(none), -EPROTO);
    expect_refused(KIT_SEALED, one, sizeof(one), -EPROTO);
}

// What the other end of an honest channel put on the wire: messages of 3, 4, 5 bytes.
static size_t sealed_bytes(uint8_t *bytes, size_t len)
{
    int fds[2];
    kit_pair(fds);
    struct channel *c = kit_sealed(fds[1], 1, 2, MESSAGE_BYTES_MAX);
    for (uint16_t i = 3; i <= 5; i++)
        CU_ASSERT_EQUAL(channel_send_bytes(c, i, "fields", i), 0);
    ssize_t n = read(fds[0], bytes, len);
    channel_free(c);
    close(fds[0]);
    return n > 0 ? (size_t)n : 0;
}

enum { SEALED_EXTRA = 4 + 2 + FRAME_TAG_BYTES };

static void test_sealed_as_specified(void)
{
    uint8_t bytes[256];
    size_t len = sealed_bytes(bytes, sizeof(bytes));
    CU_ASSERT_EQUAL(len, 3 * SEALED_EXTRA + 3 + 4 + 5);
    struct seal *seal = kit_seal(1);
    size_t at = 0;
    for (uint8_t i = 3; i <= 5; i++) {
        uint8_t *head = bytes + at, *body = head + 4;
        CU_ASSERT(hex_equal(head, 4, i == 3 ? "05000000" : i == 4 ? "06000000" : "07000000"));
        CU_ASSERT_EQUAL(seal_open(seal, (uint64_t)i - 3, head, 4, body, (size_t)i + 2, body + i + 2), 0);
        CU_ASSERT_EQUAL(body[0], i);
        CU_ASSERT_EQUAL(body[1], 0);
        CU_ASSERT_EQUAL(memcmp(body + 2, "fields", i), 0);
        at += SEALED_EXTRA + (size_t)i;
    }
    seal_free(seal);
}

// The vector of PROTOCOL.md, made with python3-cryptography.
static void test_sealed_known_bytes(void)
{
    int fds[2];
    uint8_t bytes[64];
    kit_pair(fds);
    struct channel *c = kit_sealed(fds[1], 0, 1, PEER_BYTES_MAX);
    CU_ASSERT_EQUAL(channel_send_bytes(c, PEER_NEED, "need", 4), 0);
    CU_ASSERT_EQUAL(channel_send_bytes(c, PEER_SEGMENT, NULL, 0), 0);
    CU_ASSERT_EQUAL(read(fds[0], bytes, sizeof(bytes)), 48);
    CU_ASSERT(hex_equal(bytes, 48,
                        "06000000b95c8a1285683233a3a853dcb3af155451bb352205f6"
                        "020000005c64d4b9228649620aa7065cb31bd9a45cde"));
    channel_free(c);
    close(fds[0]);
}

static void test_sealed_flipped_bit(void)
{
    uint8_t bytes[256];
    sealed_bytes(bytes, sizeof(bytes));
    for (size_t at = 0; at < SEALED_EXTRA + 3; at++) {
        bytes[at] ^= 0x01;
        if (at == 0) // 4 instead of 5: the tag is looked for where it is not
            expect_refused(KIT_SEALED, bytes, SEALED_EXTRA + 3, -EBADMSG);
        else if (at >= 4)
            expect_refused(KIT_SEALED, bytes, SEALED_EXTRA + 3, -EBADMSG);
        bytes[at] ^= 0x01;
    }
}

static void test_sealed_out_of_order(void)
{
    uint8_t bytes[256], twice[2 * (SEALED_EXTRA + 3)];
    size_t first = SEALED_EXTRA + 3, second = SEALED_EXTRA + 4;
    uint16_t type;
    const uint8_t *fields;
    size_t len;
    int raw;
    sealed_bytes(bytes, sizeof(bytes));
    expect_refused(KIT_SEALED, bytes + first, second, -EBADMSG); // the second first
    memcpy(twice, bytes, first);
    memcpy(twice + first, bytes, first);
    struct channel *c = against_raw(KIT_SEALED, &raw);
    CU_ASSERT_EQUAL(write(raw, twice, sizeof(twice)), sizeof(twice));
    CU_ASSERT_EQUAL(kit_next(c, NULL, &type, &fields, &len), 1);
    CU_ASSERT_EQUAL(kit_next(c, NULL, &type, &fields, &len), -EBADMSG); // the first again
    channel_free(c);
    close(raw);
}

// An end that is shown its own words does not take them for the other's.
static void test_sealed_reflected(void)
{
    int raw;
    uint8_t bytes[64];
    uint16_t type;
    const uint8_t *fields;
    size_t len;
    struct channel *c = against_raw(KIT_SEALED, &raw);
    CU_ASSERT_EQUAL(channel_send_bytes(c, 1, "mine", 4), 0);
    ssize_t n = read(raw, bytes, sizeof(bytes));
    CU_ASSERT_EQUAL_FATAL(n, SEALED_EXTRA + 4);
    CU_ASSERT_EQUAL(write(raw, bytes, (size_t)n), n);
    CU_ASSERT_EQUAL(kit_next(c, NULL, &type, &fields, &len), -EBADMSG);
    channel_free(c);
    close(raw);
}

// Nobody reads: what waits is bounded, and what was taken on arrives when somebody does.
static void test_outbox_bound(void)
{
    static const size_t size = 50000;
    uint8_t *bytes = calloc(1, size);
    CU_ASSERT_PTR_NOT_NULL_FATAL(bytes);
    for (enum kit_form form = 0; form < KIT_FORMS; form++) {
        struct kit_ends e;
        uint16_t type, sent = 0, got = 0;
        const uint8_t *fields;
        size_t len;
        int rc;
        kit_ends_begin(&e, form);
        while ((rc = channel_send_bytes(e.a, sent, bytes, size)) == 0 && sent < 1000)
            sent++;
        CU_ASSERT_EQUAL(rc, -ENOBUFS);
        CU_ASSERT(channel_outbox_bytes(e.a) <= outbox_max);
        CU_ASSERT(channel_outbox_bytes(e.a) > outbox_max - 2 * size);
        CU_ASSERT_EQUAL(kit_next(e.b, e.a, &type, &fields, &len), 1);
        CU_ASSERT_EQUAL(type, got++);
        CU_ASSERT_TRUE(kit_wait(e.a, KIT_WAIT_MS));
        CU_ASSERT_EQUAL(channel_pump(e.a), 0);
        while (got < sent && kit_next(e.b, e.a, &type, &fields, &len) > 0) {
            CU_ASSERT_EQUAL(type, got);
            got++;
        }
        CU_ASSERT_EQUAL(got, sent);
        kit_ends_end(&e);
    }
    free(bytes);
}

// The other end said why and closed, while we were sending: its words are taken first, then the error.
static void test_last_words(void)
{
    for (enum kit_form form = 0; form < KIT_FORMS; form++) {
        struct kit_ends e;
        uint16_t type;
        const uint8_t *fields;
        size_t len;
        void (*before)(int) = signal(SIGPIPE, SIG_IGN);
        kit_ends_begin(&e, form);
        CU_ASSERT_EQUAL(channel_send_bytes(e.a, 1, "hello", 5), 0);
        CU_ASSERT_EQUAL(kit_next(e.b, e.a, &type, &fields, &len), 1);
        CU_ASSERT_EQUAL(channel_send_bytes(e.b, 2, "no", 2), 0);
        channel_free(e.b);
        e.b = NULL;
        for (uint16_t i = 0; i < 3; i++)
            CU_ASSERT_EQUAL(channel_send_bytes(e.a, 3, "more", 4), 0);
        CU_ASSERT_EQUAL(channel_events(e.a) & POLLOUT, POLLOUT); // poll is to tell of the error
        CU_ASSERT_TRUE(kit_wait(e.a, 0));
        CU_ASSERT(kit_pump_end(e.a, NULL) < 0);
        CU_ASSERT_EQUAL(channel_next(e.a, &type, &fields, &len), 1);
        CU_ASSERT_EQUAL(type, 2);
        kit_ends_end(&e);
        signal(SIGPIPE, before);
    }
}

static void test_clocks(void)
{
    struct kit_ends e;
    uint64_t before = sys_clock_ns();
    kit_ends_begin(&e, KIT_PLAIN);
    uint64_t made = channel_heard_ns(e.b);
    CU_ASSERT(made >= before && made <= sys_clock_ns());
    CU_ASSERT_EQUAL(channel_pump(e.b), 0);
    CU_ASSERT_EQUAL(channel_heard_ns(e.b), made);
    CU_ASSERT_EQUAL(channel_send_bytes(e.a, 1, "x", 1), 0);
    CU_ASSERT_EQUAL(channel_pump(e.b), 0);
    CU_ASSERT(channel_heard_ns(e.b) > made);
    kit_ends_end(&e);
}

static void test_closes_all(void)
{
    uint32_t before = scratch_open_files();
    for (enum kit_form form = 0; form < KIT_FORMS; form++) {
        struct kit_ends e;
        kit_ends_begin(&e, form);
        kit_ends_end(&e);
    }
    CU_ASSERT_EQUAL(scratch_open_files(), before);
    channel_free(NULL);
}

void suite_channel(void)
{
    CU_pSuite suite = CU_add_suite("channel", NULL, NULL);
    CU_add_test(suite, "traffic_plain", test_traffic_plain);
    CU_add_test(suite, "traffic_pipes", test_traffic_pipes);
    CU_add_test(suite, "traffic_tls", test_traffic_tls);
    CU_add_test(suite, "traffic_sealed", test_traffic_sealed);
    CU_add_test(suite, "sizes", test_sizes);
    CU_add_test(suite, "message", test_message);
    CU_add_test(suite, "end_in_order", test_end_in_order);
    CU_add_test(suite, "end_in_message", test_end_in_message);
    CU_add_test(suite, "bad_lengths", test_bad_lengths);
    CU_add_test(suite, "sealed_as_specified", test_sealed_as_specified);
    CU_add_test(suite, "sealed_known_bytes", test_sealed_known_bytes);
    CU_add_test(suite, "sealed_flipped_bit", test_sealed_flipped_bit);
    CU_add_test(suite, "sealed_out_of_order", test_sealed_out_of_order);
    CU_add_test(suite, "sealed_reflected", test_sealed_reflected);
    CU_add_test(suite, "outbox_bound", test_outbox_bound);
    CU_add_test(suite, "last_words", test_last_words);
    CU_add_test(suite, "clocks", test_clocks);
    CU_add_test(suite, "closes_all", test_closes_all);
}
