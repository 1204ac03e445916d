// Commit groups: sync, then journal, then publish, then acknowledge (DESIGN §4.1, §4.4). An acknowledgement
// is a promise that a crash cannot break. One thread, the only one that syncs data of streams; a failed sync
// is final for the job.
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "mover/dest_agent.h"
#include "storage/sys.h"

// A large file with stripes in the group.
struct group_file {
    struct work *work;
    uint32_t entry;
    bool complete; // all its stripes have come: it is published
    bool failed;
    int parent_fd;
};

struct group {
    struct dest_agent *d;
    struct written *first;
    struct group_file *files;
    uint32_t file_count;
    bool any_packed;
    struct path_cache *cache;
};

static struct written *written_of(struct dest_written *w)
{
    return w != NULL ? CONTAINER_OF(w, struct written, plan) : NULL;
}

static const struct entry *entry_at(const struct work *w, uint32_t entry)
{
    return &w->segment->entries[entry];
}

static struct dest_entry *state_at(const struct work *w, uint32_t entry)
{
    struct dest_side *side = w->side;
    return &side->entries[entry];
}

static struct group_file *file_find(struct group *g, struct work *work, uint32_t entry)
{
    for (uint32_t i = g->file_count; i > 0; i--)
        if (g->files[i - 1].work == work && g->files[i - 1].entry == entry)
            return &g->files[i - 1];
    struct group_file *f = &g->files[g->file_count++];
    *f = (struct group_file){.work = work, .entry = entry, .parent_fd = -1};
    return f;
}

// The commit thread waits for storage.
static void mark(struct dest_agent *d, const char *op, const struct entry *e)
{
    storage_watch_begin(d->agent->watch, &d->committing, op, e);
}

// Who is in the group, and which files it completes.
static int group_gather(struct group *g)
{
    uint32_t count = 0;
    for (struct written *w = g->first; w != NULL; w = written_of(w->plan.next))
        count++;
    g->files = calloc(count, sizeof *g->files);
    if (g->files == NULL)
        return -ENOMEM;
    pthread_mutex_lock(&g->d->plan_lock);
    for (struct written *w = g->first; w != NULL; w = written_of(w->plan.next)) {
        g->any_packed = g->any_packed || w->packed;
        if (w->packed) {
            for (uint32_t i = 0; i < w->count; i++)
                (void)dest_plan_entry_commit(g->d->plan, w->plan.segment, w->parts[i].entry);
            continue;
        }
        struct group_file *f = file_find(g, w->work, w->entry);
        if (dest_plan_entry_commit(g->d->plan, w->plan.segment, w->entry))
            f->complete = true;
        f->failed = dest_plan_entry_failed(g->d->plan, w->plan.segment, w->entry);
    }
    pthread_mutex_unlock(&g->d->plan_lock);
    return 0;
}

static void file_failed(struct group *g, struct group_file *f, int error, const char *op)
{
    const struct entry *e = entry_at(f->work, f->entry);
    struct err err;
    err_set(&err, ERR_ENTRY, -error, op, e->path, e->path_len, "%s", "");
    f->failed = true;
    settle_failed(g->d, f->work, f->entry, &err);
}

// What is journalled of a file that goes on must be found after a crash: its temporary name is durable too.
static int sync_temp_names(struct group *g)
{
    int rc = 0, synced_fd = -1;
    mark(g->d, "sync", NULL);
    for (uint32_t i = 0; i < g->file_count && rc == 0; i++) {
        const struct group_file *f = &g->files[i];
        struct dest_entry *de = state_at(f->work, f->entry);
        if (f->failed || f->complete || de->named)
            continue;
        if (de->file.dir_fd != synced_fd)
            rc = sys_fsync(de->file.dir_fd);
        synced_fd = de->file.dir_fd;
        de->named = rc == 0;
    }
    return rc;
}

// Everything of the group on stable storage. A complete file has its metadata first, so that one sync covers
// both.
static int group_sync(struct group *g)
{
    for (uint32_t i = 0; i < g->file_count; i++) {
        struct group_file *f = &g->files[i];
        int fd = state_at(f->work, f->entry)->file.fd;
        if (f->failed)
            continue;
        mark(g->d, "sync", entry_at(f->work, f->entry));
        int rc = f->complete ? dest_file_metadata(&g->d->dest, fd, entry_at(f->work, f->entry)) : 0;
        if (rc < 0 && !dest_is_fatal(rc)) {
            file_failed(g, f, rc, "set metadata");
            continue;
        }
        if (rc == 0)
            rc = f->complete ? sys_fsync(fd) : sys_fdatasync(fd);
        if (rc < 0) {
            dest_stop_storage(g->d, rc, "sync", entry_at(f->work, f->entry));
            return rc;
        }
    }
    int rc = sync_temp_names(g);
    mark(g->d, "sync", NULL);
    if (rc == 0 && g->any_packed)
        rc = dest_sync(&g->d->dest);
    if (rc < 0)
        dest_stop_storage(g->d, rc, "sync", NULL);
    return rc;
}

