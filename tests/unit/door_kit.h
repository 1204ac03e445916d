// Who comes to a door, for its tests.
#ifndef PENSTOCK_TESTS_UNIT_DOOR_KIT_H
#define PENSTOCK_TESTS_UNIT_DOOR_KIT_H

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <CUnit/CUnit.h>

#include "mover/door.h"
#include "proto/limits.h"
#include "tests/unit/hex.h"

// Who comes to the door: one end of a pair, and what was said on it.
struct guest {
    int fd;
    struct greeting said;
    uint8_t answer[GREET_ANSWER_BYTES];
};

static inline struct job_id job_of(uint8_t first)
{
    struct job_id job;
    count_up(job.bytes, sizeof(job.bytes), first);
    return job;
}

static inline struct secret secret_of(uint8_t first)
{
    struct secret secret;
    count_up(secret.bytes, sizeof(secret.bytes), first);
    return secret;
}

// A door that knows job and secret 1.
static inline struct door *door_begin(uint32_t wait_ms)
{
    struct door *d = door_new_waiting(wait_ms);
    struct job_id job = job_of(1);
    struct secret secret = secret_of(1);
    CU_ASSERT_PTR_NOT_NULL_FATAL(d);
    door_know(d, &job, &secret);
    return d;
}

static inline struct guest guest_come(struct door *d)
{
    struct guest g = {0};
    int fds[2];
    CU_ASSERT_EQUAL_FATAL(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    struct timeval wait = {.tv_sec = 2}; // a failed test is not to hang
    CU_ASSERT_EQUAL(setsockopt(fds[1], SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof(wait)), 0);
    door_add(d, fds[1], NULL);
    g.fd = fds[0];
    return g;
}

static inline void guest_say(const struct guest *g, const void *bytes, size_t len)
{
    CU_ASSERT_EQUAL(send(g->fd, bytes, len, MSG_NOSIGNAL), (ssize_t)len);
}

static inline void guest_preamble(struct guest *g, enum greet_kind kind, uint8_t version, uint8_t job)
{
    struct preamble p = {.kind = kind, .version = version, .job = job_of(job)};
    preamble_encode(&p, g->said.preamble);
    guest_say(g, g->said.preamble, sizeof(g->said.preamble));
}

static inline void guest_ask(struct guest *g, uint8_t nonce)
{
    struct greet_ask ask = {.session = 3, .stream = 4, .attempt = 5};
    count_up(ask.nonce, sizeof(ask.nonce), nonce);
    greet_ask_encode(&ask, g->said.ask);
    guest_say(g, g->said.ask, sizeof(g->said.ask));
}

// Lets the door work until it has nothing to do for the moment.
static inline void door_turn(struct door *d)
{
    struct pollfd fds[GREETING_CONNECTIONS];
    for (int i = 0; i < 1000; i++) {
        int timeout_ms = -1;
        size_t count = door_poll(d, fds, ARRAY_LEN(fds), &timeout_ms);
        int ready = poll(fds, count, 0);
        CU_ASSERT_FATAL(ready >= 0);
        door_step(d, fds, count);
        if (ready == 0)
            return;
    }
}

static inline void guest_hear_answer(struct guest *g)
{
    CU_ASSERT_EQUAL_FATAL(recv(g->fd, g->answer, sizeof(g->answer), MSG_DONTWAIT), sizeof(g->answer));
    memcpy(g->said.acceptor_nonce, g->answer, NONCE_BYTES);
}

static inline void guest_prove(struct guest *g, uint8_t secret)
{
    uint8_t proof[PROOF_BYTES];
    struct secret s = secret_of(secret);
    CU_ASSERT_EQUAL(greet_proof(&s, &g->said, false, proof), 0);
    guest_say(g, proof, sizeof(proof));
}

// The door has closed on this guest, without a word.
static inline bool is_refused(const struct guest *g)
{
    uint8_t byte;
    ssize_t n = recv(g->fd, &byte, 1, MSG_DONTWAIT);
    return n == 0 || (n < 0 && errno == ECONNRESET);
}

static inline void expect_nobody(struct door *d)
{
    struct arrival a;
    CU_ASSERT_FALSE(door_next(d, &a));
}

#endif
