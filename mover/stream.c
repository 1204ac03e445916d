// Orders are kept one deep: a newer attempt replaces an older one. The socket is shut down by whoever wants
// the run to end and closed only by the thread itself, under the lock, so that no shutdown hits a foreign
// descriptor.
#include "mover/stream.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "storage/sys.h"

#define DIAL_NS   UINT64_C(10000000000)  // one dial, all addresses
#define INSIDE_NS UINT64_C(120000000000) // one dial inside ssh, which may ask for a password

enum { PROGRAM_END_MS = 2000 }; // for ssh to end by itself once its connection is closed

enum order { ORDER_NONE, ORDER_DIAL, ORDER_DIAL_INSIDE, ORDER_GIVEN };

struct stream {
    struct stream_config cfg;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    // under lock
    enum order order;
    uint32_t attempt; // of the order
    struct conn given;
    uint8_t *addresses; // of the order or the last one
    size_t addresses_len;
    int live_fd; // socket of the run in progress, -1
    bool quit;
    void (*wake)(void *arg);
    void *wake_arg;
    int cancel_fd; // readable: end a dial
    atomic_bool stopping;
};

static void post_linked(struct stream *s, const struct conn *conn)
{
    char local[ADDRESS_BYTES_MAX], remote[ADDRESS_BYTES_MAX];
    net_local(conn->fd, local, sizeof local);
    net_remote(conn->fd, remote, sizeof remote);
    struct message m = {.type = MESSAGE_LINKED,
                        .linked = {.kind = (uint8_t)s->cfg.kind,
                                   .stream = s->cfg.index,
                                   .attempt = conn->attempt,
                                   .local = blob_text(local),
                                   .remote = blob_text(remote)}};
    mailbox_post(s->cfg.mailbox, &m);
}

static void post_failed(struct stream *s, uint32_t attempt, const struct err *err)
{
    char line[TEXT_BYTES_MAX];
    err_line(err, line, sizeof line);
    struct message m = {.type = MESSAGE_LINK_FAILED,
                        .link_failed = {.kind = (uint8_t)s->cfg.kind,
                                        .stream = s->cfg.index,
                                        .attempt = attempt,
                                        .os = (uint32_t)err->os,
                                        .text = blob_text(line)}};
    mailbox_post(s->cfg.mailbox, &m);
}

static void post_ended(struct stream *s, uint32_t attempt, const struct conn_end *end)
{
    if (s->cfg.kind != GREET_DATA)
        return;
    char line[TEXT_BYTES_MAX];
    err_line(&end->err, line, sizeof line);
    struct message m = {.type = MESSAGE_STREAM_ENDED,
                        .stream_ended = {.stream = s->cfg.index,
                                         .attempt = attempt,
                                         .clean = end->clean,
                                         .frames = end->frames,
                                         .os = (uint32_t)end->err.os,
                                         .text = blob_text(end->clean ? "" : line)}};
    mailbox_post(s->cfg.mailbox, &m);
}

// Waits for an order and takes it: the connection, or whom to dial. false: the thread is to end.
static bool next_order(struct stream *s, enum order *order, struct conn *conn, struct dial_target *target)
{
    pthread_mutex_lock(&s->lock);
    while (s->order == ORDER_NONE && !s->quit)
        pthread_cond_wait(&s->changed, &s->lock);
    bool go = !s->quit;
    *order = s->order;
    *conn = s->given;
    conn->attempt = s->attempt;
    if (go) {
        s->order = ORDER_NONE;
        // A copy: a newer order may replace the list while this one dials.
        uint8_t *copy = malloc(s->addresses_len + 1);
        if (copy != NULL && s->addresses_len > 0)
            memcpy(copy, s->addresses, s->addresses_len);
        *target = s->cfg.target;
        target->addresses = blob_of(copy, copy != NULL ? s->addresses_len : 0);
        uint64_t rung;
        ssize_t got = read(s->cancel_fd, &rung, sizeof rung); // empty unless an older order was cancelled
        (void)got;
    }
    pthread_mutex_unlock(&s->lock);
    return go;
}

// The socket becomes the run's, unless a newer order came meanwhile.
static bool go_live(struct stream *s, const struct conn *conn)
{
    pthread_mutex_lock(&s->lock);
    bool go = !s->quit && s->order == ORDER_NONE;
    if (go)
        s->live_fd = conn->fd;
    pthread_mutex_unlock(&s->lock);
    return go;
}

static void run_one(struct stream *s, const struct conn *conn)
{
    struct conn_end end = {.clean = false};
    if (go_live(s, conn)) {
        post_linked(s, conn);
        s->cfg.run(s->cfg.arg, s, conn, &end);
    } else {
        err_set(&end.err, ERR_STREAM, ECANCELED, "", NULL, 0, "replaced by a newer connection");
    }
    pthread_mutex_lock(&s->lock);
    s->live_fd = -1;
    close(conn->fd);
    pthread_mutex_unlock(&s->lock);
    post_ended(s, conn->attempt, &end);
    if (conn->program != 0) {
        struct launched program = {.pid = conn->program, .fd = -1};
        (void)launch_end(&program, PROGRAM_END_MS); // how the connection ended has been told
    }
}

static int dial(struct stream *s, struct conn *conn, const struct dial_target *target, struct err *err)
{
    struct greet_ask ask = {.stream = s->cfg.index, .attempt = conn->attempt};
    return dial_connect(target, s->cfg.kind, &ask, sys_clock_ns() + DIAL_NS, s->cancel_fd, &conn->fd,
                        &conn->key_in, &conn->key_out, err);
}

