#include "mover/serve.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "mover/serve_inner.h"
#include "proto/limits.h"
#include "storage/sys.h"

enum {
    JOBS_DEFAULT = 64,
    // Children that have not proved themselves; beyond, the oldest of them goes.
    GREETING_CHILDREN = 64,
    REST_MS = 1000, // without descriptors the listeners rest until one is given back, or so long
    END_WAIT_MS = 2000,
    STOP_AT = 0, // in the poll set
    SIGNAL_AT = 1,
    FIXED = 2,
};

static const uint64_t NS_PER_MS = 1000000;
// Between two lines of a kind about strangers, who are not to fill the log.
static const uint64_t REFUSED_EVERY_NS = UINT64_C(1000000000), CLOSED_EVERY_NS = UINT64_C(10000000000);

void serve_say(const struct server *s, const char *fmt, ...)
{
    char line[LINE_BYTES];
    va_list args;
    va_start(args, fmt);
    vsnprintf(line, sizeof(line), fmt, args);
    va_end(args);
    s->cfg_say(s->cfg_arg, line);
}

// A stranger was sent away.
static void say_refused(struct server *s, const char *from, const char *why)
{
    struct err err;
    char text[LINE_BYTES / 2];
    uint64_t now = sys_clock_ns();
    if (s->said_ns != 0 && now - s->said_ns < REFUSED_EVERY_NS) {
        s->unsaid++;
        return;
    }
    err_set(&err, ERR_AUTH, 0, "refused", from, strlen(from), NULL);
    snprintf(err.text, sizeof(err.text), "%s", why); // escaped once already; err_line sees to the rest
    err_line(&err, text, sizeof(text));
    if (s->unsaid > 0)
        serve_say(s, "%s (and %u more)", text, s->unsaid);
    else
        serve_say(s, "%s", text);
    s->said_ns = now;
    s->unsaid = 0;
}

static void job_text(const struct job_id *job, char out[2 * sizeof(job->bytes) + 1])
{
    for (size_t i = 0; i < sizeof(job->bytes); i++)
        snprintf(out + 2 * i, 3, "%02x", job->bytes[i]);
}

static size_t children_count(const struct server *s, bool proved)
{
    size_t count = 0;
    for (size_t i = 0; i < s->count; i++)
        count += s->children[i].proved == proved;
    return count;
}

// The child that runs a job. One that has not proved itself may be anybody's.
static struct child *child_find(struct server *s, const struct job_id *job)
{
    for (size_t i = 0; i < s->count; i++) {
        struct child *c = &s->children[i];
        if (c->proved && memcmp(c->job.bytes, job->bytes, sizeof(job->bytes)) == 0)
            return c;
    }
    return NULL;
}

static void child_kill(const struct child *c, int number)
{
    int rc = kill(c->pid, number);
    assert(rc == 0); // it is ours and not reaped
}

static void child_drop(struct server *s, size_t i)
{
    close(s->children[i].pair);
    s->count--;
    memmove(&s->children[i], &s->children[i + 1], (s->count - i) * sizeof(s->children[0]));
    s->rest_until_ns = 0;
}

// Makes room for a child that is not proved yet.
static void child_room(struct server *s)
{
    if (children_count(s, false) < GREETING_CHILDREN)
        return;
    size_t i = 0;
    while (s->children[i].proved) // they stand in the order in which they came
        i++;
    child_kill(&s->children[i], SIGKILL);
    pid_t got;
    do {
        got = waitpid(s->children[i].pid, NULL, 0); // at once: it has touched no storage yet
    } while (got < 0 && errno == EINTR);
    say_refused(s, s->children[i].from, "too many have not shown a key yet");
    child_drop(s, i);
}

