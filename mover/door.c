#include "mover/door.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "mover/net.h"
#include "proto/limits.h"
#include "storage/sys.h"

enum { ACCEPTS_AT_ONCE = 64 };

static const uint64_t NS_PER_MS = 1000000;

enum stage {
    STAGE_PREAMBLE,
    STAGE_ASK,
    STAGE_ANSWER, // ours
    STAGE_PROOF,
    STAGE_ARRIVED,
};

struct visitor {
    int fd;
    enum stage stage;
    uint64_t deadline_ns;
    uint8_t bytes[GREET_ANSWER_BYTES]; // what is being read or written, the longest of all
    size_t done;                       // of it
    struct greeting said;
    struct arrival arrival;
};

// Visitors stand in the order in which they came.
struct door {
    struct visitor visitors[GREETING_CONNECTIONS];
    size_t count;
    uint32_t wait_ms;
    bool knows;
    struct job_id job;
    struct secret secret;
    uint64_t refused;
};

struct door *door_new_waiting(uint32_t wait_ms)
{
    struct door *d = calloc(1, sizeof(*d));
    if (d != NULL)
        d->wait_ms = wait_ms;
    return d;
}

struct door *door_new(void)
{
    return door_new_waiting(GREETING_WAIT_MS);
}

void door_free(struct door *d)
{
    if (d == NULL)
        return;
    for (size_t i = 0; i < d->count; i++)
        close(d->visitors[i].fd);
    seal_wipe(d, sizeof(*d));
    free(d);
}

void door_know(struct door *d, const struct job_id *job, const struct secret *secret)
{
    d->knows = true;
    d->job = *job;
    d->secret = *secret;
}

uint64_t door_refused(const struct door *d)
{
    return d->refused;
}

// Takes a visitor out of the row; the descriptor is the caller's then.
static void visitor_leave(struct door *d, size_t i)
{
    d->count--;
    memmove(&d->visitors[i], &d->visitors[i + 1], (d->count - i) * sizeof(d->visitors[0]));
    seal_wipe(&d->visitors[d->count], sizeof(d->visitors[0]));
}

static void visitor_refuse(struct door *d, size_t i)
{
    close(d->visitors[i].fd);
    visitor_leave(d, i);
    d->refused++;
}

// Reads up to `len` bytes of a stage and not one more: what follows is for whoever gets the socket. 1: they
// are there.
static int stage_read(struct visitor *v, size_t len)
{
    assert(len <= sizeof(v->bytes));
    while (v->done < len) {
        ssize_t n = recv(v->fd, v->bytes + v->done, len - v->done, MSG_DONTWAIT);
        if (n == 0)
            return -ECONNRESET;
        if (n < 0 && errno != EINTR)
            return errno == EAGAIN || errno == EWOULDBLOCK ? 0 : -errno;
        v->done += n > 0 ? (size_t)n : 0;
    }
    v->done = 0;
    return 1;
}

static int stage_write(struct visitor *v, size_t len)
{
    while (v->done < len) {
        ssize_t n = send(v->fd, v->bytes + v->done, len - v->done, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n < 0 && errno != EINTR)
            return errno == EAGAIN || errno == EWOULDBLOCK ? 0 : -errno;
        v->done += n > 0 ? (size_t)n : 0;
    }
    v->done = 0;
    return 1;
}

static bool is_foreign(const struct preamble *p)
{
    return p->version < WIRE_VERSION_MIN || p->version > WIRE_VERSION;
}

// What comes after the preamble; -EACCES: nothing.
static int stage_after_preamble(const struct door *d, const struct preamble *p, enum stage *next)
{
    *next = STAGE_ARRIVED;
    if (!d->knows)
        return 0;
    if (is_foreign(p))
        return -EACCES; // its kind means nothing here, and must not pass for one that was proved
    if (p->kind == GREET_CONTROL)
        return 0;
    if (memcmp(p->job.bytes, d->job.bytes, sizeof(d->job.bytes)) != 0)
        return -EACCES;
    *next = STAGE_ASK;
    return 0;
}

static int preamble_taken(const struct door *d, struct visitor *v)
{
    memcpy(v->said.preamble, v->bytes, sizeof(v->said.preamble));
    int rc = preamble_decode(v->bytes, &v->arrival.preamble);
    return rc < 0 ? rc : stage_after_preamble(d, &v->arrival.preamble, &v->stage);
}

// Answers the ask: a nonce of ours, and the proof that we know the secret too.
static int ask_taken(const struct door *d, struct visitor *v)
{
    memcpy(v->said.ask, v->bytes, sizeof(v->said.ask));
    int rc = greet_ask_decode(v->bytes, &v->arrival.ask);
    if (rc == 0)
        rc = sys_random(v->said.acceptor_nonce, sizeof(v->said.acceptor_nonce));
    if (rc == 0)
        rc = greet_proof(&d->secret, &v->said, true, v->bytes + NONCE_BYTES);
    if (rc < 0)
        return rc;
    memcpy(v->bytes, v->said.acceptor_nonce, NONCE_BYTES);
    v->stage = STAGE_ANSWER;
    return 0;
}

static int proof_taken(const struct door *d, struct visitor *v)
{
    uint8_t expected[PROOF_BYTES];
    int rc = greet_proof(&d->secret, &v->said, false, expected);
    if (rc < 0)
        return rc;
    if (!seal_proof_equal(v->bytes, expected))
        return -EACCES;
    rc = greet_keys(&d->secret, &v->said, &v->arrival.key_in, &v->arrival.key_out);
    if (rc < 0)
        return rc;
    v->arrival.proved = true;
    v->stage = STAGE_ARRIVED;
    return 0;
}

