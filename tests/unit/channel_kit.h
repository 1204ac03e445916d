// Two ends of a conversation in one thread, in each form.
#ifndef PENSTOCK_TESTS_UNIT_CHANNEL_KIT_H
#define PENSTOCK_TESTS_UNIT_CHANNEL_KIT_H

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "mover/channel.h"
#include "proto/limits.h"
#include "tests/unit/tls_kit.h"

enum kit_form { KIT_PLAIN, KIT_PIPES, KIT_TLS, KIT_SEALED, KIT_FORMS };
enum { KIT_WAIT_MS = 3000 };

struct kit_ends {
    struct key key;
    struct key_ring ring;
    struct channel *a, *b; // a is the client
};

static inline void kit_pair(int fds[2])
{
    int bytes = 4096; // as small as the kernel makes them
    CU_ASSERT_EQUAL_FATAL(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    for (int i = 0; i < 2; i++) {
        CU_ASSERT_EQUAL(setsockopt(fds[i], SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes)), 0);
        CU_ASSERT_EQUAL(setsockopt(fds[i], SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes)), 0);
    }
}

static inline struct seal *kit_seal(uint8_t first)
{
    struct secret secret;
    struct seal *seal;
    count_up(secret.bytes, sizeof(secret.bytes), first);
    CU_ASSERT_EQUAL_FATAL(seal_new(&secret, &seal), 0);
    return seal;
}

// A sealed end: what it writes is under the key of `out`.
static inline struct channel *kit_sealed(int fd, uint8_t out, uint8_t in, size_t max)
{
    struct channel *c;
    CU_ASSERT_EQUAL_FATAL(channel_sealed_new(fd, kit_seal(out), kit_seal(in), max, &c), 0);
    return c;
}

static inline struct channel *kit_client(int fd, const struct key *key)
{
    struct tls *tls;
    struct channel *c;
    CU_ASSERT_EQUAL_FATAL(tls_client_new(key, &tls), 0);
    CU_ASSERT_EQUAL_FATAL(channel_tls_new(fd, tls, MESSAGE_BYTES_MAX, &c), 0);
    return c;
}

static inline struct channel *kit_server(int fd, const struct key_ring *ring)
{
    struct tls *tls;
    struct channel *c;
    CU_ASSERT_EQUAL_FATAL(tls_server_new(ring, &tls), 0);
    CU_ASSERT_EQUAL_FATAL(channel_tls_new(fd, tls, MESSAGE_BYTES_MAX, &c), 0);
    return c;
}

static inline void kit_pipes(struct kit_ends *e)
{
    int there[2], back[2];
    CU_ASSERT_EQUAL_FATAL(pipe2(there, O_CLOEXEC), 0);
    CU_ASSERT_EQUAL_FATAL(pipe2(back, O_CLOEXEC), 0);
    CU_ASSERT_EQUAL_FATAL(channel_plain_new(back[0], there[1], MESSAGE_BYTES_MAX, &e->a), 0);
    CU_ASSERT_EQUAL_FATAL(channel_plain_new(there[0], back[1], MESSAGE_BYTES_MAX, &e->b), 0);
}

// Both ends; `e` stays where it is, since TLS borrows its keys.
static inline void kit_ends_begin(struct kit_ends *e, enum kit_form form)
{
    int fds[2];
    *e = (struct kit_ends){.key = kit_key("one", 1)};
    e->ring = (struct key_ring){.keys = &e->key, .count = 1};
    if (form == KIT_PIPES) {
        kit_pipes(e);
        return;
    }
    kit_pair(fds);
    if (form == KIT_PLAIN) {
        CU_ASSERT_EQUAL_FATAL(channel_plain_new(fds[0], fds[0], MESSAGE_BYTES_MAX, &e->a), 0);
        CU_ASSERT_EQUAL_FATAL(channel_plain_new(fds[1], fds[1], MESSAGE_BYTES_MAX, &e->b), 0);
    } else if (form == KIT_TLS) {
        e->a = kit_client(fds[0], &e->key);
        e->b = kit_server(fds[1], &e->ring);
    } else {
        e->a = kit_sealed(fds[0], 1, 2, MESSAGE_BYTES_MAX);
        e->b = kit_sealed(fds[1], 2, 1, MESSAGE_BYTES_MAX);
    }
}

static inline void kit_ends_end(struct kit_ends *e)
{
    channel_free(e->a);
    channel_free(e->b);
}

// Waits as an owner does. Whether something happened on this channel.
static inline bool kit_wait(const struct channel *c, int wait_ms)
{
    struct pollfd fds[2] = {{.fd = channel_fd_in(c), .events = channel_events(c)},
                            {.fd = channel_fd_out(c), .events = channel_events(c) & POLLOUT}};
    return poll(fds, channel_events(c) & POLLOUT ? 2 : 1, wait_ms) > 0;
}

// Waits for the next message of `c`, pumping `other` too (which may be NULL). As channel_next; 0: nothing
// came.
static inline int kit_next(struct channel *c, struct channel *other, uint16_t *type, const uint8_t **fields,
                           size_t *len)
{
    for (int i = 0; i < 1000; i++) {
        int rc = channel_next(c, type, fields, len);
        if (rc != 0)
            return rc;
        if (other != NULL && kit_wait(other, 0))
            rc = channel_pump(other);
        if (kit_wait(c, other != NULL ? 1 : KIT_WAIT_MS))
            rc = channel_pump(c);
        else if (other == NULL)
            return 0;
        if (rc < 0)
            return (rc = channel_next(c, type, fields, len)) != 0 ? rc : 0;
    }
    return 0;
}

// Pumps until that fails; what it said.
static inline int kit_pump_end(struct channel *c, struct channel *other)
{
    int rc = 0;
    for (int i = 0; i < 1000 && rc == 0; i++) {
        if (other != NULL && kit_wait(other, 0))
            (void)!channel_pump(other);
        if (kit_wait(c, other != NULL ? 1 : KIT_WAIT_MS))
            rc = channel_pump(c);
        else if (other == NULL)
            return 0;
    }
    return rc;
}

#endif
