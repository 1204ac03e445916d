// The control thread of an agent: greets the coordinator, opens the role, minds the door, passes messages on,
// and ends in order.
#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "mover/agent_inner.h"
#include "mover/slot.h"
#include "proto/hello.h"
#include "proto/version.h"
#include "storage/sys.h"

#define SOFTWARE "penstock " PENSTOCK_VERSION
// Mail goes while less than this waits on the control channel; the rest of its outbox is for answers.
enum { OUTBOX_FULL_BYTES = 512 * KIB };

#define HEARTBEAT_NS (UINT64_C(1000000) * HEARTBEAT_MS)
#define SILENCE_NS   (UINT64_C(1000000) * SILENCE_MS)

void agent_fail(struct agent *a, const struct err *err)
{
    struct message m;
    message_from_err(err, &m);
    mailbox_post(a->mailbox, &m);
}

void agent_problem(struct agent *a, uint64_t segment, uint32_t entry, enum problem_count count,
                   const struct err *err)
{
    struct message m = {.type = MESSAGE_PROBLEM,
                        .problem = {.segment = segment,
                                    .entry = entry,
                                    .count = (uint8_t)count,
                                    .class = (uint8_t)err->class,
                                    .os = (uint32_t)err->os,
                                    .op = blob_text(err->op),
                                    .path = blob_text(err->path),
                                    .text = blob_text(err->text)}};
    mailbox_post(a->mailbox, &m);
}

void agent_notice_err(struct agent *a, const struct err *err)
{
    struct message m = {
        .type = MESSAGE_NOTICE,
        .notice = {.op = blob_text(err->op), .path = blob_text(err->path), .text = blob_text(err->text)}};
    mailbox_post(a->mailbox, &m);
}

void agent_notice(struct agent *a, const char *fmt, ...)
{
    struct err err = {.class = ERR_NONE};
    va_list args;
    va_start(args, fmt);
    vsnprintf(err.text, sizeof err.text, fmt, args);
    va_end(args);
    agent_notice_err(a, &err);
}

void agent_peer_lost(struct agent *a, int error)
{
    struct err err;
    bool rules = error == -EPROTO || error == -EMSGSIZE || error == -EBADMSG;
    err_set(&err, rules ? ERR_PROTOCOL : ERR_LOST, -error, "talk to the other agent", NULL, 0, "%s", "");
    // Not of the other one, or the path to it: of this one.
    if (error != -ENOMEM && error != -EMFILE && error != -ENFILE)
        snprintf(err.node, sizeof err.node, "%s", FAIL_OTHER);
    agent_fail(a, &err);
}

uint64_t agent_stream_rate(const struct agent *a)
{
    return a->job.rate_bits > 0 ? u64_max(a->job.rate_bits / 8 / a->job.streams, 1) : 0;
}

void agent_wake_streams(struct agent *a)
{
    for (uint32_t i = 0; i < a->job.streams; i++)
        stream_wake(a->streams[i]);
}

static int say(struct agent *a, const struct message *m)
{
    return channel_send(a->control, m);
}

int agent_refuse(struct agent *a, const struct err *err)
{
    struct message m;
    message_from_err(err, &m);
    a->closing = true; // nothing was started: the coordinator's CLOSE ends it
    return say(a, &m);
}

static int on_hello(struct agent *a, const struct msg_hello *m)
{
    char node[ADDRESS_BYTES_MAX];
    struct message hello;
    struct err err;
    sys_host_name(node);
    hello_make(SOFTWARE, node, &hello);
    a->hello = true;
    int rc = say(a, &hello);
    if (rc < 0 || hello_accept(m, SOFTWARE, &err) == 0)
        return rc;
    return agent_refuse(a, &err);
}

static void dial(struct agent *a, struct stream *s, uint32_t attempt)
{
    struct blob list = blob_of(a->addresses, a->addresses_len);
    if (a->way == LINK_INSIDE)
        stream_dial_inside(s, attempt, &a->acceptor);
    else
        stream_dial(s, attempt, &a->acceptor, &list);
}

static int on_link(struct agent *a, const struct msg_link *m)
{
    if (a->peer == NULL) // a role without connections
        return -EPROTO;
    if (m->dial > LINK_INSIDE || (m->dial == LINK_INSIDE && a->cfg->dials_inside == NULL))
        return -EPROTO;
    a->way = (enum link_way)m->dial;
    if (a->way == LINK_EXPECT)
        return 0;
    free(a->addresses);
    a->addresses = malloc(m->addresses.len + 1);
    if (a->addresses == NULL)
        return -ENOMEM;
    if (m->addresses.len > 0)
        memcpy(a->addresses, m->addresses.bytes, m->addresses.len);
    a->addresses_len = m->addresses.len;
    a->acceptor = m->acceptor;
    dial(a, a->peer, 0);
    return 0;
}

