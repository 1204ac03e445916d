#include "mover/net.h"

#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <ifaddrs.h>
#include <limits.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "mover/net_inner.h"
#include "proto/limits.h"
#include "proto/wire.h"

enum {
    // Kernel-chosen ports that are tried until one is free on every address.
    PORT_TRIES = 16,
    // A quiet connection is asked for a sign of life after 15 s and given up 15 s later.
    KEEPALIVE_IDLE_S = 15,
    KEEPALIVE_INTERVAL_S = 5,
    KEEPALIVE_PROBES = 3,
};

static bool port_take(const char *text, uint16_t *out)
{
    uint32_t port = 0;
    size_t len = strlen(text);
    if (len < 1 || len > 5)
        return false;
    for (size_t i = 0; i < len; i++) {
        if (text[i] < '0' || text[i] > '9')
            return false;
        port = 10 * port + (uint32_t)(text[i] - '0');
    }
    if (port > UINT16_MAX)
        return false;
    *out = (uint16_t)port;
    return true;
}

// An IPv6 literal, perhaps with a zone: fe80::1%eth0.
static bool is_v6(const char *text, size_t len)
{
    char literal[INET6_ADDRSTRLEN];
    struct in6_addr addr;
    const char *zone = memchr(text, '%', len);
    size_t bare = zone != NULL ? (size_t)(zone - text) : len;
    if (bare >= sizeof(literal) || bare + 1 == len)
        return false;
    memcpy(literal, text, bare);
    literal[bare] = '\0';
    return inet_pton(AF_INET6, literal, &addr) == 1;
}

// A host name: nothing that a terminal, an option parser or a resolver could take for something else.
static bool is_name(const char *text, size_t len)
{
    if (len > 0 && text[0] == '-')
        return false;
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c <= ' ' || c == 0x7f || strchr("/[]@", c) != NULL)
            return false;
    }
    return true;
}

int net_parse(const char *text, uint16_t default_port, char *host, size_t host_len, uint16_t *port)
{
    const char *at = text, *port_text = NULL;
    size_t len = strlen(text);
    bool ok;
    if (text[0] == '[') {
        const char *close = strchr(text, ']');
        if (close == NULL || (close[1] != ':' && close[1] != '\0'))
            return -EINVAL;
        at = text + 1;
        len = (size_t)(close - at);
        port_text = close[1] == ':' ? close + 2 : NULL;
        ok = is_v6(at, len);
    } else {
        const char *colon = strchr(text, ':');
        if (colon != NULL && colon == strrchr(text, ':')) {
            len = (size_t)(colon - text);
            port_text = colon + 1;
            colon = NULL;
        }
        ok = colon != NULL ? is_v6(at, len) : is_name(at, len) && (len > 0 || port_text != NULL);
    }
    uint16_t value = default_port;
    if (!ok || len >= host_len || (port_text != NULL && !port_take(port_text, &value)))
        return -EINVAL;
    memcpy(host, at, len);
    host[len] = '\0';
    *port = value;
    return 0;
}

void net_address_text(const void *addr, size_t addr_len, char *out, size_t len)
{
    const struct sockaddr *sa = addr;
    char host[NI_MAXHOST], port[NI_MAXSERV];
    bool ip = addr_len >= sizeof(sa->sa_family) && (sa->sa_family == AF_INET || sa->sa_family == AF_INET6);
    if (!ip || getnameinfo(sa, (socklen_t)addr_len, host, sizeof(host), port, sizeof(port),
                           NI_NUMERICHOST | NI_NUMERICSERV) != 0)
        snprintf(out, len, "pipe");
    else
        snprintf(out, len, sa->sa_family == AF_INET6 ? "[%s]:%s" : "%s:%s", host, port);
}

void net_local(int fd, char *out, size_t len)
{
    struct sockaddr_storage addr = {0};
    socklen_t addr_len = sizeof(addr);
    int rc = getsockname(fd, (struct sockaddr *)&addr, &addr_len);
    net_address_text(&addr, rc == 0 ? addr_len : 0, out, len);
}

void net_remote(int fd, char *out, size_t len)
{
    struct sockaddr_storage addr = {0};
    socklen_t addr_len = sizeof(addr);
    int rc = getpeername(fd, (struct sockaddr *)&addr, &addr_len);
    net_address_text(&addr, rc == 0 ? addr_len : 0, out, len);
}

