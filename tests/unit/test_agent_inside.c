// An agent and programs: it runs the one that it was started with when it is told to dial inside ssh, and
// none else.
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <CUnit/CUnit.h>

#include "mover/agent.h"
#include "mover/engine.h"
#include "mover/inside.h"
#include "proto/greet.h"
#include "proto/version.h"
#include "proto/wire.h"
#include "storage/sys.h"
#include "tests/unit/hex.h"
#include "tests/unit/scratch.h"

#define WAIT_NS UINT64_C(10000000000)

// A source agent in a thread of its own, and the coordinator's end.
struct served {
    struct scratch scratch;
    struct agent_config cfg;
    struct channel *agent, *control;
    struct job_id id;
    pthread_t thread;
    int status;
    uint8_t bytes[MESSAGE_BYTES_MAX]; // of the message heard last
};

static void say_nothing(void *arg, const char *line)
{
    (void)arg;
    (void)line;
}

static void *agent_main(void *arg)
{
    struct served *s = arg;
    s->status = (int)agent_run(&s->cfg, s->agent);
    return NULL;
}

static void tell(struct served *s, const struct message *m)
{
    CU_ASSERT_EQUAL(channel_send(s->control, m), 0);
}

// The next message that is no heartbeat; false: the agent has hung up.
static bool hear(struct served *s, struct message *out)
{
    uint64_t end_ns = sys_clock_ns() + WAIT_NS;
    uint16_t type;
    const uint8_t *fields;
    size_t len;
    int rc = 0;
    for (;;) {
        int got = channel_next(s->control, &type, &fields, &len);
        if (got > 0 && type != MESSAGE_PING) {
            memcpy(s->bytes, fields, len);
            CU_ASSERT_EQUAL_FATAL(message_decode(type, s->bytes, len, out), 0);
            return true;
        }
        if (got > 0)
            continue;
        if (rc < 0 || got < 0)
            return false;
        CU_ASSERT_FATAL(sys_clock_ns() < end_ns);
        struct pollfd p = {.fd = channel_fd_in(s->control), .events = channel_events(s->control)};
        CU_ASSERT_FATAL(poll(&p, 1, 1000) >= 0);
        rc = channel_pump(s->control);
    }
}

static struct message hear_fatal(struct served *s, enum message_type type)
{
    struct message m = {0};
    CU_ASSERT_TRUE_FATAL(hear(s, &m));
    CU_ASSERT_EQUAL_FATAL(m.type, type);
    return m;
}

static void served_open(struct served *s)
{
    struct message m = {.type = MESSAGE_HELLO,
                        .hello = {.version = WIRE_VERSION,
                                  .version_min = WIRE_VERSION_MIN,
                                  .features = FEATURES_HAVE,
                                  .required = FEATURES_REQUIRED,
                                  .software = blob_text("penstock " PENSTOCK_VERSION)}};
    uint8_t paths[600];
    struct wire_writer w;
    const char *path = s->cfg.root != NULL ? "" : s->scratch.path;
    wire_writer_init(&w, paths, sizeof paths);
    wire_put_blob(&w, path, strlen(path));
    tell(s, &m);
    hear_fatal(s, MESSAGE_HELLO);
    m = (struct message){.type = MESSAGE_OPEN,
                         .open = {.role = OPEN_SOURCE,
                                  .job = s->id,
                                  .agent = s->id,
                                  .stripe_bytes = STRIPE_BYTES_MIN,
                                  .streams = 1,
                                  .engine = ENGINE_THREADS,
                                  .io_timeout_s = 60,
                                  .paths = blob_of(paths, (size_t)wire_written(&w))}};
    tell(s, &m);
    hear_fatal(s, MESSAGE_SOURCE_OPENED);
}

