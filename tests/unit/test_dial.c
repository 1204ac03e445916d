#include "mover/dial.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <CUnit/CUnit.h>

#include "mover/door.h"
#include "proto/limits.h"
#include "proto/wire.h"
#include "storage/sys.h"
#include "tests/unit/hex.h"
#include "tests/unit/scratch.h"

static const uint64_t NS_PER_MS = 1000000;

// One dial, in a thread of its own as in the product.
struct dialler {
    pthread_t thread;
    struct dial_target target;
    uint8_t list[1024];
    enum greet_kind kind;
    struct greet_ask ask;
    uint64_t wait_ms;
    int cancel_fd;
    int rc, fd;
    struct secret key_in, key_out;
    struct err err;
};

static struct secret secret_of(uint8_t first)
{
    struct secret secret;
    count_up(secret.bytes, sizeof(secret.bytes), first);
    return secret;
}

static struct dialler dialler_of(uint8_t secret)
{
    struct dialler d = {.kind = GREET_DATA,
                        .ask = {.session = 1, .stream = 2, .attempt = 3},
                        .wait_ms = 5000,
                        .cancel_fd = -1,
                        .fd = -1};
    count_up(d.target.job.bytes, sizeof(d.target.job.bytes), 1);
    d.target.secret = secret_of(secret);
    return d;
}

static void dialler_address(struct dialler *d, const char *address)
{
    struct wire_writer w;
    size_t used = d->target.addresses.len;
    wire_writer_init(&w, d->list + used, sizeof(d->list) - used);
    wire_put_blob(&w, address, strlen(address));
    int64_t n = wire_written(&w);
    CU_ASSERT_FATAL(n > 0);
    d->target.addresses.len = used + (size_t)n;
}

static void dialler_port(struct dialler *d, uint16_t port)
{
    char address[32];
    snprintf(address, sizeof(address), "127.0.0.1:%u", port);
    dialler_address(d, address);
}

static void *dialler_run(void *arg)
{
    struct dialler *d = arg;
    d->target.addresses.bytes = d->list;
    d->rc = dial_connect(&d->target, d->kind, &d->ask, sys_clock_ns() + d->wait_ms * NS_PER_MS, d->cancel_fd,
                         &d->fd, &d->key_in, &d->key_out, &d->err);
    return NULL;
}

static void dialler_start(struct dialler *d)
{
    CU_ASSERT_EQUAL_FATAL(pthread_create(&d->thread, NULL, dialler_run, d), 0);
}

static void dialler_join(struct dialler *d)
{
    CU_ASSERT_EQUAL_FATAL(pthread_join(d->thread, NULL), 0);
}

static int listen_begin(uint16_t *port)
{
    int fds[NET_LISTEN_MAX];
    struct err err;
    CU_ASSERT_EQUAL_FATAL(net_listen("127.0.0.1", 0, 0, NET_V4, fds, port, &err), 1);
    return fds[0];
}

static uint16_t closed_port(void)
{
    uint16_t port;
    close(listen_begin(&port));
    return port;
}

// Stands at the door of job and secret 1 until somebody has arrived or was refused.
static bool door_stand(int listener, struct arrival *out)
{
    struct door *d = door_new();
    struct job_id job;
    struct secret secret = secret_of(1);
    bool came = false;
    CU_ASSERT_PTR_NOT_NULL_FATAL(d);
    count_up(job.bytes, sizeof(job.bytes), 1);
    door_know(d, &job, &secret);
    for (int i = 0; i < 100 && !came && door_refused(d) == 0; i++) {
        struct pollfd fds[1 + GREETING_CONNECTIONS] = {{.fd = listener, .events = POLLIN}};
        int timeout_ms = 100;
        size_t count = door_poll(d, fds + 1, GREETING_CONNECTIONS, &timeout_ms);
        CU_ASSERT(poll(fds, 1 + count, timeout_ms) >= 0);
        CU_ASSERT_EQUAL(door_accept(d, listener), 0);
        door_step(d, fds + 1, count);
        came = door_next(d, out);
    }
    door_free(d);
    return came;
}

