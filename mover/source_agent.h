// The source agent: walk (peer stream's thread), send (data streams), and what they share. For source_*.c
// only.
#ifndef PENSTOCK_MOVER_SOURCE_AGENT_H
#define PENSTOCK_MOVER_SOURCE_AGENT_H

#include <pthread.h>

#include "mover/agent_inner.h"
#include "mover/plan/source.h"
#include "mover/sender.h"
#include "proto/receipt.h"

// A file to be tried once more.
struct retry_entry {
    uint16_t root;
    struct receipt_entry last; // as it was listed
    char *path;                // at the destination
    struct retry_entry *next;
};

// Files that are being listed once more. Each comes to one entry of a retry segment, or is settled by a
// record: with nothing else the job would end without a word of it.
struct retry_file {
    uint16_t root;
    struct receipt_entry last;
    bool told; // one of both
};
struct retry {
    struct walk_source *roots; // each a single file
    struct retry_file *files;
    uint32_t count;
};

struct source_agent {
    struct agent *agent;
    struct walk_source *roots;
    uint32_t root_count;
    bool in_memory;
    struct memory_tree memory; // of a data set that is made here
    struct worktab *works;
    struct sender_source send;
    struct sender **senders; // one a stream
    struct storage_wait walking;
    uint8_t opened_buf[NAMES_BYTES_MAX];
    // under lock
    pthread_mutex_t lock;
    struct source_plan *plan;
    bool walk_asked, retry_asked;
    uint64_t avoid_dev, avoid_inode;
    uint32_t open_segments; // closed and not yet done
    struct retry_entry *retries;
};

// source_retry.c
// Keeps the entry for the retry. -ENOMEM.
MUST_CHECK int retry_keep(struct source_agent *s, const struct entry *e);
void retry_entries_free(struct retry_entry *list);
// All that were kept become *out; on -ENOMEM they are lost. retry_free in either case.
MUST_CHECK int retry_take(struct source_agent *s, struct retry *out);
void retry_free(struct retry *r);
// File i cannot be listed again, for this reason: its record and problem are posted. Nothing when it was told
// already.
void retry_settle(struct source_agent *s, struct retry *r, uint32_t i, const struct err *err);

// source_walk.c
void source_run_peer(void *self, struct stream *s, const struct conn *conn, struct conn_end *end);

#endif
