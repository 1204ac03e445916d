// The destination agent of the model: compares at once, writes and commits after a while.
#include <stdio.h>
#include <stdlib.h>

#include <CUnit/CUnit.h>

#include "tests/unit/plan_model.h"

static void post_records(struct model *m, const struct model_segment *s, enum receipt_outcome outcome,
                         uint32_t count)
{
    struct receipt_entry e = {.type = ENTRY_FILE, .outcome = outcome, .path = blob_text("f")};
    uint8_t one[128], list[4 * KIB];
    struct wire_writer w;
    wire_writer_init(&w, list, sizeof list);
    int64_t len = receipt_entry_encode(&e, one, sizeof one);
    for (uint32_t i = 0; i < count; i++)
        wire_put_blob(&w, one, (size_t)len);
    len = wire_written(&w);
    CU_ASSERT_FATAL(len >= 0);
    struct message message = {.type = MESSAGE_ENTRIES_DONE,
                              .entries_done = {.segment = s->number, .records = blob_of(list, (size_t)len)}};
    if (count > 0)
        model_post(m, QUEUE_FROM_DEST, &message, NULL);
}

static void entry_settled(struct model_entry *e)
{
    CU_ASSERT_FALSE(e->settled);
    e->settled = true;
}

static void settle(struct model *m, const struct model_segment *s, uint32_t entries)
{
    struct message message = {.type = MESSAGE_SEGMENT_DONE, .segment_done = {.segment = s->number}};
    if (dest_plan_entries_settled(m->dest, s->number, entries))
        model_post(m, QUEUE_FROM_DEST, &message, NULL);
}

void model_dest_compare(struct model *m, struct model_segment *s)
{
    uint64_t stripes[MODEL_ENTRIES_MAX];
    uint32_t open = 0;
    for (uint32_t i = 0; i < s->entry_count; i++) {
        stripes[i] = s->entries[i].needed ? s->entries[i].count : 0;
        open += s->entries[i].needed;
        if (!s->entries[i].needed)
            entry_settled(&s->entries[i]);
    }
    CU_ASSERT_EQUAL_FATAL(dest_plan_segment(m->dest, s->number, s->entry_count, stripes, open), 0);
    model_post(m, QUEUE_NEED, NULL, s);
    post_records(m, s, RECEIPT_SKIPPED, s->entry_count - open);
    struct message message = {.type = MESSAGE_SEGMENT_COMPARED,
                              .segment_compared = {.segment = s->number,
                                                   .stripes = s->stripe_count,
                                                   .bytes = s->stripe_count,
                                                   .layout = {{(uint8_t)s->number}}}};
    model_post(m, QUEUE_FROM_DEST, &message, NULL);
}

static void post_runs(struct model *m, bool settled, const struct range *runs, uint32_t count)
{
    uint8_t list[32 * KIB];
    struct wire_writer w;
    wire_writer_init(&w, list, sizeof list);
    for (uint32_t i = 0; i < count; i++) {
        wire_put_u64(&w, runs[i].offset);
        wire_put_u64(&w, runs[i].len);
    }
    int64_t len = wire_written(&w);
    CU_ASSERT_FATAL(len >= 0);
    struct message message = {.type = MESSAGE_STRIPES_DONE,
                              .stripes_done = {.settled = settled,
                                               .bytes = settled ? 0 : count,
                                               .runs = blob_of(list, (size_t)len)}};
    model_post(m, QUEUE_FROM_DEST, &message, NULL);
}

// The file is bad at the source: tried again once, unless it is gone.
static void entry_fails(struct model *m, struct model_segment *s, uint32_t i)
{
    struct model_entry *e = &s->entries[i];
    uint64_t count = e->packed ? 0 : e->count;
    if (!dest_plan_entry_fail(m->dest, s->number, i, s->first + e->first, count))
        return;
    e->failed = true;
    if (count > 0)
        post_runs(m, true, &(struct range){.offset = s->first + e->first, .len = count}, 1);
    bool retry = !e->vanishes && !s->retry;
    if (!retry)
        post_records(m, s, e->vanishes ? RECEIPT_VANISHED : RECEIPT_CHANGED, 1);
    struct message message = {.type = MESSAGE_PROBLEM,
                              .problem = {.segment = s->number,
                                          .entry = i,
                                          .count = retry ? PROBLEM_RETRY : PROBLEM_RECORDED,
                                          .class = e->vanishes ? ERR_VANISHED : ERR_CHANGED}};
    model_post(m, QUEUE_FROM_DEST, &message, NULL);
    entry_settled(e);
    settle(m, s, 1);
}

