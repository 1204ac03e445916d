// Agents: what reach.c starts by ssh is a process on the host that it names.
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "mover/agent.h"
#include "tests/sim/net.h"
#include "tests/sim/sched.h"
#include "tests/sim/world.h"
#include "tests/sim/wraps.h"

enum { TERM_WAIT_MS = 2000 };

static void say(void *arg, const char *line)
{
    (void)arg;
    world_trace("%s", line);
}

struct stdio {
    int fd;
};

static int agent_main(void *arg)
{
    struct stdio *stdio = arg;
    int fd = stdio->fd;
    free(stdio);
    struct agent_config cfg = {.handoff_fd = -1, .say = say};
    struct channel *control;
    int rc = channel_plain_new(fd, fd, MESSAGE_BYTES_MAX, &control);
    assert(rc == 0);
    return (int)agent_run(&cfg, control);
}

int __wrap_launch_spawn(char *const argv[], struct launched *out, struct err *err)
{
    assert(strcmp(argv[0], "ssh") == 0 && argv[1] != NULL);
    struct host *h = world_host_named(argv[1]);
    struct stdio *stdio = malloc(sizeof *stdio);
    assert(h != NULL && stdio != NULL);
    (void)err;
    struct process *p = process_new(h, "agent", agent_main, stdio);
    out->fd = net_pair(p, &stdio->fd);
    out->pid = process_id(p);
    task_pause();
    return 0;
}

int __wrap_launch_end(struct launched *l, uint32_t wait_ms)
{
    struct process *p = process_find(l->pid);
    assert(p != NULL);
    if (l->fd >= 0)
        __wrap_close(l->fd);
    if (!process_wait(p, sched_now_ns() + wait_ms * NS_PER_MS))
        world_trace("%s does not end", process_name(p));
    // A host that stands still keeps its process: only the ssh here is killed.
    if (!process_wait(p, sched_now_ns() + TERM_WAIT_MS * NS_PER_MS) && process_runs(p))
        process_kill(p);
    *l = (struct launched){.pid = -1, .fd = -1};
    return process_status(p);
}
