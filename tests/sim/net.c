#include "tests/sim/net.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mover/net.h"
#include "proto/greet.h"
#include "proto/wire.h"
#include "tests/sim/descriptor.h"
#include "tests/sim/frames.h"
#include "tests/sim/sched.h"
#include "tests/sim/world.h"
#include "tests/sim/wraps.h"

enum { PORT_FIRST = 40000, BACKLOG = 64, KIND_AT = 9 /* of the preamble */, ROOM_MIN_LOG2 = 12 };

// One direction. Counts of bytes since the beginning: taken <= arrived <= written.
struct way {
    uint8_t *bytes; // a ring
    size_t room;
    uint64_t written, arrived, taken;
    uint64_t last_due_ns;
    bool end_arrived; // the writer has shut it, and that has come
    bool deaf;        // the reader has shut it: what arrives is answered by a reset
    struct frames frames;
};

struct connection {
    struct way ways[2]; // [side]: written by that side; the dialler is side 0
    bool reset;
    bool black;   // a host has lost its power: nothing arrives any more, until the reset
    bool cut;     // what is sent now is lost, and soon the connection is reset
    int from;     // side of the source host, whose frames are followed; -1: neither
    uint8_t kind; // enum greet_kind, once it was said
    struct connection *next;
};

// One end; a descriptor and its duplicates share it.
struct socket {
    struct connection *connection;
    unsigned side;
    unsigned references;
    bool shut_write;
};

struct listener {
    struct host *host;
    uint16_t port;
    struct socket *waiting[BACKLOG];
    size_t count;
    struct listener *next;
};

struct delivery {
    struct connection *connection;
    unsigned side;
    uint64_t upto;
    bool end;
};

struct net {
    struct net_trouble trouble;
    struct listener *listeners;
    struct connection *connections;
    uint16_t last_port;
};

static struct net the_net;

void net_begin(void)
{
    the_net = (struct net){.last_port = PORT_FIRST};
    the_net.trouble.delay_ns_max = NS_PER_MS << rng_below(world_rng(), 8);
}

void net_end(void)
{
    while (the_net.connections != NULL) {
        struct connection *c = the_net.connections;
        the_net.connections = c->next;
        free(c->ways[0].bytes);
        free(c->ways[1].bytes);
        free(c);
    }
}

struct net_trouble *net_trouble(void)
{
    return &the_net.trouble;
}

// ---- bytes on their way ----

static void reset(void *arg)
{
    struct connection *c = arg;
    c->reset = true;
    sched_look_again();
}

static void arrive(void *arg)
{
    struct delivery *d = arg;
    struct connection *c = d->connection;
    struct way *way = &c->ways[d->side];
    if (!c->black && !c->reset) {
        way->arrived = u64_max(way->arrived, d->upto);
        way->end_arrived = way->end_arrived || d->end;
        if (way->deaf && way->arrived > way->taken)
            reset(c);
        sched_look_again();
    }
    free(d);
}

static void deliver(struct connection *c, unsigned side, bool end, uint64_t stall_ns)
{
    struct way *way = &c->ways[side];
    struct delivery *d = malloc(sizeof *d);
    assert(d != NULL);
    *d = (struct delivery){.connection = c, .side = side, .upto = way->written, .end = end};
    uint64_t due_ns = sched_now_ns() + 1000 + rng_below(sched_rng(), the_net.trouble.delay_ns_max);
    way->last_due_ns = u64_max(way->last_due_ns, due_ns) + stall_ns;
    sched_at(way->last_due_ns, NULL, arrive, d);
}

static void ring_put(struct way *way, const uint8_t *bytes, size_t len)
{
    for (size_t done = 0; done < len;) {
        size_t at = (way->written + done) % way->room;
        size_t n = u64_min(len - done, way->room - at);
        memcpy(way->bytes + at, bytes + done, n);
        done += n;
    }
}

static void ring_get(const struct way *way, uint8_t *bytes, size_t len)
{
    for (size_t done = 0; done < len;) {
        size_t at = (way->taken + done) % way->room;
        size_t n = u64_min(len - done, way->room - at);
        memcpy(bytes + done, way->bytes + at, n);
        done += n;
    }
}

// Bytes of the followed direction of a data connection are in the ring: lets trouble happen to them. Returns
// how many arrive.
static size_t pass_frames(struct connection *c, struct way *way, const uint8_t *bytes, size_t len,
                          uint64_t *stall_ns)
{
    if (c->cut)
        return 0;
    struct frames_found found;
    frames_pass(&way->frames, &the_net.trouble, bytes, len, &found);
    for (unsigned i = 0; i < found.flips; i++)
        way->bytes[(way->written + found.flip_at[i]) % way->room] ^=
            (uint8_t)(1u << rng_below(world_rng(), 8));
    *stall_ns = found.stall_ns;
    if (found.pass < len) {
        world_trace("a data connection is cut");
        c->cut = true;
        sched_at(sched_now_ns() + rng_below(world_rng(), the_net.trouble.delay_ns_max), NULL, reset, c);
    }
    return found.pass;
}