// An agent that has opened a job, started with this program, or none.
static void served_begin(struct served *s, char *const *program, bool rooted)
{
    int pair[2];
    pid_t self = getpid();
    *s = (struct served){.scratch = scratch_begin(), .status = -1};
    count_up(s->id.bytes, sizeof s->id.bytes, 1);
    memcpy(s->id.bytes, &self, sizeof self);
    s->cfg = (struct agent_config){.root = rooted ? s->scratch.path : NULL,
                                   .handoff_fd = -1,
                                   .loopback_only = true,
                                   .takes_inside = true,
                                   .dials_inside = program,
                                   .say = say_nothing};
    CU_ASSERT_EQUAL_FATAL(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    CU_ASSERT_EQUAL_FATAL(channel_plain_new(pair[0], pair[0], MESSAGE_BYTES_MAX, &s->agent), 0);
    CU_ASSERT_EQUAL_FATAL(channel_plain_new(pair[1], pair[1], MESSAGE_BYTES_MAX, &s->control), 0);
    CU_ASSERT_EQUAL_FATAL(pthread_create(&s->thread, NULL, agent_main, s), 0);
    served_open(s);
}

// Returns what agent_run did.
static int served_end(struct served *s)
{
    channel_free(s->control);
    CU_ASSERT_EQUAL_FATAL(pthread_join(s->thread, NULL), 0);
    scratch_end(&s->scratch);
    return s->status;
}

static void link_by(struct served *s, uint8_t way)
{
    struct message m = {.type = MESSAGE_LINK, .link = {.dial = way, .streams = 1, .acceptor = s->id}};
    tell(s, &m);
}

// Whoever speaks to an agent without a program, beneath a root or not, cannot make it run one.
static void test_refused(void)
{
    uint32_t open_before = scratch_open_files();
    static const uint8_t ways[] = {LINK_INSIDE, LINK_INSIDE + 1, 255};
    for (size_t i = 0; i < ARRAY_LEN(ways); i++) {
        for (int rooted = 0; rooted < 2; rooted++) {
            struct served s;
            struct message m;
            served_begin(&s, NULL, rooted);
            link_by(&s, ways[i]);
            CU_ASSERT_FALSE(hear(&s, &m));
            CU_ASSERT_EQUAL(served_end(&s), 1);
        }
    }
    CU_ASSERT_EQUAL(scratch_open_files(), open_before);
}

// The program is run, and that it fails is told as of any dial.
static void test_runs(void)
{
    uint32_t open_before = scratch_open_files();
    char sh[] = "sh", c[] = "-c", script[] = "exit 42", *program[] = {sh, c, script, NULL};
    struct served s;
    served_begin(&s, program, false);
    for (int i = 0; i < 2; i++) {
        link_by(&s, LINK_INSIDE);
        struct message m = hear_fatal(&s, MESSAGE_LINK_FAILED);
        char text[TEXT_BYTES_MAX];
        blob_string(&m.link_failed.text, text, sizeof text);
        CU_ASSERT_EQUAL(m.link_failed.kind, GREET_PEER);
        CU_ASSERT_STRING_EQUAL(text, "run sh -c exit 42: ended with status 42");
    }
    CU_ASSERT_EQUAL(served_end(&s), 1); // no CLOSE came
    CU_ASSERT_EQUAL(scratch_open_files(), open_before);
}

// The agent listens for the far end of connections inside ssh, as long as it lives.
static void test_listens(void)
{
    struct served s;
    served_begin(&s, NULL, false);
    CU_ASSERT_EQUAL(inside_listen(&s.id), -EADDRINUSE);
    struct job_id id = s.id;
    served_end(&s);
    int fd = inside_listen(&id);
    CU_ASSERT(fd >= 0);
    close(fd);
}

// An agent raises the limits of its process, which is that of all tests here.
static struct rlimit files_before, locked_before;

static int suite_begin(void)
{
    return getrlimit(RLIMIT_NOFILE, &files_before) < 0 || getrlimit(RLIMIT_MEMLOCK, &locked_before) < 0;
}

static int suite_end(void)
{
    return setrlimit(RLIMIT_NOFILE, &files_before) < 0 || setrlimit(RLIMIT_MEMLOCK, &locked_before) < 0;
}

void suite_agent_inside(void)
{
    CU_pSuite s = CU_add_suite("agent_inside", suite_begin, suite_end);
    CU_add_test(s, "refused", test_refused);
    CU_add_test(s, "runs", test_runs);
    CU_add_test(s, "listens", test_listens);
}
