// A verification of which one of the two does not keep to the rules.
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "proto/hello.h"
#include "tests/unit/verify_kit.h"

// ---- agents that are not as they should be ----

enum manner {
    GOOD,
    GONE_AT_ONCE,
    GONE_AT_HELLO,
    GONE_AT_CHECK,
    GONE_AT_CLOSE,
    OTHER_VERSION,
    REFUSES,
    FAILS,
    OPENS_OTHER,
    ANSWERS_FEW,
    ANSWERS_MANY,
    ANSWERS_TWICE,
    ANSWERS_NONSENSE,
    BROKEN_HELLO,
};

struct false_agent {
    enum manner manner;
    struct channel *control;
    unsigned pongs;
};

static int tell(struct channel *c, const struct message *m)
{
    return channel_send(c, m);
}

static int answer_hello(struct false_agent *a)
{
    static const uint8_t half[] = {1, 0};
    struct message ping = {.type = MESSAGE_PING, .ping = {.cookie = 7}}, m;
    hello_make("penstock test", "there", &m);
    if (a->manner == OTHER_VERSION)
        m.hello.version = m.hello.version_min = WIRE_VERSION + 1;
    if (a->manner == BROKEN_HELLO)
        return channel_send_bytes(a->control, MESSAGE_HELLO, half, sizeof half);
    int rc = tell(a->control, &m);
    return rc == 0 ? tell(a->control, &ping) : rc;
}

static int answer_open(struct false_agent *a)
{
    struct message opened = {.type = a->manner == OPENS_OTHER ? MESSAGE_DEST_OPENED : MESSAGE_VERIFY_OPENED},
                   fail;
    struct err err;
    err_set(&err, ERR_START, ENOENT, "open", "x", 1, NULL);
    message_from_err(&err, &fail);
    return tell(a->control, a->manner == REFUSES ? &fail : &opened);
}

static int answer_check(struct false_agent *a)
{
    uint8_t results[2 * CHECK_RESULT_BYTES] = {0};
    struct err err;
    struct message fail,
        m = {.type = MESSAGE_CHECKED, .checked = {.results = blob_of(results, CHECK_RESULT_BYTES)}};
    err_set(&err, ERR_STORAGE, EIO, "read", NULL, 0, NULL);
    message_from_err(&err, &fail);
    if (a->manner == FAILS)
        return tell(a->control, &fail);
    if (a->manner == ANSWERS_FEW)
        m.checked.results.len = 0;
    if (a->manner == ANSWERS_MANY)
        m.checked.results.len = sizeof results;
    if (a->manner == ANSWERS_NONSENSE)
        results[0] = CHECK_VERDICTS;
    int rc = tell(a->control, &m);
    return rc == 0 && a->manner == ANSWERS_TWICE ? tell(a->control, &m) : rc;
}

// 1: it leaves.
static int answer(struct false_agent *a, enum message_type type)
{
    struct message closed = {.type = MESSAGE_CLOSED};
    switch (type) {
    case MESSAGE_HELLO:
        return a->manner == GONE_AT_HELLO ? 1 : answer_hello(a);
    case MESSAGE_OPEN:
        return answer_open(a);
    case MESSAGE_CHECK:
        return a->manner == GONE_AT_CHECK ? 1 : answer_check(a);
    case MESSAGE_CLOSE:
        return a->manner == GONE_AT_CLOSE ? 1 : tell(a->control, &closed);
    default:
        a->pongs += type == MESSAGE_PONG;
        return 0;
    }
}

static void *false_run(void *arg)
{
    struct false_agent *a = arg;
    int rc = a->manner == GONE_AT_ONCE;
    while (rc == 0) {
        uint16_t type;
        const uint8_t *fields;
        size_t len;
        struct pollfd p = {.fd = channel_fd_in(a->control), .events = channel_events(a->control)};
        (void)!poll(&p, 1, -1);
        rc = channel_pump(a->control);
        int got;
        while (rc == 0 && (got = channel_next(a->control, &type, &fields, &len)) > 0)
            rc = answer(a, (enum message_type)type);
    }
    channel_free(a->control);
    return NULL;
}

