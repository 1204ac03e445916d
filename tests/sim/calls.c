// The kernel's calls on descriptors that are no files.
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "tests/sim/descriptor.h"
#include "tests/sim/net.h"
#include "tests/sim/sched.h"
#include "tests/sim/world.h"
#include "tests/sim/wraps.h"

static ssize_t answer(int64_t n)
{
    if (n >= 0)
        return (ssize_t)n;
    errno = (int)-n;
    return -1;
}

// ---- event descriptors ----

static short event_ready(void *object, short events)
{
    const uint64_t *count = object;
    return (short)(events & (POLLOUT | (*count > 0 ? POLLIN : 0)));
}

static void event_close(void *object, bool silently)
{
    (void)silently;
    free(object);
}

static const struct descriptor_ops event_ops = {
    .kind = DESCRIPTOR_EVENT, .ready = event_ready, .close = event_close};

int __wrap_eventfd(unsigned count, int flags)
{
    assert(flags == (EFD_CLOEXEC | EFD_NONBLOCK));
    uint64_t *event = malloc(sizeof *event);
    assert(event != NULL);
    *event = count;
    return descriptor_new(NULL, &event_ops, event);
}

static ssize_t event_read(uint64_t *event, void *buf, size_t len)
{
    assert(len == sizeof *event);
    if (*event == 0)
        return answer(-EAGAIN);
    memcpy(buf, event, len);
    *event = 0;
    return (ssize_t)len;
}

static ssize_t event_write(uint64_t *event, const void *buf, size_t len)
{
    uint64_t add;
    assert(len == sizeof add);
    memcpy(&add, buf, len);
    *event += add;
    sched_look_again();
    return (ssize_t)len;
}

// ---- bytes ----

static ssize_t receive(int fd, void *buf, size_t len, bool blocks)
{
    struct socket *s = descriptor_object(fd, DESCRIPTOR_SOCKET);
    task_pause();
    int64_t n = socket_recv(s, buf, len);
    if (n == -EAGAIN && blocks)
        world_fail("a receive that would block for ever");
    return answer(n);
}

static ssize_t put(int fd, const void *buf, size_t len, bool blocks)
{
    struct socket *s = descriptor_object(fd, DESCRIPTOR_SOCKET);
    task_pause();
    int64_t n = socket_send(s, buf, len);
    if (n == -EAGAIN && blocks)
        world_fail("a send that would block for ever");
    return answer(n);
}

ssize_t __wrap_read(int fd, void *buf, size_t len)
{
    uint64_t *event = descriptor_try(fd, DESCRIPTOR_EVENT);
    return event != NULL ? event_read(event, buf, len) : receive(fd, buf, len, descriptor_blocks(fd));
}

ssize_t __wrap___read_chk(int fd, void *buf, size_t len, size_t buf_len)
{
    assert(len <= buf_len);
    return __wrap_read(fd, buf, len);
}

ssize_t __wrap_write(int fd, const void *buf, size_t len)
{
    uint64_t *event = descriptor_try(fd, DESCRIPTOR_EVENT);
    return event != NULL ? event_write(event, buf, len) : put(fd, buf, len, descriptor_blocks(fd));
}

ssize_t __wrap_send(int fd, const void *buf, size_t len, int flags)
{
    return put(fd, buf, len, descriptor_blocks(fd) && !(flags & MSG_DONTWAIT));
}

ssize_t __wrap_recv(int fd, void *buf, size_t len, int flags)
{
    return receive(fd, buf, len, descriptor_blocks(fd) && !(flags & MSG_DONTWAIT));
}

ssize_t __wrap___recv_chk(int fd, void *buf, size_t len, size_t buf_len, int flags)
{
    assert(len <= buf_len);
    return __wrap_recv(fd, buf, len, flags);
}

// ---- the rest ----

int __wrap_poll(struct pollfd *fds, nfds_t count, int timeout_ms)
{
    task_pause();
    int n = descriptor_poll(fds, count);
    if (n > 0 || timeout_ms == 0)
        return n;
    uint64_t until_ns = timeout_ms < 0 ? NEVER_NS : sched_now_ns() + (uint64_t)timeout_ms * NS_PER_MS;
    (void)task_wait_ready(NULL, fds, count, until_ns);
    return descriptor_poll(fds, count);
}

int __wrap___poll_chk(struct pollfd *fds, nfds_t count, int timeout_ms, size_t fds_len)
{
    assert(count * sizeof *fds <= fds_len);
    return __wrap_poll(fds, count, timeout_ms);
}

int __wrap_close(int fd)
{
    descriptor_close_any(fd);
    return 0;
}

int __wrap_shutdown(int fd, int how)
{
    socket_shutdown(descriptor_object(fd, DESCRIPTOR_SOCKET), how != SHUT_WR, how != SHUT_RD);
    return 0;
}

int __wrap_fcntl(int fd, int command, ...)
{
    va_list args;
    va_start(args, command);
    int value = va_arg(args, int);
    va_end(args);
    switch (command) {
    case F_GETFL:
        return descriptor_blocks(fd) ? O_RDWR : O_RDWR | O_NONBLOCK;
    case F_SETFL:
        descriptor_set_blocking(fd, (value & O_NONBLOCK) == 0);
        return 0;
    case F_DUPFD_CLOEXEC:
        return socket_dup(descriptor_object(fd, DESCRIPTOR_SOCKET));
    default:
        world_fail("fcntl(%d)", command);
    }
}

int __wrap_accept4(int fd, struct sockaddr *addr, socklen_t *len, int flags)
{
    assert(addr == NULL && len == NULL);
    int got = listener_accept(descriptor_object(fd, DESCRIPTOR_LISTENER));
    if (got < 0)
        return (int)answer(-EAGAIN);
    descriptor_set_blocking(got, (flags & SOCK_NONBLOCK) == 0);
    return got;
}

int __wrap_getsockopt(int fd, int level, int name, void *value, socklen_t *len)
{
    bool socket = descriptor_try(fd, DESCRIPTOR_SOCKET) != NULL;
    if (socket && level == SOL_SOCKET && name == SO_TYPE) {
        int type = SOCK_STREAM;
        assert(*len == sizeof type);
        memcpy(value, &type, sizeof type);
        return 0;
    }
    return (int)answer(-ENOPROTOOPT);
}

int __wrap_setsockopt(int fd, int level, int name, const void *value, socklen_t len)
{
    (void)level;
    (void)name;
    (void)value;
    (void)len;
    (void)descriptor_object(fd, DESCRIPTOR_SOCKET);
    return 0;
}

int __wrap_getsockname(int fd, struct sockaddr *addr, socklen_t *len)
{
    (void)addr;
    (void)len;
    (void)descriptor_object(fd, DESCRIPTOR_SOCKET);
    return (int)answer(-ENOTCONN);
}

int __wrap_getpeername(int fd, struct sockaddr *addr, socklen_t *len)
{
    return __wrap_getsockname(fd, addr, len);
}
