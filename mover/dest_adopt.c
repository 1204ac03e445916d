// Large files that an earlier run has begun: what of them is durable is not sent again.
#include <errno.h>
#include <stdlib.h>

#include "mover/dest_agent.h"
#include "proto/range.h"
#include "proto/words.h"
#include "storage/sys.h"

#define READING_TELL_NS UINT64_C(30000000000)
enum { PATH_SHOWN_BYTES = 256 };

void dest_entry_close(struct dest_entry *de)
{
    if (de->open)
        dest_file_close(&de->file);
    de->open = false;
}

// Whether data lies in any of these leaves.
static bool data_in(const struct entry *e, const struct range *leaves, uint32_t count)
{
    if (!e->sparse)
        return count > 0;
    for (uint32_t i = 0, k = 0; i < count && k < e->data_count;) {
        uint64_t from = leaves[i].offset * LEAF_BYTES, to = from + leaves[i].len * LEAF_BYTES;
        if (e->data[k].offset + e->data[k].len <= from)
            k++;
        else if (e->data[k].offset >= to)
            i++;
        else
            return true;
    }
    return false;
}

// The file of an earlier run is there, and leaves of it are durable. Sets the need for the others, or
// *complete when nothing is missing but the publication: then it stays open, else until its first stripe
// comes.
static int take_up(const struct work *w, uint32_t i, const struct range *held, uint32_t count, bool *complete)
{
    const struct entry *e = &w->segment->entries[i];
    struct dest_entry *de = &((struct dest_side *)w->side)->entries[i];
    struct range *missing = calloc(count + 1, sizeof *missing);
    if (missing == NULL)
        return -ENOMEM;
    uint32_t n = ranges_complement(held, count, u64_div_up(e->size, LEAF_BYTES), missing);
    *complete = !data_in(e, missing, n);
    int rc = *complete ? 0 : need_set(w->need, i, NEED_LEAVES, missing, n);
    free(missing);
    de->adopt = !*complete;
    if (de->adopt)
        dest_entry_close(de);
    return rc;
}

// Leaves as they are found to hold: appended in order.
struct holding {
    struct range *ranges;
    uint32_t count, capacity;
};

static int holding_add(struct holding *h, uint64_t leaf)
{
    if (h->count > 0 && h->ranges[h->count - 1].offset + h->ranges[h->count - 1].len == leaf) {
        h->ranges[h->count - 1].len++;
        return 0;
    }
    if (h->count == h->capacity) {
        uint32_t capacity = h->capacity > 0 ? 2 * h->capacity : 16;
        struct range *ranges = reallocarray(h->ranges, capacity, sizeof *ranges);
        if (ranges == NULL)
            return -ENOMEM;
        h->ranges = ranges;
        h->capacity = capacity;
    }
    h->ranges[h->count++] = (struct range){.offset = leaf, .len = 1};
    return 0;
}

// Whether this leaf of the file has the digest: 1, 0 or -errno. What cannot be read does not hold.
static int leaf_holds(int fd, const struct entry *e, uint64_t leaf, const struct digest *digest, uint8_t *buf)
{
    uint64_t at = leaf * LEAF_BYTES;
    size_t want = (size_t)u64_min(LEAF_BYTES, e->size - at);
    ssize_t got = sys_pread_full(fd, buf, (size_t)u64_align_up(want, BLOCK_BYTES), at);
    if (got < 0)
        return got == -EIO ? 0 : (int)got;
    struct digest found = digest_of(buf, want);
    return (size_t)got >= want && digest_equal(&found, digest);
}

static bool is_over(struct dest_agent *d)
{
    pthread_mutex_lock(&d->plan_lock);
    bool over = d->stopping || d->failed;
    pthread_mutex_unlock(&d->plan_lock);
    return over;
}

// The coordinator hears that it goes on.
static uint64_t tell_reading(struct dest_agent *d, const struct entry *e, uint64_t leaf, uint64_t told_ns)
{
    uint64_t now_ns = sys_clock_ns();
    if (now_ns - told_ns < READING_TELL_NS)
        return told_ns;
    char at[WORDS_BYTES], size[WORDS_BYTES], path[PATH_SHOWN_BYTES];
    err_escape(path, sizeof path, e->path, e->path_len);
    agent_notice(d->agent, "%s: read again up to %s of %s", path, words_bytes(leaf * LEAF_BYTES, at),
                 words_bytes(e->size, size));
    return now_ns;
}

