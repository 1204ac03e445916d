#include "mover/dial.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "mover/inside.h"
#include "proto/limits.h"
#include "proto/wire.h"
#include "storage/sys.h"

enum { PROGRAM_END_MS = 500 }; // for a program by which nothing was reached to end by itself

static const uint64_t NS_PER_MS = 1000000;

struct link {
    int fd;
    uint64_t deadline_ns;
    int cancel_fd;
    const char *address;
    struct err *err;
};

static int link_write(const struct link *l, const void *bytes, size_t len)
{
    int rc = net_write_full(l->fd, bytes, len, l->deadline_ns, l->cancel_fd);
    if (rc < 0)
        err_set(l->err, rc == -ECANCELED ? ERR_INTERRUPTED : ERR_STREAM, -rc, "greet", l->address,
                strlen(l->address), NULL);
    return rc;
}

static int link_read(const struct link *l, void *bytes, size_t len)
{
    int rc = net_read_full(l->fd, bytes, len, l->deadline_ns, l->cancel_fd);
    if (rc == -ENODATA)
        rc = -ECONNRESET; // an end where an answer was due
    if (rc < 0)
        err_set(l->err, rc == -ECANCELED ? ERR_INTERRUPTED : ERR_STREAM, -rc, "greet", l->address,
                strlen(l->address), NULL);
    return rc;
}

static int refuse(const struct link *l, enum err_class class, int rc, const char *words)
{
    err_set(l->err, class, 0, "greet", l->address, strlen(l->address), "%s", words);
    return rc;
}

// The acceptor's answer. One that speaks another wire version sends its preamble instead, which is shorter.
static int answer_read(const struct link *l, uint8_t answer[GREET_ANSWER_BYTES])
{
    struct preamble p;
    int rc = link_read(l, answer, PREAMBLE_BYTES);
    if (rc < 0)
        return rc;
    if (preamble_decode(answer, &p) == 0 && (p.version < WIRE_VERSION_MIN || p.version > WIRE_VERSION)) {
        char words[96];
        snprintf(words, sizeof(words), "the other side speaks wire version %u, this one %d to %d", p.version,
                 WIRE_VERSION_MIN, WIRE_VERSION);
        return refuse(l, ERR_VERSION, -EPROTONOSUPPORT, words);
    }
    return link_read(l, answer + PREAMBLE_BYTES, GREET_ANSWER_BYTES - PREAMBLE_BYTES);
}

// The dialler's side of the greeting on a connected socket. The words go out once for two: preamble and ask.
static int greet(const struct link *l, const struct dial_target *t, enum greet_kind kind,
                 struct greet_ask *ask, struct secret *key_in, struct secret *key_out)
{
    struct preamble p = {.kind = kind, .version = WIRE_VERSION, .job = t->job};
    struct greeting said;
    uint8_t opening[PREAMBLE_BYTES + GREET_ASK_BYTES], answer[GREET_ANSWER_BYTES], proof[PROOF_BYTES];
    int rc = sys_random(ask->nonce, sizeof(ask->nonce));
    if (rc < 0)
        return refuse(l, ERR_START, rc, "the kernel gives no random bytes");
    preamble_encode(&p, said.preamble);
    greet_ask_encode(ask, said.ask);
    memcpy(opening, said.preamble, PREAMBLE_BYTES);
    memcpy(opening + PREAMBLE_BYTES, said.ask, GREET_ASK_BYTES);
    rc = link_write(l, opening, sizeof(opening));
    if (rc == 0)
        rc = answer_read(l, answer);
    if (rc < 0)
        return rc;
    memcpy(said.acceptor_nonce, answer, NONCE_BYTES);
    rc = greet_proof(&t->secret, &said, true, proof);
    if (rc == 0 && !seal_proof_equal(proof, answer + NONCE_BYTES))
        return refuse(l, ERR_AUTH, -EACCES, "who answers there does not know the job");
    if (rc == 0)
        rc = greet_proof(&t->secret, &said, false, proof);
    if (rc == 0)
        rc = greet_keys(&t->secret, &said, key_out, key_in);
    if (rc < 0)
        return refuse(l, ERR_START, rc, "the cipher library fails");
    return link_write(l, proof, sizeof(proof));
}

static int dial_address(const struct dial_target *t, const char *address, enum greet_kind kind,
                        struct greet_ask *ask, struct link *l, struct secret *key_in, struct secret *key_out)
{
    char host[ADDRESS_BYTES_MAX];
    uint16_t port;
    if (net_parse(address, PENSTOCK_PORT, host, sizeof(host), &port) < 0 || host[0] == '\0')
        return refuse(l, ERR_STREAM, -EINVAL, "this is no address");
    l->fd = net_connect(host, port, t->family, t->bind_to, l->deadline_ns, l->cancel_fd, l->err);
    if (l->fd < 0) {
        if (l->err->class == ERR_START)
            l->err->class = ERR_STREAM; // it can be dialled again
        return l->fd;
    }
    uint64_t greeted = sys_clock_ns() + GREETING_WAIT_MS * NS_PER_MS;
    l->deadline_ns = u64_min(l->deadline_ns, greeted);
    int rc = greet(l, t, kind, ask, key_in, key_out);
    if (rc < 0)
        close(l->fd);
    return rc;
}

