// The source agent: walk (peer stream's thread), send (data streams), and what they share. For source_*.c
// only.
#ifndef PENSTOCK_MOVER_SOURCE_AGENT_H
#define PENSTOCK_MOVER_SOURCE_AGENT_H

#include <pthread.h>

#include "mover/agent_inner.h"
#include "mover/plan/source.h"
#include "mover/sender.h"

// A file to be tried once more.
struct retry_entry {
    uint16_t root;
    char *path; // at the destination
    struct retry_entry *next;
};

struct source_agent {
    struct agent *agent;
    struct walk_source *roots;
    uint32_t root_count;
    bool in_memory;
    struct worktab *works;
    struct sender_source send;
    struct sender **senders; // one a stream
    struct storage_wait walking;
    uint8_t opened_buf[40 * KIB];
    // under lock
    pthread_mutex_t lock;
    struct source_plan *plan;
    bool walk_asked, retry_asked;
    uint64_t avoid_dev, avoid_inode;
    uint32_t open_segments; // closed and not yet done
    struct retry_entry *retries;
};

// source_walk.c
void source_run_peer(void *self, struct stream *s, const struct conn *conn, struct conn_end *end);

#endif
