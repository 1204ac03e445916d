// What the receivers ask of the destination agent: may this stripe come, where does it go, it is written.
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "mover/dest_agent.h"
#include "storage/sys.h"

static enum dest_answer arrive(void *arg, uint64_t segment, uint64_t stripe, struct work **work)
{
    struct dest_agent *d = arg;
    pthread_mutex_lock(&d->plan_lock);
    enum dest_answer answer = dest_plan_arrive(d->plan, segment, stripe);
    // A segment with an open lease is in the table: held under the lock, so that the lease does not end
    // before.
    if (answer == DEST_TAKE)
        *work = worktab_get(d->works, segment);
    pthread_mutex_unlock(&d->plan_lock);
    return answer;
}

static void lost(void *arg, uint64_t stripe)
{
    struct dest_agent *d = arg;
    pthread_mutex_lock(&d->plan_lock);
    dest_plan_lost(d->plan, stripe);
    pthread_cond_signal(&d->written);
    pthread_mutex_unlock(&d->plan_lock);
}

static void damaged(void *arg, struct slot *slot)
{
    struct dest_agent *d = arg;
    pthread_mutex_lock(&d->plan_lock);
    bool last = dest_plan_damaged(d->plan, slot->number);
    pthread_cond_signal(&d->written);
    pthread_mutex_unlock(&d->plan_lock);
    if (!last) {
        struct message m = {.type = MESSAGE_STRIPE_BAD, .stripe_bad = {.stripe = slot->number}};
        mailbox_post(d->agent->mailbox, &m);
        return;
    }
    if (slot->stripe.packed)
        settle_stripes(d, slot->number, 1);
    uint32_t files = slot->stripe.packed ? slot->stripe.extent_count : 1;
    for (uint32_t i = 0; i < files; i++) {
        const struct entry *e = &slot->work->segment->entries[slot->extents[i].entry];
        struct err err;
        err_set(&err, ERR_DIGEST, 0, "", e->path, e->path_len, "arrived damaged %d times", DAMAGED_MAX);
        settle_failed(d, slot->work, slot->extents[i].entry, &err);
    }
}

// One entry, or the whole job, fails at the destination.
static void fail_entry(struct dest_agent *d, const struct work *w, uint32_t entry, int error, const char *op)
{
    const struct entry *e = &w->segment->entries[entry];
    if (dest_is_fatal(error)) {
        dest_stop_storage(d, error, op, e);
        return;
    }
    struct err err;
    err_set(&err, ERR_ENTRY, -error, op, e->path, e->path_len, "%s", "");
    settle_failed(d, w, entry, &err);
}

bool dest_direct(const struct dest_agent *d)
{
    return d->agent->job.direct != DIRECT_OFF && !d->in_memory;
}

static bool file_wanted(struct dest_agent *d, const struct slot *slot)
{
    pthread_mutex_lock(&d->plan_lock);
    bool gone = d->failed || dest_plan_entry_failed(d->plan, slot->segment, slot->stripe.entry);
    pthread_mutex_unlock(&d->plan_lock);
    return !gone;
}

// An adopted file has given back the room of what is not there: no byte of it moves before there is room
// again.
static int file_open(struct dest_agent *d, const struct entry *e, struct dest_entry *de)
{
    struct dest_file f;
    int rc = dest_temp_open(&d->dest, e, de->adopt, dest_direct(d), &f);
    if (rc < 0)
        return rc;
    rc = de->adopt ? dest_file_reserve(&f, e) : 0;
    if (rc < 0) {
        dest_file_close(&f);
        return rc;
    }
    de->file = f;
    de->open = true;
    return 0;
}

// The temporary file of a large entry, opened by whoever comes first and shared by all streams: the
// descriptor stands from before the first write until after the last sync.
static int prepare(void *arg, struct slot *slot)
{
    struct dest_agent *d = arg;
    struct dest_side *side = slot->work->side;
    struct dest_entry *de = &side->entries[slot->stripe.entry];
    const struct entry *e = &slot->work->segment->entries[slot->stripe.entry];
    storage_watch_begin(slot->watch, &slot->wait, "create", e);
    pthread_mutex_lock(&d->files_lock); // before it is known that the file has not failed: see dest_drop
    int rc = file_wanted(d, slot) ? 0 : -ECANCELED;
    if (rc == 0 && !de->open)
        rc = file_open(d, e, de);
    slot->fd = de->file.fd;
    slot->direct = de->file.direct;
    pthread_mutex_unlock(&d->files_lock);
    storage_watch_end(slot->watch, &slot->wait);
    if (rc < 0 && rc != -ECANCELED)
        fail_entry(d, slot->work, slot->stripe.entry, rc, "create");
    return rc;
}