static int child_fork(struct server *s, const struct arrival *a)
{
    int pair[2];
    pid_t parent = getpid();
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return -errno;
    pid_t pid = fork();
    if (pid == 0) {
        close(pair[0]);
        serve_child(s, a, pair[1], parent);
    }
    int rc = pid < 0 ? -errno : 0;
    close(pair[1]);
    if (rc < 0) {
        close(pair[0]);
        return rc;
    }
    struct child *c = &s->children[s->count++];
    *c = (struct child){.pid = pid, .pair = pair[0], .job = a->preamble.job};
    net_remote(a->fd, c->from, sizeof(c->from));
    return 0;
}

static void child_start(struct server *s, const struct arrival *a)
{
    child_room(s);
    assert(s->count < s->children_max);
    int rc = child_fork(s, a);
    if (rc < 0)
        serve_say(s, "cannot start a process for a job: %s", strerrordesc_np(-rc));
}

// A child has something to say: that it has proved itself, or why it has not.
static void child_hear(struct server *s, struct child *c)
{
    struct child_note note = {0};
    ssize_t n = recv(c->pair, &note, sizeof(note), MSG_DONTWAIT);
    c->silent = n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR); // its end itself is told by SIGCHLD
    if (n != sizeof(note))
        return;
    note.text[sizeof(note.text) - 1] = '\0';
    if (note.kind == NOTE_REFUSED) {
        say_refused(s, c->from, note.text);
    } else if (note.kind == NOTE_PROVED && !c->proved) {
        bool twice = child_find(s, &c->job) != NULL, busy = children_count(s, true) >= s->jobs_max;
        uint8_t word = twice ? WORD_TWICE : busy ? WORD_BUSY : WORD_GO;
        c->proved = word == WORD_GO;
        n = send(c->pair, &word, sizeof(word), MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n < 0)
            child_kill(c, SIGKILL); // it would wait for the word until its time is up
    }
}

static void child_tell_end(struct server *s, const struct child *c, int status)
{
    char job[2 * sizeof(c->job.bytes) + 1];
    if (!WIFSIGNALED(status))
        return;
    job_text(&c->job, job);
    const char *name = sigabbrev_np(WTERMSIG(status));
    serve_say(s, "job %s: process %d ended by signal %d (SIG%s)", job, (int)c->pid, WTERMSIG(status),
              name != NULL ? name : "?");
}

static void child_fd_empty(const struct server *s)
{
    struct signalfd_siginfo info;
    while (read(s->cfg->child_fd, &info, sizeof(info)) > 0)
        continue;
}

static void children_reap(struct server *s)
{
    child_fd_empty(s); // one signal may stand for many: every child is asked below
    for (size_t i = s->count; i-- > 0;) {
        int status;
        if (waitpid(s->children[i].pid, &status, WNOHANG) == 0)
            continue;
        child_hear(s, &s->children[i]); // its last words
        child_tell_end(s, &s->children[i], status);
        child_drop(s, i);
    }
}

// Answers who speaks another version with the version of this side, so that both can say so.
static void version_answer(struct server *s, const struct arrival *a, const char *from)
{
    struct preamble p = {.kind = a->preamble.kind, .version = WIRE_VERSION, .job = a->preamble.job};
    uint8_t bytes[PREAMBLE_BYTES], rest[4 * KIB];
    char why[80];
    preamble_encode(&p, bytes);
    ssize_t sent = send(a->fd, bytes, sizeof(bytes), MSG_DONTWAIT | MSG_NOSIGNAL);
    ssize_t got = recv(a->fd, rest, sizeof(rest), MSG_DONTWAIT); // left unread it would make close a reset
    snprintf(why, sizeof(why), "it speaks wire version %u, this agent %d to %d%s", a->preamble.version,
             WIRE_VERSION_MIN, WIRE_VERSION, sent < 0 || got == 0 ? ", and is gone" : "");
    say_refused(s, from, why);
}