static int option_set(int fd, int level, int name, int value)
{
    return setsockopt(fd, level, name, &value, sizeof(value)) < 0 ? -errno : 0;
}

int net_tune(int fd)
{
    int domain = 0;
    socklen_t len = sizeof(domain);
    if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &len) == 0 && domain == AF_UNIX)
        return 0;
    int rc = option_set(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    if (rc == 0)
        rc = option_set(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
    if (rc == 0)
        rc = option_set(fd, IPPROTO_TCP, TCP_KEEPIDLE, KEEPALIVE_IDLE_S);
    if (rc == 0)
        rc = option_set(fd, IPPROTO_TCP, TCP_KEEPINTVL, KEEPALIVE_INTERVAL_S);
    if (rc == 0)
        rc = option_set(fd, IPPROTO_TCP, TCP_KEEPCNT, KEEPALIVE_PROBES);
    return rc;
}

int net_resolve(const char *host, enum net_family family, int flags, struct addrinfo **out, struct err *err)
{
    struct addrinfo hints = {
        .ai_family = family == NET_V4   ? AF_INET
                     : family == NET_V6 ? AF_INET6
                                        : AF_UNSPEC,
        .ai_socktype = SOCK_STREAM,
        .ai_flags = flags | AI_NUMERICSERV,
    };
    int code = getaddrinfo(host, "0", &hints, out);
    if (code == 0)
        return 0;
    int rc = code == EAI_SYSTEM ? -errno : code == EAI_MEMORY ? -ENOMEM : -EADDRNOTAVAIL;
    bool plain = rc != -EADDRNOTAVAIL; // else the resolver's words say more than an errno
    const char *name = host != NULL ? host : "";
    err_set(err, ERR_START, plain ? -rc : 0, "look up", name, strlen(name), plain ? NULL : "%s",
            gai_strerror(code));
    return rc;
}

void net_port_set(void *addr, uint16_t port)
{
    struct sockaddr *sa = addr;
    if (sa->sa_family == AF_INET6)
        ((struct sockaddr_in6 *)addr)->sin6_port = htons(port);
    else
        ((struct sockaddr_in *)addr)->sin_port = htons(port);
}

static int port_of(int fd, uint16_t *out)
{
    struct sockaddr_storage addr = {0};
    socklen_t len = sizeof(addr);
    if (getsockname(fd, (struct sockaddr *)&addr, &len) < 0)
        return -errno;
    in_port_t port = addr.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&addr)->sin6_port
                                                : ((struct sockaddr_in *)&addr)->sin_port;
    *out = ntohs(port);
    return 0;
}

static int listener_prepare(int fd, const struct addrinfo *ai)
{
    int rc = option_set(fd, SOL_SOCKET, SO_REUSEADDR, 1);
    if (rc == 0 && ai->ai_family == AF_INET6)
        rc = option_set(fd, IPPROTO_IPV6, IPV6_V6ONLY, 1); // the IPv4 socket stands apart
    if (rc == 0 && bind(fd, ai->ai_addr, ai->ai_addrlen) < 0)
        rc = -errno;
    if (rc == 0 && listen(fd, SOMAXCONN) < 0)
        rc = -errno;
    return rc;
}

