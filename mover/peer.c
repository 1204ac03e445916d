#include "mover/peer.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "storage/sys.h"

enum { LOOK_MS = 5000 }; // at what was sent and is not acknowledged

static void ring(void *arg)
{
    const struct peer *p = arg;
    uint64_t one = 1;
    ssize_t rung = write(p->bell_fd, &one, sizeof one); // fails only when it rings already
    (void)rung;
}

int peer_open(struct stream *s, const struct conn *conn, struct peer *out)
{
    struct seal *seal_out = NULL, *seal_in = NULL;
    int rc = seal_new(&conn->key_out, &seal_out);
    if (rc == 0)
        rc = seal_new(&conn->key_in, &seal_in);
    int fd = rc == 0 ? fcntl(conn->fd, F_DUPFD_CLOEXEC, 0) : -1;
    if (rc == 0 && fd < 0)
        rc = -errno;
    if (rc < 0) {
        seal_free(seal_out);
        seal_free(seal_in);
        return rc;
    }
    struct channel *channel;
    rc = channel_sealed_new(fd, seal_out, seal_in, PEER_BYTES_MAX, &channel);
    if (rc < 0)
        return rc;
    int bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (bell < 0) {
        rc = -errno;
        channel_free(channel);
        return rc;
    }
    *out = (struct peer){.channel = channel, .stream = s, .bell_fd = bell};
    stall_path_begin(&out->path, sys_clock_ns());
    stream_set_wake(s, ring, out);
    return 0;
}

void peer_close(struct peer *p)
{
    if (p->channel == NULL)
        return;
    stream_set_wake(p->stream, NULL, NULL);
    channel_free(p->channel);
    close(p->bell_fd);
    p->channel = NULL;
}

static void silence(struct peer *p)
{
    uint64_t rung;
    ssize_t got = read(p->bell_fd, &rung, sizeof rung); // empty when it did not ring
    (void)got;
}

void peer_rest(struct peer *p)
{
    struct pollfd bell = {.fd = p->bell_fd, .events = POLLIN};
    while (!stream_stopping(p->stream) && (poll(&bell, 1, -1) >= 0 || errno == EINTR))
        silence(p);
}

int peer_turn(struct peer *p, bool wait)
{
    struct tcp_figures tcp;
    tcp_figures(channel_fd_in(p->channel), &tcp);
    if (stall_path_dead(&p->path, &tcp, sys_clock_ns()))
        return -ETIMEDOUT;
    struct pollfd fds[2] = {
        {.fd = channel_fd_in(p->channel), .events = channel_events(p->channel)},
        {.fd = p->bell_fd, .events = POLLIN},
    };
    if (poll(fds, 2, wait && !stream_stopping(p->stream) ? LOOK_MS : 0) < 0 && errno != EINTR)
        return -errno;
    silence(p);
    return channel_pump(p->channel);
}
