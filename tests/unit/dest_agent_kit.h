// What the tests of the destination agent share: one of which nothing runs, but whose machine, mailbox,
// journal and destination root stand.
#ifndef PENSTOCK_TESTS_UNIT_DEST_AGENT_KIT_H
#define PENSTOCK_TESTS_UNIT_DEST_AGENT_KIT_H

#include "mover/dest_agent.h"
#include "tests/unit/dest_kit.h"
#include "tests/unit/journal_kit.h"

struct kit {
    struct scratch scratch; // the destination root
    struct agent agent;
    struct dest_agent *d;
    struct work work;
    struct dest_side side;
    struct mail *mail; // taken from the mailbox
    struct message message;
};

enum { KIT_FIRST = 100 }; // stripe of the segment

// The journal as the next run finds it.
static inline void kit_journal_again(struct kit *k)
{
    struct job_id job = {0};
    bool damaged;
    journal_close(k->d->journal);
    CU_ASSERT_EQUAL_FATAL(journal_open(k->d->dest.state_fd, &job, &k->d->journal, &damaged), 0);
    CU_ASSERT_FALSE(damaged);
}

// With segment 4 of these entries, of which `open` are not settled; stripes of a MiB.
static inline void kit_begin_with(struct kit *k, const struct entry *entries, uint32_t count, uint32_t open)
{
    uint64_t stripes[16], first;
    memset(k, 0, sizeof *k);
    k->scratch = scratch_begin();
    k->d = calloc(1, sizeof *k->d);
    CU_ASSERT_FATAL(k->d != NULL && count <= ARRAY_LEN(stripes));
    k->agent.mailbox = mailbox_new();
    k->d->agent = &k->agent;
    k->d->plan = dest_plan_new();
    CU_ASSERT_FATAL(k->agent.mailbox != NULL && k->d->plan != NULL);
    pthread_mutex_init(&k->d->plan_lock, NULL);
    pthread_mutex_init(&k->d->files_lock, NULL);
    pthread_mutex_init(&k->d->journal_lock, NULL);
    pthread_cond_init(&k->d->written, NULL);
    CU_ASSERT_EQUAL_FATAL(kit_try(k->scratch.fd, &k->d->dest), 0);
    kit_journal_again(k);
    struct segment *s = tree_segment(4, entries, count);
    struct need *n = tree_need_all(s);
    k->side.entries = calloc(count, sizeof *k->side.entries);
    k->side.count = count;
    k->work = (struct work){
        .number = 4, .segment = s, .need = n, .layout = tree_layout(s, n, MIB), .side = &k->side};
    CU_ASSERT_EQUAL_FATAL(layout_place(k->work.layout, KIT_FIRST), 0);
    for (uint32_t i = 0; i < count; i++)
        stripes[i] = layout_entry_stripes(k->work.layout, i, &first);
    CU_ASSERT_EQUAL_FATAL(dest_plan_segment(k->d->plan, 4, count, stripes, open), 0);
}

static inline void kit_end(struct kit *k)
{
    for (uint32_t i = 0; i < k->side.count; i++)
        dest_entry_close(&k->side.entries[i]);
    free(k->mail);
    free(k->side.entries);
    dest_drops_free(k->d->drops);
    layout_free(k->work.layout);
    need_free(k->work.need);
    segment_free(k->work.segment);
    dest_plan_free(k->d->plan);
    free(k->d->full_path);
    journal_close(k->d->journal);
    CU_ASSERT_EQUAL(dest_close(&k->d->dest, true), 0);
    CU_ASSERT_FALSE(kit_there(k->scratch.fd, ".penstock"));
    pthread_mutex_destroy(&k->d->plan_lock);
    pthread_mutex_destroy(&k->d->files_lock);
    pthread_mutex_destroy(&k->d->journal_lock);
    pthread_cond_destroy(&k->d->written);
    mailbox_free(k->agent.mailbox);
    free(k->d);
    scratch_end(&k->scratch);
}

// What the commit thread does about files that failed.
static inline void kit_run_drops(struct kit *k)
{
    struct dest_drop *drops = k->d->drops;
    k->d->drops = NULL;
    dest_drops_run(k->d, drops);
}

// The next word to the coordinator; blobs hold until the next call. NULL: there is none.
static inline const struct message *kit_word(struct kit *k)
{
    struct mail *first = k->mail != NULL ? k->mail->next : NULL;
    free(k->mail);
    k->mail = first != NULL ? first : mailbox_take(k->agent.mailbox);
    if (k->mail == NULL)
        return NULL;
    uint32_t len;
    uint16_t type;
    CU_ASSERT_EQUAL_FATAL(message_head(k->mail->bytes, MESSAGE_BYTES_MAX, &len, &type), 0);
    CU_ASSERT_EQUAL_FATAL(message_decode(type, k->mail->bytes + MESSAGE_HEAD_BYTES, len, &k->message), 0);
    return &k->message;
}

static inline const struct message *kit_expect(struct kit *k, enum message_type type)
{
    const struct message *m = kit_word(k);
    CU_ASSERT_PTR_NOT_NULL_FATAL(m);
    CU_ASSERT_EQUAL_FATAL(m->type, type);
    return m;
}

#endif