// The leaves of one written stripe into the journal: durable ones of files that go on, or only remembered
// where the file is published now.
static int journal_stripe(struct dest_agent *d, const struct written *w, bool complete)
{
    struct journal_file *jf;
    int rc = journal_file(d->journal, entry_at(w->work, w->entry), &jf);
    struct digest leaves[STRIPE_LEAVES_MAX];
    for (uint32_t i = 0; i < w->count && rc == 0;) {
        uint32_t n = 0;
        while (i + n < w->count && w->parts[i + n].leaf == w->parts[i].leaf + n) {
            leaves[n] = w->parts[i + n].digest;
            if (complete && rc == 0)
                rc = journal_leaf_set(jf, w->parts[i + n].leaf, &leaves[n]);
            n++;
        }
        if (!complete)
            rc = journal_durable(d->journal, jf, w->parts[i].leaf, leaves, n);
        i += n;
    }
    return rc;
}

static int group_journal(struct group *g)
{
    struct dest_agent *d = g->d;
    int rc = 0;
    bool any = false;
    mark(d, "write the journal", NULL);
    pthread_mutex_lock(&d->journal_lock);
    for (struct written *w = g->first; w != NULL && rc == 0; w = written_of(w->plan.next)) {
        if (w->packed)
            continue;
        const struct group_file *f = file_find(g, w->work, w->entry);
        if (f->failed)
            continue;
        any = any || !f->complete;
        rc = journal_stripe(d, w, f->complete);
    }
    if (rc == 0 && any)
        rc = journal_sync(d->journal);
    pthread_mutex_unlock(&d->journal_lock);
    if (rc < 0)
        dest_stop_storage(d, rc, "write the journal", NULL);
    return rc;
}

int dest_file_retire(struct dest_agent *d, const struct entry *e, struct digest *out)
{
    struct digest_stream *s = digest_stream_new();
    if (s == NULL)
        return -ENOMEM;
    pthread_mutex_lock(&d->journal_lock);
    struct journal_file *jf;
    int rc = journal_file(d->journal, e, &jf);
    const struct digest *leaves = rc == 0 ? journal_leaves(jf) : NULL;
    uint32_t data = 0;
    for (uint64_t at = 0; at < e->size && rc == 0; at += LEAF_BYTES) {
        uint64_t len = u64_min(LEAF_BYTES, e->size - at);
        while (e->sparse && data < e->data_count && e->data[data].offset + e->data[data].len <= at)
            data++;
        bool hole = e->sparse && (data == e->data_count || e->data[data].offset >= at + len);
        assert(hole || leaves != NULL);
        struct digest leaf = hole ? digest_zeros(len) : leaves[at / LEAF_BYTES];
        digest_stream_add(s, leaf.bytes, sizeof leaf.bytes);
    }
    if (rc == 0)
        rc = journal_gone(d->journal, jf);
    pthread_mutex_unlock(&d->journal_lock);
    uint8_t size[8];
    struct wire_writer w;
    wire_writer_init(&w, size, sizeof size);
    wire_put_u64(&w, e->size);
    digest_stream_add(s, size, sizeof size);
    if (rc == 0)
        *out = digest_stream_end(s);
    digest_stream_free(s);
    return rc;
}

static int publish_large(struct group *g)
{
    for (uint32_t i = 0; i < g->file_count; i++) {
        struct group_file *f = &g->files[i];
        if (!f->complete || f->failed)
            continue;
        struct dest_entry *de = state_at(f->work, f->entry);
        mark(g->d, "publish", entry_at(f->work, f->entry));
        int rc = dest_file_publish(&g->d->dest, &de->file, entry_at(f->work, f->entry), &f->parent_fd);
        if (rc < 0 && dest_is_fatal(rc)) {
            dest_stop_storage(g->d, rc, "publish", entry_at(f->work, f->entry));
            return rc;
        }
        if (rc < 0)
            file_failed(g, f, rc, "publish");
    }
    return 0;
}