static int on_redial(struct agent *a, const struct msg_redial *m)
{
    if (m->stream >= a->job.streams || a->way == LINK_EXPECT)
        return -EPROTO;
    dial(a, a->streams[m->stream], m->attempt);
    return 0;
}

// The job is over for this agent. In order: streams end their frames and say so; else sockets are shut at
// once.
static int on_close(struct agent *a, const struct msg_close *m)
{
    a->closing = true;
    a->finished = m->finished != 0;
    a->over = true;
    return 0;
}

static int dispatch(struct agent *a, const struct message *m)
{
    if (m->type == MESSAGE_CLOSE)
        return on_close(a, &m->close);
    if (m->type == MESSAGE_PING) {
        struct message pong = {.type = MESSAGE_PONG, .pong = {.cookie = m->ping.cookie}};
        return say(a, &pong);
    }
    if (m->type == MESSAGE_PONG || a->closing)
        return 0;
    if (!a->hello)
        return m->type == MESSAGE_HELLO ? on_hello(a, &m->hello) : -EPROTO;
    if (!a->opened)
        return m->type == MESSAGE_OPEN ? agent_open(a, &m->open) : -EPROTO;
    if (m->type == MESSAGE_LINK)
        return on_link(a, &m->link);
    if (m->type == MESSAGE_REDIAL)
        return on_redial(a, &m->redial);
    return a->role->message(a->self, m);
}

static int take_messages(struct agent *a)
{
    uint16_t type;
    const uint8_t *fields;
    size_t len;
    int rc;
    while (!a->over && (rc = channel_next(a->control, &type, &fields, &len)) != 0) {
        if (rc < 0)
            return rc;
        struct message m;
        rc = message_decode(type, fields, len, &m);
        if (rc == 0)
            rc = dispatch(a, &m);
        if (rc < 0)
            return rc;
    }
    return 0;
}

static uint16_t mail_type(const struct mail *mail)
{
    uint32_t len;
    uint16_t type = 0;
    int rc = message_head(mail->bytes, MESSAGE_BYTES_MAX, &len, &type);
    assert(rc == 0); // encoded here
    return type;
}

// What the threads of connections tell lets others be dialled: all streams when the peer connection stands;
// inside ssh one after the other, since each may ask for a password, and a host takes few at a time that have
// not logged in.
static void watch_links(struct agent *a, const struct mail *mail)
{
    struct message m;
    if (a->over || a->way == LINK_EXPECT || // over: the streams are gone
        message_decode(mail_type(mail), mail->bytes + MESSAGE_HEAD_BYTES, mail->len - MESSAGE_HEAD_BYTES,
                       &m) < 0)
        return;
    bool linked = m.type == MESSAGE_LINKED;
    bool peer = linked && m.linked.kind == GREET_PEER;
    bool first =
        (linked && m.linked.kind == GREET_DATA && m.linked.attempt == 0) ||
        (m.type == MESSAGE_LINK_FAILED && m.link_failed.kind == GREET_DATA && m.link_failed.attempt == 0);
    uint32_t more = a->way == LINK_INSIDE ? (peer || first) : peer ? a->job.streams : 0;
    for (; more > 0 && a->dialled < a->job.streams; more--)
        dial(a, a->streams[a->dialled++], 0);
}

static int forward_one(struct agent *a)
{
    struct mail *mail = a->mail;
    int rc = channel_send_bytes(a->control, mail_type(mail), mail->bytes + MESSAGE_HEAD_BYTES,
                                mail->len - MESSAGE_HEAD_BYTES);
    watch_links(a, mail);
    a->mail = mail->next;
    free(mail);
    return rc;
}

static bool mail_may_go(const struct agent *a)
{
    return channel_outbox_bytes(a->control) < OUTBOX_FULL_BYTES;
}

// Passes on what the control channel has room for. A coordinator that rests for a while is no fault: mail
// waits for it, here and in the mailbox.
static int forward_mail(struct agent *a)
{
    int rc = mailbox_failed(a->mailbox);
    if (a->mail == NULL && mail_may_go(a)) {
        bool crowded = mailbox_bytes(a->mailbox) >= MAILBOX_CROWDED_BYTES;
        a->mail = mailbox_take(a->mailbox);
        if (crowded && a->peer != NULL)
            stream_wake(a->peer);
    }
    while (rc == 0 && a->mail != NULL && mail_may_go(a))
        rc = forward_one(a);
    return rc;
}