// Leaf by leaf, so that the end of a job does not wait for it.
static int read_leaves(struct dest_agent *d, const struct entry *e, int fd, const struct journal_file *jf,
                       struct holding *h)
{
    uint32_t count;
    const struct range *held = journal_held(jf, &count);
    const struct digest *leaves = journal_leaves(jf);
    uint8_t *buf = aligned_alloc(BLOCK_BYTES, LEAF_BYTES);
    uint64_t told_ns = sys_clock_ns();
    int rc = buf != NULL ? 0 : -ENOMEM;
    for (uint32_t i = 0; i < count; i++) {
        for (uint64_t k = 0; k < held[i].len && rc == 0; k++) {
            uint64_t leaf = held[i].offset + k;
            rc = is_over(d) ? -ECANCELED : 0;
            storage_watch_begin(d->agent->watch, &d->comparing, "read again", e);
            told_ns = tell_reading(d, e, leaf, told_ns);
            if (rc == 0)
                rc = leaf_holds(fd, e, leaf, &leaves[leaf], buf);
            if (rc > 0)
                rc = holding_add(h, leaf);
        }
    }
    free(buf);
    return rc;
}

// What was promised under another boot is compared with what is there; the rest is forgotten. Under
// journal_lock, which others may have meanwhile: this file is nobody else's yet.
static int read_again(struct dest_agent *d, const struct entry *e, int fd, struct journal_file *jf)
{
    char words[WORDS_BYTES];
    if (!d->doubt_told)
        agent_notice(d->agent,
                     "this machine was started anew since the last run: up to %s of it are read again",
                     words_bytes(journal_doubtful_bytes(d->journal), words));
    d->doubt_told = true;
    pthread_mutex_unlock(&d->journal_lock);
    struct holding h = {0};
    int dropped = sys_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    (void)dropped; // where there is no direct I/O: from the disk, if it can be
    int rc = read_leaves(d, e, fd, jf, &h);
    pthread_mutex_lock(&d->journal_lock);
    if (rc == 0)
        rc = journal_hold(d->journal, jf, h.ranges, h.count);
    if (rc == 0)
        rc = journal_sync(d->journal);
    free(h.ranges);
    return rc;
}

// The file has changed since an earlier run: what that run has of it is of no use, and its room may be
// needed.
static int drop_other(struct dest_agent *d, const struct entry *e)
{
    struct entry version;
    struct journal_file *jf = journal_other(d->journal, e, &version);
    int rc = jf != NULL ? journal_gone(d->journal, jf) : 0;
    if (jf != NULL && rc == 0)
        rc = journal_sync(d->journal);
    if (jf != NULL && rc == 0)
        dest_temp_discard(&d->dest, &version);
    return rc;
}

// Under journal_lock. *out: the file, of which something is held, and whose temporary file is open. -ENOENT:
// there is none.
static int find_left(struct dest_agent *d, const struct entry *e, struct dest_entry *de,
                     struct journal_file **out)
{
    struct journal_file *jf = journal_find(d->journal, e);
    *out = jf;
    int rc = jf != NULL ? dest_temp_open(&d->dest, e, true, dest_direct(d), &de->file) : -ENOENT;
    if (rc < 0)
        return rc;
    de->open = true;
    if (!journal_doubtful(d->journal, jf))
        return 0;
    rc = read_again(d, e, de->file.fd, jf);
    uint32_t count;
    (void)journal_held(jf, &count);
    return rc < 0 ? rc : count > 0 ? 0 : -ENOENT;
}

int dest_adopt(struct dest_agent *d, const struct work *w, uint32_t i, bool *complete)
{
    const struct entry *e = &w->segment->entries[i];
    struct dest_entry *de = &((struct dest_side *)w->side)->entries[i];
    *complete = false;
    pthread_mutex_lock(&d->journal_lock);
    struct journal_file *jf = NULL;
    int rc = drop_other(d, e);
    if (rc == 0)
        rc = find_left(d, e, de, &jf);
    if (rc == 0) {
        uint32_t count;
        const struct range *held = journal_held(jf, &count);
        rc = take_up(w, i, held, count, complete);
    } else if (rc == -ENOENT) {
        // Synced before the file is made anew: the journal must not promise ranges of an empty file.
        dest_entry_close(de);
        rc = jf != NULL ? journal_gone(d->journal, jf) : 0;
        if (jf != NULL && rc == 0)
            rc = journal_sync(d->journal);
        if (rc == 0)
            rc = need_set(w->need, i, NEED_ALL, NULL, 0);
    }
    pthread_mutex_unlock(&d->journal_lock);
    return rc;
}