// A small file that cannot get its name fails alone.
static int publish_small(struct group *g, struct written *w)
{
    for (uint32_t i = 0; i < w->count; i++) {
        const struct entry *e = entry_at(w->work, w->parts[i].entry);
        mark(g->d, "publish", e);
        int rc = dest_small_publish(&g->d->dest, g->cache, e);
        if (rc == 0)
            continue;
        if (dest_is_fatal(rc)) {
            dest_stop_storage(g->d, rc, "publish", e);
            return rc;
        }
        struct err err;
        err_set(&err, ERR_ENTRY, -rc, "publish", e->path, e->path_len, "%s", "");
        dest_temp_discard(&g->d->dest, e);
        settle_failed(g->d, w->work, w->parts[i].entry, &err);
        w->parts[i].failed = true;
    }
    return 0;
}

// The directories that got names: one sync of the file system where small files are many, else each directory
// once.
static int sync_directories(struct group *g)
{
    mark(g->d, "sync directory", NULL);
    int rc = g->any_packed ? dest_sync(&g->d->dest) : 0;
    for (uint32_t i = 0; i < g->file_count; i++) {
        int fd = g->files[i].parent_fd;
        if (fd < 0)
            continue;
        // Renames of the group all came before: a directory that is synced twice has nothing left to do.
        if (rc == 0)
            rc = sys_fsync(fd);
        int closed = sys_close(fd);
        if (rc == 0)
            rc = closed;
        g->files[i].parent_fd = -1;
    }
    if (rc < 0)
        dest_stop_storage(g->d, rc, "sync directory", NULL);
    return rc;
}

static int group_publish(struct group *g)
{
    int rc = publish_large(g);
    path_cache_clear(g->cache);
    bool made = g->d->agent->job.memory == OPEN_STORAGE; // else nothing was
    for (struct written *w = g->first; w != NULL && rc == 0; w = written_of(w->plan.next))
        if (w->packed && made)
            rc = publish_small(g, w);
    int synced = sync_directories(g);
    return rc < 0 ? rc : synced;
}

// Published large files: their records, and out of the journal.
static int tell_large(struct group *g)
{
    for (uint32_t i = 0; i < g->file_count; i++) {
        struct group_file *f = &g->files[i];
        if (!f->complete || f->failed)
            continue;
        const struct entry *e = entry_at(f->work, f->entry);
        struct digest digest;
        mark(g->d, "write the journal", e);
        int rc = dest_file_retire(g->d, e, &digest);
        if (rc < 0) {
            dest_stop_storage(g->d, rc, "write the journal", e);
            return rc;
        }
        struct dest_entry *de = state_at(f->work, f->entry);
        dest_file_close(&de->file);
        de->open = false;
        struct records records;
        records_init(&records, g->d->agent, f->work->number);
        records_add(&records, e, RECEIPT_MOVED, PROOF_WIRE, &digest);
        records_flush(&records);
        settle_entries(g->d, f->work, 1);
    }
    return 0;
}

static void tell_small(struct group *g, const struct written *w)
{
    struct records records;
    records_init(&records, g->d->agent, w->plan.segment);
    uint32_t moved = 0;
    for (uint32_t i = 0; i < w->count; i++) {
        const struct written_part *part = &w->parts[i];
        if (part->failed)
            continue;
        const struct entry *e = entry_at(w->work, part->entry);
        struct digest digest = digest_file(&part->digest, e->size);
        records_add(&records, e, RECEIPT_MOVED, PROOF_WIRE, &digest);
        moved++;
    }
    records_flush(&records);
    settle_entries(g->d, w->work, moved);
}

static void post_runs(struct dest_agent *d, struct wire_writer *runs, uint8_t *buf, uint64_t bytes)
{
    int64_t len = wire_written(runs);
    if (len <= 0)
        return;
    struct message m = {.type = MESSAGE_STRIPES_DONE,
                        .stripes_done = {.bytes = bytes, .runs = blob_of(buf, (size_t)len)}};
    mailbox_post(d->agent->mailbox, &m);
}

static int by_stripe(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

// What of a durable stripe has moved: packed files that failed have not.
static uint64_t written_bytes(const struct written *w)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < w->count; i++)
        bytes += w->parts[i].failed ? 0 : w->parts[i].len;
    return w->packed ? bytes : w->plan.bytes;
}

