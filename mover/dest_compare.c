// The home agent's side of the peer connection: takes segments, compares them with what is there, makes what
// needs no data, and answers what is needed. One segment after the other, in the peer stream's thread.
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "mover/dest_agent.h"
#include "mover/peer.h"
#include "storage/sys.h"

// Files that are made here stay open until they are published: so many at a time.
enum { MADE_OPEN_MAX = 64 };

// One segment being compared.
struct compare {
    struct dest_agent *d;
    struct path_cache *cache;
    struct work *work;
    struct dest_side *side;
    struct records records;
    uint32_t open;  // entries that wait for data
    uint32_t *made; // entries made here, to be published and told after a sync
    uint32_t made_count, made_open;
    bool changed; // something was made or changed: to be synced before it is told
    uint64_t told_ns;
};

static void side_free(void *arg)
{
    struct dest_side *side = arg;
    for (uint32_t i = 0; i < side->count; i++)
        dest_entry_close(&side->entries[i]);
    struct dest_agent *d = side->dest; // NULL unless the job ends before the segment
    if (d != NULL) {
        pthread_mutex_lock(&d->plan_lock);
        dest_side_unlink(side);
        pthread_mutex_unlock(&d->plan_lock);
    }
    free(side->awaited);
    free(side->entries);
    free(side);
}

// An entry that cannot be made or compared: it fails alone, or the destination itself has failed (then
// -errno).
static int entry_failed(struct compare *c, uint32_t i, int error, const char *op)
{
    const struct entry *e = &c->work->segment->entries[i];
    if (dest_is_fatal(error)) {
        dest_stop_storage(c->d, error, op, e);
        return error;
    }
    struct err err;
    err_set(&err, ERR_ENTRY, -error, op, e->path, e->path_len, "%s", "");
    records_add(&c->records, e, RECEIPT_FAILED, PROOF_NONE, NULL);
    agent_problem(c->d->agent, c->work->number, i, PROBLEM_RECORDED, &err);
    return 0;
}

// So does one that was made here: it leaves nothing, unless the destination fails.
static int made_failed(struct compare *c, uint32_t i, int error, const char *op)
{
    struct dest_entry *de = &c->side->entries[i];
    int rc = 0;
    if (de->open && !dest_is_fatal(error))
        rc = dest_drop(c->d, &c->work->segment->entries[i], de);
    dest_entry_close(de);
    return entry_failed(c, i, rc < 0 ? rc : error, rc < 0 ? "write the journal" : op);
}

static int compare_made(struct compare *c, uint32_t i, int rc, const char *op)
{
    struct dest_entry *de = &c->side->entries[i];
    if (rc < 0)
        return made_failed(c, i, rc, op);
    c->made[c->made_count++] = i;
    c->made_open += de->open;
    c->changed = true;
    return 0;
}

static int compare_dir(struct compare *c, uint32_t i)
{
    const struct entry *e = &c->work->segment->entries[i];
    bool made = false;
    int rc = dest_make_dir(&c->d->dest, e, &made);
    // One that goes with the job keeps the mode by which it can be removed.
    if (rc == 0 && c->d->agent->job.memory == OPEN_STORAGE)
        rc = dest_dirs_add(c->d, e);
    if (rc < 0 || made)
        return compare_made(c, i, rc, "make directory");
    records_add(&c->records, e, RECEIPT_SKIPPED, PROOF_NONE, NULL);
    return 0;
}

// It is there already: mode, owner or a link's time may still be put right.
static int compare_same(struct compare *c, uint32_t i, bool meta_differs)
{
    const struct entry *e = &c->work->segment->entries[i];
    int rc = meta_differs ? dest_fix_metadata(&c->d->dest, c->cache, e) : 0;
    if (rc < 0)
        return entry_failed(c, i, rc, "set metadata");
    c->changed = c->changed || meta_differs;
    records_add(&c->records, e, RECEIPT_SKIPPED, PROOF_NONE, NULL);
    return 0;
}

// A file without data: whole under its temporary name.
static int make_file(struct compare *c, uint32_t i)
{
    const struct entry *e = &c->work->segment->entries[i];
    struct dest_entry *de = &c->side->entries[i];
    if (e->size <= PACKED_FILE_BYTES_MAX)
        return dest_small_write(&c->d->dest, c->cache, e, NULL, 0);
    int rc = 0;
    if (!de->open)
        rc = dest_temp_open(&c->d->dest, e, false, false, &de->file);
    de->open = de->open || rc == 0;
    return rc == 0 ? dest_file_metadata(&c->d->dest, de->file.fd, e) : rc;
}

