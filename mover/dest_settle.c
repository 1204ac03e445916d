// Entries as they are settled: records, problems, and the end of segments.
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "mover/dest_agent.h"

void records_init(struct records *r, struct agent *a, uint64_t segment)
{
    r->agent = a;
    r->segment = segment;
    wire_writer_init(&r->writer, r->buf, sizeof r->buf);
}

void records_flush(struct records *r)
{
    int64_t len = wire_written(&r->writer);
    if (len <= 0)
        return;
    struct message m = {.type = MESSAGE_ENTRIES_DONE,
                        .entries_done = {.segment = r->segment, .records = blob_of(r->buf, (size_t)len)}};
    mailbox_post(r->agent->mailbox, &m);
    wire_writer_init(&r->writer, r->buf, sizeof r->buf);
}

void records_add(struct records *r, const struct entry *e, enum receipt_outcome outcome,
                 enum receipt_proof proof, const struct digest *digest)
{
    struct receipt_entry entry = {.type = e->type,
                                  .outcome = outcome,
                                  .proof = proof,
                                  .mode = e->mode,
                                  .size = e->size,
                                  .mtime = e->mtime,
                                  .path = blob_of(e->path, e->path_len)};
    if (digest != NULL)
        entry.digest = *digest;
    uint8_t bytes[PATH_BYTES_MAX + 128] NOT_ZEROED;
    int64_t len = receipt_entry_encode(&entry, bytes, sizeof bytes);
    if (len < 0)
        return; // cannot be: the buffer takes the longest path
    struct wire_writer before = r->writer;
    wire_put_blob(&r->writer, bytes, (size_t)len);
    if (!r->writer.full)
        return;
    r->writer = before;
    records_flush(r);
    wire_put_blob(&r->writer, bytes, (size_t)len);
}

void settle_entries(struct dest_agent *d, const struct work *w, uint32_t entries)
{
    uint64_t number = w->number; // once the last is settled, `w` may go
    pthread_mutex_lock(&d->plan_lock);
    bool done = dest_plan_entries_settled(d->plan, number, entries);
    d->open_segments -= done; // the source may send the next one as soon as it hears of this
    if (done)
        dest_side_unlink(w->side); // and files of it once more in the retry segment
    pthread_mutex_unlock(&d->plan_lock);
    if (!done)
        return;
    struct message m = {.type = MESSAGE_SEGMENT_DONE, .segment_done = {.segment = number}};
    mailbox_post(d->agent->mailbox, &m);
}

void settle_stripes(struct dest_agent *d, uint64_t first, uint64_t count)
{
    uint8_t run[16];
    struct wire_writer writer;
    wire_writer_init(&writer, run, sizeof run);
    wire_put_u64(&writer, first);
    wire_put_u64(&writer, count);
    struct message m = {.type = MESSAGE_STRIPES_DONE,
                        .stripes_done = {.settled = 1, .runs = blob_of(run, sizeof run)}};
    mailbox_post(d->agent->mailbox, &m);
}

void settle_failed(struct dest_agent *d, const struct work *w, uint32_t entry, const struct err *err)
{
    const struct dest_side *side = w->side;
    uint64_t first = 0;
    uint64_t count = layout_entry_stripes(w->layout, entry, &first);
    bool large = w->segment->entries[entry].size > PACKED_FILE_BYTES_MAX;
    pthread_mutex_lock(&d->plan_lock);
    bool fresh = dest_plan_entry_fail(d->plan, w->number, entry, first, large ? count : 0);
    pthread_mutex_unlock(&d->plan_lock);
    if (!fresh)
        return;
    if (large && count > 0)
        settle_stripes(d, first, count);
    bool retry = err->class == ERR_CHANGED && !side->retry;
    if (!retry) {
        struct records records;
        records_init(&records, d->agent, w->number);
        records_add(&records, &w->segment->entries[entry],
                    err->class == ERR_CHANGED    ? RECEIPT_CHANGED
                    : err->class == ERR_VANISHED ? RECEIPT_VANISHED
                                                 : RECEIPT_FAILED,
                    PROOF_NONE, NULL);
        records_flush(&records);
    }
    agent_problem(d->agent, w->number, entry, retry ? PROBLEM_RETRY : PROBLEM_RECORDED, err);
    // Not here: what a temporary file takes up is given back in its own time, which no stream has.
    if (!large || !dest_drop_later(d, w, entry))
        settle_entries(d, w, 1);
}

bool dest_is_fatal(int error)
{
    return error == -ENOSPC || error == -EDQUOT || error == -EIO || error == -EROFS || error == -ENOMEM ||
           error == -ESTALE || error == -EMFILE || error == -ENFILE;
}

bool dest_has_failed(struct dest_agent *d)
{
    pthread_mutex_lock(&d->plan_lock);
    bool failed = d->failed;
    pthread_mutex_unlock(&d->plan_lock);
    return failed;
}

// The path as text, or NULL.
static char *path_text(const struct entry *e)
{
    char *text = malloc(e->path_len + 1);
    if (text == NULL)
        return NULL;
    memcpy(text, e->path, e->path_len);
    text[e->path_len] = '\0';
    return text;
}

void dest_stop_storage(struct dest_agent *d, int error, const char *op, const struct entry *e)
{
    pthread_mutex_lock(&d->plan_lock);
    bool first = !d->failed;
    d->failed = true;
    if (first && e != NULL)
        d->full_path = path_text(e); // NULL: the root tells, too
    pthread_cond_signal(&d->written);
    pthread_mutex_unlock(&d->plan_lock);
    if (!first)
        return;
    struct err err;
    err_set(&err, ERR_STORAGE, -error, op, e != NULL ? e->path : NULL, e != NULL ? e->path_len : 0, "%s",
            error == -ENOSPC ? "make room and run the same command again" : "");
    agent_fail(d->agent, &err);
}