// The acknowledgement: runs of stripes, sorted.
static int acknowledge(struct group *g)
{
    uint32_t count = 0;
    uint64_t bytes = 0;
    for (const struct written *w = g->first; w != NULL; w = written_of(w->plan.next))
        count++;
    uint64_t *stripes = calloc(count, sizeof *stripes);
    if (stripes == NULL)
        return -ENOMEM;
    count = 0;
    for (const struct written *w = g->first; w != NULL; w = written_of(w->plan.next)) {
        stripes[count++] = w->plan.stripe;
        bytes += written_bytes(w);
    }
    qsort(stripes, count, sizeof *stripes, by_stripe);
    uint8_t buf[16 * KIB];
    struct wire_writer runs;
    wire_writer_init(&runs, buf, sizeof buf);
    for (uint32_t i = 0; i < count;) {
        uint32_t n = 1;
        while (i + n < count && stripes[i + n] == stripes[i] + n)
            n++;
        wire_put_u64(&runs, stripes[i]);
        wire_put_u64(&runs, n);
        i += n;
        if (runs.end - runs.at < 16 || i == count) {
            post_runs(g->d, &runs, buf, bytes);
            bytes = 0;
            wire_writer_init(&runs, buf, sizeof buf);
        }
    }
    free(stripes);
    return 0;
}

static int group_tell(struct group *g)
{
    pthread_mutex_lock(&g->d->plan_lock);
    dest_plan_group_durable(g->d->plan, &g->first->plan);
    pthread_mutex_unlock(&g->d->plan_lock);
    // The stripes first: the end of the last segment, which may be among the rest, ends the time for them.
    int rc = acknowledge(g);
    if (rc == 0)
        rc = tell_large(g);
    for (const struct written *w = g->first; w != NULL && rc == 0; w = written_of(w->plan.next))
        if (w->packed)
            tell_small(g, w);
    return rc;
}

void dest_group_free(struct dest_agent *d, struct dest_written *group)
{
    for (struct written *w = written_of(group); w != NULL;) {
        struct written *next = written_of(w->plan.next);
        worktab_put(d->works, w->work);
        free(w);
        w = next;
    }
}

static void group_commit(struct dest_agent *d, struct path_cache *cache, struct dest_written *list)
{
    struct group g = {.d = d, .first = written_of(list), .cache = cache};
    int rc = group_gather(&g);
    if (rc == 0)
        rc = group_sync(&g);
    if (rc == 0)
        rc = group_journal(&g);
    if (rc == 0)
        rc = group_publish(&g);
    if (rc == 0)
        rc = group_tell(&g);
    if (rc < 0)
        dest_stop_storage(d, rc, "commit", NULL); // told already where more was known
    storage_watch_end(d->agent->watch, &d->committing);
    dest_group_free(d, list);
    free(g.files);
}

// Waits until the open group is due, or files have failed. false: the thread is to end (what is in an open
// group then is not acknowledged).
static bool wait_work(struct dest_agent *d, struct dest_written **group, struct dest_drop **drops)
{
    *group = NULL;
    *drops = NULL;
    pthread_mutex_lock(&d->plan_lock);
    while (!d->stopping && !d->failed && *group == NULL && *drops == NULL) {
        uint64_t due_ns = dest_plan_group_due_ns(d->plan, sys_clock_ns());
        *drops = d->drops;
        d->drops = NULL;
        if (due_ns == 0) {
            *group = dest_plan_group_take(d->plan);
        } else if (*drops != NULL) {
            break;
        } else if (due_ns == UINT64_MAX) {
            pthread_cond_wait(&d->written, &d->plan_lock);
        } else {
            struct timespec until;
            clock_gettime(CLOCK_MONOTONIC, &until);
            uint64_t ns = (uint64_t)until.tv_nsec + due_ns;
            until.tv_sec += (time_t)(ns / 1000000000);
            until.tv_nsec = (long)(ns % 1000000000);
            pthread_cond_timedwait(&d->written, &d->plan_lock, &until);
        }
    }
    pthread_mutex_unlock(&d->plan_lock);
    return *group != NULL || *drops != NULL;
}

void *dest_commit_main(void *self)
{
    struct dest_agent *d = self;
    struct dest_written *group;
    struct dest_drop *drops;
    struct path_cache *cache = path_cache_new(d->dest.fd);
    if (cache == NULL) {
        dest_stop_storage(d, -ENOMEM, "start", NULL);
        return NULL;
    }
    while (wait_work(d, &group, &drops)) {
        if (group != NULL)
            group_commit(d, cache, group);
        // Behind the group, which may have journalled something of them.
        dest_drops_run(d, drops);
    }
    path_cache_free(cache);
    return NULL;
}
