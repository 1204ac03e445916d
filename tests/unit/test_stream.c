// A thread with one connection at a time: orders, runs, and how they end.
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <netinet/in.h>
#include <unistd.h>

#include <CUnit/CUnit.h>

#include "mover/stream.h"
#include "mover/wake.h"
#include "storage/sys.h"
#include "tests/unit/scratch.h"

enum { WAIT_MS = 10000 };

// A stream whose run counts the bytes that come until its socket ends or, when it is asked to stop, until
// nothing more is there.
struct kit {
    struct stream *s;
    struct mailbox *mail;
    struct mail *unread;
    struct message message; // the last that was taken
    struct mail *taken;
    int wake_fd;
    atomic_uint begun, ended, runs, running;
};

static void run(void *arg, struct stream *s, const struct conn *conn, struct conn_end *end)
{
    struct kit *k = arg;
    uint8_t bytes[100];
    CU_ASSERT_EQUAL(atomic_fetch_add(&k->running, 1), 0); // one at a time
    atomic_fetch_add(&k->runs, 1);
    for (;;) {
        ssize_t got = recv(conn->fd, bytes, sizeof bytes, MSG_DONTWAIT);
        if (got > 0) {
            end->frames += (uint64_t)got;
            continue;
        }
        end->clean = got < 0 && errno == EAGAIN && stream_stopping(s);
        if (got == 0 || end->clean)
            break;
        struct pollfd fds[2] = {{.fd = conn->fd, .events = POLLIN}, {.fd = k->wake_fd, .events = POLLIN}};
        CU_ASSERT(poll(fds, 2, WAIT_MS) > 0);
        wake_drain(k->wake_fd);
    }
    if (!end->clean)
        err_set(&end->err, ERR_STREAM, ECONNRESET, "count", NULL, 0, NULL);
    atomic_fetch_sub(&k->running, 1);
}

static void wake(void *arg)
{
    wake_signal(*(int *)arg);
}

static void begin(void *arg, struct stream *s)
{
    struct kit *k = arg;
    atomic_fetch_add(&k->begun, 1);
    CU_ASSERT_EQUAL(stream_index(s), 3);
    stream_set_wake(s, wake, &k->wake_fd);
}

static void end(void *arg, struct stream *s)
{
    struct kit *k = arg;
    atomic_fetch_add(&k->ended, 1);
    stream_set_wake(s, NULL, NULL);
}

static void kit_begin(struct kit *k, enum greet_kind kind)
{
    memset(k, 0, sizeof *k);
    k->mail = mailbox_new();
    k->wake_fd = wake_open();
    CU_ASSERT_FATAL(k->mail != NULL && k->wake_fd >= 0);
    struct stream_config cfg = {
        .kind = kind, .index = 3, .mailbox = k->mail, .run = run, .begin = begin, .end = end, .arg = k};
    CU_ASSERT_EQUAL_FATAL(stream_new(&cfg, &k->s), 0);
}

static void free_mail(struct mail *mail)
{
    while (mail != NULL) {
        struct mail *next = mail->next;
        free(mail);
        mail = next;
    }
}

// After stop or kill.
static void kit_join(struct kit *k)
{
    stream_join_free(k->s);
    k->s = NULL;
    CU_ASSERT(atomic_load(&k->begun) == 1 && atomic_load(&k->ended) == 1);
    CU_ASSERT_EQUAL(atomic_load(&k->running), 0);
}

static void kit_end(struct kit *k)
{
    if (k->s != NULL)
        kit_join(k);
    free_mail(k->taken);
    free_mail(k->unread);
    mailbox_free(k->mail);
    close(k->wake_fd);
}

// The next word of the stream, waited for; blobs hold until the next call. NULL: none came.
static const struct message *kit_word(struct kit *k)
{
    struct pollfd p = {.fd = mailbox_fd(k->mail), .events = POLLIN};
    free(k->taken);
    k->taken = NULL;
    if (k->unread == NULL && poll(&p, 1, k->s != NULL ? WAIT_MS : 0) == 1)
        k->unread = mailbox_take(k->mail);
    if (k->unread == NULL)
        return NULL;
    k->taken = k->unread;
    k->unread = k->unread->next;
    k->taken->next = NULL;
    uint32_t len;
    uint16_t type;
    CU_ASSERT_EQUAL_FATAL(message_head(k->taken->bytes, MESSAGE_BYTES_MAX, &len, &type), 0);
    CU_ASSERT_EQUAL_FATAL(message_decode(type, k->taken->bytes + MESSAGE_HEAD_BYTES, len, &k->message), 0);
    return &k->message;
}