// Finds the process that an arrival is for. The listener's own copy of the socket is closed by the caller.
static void arrival_route(struct server *s, const struct arrival *a)
{
    static const struct job_id none;
    char from[FROM_BYTES];
    uint8_t bytes[PREAMBLE_BYTES];
    net_remote(a->fd, from, sizeof(from));
    if (a->preamble.version < WIRE_VERSION_MIN || a->preamble.version > WIRE_VERSION) {
        version_answer(s, a, from);
        return;
    }
    struct child *c = child_find(s, &a->preamble.job);
    if (c != NULL) {
        preamble_encode(&a->preamble, bytes);
        int rc = net_pass_fd(c->pair, a->fd, bytes, sizeof(bytes));
        if (rc < 0)
            say_refused(s, from,
                        rc == -EAGAIN ? "its job takes no more connections now" : "its job is ending");
    } else if (a->preamble.kind == GREET_CONTROL && memcmp(&a->preamble.job, &none, sizeof(none)) != 0) {
        child_start(s, a);
    } else {
        say_refused(s, from, "there is no such job here");
    }
}

static void arrivals_route(struct server *s)
{
    struct arrival a;
    while (door_next(s->door, &a)) {
        arrival_route(s, &a);
        close(a.fd);
        s->rest_until_ns = 0;
    }
}

// Fills the poll set: the fixed ones, listeners, pairs, and from *door_at on the door's.
static size_t poll_set(struct server *s, size_t *door_at, int *timeout_ms)
{
    size_t n = FIXED;
    uint64_t now = sys_clock_ns();
    bool resting = now < s->rest_until_ns;
    s->fds[STOP_AT] = (struct pollfd){.fd = s->stop_fd, .events = POLLIN};
    s->fds[SIGNAL_AT] = (struct pollfd){.fd = s->cfg->child_fd, .events = POLLIN};
    for (int i = 0; i < s->listeners_count; i++) // a negative descriptor is skipped by poll
        s->fds[n++] = (struct pollfd){.fd = resting ? -1 : s->listeners[i], .events = POLLIN};
    for (size_t i = 0; i < s->count; i++)
        s->fds[n++] =
            (struct pollfd){.fd = s->children[i].silent ? -1 : s->children[i].pair, .events = POLLIN};
    *door_at = n;
    *timeout_ms = resting ? (int)u64_div_up(s->rest_until_ns - now, NS_PER_MS) : -1;
    return n + door_poll(s->door, s->fds + n, GREETING_CONNECTIONS, timeout_ms);
}

static void listeners_accept(struct server *s)
{
    for (int i = 0; i < s->listeners_count; i++) {
        int rc = s->fds[FIXED + i].revents != 0 ? door_accept(s->door, s->listeners[i]) : 0;
        if (rc == 0)
            continue;
        uint64_t now = sys_clock_ns();
        s->rest_until_ns = now + REST_MS * NS_PER_MS;
        if (s->rest_said_ns == 0 || now - s->rest_said_ns >= CLOSED_EVERY_NS) {
            serve_say(s, "cannot accept connections: %s", strerrordesc_np(-rc));
            s->rest_said_ns = now;
        }
    }
}

static void door_say(struct server *s)
{
    uint64_t refused = door_refused(s->door);
    uint64_t now = sys_clock_ns();
    if (refused == s->refused_said || (s->refused_ns != 0 && now - s->refused_ns < CLOSED_EVERY_NS))
        return;
    serve_say(s, "closed %llu connections that did not greet as they must",
              (unsigned long long)(refused - s->refused_said));
    s->refused_said = refused;
    s->refused_ns = now;
}

static int serve_loop(struct server *s)
{
    for (;;) {
        size_t door_at;
        int timeout_ms;
        size_t n = poll_set(s, &door_at, &timeout_ms);
        size_t pairs_at = FIXED + (size_t)s->listeners_count, pairs = s->count;
        int ready = poll(s->fds, n, timeout_ms);
        if (ready < 0 && errno != EINTR)
            return -errno;
        if (ready < 0)
            continue;
        if (s->fds[STOP_AT].revents != 0)
            return 0;
        for (size_t i = 0; i < pairs; i++) {
            if (s->fds[pairs_at + i].revents != 0)
                child_hear(s, &s->children[i]);
        }
        uint64_t refused = door_refused(s->door);
        door_step(s->door, s->fds + door_at, n - door_at);
        if (refused != door_refused(s->door))
            s->rest_until_ns = 0; // something was closed
        listeners_accept(s);
        arrivals_route(s);
        if (s->fds[SIGNAL_AT].revents != 0)
            children_reap(s);
        door_say(s);
    }
}

