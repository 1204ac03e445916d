// Leases are few (some tens), each of at most LEASE_STRIPES_MAX stripes: plain arrays, searched in order.
#include "mover/plan/source.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

enum stripe_state { STRIPE_FREE, STRIPE_TAKEN, STRIPE_SENT, STRIPE_SETTLED };

struct stripe_record {
    enum stripe_state state;
    uint32_t stream; // who took it
    uint32_t attempt;
    uint64_t frame; // SENT: its number on the stream attempt
    bool again;     // it was on a stream and came back
};

struct lease {
    uint64_t id, segment, first;
    uint32_t count;
    uint32_t free; // stripes in state FREE
    uint32_t next; // no stripe before this one is FREE
    struct stripe_record *stripes;
};

struct source_plan {
    struct lease *leases; // sorted by first stripe
    uint32_t lease_count, lease_room;
    uint64_t free;
    uint64_t ended[STREAMS_MAX]; // per stream: attempts below this are over
};

struct source_plan *source_plan_new(void)
{
    return calloc(1, sizeof(struct source_plan));
}

void source_plan_free(struct source_plan *p)
{
    if (p == NULL)
        return;
    for (uint32_t i = 0; i < p->lease_count; i++)
        free(p->leases[i].stripes);
    free(p->leases);
    free(p);
}