// ---- writing ----

struct writing {
    struct model_conn *conn;
    struct model_frame frame;
};

static struct model_stripe *stripe_of(struct model_segment *s, uint64_t stripe)
{
    CU_ASSERT_FATAL(s->placed && stripe >= s->first && stripe - s->first < s->stripe_count);
    return &s->stripes[stripe - s->first];
}

static void written(struct model *m, void *what, uint64_t number)
{
    (void)number;
    struct writing *w = what;
    struct model_segment *s = w->frame.segment;
    struct model_stripe *stripe = stripe_of(s, w->frame.stripe);
    bool packed = s->entries[stripe->entry].packed;
    if (w->frame.bad && !packed)
        dest_plan_lost(m->dest, w->frame.stripe);
    for (uint32_t i = stripe->entry; i < s->entry_count; i++) {
        struct model_entry *e = &s->entries[i];
        bool here = e->needed && e->packed == packed && e->first <= w->frame.stripe - s->first &&
                    w->frame.stripe - s->first < e->first + e->count;
        if (here && (packed ? e->bad : w->frame.bad))
            entry_fails(m, s, i);
    }
    stripe->written =
        (struct dest_written){.segment = s->number, .stripe = w->frame.stripe, .bytes = STRIPE_BYTES_DEFAULT};
    if (!w->frame.bad || packed)
        (void)dest_plan_written(m->dest, &stripe->written, m->now_ns); // dropped when settled meanwhile
    w->conn->writing--;
    model_dest_group(m);
    model_conn_settle(m, w->conn);
    free(w);
}

void model_dest_frame(struct model *m, struct model_conn *conn, const struct model_frame *f)
{
    struct model_stripe *stripe = stripe_of(f->segment, f->stripe);
    if (stripe->damaged + 1 < DAMAGED_MAX && model_chance(m, m->setup.damage, 1000)) {
        stripe->damaged++;
        CU_ASSERT_FALSE(dest_plan_damaged(m->dest, f->stripe));
        struct message message = {.type = MESSAGE_STRIPE_BAD, .stripe_bad = {.stripe = f->stripe}};
        model_post(m, QUEUE_FROM_DEST, &message, NULL);
        model_dest_group(m);
        return;
    }
    struct writing *w = malloc(sizeof *w);
    CU_ASSERT_PTR_NOT_NULL_FATAL(w);
    *w = (struct writing){.conn = conn, .frame = *f};
    conn->writing++;
    model_at(m, model_delay(m), written, w, 0);
}

// ---- commit ----

static bool *complete_at(struct model *m, uint32_t index)
{
    return &m->completes[index];
}

static void tell_stripe(struct model *m, const struct dest_written *w, bool complete)
{
    struct model_segment *s = model_segment_at(m, w->segment);
    const struct model_stripe *stripe = stripe_of(s, w->stripe);
    struct model_entry *e = &s->entries[stripe->entry];
    if (!e->packed) {
        if (!complete || e->failed)
            return;
        post_records(m, s, RECEIPT_MOVED, 1);
        entry_settled(e);
        settle(m, s, 1);
        return;
    }
    uint32_t moved = 0;
    for (uint32_t i = stripe->entry; i < s->entry_count; i++) {
        e = &s->entries[i];
        if (!e->needed || !e->packed || e->first != w->stripe - s->first || e->failed)
            continue;
        entry_settled(e);
        moved++;
    }
    post_records(m, s, RECEIPT_MOVED, moved);
    settle(m, s, moved); // which may be none
}

static void committed(struct model *m, void *what, uint64_t number)
{
    (void)what;
    (void)number;
    struct range runs[1024];
    uint32_t count = 0, index = 0;
    dest_plan_group_durable(m->dest, m->group);
    for (const struct dest_written *w = m->group; w != NULL; w = w->next) {
        stripe_of(model_segment_at(m, w->segment), w->stripe)->durable++;
        runs[count++] = (struct range){.offset = w->stripe, .len = 1};
        if (count == ARRAY_LEN(runs) || w->next == NULL) {
            post_runs(m, false, runs, count);
            count = 0;
        }
    }
    for (const struct dest_written *w = m->group; w != NULL; w = w->next)
        tell_stripe(m, w, *complete_at(m, index++));
    m->committing = false;
    model_dest_group(m);
}