static void take_arrivals(struct agent *a)
{
    struct arrival got;
    while (door_next(a->door, &got)) {
        struct conn conn = {
            .fd = got.fd, .attempt = got.ask.attempt, .key_in = got.key_in, .key_out = got.key_out};
        bool good = a->opened && got.proved;
        if (good && got.preamble.kind == GREET_PEER && got.ask.session == 0)
            stream_give(a->peer, &conn);
        else if (good && got.preamble.kind == GREET_DATA && got.ask.session == 0 &&
                 got.ask.stream < a->job.streams)
            stream_give(a->streams[got.ask.stream], &conn);
        else
            close(got.fd);
        seal_wipe(&conn, sizeof conn);
    }
}

static int take_handoff(struct agent *a)
{
    for (;;) {
        int fd;
        uint8_t bytes[PREAMBLE_BYTES];
        int64_t len = net_take_fd(a->cfg->handoff_fd, &fd, bytes, sizeof bytes);
        if (len <= 0)
            return (int)len;
        struct preamble p;
        if (len == PREAMBLE_BYTES && preamble_decode(bytes, &p) == 0 && p.kind != GREET_CONTROL)
            door_add(a->door, fd, &p);
        else
            close(fd);
    }
}

enum { POLL_CONTROL_IN, POLL_CONTROL_OUT, POLL_MAIL, POLL_HANDOFF, POLL_FIXED };

static int turn(struct agent *a)
{
    struct pollfd fds[POLL_FIXED + AGENT_LISTEN_MAX + GREETING_CONNECTIONS];
    short events = channel_events(a->control);
    fds[POLL_CONTROL_IN] = (struct pollfd){.fd = channel_fd_in(a->control), .events = events & POLLIN};
    fds[POLL_CONTROL_OUT] =
        (struct pollfd){.fd = (events & POLLOUT) != 0 ? channel_fd_out(a->control) : -1, .events = POLLOUT};
    fds[POLL_MAIL] = (struct pollfd){.fd = mail_may_go(a) ? mailbox_fd(a->mailbox) : -1, .events = POLLIN};
    fds[POLL_HANDOFF] = (struct pollfd){.fd = a->cfg->handoff_fd, .events = POLLIN};
    nfds_t count = POLL_FIXED;
    for (int i = 0; i < a->listen_count; i++)
        fds[count++] = (struct pollfd){.fd = a->resting ? -1 : a->listen_fds[i], .events = POLLIN};
    nfds_t door_at = count;
    int timeout_ms = HEARTBEAT_MS;
    size_t waiting = door_poll(a->door, fds + count, GREETING_CONNECTIONS, &timeout_ms);
    count += waiting;
    if (poll(fds, count, timeout_ms < 0 || timeout_ms > HEARTBEAT_MS ? HEARTBEAT_MS : timeout_ms) < 0 &&
        errno != EINTR)
        return -errno;
    a->resting = false;
    for (int i = 0; i < a->listen_count; i++)
        if ((fds[POLL_FIXED + i].revents & POLLIN) != 0 && door_accept(a->door, a->listen_fds[i]) < 0)
            a->resting = true;
    door_step(a->door, fds + door_at, waiting);
    int rc = a->cfg->handoff_fd >= 0 ? take_handoff(a) : 0;
    if (rc < 0)
        return rc; // the listener is gone, and a job does not outlive it
    take_arrivals(a);
    rc = channel_pump(a->control);
    int taken = take_messages(a); // what came whole before the connection ended counts
    return taken < 0 ? taken : rc;
}

static int heartbeat(struct agent *a)
{
    uint64_t now_ns = sys_clock_ns();
    if (now_ns - channel_heard_ns(a->control) > SILENCE_NS)
        return -ETIMEDOUT;
    if (now_ns - a->ping_ns < HEARTBEAT_NS)
        return 0;
    a->ping_ns = now_ns;
    struct message m = {.type = MESSAGE_PING, .ping = {.cookie = now_ns}};
    return a->hello ? say(a, &m) : 0;
}

// The control thread never waits for storage: it only looks at those who do.
static void look_at_storage(struct agent *a)
{
    struct err err;
    if (a->watch == NULL || a->unanswered || storage_watch_look(a->watch, sys_clock_ns(), &err) == 0)
        return;
    a->unanswered = true;
    agent_fail(a, &err);
}

// All threads of the job end. In order when the job is finished, at once else. False: some wait for storage
// that does not answer, and all are left where they are.
static bool end_threads(struct agent *a)
{
    if (!a->opened)
        return true;
    // Senders end their streams with a word; receivers have everything and need not wait for it.
    bool orderly = a->finished && a->role == &role_source;
    for (uint32_t i = 0; a->streams != NULL && i < a->job.streams; i++) {
        if (a->streams[i] != NULL && orderly)
            stream_stop(a->streams[i]);
        else if (a->streams[i] != NULL)
            stream_kill(a->streams[i]);
    }
    if (a->peer != NULL)
        stream_kill(a->peer);
    a->role->stop(a->self);
    if (a->watch != NULL && storage_watch_is_slow(a->watch, sys_clock_ns()))
        return false;
    for (uint32_t i = 0; a->streams != NULL && i < a->job.streams; i++)
        stream_join_free(a->streams[i]);
    stream_join_free(a->peer);
    a->role->close(a->self, a->finished);
    free(a->streams);
    return true;
}