// Index of the first lease that ends behind `stripe`.
static uint32_t lease_index(const struct source_plan *p, uint64_t stripe)
{
    uint32_t low = 0, high = p->lease_count;
    while (low < high) {
        uint32_t mid = low + (high - low) / 2;
        if (p->leases[mid].first + p->leases[mid].count <= stripe)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

static struct lease *lease_of(const struct source_plan *p, uint64_t stripe)
{
    uint32_t i = lease_index(p, stripe);
    return i < p->lease_count && p->leases[i].first <= stripe ? &p->leases[i] : NULL;
}

static struct stripe_record *record_of(const struct source_plan *p, uint64_t stripe, struct lease **lease)
{
    *lease = lease_of(p, stripe);
    return *lease != NULL ? &(*lease)->stripes[stripe - (*lease)->first] : NULL;
}

static int leases_grow(struct source_plan *p)
{
    if (p->lease_count < p->lease_room)
        return 0;
    uint32_t room = p->lease_room > 0 ? p->lease_room * 2 : 16;
    struct lease *leases = realloc(p->leases, room * sizeof *leases);
    if (leases == NULL)
        return -ENOMEM;
    p->leases = leases;
    p->lease_room = room;
    return 0;
}

int source_plan_lease(struct source_plan *p, uint64_t id, uint64_t segment, uint64_t first, uint32_t count)
{
    uint64_t end;
    if (count == 0 || count > LEASE_STRIPES_MAX || __builtin_add_overflow(first, count, &end))
        return -EPROTO;
    uint32_t at = lease_index(p, first);
    if (at < p->lease_count && p->leases[at].first < end)
        return -EPROTO;
    struct stripe_record *stripes = calloc(count, sizeof *stripes);
    if (stripes == NULL)
        return -ENOMEM;
    int rc = leases_grow(p);
    if (rc < 0) {
        free(stripes);
        return rc;
    }
    for (uint32_t i = p->lease_count; i > at; i--)
        p->leases[i] = p->leases[i - 1];
    p->leases[at] = (struct lease){
        .id = id, .segment = segment, .first = first, .count = count, .free = count, .stripes = stripes};
    p->lease_count++;
    p->free += count;
    return 0;
}

int source_plan_lease_done(struct source_plan *p, uint64_t id)
{
    for (uint32_t i = 0; i < p->lease_count; i++) {
        if (p->leases[i].id != id)
            continue;
        p->free -= p->leases[i].free;
        free(p->leases[i].stripes);
        p->lease_count--;
        for (; i < p->lease_count; i++)
            p->leases[i] = p->leases[i + 1];
        return 0;
    }
    return -EPROTO;
}

bool source_plan_leased(const struct source_plan *p, uint64_t segment)
{
    for (uint32_t i = 0; i < p->lease_count; i++)
        if (p->leases[i].segment == segment)
            return true;
    return false;
}

bool source_plan_take(struct source_plan *p, uint32_t stream, uint32_t attempt, uint64_t *segment,
                      uint64_t *stripe, bool *again)
{
    assert(stream < STREAMS_MAX);
    if (attempt < p->ended[stream] || p->free == 0)
        return false;
    for (uint32_t i = 0; i < p->lease_count; i++) {
        struct lease *l = &p->leases[i];
        if (l->free == 0)
            continue;
        while (l->stripes[l->next].state != STRIPE_FREE)
            l->next++;
        struct stripe_record *r = &l->stripes[l->next];
        *again = r->again;
        *r = (struct stripe_record){
            .state = STRIPE_TAKEN, .stream = stream, .attempt = attempt, .again = r->again};
        *segment = l->segment;
        *stripe = l->first + l->next;
        l->next++;
        l->free--;
        p->free--;
        return true;
    }
    assert(false && "free counts stripes that no lease has");
    return false;
}

bool source_plan_wanted(const struct source_plan *p, uint64_t stripe, uint32_t stream, uint32_t attempt)
{
    struct lease *lease;
    const struct stripe_record *r = record_of(p, stripe, &lease);
    return r != NULL && r->state == STRIPE_TAKEN && r->stream == stream && r->attempt == attempt;
}

void source_plan_sent(struct source_plan *p, uint64_t stripe, uint32_t stream, uint32_t attempt,
                      uint64_t frame)
{
    if (!source_plan_wanted(p, stripe, stream, attempt))
        return;
    struct lease *lease;
    struct stripe_record *r = record_of(p, stripe, &lease);
    r->state = STRIPE_SENT;
    r->frame = frame;
}

static void back_to_pool(struct source_plan *p, struct lease *l, struct stripe_record *r)
{
    uint32_t index = (uint32_t)(r - l->stripes);
    r->again = r->again || r->state == STRIPE_SENT;
    r->state = STRIPE_FREE;
    if (index < l->next)
        l->next = index;
    l->free++;
    p->free++;
}

uint64_t source_plan_stream_ended(struct source_plan *p, uint32_t stream, uint32_t attempt, uint64_t frames)
{
    assert(stream < STREAMS_MAX);
    if (attempt >= p->ended[stream])
        p->ended[stream] = (uint64_t)attempt + 1;
    uint64_t back = 0;
    for (uint32_t i = 0; i < p->lease_count; i++) {
        struct lease *l = &p->leases[i];
        for (uint32_t k = 0; k < l->count; k++) {
            struct stripe_record *r = &l->stripes[k];
            bool taken = r->state == STRIPE_TAKEN || r->state == STRIPE_SENT;
            if (!taken || r->stream != stream || r->attempt != attempt)
                continue;
            if (r->state == STRIPE_SENT && r->frame < frames)
                continue;
            back_to_pool(p, l, r);
            back++;
        }
    }
    return back;
}

bool source_plan_bad(struct source_plan *p, uint64_t stripe)
{
    struct lease *lease;
    struct stripe_record *r = record_of(p, stripe, &lease);
    if (r == NULL || r->state != STRIPE_SENT)
        return false;
    back_to_pool(p, lease, r);
    return true;
}

void source_plan_settle(struct source_plan *p, uint64_t first, uint64_t count)
{
    uint64_t end;
    if (__builtin_add_overflow(first, count, &end))
        end = UINT64_MAX;
    for (uint32_t i = lease_index(p, first); i < p->lease_count && p->leases[i].first < end; i++) {
        struct lease *l = &p->leases[i];
        uint64_t from = u64_max(first, l->first) - l->first;
        uint64_t to = u64_min(end, l->first + l->count) - l->first;
        for (uint64_t k = from; k < to; k++) {
            if (l->stripes[k].state == STRIPE_FREE) {
                l->free--;
                p->free--;
            }
            l->stripes[k].state = STRIPE_SETTLED;
        }
    }
}
