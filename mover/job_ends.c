// Reaching the two agents of a job. A local end and an ssh end are the same thing: a child whose control
// plane is its standard input and output. An agent's end is dialled and takes up TLS with the pre-shared key.
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "mover/dial.h"
#include "mover/job_inner.h"
#include "storage/sys.h"

#define DIAL_NS     UINT64_C(10000000000)
#define END_WAIT_MS 5000

enum { RSH_WORDS_MAX = 32 };

const struct place *job_place(const struct job *j, unsigned node)
{
    return node == COORD_SOURCE ? &j->places[0] : &j->places[j->cfg.source_count];
}

const char *job_end_name(const struct job *j, unsigned node)
{
    const struct place *p = job_place(j, node);
    return p->kind == PLACE_LOCAL ? "localhost" : p->host;
}

static bool both_local(const struct job *j)
{
    return job_place(j, COORD_SOURCE)->kind == PLACE_LOCAL && job_place(j, COORD_DEST)->kind == PLACE_LOCAL;
}

// `penstock serve --stdio` and what it needs to know, appended to argv.
static void serve_words(const struct job *j, char *program, char **argv, size_t at, char ports[32])
{
    static char serve[] = "serve", stdio[] = "--stdio", loopback[] = "--loopback", four[] = "-4",
                six[] = "-6";
    argv[at++] = program;
    argv[at++] = serve;
    argv[at++] = stdio;
    if (both_local(j))
        argv[at++] = loopback;
    if (j->cfg.family != NET_ANY)
        argv[at++] = j->cfg.family == NET_V4 ? four : six;
    if (j->cfg.port != 0) {
        snprintf(ports, 32, "--ports=%u-%u", j->cfg.port, j->cfg.port_hi);
        argv[at++] = ports;
    }
    argv[at] = NULL;
}

static int start_child(struct job *j, unsigned node, struct err *err)
{
    const struct place *p = job_place(j, node);
    char *argv[RSH_WORDS_MAX + 16];
    char self[PATH_MAX], ports[32];
    char *rsh = NULL;
    size_t at = 0;
    int rc = 0;
    if (p->kind == PLACE_LOCAL) {
        rc = launch_self(self, sizeof self);
        serve_words(j, self, argv, 0, ports);
    } else {
        rsh = strdup(j->cfg.rsh != NULL ? j->cfg.rsh : "ssh");
        char *save = NULL;
        for (char *word = rsh != NULL ? strtok_r(rsh, " ", &save) : NULL; word != NULL && at < RSH_WORDS_MAX;
             word = strtok_r(NULL, " ", &save))
            argv[at++] = word;
        argv[at++] = (char *)(uintptr_t)p->host; // posix_spawn takes what it does not change as char *
        serve_words(j, (char *)(uintptr_t)(j->cfg.remote_path != NULL ? j->cfg.remote_path : "penstock"),
                    argv, at, ports);
        rc = rsh != NULL ? 0 : -ENOMEM;
    }
    if (rc == 0)
        rc = launch_spawn(argv, &j->ends[node].child, err);
    free(rsh);
    if (rc < 0) {
        if (err->class == ERR_NONE)
            err_set(err, ERR_START, -rc, "start an agent", NULL, 0, "%s", "");
        return rc;
    }
    int fd = j->ends[node].child.fd;
    j->ends[node].child.fd = -1;
    return channel_plain_new(fd, fd, MESSAGE_BYTES_MAX, &j->ends[node].channel);
}

static int dial_agent(struct job *j, unsigned node, struct err *err)
{
    const struct place *p = job_place(j, node);
    const struct key *key = j->cfg.keys != NULL ? key_ring_for_host(j->cfg.keys, p->host) : NULL;
    if (key == NULL) {
        err_set(err, ERR_USAGE, 0, "", NULL, 0, "no key for %s: give its line with --key FILE", p->host);
        return -EINVAL;
    }
    int fd;
    struct job_id id = job_id_at(&j->id, node);
    int rc = dial_control(p->host, p->port != 0 ? p->port : PENSTOCK_PORT, j->cfg.family, j->cfg.bind_to, &id,
                          sys_clock_ns() + DIAL_NS, j->bell_fd, &fd, err);
    if (rc < 0)
        return rc;
    struct tls *tls;
    rc = tls_client_new(key, &tls);
    if (rc < 0)
        close(fd);
    else
        rc = channel_tls_new(fd, tls, MESSAGE_BYTES_MAX, &j->ends[node].channel);
    if (rc < 0)
        err_set(err, ERR_START, -rc, "start TLS", NULL, 0, "%s", "");
    return rc;
}

int job_reach(struct job *j, unsigned node, struct err *err)
{
    err->class = ERR_NONE;
    int rc = job_place(j, node)->kind == PLACE_AGENT ? dial_agent(j, node, err) : start_child(j, node, err);
    if (rc < 0 && err->class == ERR_NONE)
        err_set(err, ERR_START, -rc, "reach the agent", NULL, 0, "%s", "");
    if (rc < 0 && err->node[0] == '\0')
        snprintf(err->node, sizeof err->node, "%s", job_end_name(j, node));
    return rc;
}

void job_leave(struct job *j, unsigned node)
{
    struct job_end *end = &j->ends[node];
    channel_free(end->channel);
    end->channel = NULL;
    if (end->child.pid > 0)
        (void)launch_end(&end->child, END_WAIT_MS); // its last word has been heard, or never will be
    end->child.pid = 0;
}
