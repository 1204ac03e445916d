// Receipts, an agent in a thread, and what an asker is told.
#ifndef PENSTOCK_TESTS_UNIT_VERIFY_KIT_H
#define PENSTOCK_TESTS_UNIT_VERIFY_KIT_H

#include <pthread.h>
#include <stdio.h>
#include <sys/socket.h>

#include <CUnit/CUnit.h>

#include "mover/agent.h"
#include "mover/verify.h"
#include "tests/unit/scratch.h"

static const struct job_id job = {{0x77, 0x01}};

// ---- receipts ----

// Of these entries, in the folder "state".
static inline struct receipt_reader *receipt_of(const struct scratch *s, const struct receipt_entry *entries,
                                                size_t count)
{
    struct receipt_writer *w;
    struct receipt_reader *r;
    struct err err;
    char state[600], path[1024];
    struct receipt_job about = {.program = blob_text("test")};
    struct receipt_end end = {.exit_status = 0};
    scratch_dir(s->fd, "state");
    snprintf(state, sizeof state, "%s/state", s->path);
    CU_ASSERT_EQUAL_FATAL(receipt_writer_new(state, &job, &about, &w, &err), 0);
    for (size_t i = 0; i < count; i++)
        CU_ASSERT_EQUAL_FATAL(receipt_writer_add(w, &entries[i]), 0);
    CU_ASSERT_EQUAL_FATAL(receipt_writer_end(w, &end, path, sizeof path), 0);
    receipt_writer_free(w);
    CU_ASSERT_EQUAL_FATAL(receipt_reader_open(path, &r, &err), 0);
    return r;
}

static inline struct receipt_entry entry(enum entry_type type, enum receipt_outcome outcome, const char *path)
{
    return (struct receipt_entry){.type = type,
                                  .outcome = outcome,
                                  .proof = PROOF_WIRE,
                                  .mode = type == ENTRY_DIR ? 0755 : 0644,
                                  .path = blob_text(path)};
}

// Of scratch_file's "text".
static inline struct receipt_entry text_entry(const char *path)
{
    struct receipt_entry e = entry(ENTRY_FILE, RECEIPT_MOVED, path);
    struct digest leaf = digest_of("text", 4);
    e.size = 4;
    e.digest = digest_file(&leaf, 4);
    return e;
}

// ---- the asking side ----

struct said {
    unsigned count;
    struct err errs[8];
};

static inline void remember(void *arg, const struct err *problem)
{
    struct said *said = arg;
    if (said->count < ARRAY_LEN(said->errs))
        said->errs[said->count] = *problem;
    said->count++;
}

static inline struct channel *plain(int fd)
{
    struct channel *c;
    CU_ASSERT_EQUAL_FATAL(channel_plain_new(fd, fd, MESSAGE_BYTES_MAX, &c), 0);
    return c;
}

// A thread that speaks for the agent at one end of a pair; the other end.
static inline struct channel *agent_start(void *(*run)(void *), void *arg, struct channel **its,
                                          pthread_t *thread)
{
    int fds[2];
    CU_ASSERT_EQUAL_FATAL(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    *its = plain(fds[1]);
    CU_ASSERT_EQUAL_FATAL(pthread_create(thread, NULL, run, arg), 0);
    return plain(fds[0]);
}

struct real_agent {
    struct agent_config cfg;
    struct channel *control;
    int status;
    char line[256]; // of its log
};

static inline void say(void *arg, const char *line)
{
    struct real_agent *a = arg;
    snprintf(a->line, sizeof a->line, "%s", line);
}

static inline void *real_run(void *arg)
{
    struct real_agent *a = arg;
    a->status = (int)agent_run(&a->cfg, a->control);
    return NULL;
}

static inline struct channel *real_start(struct real_agent *a, const char *root, pthread_t *thread)
{
    *a =
        (struct real_agent){.cfg = {.root = root, .read_only = true, .handoff_fd = -1, .say = say, .arg = a}};
    return agent_start(real_run, a, &a->control, thread);
}

#endif