static int listen_one(const struct addrinfo *ai, uint16_t port, struct err *err)
{
    net_port_set(ai->ai_addr, port);
    int fd = socket(ai->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    int rc = fd < 0 ? -errno : listener_prepare(fd, ai);
    if (rc == 0)
        return fd;
    if (fd >= 0)
        close(fd);
    char address[ADDRESS_BYTES_MAX];
    net_address_text(ai->ai_addr, ai->ai_addrlen, address, sizeof(address));
    err_set(err, ERR_START, -rc, "listen on", address, strlen(address), NULL);
    return rc;
}

// An earlier entry of the list has the same address.
static bool is_repeated(const struct addrinfo *list, const struct addrinfo *ai)
{
    for (; list != ai; list = list->ai_next) {
        if (list->ai_addrlen != ai->ai_addrlen)
            continue;
        net_port_set(list->ai_addr, 0);
        net_port_set(ai->ai_addr, 0);
        if (memcmp(list->ai_addr, ai->ai_addr, ai->ai_addrlen) == 0)
            return true;
    }
    return false;
}

// Listens on all addresses of the list at one port. `unnamed`: a family that this host does not have is left
// out.
static int listen_all(const struct addrinfo *list, bool unnamed, uint16_t port, int fds[NET_LISTEN_MAX],
                      uint16_t *bound, struct err *err)
{
    int count = 0, rc = 0;
    for (const struct addrinfo *ai = list; ai != NULL && rc == 0; ai = ai->ai_next) {
        if (is_repeated(list, ai))
            continue;
        int fd = -E2BIG;
        if (count < NET_LISTEN_MAX)
            fd = listen_one(ai, port, err);
        else
            err_set(err, ERR_START, E2BIG, "listen on", NULL, 0, "the name has more than %d addresses",
                    NET_LISTEN_MAX);
        if (unnamed && (fd == -EAFNOSUPPORT || fd == -EADDRNOTAVAIL))
            continue;
        if (fd >= 0)
            fds[count++] = fd;
        rc = fd < 0 ? fd : port == 0 ? port_of(fd, &port) : 0;
    }
    if (rc == 0 && count == 0)
        rc = -EADDRNOTAVAIL; // err tells of the last one
    while (rc < 0 && count > 0)
        close(fds[--count]);
    if (rc < 0)
        return rc;
    *bound = port;
    return count;
}

int net_listen(const char *host, uint16_t port, uint16_t port_hi, enum net_family family,
               int fds[NET_LISTEN_MAX], uint16_t *bound, struct err *err)
{
    struct addrinfo *list;
    bool unnamed = host == NULL || host[0] == '\0';
    int made[NET_LISTEN_MAX];
    int rc = net_resolve(unnamed ? NULL : host, family, host != NULL ? AI_PASSIVE : 0, &list, err);
    if (rc < 0)
        return rc;
    uint32_t last = port == 0 ? PORT_TRIES - 1 : port_hi > port ? port_hi : port;
    for (uint32_t p = port; p <= last; p++) {
        rc = listen_all(list, unnamed, port == 0 ? 0 : (uint16_t)p, made, bound, err);
        if (rc != -EADDRINUSE)
            break;
    }
    freeaddrinfo(list);
    if (rc > 0)
        memcpy(fds, made, (size_t)rc * sizeof(made[0]));
    return rc;
}

// Whether another host could dial this address. One that needs a zone could not.
static bool is_dialable(const struct ifaddrs *ifa)
{
    if (ifa->ifa_addr == NULL || (ifa->ifa_flags & IFF_UP) == 0)
        return false;
    if (ifa->ifa_addr->sa_family == AF_INET)
        return true;
    return ifa->ifa_addr->sa_family == AF_INET6 &&
           !IN6_IS_ADDR_LINKLOCAL(&((const struct sockaddr_in6 *)(const void *)ifa->ifa_addr)->sin6_addr);
}

// Adds those of `all` that are loopback, or are not, up to `most` in all; returns how many there are then.
static unsigned addresses_put(const struct ifaddrs *all, bool loopback, uint16_t port, unsigned count,
                              unsigned most, struct wire_writer *w)
{
    for (const struct ifaddrs *ifa = all; ifa != NULL && count < most; ifa = ifa->ifa_next) {
        if (!is_dialable(ifa) || ((ifa->ifa_flags & IFF_LOOPBACK) != 0) != loopback)
            continue;
        struct sockaddr_storage addr = {0};
        size_t addr_len =
            ifa->ifa_addr->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
        char text[ADDRESS_BYTES_MAX];
        memcpy(&addr, ifa->ifa_addr, addr_len);
        net_port_set(&addr, port);
        net_address_text(&addr, addr_len, text, sizeof(text));
        wire_put_blob(w, text, strlen(text));
        count++;
    }
    return count;
}

int64_t net_addresses(uint16_t port, uint8_t *out, size_t len)
{
    struct ifaddrs *all;
    struct wire_writer w;
    if (getifaddrs(&all) < 0)
        return -errno;
    wire_writer_init(&w, out, len);
    // Two places are kept for loopback, IPv4 and IPv6.
    unsigned count = addresses_put(all, false, port, 0, ADDRESSES_MAX - 2, &w);
    addresses_put(all, true, port, count, ADDRESSES_MAX, &w);
    freeifaddrs(all);
    return wire_written(&w);
}
