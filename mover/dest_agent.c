// The destination role: opens the root, hands messages to the machine and the threads, finishes and closes.
#include "mover/dest_agent.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "storage/sys.h"

#define LOCK_WAIT_MS 3000 // a job whose coordinator has just gone needs a moment to let go
static void dest_free(struct dest_agent *d)
{
    memory_tree_remove(&d->memory);
    for (uint32_t i = 0; d->names != NULL && i < d->source_count; i++)
        free(d->names[i]);
    free(d->names);
    free(d->shown);
    free(d->place);
    free(d->full_path);
    free(d->receivers);
    segment_builder_free(d->dirs);
    worktab_free(d->works);
    dest_plan_free(d->plan);
    pthread_cond_destroy(&d->written);
    pthread_mutex_destroy(&d->plan_lock);
    pthread_mutex_destroy(&d->files_lock);
    pthread_mutex_destroy(&d->journal_lock);
    free(d);
}

static struct dest_agent *dest_new(struct agent *a)
{
    struct dest_agent *d = calloc(1, sizeof *d);
    if (d == NULL)
        return NULL;
    d->agent = a;
    d->dirs_fd = -1;
    pthread_mutex_init(&d->plan_lock, NULL);
    pthread_mutex_init(&d->files_lock, NULL);
    pthread_mutex_init(&d->journal_lock, NULL);
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&d->written, &attr);
    pthread_condattr_destroy(&attr);
    d->works = worktab_new();
    d->plan = dest_plan_new();
    d->dirs = segment_builder_new();
    d->receivers = calloc(a->job.streams, sizeof(struct receiver *));
    if (d->works == NULL || d->plan == NULL || d->dirs == NULL || d->receivers == NULL) {
        dest_free(d);
        return NULL;
    }
    segment_builder_begin(d->dirs, 0);
    return d;
}

// The sources as the source agent described them. -EPROTO.
static int decode_sources(const struct blob *list, struct source_found *out, uint32_t *count)
{
    struct wire_reader r;
    wire_reader_init(&r, list->bytes, list->len);
    uint32_t n = 0;
    while (wire_left(&r) > 0 && n < SOURCES_MAX) {
        struct source_found *f = &out[n++];
        f->type = (enum entry_type)wire_get_u8(&r);
        f->contents = wire_get_u8(&r) != 0;
        f->dev = wire_get_u64(&r);
        f->inode = wire_get_u64(&r);
        size_t len;
        const uint8_t *name = wire_get_blob(&r, NAME_BYTES_MAX, &len);
        if (name == NULL || f->type < ENTRY_DIR || f->type > ENTRY_SYMLINK)
            return -EPROTO;
        struct blob b = blob_of(name, len);
        blob_string(&b, f->name, sizeof f->name);
        bool component = manifest_path_safe(f->name, strlen(f->name)) && strchr(f->name, '/') == NULL;
        if (!f->contents && !component)
            return -EPROTO;
    }
    *count = n;
    return n > 0 ? wire_done(&r) : -EPROTO;
}

static void locked_by(const struct dest_lock_info *holder, struct err *err)
{
    char job[2 * sizeof holder->job.bytes + 1];
    struct digest id;
    memcpy(id.bytes, holder->job.bytes, sizeof id.bytes);
    digest_hex(&id, job);
    int64_t age_s = sys_wall_s() - holder->since_s;
    err_set(err, ERR_LOCKED, 0, "", NULL, 0, "the destination is in use by job %s of %s at %s, for %lld s",
            job, holder->user, holder->host, (long long)age_s);
}

// A root that takes the contents of a source gets its mode at the end, as any directory (dest_make_dir):
// until then its owner may write into it. Who is not the owner learns from dest_open what is wrong.
static void open_up(const struct dest_agent *d, int root_fd)
{
    bool contents = false;
    for (uint32_t i = 0; i < d->source_count; i++)
        contents = contents || d->names[i][0] == '\0';
    struct stat st;
    if (!contents || sys_fstat(root_fd, &st) < 0 || (st.st_mode & S_IRWXU) == S_IRWXU)
        return;
    int rc = sys_fchmod(root_fd, (st.st_mode & 07777) | S_IRWXU);
    (void)rc;
}

static void discard_temp(void *arg, const struct entry *e)
{
    dest_temp_discard(arg, e);
}

