// The conversation of a verification: with the role of a real agent, and with agents and askers that break
// its rules.
#include "mover/verify.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <CUnit/CUnit.h>

#include "mover/agent.h"
#include "proto/hello.h"
#include "tests/unit/scratch.h"

static const struct job_id job = {{0x77, 0x01}};

// ---- receipts ----

// Of these entries, in the folder "state".
static struct receipt_reader *receipt_of(const struct scratch *s, const struct receipt_entry *entries,
                                         size_t count)
{
    struct receipt_writer *w;
    struct receipt_reader *r;
    struct err err;
    char state[600], path[1024];
    struct receipt_job about = {.program = blob_text("test")};
    struct receipt_end end = {.exit_status = 0};
    scratch_dir(s->fd, "state");
    snprintf(state, sizeof state, "%s/state", s->path);
    CU_ASSERT_EQUAL_FATAL(receipt_writer_new(state, &job, &about, &w, &err), 0);
    for (size_t i = 0; i < count; i++)
        CU_ASSERT_EQUAL_FATAL(receipt_writer_add(w, &entries[i]), 0);
    CU_ASSERT_EQUAL_FATAL(receipt_writer_end(w, &end, path, sizeof path), 0);
    receipt_writer_free(w);
    CU_ASSERT_EQUAL_FATAL(receipt_reader_open(path, &r, &err), 0);
    return r;
}

static struct receipt_entry entry(enum entry_type type, enum receipt_outcome outcome, const char *path)
{
    return (struct receipt_entry){.type = type,
                                  .outcome = outcome,
                                  .proof = PROOF_WIRE,
                                  .mode = type == ENTRY_DIR ? 0755 : 0644,
                                  .path = blob_text(path)};
}

// Of scratch_file's "text".
static struct receipt_entry text_entry(const char *path)
{
    struct receipt_entry e = entry(ENTRY_FILE, RECEIPT_MOVED, path);
    struct digest leaf = digest_of("text", 4);
    e.size = 4;
    e.digest = digest_file(&leaf, 4);
    return e;
}

// ---- the asking side ----

struct said {
    unsigned count;
    struct err errs[8];
};

static void remember(void *arg, const struct err *problem)
{
    struct said *said = arg;
    if (said->count < ARRAY_LEN(said->errs))
        said->errs[said->count] = *problem;
    said->count++;
}

static struct channel *plain(int fd)
{
    struct channel *c;
    CU_ASSERT_EQUAL_FATAL(channel_plain_new(fd, fd, MESSAGE_BYTES_MAX, &c), 0);
    return c;
}

