#include "mover/relay.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

// One direction: it either waits to read, or has bytes that wait to be written.
struct way {
    int from, to; // -1: closed here
    bool ended;
    int error; // why bytes were lost
    uint8_t *bytes;
    size_t at, end;
};

static int nonblocking_set(int fd)
{
    int flags = fcntl(fd, F_GETFL);
    return flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0 ? -errno : 0;
}

// Ends one direction of a descriptor. A pipe has no other, and no other way uses it.
static void half_close(int *fd, int how)
{
    if (shutdown(*fd, how) < 0 && errno == ENOTSOCK) {
        close(*fd);
        *fd = -1;
    } // else it is shut down, or has nobody at its other end
}

static void way_end(struct way *w, int error)
{
    w->ended = true;
    w->error = error;
    half_close(&w->to, SHUT_WR);
    half_close(&w->from, SHUT_RD);
    // Who waits to send more learns of the end only when there is room again: what lies here unread goes.
    while (w->from >= 0 && read(w->from, w->bytes, RELAY_BYTES) > 0)
        ;
}

static bool is_transient(int error)
{
    return error == EAGAIN || error == EWOULDBLOCK || error == EINTR;
}

// Whether there is something to write now.
static bool way_read(struct way *w)
{
    ssize_t n = read(w->from, w->bytes, RELAY_BYTES);
    if (n > 0) {
        w->at = 0;
        w->end = (size_t)n;
    } else if (n == 0) {
        way_end(w, 0);
    } else if (!is_transient(errno)) {
        way_end(w, -errno);
    }
    return n > 0;
}

static ssize_t write_some(int fd, const void *bytes, size_t len)
{
    ssize_t n = send(fd, bytes, len, MSG_NOSIGNAL);
    return n < 0 && errno == ENOTSOCK ? write(fd, bytes, len) : n;
}

static void way_write(struct way *w)
{
    ssize_t n = write_some(w->to, w->bytes + w->at, w->end - w->at);
    if (n >= 0)
        w->at += (size_t)n;
    else if (!is_transient(errno))
        way_end(w, -errno);
}

// One piece, as far as it goes. What is read is written at once: there is room more often than not.
static void way_step(struct way *w, const struct pollfd *from, const struct pollfd *to)
{
    if (w->at < w->end) {
        if (to->revents != 0)
            way_write(w);
    } else if ((to->revents & (POLLERR | POLLHUP)) != 0) {
        way_end(w, 0); // whatever comes could not be passed on
    } else if (from->revents != 0 && way_read(w)) {
        way_write(w);
    }
}

// `to` is watched even with nothing to write, for its other end may go.
static void way_poll(const struct way *w, struct pollfd *from, struct pollfd *to)
{
    bool empty = w->at == w->end;
    *from = (struct pollfd){.fd = !w->ended && empty ? w->from : -1, .events = POLLIN};
    *to = (struct pollfd){.fd = !w->ended ? w->to : -1, .events = empty ? 0 : POLLOUT};
}

static int relay(struct way ways[2])
{
    while (!ways[0].ended || !ways[1].ended) {
        struct pollfd fds[4];
        for (int i = 0; i < 2; i++)
            way_poll(&ways[i], &fds[2 * i], &fds[2 * i + 1]);
        if (poll(fds, ARRAY_LEN(fds), -1) < 0) {
            if (errno != EINTR)
                return -errno;
            continue;
        }
        for (int i = 0; i < 2; i++)
            if (!ways[i].ended)
                way_step(&ways[i], &fds[2 * i], &fds[2 * i + 1]);
    }
    return ways[0].error != 0 ? ways[0].error : ways[1].error;
}

int relay_run(int in, int out, int sock, const void *first, size_t first_len)
{
    assert(first_len <= RELAY_BYTES);
    struct way ways[2] = {{.from = in, .to = sock}, {.from = sock, .to = out}};
    int rc = nonblocking_set(in);
    if (rc == 0)
        rc = nonblocking_set(out);
    if (rc == 0)
        rc = nonblocking_set(sock);
    for (int i = 0; i < 2; i++) {
        ways[i].bytes = malloc(RELAY_BYTES);
        if (ways[i].bytes == NULL && rc == 0)
            rc = -ENOMEM;
    }
    if (rc == 0) {
        if (first_len > 0)
            memcpy(ways[0].bytes, first, first_len);
        ways[0].end = first_len;
        rc = relay(ways);
    }
    for (int i = 0; i < 2; i++)
        free(ways[i].bytes);
    if (ways[0].from >= 0)
        close(ways[0].from);
    if (ways[1].to >= 0 && out != in)
        close(ways[1].to);
    close(sock);
    return rc;
}