static int dial_program(struct stream *s, struct conn *conn, const struct dial_target *target,
                        struct err *err)
{
    struct greet_ask ask = {.stream = s->cfg.index, .attempt = conn->attempt};
    struct launched program;
    int rc = dial_inside(target, s->cfg.inside, s->cfg.kind, &ask, sys_clock_ns() + INSIDE_NS, s->cancel_fd,
                         &program, &conn->key_in, &conn->key_out, err);
    if (rc == 0) {
        conn->fd = program.fd;
        conn->program = program.pid;
    }
    return rc;
}

static void *stream_main(void *arg)
{
    struct stream *s = arg;
    if (s->cfg.begin != NULL)
        s->cfg.begin(s->cfg.arg, s);
    enum order order;
    struct conn conn;
    struct dial_target target;
    while (next_order(s, &order, &conn, &target)) {
        struct err err = {.class = ERR_NONE};
        int rc = order == ORDER_DIAL          ? dial(s, &conn, &target, &err)
                 : order == ORDER_DIAL_INSIDE ? dial_program(s, &conn, &target, &err)
                                              : 0;
        if (rc < 0)
            post_failed(s, conn.attempt, &err);
        else
            run_one(s, &conn);
        free((void *)(uintptr_t)target.addresses.bytes);
        seal_wipe(&conn, sizeof conn);
        seal_wipe(&target, sizeof target);
    }
    if (s->cfg.end != NULL)
        s->cfg.end(s->cfg.arg, s);
    return NULL;
}

int stream_new(const struct stream_config *cfg, struct stream **out)
{
    struct stream *s = calloc(1, sizeof *s);
    if (s == NULL)
        return -ENOMEM;
    s->cfg = *cfg;
    s->live_fd = -1;
    s->given.fd = -1;
    atomic_init(&s->stopping, false);
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->changed, NULL);
    s->cancel_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    int rc = s->cancel_fd < 0 ? -errno : -pthread_create(&s->thread, NULL, stream_main, s);
    if (rc < 0) {
        if (s->cancel_fd >= 0)
            close(s->cancel_fd);
        free(s);
        return rc;
    }
    *out = s;
    return 0;
}

// Ends what goes on: a dial by the cancel descriptor, a run by its socket. Under the lock.
static void interrupt(struct stream *s)
{
    uint64_t one = 1;
    ssize_t rung = write(s->cancel_fd, &one, sizeof one);
    (void)rung;
    if (s->live_fd >= 0)
        shutdown(s->live_fd, SHUT_RDWR);
    if (s->wake != NULL)
        s->wake(s->wake_arg);
    pthread_cond_signal(&s->changed);
}

static void drop_given(struct stream *s)
{
    if (s->order == ORDER_GIVEN)
        close(s->given.fd);
    s->order = ORDER_NONE;
}

// Under the lock.
static void order_dial(struct stream *s, enum order order, uint32_t attempt, const struct job_id *acceptor)
{
    s->cfg.target.job = *acceptor;
    s->given = (struct conn){.fd = -1};
    s->order = order;
    s->attempt = attempt;
    interrupt(s);
}

void stream_dial(struct stream *s, uint32_t attempt, const struct job_id *acceptor,
                 const struct blob *addresses)
{
    pthread_mutex_lock(&s->lock);
    drop_given(s);
    uint8_t *copy = malloc(addresses->len + 1);
    if (copy != NULL) {
        if (addresses->len > 0)
            memcpy(copy, addresses->bytes, addresses->len);
        free(s->addresses);
        s->addresses = copy;
        s->addresses_len = addresses->len;
    }
    order_dial(s, ORDER_DIAL, attempt, acceptor);
    pthread_mutex_unlock(&s->lock);
}

void stream_dial_inside(struct stream *s, uint32_t attempt, const struct job_id *acceptor)
{
    pthread_mutex_lock(&s->lock);
    drop_given(s);
    order_dial(s, ORDER_DIAL_INSIDE, attempt, acceptor);
    pthread_mutex_unlock(&s->lock);
}

void stream_give(struct stream *s, const struct conn *conn)
{
    pthread_mutex_lock(&s->lock);
    if (s->quit || conn->attempt < s->attempt) {
        close(conn->fd);
    } else {
        drop_given(s);
        s->given = *conn;
        s->order = ORDER_GIVEN;
        s->attempt = conn->attempt;
        interrupt(s);
    }
    pthread_mutex_unlock(&s->lock);
}

static void quit(struct stream *s, bool now)
{
    atomic_store(&s->stopping, true);
    pthread_mutex_lock(&s->lock);
    s->quit = true;
    drop_given(s);
    if (now || s->live_fd < 0)
        interrupt(s);
    else if (s->wake != NULL)
        s->wake(s->wake_arg);
    pthread_mutex_unlock(&s->lock);
}

void stream_stop(struct stream *s)
{
    quit(s, false);
}

void stream_kill(struct stream *s)
{
    quit(s, true);
}

void stream_join_free(struct stream *s)
{
    if (s == NULL)
        return;
    pthread_join(s->thread, NULL);
    close(s->cancel_fd);
    pthread_mutex_destroy(&s->lock);
    pthread_cond_destroy(&s->changed);
    free(s->addresses);
    seal_wipe(&s->given, sizeof s->given);
    free(s);
}

void stream_set_wake(struct stream *s, void (*wake)(void *arg), void *arg)
{
    pthread_mutex_lock(&s->lock);
    s->wake = wake;
    s->wake_arg = arg;
    pthread_mutex_unlock(&s->lock);
}

void stream_wake(struct stream *s)
{
    pthread_mutex_lock(&s->lock);
    if (s->wake != NULL)
        s->wake(s->wake_arg);
    pthread_mutex_unlock(&s->lock);
}

bool stream_stopping(const struct stream *s)
{
    return atomic_load(&s->stopping);
}

uint32_t stream_index(const struct stream *s)
{
    return s->cfg.index;
}