static void expect_linked(struct dialler *d, int listener)
{
    struct arrival a;
    char bytes[8];
    dialler_start(d);
    bool came = door_stand(listener, &a);
    dialler_join(d);
    CU_ASSERT_EQUAL(d->rc, 0);
    CU_ASSERT_TRUE_FATAL(came && d->rc == 0);
    CU_ASSERT_TRUE(a.proved);
    CU_ASSERT_EQUAL(a.preamble.kind, d->kind);
    CU_ASSERT_EQUAL(a.ask.session, 1);
    CU_ASSERT_EQUAL(a.ask.stream, 2);
    CU_ASSERT_EQUAL(a.ask.attempt, 3);
    CU_ASSERT_EQUAL(memcmp(a.ask.nonce, d->ask.nonce, NONCE_BYTES), 0);
    CU_ASSERT_EQUAL(memcmp(&a.key_in, &d->key_out, sizeof(a.key_in)), 0);
    CU_ASSERT_EQUAL(memcmp(&a.key_out, &d->key_in, sizeof(a.key_out)), 0);
    CU_ASSERT_NOT_EQUAL(memcmp(&a.key_in, &a.key_out, sizeof(a.key_in)), 0);
    CU_ASSERT_EQUAL(fcntl(d->fd, F_GETFL) & O_NONBLOCK, 0);
    CU_ASSERT_EQUAL(write(d->fd, "through", 7), 7);
    CU_ASSERT_EQUAL(read(a.fd, bytes, sizeof(bytes)), 7);
    close(a.fd);
    close(d->fd);
}

static void test_good(void)
{
    static const enum greet_kind kinds[] = {GREET_DATA, GREET_PEER};
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
        struct dialler d = dialler_of(1), again = dialler_of(1);
        uint16_t port;
        int listener = listen_begin(&port);
        d.kind = again.kind = kinds[i];
        dialler_port(&d, port);
        dialler_port(&again, port);
        expect_linked(&d, listener);
        expect_linked(&again, listener);
        CU_ASSERT_NOT_EQUAL(memcmp(d.ask.nonce, again.ask.nonce, NONCE_BYTES), 0);
        CU_ASSERT_NOT_EQUAL(memcmp(&d.key_in, &again.key_in, sizeof(d.key_in)), 0);
        close(listener);
    }
}

// The addresses are tried in order, until one answers as it must.
static void test_second_address(void)
{
    struct dialler d = dialler_of(1);
    uint16_t port;
    int listener = listen_begin(&port);
    dialler_port(&d, closed_port());
    dialler_address(&d, "this is none");
    dialler_port(&d, port);
    expect_linked(&d, listener);
    close(listener);
}

static void test_wrong_secret(void)
{
    struct dialler d = dialler_of(2);
    struct arrival a;
    uint16_t port;
    char line[512];
    int listener = listen_begin(&port);
    uint32_t open_before = scratch_open_files();
    dialler_port(&d, port);
    dialler_start(&d);
    CU_ASSERT_FALSE(door_stand(listener, &a));
    dialler_join(&d);
    CU_ASSERT_EQUAL(d.rc, -EACCES);
    CU_ASSERT_EQUAL(d.err.class, ERR_AUTH);
    CU_ASSERT_PTR_NOT_NULL(strstr(err_line(&d.err, line, sizeof(line)), "127.0.0.1:"));
    CU_ASSERT_EQUAL(d.fd, -1);
    CU_ASSERT_EQUAL(scratch_open_files(), open_before);
    close(listener);
}

// What a stranger on the port may do.
struct stranger {
    const uint8_t *words; // said as soon as somebody comes
    size_t len;
    bool echo; // says what it hears
    bool stay; // does not close
};

