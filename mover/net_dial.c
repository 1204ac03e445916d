// Connecting, and reading and writing by a deadline.
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "mover/net_inner.h"
#include "proto/limits.h"
#include "storage/sys.h"

static const uint64_t NS_PER_MS = 1000000;

// Milliseconds until the deadline, rounded up so that nobody wakes just before it; 0: it has passed.
static int left_ms(uint64_t deadline_ns)
{
    uint64_t now = sys_clock_ns();
    if (now >= deadline_ns)
        return 0;
    return (int)u64_min(u64_div_up(deadline_ns - now, NS_PER_MS), INT_MAX);
}

// Waits for one of `events` (or an error, which the next call on the descriptor tells).
static int wait_ready(int fd, short events, uint64_t deadline_ns, int cancel_fd)
{
    struct pollfd fds[2] = {{.fd = fd, .events = events}, {.fd = cancel_fd, .events = POLLIN}};
    for (;;) {
        int wait_ms = left_ms(deadline_ns);
        int n = poll(fds, ARRAY_LEN(fds), wait_ms);
        if (n < 0 && errno != EINTR)
            return -errno;
        if (n > 0 && fds[1].revents != 0)
            return -ECANCELED;
        if (n > 0)
            return 0;
        if (n == 0 && wait_ms == 0)
            return -ETIMEDOUT;
    }
}

// A free port of this host may be given to the very socket that dials it, which then talks to itself.
static bool is_own_echo(int fd)
{
    struct sockaddr_storage here = {0}, there = {0};
    socklen_t here_len = sizeof(here), there_len = sizeof(there);
    return getsockname(fd, (struct sockaddr *)&here, &here_len) == 0 &&
           getpeername(fd, (struct sockaddr *)&there, &there_len) == 0 && here_len == there_len &&
           memcmp(&here, &there, here_len) == 0;
}

static int connect_wait(int fd, const struct addrinfo *ai, uint64_t deadline_ns, int cancel_fd)
{
    if (connect(fd, ai->ai_addr, ai->ai_addrlen) < 0) {
        if (errno != EINPROGRESS && errno != EINTR)
            return -errno;
        int rc = wait_ready(fd, POLLOUT, deadline_ns, cancel_fd);
        if (rc < 0)
            return rc;
        int error = 0;
        socklen_t len = sizeof(error);
        if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len) < 0)
            return -errno;
        if (error != 0)
            return -error;
    }
    return is_own_echo(fd) ? -ECONNREFUSED : 0;
}

static int blocking_set(int fd)
{
    int flags = fcntl(fd, F_GETFL);
    if (flags < 0 || fcntl(fd, F_SETFL, flags & ~O_NONBLOCK) < 0)
        return -errno;
    return 0;
}

// The local address of the remote one's family; -EADDRNOTAVAIL when `local` has none.
static int bind_local(int fd, const struct addrinfo *local, int family)
{
    while (local != NULL && local->ai_family != family)
        local = local->ai_next;
    if (local == NULL)
        return -EADDRNOTAVAIL;
    return bind(fd, local->ai_addr, local->ai_addrlen) < 0 ? -errno : 0;
}