// The last word, and everything before it, to the coordinator. As far as it goes: the coordinator does not
// wait for ever either.
static void say_closed(struct agent *a)
{
    struct rusage usage;
    struct message m = {.type = MESSAGE_CLOSED,
                        .closed = {.kept_bytes = a->kept_bytes, .free_bytes = a->free_bytes}};
    if (getrusage(RUSAGE_SELF, &usage) == 0) {
        m.closed.resident_bytes = (uint64_t)usage.ru_maxrss * KIB;
        m.closed.cpu_us = (uint64_t)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000000 +
                          (uint64_t)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
    }
    int rc = 0;
    bool said = false;
    uint64_t deadline_ns = sys_clock_ns() + SILENCE_NS;
    // Until the coordinator closes: a connection closed here with something unread would be reset, and CLOSED
    // with it.
    while (rc == 0 && sys_clock_ns() < deadline_ns) {
        rc = forward_mail(a);
        if (rc == 0 && !said && a->mail == NULL && mailbox_bytes(a->mailbox) == 0) {
            rc = say(a, &m);
            said = true;
        }
        bool more = channel_outbox_bytes(a->control) > 0;
        struct pollfd p[2] = {{.fd = channel_fd_in(a->control), .events = POLLIN},
                              {.fd = more ? channel_fd_out(a->control) : -1, .events = POLLOUT}};
        if (rc == 0)
            rc = poll(p, 2, HEARTBEAT_MS) < 0 ? -errno : channel_pump(a->control);
        uint16_t type;
        const uint8_t *fields;
        size_t len;
        while (rc == 0 && channel_next(a->control, &type, &fields, &len) > 0)
            ; // words that crossed ours
    }
}

// Every large file of the segments under way may be open at once: the soft limits go up to the hard ones. As
// far as they go: what is missing later is told by the operation that lacks it.
static void raise_limits(void)
{
    static const __rlimit_resource_t limits[] = {RLIMIT_NOFILE, RLIMIT_MEMLOCK};
    for (size_t i = 0; i < ARRAY_LEN(limits); i++) {
        struct rlimit limit;
        if (getrlimit(limits[i], &limit) < 0)
            continue;
        limit.rlim_cur = limit.rlim_max;
        int rc = setrlimit(limits[i], &limit);
        (void)rc;
    }
}

static int agent_init(struct agent *a, const struct agent_config *cfg, struct channel *control)
{
    raise_limits();
    *a = (struct agent){.cfg = cfg, .control = control};
    a->mailbox = mailbox_new();
    a->door = door_new();
    a->ping_ns = sys_clock_ns();
    return a->mailbox != NULL && a->door != NULL ? 0 : -ENOMEM;
}

static int run_job(struct agent *a)
{
    // What came behind the handshake is in the channel already: poll would not tell of it.
    int rc = take_messages(a);
    if (rc == 0)
        rc = forward_mail(a);
    while (rc == 0 && !a->over) {
        rc = turn(a);
        look_at_storage(a);
        if (rc == 0)
            rc = forward_mail(a);
        if (rc == 0)
            rc = heartbeat(a);
    }
    return rc;
}

// What threads may still look at stays when they are left behind.
static void agent_free(struct agent *a)
{
    mail_free(a->mail);
    mailbox_free(a->mailbox);
    storage_watch_free(a->watch);
    free(a->addresses);
    seal_wipe(&a->job, sizeof a->job);
    free(a);
}

enum agent_end agent_run(const struct agent_config *cfg, struct channel *control)
{
    struct agent *a = calloc(1, sizeof *a);
    if (a == NULL) {
        channel_free(control);
        return AGENT_FAILED;
    }
    int rc = agent_init(a, cfg, control);
    if (rc == 0)
        rc = run_job(a);
    for (int i = 0; i < a->listen_count; i++)
        close(a->listen_fds[i]);
    bool ended = end_threads(a);
    if (!ended)
        agent_audit(a, "storage does not answer, threads are left behind");
    if (a->over)
        say_closed(a);
    else if (rc != -ENODATA && a->opened)
        agent_audit(a, strerrordesc_np(-rc));
    door_free(a->door);
    // By name: what a process has open is closed when its last thread is gone.
    channel_free(a->control);
    a->control = NULL;
    enum agent_end end = !ended ? AGENT_HANGS : a->over ? AGENT_DONE : AGENT_FAILED;
    if (ended)
        agent_free(a);
    return end;
}
