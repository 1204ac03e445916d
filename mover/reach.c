#include "mover/reach.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "mover/dial.h"
#include "storage/sys.h"

#define DIAL_NS     UINT64_C(10000000000)
#define END_WAIT_MS 5000

enum { RSH_WORDS_MAX = 32 };

const char *reach_name(const struct place *place)
{
    return place->kind == PLACE_LOCAL ? "localhost" : place->host;
}

// The words of a program to start; posix_spawn takes what it does not change as char *.
struct words {
    char *argv[2 * RSH_WORDS_MAX];
    size_t count;
};

static void add(struct words *w, const char *word)
{
    assert(w->count + 1 < ARRAY_LEN(w->argv));
    w->argv[w->count++] = (char *)(uintptr_t)word;
    w->argv[w->count] = NULL;
}

int reach_check_rsh(const char *rsh, struct err *err)
{
    unsigned count = 0;
    for (const char *at = rsh != NULL ? rsh : "ssh"; *at != '\0';) {
        at += strspn(at, " ");
        size_t len = strcspn(at, " ");
        count += len > 0;
        at += len;
    }
    if (count > 0 && count <= RSH_WORDS_MAX)
        return 0;
    if (count == 0)
        err_set(err, ERR_USAGE, 0, NULL, NULL, 0, "--rsh names no program");
    else
        err_set(err, ERR_USAGE, 0, NULL, NULL, 0, "--rsh has %u words, the most is %d", count, RSH_WORDS_MAX);
    return -EINVAL;
}

// Our program at an ssh end. `rsh` is cut into words in place; reach_check_rsh has seen to their number.
static void add_remote(struct words *w, const struct reach_config *cfg, const struct place *p, char *rsh)
{
    char *save = NULL;
    for (char *word = strtok_r(rsh, " ", &save); word != NULL; word = strtok_r(NULL, " ", &save))
        add(w, word);
    add(w, p->host);
    add(w, cfg->remote_path != NULL ? cfg->remote_path : "penstock");
}

// `serve --stdio` and what it needs to know.
static void add_serve(struct words *w, const struct reach_config *cfg, bool local, char ports[32])
{
    add(w, "serve");
    add(w, "--stdio");
    if (cfg->loopback)
        add(w, "--loopback");
    if (local && cfg->bind_to != NULL) {
        add(w, "--bind");
        add(w, cfg->bind_to);
    }
    if (cfg->family != NET_ANY)
        add(w, cfg->family == NET_V4 ? "-4" : "-6");
    if (cfg->port != 0) {
        snprintf(ports, 32, "--ports=%u-%u", cfg->port, cfg->port_hi);
        add(w, ports);
    }
}

// How the child makes a connection to the other end inside ssh.
static void add_inside(struct words *w, const struct reach_config *cfg, char *rsh)
{
    add(w, "--");
    add_remote(w, cfg, cfg->inside, rsh);
    add(w, "serve");
    add(w, "--stdio");
}

static int start_child(const struct reach_config *cfg, const struct place *p, struct channel **channel,
                       struct launched *child, struct err *err)
{
    struct words w = {.count = 0};
    char self[PATH_MAX], ports[32];
    bool local = p->kind == PLACE_LOCAL;
    char *rsh = strdup(cfg->rsh != NULL ? cfg->rsh : "ssh");
    int rc = rsh == NULL ? -ENOMEM : reach_check_rsh(rsh, err);
    if (rc == 0 && local)
        rc = launch_self(self, sizeof self);
    if (rc == 0) {
        if (local)
            add(&w, self);
        else
            add_remote(&w, cfg, p, rsh);
        add_serve(&w, cfg, local, ports);
        if (local && cfg->inside != NULL)
            add_inside(&w, cfg, rsh);
        rc = launch_spawn(w.argv, child, err);
    }
    free(rsh);
    if (rc < 0) {
        if (err->class == ERR_NONE)
            err_set(err, ERR_START, -rc, "start an agent", NULL, 0, "%s", "");
        return rc;
    }
    int fd = child->fd;
    child->fd = -1;
    return channel_plain_new(fd, fd, MESSAGE_BYTES_MAX, channel);
}

static int dial_agent(const struct reach_config *cfg, const struct place *p, const struct job_id *id,
                      int cancel_fd, struct channel **channel, struct err *err)
{
    const struct key *key = cfg->keys != NULL ? key_ring_for_host(cfg->keys, p->host) : NULL;
    if (key == NULL) {
        err_set(err, ERR_USAGE, 0, "", NULL, 0, "no key for %s: give its line with --key FILE", p->host);
        return -EINVAL;
    }
    int fd;
    int rc = dial_control(p->host, p->port != 0 ? p->port : PENSTOCK_PORT, cfg->family, cfg->bind_to, id,
                          sys_clock_ns() + DIAL_NS, cancel_fd, &fd, err);
    if (rc < 0)
        return rc;
    struct tls *tls;
    rc = tls_client_new(key, &tls);
    if (rc < 0)
        close(fd);
    else
        rc = channel_tls_new(fd, tls, MESSAGE_BYTES_MAX, channel);
    if (rc < 0)
        err_set(err, ERR_START, -rc, "start TLS", NULL, 0, "%s", "");
    return rc;
}

int reach_agent(const struct reach_config *cfg, const struct place *place, const struct job_id *id,
                int cancel_fd, struct channel **channel, struct launched *child, struct err *err)
{
    err->class = ERR_NONE;
    int rc = place->kind == PLACE_AGENT ? dial_agent(cfg, place, id, cancel_fd, channel, err)
                                        : start_child(cfg, place, channel, child, err);
    if (rc < 0 && err->class == ERR_NONE)
        err_set(err, ERR_START, -rc, "reach the agent", NULL, 0, "%s", "");
    if (rc < 0 && err->node[0] == '\0')
        snprintf(err->node, sizeof err->node, "%s", reach_name(place));
    return rc;
}

void reach_leave(struct channel *channel, struct launched *child)
{
    channel_free(channel);
    if (child->pid > 0)
        (void)launch_end(child, END_WAIT_MS); // its last word has been heard, or never will be
    child->pid = 0;
}

void reach_lost(const struct channel *channel, const struct launched *child, bool spoke, int error,
                struct err *err)
{
    if (error == -EACCES)
        err_set(err, ERR_AUTH, 0, "", NULL, 0, "%s", channel_why(channel));
    else if (error == -EPROTONOSUPPORT)
        err_set(err, ERR_VERSION, 0, "", NULL, 0, "%s", channel_why(channel));
    else if (!spoke && (error == -ENODATA || error == -ECONNRESET || error == -EPIPE || error == -ETIMEDOUT))
        err_set(err, ERR_START, error == -ETIMEDOUT ? ETIMEDOUT : 0, "", NULL, 0, "no agent answered%s",
                child->pid > 0 ? "; is penstock there (--remote-path)?" : "");
    else if (error == -EPROTO || error == -EMSGSIZE || error == -EBADMSG)
        err_set(err, spoke ? ERR_PROTOCOL : ERR_START, -error, "", NULL, 0,
                "what answered does not speak as an agent does");
    else if (error == -ENODATA)
        err_set(err, ERR_LOST, 0, "", NULL, 0, "the agent closed the control connection");
    else
        err_set(err, ERR_LOST, -error, "", NULL, 0, "the control connection failed");
}