static void expect_linked(struct kit *k, uint32_t attempt)
{
    const struct message *m = kit_word(k);
    CU_ASSERT_FATAL(m != NULL && m->type == MESSAGE_LINKED);
    CU_ASSERT(m->linked.attempt == attempt && m->linked.stream == 3 && m->linked.kind == GREET_DATA);
    CU_ASSERT(m->linked.session == 0 && m->linked.local.len > 0 && m->linked.remote.len > 0);
}

static void expect_ended(struct kit *k, uint32_t attempt, uint64_t frames, bool clean)
{
    const struct message *m = kit_word(k);
    CU_ASSERT_FATAL(m != NULL && m->type == MESSAGE_STREAM_ENDED);
    const struct msg_stream_ended *e = &m->stream_ended;
    CU_ASSERT(e->attempt == attempt && e->stream == 3 && e->frames == frames && e->clean == clean);
    CU_ASSERT(clean ? e->text.len == 0 : e->text.len > 0 && e->os != 0);
}

static void expect_failed(struct kit *k, uint32_t attempt, uint32_t os)
{
    const struct message *m = kit_word(k);
    CU_ASSERT_FATAL(m != NULL && m->type == MESSAGE_LINK_FAILED);
    const struct msg_link_failed *f = &m->link_failed;
    CU_ASSERT(f->attempt == attempt && f->stream == 3 && f->kind == GREET_DATA && f->text.len > 0);
    CU_ASSERT_EQUAL(f->os, os);
}