// Ends the children. They would die with this process anyhow; this way they are gone when it is.
static void children_end(struct server *s)
{
    uint64_t deadline = sys_clock_ns() + END_WAIT_MS * NS_PER_MS;
    for (size_t i = 0; i < s->count; i++)
        child_kill(&s->children[i], SIGKILL);
    for (uint64_t now = sys_clock_ns(); s->count > 0 && now < deadline; now = sys_clock_ns()) {
        struct pollfd fd = {.fd = s->cfg->child_fd, .events = POLLIN};
        for (size_t i = s->count; i-- > 0;) {
            if (waitpid(s->children[i].pid, NULL, WNOHANG) != 0)
                child_drop(s, i);
        }
        int ready = s->count > 0 ? poll(&fd, 1, (int)u64_div_up(deadline - now, NS_PER_MS)) : 0;
        if (ready > 0)
            child_fd_empty(s);
    }
    while (s->count > 0)
        child_drop(s, 0); // held by a device that does not answer
}

static int refuse(struct err *err, int rc, const char *op, const char *on)
{
    err_set(err, ERR_START, -rc, op, on, on != NULL ? strlen(on) : 0, NULL);
    return rc;
}

static int server_open(struct server *s, struct err *err)
{
    const struct serve_config *cfg = s->cfg;
    int root = sys_openat(AT_FDCWD, cfg->root, O_PATH | O_DIRECTORY, 0);
    int rc = root < 0 ? root : sys_close(root);
    if (rc < 0)
        return refuse(err, rc, "open", cfg->root);
    s->jobs_max = cfg->jobs_max > 0 ? cfg->jobs_max : JOBS_DEFAULT;
    s->children_max = s->jobs_max + GREETING_CHILDREN;
    s->children = calloc(s->children_max, sizeof(*s->children));
    s->fds = calloc(FIXED + NET_LISTEN_MAX + s->children_max + GREETING_CONNECTIONS, sizeof(*s->fds));
    s->door = door_new();
    if (s->children == NULL || s->fds == NULL || s->door == NULL)
        return refuse(err, -ENOMEM, "start", NULL);
    rc = net_listen(cfg->listen_host, cfg->listen_port, 0, cfg->family, s->listeners, &s->port, err);
    if (rc < 0)
        return rc;
    s->listeners_count = rc;
    return 0;
}

static void server_close(struct server *s)
{
    for (int i = 0; i < s->listeners_count; i++)
        close(s->listeners[i]);
    door_free(s->door);
    free(s->children);
    free(s->fds);
}

int serve_run(const struct serve_config *cfg, int stop_fd, void (*say)(void *arg, const char *line),
              void *arg, struct err *err)
{
    struct server s = {.cfg = cfg, .cfg_say = say, .cfg_arg = arg, .stop_fd = stop_fd};
    int rc = cfg->keys->count > 0 ? 0 : refuse(err, -EINVAL, "start without a key", NULL);
    if (rc == 0)
        rc = server_open(&s, err);
    if (rc < 0) {
        server_close(&s);
        return rc;
    }
    for (int i = 0; i < s.listeners_count; i++) {
        char address[ADDRESS_BYTES_MAX];
        net_local(s.listeners[i], address, sizeof(address));
        serve_say(&s, "listening on %s", address);
    }
    rc = serve_loop(&s);
    if (rc < 0)
        refuse(err, rc, "poll", NULL);
    children_end(&s);
    server_close(&s);
    return rc;
}
