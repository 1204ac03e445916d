// The pool: segments as they are compared, stripes as they are leased and done. A stripe is leased once and
// done once; what is lost on the way goes back to the source's own pool (plan/source.h) and stays leased
// here.
#include "mover/plan/coord_state.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static struct coord_segment *segment_find(struct coord *c, uint64_t number)
{
    struct coord_segment *s = c->segments;
    while (s != NULL && s->number != number)
        s = s->after;
    return s;
}

static uint32_t segment_count(const struct coord *c)
{
    uint32_t count = 0;
    for (const struct coord_segment *s = c->segments; s != NULL; s = s->after)
        count++;
    return count;
}

bool pool_empty(const struct coord *c)
{
    return c->segments == NULL;
}

bool pool_compared(const struct coord *c)
{
    const struct coord_segment *s = c->segments;
    while (s != NULL && s->placed)
        s = s->after;
    return s == NULL;
}

static void segment_free(struct coord_segment *s)
{
    while (s->settled != NULL) {
        struct coord_run *run = s->settled;
        s->settled = run->next;
        free(run);
    }
    free(s);
}

void pool_free(struct coord *c)
{
    while (c->segments != NULL) {
        struct coord_segment *s = c->segments;
        c->segments = s->after;
        segment_free(s);
    }
    while (c->leases != NULL) {
        struct coord_lease *l = c->leases;
        c->leases = l->after;
        free(l);
    }
}

struct coord_segment *pool_segment(struct coord *c, unsigned node, uint64_t number, uint64_t now_ns)
{
    struct coord_segment *s = segment_find(c, number);
    if (s != NULL)
        return s;
    // Of those that are under way one may be heard of before the source has told that it is closed.
    if (number < c->next_segment || number - c->next_segment >= SEGMENTS_OPEN_MAX ||
        segment_count(c) >= SEGMENTS_OPEN_MAX) {
        coord_stop_words(c, ERR_PROTOCOL, node, now_ns, "segment %llu is out of order",
                         (unsigned long long)number);
        return NULL;
    }
    s = calloc(1, sizeof *s);
    if (s == NULL) {
        coord_stop_words(c, ERR_LOST, COORD_NODES, now_ns, "out of memory");
        return NULL;
    }
    s->number = number;
    s->told_ns = now_ns;
    struct coord_segment **at = &c->segments;
    while (*at != NULL)
        at = &(*at)->after;
    *at = s;
    return s;
}

static void segment_place(struct coord *c, struct coord_segment *s, uint64_t now_ns);

void pool_segment_closed(struct coord *c, const struct msg_segment_closed *m, uint64_t now_ns)
{
    struct coord_segment *s = pool_segment(c, COORD_SOURCE, m->segment, now_ns);
    if (s == NULL)
        return;
    if (s->closed || m->segment != c->next_segment) {
        coord_stop_words(c, ERR_PROTOCOL, COORD_SOURCE, now_ns,
                         "segment %llu is closed twice or out of order", (unsigned long long)m->segment);
        return;
    }
    if (m->entries < s->recorded + s->left || (m->retry != 0 && m->entries > c->retries)) {
        coord_stop_words(c, ERR_PROTOCOL, m->retry != 0 ? COORD_SOURCE : COORD_DEST, now_ns,
                         "segment %llu has fewer entries than were settled", (unsigned long long)m->segment);
        return;
    }
    s->closed = true;
    s->retry = m->retry != 0;
    s->entries = m->entries;
    c->next_segment++;
    if (s->retry) {
        c->retries -= m->entries;
    } else {
        c->counters.total += m->entries;
        c->counters.files_total += m->files;
        c->counters.bytes_total += m->bytes;
    }
    c->counters.walked = c->counters.walked || m->last != 0;
    segment_place(c, s, now_ns);
}

// Once all have spoken.
static void segment_place(struct coord *c, struct coord_segment *s, uint64_t now_ns)
{
    if (!s->closed || !s->compared || !s->laid)
        return;
    s->placed = true;
    s->first = s->next = c->next_stripe;
    if (__builtin_add_overflow(c->next_stripe, s->stripes, &c->next_stripe)) {
        coord_stop_words(c, ERR_PROTOCOL, COORD_DEST, now_ns, "more stripes than there are numbers");
        return;
    }
    c->counters.bytes_needed += s->bytes;
    struct message m = {.type = MESSAGE_SEGMENT_PLACE,
                        .segment_place = {.segment = s->number, .first = s->first}};
    coord_send(c, COORD_SOURCE, &m);
    coord_send(c, COORD_DEST, &m);
    pool_lease_more(c, now_ns);
}

