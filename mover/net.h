// Addresses and sockets: parsing, listening, connecting. Blocking only where it says so.
#ifndef PENSTOCK_MOVER_NET_H
#define PENSTOCK_MOVER_NET_H

#include "proto/base.h"
#include "proto/err.h"

enum { NET_LISTEN_MAX = 8 };
enum net_family { NET_ANY, NET_V4, NET_V6 };

// "HOST:PORT", "[v6]:PORT", "HOST", "[v6]", ":PORT", "v6 literal". host gets "" when absent, port
// `default_port`. -EINVAL.
MUST_CHECK int net_parse(const char *text, uint16_t default_port, char *host, size_t host_len,
                         uint16_t *port);

// Listens on every address that the host name resolves to ("" = all, IPv6 and IPv4 apart; NULL = loopback,
// which needs no name), SO_REUSEADDR, non-blocking, close-on-exec. port 0: the kernel chooses, the same one
// for all of them; port_hi >= port: the first free one of the range. Returns how many sockets are in fds, and
// *bound. err on failure names the address (ERR_START).
MUST_CHECK int net_listen(const char *host, uint16_t port, uint16_t port_hi, enum net_family family,
                          int fds[NET_LISTEN_MAX], uint16_t *bound, struct err *err);

// Connects, trying every address the name resolves to until the deadline (sys_clock_ns): blocking, for worker
// and dial threads only; `cancel_fd` (or -1) becoming readable ends it with -ECANCELED. TCP_NODELAY,
// keepalive, close-on-exec; the socket is blocking. bind_to: local address text or NULL.
MUST_CHECK int net_connect(const char *host, uint16_t port, enum net_family family, const char *bind_to,
                           uint64_t deadline_ns, int cancel_fd, struct err *err);

// TCP_NODELAY and keepalive, which finds a dead peer of a quiet connection within 30 s; nothing for a socket
// that does not leave this host. -errno.
MUST_CHECK int net_tune(int fd);

// "ADDR:PORT" of either end of a socket, "pipe" for what is no socket of IP.
void net_local(int fd, char *out, size_t len);
void net_remote(int fd, char *out, size_t len);
// The addresses of this host's interfaces that others could dial (loopback last), as a list of blobs
// "ADDR:PORT" in the form of proto/message.h; at most ADDRESSES_MAX. Bytes written or -errno.
MUST_CHECK int64_t net_addresses(uint16_t port, uint8_t *out, size_t len);

// Reads or writes exactly len bytes by the deadline, blocking (poll); -ETIMEDOUT, -ENODATA (end before the
// first byte), -ECONNRESET, -ECANCELED.
MUST_CHECK int net_read_full(int fd, void *buf, size_t len, uint64_t deadline_ns, int cancel_fd);
MUST_CHECK int net_write_full(int fd, const void *buf, size_t len, uint64_t deadline_ns, int cancel_fd);

// Passes a socket to another process over a socketpair, with up to 256 bytes beside it; non-blocking. -EAGAIN
// when the pair is full.
MUST_CHECK int net_pass_fd(int pair, int fd, const void *bytes, size_t len);
// Takes one. *fd >= 0. Bytes beside it (> 0), 0: nothing there now; -ENODATA: the other end is closed.
MUST_CHECK int64_t net_take_fd(int pair, int *fd, void *bytes, size_t len);

#endif
