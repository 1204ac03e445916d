#include "mover/wake.h"

#include <assert.h>
#include <errno.h>
#include <sys/eventfd.h>
#include <unistd.h>

int wake_open(void)
{
    int fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    return fd < 0 ? -errno : fd;
}

// An eventfd refuses a write only when its count is full and a read only when it is zero: both are the state
// asked for.
static void settle(ssize_t n)
{
    assert(n == (ssize_t)sizeof(uint64_t) || (n < 0 && errno == EAGAIN));
}

void wake_signal(int fd)
{
    uint64_t one = 1;
    ssize_t n;
    do {
        n = write(fd, &one, sizeof(one));
    } while (n < 0 && errno == EINTR);
    settle(n);
}

void wake_drain(int fd)
{
    uint64_t count;
    ssize_t n;
    do {
        n = read(fd, &count, sizeof(count));
    } while (n < 0 && errno == EINTR);
    settle(n);
}
