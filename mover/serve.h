// The listener of `penstock serve`: one port, one process that only routes. It reads preambles (door.h),
// forks a child per job before any thread or ring exists, and passes later connections of a job to its child.
// A child dies with its listener; a job's failure ends its child only. The listener holds no secret but the
// keys of its file.
#ifndef PENSTOCK_MOVER_SERVE_H
#define PENSTOCK_MOVER_SERVE_H

#include "mover/key.h"
#include "mover/net.h"

struct serve_config {
    const char *root;        // of every path of a job
    const char *listen_host; // "" = all
    uint16_t listen_port;
    enum net_family family;
    const struct key_ring *keys;
    bool read_only;    // refuses to be a destination
    unsigned jobs_max; // children at once; 0 = 64
    // Signals are the caller's. child_fd becomes readable when a child has ended (a signalfd of SIGCHLD, not
    // blocking; it is read empty here); in_child gives every signal its default back and unblocks it, true
    // when it could: it runs in each new child before anything else.
    int child_fd;
    bool (*in_child)(void);
};

// Runs until stop_fd becomes readable. Prints through `say` (never NULL): one line per event, first
// "listening on ADDR:PORT" for each address. Returns 0, or -errno with *err when it could not start.
MUST_CHECK int serve_run(const struct serve_config *cfg, int stop_fd,
                         void (*say)(void *arg, const char *line), void *arg, struct err *err);

#endif