// A damaged journal may have lost the word that a file is gone, and promise ranges of the one that was made
// after it: nothing of it is believed.
static int take_journal(struct dest_agent *d)
{
    bool damaged = false;
    int rc = journal_open(d->dest.state_fd, &d->agent->job.id, &d->journal, &damaged);
    if (rc < 0 || !damaged)
        return rc;
    journal_each_stale(d->journal, discard_temp, &d->dest);
    return journal_sync(d->journal);
}

// A destination that is full or failing says so from the first moment.
static enum err_class class_of(int error)
{
    return dest_is_fatal(error) ? ERR_STORAGE : ERR_START;
}

static int open_storage(struct dest_agent *d, int root_fd, struct err *err)
{
    const struct agent_job *job = &d->agent->job;
    struct dest_lock_info mine = {.job = job->id, .since_s = sys_wall_s()}, holder;
    memcpy(mine.host, job->host, sizeof mine.host);
    memcpy(mine.user, job->user, sizeof mine.user);
    open_up(d, root_fd);
    int rc = dest_open(root_fd, &mine, LOCK_WAIT_MS, &d->dest, &holder);
    if (rc == -EWOULDBLOCK) {
        locked_by(&holder, err);
        return rc;
    }
    if (rc < 0) {
        bool foreign = rc == -ENOTUNIQ;
        err_set(err, foreign ? ERR_START : class_of(rc), foreign ? 0 : -rc, "open the destination", d->shown,
                strlen(d->shown), "%s", foreign ? "its .penstock holds what is not Penstock's own" : "");
        return rc;
    }
    uint64_t magic, room;
    rc = sys_fs_magic(d->dest.fd, &magic, &room);
    d->in_memory = rc == 0 && magic == TMPFS_MAGIC;
    if (rc == 0)
        rc = storage_watch_root(d->agent->watch, d->dest.fd);
    if (rc == 0)
        rc = take_journal(d);
    if (rc == 0)
        rc = d->dirs_fd =
            sys_openat(d->dest.state_fd, "directories", O_RDWR | O_CREAT | O_TRUNC | O_NOFOLLOW, 0600);
    if (rc < 0) {
        err_set(err, class_of(rc), -rc, "open the journal of", d->shown, strlen(d->shown), "%s",
                rc == -EPROTONOSUPPORT ? "it was written by a newer release" : "");
        journal_close(d->journal);
        (void)dest_close(&d->dest, false);
        return rc;
    }
    return 0;
}

static void fill_opened(struct dest_agent *d, const struct msg_open *m, struct message *opened)
{
    wire_writer_init(&d->names_list, d->names_buf, sizeof d->names_buf);
    for (uint32_t i = 0; i < d->source_count; i++)
        wire_put_blob(&d->names_list, d->names[i], strlen(d->names[i]));
    int64_t len = wire_written(&d->names_list);
    char boot[64];
    sys_boot_id(boot);
    struct stat st;
    bool same_boot =
        m->boot.len > 0 && m->boot.len == strlen(boot) && memcmp(boot, m->boot.bytes, m->boot.len) == 0;
    *opened = (struct message){.type = MESSAGE_DEST_OPENED,
                               .dest_opened = {.root = blob_of(d->shown, u64_min(strlen(d->shown), 2 * KIB)),
                                               .place = blob_text(d->place),
                                               .names = blob_of(d->names_buf, len > 0 ? (size_t)len : 0)}};
    if (same_boot && sys_fstat(d->dest.fd, &st) == 0) {
        opened->dest_opened.dev = st.st_dev;
        opened->dest_opened.inode = st.st_ino;
    }
}

// What DST is, and beneath which root: of a destination that forgets the data, a folder of its own.
static int find_path(struct dest_agent *d, const struct msg_open *m, struct agent_config *cfg,
                     struct blob *path, struct err *err)
{
    if (d->agent->job.memory == OPEN_STORAGE) {
        struct wire_reader r;
        wire_reader_init(&r, m->paths.bytes, m->paths.len);
        path->bytes = wire_get_blob(&r, PATH_BYTES_MAX, &path->len);
        return 0;
    }
    int rc = memory_tree_make(0, 0, &d->memory);
    if (rc < 0)
        err_set(err, ERR_START, -rc, "make a destination in memory", NULL, 0, "%s", "");
    cfg->root = NULL; // it is not the user's
    *path = blob_text(d->memory.path);
    return rc;
}