static void expect_stranger(const struct stranger *s, int expected, enum err_class class)
{
    struct dialler d = dialler_of(1);
    uint16_t port;
    int listener = listen_begin(&port);
    uint8_t heard[PREAMBLE_BYTES + GREET_ASK_BYTES];
    dialler_port(&d, port);
    d.wait_ms = s->stay ? 300 : 5000;
    dialler_start(&d);
    struct pollfd p = {.fd = listener, .events = POLLIN};
    CU_ASSERT_EQUAL(poll(&p, 1, 5000), 1);
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    CU_ASSERT_FATAL(fd >= 0);
    CU_ASSERT_EQUAL(net_read_full(fd, heard, sizeof(heard), sys_clock_ns() + 5000 * NS_PER_MS, -1), 0);
    if (s->len > 0)
        CU_ASSERT_EQUAL(send(fd, s->words, s->len, MSG_NOSIGNAL), (ssize_t)s->len);
    if (s->echo)
        CU_ASSERT_EQUAL(send(fd, heard, sizeof(heard), MSG_NOSIGNAL), sizeof(heard));
    // The dialler may have read the words and hung up already.
    if (!s->stay)
        CU_ASSERT_TRUE(shutdown(fd, SHUT_WR) == 0 || errno == ENOTCONN);
    dialler_join(&d);
    CU_ASSERT_EQUAL(d.rc, expected);
    CU_ASSERT_EQUAL(d.err.class, class);
    CU_ASSERT_EQUAL(d.fd, -1);
    close(fd);
    close(listener);
}

static void test_strangers(void)
{
    uint8_t words[GREET_ANSWER_BYTES] = "HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n";
    struct preamble p = {.kind = GREET_DATA, .version = 77};
    expect_stranger(&(struct stranger){.words = words, .len = sizeof(words)}, -EACCES, ERR_AUTH);
    expect_stranger(&(struct stranger){.words = words, .len = sizeof(words) - 1}, -ECONNRESET, ERR_STREAM);
    expect_stranger(&(struct stranger){.words = words, .len = 3}, -ECONNRESET, ERR_STREAM);
    expect_stranger(&(struct stranger){.len = 0}, -ECONNRESET, ERR_STREAM);
    expect_stranger(&(struct stranger){.stay = true}, -ETIMEDOUT, ERR_STREAM);
    expect_stranger(&(struct stranger){.echo = true}, -EACCES, ERR_AUTH);
    preamble_encode(&p, words);
    expect_stranger(&(struct stranger){.words = words, .len = PREAMBLE_BYTES}, -EPROTONOSUPPORT, ERR_VERSION);
}

// An answer that was good for another connection.
static void test_replayed_answer(void)
{
    struct secret secret = secret_of(1);
    struct greeting said = {0};
    struct preamble p = {.kind = GREET_DATA, .version = WIRE_VERSION};
    struct greet_ask ask = {.session = 1, .stream = 2, .attempt = 3};
    uint8_t answer[GREET_ANSWER_BYTES] = {0};
    count_up(p.job.bytes, sizeof(p.job.bytes), 1);
    preamble_encode(&p, said.preamble);
    greet_ask_encode(&ask, said.ask); // the same but for the nonce
    CU_ASSERT_EQUAL(greet_proof(&secret, &said, true, answer + NONCE_BYTES), 0);
    expect_stranger(&(struct stranger){.words = answer, .len = sizeof(answer)}, -EACCES, ERR_AUTH);
}

static void test_nobody(void)
{
    struct dialler d = dialler_of(1);
    char expected[32], line[512];
    uint16_t port = closed_port();
    dialler_port(&d, closed_port());
    dialler_port(&d, port);
    dialler_run(&d);
    CU_ASSERT_EQUAL(d.rc, -ECONNREFUSED);
    CU_ASSERT_EQUAL(d.err.class, ERR_STREAM);
    snprintf(expected, sizeof(expected), "127.0.0.1:%u", port);
    CU_ASSERT_PTR_NOT_NULL(strstr(err_line(&d.err, line, sizeof(line)), expected)); // the last
}