// One stage, when all of it is there. 1: there may be more to do; 0: wait; -errno: it broke the rules.
static int visitor_stage(const struct door *d, struct visitor *v)
{
    int rc = 0;
    switch (v->stage) {
    case STAGE_PREAMBLE:
        rc = stage_read(v, PREAMBLE_BYTES);
        return rc > 0 && (rc = preamble_taken(d, v)) == 0 ? 1 : rc;
    case STAGE_ASK:
        rc = stage_read(v, GREET_ASK_BYTES);
        return rc > 0 && (rc = ask_taken(d, v)) == 0 ? 1 : rc;
    case STAGE_ANSWER:
        rc = stage_write(v, GREET_ANSWER_BYTES);
        v->stage = rc > 0 ? STAGE_PROOF : v->stage;
        return rc;
    case STAGE_PROOF:
        rc = stage_read(v, GREET_PROOF_BYTES);
        return rc > 0 && (rc = proof_taken(d, v)) == 0 ? 1 : rc;
    case STAGE_ARRIVED:
        return 0;
    }
    return -EPROTO;
}

static void visitor_move(struct door *d, size_t i)
{
    int rc;
    do {
        rc = visitor_stage(d, &d->visitors[i]);
    } while (rc > 0);
    if (rc < 0)
        visitor_refuse(d, i);
}

static bool nonblocking_set(int fd, bool on)
{
    int flags = fcntl(fd, F_GETFL);
    return flags >= 0 && fcntl(fd, F_SETFL, on ? flags | O_NONBLOCK : flags & ~O_NONBLOCK) == 0;
}

// Sends the one away that has been here longest without showing who it is. False: all have arrived and wait
// for door_next.
static bool room_make(struct door *d)
{
    for (size_t i = 0; i < d->count; i++) {
        if (d->visitors[i].stage != STAGE_ARRIVED) {
            visitor_refuse(d, i);
            return true;
        }
    }
    return false;
}

void door_add(struct door *d, int fd, const struct preamble *preamble)
{
    struct visitor v = {.fd = fd, .deadline_ns = sys_clock_ns() + d->wait_ms * NS_PER_MS};
    int rc = 0;
    if (preamble != NULL) {
        v.arrival.preamble = *preamble;
        preamble_encode(preamble, v.said.preamble);
        rc = stage_after_preamble(d, preamble, &v.stage);
    }
    bool full = d->count == GREETING_CONNECTIONS;
    if (rc < 0 || !nonblocking_set(fd, true) || (full && !room_make(d))) {
        close(fd);
        d->refused++;
        return;
    }
    d->visitors[d->count++] = v;
    visitor_move(d, d->count - 1);
}

// Errors of accept that are the connection's, see accept(2).
static bool is_of_connection(int error)
{
    return error == EINTR || error == ECONNABORTED || error == EPROTO || error == ENETDOWN ||
           error == ENOPROTOOPT || error == EHOSTDOWN || error == ENONET || error == EHOSTUNREACH ||
           error == EOPNOTSUPP || error == ENETUNREACH || error == EPERM;
}

int door_accept(struct door *d, int listen_fd)
{
    for (int i = 0; i < ACCEPTS_AT_ONCE; i++) {
        int fd = accept4(listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return 0;
        if (fd < 0 && !is_of_connection(errno))
            return -errno;
        if (fd < 0)
            continue;
        if (net_tune(fd) == 0) {
            door_add(d, fd, NULL);
        } else {
            close(fd);
            d->refused++;
        }
    }
    return 0;
}

static int timeout_until(uint64_t deadline_ns, uint64_t now_ns)
{
    if (deadline_ns <= now_ns)
        return 0;
    return (int)u64_min(u64_div_up(deadline_ns - now_ns, NS_PER_MS), INT_MAX);
}

size_t door_poll(struct door *d, struct pollfd *fds, size_t max, int *timeout_ms)
{
    size_t count = 0;
    uint64_t now = sys_clock_ns();
    for (size_t i = 0; i < d->count && count < max; i++) {
        const struct visitor *v = &d->visitors[i];
        bool arrived = v->stage == STAGE_ARRIVED;
        int wait_ms = arrived ? 0 : timeout_until(v->deadline_ns, now); // an arrival is not to wait
        if (*timeout_ms < 0 || wait_ms < *timeout_ms)
            *timeout_ms = wait_ms;
        if (!arrived)
            fds[count++] =
                (struct pollfd){.fd = v->fd, .events = v->stage == STAGE_ANSWER ? POLLOUT : POLLIN};
    }
    return count;
}

void door_step(struct door *d, const struct pollfd *fds, size_t count)
{
    for (size_t f = 0; f < count; f++) {
        // A number may stand for another visitor by now, who is asked once too often then.
        for (size_t i = 0; fds[f].revents != 0 && i < d->count; i++) {
            if (d->visitors[i].fd == fds[f].fd) {
                visitor_move(d, i);
                break;
            }
        }
    }
    uint64_t now = sys_clock_ns();
    for (size_t i = d->count; i-- > 0;) {
        if (d->visitors[i].stage != STAGE_ARRIVED && d->visitors[i].deadline_ns <= now)
            visitor_refuse(d, i);
    }
}

bool door_next(struct door *d, struct arrival *out)
{
    size_t i = 0;
    while (i < d->count && d->visitors[i].stage != STAGE_ARRIVED)
        i++;
    if (i == d->count)
        return false;
    struct visitor *v = &d->visitors[i];
    *out = v->arrival;
    out->fd = v->fd;
    out->deadline_ns = v->deadline_ns;
    visitor_leave(d, i);
    if (nonblocking_set(out->fd, false))
        return true;
    close(out->fd); // a descriptor that does not take its flags is of no use
    d->refused++;
    return door_next(d, out);
}
