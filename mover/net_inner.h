// What the files of mover/net.h share. Nobody else includes it.
#ifndef PENSTOCK_MOVER_NET_INNER_H
#define PENSTOCK_MOVER_NET_INNER_H

#include <netdb.h>

#include "mover/net.h"

// "ADDR:PORT" of a struct sockaddr of IP, else "pipe".
void net_address_text(const void *addr, size_t addr_len, char *out, size_t len);
// The port of a struct sockaddr_in or sockaddr_in6.
void net_port_set(void *addr, uint16_t port);
// getaddrinfo for TCP, ports 0; `flags` beyond AI_NUMERICSERV. Blocks as long as the resolver does. The list
// is the caller's to freeaddrinfo. -errno with *err set (ERR_START).
MUST_CHECK int net_resolve(const char *host, enum net_family family, int flags, struct addrinfo **out,
                           struct err *err);

#endif