static void test_cancel(void)
{
    struct dialler d = dialler_of(1);
    uint16_t port;
    int listener = listen_begin(&port), fds[2]; // which never answers
    CU_ASSERT_EQUAL_FATAL(pipe2(fds, O_CLOEXEC), 0);
    dialler_port(&d, port);
    dialler_port(&d, port);
    d.cancel_fd = fds[0];
    d.wait_ms = 60000;
    dialler_start(&d);
    CU_ASSERT_EQUAL(write(fds[1], "x", 1), 1);
    dialler_join(&d);
    CU_ASSERT_EQUAL(d.rc, -ECANCELED);
    CU_ASSERT_EQUAL(d.err.class, ERR_INTERRUPTED);
    close(fds[0]);
    close(fds[1]);
    close(listener);
}

static void test_bad_lists(void)
{
    struct dialler none = dialler_of(1), cut = dialler_of(1), many = dialler_of(1), words = dialler_of(1);
    dialler_run(&none);
    CU_ASSERT_EQUAL(none.rc, -EPROTO);
    CU_ASSERT_EQUAL(none.err.class, ERR_PROTOCOL);
    dialler_port(&cut, 1);
    cut.target.addresses.len--;
    dialler_run(&cut);
    CU_ASSERT_EQUAL(cut.rc, -EPROTO);
    for (int i = 0; i < ADDRESSES_MAX + 1; i++)
        dialler_port(&many, 1);
    dialler_run(&many);
    CU_ASSERT_EQUAL(many.rc, -EPROTO);
    dialler_address(&words, "-oProxyCommand=x");
    dialler_run(&words);
    CU_ASSERT_EQUAL(words.rc, -EINVAL);
    CU_ASSERT_PTR_NOT_NULL(strstr(words.err.path, "-oProxyCommand"));
}

static void test_control(void)
{
    uint16_t port;
    int listener = listen_begin(&port), fd = -1;
    struct job_id job;
    struct err err;
    struct preamble p;
    uint8_t bytes[PREAMBLE_BYTES + 1];
    count_up(job.bytes, sizeof(job.bytes), 5);
    CU_ASSERT_EQUAL_FATAL(dial_control("127.0.0.1", port, NET_ANY, NULL, &job,
                                       sys_clock_ns() + 5000 * NS_PER_MS, -1, &fd, &err),
                          0);
    int came = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    CU_ASSERT_FATAL(came >= 0);
    close(fd);
    ssize_t n = read(came, bytes, sizeof(bytes));
    CU_ASSERT_EQUAL(n, PREAMBLE_BYTES); // that and nothing else
    CU_ASSERT_EQUAL(preamble_decode(bytes, &p), 0);
    CU_ASSERT_EQUAL(p.kind, GREET_CONTROL);
    CU_ASSERT_EQUAL(p.version, WIRE_VERSION);
    CU_ASSERT_EQUAL(memcmp(&p.job, &job, sizeof(job)), 0);
    close(came);
    close(listener);
    CU_ASSERT_EQUAL(dial_control("127.0.0.1", port, NET_ANY, NULL, &job, sys_clock_ns() + 5000 * NS_PER_MS,
                                 -1, &fd, &err),
                    -ECONNREFUSED);
    CU_ASSERT_EQUAL(err.class, ERR_START);
}

void suite_dial(void)
{
    CU_pSuite suite = CU_add_suite("dial", NULL, NULL);
    CU_add_test(suite, "good", test_good);
    CU_add_test(suite, "second_address", test_second_address);
    CU_add_test(suite, "wrong_secret", test_wrong_secret);
    CU_add_test(suite, "strangers", test_strangers);
    CU_add_test(suite, "replayed_answer", test_replayed_answer);
    CU_add_test(suite, "nobody", test_nobody);
    CU_add_test(suite, "cancel", test_cancel);
    CU_add_test(suite, "bad_lists", test_bad_lists);
    CU_add_test(suite, "control", test_control);
}
