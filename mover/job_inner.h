// The inside of a job: shared by job.c (the interface, the event list), job_run.c (the coordinator thread)
// and job_ends.c (reaching the agents), and by nobody else.
#ifndef PENSTOCK_MOVER_JOB_INNER_H
#define PENSTOCK_MOVER_JOB_INNER_H

#include <pthread.h>
#include <stdatomic.h>

#include "mover/channel.h"
#include "mover/job.h"
#include "mover/launch.h"
#include "mover/plan/coord.h"
#include "mover/receipt_file.h"

struct queued_event {
    struct queued_event *next;
    struct job_event event;
};

// One agent as the coordinator holds it.
struct job_end {
    struct channel *channel; // NULL: lost or not reached
    struct launched child;   // pid 0: none
    bool spoke;              // a message of it has come
    bool hung_up;            // it does not take what is sent
    bool closed;             // it said CLOSED
};

struct job {
    // constant while the thread runs; strings and places are the job's own copies
    struct job_config cfg;
    struct place *places; // sources, then the destination
    char *words[4];       // bind_to, rsh, remote_path, state_dir
    struct job_id id;
    char id_hex[33];
    uint64_t started_ns;
    int64_t started_s;
    pthread_t thread;
    int bell_fd; // eventfd: cancel was called
    atomic_uint cancels;
    // of the coordinator thread
    struct coord *coord;
    struct job_end ends[COORD_NODES];
    uint64_t ping_ns;
    bool over;
    struct stream_bytes {
        uint64_t all, resent;
    } sent[STREAMS_MAX]; // per stream as it told last: the snapshot shows fewer
    struct receipt_writer *receipt;
    // under lock
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct queued_event *first, **last;
    bool ended_taken;
    struct job_snapshot snapshot;
    struct job_result result;
    uint64_t ended_ns;
};

// job.c: events, from the coordinator thread
void job_emit(struct job *j, enum job_event_kind kind, const char *text, const struct err *err);

// job_run.c
void *job_main(void *arg);

// job_ends.c
// Reaches the agent of one end: starts it, or dials it and takes up TLS. The channel is set on 0.
MUST_CHECK int job_reach(struct job *j, unsigned node, struct err *err);
void job_leave(struct job *j, unsigned node);
const struct place *job_place(const struct job *j, unsigned node);
// The other end, when the agent of this one can reach it inside ssh (mover/inside.h): this one runs here, as
// the user who can start ssh, and the other one is an ssh end. Else NULL.
const struct place *job_inside(const struct job *j, unsigned node);
// What the end is called in words to people: its host.
const char *job_end_name(const struct job *j, unsigned node);

#endif