static int dest_role_open(struct agent *a, const struct msg_open *m, struct message *opened, void **self,
                          struct err *err)
{
    if (a->cfg->read_only) {
        err_set(err, ERR_START, EROFS, "", NULL, 0, "this agent is read-only");
        return -EROFS;
    }
    struct dest_agent *d = dest_new(a);
    struct source_found *sources = calloc(SOURCES_MAX, sizeof *sources);
    char boot[64];
    sys_boot_id(boot);
    int rc = d != NULL && sources != NULL ? decode_sources(&m->sources, sources, &d->source_count) : -ENOMEM;
    if (rc == 0)
        d->names = calloc(d->source_count, sizeof *d->names);
    if (rc < 0 || d->names == NULL)
        err_set(err, rc < 0 && rc != -ENOMEM ? ERR_PROTOCOL : ERR_START, rc < 0 ? -rc : ENOMEM, "open", NULL,
                0, "%s", "");
    struct agent_config cfg = *a->cfg;
    struct blob path = {0};
    if (rc == 0)
        rc = find_path(d, m, &cfg, &path, err);
    bool same_boot =
        m->boot.len > 0 && m->boot.len == strlen(boot) && memcmp(boot, m->boot.bytes, m->boot.len) == 0;
    if (rc == 0 && d->names != NULL)
        rc = agent_open_dest(&cfg, &path, sources, d->source_count, same_boot, d->names, &d->shown, &d->place,
                             err);
    else if (rc == 0)
        rc = -ENOMEM;
    free(sources);
    if (rc >= 0 && a->job.memory != OPEN_STORAGE) { // its folder is nobody's to know
        free(d->shown);
        d->shown = strdup("memory");
        d->place[0] = '\0';
        if (d->shown == NULL) {
            (void)sys_close(rc); // a directory: a close tells nothing
            rc = -ENOMEM;
        }
    }
    if (rc >= 0)
        rc = open_storage(d, rc, err);
    if (rc < 0 && err->class == ERR_START && dest_is_fatal(rc))
        err->class = ERR_STORAGE; // full or read-only, before anything began
    if (rc < 0) {
        if (d != NULL)
            dest_free(d);
        return rc;
    }
    dest_receive_init(d);
    d->commit_running = pthread_create(&d->commit_thread, NULL, dest_commit_main, d) == 0;
    if (!d->commit_running) {
        err_set(err, ERR_START, EAGAIN, "start a thread", NULL, 0, "%s", "");
        (void)sys_close(d->dirs_fd); // nothing is in it
        journal_close(d->journal);
        (void)dest_close(&d->dest, false);
        dest_free(d);
        return -EAGAIN;
    }
    fill_opened(d, m, opened);
    *self = d;
    return 0;
}

static int on_place(struct dest_agent *d, const struct msg_segment_place *m)
{
    struct work *w = worktab_get(d->works, m->segment);
    int rc = w != NULL ? work_place(w, m->first) : -EPROTO;
    if (rc == 0) {
        pthread_mutex_lock(&d->plan_lock);
        dest_plan_placed(d->plan, m->first + layout_count(w->layout));
        pthread_mutex_unlock(&d->plan_lock);
        settle_entries(d, w, 0); // nothing of it may need data
    }
    worktab_put(d->works, w);
    return rc;
}

static int on_lease(struct dest_agent *d, const struct message *m)
{
    const struct msg_lease *l = &m->lease;
    struct work *w = worktab_get(d->works, l->segment);
    bool laid = w != NULL && work_has(w, l->first, l->count); // they are looked up without asking
    worktab_put(d->works, w);
    if (!laid)
        return -EPROTO;
    pthread_mutex_lock(&d->plan_lock);
    int rc = dest_plan_lease(d->plan, l->lease, l->segment, l->first, l->count);
    pthread_mutex_unlock(&d->plan_lock);
    if (rc == 0)
        mailbox_post(d->agent->mailbox, m); // the source may have it now
    return rc;
}

static int on_segment_done(struct dest_agent *d, uint64_t segment)
{
    struct work *w = worktab_get(d->works, segment);
    pthread_mutex_lock(&d->plan_lock);
    bool over = w != NULL && w->placed && dest_plan_segment_over(d->plan, segment);
    if (over)
        dest_plan_segment_forget(d->plan, segment);
    pthread_mutex_unlock(&d->plan_lock);
    worktab_put(d->works, w);
    if (!over)
        return -EPROTO;
    worktab_drop(d->works, segment);
    return 0;
}