static bool has_data(const struct entry *e)
{
    return e->size > 0 && !(e->sparse && e->data_count == 0);
}

// The directory changed while it was listed, and named the file twice: once its first turn is over it is
// looked at again.
static int named_twice(struct compare *c, uint32_t i)
{
    const struct entry *e = &c->work->segment->entries[i];
    struct err err;
    err_set(&err, ERR_CHANGED, 0, "", e->path, e->path_len, "its directory changed while it was listed");
    if (c->side->retry)
        records_add(&c->records, e, RECEIPT_CHANGED, PROOF_NONE, NULL);
    agent_problem(c->d->agent, c->work->number, i, c->side->retry ? PROBLEM_RECORDED : PROBLEM_RETRY, &err);
    return 0;
}

static int compare_file(struct compare *c, uint32_t i)
{
    const struct entry *e = &c->work->segment->entries[i];
    if (e->size > DIGESTED_BYTES_MAX)
        return entry_failed(c, i, -EFBIG, "digest");
    if (dest_awaited(c->d, e))
        return named_twice(c, i);
    bool complete = !has_data(e);
    int rc = 0;
    if (!complete && e->size > PACKED_FILE_BYTES_MAX)
        rc = dest_adopt(c->d, c->work, i, &complete);
    else if (!complete)
        rc = need_set(c->work->need, i, NEED_ALL, NULL, 0);
    if (rc == -ECANCELED)
        return rc;
    if (rc < 0)
        return entry_failed(c, i, rc, "take up");
    if (complete)
        return compare_made(c, i, make_file(c, i), "create");
    dest_side_await(c->side, e);
    c->open++;
    return 0;
}

static int compare_entry(struct compare *c, uint32_t i)
{
    const struct entry *e = &c->work->segment->entries[i];
    storage_watch_begin(c->d->agent->watch, &c->d->comparing, "compare", e);
    if (e->type == ENTRY_DIR)
        return compare_dir(c, i);
    bool same = false, meta_differs = false;
    int rc = dest_compare(&c->d->dest, c->cache, e, &same, &meta_differs);
    if (rc < 0)
        return entry_failed(c, i, rc, "compare");
    if (same)
        return compare_same(c, i, meta_differs);
    if (e->type == ENTRY_FILE)
        return compare_file(c, i);
    rc = dest_make_link(&c->d->dest, c->cache, e);
    return compare_made(c, i, rc, "make link");
}

// The digest of an entry that was made here.
static int made_digest(struct compare *c, const struct entry *e, struct digest *out)
{
    if (e->type == ENTRY_SYMLINK) {
        *out = digest_of(e->target, e->target_len);
        return 0;
    }
    if (e->size > PACKED_FILE_BYTES_MAX)
        return dest_file_retire(c->d, e, out);
    struct digest leaf = digest_zeros(e->size); // empty, or all hole
    *out = digest_file(&leaf, e->size);
    return 0;
}

// Gives a file that was made here its final name (a link has it already).
static int publish_made(struct compare *c, uint32_t i)
{
    const struct entry *e = &c->work->segment->entries[i];
    struct dest_entry *de = &c->side->entries[i];
    if (e->type != ENTRY_FILE)
        return 0;
    storage_watch_begin(c->d->agent->watch, &c->d->comparing, "publish", e);
    if (!de->open)
        return dest_small_publish(&c->d->dest, c->cache, e);
    int parent = -1;
    int rc = dest_file_publish(&c->d->dest, &de->file, e, &parent);
    if (rc < 0)
        return rc;
    dest_entry_close(de);
    return sys_close(parent);
}

static int publish_all(struct compare *c)
{
    uint32_t kept = 0;
    for (uint32_t k = 0; k < c->made_count; k++) {
        uint32_t i = c->made[k];
        int rc = publish_made(c, i);
        if (rc == 0) {
            c->made[kept++] = i;
            continue;
        }
        if (!c->side->entries[i].open && !dest_is_fatal(rc))
            dest_temp_discard(&c->d->dest, &c->work->segment->entries[i]);
        rc = made_failed(c, i, rc, "publish");
        if (rc < 0)
            return rc;
    }
    c->made_count = kept;
    return 0;
}