// Bytes of a peer connection are in the ring.
static void pass_peer(struct connection *c, struct way *way, size_t len)
{
    struct net_trouble *t = &the_net.trouble;
    if (t->peer_bytes == 0 || way->written + len < t->peer_bytes)
        return;
    t->peer_bytes = 0;
    if (rng_once_in(world_rng(), 2))
        way->bytes[(way->written + rng_below(world_rng(), len)) % way->room] ^= 0x10;
    // A wrong bit in a length makes the reader wait for what never comes.
    sched_at(sched_now_ns() + rng_below(world_rng(), NS_PER_S), NULL, reset, c);
    world_trace("a peer connection is hurt");
}

int64_t socket_send(struct socket *s, const void *bytes, size_t len)
{
    struct connection *c = s->connection;
    struct way *way = &c->ways[s->side];
    if (s->shut_write)
        return -EPIPE;
    if (c->reset)
        return -ECONNRESET;
    size_t n = u64_min(len, way->room - (way->written - way->taken));
    if (n == 0 && len > 0)
        return -EAGAIN;
    n = rng_once_in(sched_rng(), 3) ? rng_range(sched_rng(), 1, n) : n;
    ring_put(way, bytes, n);
    uint64_t stall_ns = 0;
    if (s->side == 0 && way->written <= KIND_AT && way->written + n > KIND_AT && c->from >= 0)
        c->kind = ((const uint8_t *)bytes)[KIND_AT - way->written];
    if (c->kind == GREET_PEER)
        pass_peer(c, way, n);
    bool followed = (c->kind == 0 || c->kind == GREET_DATA) && c->from == (int)s->side;
    way->written += followed ? pass_frames(c, way, bytes, n, &stall_ns) : n;
    deliver(c, s->side, false, stall_ns);
    return (int64_t)n;
}

int64_t socket_recv(struct socket *s, void *bytes, size_t len)
{
    struct connection *c = s->connection;
    struct way *way = &c->ways[1 - s->side];
    size_t n = u64_min(len, way->arrived - way->taken);
    if (c->reset)
        return -ECONNRESET;
    if (n == 0)
        return way->end_arrived || way->deaf || len == 0 ? 0 : -EAGAIN;
    n = rng_once_in(sched_rng(), 3) ? rng_range(sched_rng(), 1, n) : n;
    ring_get(way, bytes, n);
    way->taken += n;
    sched_look_again();
    return (int64_t)n;
}

void socket_shutdown(struct socket *s, bool read, bool write)
{
    struct connection *c = s->connection;
    if (write && !s->shut_write) {
        s->shut_write = true;
        deliver(c, s->side, true, 0);
    }
    if (read)
        c->ways[1 - s->side].deaf = true;
    sched_look_again();
}

// ---- descriptors ----

static short socket_ready(void *object, short events)
{
    const struct socket *s = object;
    const struct connection *c = s->connection;
    const struct way *in = &c->ways[1 - s->side], *out = &c->ways[s->side];
    short found = 0;
    if (c->reset)
        return (short)((events & (POLLIN | POLLOUT | POLLRDHUP)) | POLLERR | POLLHUP);
    if (in->arrived > in->taken || in->end_arrived || in->deaf)
        found |= POLLIN;
    if (in->end_arrived || in->deaf)
        found |= POLLRDHUP;
    if (s->shut_write || out->written - out->taken < out->room)
        found |= POLLOUT;
    found = (short)(found & events);
    return in->end_arrived && s->shut_write ? (short)(found | POLLHUP) : found;
}

static void socket_close(void *object, bool silently)
{
    struct socket *s = object;
    struct connection *c = s->connection;
    struct way *in = &c->ways[1 - s->side];
    if (--s->references > 0)
        return;
    if (silently) { // the host answers with resets when it is up again, or never
        c->black = true;
        sched_at(sched_now_ns() + rng_below(world_rng(), 60 * NS_PER_S), NULL, reset, c);
    } else if (in->arrived > in->taken) {
        reset(c);
    } else {
        socket_shutdown(s, true, true);
    }
    free(s);
}

static const struct descriptor_ops socket_ops = {
    .kind = DESCRIPTOR_SOCKET, .ready = socket_ready, .close = socket_close};

static struct socket *socket_new(struct connection *c, unsigned side)
{
    struct socket *s = calloc(1, sizeof *s);
    assert(s != NULL);
    *s = (struct socket){.connection = c, .side = side, .references = 1};
    return s;
}