void pool_layout(struct coord *c, bool compared, uint64_t segment, uint64_t stripes, uint64_t bytes,
                 const struct digest *layout, uint64_t now_ns)
{
    unsigned node = compared ? COORD_DEST : COORD_SOURCE;
    struct coord_segment *s = pool_segment(c, node, segment, now_ns);
    if (s == NULL)
        return;
    if (compared ? s->compared : s->laid) {
        coord_stop_words(c, ERR_PROTOCOL, node, now_ns, "a second layout of segment %llu",
                         (unsigned long long)segment);
        return;
    }
    bool first_word = !s->compared && !s->laid;
    if (compared)
        s->compared = true;
    else
        s->laid = true;
    s->told_ns = now_ns;
    if (first_word) {
        s->stripes = stripes;
        s->bytes = bytes;
        s->layout = *layout;
        return;
    }
    if (s->stripes != stripes || s->bytes != bytes || !digest_equal(&s->layout, layout)) {
        coord_stop_words(c, ERR_PROTOCOL, COORD_NODES, now_ns,
                         "source and destination laid out segment %llu differently",
                         (unsigned long long)segment);
        return;
    }
    segment_place(c, s, now_ns);
}

// Runs of a segment that were settled before they were leased, in the way of a lease at `first`: cuts *count
// before the next one, or returns how many stripes to pass over.
static uint64_t settled_ahead(const struct coord_segment *s, uint64_t first, uint64_t *count)
{
    for (const struct coord_run *run = s->settled; run != NULL; run = run->next) {
        if (first >= run->first && first - run->first < run->count)
            return run->count - (first - run->first);
        if (run->first > first)
            *count = u64_min(*count, run->first - first);
    }
    return 0;
}

static struct message lease_words(const struct coord_lease *l)
{
    return (struct message){.type = MESSAGE_LEASE,
                            .lease = {.lease = l->id,
                                      .epoch = 1,
                                      .segment = l->segment,
                                      .first = l->first,
                                      .count = l->count,
                                      .wait_ms = UINT32_MAX}};
}

static bool words_equal(const struct msg_lease *a, const struct msg_lease *b)
{
    return a->lease == b->lease && a->epoch == b->epoch && a->session == b->session &&
           a->segment == b->segment && a->first == b->first && a->count == b->count &&
           a->wait_ms == b->wait_ms;
}

static bool lease_make(struct coord *c, struct coord_segment *s, uint64_t count, uint64_t now_ns)
{
    struct coord_lease *l = calloc(1, sizeof *l);
    if (l == NULL) {
        coord_stop_words(c, ERR_LOST, COORD_NODES, now_ns, "out of memory");
        return false;
    }
    *l = (struct coord_lease){.id = c->next_lease++,
                              .segment = s->number,
                              .first = s->next,
                              .given_ns = now_ns,
                              .count = (uint32_t)count,
                              .left = (uint32_t)count};
    struct coord_lease **at = &c->leases;
    while (*at != NULL)
        at = &(*at)->after;
    *at = l;
    s->next += count;
    c->leased_stripes += count;
    struct message m = lease_words(l);
    // The destination first: a frame must not come before the lease that allows it. It answers with the same
    // words.
    coord_send(c, COORD_DEST, &m);
    return true;
}

// What of a lease was settled before the source knew of it: never to be sent.
static void tell_settled(struct coord *c, const struct coord_lease *l)
{
    uint8_t runs[(LEASE_STRIPES_MAX / 2 + 1) * 16];
    struct wire_writer w;
    wire_writer_init(&w, runs, sizeof runs);
    for (uint32_t i = 0; i < l->count;) {
        uint32_t n = 0;
        while (i + n < l->count && l->done[i + n])
            n++;
        if (n > 0) {
            wire_put_u64(&w, l->first + i);
            wire_put_u64(&w, n);
        }
        i += n + (n == 0);
    }
    struct message m = {.type = MESSAGE_STRIPES_DONE,
                        .stripes_done = {.settled = 1, .runs = blob_of(runs, (size_t)(w.at - w.start))}};
    if (w.at > w.start)
        coord_send(c, COORD_SOURCE, &m);
}

void pool_leased(struct coord *c, const struct msg_lease *m, uint64_t now_ns)
{
    struct coord_lease *l = c->leases;
    while (l != NULL && l->id != m->lease)
        l = l->after;
    struct message words = {.type = MESSAGE_LEASE};
    if (l != NULL)
        words = lease_words(l);
    if (m->lease >= c->next_lease || (l != NULL && (l->with_source || !words_equal(&words.lease, m)))) {
        coord_stop_words(c, ERR_PROTOCOL, COORD_DEST, now_ns, "an answer to a lease that was not given");
        return;
    }
    if (l == NULL) // all of it was settled before the answer came
        return;
    l->with_source = true;
    coord_send(c, COORD_SOURCE, &words);
    tell_settled(c, l);
}