static int tell_all(struct compare *c)
{
    for (uint32_t k = 0; k < c->made_count; k++) {
        const struct entry *e = &c->work->segment->entries[c->made[k]];
        struct digest digest;
        bool digested = e->type != ENTRY_DIR;
        int rc = digested ? made_digest(c, e, &digest) : 0;
        if (rc < 0)
            return rc;
        records_add(&c->records, e, RECEIPT_MOVED, e->type == ENTRY_FILE ? PROOF_WIRE : PROOF_NONE,
                    digested ? &digest : NULL);
    }
    c->made_count = c->made_open = 0;
    return 0;
}

// Sync, publish, sync again; only then are the entries told.
static int compare_commit(struct compare *c)
{
    if (!c->changed)
        return 0;
    struct dest_agent *d = c->d;
    storage_watch_begin(d->agent->watch, &d->comparing, "sync", NULL);
    int rc = dest_sync(&d->dest);
    if (rc == 0)
        rc = publish_all(c);
    storage_watch_begin(d->agent->watch, &d->comparing, "sync", NULL);
    if (rc == 0)
        rc = dest_sync(&d->dest);
    if (rc == 0)
        rc = tell_all(c);
    if (rc < 0)
        dest_stop_storage(d, rc, "sync", NULL);
    c->changed = false;
    return rc;
}

// Lays the segment out and tells the machine and the coordinator.
static int compare_layout(struct compare *c)
{
    struct dest_agent *d = c->d;
    struct work *w = c->work;
    int rc = need_fit(w->need);
    if (rc == 0)
        rc = layout_new(w->segment, w->need, d->agent->job.stripe_bytes, &w->layout);
    uint64_t *stripes = rc == 0 ? calloc(w->segment->entry_count, sizeof *stripes) : NULL;
    if (stripes == NULL)
        return rc < 0 ? rc : -ENOMEM;
    for (uint32_t i = 0; i < w->segment->entry_count; i++) {
        uint64_t first;
        stripes[i] = layout_entry_stripes(w->layout, i, &first);
    }
    pthread_mutex_lock(&d->plan_lock);
    rc = dest_plan_segment(d->plan, w->number, w->segment->entry_count, stripes, c->open);
    pthread_mutex_unlock(&d->plan_lock);
    free(stripes);
    return rc;
}

// On slow storage a segment takes long: what is settled of it is told meanwhile.
static int compare_tell(struct compare *c)
{
    uint64_t now_ns = sys_clock_ns();
    bool due = now_ns - c->told_ns >= DEST_TELL_NS;
    int rc = due || c->made_open >= MADE_OPEN_MAX ? compare_commit(c) : 0;
    if (rc < 0 || !due)
        return rc;
    records_flush(&c->records);
    c->told_ns = sys_clock_ns();
    return 0;
}

static int compare_segment(struct compare *c)
{
    int rc = 0;
    c->told_ns = sys_clock_ns();
    for (uint32_t i = 0; i < c->work->segment->entry_count && rc == 0; i++) {
        rc = compare_entry(c, i);
        if (rc == 0)
            rc = compare_tell(c);
    }
    if (rc == 0)
        rc = compare_commit(c);
    storage_watch_end(c->d->agent->watch, &c->d->comparing);
    if (rc == 0)
        rc = compare_layout(c);
    if (rc == 0)
        dest_side_link(c->d, c->side);
    return rc;
}

static int answer(struct compare *c, struct channel *peer)
{
    struct work *w = c->work;
    uint8_t *bytes = malloc(NEED_BYTES_MAX);
    int64_t len = bytes != NULL ? need_encode(w->need, bytes, NEED_BYTES_MAX) : -ENOMEM;
    int rc = len < 0 ? (int)len : channel_send_bytes(peer, PEER_NEED, bytes, (size_t)len);
    free(bytes);
    if (rc < 0)
        return rc;
    struct message m = {.type = MESSAGE_SEGMENT_COMPARED,
                        .segment_compared = {.segment = w->number,
                                             .stripes = layout_count(w->layout),
                                             .bytes = layout_bytes(w->layout),
                                             .layout = layout_digest(w->layout)}};
    c->work = NULL;
    worktab_add(c->d->works, w);
    records_flush(&c->records); // before the segment can be done
    mailbox_post(c->d->agent->mailbox, &m);
    return 0;
}

