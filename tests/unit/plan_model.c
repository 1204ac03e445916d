#include "tests/unit/plan_model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <CUnit/CUnit.h>

enum { EVENTS_MAX = 2000000 };

// ---- time ----

static bool before(const struct model_event *a, const struct model_event *b)
{
    return a->at_ns < b->at_ns || (a->at_ns == b->at_ns && a->order < b->order);
}

void model_at(struct model *m, uint64_t delay_ns, void (*run)(struct model *, void *, uint64_t), void *what,
              uint64_t number)
{
    if (m->event_count == m->event_room) {
        m->event_room = m->event_room > 0 ? 2 * m->event_room : 256;
        m->events = realloc(m->events, m->event_room * sizeof *m->events);
        CU_ASSERT_PTR_NOT_NULL_FATAL(m->events);
    }
    uint32_t i = m->event_count++;
    m->events[i] = (struct model_event){
        .at_ns = m->now_ns + delay_ns, .order = m->event_order++, .run = run, .what = what, .number = number};
    for (; i > 0 && before(&m->events[i], &m->events[(i - 1) / 2]); i = (i - 1) / 2) {
        struct model_event e = m->events[i];
        m->events[i] = m->events[(i - 1) / 2];
        m->events[(i - 1) / 2] = e;
    }
}

static struct model_event event_next(struct model *m)
{
    struct model_event first = m->events[0];
    m->events[0] = m->events[--m->event_count];
    for (uint32_t i = 0;;) {
        uint32_t least = i, left = 2 * i + 1, right = left + 1;
        if (left < m->event_count && before(&m->events[left], &m->events[least]))
            least = left;
        if (right < m->event_count && before(&m->events[right], &m->events[least]))
            least = right;
        if (least == i)
            return first;
        struct model_event e = m->events[i];
        m->events[i] = m->events[least];
        m->events[least] = e;
        i = least;
    }
}

bool model_chance(struct model *m, uint32_t of, uint32_t all)
{
    return rnd_below(m->r, all) < of;
}

uint64_t model_delay(struct model *m)
{
    return 1 + rnd_below(m->r, m->delay_ns);
}

// ---- queues ----

static void tick(struct model *m, void *what, uint64_t number);

static void wake_coord(struct model *m)
{
    if (m->ended)
        return;
    uint64_t wake_ns = coord_tick(m->coord, m->now_ns);
    if (wake_ns < m->tick_ns) {
        m->tick_ns = wake_ns;
        model_at(m, wake_ns - m->now_ns, tick, NULL, 0);
    }
}

static void tick(struct model *m, void *what, uint64_t number)
{
    (void)what;
    (void)number;
    m->tick_ns = UINT64_MAX;
    wake_coord(m);
}

static void check_counters(const struct model *m)
{
    struct coord_counters n;
    coord_counters(m->coord, &n);
    CU_ASSERT_FATAL(n.moved + n.skipped + n.changed + n.vanished + n.failed <= n.total);
}

static void deliver(struct model *m, void *what, uint64_t queue)
{
    (void)what;
    struct model_mail *mail = m->queues[queue].first;
    m->queues[queue].first = mail->next;
    if (mail->next == NULL)
        m->queues[queue].end = &m->queues[queue].first;
    if (queue == QUEUE_TO_SOURCE) {
        model_source_message(m, &mail->m);
    } else if (queue == QUEUE_TO_DEST) {
        model_dest_message(m, &mail->m);
    } else if (queue == QUEUE_PEER) {
        model_dest_compare(m, mail->segment);
    } else if (queue == QUEUE_NEED) {
        model_source_need(m, mail->segment);
    } else {
        coord_message(m->coord, queue == QUEUE_FROM_SOURCE ? COORD_SOURCE : COORD_DEST, &mail->m, m->now_ns);
        check_counters(m);
        wake_coord(m);
    }
    free(mail->bytes);
    free(mail);
}

// In order, each after a delay of its own.
void model_post(struct model *m, enum model_queue queue, const struct message *message,
                struct model_segment *segment)
{
    struct model_mail *mail = calloc(1, sizeof *mail);
    CU_ASSERT_PTR_NOT_NULL_FATAL(mail);
    mail->segment = segment;
    if (message != NULL) {
        int64_t len = message_encode(message, m->encoded, sizeof m->encoded);
        CU_ASSERT_FATAL(len > 0);
        mail->bytes = malloc((size_t)len);
        memcpy(mail->bytes, m->encoded, (size_t)len);
        int rc = message_decode((uint16_t)message->type, mail->bytes + MESSAGE_HEAD_BYTES,
                                (size_t)len - MESSAGE_HEAD_BYTES, &mail->m);
        CU_ASSERT_EQUAL_FATAL(rc, 0);
    }
    *m->queues[queue].end = mail;
    m->queues[queue].end = &mail->next;
    uint64_t at_ns = u64_max(m->queues[queue].last_ns, m->now_ns + model_delay(m));
    m->queues[queue].last_ns = at_ns;
    model_at(m, at_ns - m->now_ns, deliver, NULL, queue);
}

// ---- the owner of the coordinator ----

