#include "tests/unit/plan_model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <CUnit/CUnit.h>

#include "proto/greet.h"

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
    m->events[i] = (struct model_event){.at_ns = m->now_ns + delay_ns,
                                        .order = m->event_order++,
                                        .run = run,
                                        .what = what,
                                        .number = number};
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

static void source_message(struct model *m, const struct message *message);
static void source_need(struct model *m, struct model_segment *s);
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
        source_message(m, &mail->m);
    } else if (queue == QUEUE_TO_DEST) {
        model_dest_message(m, &mail->m);
    } else if (queue == QUEUE_PEER) {
        model_dest_compare(m, mail->segment);
    } else if (queue == QUEUE_NEED) {
        source_need(m, mail->segment);
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
        static uint8_t buf[MESSAGE_HEAD_BYTES + MESSAGE_BYTES_MAX];
        int64_t len = message_encode(message, buf, sizeof buf);
        CU_ASSERT_FATAL(len > 0);
        mail->bytes = malloc((size_t)len);
        memcpy(mail->bytes, buf, (size_t)len);
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

// ---- the source agent ----

struct model_segment *model_segment_at(struct model *m, uint64_t number)
{
    CU_ASSERT_FATAL(number < m->segment_count);
    return m->segments[number];
}

static void entry_at_random(struct model *m, struct model_segment *s, struct model_entry *e, bool retry)
{
    uint64_t kind = rnd_below(m->r, 4);
    e->needed = retry || kind > 0;
    e->packed = kind == 1;
    e->vanishes = model_chance(m, 1, 2);
    if (!e->needed || e->packed)
        return;
    e->first = s->stripe_count;
    e->count = 1 + rnd_below(m->r, m->setup.stripes);
    s->stripe_count += e->count;
}

// Large files first, then the packed ones, up to three in a stripe.
static void lay_out(struct model_segment *s)
{
    uint32_t in_stripe = 0;
    for (uint32_t i = 0; i < s->entry_count; i++) {
        struct model_entry *e = &s->entries[i];
        if (!e->needed || !e->packed)
            continue;
        s->stripe_count += in_stripe == 0;
        e->first = s->stripe_count - 1;
        e->count = 1;
        in_stripe = (in_stripe + 1) % 3;
    }
    s->stripes = calloc(s->stripe_count + 1, sizeof *s->stripes);
    CU_ASSERT_PTR_NOT_NULL_FATAL(s->stripes);
    for (uint32_t i = 0; i < s->entry_count; i++) {
        struct model_entry *e = &s->entries[i];
        for (uint64_t k = e->first; e->needed && k < e->first + e->count; k++) {
            if (s->stripes[k].entries++ == 0)
                s->stripes[k].entry = i;
        }
    }
}

static void say_closed(struct model *m, uint64_t number, uint32_t entries, bool last, bool retry)
{
    struct message message = {.type = MESSAGE_SEGMENT_CLOSED,
                              .segment_closed = {.segment = number,
                                                 .last = last,
                                                 .retry = retry,
                                                 .entries = entries,
                                                 .files = entries,
                                                 .bytes = entries}};
    model_post(m, QUEUE_FROM_SOURCE, &message, NULL);
}

static void segment_close(struct model *m, uint32_t entries, bool last, bool retry)
{
    CU_ASSERT_FATAL(m->segment_count < MODEL_SEGMENTS_MAX);
    struct model_segment *s = calloc(1, sizeof *s);
    CU_ASSERT_PTR_NOT_NULL_FATAL(s);
    s->number = m->segment_count;
    s->last = last;
    s->retry = retry;
    s->entry_count = entries;
    for (uint32_t i = 0; i < entries; i++)
        entry_at_random(m, s, &s->entries[i], retry);
    lay_out(s);
    m->segments[m->segment_count++] = s;
    m->open_segments++;
    model_post(m, QUEUE_PEER, NULL, s);
    say_closed(m, s->number, entries, last, retry);
}

// The walk, or the retry, goes on while segments are few; in a step of its own each time.
static void walk(struct model *m, void *what, uint64_t number)
{
    (void)what;
    (void)number;
    if (m->closing || m->open_segments >= SEGMENTS_OPEN_MAX)
        return;
    if (m->walking) {
        bool last = m->walk_left <= 1 && !(m->end_alone && m->walk_left == 1);
        if (m->walk_left > 0)
            segment_close(m, 1 + (uint32_t)rnd_below(m->r, MODEL_ENTRIES_MAX), last, false);
        else
            say_closed(m, m->segment_count, 0, true, false);
        m->walk_left -= m->walk_left > 0;
        m->walking = !last;
    } else if (m->retrying) {
        uint32_t count = (uint32_t)u64_min(m->retry_left, 1 + rnd_below(m->r, 3));
        m->retry_left -= count;
        if (count > 0)
            segment_close(m, count, m->retry_left == 0, true);
        else
            say_closed(m, m->segment_count, 0, true, true);
        m->retrying = m->retry_left > 0;
    }
    if (m->walking || m->retrying)
        model_at(m, model_delay(m), walk, NULL, 0);
}

static void source_need(struct model *m, struct model_segment *s)
{
    struct message message = {.type = MESSAGE_SEGMENT_LAID,
                              .segment_laid = {.segment = s->number,
                                               .stripes = s->stripe_count,
                                               .bytes = s->stripe_count,
                                               .layout = {{(uint8_t)s->number}}}};
    model_post(m, QUEUE_FROM_SOURCE, &message, NULL);
}

static void source_settle(struct model *m, const struct blob *runs)
{
    struct wire_reader r;
    wire_reader_init(&r, runs->bytes, runs->len);
    while (wire_left(&r) > 0) {
        uint64_t first = wire_get_u64(&r), count = wire_get_u64(&r);
        source_plan_settle(m->source, first, count);
    }
    CU_ASSERT_EQUAL(wire_done(&r), 0);
}

static void source_closed(struct model *m)
{
    m->closing = true;
    CU_ASSERT_EQUAL(source_plan_free_count(m->source), 0);
    struct message message = {.type = MESSAGE_CLOSED};
    model_post(m, QUEUE_FROM_SOURCE, &message, NULL);
}

static void source_plan_message(struct model *m, const struct message *message)
{
    const struct msg_stream_ended *ended = &message->stream_ended;
    const struct msg_lease *lease = &message->lease;
    switch (message->type) {
    case MESSAGE_LEASE:
        CU_ASSERT_EQUAL_FATAL(
            source_plan_lease(m->source, lease->lease, lease->segment, lease->first, lease->count), 0);
        break;
    case MESSAGE_LEASE_DONE:
        CU_ASSERT_EQUAL_FATAL(source_plan_lease_done(m->source, message->lease_done.lease), 0);
        break;
    case MESSAGE_STRIPES_DONE:
        source_settle(m, &message->stripes_done.runs);
        break;
    case MESSAGE_STRIPE_BAD:
        m->resent += source_plan_bad(m->source, message->stripe_bad.stripe);
        break;
    case MESSAGE_STREAM_ENDED:
        m->resent += source_plan_stream_ended(m->source, ended->stream, ended->attempt, ended->frames);
        break;
    default:
        fprintf(stderr, "  %s to the source\n", message_name(message->type));
        CU_FAIL_FATAL("the source agent would not understand");
    }
    model_pump_all(m);
}

static void source_hello(struct model *m, enum model_queue queue)
{
    struct message message = {.type = MESSAGE_HELLO,
                              .hello = {.version = WIRE_VERSION,
                                        .version_min = WIRE_VERSION_MIN,
                                        .features = FEATURES_HAVE,
                                        .required = FEATURES_REQUIRED}};
    model_post(m, queue, &message, NULL);
}

static void source_message(struct model *m, const struct message *message)
{
    static const struct message opened = {.type = MESSAGE_SOURCE_OPENED};
    static const struct message linked = {.type = MESSAGE_LINKED, .linked = {.kind = GREET_PEER}};
    switch (message->type) {
    case MESSAGE_HELLO:
        source_hello(m, QUEUE_FROM_SOURCE);
        source_hello(m, QUEUE_FROM_DEST); // both are alike
        break;
    case MESSAGE_OPEN:
        model_post(m, QUEUE_FROM_SOURCE, &opened, NULL);
        break;
    case MESSAGE_LINK:
        model_post(m, QUEUE_FROM_SOURCE, &linked, NULL);
        model_post(m, QUEUE_FROM_DEST, &linked, NULL);
        model_dial_all(m);
        break;
    case MESSAGE_REDIAL:
        model_redial(m, message->redial.stream, message->redial.attempt);
        break;
    case MESSAGE_WALK:
        m->walking = true;
        walk(m, NULL, 0);
        break;
    case MESSAGE_SEGMENT_PLACE:
        CU_ASSERT_EQUAL(model_segment_at(m, message->segment_place.segment)->retry, m->retry_total > 0);
        break;
    case MESSAGE_SEGMENT_DONE:
        m->open_segments--;
        model_at(m, model_delay(m), walk, NULL, 0);
        break;
    case MESSAGE_PROBLEM:
        m->retry_left++;
        break;
    case MESSAGE_RETRY:
        m->retry_total = m->retry_left;
        m->retrying = true;
        walk(m, NULL, 0);
        break;
    case MESSAGE_CLOSE:
        source_closed(m);
        break;
    default:
        source_plan_message(m, message);
    }
}

// ---- the owner of the coordinator ----

static void on_send(void *arg, unsigned node, const struct message *message)
{
    model_post(arg, node == COORD_SOURCE ? QUEUE_TO_SOURCE : QUEUE_TO_DEST, message, NULL);
}

static void on_resolved(void *arg, const char *root)
{
    (void)arg;
    (void)root;
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

static void on_ended(void *arg, int exit_status)
{
    struct model *m = arg;
    CU_ASSERT_FALSE(m->ended);
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
                               .stripe_bytes = STRIPE_BYTES_MIN << rnd_below(m->r, 5),
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
    CU_ASSERT_EQUAL(source_plan_free_count(m->source), 0);
    CU_ASSERT_EQUAL(dest_plan_arriving(m->dest), 0);
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
    CU_ASSERT_EQUAL(m->records + (counters->total - m->records), counters->total);
    int exit_status = m->exit_status;
    model_free(m);
    free(m);
    return exit_status;
}