// Segments come in order, and only so many are under way.
static int admit(struct dest_agent *d, uint64_t number)
{
    pthread_mutex_lock(&d->plan_lock);
    bool good = number == d->next_segment && d->open_segments < SEGMENTS_OPEN_MAX;
    d->next_segment += good;
    d->open_segments += good;
    pthread_mutex_unlock(&d->plan_lock);
    return good ? 0 : -EPROTO;
}

static int on_segment(struct dest_agent *d, struct path_cache *cache, struct channel *peer, bool retry,
                      const uint8_t *bytes, size_t len)
{
    struct compare c = {.d = d, .cache = cache};
    c.work = calloc(1, sizeof *c.work);
    c.side = calloc(1, sizeof *c.side);
    int rc = c.work != NULL && c.side != NULL ? segment_decode(bytes, len, &c.work->segment) : -ENOMEM;
    if (rc == 0)
        rc = admit(d, c.work->segment->number);
    if (rc == 0) {
        uint32_t count = c.work->segment->entry_count;
        c.work->number = c.work->segment->number;
        c.work->need = need_new(c.work->number, count);
        c.work->side = c.side;
        c.work->side_free = side_free;
        c.side->retry = retry;
        c.side->entries = calloc(count, sizeof *c.side->entries);
        c.side->count = c.side->entries != NULL ? count : 0;
        c.side->awaited = calloc(count, sizeof *c.side->awaited);
        c.made = calloc(count, sizeof *c.made);
        records_init(&c.records, d->agent, c.work->number);
        rc = c.work->need != NULL && c.side->entries != NULL && c.side->awaited != NULL && c.made != NULL
                 ? compare_segment(&c)
                 : -ENOMEM;
    } else {
        free(c.side);
    }
    if (rc == 0)
        rc = answer(&c, peer);
    free(c.made);
    work_free(c.work);
    return rc;
}

static int take_messages(struct dest_agent *d, struct path_cache *cache, struct channel *peer)
{
    uint16_t type;
    const uint8_t *fields;
    size_t len;
    int rc;
    while ((rc = channel_next(peer, &type, &fields, &len)) > 0) {
        if (type != PEER_SEGMENT && type != PEER_RETRY)
            return -EPROTO;
        path_cache_clear(cache); // what an earlier segment saw may have been replaced
        rc = on_segment(d, cache, peer, type == PEER_RETRY, fields, len);
        if (rc < 0)
            return rc;
    }
    return rc;
}

// The closing pass, when the coordinator asked for it and it has not run.
static int finish_if_asked(struct dest_agent *d)
{
    pthread_mutex_lock(&d->plan_lock);
    bool asked = d->finish;
    d->finish = false;
    pthread_mutex_unlock(&d->plan_lock);
    if (!asked)
        return 0;
    // What earlier runs have left may be much: it goes here, where nobody waits, and not when the job closes;
    // before directories get their times, since some of it may lie in them. What stays is told then.
    dest_remove_temp(d);
    int rc = dest_dirs_finish(d);
    if (rc < 0) {
        dest_stop_storage(d, rc, "finish directories", NULL);
        return rc;
    }
    struct message m = {.type = MESSAGE_FINISHED, .finished = {.directories = d->dir_count}};
    mailbox_post(d->agent->mailbox, &m);
    return 0;
}

void dest_run_peer(void *self, struct stream *s, const struct conn *conn, struct conn_end *end)
{
    struct dest_agent *d = self;
    struct peer peer = {.channel = NULL};
    struct path_cache *cache = path_cache_new(d->dest.fd);
    int rc = cache != NULL ? peer_open(s, conn, &peer) : -ENOMEM;
    while (rc == 0 && !stream_stopping(s)) {
        // Asked before this connection stood, nobody would wake it.
        int taken = finish_if_asked(d);
        if (taken == 0)
            rc = peer_turn(&peer, true);
        if (taken == 0 && (rc == 0 || rc == -ENODATA))
            taken = take_messages(d, cache, peer.channel);
        if (taken < 0)
            rc = taken;
    }
    // A destination that fails has said so. The source would take the end of this connection for a lost path,
    // and could be heard first.
    if (rc < 0 && peer.channel != NULL && dest_has_failed(d))
        peer_rest(&peer);
    peer_close(&peer);
    path_cache_free(cache);
    end->clean = stream_stopping(s);
    if (!end->clean)
        agent_peer_lost(d->agent, rc);
}
