#include "mover/net.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <CUnit/CUnit.h>

#include "tests/unit/scratch.h"

static void close_all(const int *fds, int count)
{
    for (int i = 0; i < count; i++)
        close(fds[i]);
}

static void test_pass_and_take(void)
{
    int pair[2], pipe_fds[2], fd = -1;
    char beside[300] = "";
    CU_ASSERT_EQUAL_FATAL(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    CU_ASSERT_EQUAL_FATAL(pipe2(pipe_fds, O_CLOEXEC), 0);
    CU_ASSERT_EQUAL(net_take_fd(pair[1], &fd, beside, sizeof(beside)), 0);
    CU_ASSERT_EQUAL(net_pass_fd(pair[0], pipe_fds[0], "first", 5), 0);
    CU_ASSERT_EQUAL(net_pass_fd(pair[0], pipe_fds[0], "second", 6), 0);
    CU_ASSERT_EQUAL(net_take_fd(pair[1], &fd, beside, sizeof(beside)), 5);
    CU_ASSERT_EQUAL(memcmp(beside, "first", 5), 0);
    CU_ASSERT_FATAL(fd >= 0);
    CU_ASSERT((fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0);
    CU_ASSERT_EQUAL(write(pipe_fds[1], "through", 7), 7);
    CU_ASSERT_EQUAL(read(fd, beside, sizeof(beside)), 7);
    close(fd);
    CU_ASSERT_EQUAL(net_take_fd(pair[1], &fd, beside, sizeof(beside)), 6);
    close(fd);
    CU_ASSERT_EQUAL(net_pass_fd(pair[0], pipe_fds[0], beside, 256), 0);
    CU_ASSERT_EQUAL(net_pass_fd(pair[0], pipe_fds[0], beside, 257), -EMSGSIZE);
    CU_ASSERT_EQUAL(net_pass_fd(pair[0], pipe_fds[0], beside, 0), -EMSGSIZE);
    CU_ASSERT_EQUAL(net_take_fd(pair[1], &fd, beside, sizeof(beside)), 256);
    close(fd);
    close(pair[0]);
    CU_ASSERT_EQUAL(net_take_fd(pair[1], &fd, beside, sizeof(beside)), -ENODATA);
    close(pair[1]);
    close_all(pipe_fds, 2);
}

static void send_control(int pair, const int *fds, size_t count, const char *bytes, size_t len)
{
    char control[CMSG_SPACE(4 * sizeof(int))] = {0};
    char copy[64];
    memcpy(copy, bytes, len);
    struct iovec iov = {.iov_base = copy, .iov_len = len};
    struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
    if (count > 0) {
        msg.msg_control = control;
        msg.msg_controllen = CMSG_SPACE(count * sizeof(int));
        struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(count * sizeof(int));
        memcpy(CMSG_DATA(c), fds, count * sizeof(int));
    }
    CU_ASSERT_EQUAL(sendmsg(pair, &msg, 0), (ssize_t)len);
}

// Whatever comes through the pair: nothing is lost track of.
static void test_take_odd(void)
{
    int pair[2], fds[3], fd = -1;
    char beside[8];
    CU_ASSERT_EQUAL_FATAL(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    for (size_t i = 0; i < ARRAY_LEN(fds); i++)
        fds[i] = dup(pair[0]);
    uint32_t open_before = scratch_open_files();
    send_control(pair[0], fds, 0, "none", 4);
    CU_ASSERT_EQUAL(net_take_fd(pair[1], &fd, beside, sizeof(beside)), -EPROTO);
    send_control(pair[0], fds, 3, "three", 5);
    CU_ASSERT_EQUAL(net_take_fd(pair[1], &fd, beside, sizeof(beside)), -EPROTO);
    send_control(pair[0], fds, 1, "too long", 9);
    CU_ASSERT_EQUAL(net_take_fd(pair[1], &fd, beside, sizeof(beside)), -EMSGSIZE);
    CU_ASSERT_EQUAL(scratch_open_files(), open_before);
    CU_ASSERT_EQUAL(fd, -1);
    close_all(fds, 3);
    close_all(pair, 2);
}

static void test_pass_full(void)
{
    int pair[2], fd, passed = 0, rc;
    char beside[256] = "";
    CU_ASSERT_EQUAL_FATAL(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    do {
        rc = net_pass_fd(pair[0], pair[0], beside, sizeof(beside));
        passed += rc == 0;
    } while (rc == 0 && passed < 100000);
    CU_ASSERT_EQUAL(rc, -EAGAIN);
    while (net_take_fd(pair[1], &fd, beside, sizeof(beside)) > 0) {
        close(fd);
        passed--;
    }
    CU_ASSERT_EQUAL(passed, 0);
    close(pair[1]);
    CU_ASSERT_EQUAL(net_pass_fd(pair[0], pair[0], beside, 1), -EPIPE); // and no signal
    close(pair[0]);
}

void suite_net_pass(void)
{
    CU_pSuite suite = CU_add_suite("net_pass", NULL, NULL);
    CU_add_test(suite, "pass_and_take", test_pass_and_take);
    CU_add_test(suite, "take_odd", test_take_odd);
    CU_add_test(suite, "pass_full", test_pass_full);
}