// How many addresses the list has; -EPROTO when it is none.
static int addresses_count(struct blob list)
{
    struct wire_reader r;
    int count = 0;
    size_t len;
    wire_reader_init(&r, list.bytes, list.len);
    while (wire_left(&r) > 0 && wire_get_blob(&r, ADDRESS_BYTES_MAX - 1, &len) != NULL)
        count++;
    return wire_done(&r) < 0 || count > ADDRESSES_MAX ? -EPROTO : count;
}

int dial_connect(const struct dial_target *t, enum greet_kind kind, struct greet_ask *ask,
                 uint64_t deadline_ns, int cancel_fd, int *fd, struct secret *key_in, struct secret *key_out,
                 struct err *err)
{
    int count = addresses_count(t->addresses), rc = -EPROTO;
    if (count <= 0)
        err_set(err, ERR_PROTOCOL, 0, "dial", NULL, 0, "there is no address to dial");
    struct wire_reader r;
    wire_reader_init(&r, t->addresses.bytes, t->addresses.len);
    for (int i = 0; i < count; i++) {
        char address[ADDRESS_BYTES_MAX];
        struct blob b;
        b.bytes = wire_get_blob(&r, ADDRESS_BYTES_MAX - 1, &b.len);
        blob_string(&b, address, sizeof(address));
        // Equal parts of the time that is left, as among the addresses of one name.
        uint64_t now = sys_clock_ns();
        uint64_t share_ns = now < deadline_ns ? (deadline_ns - now) / (uint64_t)(count - i) : 0;
        struct link l = {
            .deadline_ns = now + share_ns, .cancel_fd = cancel_fd, .address = address, .err = err};
        struct secret in, out;
        rc = dial_address(t, address, kind, ask, &l, &in, &out);
        if (rc == 0) {
            *fd = l.fd;
            *key_in = in;
            *key_out = out;
        }
        seal_wipe(&in, sizeof(in));
        seal_wipe(&out, sizeof(out));
        if (rc == 0 || rc == -ECANCELED)
            break;
    }
    return rc;
}

// A program and its arguments as people write them, cut when too long.
static void program_text(char *const argv[], char *out, size_t out_len)
{
    size_t at = 0;
    for (size_t i = 0; argv[i] != NULL && at < out_len; i++)
        at += (size_t)snprintf(out + at, out_len - at, "%s%s", i > 0 ? " " : "", argv[i]);
}

int dial_inside(const struct dial_target *t, char *const argv[], enum greet_kind kind, struct greet_ask *ask,
                uint64_t deadline_ns, int cancel_fd, struct launched *child, struct secret *key_in,
                struct secret *key_out, struct err *err)
{
    char program[ADDRESS_BYTES_MAX];
    struct launched made;
    int rc = launch_spawn(argv, &made, err);
    if (rc < 0) {
        err->class = ERR_STREAM; // it can be dialled again
        return rc;
    }
    program_text(argv, program, sizeof(program));
    struct link l = {
        .fd = made.fd, .deadline_ns = deadline_ns, .cancel_fd = cancel_fd, .address = program, .err = err};
    struct secret in, out;
    rc = greet(&l, t, kind, ask, &in, &out);
    if (rc == 0) {
        *child = made;
        *key_in = in;
        *key_out = out;
    } else {
        int status = launch_end(&made, PROGRAM_END_MS);
        int number = rc == -ECONNRESET && WIFEXITED(status) ? WEXITSTATUS(status) : 0;
        if (number != 0)
            err_set(err, ERR_STREAM, 0, "run", program, strlen(program), "ended with status %d%s", number,
                    number == INSIDE_NO_AGENT ? ": that is not the host of the agent" : "");
    }
    seal_wipe(&in, sizeof(in));
    seal_wipe(&out, sizeof(out));
    return rc;
}

int dial_control(const char *host, uint16_t port, enum net_family family, const char *bind_to,
                 const struct job_id *job, uint64_t deadline_ns, int cancel_fd, int *fd, struct err *err)
{
    struct preamble p = {.kind = GREET_CONTROL, .version = WIRE_VERSION, .job = *job};
    uint8_t bytes[PREAMBLE_BYTES];
    char address[ADDRESS_BYTES_MAX];
    int made = net_connect(host, port, family, bind_to, deadline_ns, cancel_fd, err);
    if (made < 0)
        return made;
    net_remote(made, address, sizeof(address));
    preamble_encode(&p, bytes);
    int rc = net_write_full(made, bytes, sizeof(bytes), deadline_ns, cancel_fd);
    if (rc < 0) {
        err_set(err, rc == -ECANCELED ? ERR_INTERRUPTED : ERR_START, -rc, "greet", address, strlen(address),
                NULL);
        close(made);
        return rc;
    }
    *fd = made;
    return 0;
}