// A file that could not be made fails alone; its status keeps it out of the group.
static int write_small(struct dest_agent *d, struct slot *slot)
{
    if (slot->nowhere != OPEN_STORAGE) // not even the name: they may be many
        return 0;
    if (slot->file == NULL)
        slot->file = path_cache_new(d->dest.fd);
    if (slot->file == NULL) {
        dest_stop_storage(d, -ENOMEM, "write", NULL);
        return -ENOMEM;
    }
    const uint8_t *at = slot->body;
    for (uint32_t i = 0; i < slot->stripe.extent_count; i++) {
        const struct extent *x = &slot->extents[i];
        const struct entry *e = &slot->work->segment->entries[x->entry];
        if (slot->status[i].state == EXTENT_OK) {
            storage_watch_begin(slot->watch, &slot->wait, "write", e);
            int rc = dest_small_write(&d->dest, slot->file, e, at, x->len);
            if (rc < 0 && dest_is_fatal(rc)) {
                dest_stop_storage(d, rc, "write", e);
                return rc;
            }
            if (rc < 0) {
                fail_entry(d, slot->work, x->entry, rc, "create");
                slot->status[i] = (struct extent_status){.state = EXTENT_UNREADABLE, .os = (uint16_t)-rc};
            }
        }
        at += x->len;
    }
    return 0;
}

static int small(void *arg, struct slot *slot)
{
    int rc = write_small(arg, slot);
    storage_watch_end(slot->watch, &slot->wait);
    return rc;
}

static void slot_end(void *arg, struct slot *slot)
{
    (void)arg;
    path_cache_free(slot->file);
    slot->file = NULL;
}

static void source_failed(struct dest_agent *d, const struct work *w, uint32_t entry,
                          const struct extent_status *status)
{
    static const struct {
        enum err_class class;
        const char *op, *text;
    } words[] = {
        [EXTENT_CHANGED] = {ERR_CHANGED, "", "changed while it was read; not copied, run again"},
        [EXTENT_VANISHED] = {ERR_VANISHED, "", "vanished before it was read"},
        [EXTENT_UNREADABLE] = {ERR_ENTRY, "read", ""},
    };
    const struct entry *e = &w->segment->entries[entry];
    struct err err;
    err_set(&err, words[status->state].class, status->os, words[status->state].op, e->path, e->path_len, "%s",
            words[status->state].text);
    settle_failed(d, w, entry, &err);
}

// Takes leaves and entries over from the slot. NULL: out of memory.
static struct written *take_over(const struct slot *slot)
{
    const struct stripe *st = &slot->stripe;
    struct written *w = malloc(sizeof *w + st->leaf_count * sizeof w->parts[0]);
    if (w == NULL)
        return NULL;
    *w = (struct written){.plan = {.segment = slot->segment,
                                   .stripe = slot->number,
                                   .bytes = st->body_bytes,
                                   .files = st->packed ? st->extent_count : 0},
                          .packed = st->packed,
                          .entry = st->entry};
    struct leaf_span spans[STRIPE_LEAVES_MAX];
    layout_leaves(slot->work->layout, st, slot->extents, spans);
    for (uint32_t i = 0; i < st->leaf_count; i++) {
        if (st->packed && slot->status[i].state != EXTENT_OK)
            continue;
        w->parts[w->count++] = (struct written_part){
            .entry = spans[i].entry, .len = spans[i].len, .leaf = spans[i].leaf, .digest = slot->leaves[i]};
    }
    return w;
}

static void written(void *arg, struct slot *slot)
{
    struct dest_agent *d = arg;
    // What the source could not give fails first: then the group never counts it. A packed file that could
    // not be written here has failed in `small` already, and fails only once.
    bool spoilt = !slot->stripe.packed && slot->status[0].state != EXTENT_OK;
    if (spoilt)
        lost(d, slot->number);
    for (uint32_t i = 0; i < slot->stripe.extent_count; i++) {
        if (slot->status[i].state != EXTENT_OK)
            source_failed(d, slot->work, slot->extents[i].entry, &slot->status[i]);
    }
    if (spoilt)
        return;
    struct written *w = take_over(slot);
    if (w == NULL) {
        dest_stop_storage(d, -ENOMEM, "keep a stripe", NULL);
        return;
    }
    w->work = worktab_get(d->works, slot->segment);
    pthread_mutex_lock(&d->plan_lock);
    bool taken = w->work != NULL && dest_plan_written(d->plan, &w->plan, sys_clock_ns());
    pthread_cond_signal(&d->written);
    pthread_mutex_unlock(&d->plan_lock);
    if (!taken) {
        worktab_put(d->works, w->work);
        free(w);
    }
}

static void write_failed(void *arg, struct slot *slot, int error)
{
    struct dest_agent *d = arg;
    lost(d, slot->number);
    fail_entry(d, slot->work, slot->stripe.entry, error, "write");
}

void dest_receive_init(struct dest_agent *d)
{
    d->receive = (struct receiver_dest){.arg = d,
                                        .arrive = arrive,
                                        .prepare = prepare,
                                        .small = small,
                                        .written = written,
                                        .write_failed = write_failed,
                                        .lost = lost,
                                        .slot_end = slot_end,
                                        .damaged = damaged,
                                        .works = d->works,
                                        .in_memory = d->in_memory,
                                        .memory = d->agent->job.memory};
}