static int dest_role_message(void *self, const struct message *m)
{
    struct dest_agent *d = self;
    int rc;
    switch (m->type) {
    case MESSAGE_SEGMENT_PLACE:
        return on_place(d, &m->segment_place);
    case MESSAGE_LEASE:
        return on_lease(d, m);
    case MESSAGE_LEASE_DONE:
        pthread_mutex_lock(&d->plan_lock);
        rc = dest_plan_lease_done(d->plan, m->lease_done.lease);
        pthread_mutex_unlock(&d->plan_lock);
        return rc;
    case MESSAGE_SEGMENT_DONE:
        return on_segment_done(d, m->segment_done.segment);
    case MESSAGE_FINISH:
        // The closing pass touches storage: it runs in the thread that compares.
        pthread_mutex_lock(&d->plan_lock);
        d->finish = true;
        pthread_mutex_unlock(&d->plan_lock);
        stream_wake(d->agent->peer);
        return 0;
    default:
        return -EPROTO;
    }
}

static void dest_role_stop(void *self)
{
    struct dest_agent *d = self;
    pthread_mutex_lock(&d->plan_lock);
    d->stopping = true;
    pthread_cond_signal(&d->written);
    pthread_mutex_unlock(&d->plan_lock);
}

static void close_problem(struct dest_agent *d, int error, const char *op, const char *path)
{
    struct err err;
    err_set(&err, ERR_ENTRY, -error, op, path, strlen(path), "%s", "");
    agent_problem(d->agent, 0, 0, PROBLEM_RECORDED, &err);
}

static void dest_role_close(void *self, bool finished)
{
    struct dest_agent *d = self;
    if (d->commit_running)
        pthread_join(d->commit_thread, NULL);
    dest_group_free(d, dest_plan_group_take(d->plan)); // never acknowledged
    dest_drops_free(d->drops);
    worktab_free(d->works); // closes temporary files
    d->works = NULL;
    (void)sys_close(d->dirs_fd); // of no use beyond the job
    if (!finished)
        dest_give_back(d);
    journal_close(d->journal);
    int root = finished && d->root_listed ? path_open(d->dest.fd, "", 0, O_RDONLY | O_DIRECTORY, 0) : -1;
    int rc = dest_close(&d->dest, finished);
    if (rc < 0)
        close_problem(d, rc, "remove", ".penstock");
    if (finished && d->root_listed) {
        rc = root < 0 ? root : dest_root_finish(d, root);
        if (rc < 0)
            close_problem(d, rc, "set metadata", "");
    }
    if (root >= 0)
        (void)sys_close(root); // a directory: a close tells nothing
    dest_free(d);
}

static void begin_data(void *self, struct stream *s)
{
    struct dest_agent *d = self;
    const struct agent_job *job = &d->agent->job;
    struct receiver_config cfg = {.dest = &d->receive,
                                  .engine = job->engine,
                                  .slots = job->slots,
                                  .stripe_bytes = job->stripe_bytes,
                                  .encrypt = job->encrypt,
                                  .watch = d->agent->watch,
                                  .rate_bytes_s = agent_stream_rate(d->agent)};
    int rc = receiver_new(&cfg, s, &d->receivers[stream_index(s)]);
    if (rc == 0)
        return;
    struct err err;
    err_set(&err, ERR_START, -rc, "start a stream", NULL, 0, "%s", "");
    agent_fail(d->agent, &err);
}

static void end_data(void *self, struct stream *s)
{
    struct dest_agent *d = self;
    receiver_free(d->receivers[stream_index(s)]);
    d->receivers[stream_index(s)] = NULL;
}

static void run_data(void *self, struct stream *s, const struct conn *conn, struct conn_end *end)
{
    struct dest_agent *d = self;
    struct receiver *r = d->receivers[stream_index(s)];
    if (r != NULL)
        receiver_run(r, conn, end);
}

const struct role role_dest = {
    .open = dest_role_open,
    .message = dest_role_message,
    .stop = dest_role_stop,
    .close = dest_role_close,
    .run_peer = dest_run_peer,
    .begin_data = begin_data,
    .end_data = end_data,
    .run_data = run_data,
};