// Who is in the group, and which files it completes.
static void gather(struct model *m)
{
    uint32_t count = 0;
    for (const struct dest_written *w = m->group; w != NULL; w = w->next)
        count++;
    free(m->completes);
    m->completes = calloc(count, sizeof *m->completes);
    CU_ASSERT_PTR_NOT_NULL_FATAL(m->completes);
    count = 0;
    for (const struct dest_written *w = m->group; w != NULL; w = w->next, count++) {
        struct model_segment *s = model_segment_at(m, w->segment);
        const struct model_stripe *stripe = stripe_of(s, w->stripe);
        uint32_t last = stripe->entry + 1;
        if (s->entries[stripe->entry].packed)
            last = s->entry_count;
        for (uint32_t i = stripe->entry; i < last; i++) {
            const struct model_entry *e = &s->entries[i];
            bool here = !e->packed || (e->needed && e->first == w->stripe - s->first && !e->failed);
            if (here && (i == stripe->entry || e->packed))
                m->completes[count] = dest_plan_entry_commit(m->dest, w->segment, i);
        }
    }
}

static void group_check(struct model *m, void *what, uint64_t number)
{
    (void)what;
    (void)number;
    model_dest_group(m);
}

void model_dest_group(struct model *m)
{
    uint64_t due_ns = m->committing ? UINT64_MAX : dest_plan_group_due_ns(m->dest, m->now_ns);
    if (due_ns == UINT64_MAX)
        return;
    if (due_ns > 0) {
        model_at(m, due_ns, group_check, NULL, 0);
        return;
    }
    m->group = dest_plan_group_take(m->dest);
    CU_ASSERT_PTR_NOT_NULL_FATAL(m->group);
    m->committing = true;
    m->groups++;
    gather(m);
    model_at(m, model_delay(m) * (1 + rnd_below(m->r, 8)), committed, NULL, 0);
}

// ---- messages ----

static void place(struct model *m, const struct msg_segment_place *p)
{
    struct model_segment *s = model_segment_at(m, p->segment);
    CU_ASSERT_FALSE(s->placed);
    s->placed = true;
    s->first = p->first;
    dest_plan_placed(m->dest, p->first + s->stripe_count);
    settle(m, s, 0);
}

void model_dest_message(struct model *m, const struct message *message)
{
    static const struct message opened = {.type = MESSAGE_DEST_OPENED};
    static const struct message finished = {.type = MESSAGE_FINISHED};
    static const struct message closed = {.type = MESSAGE_CLOSED};
    const struct msg_lease *lease = &message->lease;
    switch (message->type) {
    case MESSAGE_HELLO: // both are answered where the source's is
    case MESSAGE_LINK:
        break;
    case MESSAGE_OPEN:
        model_post(m, QUEUE_FROM_DEST, &opened, NULL);
        break;
    case MESSAGE_SEGMENT_PLACE:
        place(m, &message->segment_place);
        break;
    case MESSAGE_LEASE:
        CU_ASSERT_EQUAL_FATAL(
            dest_plan_lease(m->dest, lease->lease, lease->segment, lease->first, lease->count), 0);
        model_post(m, QUEUE_FROM_DEST, message, NULL);
        break;
    case MESSAGE_LEASE_DONE:
        CU_ASSERT_EQUAL_FATAL(dest_plan_lease_done(m->dest, message->lease_done.lease), 0);
        break;
    case MESSAGE_SEGMENT_DONE:
        CU_ASSERT_TRUE(dest_plan_segment_over(m->dest, message->segment_done.segment));
        dest_plan_segment_forget(m->dest, message->segment_done.segment);
        break;
    case MESSAGE_FINISH:
        model_post(m, QUEUE_FROM_DEST, &finished, NULL);
        break;
    case MESSAGE_CLOSE:
        model_post(m, QUEUE_FROM_DEST, &closed, NULL);
        break;
    default:
        fprintf(stderr, "  %s to the destination\n", message_name(message->type));
        CU_FAIL_FATAL("the destination agent would not understand");
    }
}
