// The source agent of the model: walks in steps, lays segments out as the destination does.
#include <stdio.h>
#include <stdlib.h>

#include <CUnit/CUnit.h>

#include "proto/greet.h"
#include "tests/unit/plan_model.h"

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

void model_source_need(struct model *m, struct model_segment *s)
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

void model_source_message(struct model *m, const struct message *message)
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
        CU_ASSERT_FALSE(source_plan_leased(m->source, message->segment_done.segment));
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