static struct connection *connection_new(void)
{
    struct connection *c = calloc(1, sizeof *c);
    assert(c != NULL);
    c->from = -1;
    c->next = the_net.connections;
    the_net.connections = c;
    for (unsigned side = 0; side < 2; side++) {
        c->ways[side].room = (size_t)1 << rng_range(sched_rng(), ROOM_MIN_LOG2, ROOM_MIN_LOG2 + 8);
        c->ways[side].bytes = malloc(c->ways[side].room);
        assert(c->ways[side].bytes != NULL);
    }
    return c;
}

int net_pair(struct process *other, int *theirs)
{
    struct connection *c = connection_new();
    *theirs = descriptor_new(other, &socket_ops, socket_new(c, 1));
    return descriptor_new(NULL, &socket_ops, socket_new(c, 0));
}

int socket_dup(struct socket *s)
{
    s->references++;
    return descriptor_new(NULL, &socket_ops, s);
}

// ---- listening and connecting ----

static void listener_close(void *object, bool silently)
{
    (void)silently;
    struct listener *l = object;
    struct listener **at = &the_net.listeners;
    while (*at != l)
        at = &(*at)->next;
    *at = l->next;
    for (size_t i = 0; i < l->count; i++)
        socket_close(l->waiting[i], false);
    free(l);
}

static short listener_ready(void *object, short events)
{
    const struct listener *l = object;
    return l->count > 0 ? events & POLLIN : 0;
}

static const struct descriptor_ops listener_ops = {
    .kind = DESCRIPTOR_LISTENER, .ready = listener_ready, .close = listener_close};

int listener_accept(struct listener *l)
{
    if (l->count == 0)
        return -1;
    struct socket *s = l->waiting[0];
    l->count--;
    memmove(&l->waiting[0], &l->waiting[1], l->count * sizeof l->waiting[0]);
    return descriptor_new(NULL, &socket_ops, s);
}

int __wrap_net_listen(const char *host, uint16_t port, uint16_t port_hi, enum net_family family,
                      int fds[NET_LISTEN_MAX], uint16_t *bound, struct err *err)
{
    (void)host;
    (void)port;
    (void)port_hi;
    (void)family;
    (void)err;
    struct listener *l = calloc(1, sizeof *l);
    assert(l != NULL);
    *l = (struct listener){
        .host = process_host(process_current()), .port = ++the_net.last_port, .next = the_net.listeners};
    the_net.listeners = l;
    fds[0] = descriptor_new(NULL, &listener_ops, l);
    *bound = l->port;
    return 1;
}

static struct listener *listener_find(const struct host *host, uint16_t port)
{
    struct listener *l = the_net.listeners;
    while (l != NULL && (l->host != host || l->port != port || l->count == BACKLOG))
        l = l->next;
    return l;
}

// Which end of a connection between these hosts is the source's.
static int source_side(const struct host *dialler, const struct host *listener)
{
    const struct host *source = world_host(HOST_SOURCE);
    return dialler == source ? 0 : listener == source ? 1 : -1;
}

int __wrap_net_connect(const char *host, uint16_t port, enum net_family family, const char *bind_to,
                       uint64_t deadline_ns, int cancel_fd, struct err *err)
{
    (void)family;
    (void)bind_to;
    (void)deadline_ns;
    struct pollfd cancel = {.fd = cancel_fd, .events = POLLIN};
    uint64_t there_ns = sched_now_ns() + rng_below(sched_rng(), the_net.trouble.delay_ns_max);
    if (task_wait_ready(NULL, &cancel, 1, there_ns)) {
        err_set(err, ERR_INTERRUPTED, ECANCELED, "connect to", host, strlen(host), NULL);
        return -ECANCELED;
    }
    const struct host *to = world_host_named(host);
    struct listener *l = to != NULL && !to->refuses_dials ? listener_find(to, port) : NULL;
    if (l == NULL) {
        err_set(err, ERR_START, ECONNREFUSED, "connect to", host, strlen(host), NULL);
        return -ECONNREFUSED;
    }
    struct connection *c = connection_new();
    c->from = source_side(process_host(process_current()), to);
    frames_init(&c->ways[0].frames, PREAMBLE_BYTES + GREET_ASK_BYTES + GREET_PROOF_BYTES);
    frames_init(&c->ways[1].frames, GREET_ANSWER_BYTES);
    l->waiting[l->count++] = socket_new(c, 1);
    the_net.trouble.data_dials++;
    sched_look_again();
    return descriptor_new(NULL, &socket_ops, socket_new(c, 0));
}

int64_t __wrap_net_addresses(uint16_t port, uint8_t *out, size_t len)
{
    char text[ADDRESS_BYTES_MAX];
    struct wire_writer w;
    wire_writer_init(&w, out, len);
    int n = snprintf(text, sizeof text, "%s:%u", process_host(process_current())->address, port);
    wire_put_blob(&w, text, (size_t)n);
    return wire_written(&w);
}
