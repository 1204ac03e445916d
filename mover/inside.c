#include "mover/inside.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "mover/net.h"
#include "mover/relay.h"
#include "storage/sys.h"

// The abstract name of an agent; returns the length of the address.
static socklen_t name_of(const struct job_id *agent, struct sockaddr_un *out)
{
    static const char prefix[] = "penstock-";
    *out = (struct sockaddr_un){.sun_family = AF_UNIX};
    char *at = out->sun_path + 1; // the name of an abstract socket begins with a zero
    memcpy(at, prefix, strlen(prefix));
    at += strlen(prefix);
    for (size_t i = 0; i < sizeof agent->bytes; i++)
        at += snprintf(at, 3, "%02x", agent->bytes[i]);
    return (socklen_t)(at - (char *)out);
}

int inside_listen(const struct job_id *agent)
{
    struct sockaddr_un name;
    socklen_t len = name_of(agent, &name);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -errno;
    if (bind(fd, (struct sockaddr *)&name, len) == 0 && listen(fd, SOMAXCONN) == 0)
        return fd;
    int rc = -errno;
    close(fd);
    return rc;
}

static int connect_to(const struct job_id *agent)
{
    struct sockaddr_un name;
    socklen_t len = name_of(agent, &name);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -errno;
    if (connect(fd, (struct sockaddr *)&name, len) == 0)
        return fd;
    int rc = -errno;
    close(fd);
    return rc;
}

static int preamble_take(int in, const uint8_t magic[PREAMBLE_MAGIC_BYTES], uint8_t bytes[PREAMBLE_BYTES],
                         struct preamble *out)
{
    uint64_t deadline_ns = sys_clock_ns() + UINT64_C(1000000) * GREETING_WAIT_MS;
    memcpy(bytes, magic, PREAMBLE_MAGIC_BYTES);
    int rc = net_read_full(in, bytes + PREAMBLE_MAGIC_BYTES, PREAMBLE_BYTES - PREAMBLE_MAGIC_BYTES,
                           deadline_ns, -1);
    if (rc == 0)
        rc = preamble_decode(bytes, out);
    if (rc == 0 && (out->version < WIRE_VERSION_MIN || out->version > WIRE_VERSION))
        rc = -EPROTONOSUPPORT;
    // A control connection over standard input and output has no preamble.
    return rc == 0 && out->kind == GREET_CONTROL ? -EPROTO : rc;
}

enum inside_status inside_serve(int in, int out, const uint8_t magic[PREAMBLE_MAGIC_BYTES])
{
    uint8_t bytes[PREAMBLE_BYTES];
    struct preamble p;
    bool taken = preamble_take(in, magic, bytes, &p) == 0;
    int sock = taken ? connect_to(&p.job) : -1;
    if (sock >= 0)
        return relay_run(in, out, sock, bytes, sizeof bytes) < 0 ? INSIDE_BROKE : INSIDE_ENDED;
    close(in);
    if (out != in)
        close(out);
    return taken ? INSIDE_NO_AGENT : INSIDE_BROKE;
}
