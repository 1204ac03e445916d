// Large files that an earlier run has begun: what of them is durable is not asked for again.
#include <errno.h>
#include <stdlib.h>

#include "mover/dest_agent.h"
#include "proto/range.h"

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
static int take_up(struct work *w, uint32_t i, const struct range *held, uint32_t count, bool *complete)
{
    const struct entry *e = &w->segment->entries[i];
    struct dest_side *side = w->side;
    struct dest_entry *de = &side->entries[i];
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

int dest_adopt(struct dest_agent *d, struct work *w, uint32_t i, bool *complete)
{
    const struct entry *e = &w->segment->entries[i];
    struct dest_side *side = w->side;
    struct dest_entry *de = &side->entries[i];
    *complete = false;
    pthread_mutex_lock(&d->journal_lock);
    struct journal_file *jf = journal_find(d->journal, e);
    uint32_t count = 0;
    const struct range *held = jf != NULL ? journal_held(jf, &count) : NULL;
    int rc = count > 0 ? dest_temp_open(&d->dest, e, true, dest_direct(d), &de->file) : -ENOENT;
    if (rc == 0) {
        de->open = true;
        rc = take_up(w, i, held, count, complete);
    } else if (rc == -ENOENT) {
        // Synced before the file is made anew: the journal must not promise ranges of an empty file.
        rc = jf != NULL ? journal_gone(d->journal, jf) : 0;
        if (jf != NULL && rc == 0)
            rc = journal_sync(d->journal);
        if (rc == 0)
            rc = need_set(w->need, i, NEED_ALL, NULL, 0);
    }
    pthread_mutex_unlock(&d->journal_lock);
    return rc;
}
