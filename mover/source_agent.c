// The source role: opens the paths, hands messages to the machine and wakes those who wait.
#include "mover/source_agent.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "storage/sys.h"

static void source_free(struct source_agent *s)
{
    for (uint32_t i = 0; i < s->root_count; i++) {
        if (s->roots[i].fd >= 0)
            (void)sys_close(s->roots[i].fd); // a directory: a close tells nothing
        free(s->roots[i].from);
        free(s->roots[i].to);
    }
    memory_tree_remove(&s->memory);
    retry_entries_free(s->retries);
    free(s->roots);
    free(s->senders);
    worktab_free(s->works);
    source_plan_free(s->plan);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

static bool take(void *arg, uint32_t stream, uint32_t attempt, struct work **work, uint64_t *stripe,
                 bool *again)
{
    struct source_agent *s = arg;
    uint64_t segment;
    pthread_mutex_lock(&s->lock);
    bool got = source_plan_take(s->plan, stream, attempt, &segment, stripe, again);
    // A segment with an open lease is in the table: held under the lock, so that the lease does not end
    // before.
    if (got)
        *work = worktab_get(s->works, segment);
    pthread_mutex_unlock(&s->lock);
    return got;
}

static bool sending(void *arg, uint64_t stripe, uint32_t stream, uint32_t attempt, uint64_t frame)
{
    struct source_agent *s = arg;
    pthread_mutex_lock(&s->lock);
    bool wanted = source_plan_wanted(s->plan, stripe, stream, attempt);
    source_plan_sent(s->plan, stripe, stream, attempt, frame);
    pthread_mutex_unlock(&s->lock);
    return wanted;
}

static struct source_agent *source_new(struct agent *a)
{
    struct source_agent *s = calloc(1, sizeof *s);
    if (s == NULL)
        return NULL;
    s->agent = a;
    pthread_mutex_init(&s->lock, NULL);
    s->works = worktab_new();
    s->plan = source_plan_new();
    s->senders = calloc(a->job.streams, sizeof(struct sender *));
    s->roots = calloc(SOURCES_MAX, sizeof *s->roots);
    if (s->works == NULL || s->plan == NULL || s->senders == NULL || s->roots == NULL) {
        source_free(s);
        return NULL;
    }
    return s;
}

// Opens every SRC and describes it for the destination. -EPROTO: no path, too many.
static int open_roots(struct source_agent *s, const struct agent_config *cfg, const struct blob *paths,
                      size_t *described, struct err *err)
{
    struct wire_reader r;
    struct wire_writer w;
    wire_reader_init(&r, paths->bytes, paths->len);
    wire_writer_init(&w, s->opened_buf, sizeof s->opened_buf);
    while (wire_left(&r) > 0 && s->root_count < SOURCES_MAX) {
        struct blob path;
        path.bytes = wire_get_blob(&r, PATH_BYTES_MAX, &path.len);
        struct source_found found;
        if (path.bytes == NULL)
            return -EPROTO;
        int rc = agent_open_source(cfg, &path, &s->roots[s->root_count], &found, err);
        if (rc < 0)
            return rc;
        s->root_count++;
        wire_put_u8(&w, (uint8_t)found.type);
        wire_put_u8(&w, found.contents);
        wire_put_u64(&w, found.dev);
        wire_put_u64(&w, found.inode);
        wire_put_blob(&w, found.name, strlen(found.name));
    }
    int64_t len = wire_written(&w);
    if (len < 0 || s->root_count == 0 || wire_left(&r) > 0)
        return -EPROTO;
    *described = (size_t)len;
    return 0;
}

// A data set that is made here: what its folder contains.
static int open_memory(struct source_agent *s, size_t *described, struct err *err)
{
    const struct agent_job *job = &s->agent->job;
    int rc = memory_tree_make(job->memory_files, job->memory_bytes, &s->memory);
    if (rc < 0) {
        err_set(err, ERR_START, -rc, "make a data set in memory", NULL, 0, "%s", "");
        return rc;
    }
    char contents[MEMORY_PATH_BYTES + 1];
    uint8_t list[sizeof contents + sizeof(uint32_t)];
    snprintf(contents, sizeof contents, "%s/", s->memory.path);
    struct wire_writer w;
    wire_writer_init(&w, list, sizeof list);
    wire_put_blob(&w, contents, strlen(contents));
    struct blob paths = blob_of(list, (size_t)wire_written(&w));
    struct agent_config cfg = *s->agent->cfg;
    cfg.root = NULL; // it is not the user's
    return open_roots(s, &cfg, &paths, described, err);
}

// Whether all sources lie in memory: then reading waits for nothing.
// And how their mounts are called.
static int look_at_roots(struct source_agent *s)
{
    s->in_memory = true;
    for (uint32_t i = 0; i < s->root_count; i++) {
        uint64_t magic, room;
        int rc = sys_fs_magic(s->roots[i].fd, &magic, &room);
        if (rc == 0)
            rc = storage_watch_root(s->agent->watch, s->roots[i].fd);
        if (rc < 0)
            return rc;
        s->in_memory = s->in_memory && magic == TMPFS_MAGIC;
    }
    return 0;
}

static int source_role_open(struct agent *a, const struct msg_open *m, struct message *opened, void **self,
                            struct err *err)
{
    struct source_agent *s = source_new(a);
    size_t described = 0;
    int rc = s == NULL                       ? -ENOMEM
             : a->job.memory != OPEN_STORAGE ? open_memory(s, &described, err)
                                             : open_roots(s, a->cfg, &m->paths, &described, err);
    if (rc == 0)
        rc = look_at_roots(s);
    if (rc < 0) {
        if (err->class == ERR_NONE)
            err_set(err, rc == -EPROTO ? ERR_PROTOCOL : ERR_START, -rc, "open the sources", NULL, 0, "%s",
                    "");
        if (s != NULL)
            source_free(s);
        return rc;
    }
    s->send = (struct sender_source){.arg = s,
                                     .take = take,
                                     .sending = sending,
                                     .works = s->works,
                                     .roots = s->roots,
                                     .direct = s->in_memory ? DIRECT_OFF : a->job.direct,
                                     .in_memory = s->in_memory,
                                     .memory = a->job.memory};
    *opened = (struct message){.type = MESSAGE_SOURCE_OPENED,
                               .source_opened = {.sources = blob_of(s->opened_buf, described)}};
    *self = s;
    return 0;
}

// WALK: where each source goes beneath the destination root.
static int on_walk(struct source_agent *s, const struct msg_walk *m)
{
    struct wire_reader r;
    wire_reader_init(&r, m->names.bytes, m->names.len);
    for (uint32_t i = 0; i < s->root_count; i++) {
        struct blob name;
        name.bytes = wire_get_blob(&r, PATH_BYTES_MAX, &name.len);
        if (name.bytes == NULL || s->roots[i].to != NULL)
            return -EPROTO;
        s->roots[i].to = blob_copy(&name);
        if (s->roots[i].to == NULL)
            return -ENOMEM;
    }
    if (wire_done(&r) < 0)
        return -EPROTO;
    pthread_mutex_lock(&s->lock);
    s->avoid_dev = m->avoid_dev;
    s->avoid_inode = m->avoid_inode;
    s->walk_asked = true;
    pthread_mutex_unlock(&s->lock);
    stream_wake(s->agent->peer);
    return 0;
}

static int on_place(struct source_agent *s, const struct msg_segment_place *m)
{
    struct work *w = worktab_get(s->works, m->segment);
    int rc = w != NULL && w->layout != NULL ? work_place(w, m->first) : -EPROTO;
    worktab_put(s->works, w);
    return rc;
}

static int on_segment_done(struct source_agent *s, uint64_t segment)
{
    struct work *w = worktab_get(s->works, segment);
    pthread_mutex_lock(&s->lock);
    bool over = w != NULL && w->placed && !source_plan_leased(s->plan, segment);
    s->open_segments -= over;
    pthread_mutex_unlock(&s->lock);
    worktab_put(s->works, w);
    if (!over)
        return -EPROTO;
    worktab_drop(s->works, segment);
    stream_wake(s->agent->peer);
    return 0;
}

// A file changed while it was read: it will be in the retry segment.
static int on_problem(struct source_agent *s, const struct msg_problem *m)
{
    struct work *w = worktab_get(s->works, m->segment);
    if (w == NULL || m->entry >= w->segment->entry_count) {
        worktab_put(s->works, w);
        return -EPROTO;
    }
    int rc = retry_keep(s, &w->segment->entries[m->entry]);
    worktab_put(s->works, w);
    return rc;
}

static int settle(struct source_agent *s, const struct blob *runs)
{
    struct wire_reader r;
    wire_reader_init(&r, runs->bytes, runs->len);
    while (wire_left(&r) > 0) {
        uint64_t first = wire_get_u64(&r), count = wire_get_u64(&r);
        if (r.bad)
            return -EPROTO;
        source_plan_settle(s->plan, first, count);
    }
    return 0;
}

// A lease is of stripes that are laid out: they are looked up without asking.
static int on_lease(struct source_agent *s, const struct msg_lease *m)
{
    struct work *w = worktab_get(s->works, m->segment);
    int rc = w != NULL && work_has(w, m->first, m->count)
                 ? source_plan_lease(s->plan, m->lease, m->segment, m->first, m->count)
                 : -EPROTO;
    worktab_put(s->works, w);
    return rc;
}

// Events of the machine; afterwards the senders may find work.
static int plan_event(struct source_agent *s, const struct message *m)
{
    int rc = 0;
    pthread_mutex_lock(&s->lock);
    switch (m->type) {
    case MESSAGE_LEASE:
        rc = on_lease(s, &m->lease);
        break;
    case MESSAGE_LEASE_DONE:
        rc = source_plan_lease_done(s->plan, m->lease_done.lease);
        break;
    case MESSAGE_STRIPES_DONE:
        rc = settle(s, &m->stripes_done.runs);
        break;
    case MESSAGE_STRIPE_BAD:
        (void)source_plan_bad(s->plan, m->stripe_bad.stripe); // late words are no fault
        break;
    case MESSAGE_STREAM_ENDED:
        if (m->stream_ended.stream >= s->agent->job.streams)
            rc = -EPROTO;
        else
            (void)source_plan_stream_ended(s->plan, m->stream_ended.stream, m->stream_ended.attempt,
                                           m->stream_ended.frames);
        break;
    default:
        rc = -EPROTO;
    }
    pthread_mutex_unlock(&s->lock);
    if (rc == 0)
        agent_wake_streams(s->agent);
    return rc;
}

static int source_role_message(void *self, const struct message *m)
{
    struct source_agent *s = self;
    switch (m->type) {
    case MESSAGE_WALK:
        return on_walk(s, &m->walk);
    case MESSAGE_SEGMENT_PLACE:
        return on_place(s, &m->segment_place);
    case MESSAGE_SEGMENT_DONE:
        return on_segment_done(s, m->segment_done.segment);
    case MESSAGE_PROBLEM:
        return on_problem(s, &m->problem);
    case MESSAGE_RETRY:
        pthread_mutex_lock(&s->lock);
        s->retry_asked = true;
        pthread_mutex_unlock(&s->lock);
        stream_wake(s->agent->peer);
        return 0;
    default:
        return plan_event(s, m);
    }
}

static void source_role_stop(void *self)
{
    (void)self; // the role has no thread but its streams
}

static void source_role_close(void *self, bool finished)
{
    (void)finished;
    source_free(self);
}

static void begin_data(void *self, struct stream *stream)
{
    struct source_agent *s = self;
    const struct agent_job *job = &s->agent->job;
    struct sender_config cfg = {.source = &s->send,
                                .engine = job->engine,
                                .slots = job->slots,
                                .stripe_bytes = job->stripe_bytes,
                                .encrypt = job->encrypt,
                                .rate_bytes_s = agent_stream_rate(s->agent),
                                .mailbox = s->agent->mailbox,
                                .watch = s->agent->watch};
    int rc = sender_new(&cfg, stream, &s->senders[stream_index(stream)]);
    if (rc == 0)
        return;
    struct err err;
    err_set(&err, ERR_START, -rc, "start a stream", NULL, 0, "%s", "");
    agent_fail(s->agent, &err);
}

static void end_data(void *self, struct stream *stream)
{
    struct source_agent *s = self;
    sender_free(s->senders[stream_index(stream)]);
    s->senders[stream_index(stream)] = NULL;
}

static void run_data(void *self, struct stream *stream, const struct conn *conn, struct conn_end *end)
{
    struct source_agent *s = self;
    struct sender *sender = s->senders[stream_index(stream)];
    if (sender != NULL)
        sender_run(sender, conn, end);
}

const struct role role_source = {
    .open = source_role_open,
    .message = source_role_message,
    .stop = source_role_stop,
    .close = source_role_close,
    .run_peer = source_run_peer,
    .begin_data = begin_data,
    .end_data = end_data,
    .run_data = run_data,
};