// A thread that speaks for the agent at one end of a pair; the other end.
static struct channel *agent_start(void *(*run)(void *), void *arg, struct channel **its, pthread_t *thread)
{
    int fds[2];
    CU_ASSERT_EQUAL_FATAL(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    *its = plain(fds[1]);
    CU_ASSERT_EQUAL_FATAL(pthread_create(thread, NULL, run, arg), 0);
    return plain(fds[0]);
}

struct real_agent {
    struct agent_config cfg;
    struct channel *control;
    int status;
    char line[256]; // of its log
};

static void say(void *arg, const char *line)
{
    struct real_agent *a = arg;
    snprintf(a->line, sizeof a->line, "%s", line);
}

static void *real_run(void *arg)
{
    struct real_agent *a = arg;
    a->status = agent_run(&a->cfg, a->control);
    return NULL;
}

static struct channel *real_start(struct real_agent *a, const char *root, pthread_t *thread)
{
    *a =
        (struct real_agent){.cfg = {.root = root, .read_only = true, .handoff_fd = -1, .say = say, .arg = a}};
    return agent_start(real_run, a, &a->control, thread);
}

// Verifies beneath `path` with a real agent; its exit status must be 0 when the conversation came to its end.
static int verify_real(const char *root, const char *path, struct receipt_reader *receipt, struct said *said,
                       struct verify_tally *tally, struct err *err)
{
    struct place place;
    struct real_agent agent;
    pthread_t thread;
    CU_ASSERT_EQUAL_FATAL(place_parse(path, &place, err), 0);
    *said = (struct said){.count = 0};
    struct verify_config cfg = {.place = &place, .found = remember, .arg = said};
    struct verify_end end = {.id = job, .control = real_start(&agent, root, &thread)};
    int rc = verify_over(&cfg, &end, receipt, tally, err);
    channel_free(end.control);
    CU_ASSERT_EQUAL(pthread_join(thread, NULL), 0);
    CU_ASSERT_EQUAL(agent.status, rc < 0);
    CU_ASSERT_EQUAL(strstr(agent.line, "verify, for") != NULL, rc == 0);
    place_free(&place);
    return rc;
}

static void test_tally(void)
{
    struct scratch s = scratch_begin();
    struct said said;
    struct verify_tally tally;
    struct err err;
    struct stat before, after;
    scratch_dir(s.fd, "copy");
    scratch_file(s.fd, "copy/good", "text");
    scratch_file(s.fd, "copy/bad", "TEXT");
    scratch_file(s.fd, "copy/skipped", "text");
    struct receipt_entry skipped = entry(ENTRY_FILE, RECEIPT_SKIPPED, "skipped");
    CU_ASSERT_EQUAL_FATAL(fstatat(s.fd, "copy/skipped", &before, 0), 0);
    skipped.proof = PROOF_NONE;
    skipped.size = 4;
    skipped.mtime = (struct entry_time){.s = before.st_mtim.tv_sec, .ns = (uint32_t)before.st_mtim.tv_nsec};
    const struct receipt_entry entries[] = {entry(ENTRY_DIR, RECEIPT_MOVED, ""),
                                            entry(ENTRY_FILE, RECEIPT_FAILED, "failed"),
                                            text_entry("bad"),
                                            text_entry("good"),
                                            entry(ENTRY_FILE, RECEIPT_VANISHED, "vanished"),
                                            skipped,
                                            text_entry("gone"),
                                            entry(ENTRY_FILE, RECEIPT_CHANGED, "good")};
    struct receipt_reader *receipt = receipt_of(&s, entries, ARRAY_LEN(entries));
    CU_ASSERT_EQUAL_FATAL(fstatat(s.fd, "copy", &before, 0), 0);
    CU_ASSERT_EQUAL(verify_real(s.path, "penstock://there/copy", receipt, &said, &tally, &err), 0);
    CU_ASSERT(tally.entries[CHECK_RIGHT] == 2 && tally.entries[CHECK_UNPROVED] == 1);
    CU_ASSERT(tally.entries[CHECK_WRONG] == 1 && tally.entries[CHECK_MISSING] == 1);
    CU_ASSERT(tally.entries[CHECK_UNREADABLE] == 0 && tally.not_copied == 3 && tally.bytes == 8);
    CU_ASSERT_EQUAL_FATAL(said.count, 2);
    CU_ASSERT_STRING_EQUAL(said.errs[0].path, "bad"); // in the order of the receipt
    CU_ASSERT_STRING_EQUAL(said.errs[0].node, "there");
    CU_ASSERT_STRING_EQUAL(said.errs[1].path, "gone");
    CU_ASSERT_EQUAL_FATAL(fstatat(s.fd, "copy", &after, 0), 0);
    CU_ASSERT(before.st_mtim.tv_nsec == after.st_mtim.tv_nsec &&
              before.st_mtim.tv_sec == after.st_mtim.tv_sec);
    receipt_reader_free(receipt);
    scratch_end(&s);
}

// More records than can be under way at once, the paths of different lengths, and none at all.
static void test_many(void)
{
    enum { MANY = 9000 };
    struct scratch s = scratch_begin();
    struct said said;
    struct verify_tally tally;
    struct err err;
    char(*paths)[256] = calloc(MANY, sizeof *paths);
    struct receipt_entry *entries = calloc(MANY, sizeof *entries);
    CU_ASSERT_FATAL(paths != NULL && entries != NULL);
    scratch_file(s.fd, "f", "text");
    for (int i = 0; i < MANY; i++) {
        snprintf(paths[i], sizeof paths[i], "gone%0*d", 1 + i % 250, i);
        entries[i] = text_entry(i % 2 == 0 ? "f" : paths[i]);
    }
    struct receipt_reader *receipt = receipt_of(&s, entries, MANY);
    CU_ASSERT_EQUAL(verify_real(NULL, s.path, receipt, &said, &tally, &err), 0);
    CU_ASSERT(tally.entries[CHECK_RIGHT] == MANY / 2 && tally.entries[CHECK_MISSING] == MANY / 2);
    CU_ASSERT(said.count == MANY / 2 && tally.bytes == MANY / 2 * 4);
    CU_ASSERT_STRING_EQUAL(said.errs[7].path, paths[15]);
    CU_ASSERT_STRING_EQUAL(said.errs[7].node, "");
    receipt_reader_free(receipt);
    free(paths);
    free(entries);
    scratch_end(&s);
    s = scratch_begin();
    receipt = receipt_of(&s, NULL, 0);
    CU_ASSERT_EQUAL(verify_real(NULL, s.path, receipt, &said, &tally, &err), 0);
    CU_ASSERT(tally.entries[CHECK_RIGHT] == 0 && said.count == 0);
    receipt_reader_free(receipt);
    scratch_end(&s);
}

// A directory that the agent does not give out: why, and from whom.
static void test_not_there(void)
{
    static const struct {
        const char *path;
        int os;
    } rows[] = {{"penstock://there/none", ENOENT},
                {"penstock://there/f", ENOTDIR},
                {"penstock://there/../x", EACCES},
                {"penstock://there/out", ELOOP}};
    struct scratch s = scratch_begin();
    scratch_file(s.fd, "f", "text");
    scratch_link(s.fd, "out", "/");
    const struct receipt_entry e = text_entry("f");
    struct receipt_reader *receipt = receipt_of(&s, &e, 1);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct said said;
        struct verify_tally tally;
        struct err err;
        CU_ASSERT(verify_real(s.path, rows[i].path, receipt, &said, &tally, &err) < 0);
        CU_ASSERT(err.class == ERR_START && err.os == rows[i].os && said.count == 0);
        CU_ASSERT_STRING_EQUAL(err.node, "there");
    }
    receipt_reader_free(receipt);
    scratch_end(&s);
}

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

void suite_verify(void)
{
    CU_pSuite suite = CU_add_suite("verify", NULL, NULL);
    CU_add_test(suite, "tally", test_tally);
    CU_add_test(suite, "many", test_many);
    CU_add_test(suite, "not_there", test_not_there);
    CU_add_test(suite, "false_agents", test_false_agents);
    CU_add_test(suite, "false_askers", test_false_askers);
}
