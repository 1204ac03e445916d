// The child's side of the listener's fork.
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "mover/agent.h"
#include "mover/channel.h"
#include "mover/serve_inner.h"
#include "proto/limits.h"
#include "storage/sys.h"

static const uint64_t NS_PER_MS = 1000000;

// What was set up for the listener is not for its children: a child that caught a signal for it, or kept its
// sockets, would outlive it or speak for it.
static bool inherit_nothing(struct server *s, pid_t parent)
{
    bool ok = s->cfg->in_child() && prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 &&
              getppid() == parent;             // it may have died just before
    ok = ok && prctl(PR_SET_DUMPABLE, 0) == 0; // keys lie in memory
    for (int i = 0; i < s->listeners_count; i++)
        close(s->listeners[i]);
    for (size_t i = 0; i < s->count; i++)
        close(s->children[i].pair);
    close(s->cfg->child_fd);
    close(s->stop_fd);
    door_free(s->door);
    return ok;
}

// Waits for one of `events`. -ETIMEDOUT.
static int wait_events(int fd, short events, uint64_t deadline_ns)
{
    for (;;) {
        struct pollfd p = {.fd = fd, .events = events};
        uint64_t now = sys_clock_ns();
        if (now >= deadline_ns)
            return -ETIMEDOUT;
        int n = poll(&p, 1, (int)u64_min(u64_div_up(deadline_ns - now, NS_PER_MS), INT_MAX));
        if (n > 0)
            return 0;
        if (n < 0 && errno != EINTR)
            return -errno;
    }
}

static int handshake(struct channel *c, uint64_t deadline_ns)
{
    int rc = 0;
    while (rc == 0 && !channel_ready(c)) {
        rc = wait_events(channel_fd_in(c), channel_events(c), deadline_ns);
        if (rc == 0)
            rc = channel_pump(c);
    }
    // Who spoke and closed at once is gone, but has shown its key.
    return channel_ready(c) ? 0 : rc;
}

static int note_send(int pair, enum note_kind kind, const char *text)
{
    struct child_note note = {.kind = (char)kind};
    snprintf(note.text, sizeof(note.text), "%s", text);
    ssize_t n = send(pair, &note, sizeof(note), MSG_NOSIGNAL);
    return n < 0 ? -errno : 0;
}

// Tells the listener that this child has a job, and takes its word.
static int word_take(int pair, uint64_t deadline_ns, uint8_t *word)
{
    int rc = note_send(pair, NOTE_PROVED, "");
    if (rc == 0)
        rc = wait_events(pair, POLLIN, deadline_ns);
    if (rc < 0)
        return rc;
    ssize_t n = recv(pair, word, sizeof(*word), MSG_DONTWAIT);
    return n < 0 ? -errno : n == 0 ? -ECONNRESET : 0;
}

// Says why there will be no job, and waits until that is on its way.
static int refusal_send(struct channel *c, const char *words, uint64_t deadline_ns)
{
    struct err err;
    struct message m;
    err_set(&err, ERR_START, 0, "start", NULL, 0, "%s", words);
    message_from_err(&err, &m);
    int rc = channel_send(c, &m);
    while (rc == 0 && channel_outbox_bytes(c) > 0) {
        rc = wait_events(channel_fd_out(c), channel_events(c), deadline_ns);
        if (rc == 0)
            rc = channel_pump(c);
    }
    return rc;
}

static int job_run(const struct server *s, struct channel *c, int pair)
{
    struct agent_config agent = {
        .root = s->cfg->root,
        .read_only = s->cfg->read_only,
        .family = s->cfg->family,
        .handoff_fd = pair,
        .port = s->port,
        .say = s->cfg_say,
        .arg = s->cfg_arg,
    };
    return agent_run(&agent, c) == AGENT_DONE ? 0 : 1; // the caller ends by _exit
}

// The exit status of the child.
static int child_run(const struct server *s, const struct arrival *a, int pair)
{
    struct tls *tls;
    struct channel *c;
    int rc = tls_server_new(s->cfg->keys, &tls);
    if (rc == 0)
        rc = channel_tls_new(a->fd, tls, MESSAGE_BYTES_MAX, &c);
    if (rc < 0)
        return note_send(pair, NOTE_REFUSED, strerrordesc_np(-rc)) < 0 ? 2 : 1;
    rc = handshake(c, a->deadline_ns);
    if (rc < 0) {
        const char *why = channel_why(c);
        int sent = note_send(pair, NOTE_REFUSED, why[0] != '\0' ? why : strerrordesc_np(-rc));
        channel_free(c);
        return sent < 0 ? 2 : 1;
    }
    uint8_t word = 0;
    rc = word_take(pair, a->deadline_ns, &word);
    if (rc == 0 && word == WORD_GO)
        return job_run(s, c, pair);
    if (rc == 0)
        rc = refusal_send(
            c, word == WORD_BUSY ? "the agent runs as many jobs as it may" : "the job runs here already",
            a->deadline_ns);
    channel_free(c);
    return rc < 0 ? 2 : 1;
}

void serve_child(struct server *s, const struct arrival *a, int pair, pid_t parent)
{
    _exit(inherit_nothing(s, parent) ? child_run(s, a, pair) : 2);
}