static void on_send(void *arg, unsigned node, const struct message *message)
{
    model_post(arg, node == COORD_SOURCE ? QUEUE_TO_SOURCE : QUEUE_TO_DEST, message, NULL);
}

static void on_resolved(void *arg, const char *root, const struct blob *place)
{
    (void)arg;
    (void)root;
    (void)place;
}

static void on_notice(void *arg, const char *text)
{
    (void)arg;
    (void)text;
}

static void on_problem(void *arg, const struct err *err)
{
    (void)arg;
    bool of_entry = err->class == ERR_CHANGED || err->class == ERR_VANISHED;
    if (!of_entry)
        fprintf(stderr, "  %s: %s\n", err_class_name(err->class), err->text);
    CU_ASSERT_TRUE_FATAL(of_entry);
}

static void on_records(void *arg, const struct blob *records)
{
    struct model *m = arg;
    struct wire_reader r;
    size_t len;
    wire_reader_init(&r, records->bytes, records->len);
    while (wire_left(&r) > 0 && wire_get_blob(&r, records->len, &len) != NULL)
        m->records++;
}

static void on_closed(void *arg, unsigned node, const struct msg_closed *closed)
{
    (void)arg;
    (void)node;
    (void)closed;
}

static void on_ended(void *arg, int exit_status, bool finished)
{
    struct model *m = arg;
    CU_ASSERT_FALSE(m->ended);
    CU_ASSERT_TRUE(finished);
    m->ended = true;
    m->exit_status = exit_status;
}

static void model_init(struct model *m)
{
    for (uint32_t q = 0; q < QUEUES; q++)
        m->queues[q].end = &m->queues[q].first;
    m->now_ns = 1000000000;
    m->tick_ns = UINT64_MAX;
    m->delay_ns = UINT64_C(1000) << rnd_below(m->r, 16);
    m->stream_count = 1 + (uint32_t)rnd_below(m->r, MODEL_STREAMS_MAX);
    m->walk_left = (uint32_t)rnd_below(m->r, m->setup.segments + 1);
    m->end_alone = model_chance(m, 1, 3);
    struct coord_config cfg = {.streams = m->stream_count,
                               .stripe_bytes = (uint32_t)STRIPE_BYTES_MIN << rnd_below(m->r, 5),
                               .host = "",
                               .user = "",
                               .software = "",
                               .names = {"source", "dest"},
                               .dial_host = {"", ""},
                               .may_dial = {true, false}};
    struct coord_sink sink = {.arg = m,
                              .send = on_send,
                              .resolved = on_resolved,
                              .notice = on_notice,
                              .problem = on_problem,
                              .records = on_records,
                              .closed = on_closed,
                              .ended = on_ended};
    m->coord = coord_new(&cfg, &sink);
    m->source = source_plan_new();
    m->dest = dest_plan_new();
    CU_ASSERT_FATAL(m->coord != NULL && m->source != NULL && m->dest != NULL);
}

// Every stripe was durable once, unless its file failed; nothing is left anywhere.
static void check_end(struct model *m)
{
    for (uint32_t i = 0; i < m->segment_count; i++) {
        const struct model_segment *s = m->segments[i];
        for (uint32_t e = 0; e < s->entry_count; e++) {
            const struct model_entry *entry = &s->entries[e];
            CU_ASSERT_TRUE(entry->settled);
            for (uint64_t k = entry->first; k < entry->first + entry->count; k++) {
                CU_ASSERT(s->stripes[k].durable <= 1);
                CU_ASSERT(s->stripes[k].durable == 1 || entry->failed);
            }
        }
    }
    CU_ASSERT(m->open_segments == 0 && m->retry_left == 0 && !m->committing);
    CU_ASSERT_PTR_NULL(dest_plan_group_take(m->dest));
}

static void model_free(struct model *m)
{
    model_net_free(m);
    for (uint32_t i = 0; i < m->segment_count; i++) {
        free(m->segments[i]->stripes);
        free(m->segments[i]);
    }
    for (uint32_t q = 0; q < QUEUES; q++)
        CU_ASSERT(m->queues[q].first == NULL || q == QUEUE_FROM_SOURCE || q == QUEUE_FROM_DEST);
    coord_free(m->coord);
    source_plan_free(m->source);
    dest_plan_free(m->dest);
    free(m->events);
    free(m->completes);
}

int model_run(struct rnd *r, const struct model_setup *setup, struct coord_counters *counters)
{
    struct model *m = calloc(1, sizeof *m);
    CU_ASSERT_PTR_NOT_NULL_FATAL(m);
    m->r = r;
    m->setup = *setup;
    model_init(m);
    coord_start(m->coord, m->now_ns);
    // What is still on its way when the job ends is delivered too: nobody may stumble over it.
    while (m->event_count > 0 && m->events_run++ < EVENTS_MAX) {
        struct model_event e = event_next(m);
        m->now_ns = e.at_ns;
        e.run(m, e.what, e.number);
    }
    CU_ASSERT_TRUE_FATAL(m->ended);
    check_end(m);
    coord_counters(m->coord, counters);
    CU_ASSERT_EQUAL(m->records, counters->total);
    int exit_status = m->exit_status;
    model_free(m);
    free(m);
    return exit_status;
}
