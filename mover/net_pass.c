// Descriptors from process to process (unix(7), SCM_RIGHTS).
#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "mover/net.h"

enum { BESIDE_BYTES_MAX = 256, FDS_TAKEN_MAX = 8 };

int net_pass_fd(int pair, int fd, const void *bytes, size_t len)
{
    union {
        struct cmsghdr head; // for its alignment
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = {0};
    if (len < 1 || len > BESIDE_BYTES_MAX)
        return -EMSGSIZE;
    struct iovec iov = {.iov_base = (void *)(uintptr_t)bytes, .iov_len = len}; // sendmsg only reads it
    struct msghdr msg = {.msg_iov = &iov,
                         .msg_iovlen = 1,
                         .msg_control = control.bytes,
                         .msg_controllen = sizeof(control.bytes)};
    struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof(fd));
    memcpy(CMSG_DATA(c), &fd, sizeof(fd));
    ssize_t n;
    do {
        n = sendmsg(pair, &msg, MSG_DONTWAIT | MSG_NOSIGNAL);
    } while (n < 0 && errno == EINTR);
    if (n < 0)
        return -errno;
    assert((size_t)n == len); // the pair keeps messages whole
    return 0;
}

// Takes the descriptors out of a message; closes all but the first. How many there were.
static int fds_take(struct msghdr *msg, int *first)
{
    int count = 0;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c != NULL; c = CMSG_NXTHDR(msg, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
            continue;
        size_t bytes = c->cmsg_len - CMSG_LEN(0);
        for (size_t at = 0; at + sizeof(int) <= bytes; at += sizeof(int)) {
            int fd;
            memcpy(&fd, CMSG_DATA(c) + at, sizeof(fd));
            if (count++ == 0)
                *first = fd;
            else
                close(fd);
        }
    }
    return count;
}

int64_t net_take_fd(int pair, int *fd, void *bytes, size_t len)
{
    union {
        struct cmsghdr head;
        char bytes[CMSG_SPACE(FDS_TAKEN_MAX * sizeof(int))];
    } control = {0};
    struct iovec iov = {.iov_base = bytes, .iov_len = len};
    struct msghdr msg = {.msg_iov = &iov,
                         .msg_iovlen = 1,
                         .msg_control = control.bytes,
                         .msg_controllen = sizeof(control.bytes)};
    ssize_t n;
    do {
        n = recvmsg(pair, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    } while (n < 0 && errno == EINTR);
    if (n < 0)
        return errno == EAGAIN || errno == EWOULDBLOCK ? 0 : -errno;
    int taken = -1;
    int count = fds_take(&msg, &taken);
    int rc = 0;
    if ((msg.msg_flags & MSG_CTRUNC) != 0)
        rc = -EMFILE; // the kernel drops what we have no number for
    else if ((msg.msg_flags & MSG_TRUNC) != 0)
        rc = -EMSGSIZE;
    else if (n == 0 && count == 0)
        rc = -ENODATA;
    else if (n == 0 || count != 1)
        rc = -EPROTO;
    if (rc < 0) {
        if (taken >= 0)
            close(taken);
        return rc;
    }
    *fd = taken;
    return n;
}
