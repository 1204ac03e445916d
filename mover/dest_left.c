// What unfinished files leave: of one that failed nothing, of a job that stopped what is durable.
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "mover/dest_agent.h"
#include "storage/sys.h"

// ---- files that failed ----

bool dest_drop_later(struct dest_agent *d, const struct work *w, uint32_t entry)
{
    struct dest_drop *drop = malloc(sizeof *drop);
    if (drop == NULL)
        return false; // it goes when the job ends
    pthread_mutex_lock(&d->plan_lock);
    *drop = (struct dest_drop){.work = w, .entry = entry, .next = d->drops};
    d->drops = drop;
    pthread_cond_signal(&d->written);
    pthread_mutex_unlock(&d->plan_lock);
    return true;
}

void dest_drops_free(struct dest_drop *drops)
{
    while (drops != NULL) {
        struct dest_drop *drop = drops;
        drops = drop->next;
        free(drop);
    }
}

int dest_drop(struct dest_agent *d, const struct entry *e, struct dest_entry *de)
{
    pthread_mutex_lock(&d->journal_lock);
    struct journal_file *jf = journal_find(d->journal, e);
    int rc = jf != NULL ? journal_gone(d->journal, jf) : 0;
    if (jf != NULL && rc == 0)
        rc = journal_sync(d->journal);
    pthread_mutex_unlock(&d->journal_lock);
    if (rc < 0)
        return rc;
    // Streams may still hold the descriptor; with the lock none opens the file any more.
    pthread_mutex_lock(&d->files_lock);
    if (de->open)
        dest_file_drop(&de->file);
    else if (de->adopt)
        dest_temp_discard(&d->dest, e);
    pthread_mutex_unlock(&d->files_lock);
    return 0;
}

void dest_drops_run(struct dest_agent *d, struct dest_drop *drops)
{
    for (const struct dest_drop *drop = drops; drop != NULL; drop = drop->next) {
        const struct dest_side *side = drop->work->side;
        const struct entry *e = &drop->work->segment->entries[drop->entry];
        storage_watch_begin(d->agent->watch, &d->committing, "remove", e);
        int rc = dest_drop(d, e, &side->entries[drop->entry]);
        if (rc < 0) {
            dest_stop_storage(d, rc, "write the journal", e);
            break;
        }
        storage_watch_end(d->agent->watch, &d->committing); // settled, the entry may go at once
        settle_entries(d, drop->work, 1);
    }
    storage_watch_end(d->agent->watch, &d->committing);
    dest_drops_free(drops);
}

// ---- a job that stops ----

struct kept_name {
    char hex[TEMP_NAME_BYTES];
};

// The temporary files that stay.
struct kept {
    struct dest_agent *d;
    struct kept_name *names;
    size_t count, capacity;
    uint64_t bytes;
    bool no_memory; // then nothing is removed: it could be one of those
};

static void kept_add(struct kept *k, const struct entry *e)
{
    if (k->count == k->capacity) {
        size_t capacity = k->capacity > 0 ? 2 * k->capacity : 64;
        struct kept_name *names = reallocarray(k->names, capacity, sizeof *names);
        k->no_memory = k->no_memory || names == NULL;
        if (names == NULL)
            return;
        k->names = names;
        k->capacity = capacity;
    }
    dest_temp_name(e, k->names[k->count++].hex);
}

// A promised file whose temporary one is not there, or not whole, is of no use; any other error leaves it as
// it is.
static void trim(void *arg, const struct entry *e, const struct range *held, uint32_t count)
{
    struct kept *k = arg;
    uint64_t bytes = 0;
    if (dest_temp_trim(&k->d->dest, e, held, count, &bytes) == -ENOENT)
        return;
    k->bytes += bytes;
    kept_add(k, e);
}

static int by_name(const void *a, const void *b)
{
    const struct kept_name *x = a, *y = b;
    return strcmp(x->hex, y->hex);
}

static bool is_kept(void *arg, const char *name)
{
    const struct kept *k = arg;
    struct kept_name key;
    strncpy(key.hex, name, sizeof key.hex - 1);
    key.hex[sizeof key.hex - 1] = '\0';
    return k->count > 0 && bsearch(&key, k->names, k->count, sizeof key, by_name) != NULL;
}

// The entry may lie on another file system than the root.
static uint64_t free_where_it_failed(const struct dest_agent *d)
{
    char last[NAME_BYTES_MAX + 1];
    uint64_t magic, room = 0;
    int parent =
        d->full_path != NULL ? path_open_parent(d->dest.fd, d->full_path, strlen(d->full_path), last) : -1;
    int rc = sys_fs_magic(parent >= 0 ? parent : d->dest.fd, &magic, &room);
    if (parent >= 0)
        sys_close(parent);
    return rc == 0 ? room : 0;
}

void dest_give_back(struct dest_agent *d)
{
    struct kept k = {.d = d};
    // What is gone is told before it goes. Where that fails nothing is lost: a promise of a file that is not
    // there is not believed.
    int rc = journal_sync(d->journal);
    journal_each(d->journal, trim, &k);
    if (!k.no_memory) {
        if (k.count > 0)
            qsort(k.names, k.count, sizeof *k.names, by_name);
        int swept = dest_sweep(&d->dest, is_kept, &k);
        (void)swept; // the next run meets it again
    }
    free(k.names);
    if (rc < 0)
        rc = journal_renew(d->journal); // now that there may be room
    d->agent->kept_bytes = rc == 0 ? k.bytes : 0;
    d->agent->free_bytes = free_where_it_failed(d);
}