// A connected socket, or -errno and in *op what failed.
static int connect_one(const struct addrinfo *ai, const struct addrinfo *local, uint64_t deadline_ns,
                       int cancel_fd, const char **op)
{
    *op = "connect to";
    int fd = socket(ai->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -errno;
    int rc = net_tune(fd);
    if (rc == 0 && local != NULL) {
        rc = bind_local(fd, local, ai->ai_family);
        *op = rc < 0 ? "bind for" : *op;
    }
    if (rc == 0)
        rc = connect_wait(fd, ai, deadline_ns, cancel_fd);
    if (rc == 0)
        rc = blocking_set(fd);
    if (rc == 0)
        return fd;
    close(fd);
    return rc;
}

// When to give up this address: each that is left gets an equal part of the time, so that one behind a black
// hole leaves some for the others.
static uint64_t share_end(uint64_t deadline_ns, const struct addrinfo *ai)
{
    uint64_t now = sys_clock_ns(), left = 0;
    for (; ai != NULL; ai = ai->ai_next)
        left++;
    return now >= deadline_ns ? now : now + (deadline_ns - now) / left;
}

static int connect_any(const char *host, uint16_t port, const struct addrinfo *list,
                       const struct addrinfo *local, uint64_t deadline_ns, int cancel_fd, struct err *err)
{
    int rc = -EADDRNOTAVAIL;
    for (const struct addrinfo *ai = list; ai != NULL && rc < 0 && rc != -ECANCELED; ai = ai->ai_next) {
        const char *op;
        net_port_set(ai->ai_addr, port);
        rc = connect_one(ai, local, share_end(deadline_ns, ai), cancel_fd, &op);
        if (rc >= 0)
            return rc;
        char address[ADDRESS_BYTES_MAX];
        net_address_text(ai->ai_addr, ai->ai_addrlen, address, sizeof(address));
        bool named = strncmp(address + (address[0] == '['), host, strlen(host)) != 0;
        err_set(err, rc == -ECANCELED ? ERR_INTERRUPTED : ERR_START, -rc, op, address, strlen(address),
                named ? "%s" : NULL, host);
    }
    return rc;
}

int net_connect(const char *host, uint16_t port, enum net_family family, const char *bind_to,
                uint64_t deadline_ns, int cancel_fd, struct err *err)
{
    struct addrinfo *list, *local = NULL;
    int rc = bind_to == NULL ? 0 : net_resolve(bind_to, family, AI_NUMERICHOST | AI_PASSIVE, &local, err);
    if (rc < 0)
        return rc;
    rc = net_resolve(host, family, 0, &list, err);
    if (rc == 0) {
        rc = connect_any(host, port, list, local, deadline_ns, cancel_fd, err);
        freeaddrinfo(list);
    }
    if (local != NULL)
        freeaddrinfo(local);
    return rc;
}

// One read that does not block: the descriptor may be a blocking socket or pipe that was found ready.
static ssize_t read_some(int fd, void *buf, size_t len)
{
    ssize_t n = recv(fd, buf, len, MSG_DONTWAIT);
    return n < 0 && errno == ENOTSOCK ? read(fd, buf, len) : n;
}

static ssize_t write_some(int fd, const void *buf, size_t len)
{
    ssize_t n = send(fd, buf, len, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n >= 0 || errno != ENOTSOCK)
        return n;
    return write(fd, buf, u64_min(len, PIPE_BUF)); // a pipe that is ready takes so much at once
}

static bool is_transient(int error)
{
    return error == EAGAIN || error == EWOULDBLOCK || error == EINTR;
}

int net_read_full(int fd, void *buf, size_t len, uint64_t deadline_ns, int cancel_fd)
{
    uint8_t *at = buf;
    for (size_t got = 0; got < len;) {
        int rc = wait_ready(fd, POLLIN, deadline_ns, cancel_fd);
        if (rc < 0)
            return rc;
        ssize_t n = read_some(fd, at + got, len - got);
        if (n == 0)
            return got == 0 ? -ENODATA : -ECONNRESET;
        if (n > 0)
            got += (size_t)n;
        else if (!is_transient(errno))
            return -errno;
    }
    return 0;
}

int net_write_full(int fd, const void *buf, size_t len, uint64_t deadline_ns, int cancel_fd)
{
    const uint8_t *at = buf;
    for (size_t put = 0; put < len;) {
        int rc = wait_ready(fd, POLLOUT, deadline_ns, cancel_fd);
        if (rc < 0)
            return rc;
        ssize_t n = write_some(fd, at + put, len - put);
        if (n >= 0)
            put += (size_t)n;
        else if (!is_transient(errno))
            return errno == EPIPE ? -ECONNRESET : -errno;
    }
    return 0;
}