static void test_false_agents(void)
{
    static const struct {
        enum manner manner;
        enum err_class class;
        const char *words;
    } rows[] = {
        {GOOD, ERR_NONE, NULL},
        {GONE_AT_ONCE, ERR_START, "no agent answered"},
        {GONE_AT_HELLO, ERR_START, "no agent answered"},
        {GONE_AT_CHECK, ERR_LOST, "control connection"},
        {GONE_AT_CLOSE, ERR_LOST, "control connection"},
        {OTHER_VERSION, ERR_VERSION, "penstock test"},
        {REFUSES, ERR_START, ""},
        {FAILS, ERR_STORAGE, ""},
        {OPENS_OTHER, ERR_PROTOCOL, "does not speak"},
        {ANSWERS_FEW, ERR_PROTOCOL, "does not speak"},
        {ANSWERS_MANY, ERR_PROTOCOL, "does not speak"},
        {ANSWERS_TWICE, ERR_PROTOCOL, "does not speak"},
        {ANSWERS_NONSENSE, ERR_PROTOCOL, "does not speak"},
        {BROKEN_HELLO, ERR_START, "does not speak"},
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct scratch s = scratch_begin();
        const struct receipt_entry e = text_entry("f");
        struct receipt_reader *receipt = receipt_of(&s, &e, 1);
        struct false_agent agent = {.manner = rows[i].manner};
        struct said said = {.count = 0};
        struct place place;
        struct verify_tally tally;
        struct err err;
        pthread_t thread;
        CU_ASSERT_EQUAL_FATAL(place_parse("there:copy", &place, &err), 0);
        struct verify_config cfg = {.place = &place, .found = remember, .arg = &said};
        struct verify_end end = {.id = job,
                                 .control = agent_start(false_run, &agent, &agent.control, &thread)};
        int rc = verify_over(&cfg, &end, receipt, &tally, &err);
        channel_free(end.control);
        CU_ASSERT_EQUAL(pthread_join(thread, NULL), 0);
        CU_ASSERT_EQUAL(rc < 0, rows[i].manner != GOOD);
        if (rows[i].manner == GOOD)
            CU_ASSERT(tally.entries[CHECK_RIGHT] == 1 && agent.pongs == 1);
        if (rc < 0) {
            CU_ASSERT_EQUAL(err.class, rows[i].class);
            CU_ASSERT_STRING_EQUAL(err.node, "there");
            CU_ASSERT_PTR_NOT_NULL(strstr(err.text, rows[i].words));
        }
        place_free(&place);
        receipt_reader_free(receipt);
        scratch_end(&s);
    }
}

// ---- askers that are not as they should be ----

// Takes messages until one of `type` comes; false: the agent has left.
static bool wait_for(struct channel *c, enum message_type type)
{
    for (int rc = 0;;) {
        uint16_t got;
        const uint8_t *fields;
        size_t len;
        while (channel_next(c, &got, &fields, &len) > 0) {
            if (got == type)
                return true;
        }
        if (rc < 0)
            return false;
        struct pollfd p = {.fd = channel_fd_in(c), .events = channel_events(c)};
        (void)!poll(&p, 1, -1);
        rc = channel_pump(c);
    }
}

// The record of a file that takes long to read.
static struct blob long_record(uint8_t *buf, size_t len)
{
    struct receipt_entry e = text_entry("long");
    struct wire_writer w;
    uint8_t one[128];
    e.size = UINT64_C(1) << 43;
    int64_t bytes = receipt_entry_encode(&e, one, sizeof one);
    CU_ASSERT_FATAL(bytes > 0);
    wire_writer_init(&w, buf, len);
    wire_put_blob(&w, one, (size_t)bytes);
    return blob_of(buf, (size_t)wire_written(&w));
}

// Said to an agent in the verify role it ends the job; repeated `times`.
static void expect_ended(const struct message *m, unsigned times)
{
    struct scratch s = scratch_begin();
    struct real_agent agent;
    struct message hello, open = {.type = MESSAGE_OPEN, .open = {.role = OPEN_VERIFY, .job = job}};
    uint8_t path[8];
    struct wire_writer w;
    pthread_t thread;
    int fd = openat(s.fd, "long", O_CREAT | O_WRONLY | O_CLOEXEC, 0644);
    CU_ASSERT_FATAL(fd >= 0 && ftruncate(fd, INT64_C(1) << 43) == 0);
    close(fd);
    wire_writer_init(&w, path, sizeof path);
    wire_put_blob(&w, ".", 1);
    open.open.paths = blob_of(path, (size_t)wire_written(&w));
    hello_make("penstock test", "here", &hello);
    struct channel *c = real_start(&agent, s.path, &thread);
    CU_ASSERT_EQUAL(tell(c, &hello), 0);
    CU_ASSERT_EQUAL(tell(c, &open), 0);
    CU_ASSERT(wait_for(c, MESSAGE_VERIFY_OPENED));
    for (unsigned i = 0; i < times; i++)
        CU_ASSERT_EQUAL(tell(c, m), 0);
    CU_ASSERT_FALSE(wait_for(c, MESSAGE_CLOSED));
    channel_free(c);
    CU_ASSERT_EQUAL(pthread_join(thread, NULL), 0);
    CU_ASSERT_EQUAL(agent.status, 1);
    scratch_end(&s);
}

static void test_false_askers(void)
{
    uint8_t buf[128];
    struct blob slow = long_record(buf, sizeof buf);
    struct message bad[] = {
        {.type = MESSAGE_CHECK},
        {.type = MESSAGE_CHECK, .check = {.records = blob_of(buf, slow.len - 1)}},
        {.type = MESSAGE_LINK, .link = {.dial = LINK_DIAL, .streams = 1}},
        {.type = MESSAGE_REDIAL},
        {.type = MESSAGE_OPEN},
        {.type = MESSAGE_WALK},
        {.type = MESSAGE_LEASE},
        {.type = MESSAGE_FINISH},
        {.type = MESSAGE_CHECKED},
    };
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        expect_ended(&bad[i], 1);
    struct message check = {.type = MESSAGE_CHECK, .check = {.records = slow}};
    expect_ended(&check, CHECKS_OPEN_MAX + 1);
}

void suite_verify_false(void)
{
    CU_pSuite suite = CU_add_suite("verify_false", NULL, NULL);
    CU_add_test(suite, "agents", test_false_agents);
    CU_add_test(suite, "askers", test_false_askers);
}