// Gives the stream one end of a pair; returns the other.
static int give(struct kit *k, uint32_t attempt)
{
    int fds[2];
    CU_ASSERT_EQUAL_FATAL(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    struct conn conn = {.fd = fds[1], .attempt = attempt};
    stream_give(k->s, &conn);
    return fds[0];
}

// The other end is closed, within a time that fails no slow machine.
static bool is_closed(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    uint8_t byte;
    return poll(&p, 1, WAIT_MS) == 1 && recv(fd, &byte, 1, MSG_DONTWAIT) == 0;
}

static bool is_open(int fd)
{
    uint8_t byte;
    return recv(fd, &byte, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN;
}

// A connection that came in, until its other end goes; then the next.
static void test_given(void)
{
    struct kit k;
    uint32_t open_files = scratch_open_files();
    kit_begin(&k, GREET_DATA);
    for (uint32_t attempt = 0; attempt < 3; attempt++) {
        int fd = give(&k, attempt);
        expect_linked(&k, attempt);
        CU_ASSERT_EQUAL(send(fd, "abcdef", 5 + attempt % 2, MSG_NOSIGNAL), 5 + (ssize_t)attempt % 2);
        close(fd);
        expect_ended(&k, attempt, 5 + attempt % 2, false);
    }
    stream_stop(k.s);
    kit_join(&k);
    CU_ASSERT_PTR_NULL(kit_word(&k));
    CU_ASSERT_EQUAL(atomic_load(&k.runs), 3);
    kit_end(&k);
    CU_ASSERT_EQUAL(scratch_open_files(), open_files);
    stream_join_free(NULL);
}

// A later attempt ends the one that runs, even if its other end says nothing any more.
static void test_replaced(void)
{
    struct kit k;
    kit_begin(&k, GREET_DATA);
    int old = give(&k, 0);
    expect_linked(&k, 0);
    int fd = give(&k, 1);
    expect_ended(&k, 0, 0, false);
    expect_linked(&k, 1);
    CU_ASSERT_TRUE(is_closed(old));
    CU_ASSERT_TRUE(is_open(fd));
    stream_kill(k.s);
    kit_join(&k);
    expect_ended(&k, 1, 0, false);
    CU_ASSERT_TRUE(is_closed(fd));
    kit_end(&k);
    close(old);
    close(fd);
}

// One that was long on its way, of an attempt before the one that runs: it is closed without a word.
static void test_late(void)
{
    struct kit k;
    kit_begin(&k, GREET_DATA);
    int fd = give(&k, 2);
    expect_linked(&k, 2);
    int late = give(&k, 1);
    CU_ASSERT_TRUE(is_closed(late));
    CU_ASSERT_TRUE(is_open(fd));
    CU_ASSERT_EQUAL(send(fd, "abc", 3, MSG_NOSIGNAL), 3);
    shutdown(fd, SHUT_WR);
    expect_ended(&k, 2, 3, false);
    stream_kill(k.s);
    kit_join(&k);
    CU_ASSERT_PTR_NULL(kit_word(&k));
    kit_end(&k);
    close(late);
    close(fd);
}

// Many orders one after the other: only the last one stands, and every socket but its own is closed.
static void test_many_orders(void)
{
    struct kit k;
    int fds[40];
    kit_begin(&k, GREET_DATA);
    for (uint32_t i = 0; i < ARRAY_LEN(fds); i++)
        fds[i] = give(&k, i);
    const struct message *m;
    bool linked = false;
    while (!linked && (m = kit_word(&k)) != NULL)
        linked = m->type == MESSAGE_LINKED && m->linked.attempt == ARRAY_LEN(fds) - 1;
    CU_ASSERT_TRUE(linked);
    for (uint32_t i = 0; i + 1 < ARRAY_LEN(fds); i++)
        CU_ASSERT_TRUE(is_closed(fds[i]));
    CU_ASSERT_TRUE(is_open(fds[ARRAY_LEN(fds) - 1]));
    stream_kill(k.s);
    kit_end(&k);
    for (uint32_t i = 0; i < ARRAY_LEN(fds); i++)
        close(fds[i]);
}

// The peer connection ends without a word: who runs it speaks.
static void test_peer(void)
{
    struct kit k;
    kit_begin(&k, GREET_PEER);
    int fd = give(&k, 0);
    const struct message *m = kit_word(&k);
    CU_ASSERT_FATAL(m != NULL && m->type == MESSAGE_LINKED);
    CU_ASSERT_EQUAL(m->linked.kind, GREET_PEER);
    close(fd);
    stream_kill(k.s);
    kit_join(&k);
    CU_ASSERT_PTR_NULL(kit_word(&k));
    kit_end(&k);
}

// In order: the run takes what has come, and ends as it likes.
static void test_stop(void)
{
    struct kit k;
    kit_begin(&k, GREET_DATA);
    int fd = give(&k, 0);
    expect_linked(&k, 0);
    CU_ASSERT_FALSE(stream_stopping(k.s));
    CU_ASSERT_EQUAL(send(fd, "abc", 3, MSG_NOSIGNAL), 3);
    stream_stop(k.s);
    CU_ASSERT_TRUE(stream_stopping(k.s));
    kit_join(&k);
    expect_ended(&k, 0, 3, true);
    CU_ASSERT_PTR_NULL(kit_word(&k));
    kit_end(&k);
    close(fd);
}

// Without a run: at once, whether in order or not. What comes afterwards is closed.
static void test_stop_idle(void)
{
    for (int kill = 0; kill < 2; kill++) {
        struct kit k;
        uint32_t open_files = scratch_open_files();
        kit_begin(&k, GREET_DATA);
        if (kill)
            stream_kill(k.s);
        else
            stream_stop(k.s);
        int fd = give(&k, 0);
        CU_ASSERT_TRUE(is_closed(fd));
        close(fd);
        kit_join(&k);
        CU_ASSERT_EQUAL(atomic_load(&k.runs), 0);
        CU_ASSERT_PTR_NULL(kit_word(&k));
        kit_end(&k);
        CU_ASSERT_EQUAL(scratch_open_files(), open_files);
    }
}

static void test_wake(void)
{
    struct kit k;
    kit_begin(&k, GREET_DATA);
    int fd = give(&k, 0);
    expect_linked(&k, 0); // begun, so the wake is set
    int other = wake_open();
    stream_set_wake(k.s, wake, &other);
    stream_wake(k.s);
    struct pollfd p = {.fd = other, .events = POLLIN};
    CU_ASSERT_EQUAL(poll(&p, 1, 0), 1);
    wake_drain(other);
    stream_set_wake(k.s, NULL, NULL);
    stream_wake(k.s);
    CU_ASSERT_EQUAL(poll(&p, 1, 0), 0);
    close(fd);
    expect_ended(&k, 0, 0, false);
    stream_stop(k.s);
    kit_end(&k);
    close(other);
}

// ---- dialling ----

// A listener on loopback that lets connections come and never says a word.
static int listen_silently(uint8_t list[64], struct blob *addresses)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CU_ASSERT_FATAL(fd >= 0 && bind(fd, (struct sockaddr *)&at, sizeof at) == 0 && listen(fd, 8) == 0);
    CU_ASSERT_EQUAL_FATAL(getsockname(fd, (struct sockaddr *)&at, &len), 0);
    char text[32];
    int text_len = snprintf(text, sizeof text, "127.0.0.1:%u", ntohs(at.sin_port));
    struct wire_writer w;
    wire_writer_init(&w, list, 64);
    wire_put_blob(&w, text, (size_t)text_len);
    *addresses = blob_of(list, (size_t)wire_written(&w));
    return fd;
}

// Waits until the stream has dialled; its socket at the listener.
static int dialled(int listener)
{
    struct pollfd p = {.fd = listener, .events = POLLIN};
    CU_ASSERT_EQUAL_FATAL(poll(&p, 1, WAIT_MS), 1);
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    CU_ASSERT_FATAL(fd >= 0);
    return fd;
}

static const struct job_id acceptor = {{1}};

static void test_dial_refused(void)
{
    struct kit k;
    uint8_t list[64];
    struct blob addresses;
    kit_begin(&k, GREET_DATA);
    close(listen_silently(list, &addresses));
    stream_dial(k.s, 0, &acceptor, &addresses);
    expect_failed(&k, 0, ECONNREFUSED);
    struct blob none = {0};
    stream_dial(k.s, 1, &acceptor, &none);
    expect_failed(&k, 1, 0);
    int fd = give(&k, 2); // it lives on
    expect_linked(&k, 2);
    close(fd);
    expect_ended(&k, 2, 0, false);
    CU_ASSERT_EQUAL(atomic_load(&k.runs), 1);
    stream_stop(k.s);
    kit_end(&k);
}

// In the middle of a dial to somebody who does not answer: it ends at once, long before its time is up.
static void test_stop_while_dialling(void)
{
    for (int kill = 0; kill < 2; kill++) {
        struct kit k;
        uint8_t list[64];
        struct blob addresses;
        kit_begin(&k, GREET_DATA);
        int listener = listen_silently(list, &addresses);
        stream_dial(k.s, 5, &acceptor, &addresses);
        memset(list, 0xff, sizeof list); // taken over
        int fd = dialled(listener);
        uint64_t began_ns = sys_clock_ns();
        if (kill)
            stream_kill(k.s);
        else
            stream_stop(k.s);
        kit_join(&k);
        CU_ASSERT(sys_clock_ns() - began_ns < UINT64_C(5000000000));
        expect_failed(&k, 5, ECANCELED);
        CU_ASSERT_EQUAL(atomic_load(&k.runs), 0);
        kit_end(&k);
        close(fd);
        close(listener);
    }
}

// A newer order ends a dial: another dial, or a connection that came in.
static void test_dial_replaced(void)
{
    struct kit k;
    uint8_t list[64];
    struct blob addresses;
    kit_begin(&k, GREET_DATA);
    int listener = listen_silently(list, &addresses);
    stream_dial(k.s, 0, &acceptor, &addresses);
    int first = dialled(listener);
    stream_dial(k.s, 1, &acceptor, &addresses);
    expect_failed(&k, 0, ECANCELED);
    int second = dialled(listener);
    int fd = give(&k, 2);
    expect_failed(&k, 1, ECANCELED);
    expect_linked(&k, 2);
    stream_dial(k.s, 3, &acceptor, &addresses); // and a dial ends a run
    expect_ended(&k, 2, 0, false);
    CU_ASSERT_TRUE(is_closed(fd));
    int third = dialled(listener);
    stream_kill(k.s);
    kit_join(&k);
    expect_failed(&k, 3, ECANCELED);
    kit_end(&k);
    close(first);
    close(second);
    close(third);
    close(fd);
    close(listener);
}

// A dial takes the place of a connection that waits to be taken: that is closed.
static void test_dial_replaces_given(void)
{
    uint32_t open_files = scratch_open_files();
    for (int i = 0; i < 20; i++) {
        struct kit k;
        uint8_t list[64];
        struct blob addresses;
        kit_begin(&k, GREET_DATA);
        close(listen_silently(list, &addresses));
        int fd = give(&k, 0);
        stream_dial(k.s, 1, &acceptor, &addresses);
        CU_ASSERT_TRUE(is_closed(fd));
        stream_kill(k.s);
        kit_end(&k);
        close(fd);
    }
    CU_ASSERT_EQUAL(scratch_open_files(), open_files);
}

void suite_stream(void)
{
    CU_pSuite s = CU_add_suite("stream", NULL, NULL);
    CU_add_test(s, "given", test_given);
    CU_add_test(s, "replaced", test_replaced);
    CU_add_test(s, "late", test_late);
    CU_add_test(s, "many_orders", test_many_orders);
    CU_add_test(s, "peer", test_peer);
    CU_add_test(s, "stop", test_stop);
    CU_add_test(s, "stop_idle", test_stop_idle);
    CU_add_test(s, "wake", test_wake);
    CU_add_test(s, "dial_refused", test_dial_refused);
    CU_add_test(s, "stop_while_dialling", test_stop_while_dialling);
    CU_add_test(s, "dial_replaced", test_dial_replaced);
    CU_add_test(s, "dial_replaces_given", test_dial_replaces_given);
}
