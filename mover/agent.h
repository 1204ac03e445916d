// An agent's side of one job: a process of its own (child of the listener, or `serve --stdio`). Its control
// thread speaks with the coordinator and touches storage only when the job is opened and closed; a walk or
// compare thread, workers and a commit thread do it otherwise. All of them ask the pure machine
// (plan/source.h or plan/dest.h) under its lock. In the verify role (verify_agent.c) it hands entries of a
// receipt to threads that read them again.
#ifndef PENSTOCK_MOVER_AGENT_H
#define PENSTOCK_MOVER_AGENT_H

#include "mover/channel.h"
#include "mover/net.h"

struct agent_config {
    const char *root; // paths are beneath it; NULL: the whole file system, relative to the working directory
                      // (--stdio)
    bool read_only;
    enum net_family family;
    int handoff_fd; // the listener passes data and peer sockets here, with their preamble beside them; -1:
                    // this process listens itself
    uint16_t port;  // handoff: the listener's port; else the lower end of the range to listen on (0: any)
    uint16_t port_hi;
    bool loopback_only;  // with handoff_fd -1
    const char *bind_to; // local address of its connections, also to listen on with handoff_fd -1; or NULL
    bool takes_inside;   // with handoff_fd -1: connections inside ssh too (inside.h)
    char *const *dials_inside;                // the program that makes one to the other agent; NULL: none
    void (*say)(void *arg, const char *line); // one audit line per job
    void *arg;
};

enum agent_end {
    AGENT_DONE = 0,
    AGENT_FAILED = 1, // the job did not end in order
    AGENT_HANGS = 2,  // nor did its threads: some wait for storage that does not answer
};

// Runs one job over `control` (taken over) until it is over. After AGENT_HANGS threads and their memory are
// still there: the process must end by _exit, without destructors. The kernel then lets it go once the
// storage has answered, and its locks with it.
enum agent_end agent_run(const struct agent_config *cfg, struct channel *control);

#endif