void pool_lease_more(struct coord *c, uint64_t now_ns)
{
    uint64_t stripe = c->cfg.stripe_bytes;
    uint64_t room = LEASED_BYTES_MAX / stripe;
    uint64_t unit = u64_min(LEASE_BYTES / stripe, LEASE_STRIPES_MAX);
    for (struct coord_segment *s = c->segments; s != NULL; s = s->after) {
        while (s->placed && s->next < s->first + s->stripes && c->leased_stripes < room) {
            uint64_t count = u64_min(unit, s->first + s->stripes - s->next);
            uint64_t pass = settled_ahead(s, s->next, &count);
            if (pass > 0)
                s->next += u64_min(pass, s->first + s->stripes - s->next);
            else if (!lease_make(c, s, count, now_ns))
                return;
        }
    }
}

static void lease_done(struct coord *c, struct coord_lease **at)
{
    struct coord_lease *l = *at;
    *at = l->after;
    c->leased_stripes -= l->count;
    struct message m = {.type = MESSAGE_LEASE_DONE, .lease_done = {.lease = l->id}};
    if (l->with_source)
        coord_send(c, COORD_SOURCE, &m);
    coord_send(c, COORD_DEST, &m);
    free(l);
}

// Marks what of the run is leased.
static void leases_mark(struct coord *c, uint64_t first, uint64_t count)
{
    struct coord_lease **at = &c->leases;
    while (*at != NULL) {
        struct coord_lease *l = *at;
        uint64_t from = u64_max(first, l->first);
        uint64_t to = u64_min(first + count, l->first + l->count);
        for (uint64_t stripe = from; stripe < to; stripe++) {
            uint8_t *done = &l->done[stripe - l->first];
            l->left -= *done == 0;
            *done = 1;
        }
        if (l->left == 0)
            lease_done(c, at);
        else
            at = &l->after;
    }
}

// What of a settled run was not leased yet is kept, so that it never is.
static bool settled_keep(struct coord *c, uint64_t first, uint64_t count)
{
    for (struct coord_segment *s = c->segments; s != NULL; s = s->after) {
        uint64_t from = u64_max(first, s->next), to = u64_min(first + count, s->first + s->stripes);
        if (!s->placed || from >= to)
            continue;
        struct coord_run *run = malloc(sizeof *run);
        if (run == NULL)
            return false;
        *run = (struct coord_run){.first = from, .count = to - from, .next = s->settled};
        s->settled = run;
    }
    return true;
}

// Whether every run lies among the stripes that were laid out.
static bool runs_exist(const struct coord *c, const struct blob *runs)
{
    struct wire_reader r;
    wire_reader_init(&r, runs->bytes, runs->len);
    while (wire_left(&r) > 0) {
        uint64_t first = wire_get_u64(&r), count = wire_get_u64(&r), end;
        if (r.bad || __builtin_add_overflow(first, count, &end) || end > c->next_stripe)
            return false;
    }
    return true;
}

void pool_stripes_done(struct coord *c, const struct msg_stripes_done *m, uint64_t now_ns)
{
    if (!runs_exist(c, &m->runs)) {
        coord_stop_words(c, ERR_PROTOCOL, COORD_DEST, now_ns, "a run of stripes that were never laid out");
        return;
    }
    if (m->settled) {
        struct message pass = {.type = MESSAGE_STRIPES_DONE, .stripes_done = *m};
        coord_send(c, COORD_SOURCE, &pass);
    }
    c->counters.bytes_moved += m->bytes;
    struct wire_reader r;
    wire_reader_init(&r, m->runs.bytes, m->runs.len);
    while (wire_left(&r) > 0) {
        uint64_t first = wire_get_u64(&r), count = wire_get_u64(&r);
        leases_mark(c, first, count);
        if (m->settled && !settled_keep(c, first, count)) {
            coord_stop_words(c, ERR_LOST, COORD_NODES, now_ns, "out of memory");
            return;
        }
    }
    pool_lease_more(c, now_ns);
}

void pool_segment_done(struct coord *c, uint64_t number, uint64_t now_ns)
{
    struct coord_segment **at = &c->segments;
    while (*at != NULL && (*at)->number != number)
        at = &(*at)->after;
    struct coord_segment *s = *at;
    if (s == NULL || !s->placed) {
        coord_stop_words(c, ERR_PROTOCOL, COORD_DEST, now_ns,
                         "the end of segment %llu, which is not under way", (unsigned long long)number);
        return;
    }
    if (s->recorded + s->left < s->entries) {
        coord_stop_words(c, ERR_PROTOCOL, COORD_DEST, now_ns, "%u entries of segment %llu were never settled",
                         s->entries - s->recorded - s->left, (unsigned long long)number);
        return;
    }
    // Stripes of failed files may never have been leased or sent; nothing of the segment is waited for any
    // more.
    if (s->stripes > 0)
        leases_mark(c, s->first, s->stripes);
    *at = s->after;
    struct message m = {.type = MESSAGE_SEGMENT_DONE, .segment_done = {.segment = number}};
    coord_send(c, COORD_SOURCE, &m);
    coord_send(c, COORD_DEST, &m);
    segment_free(s);
    pool_lease_more(c, now_ns);
}
