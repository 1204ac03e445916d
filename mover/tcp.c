#include "mover/tcp.h"

#include <errno.h>
#include <linux/tcp.h> // netinet/tcp.h of this C library lacks later fields of TCP_INFO
#include <netinet/in.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

void tcp_figures(int fd, struct tcp_figures *out)
{
    struct tcp_info info;
    memset(&info, 0, sizeof info);
    socklen_t len = sizeof info;
    // An older kernel fills less: the rest stays zero.
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len) < 0)
        memset(&info, 0, sizeof info);
    *out = (struct tcp_figures){.retransmits = info.tcpi_total_retrans,
                                .rtt_us = info.tcpi_rtt,
                                .unacked = info.tcpi_unacked,
                                .probes = info.tcpi_probes,
                                .ack_age_ms = info.tcpi_last_ack_recv,
                                .received = info.tcpi_bytes_received};
}

int tcp_pace(int fd, uint64_t bytes_s)
{
    int protocol = 0;
    socklen_t protocol_len = sizeof protocol;
    if (getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &protocol_len) < 0)
        return -errno;
    if (protocol != IPPROTO_TCP)
        return -EOPNOTSUPP;
    if (setsockopt(fd, SOL_SOCKET, SO_MAX_PACING_RATE, &bytes_s, sizeof bytes_s) < 0)
        return -errno;
    uint64_t kept = 0;
    socklen_t len = sizeof kept;
    if (getsockopt(fd, SOL_SOCKET, SO_MAX_PACING_RATE, &kept, &len) < 0)
        return -errno;
    // A kernel with a 32-bit cap answers with 4 bytes, which fit when the rate does.
    return kept == bytes_s ? 0 : -ERANGE;
}

bool tcp_broken(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLRDHUP};
    return poll(&p, 1, 0) > 0 && (p.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
}
