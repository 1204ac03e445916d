// Leases and segments are few: plain arrays, searched in order.
#include "mover/plan/dest.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

enum stripe_state {
    STRIPE_NONE,
    STRIPE_ARRIVING,
    STRIPE_WRITTEN,
    STRIPE_COMMITTING,
    STRIPE_DURABLE,
    STRIPE_SETTLED
};

struct lease {
    uint64_t id, segment, first;
    uint32_t count;
    uint8_t states[LEASE_STRIPES_MAX];  // enum stripe_state
    uint8_t damaged[LEASE_STRIPES_MAX]; // times that it came damaged
    struct lease *next;
};

struct plan_entry {
    uint64_t left; // stripes that are in no commit group yet
    bool failed;
};

struct plan_segment {
    uint64_t number;
    uint32_t entry_count;
    uint32_t open; // entries not settled
    bool told;     // that all are
    struct plan_entry *entries;
    struct plan_segment *next;
};

struct dest_plan {
    struct lease *leases;
    struct plan_segment *segments;
    struct dest_written *group, **group_end;
    uint64_t group_bytes, group_files;
    uint64_t group_since_ns;
    uint64_t placed_end;
    uint32_t arriving;
};

struct dest_plan *dest_plan_new(void)
{
    struct dest_plan *p = calloc(1, sizeof *p);
    if (p != NULL)
        p->group_end = &p->group;
    return p;
}

static void segment_free(struct plan_segment *s)
{
    free(s->entries);
    free(s);
}

void dest_plan_free(struct dest_plan *p)
{
    if (p == NULL)
        return;
    while (p->leases != NULL) {
        struct lease *l = p->leases;
        p->leases = l->next;
        free(l);
    }
    while (p->segments != NULL) {
        struct plan_segment *s = p->segments;
        p->segments = s->next;
        segment_free(s);
    }
    free(p);
}

static struct plan_segment *segment_find(const struct dest_plan *p, uint64_t number)
{
    struct plan_segment *s = p->segments;
    while (s != NULL && s->number != number)
        s = s->next;
    return s;
}

int dest_plan_segment(struct dest_plan *p, uint64_t number, uint32_t entries, const uint64_t *stripes,
                      uint32_t open_entries)
{
    if (segment_find(p, number) != NULL)
        return -EEXIST;
    struct plan_segment *s = calloc(1, sizeof *s);
    struct plan_entry *list = calloc(entries > 0 ? entries : 1, sizeof *list);
    if (s == NULL || list == NULL) {
        free(s);
        free(list);
        return -ENOMEM;
    }
    for (uint32_t e = 0; e < entries; e++)
        list[e].left = stripes[e];
    *s = (struct plan_segment){
        .number = number, .entry_count = entries, .open = open_entries, .entries = list, .next = p->segments};
    p->segments = s;
    return 0;
}

bool dest_plan_segment_over(const struct dest_plan *p, uint64_t number)
{
    const struct plan_segment *s = segment_find(p, number);
    if (s == NULL || s->open > 0)
        return false;
    for (const struct lease *l = p->leases; l != NULL; l = l->next)
        if (l->segment == number)
            return false;
    return true;
}

void dest_plan_segment_forget(struct dest_plan *p, uint64_t number)
{
    for (struct plan_segment **at = &p->segments; *at != NULL; at = &(*at)->next) {
        if ((*at)->number != number)
            continue;
        struct plan_segment *s = *at;
        *at = s->next;
        segment_free(s);
        return;
    }
}

void dest_plan_placed(struct dest_plan *p, uint64_t end)
{
    p->placed_end = u64_max(p->placed_end, end);
}

int dest_plan_lease(struct dest_plan *p, uint64_t id, uint64_t segment, uint64_t first, uint32_t count)
{
    uint64_t end;
    if (count == 0 || count > LEASE_STRIPES_MAX || __builtin_add_overflow(first, count, &end))
        return -EPROTO;
    for (const struct lease *l = p->leases; l != NULL; l = l->next)
        if (first < l->first + l->count && l->first < end)
            return -EPROTO;
    struct lease *l = calloc(1, sizeof *l);
    if (l == NULL)
        return -ENOMEM;
    l->id = id;
    l->segment = segment;
    l->first = first;
    l->count = count;
    l->next = p->leases;
    p->leases = l;
    return 0;
}

int dest_plan_lease_done(struct dest_plan *p, uint64_t id)
{
    for (struct lease **at = &p->leases; *at != NULL; at = &(*at)->next) {
        if ((*at)->id != id)
            continue;
        struct lease *l = *at;
        *at = l->next;
        for (uint32_t i = 0; i < l->count; i++)
            p->arriving -= l->states[i] == STRIPE_ARRIVING;
        free(l);
        return 0;
    }
    return -EPROTO;
}

// The state of a stripe, or NULL when no lease has it.
static uint8_t *state_of(const struct dest_plan *p, uint64_t stripe, struct lease **lease)
{
    for (struct lease *l = p->leases; l != NULL; l = l->next) {
        if (stripe >= l->first && stripe - l->first < l->count) {
            *lease = l;
            return &l->states[stripe - l->first];
        }
    }
    return NULL;
}

enum dest_answer dest_plan_arrive(struct dest_plan *p, uint64_t segment, uint64_t stripe)
{
    struct lease *l;
    uint8_t *state = state_of(p, stripe, &l);
    if (state == NULL)
        return stripe < p->placed_end ? DEST_DROP : DEST_FOREIGN;
    if (l->segment != segment)
        return DEST_FOREIGN;
    if (*state != STRIPE_NONE)
        return DEST_DROP;
    *state = STRIPE_ARRIVING;
    p->arriving++;
    return DEST_TAKE;
}

void dest_plan_lost(struct dest_plan *p, uint64_t stripe)
{
    struct lease *l;
    uint8_t *state = state_of(p, stripe, &l);
    if (state != NULL && *state == STRIPE_ARRIVING) {
        *state = STRIPE_NONE;
        p->arriving--;
    }
}

bool dest_plan_damaged(struct dest_plan *p, uint64_t stripe)
{
    struct lease *l;
    uint8_t *state = state_of(p, stripe, &l);
    if (state == NULL || *state != STRIPE_ARRIVING)
        return false;
    p->arriving--;
    bool last = ++l->damaged[stripe - l->first] >= DAMAGED_MAX;
    *state = last ? STRIPE_SETTLED : STRIPE_NONE;
    return last;
}

bool dest_plan_written(struct dest_plan *p, struct dest_written *w, uint64_t now_ns)
{
    struct lease *l;
    uint8_t *state = state_of(p, w->stripe, &l);
    if (state == NULL || *state != STRIPE_ARRIVING)
        return false;
    *state = STRIPE_WRITTEN;
    p->arriving--;
    if (p->group == NULL)
        p->group_since_ns = now_ns;
    w->next = NULL;
    *p->group_end = w;
    p->group_end = &w->next;
    p->group_bytes += w->bytes;
    p->group_files += w->files;
    return true;
}

uint64_t dest_plan_group_due_ns(const struct dest_plan *p, uint64_t now_ns)
{
    if (p->group == NULL)
        return UINT64_MAX;
    bool full = p->group_bytes >= GROUP_BYTES || p->group_files >= GROUP_FILES;
    if (p->arriving == 0 || full || now_ns >= p->group_since_ns + GROUP_NS)
        return 0;
    return p->group_since_ns + GROUP_NS - now_ns;
}

struct dest_written *dest_plan_group_take(struct dest_plan *p)
{
    struct dest_written *group = p->group;
    for (const struct dest_written *w = group; w != NULL; w = w->next) {
        struct lease *l;
        uint8_t *state = state_of(p, w->stripe, &l);
        if (state != NULL && *state == STRIPE_WRITTEN)
            *state = STRIPE_COMMITTING;
    }
    p->group = NULL;
    p->group_end = &p->group;
    p->group_bytes = p->group_files = 0;
    return group;
}

// NULL: the segment is forgotten.
static struct plan_entry *entry_of(const struct dest_plan *p, uint64_t segment, uint32_t entry)
{
    struct plan_segment *s = segment_find(p, segment);
    assert(s == NULL || entry < s->entry_count);
    return s != NULL ? &s->entries[entry] : NULL;
}

bool dest_plan_entry_commit(struct dest_plan *p, uint64_t segment, uint32_t entry)
{
    struct plan_entry *e = entry_of(p, segment, entry);
    if (e == NULL)
        return false;
    assert(e->left > 0);
    e->left--;
    return e->left == 0 && !e->failed;
}

void dest_plan_group_durable(struct dest_plan *p, const struct dest_written *group)
{
    for (const struct dest_written *w = group; w != NULL; w = w->next) {
        struct lease *l;
        uint8_t *state = state_of(p, w->stripe, &l);
        if (state != NULL && *state == STRIPE_COMMITTING)
            *state = STRIPE_DURABLE;
    }
}

bool dest_plan_entry_fail(struct dest_plan *p, uint64_t segment, uint32_t entry, uint64_t first,
                          uint64_t count)
{
    struct plan_entry *e = entry_of(p, segment, entry);
    if (e == NULL || e->failed)
        return false;
    e->failed = true;
    for (struct lease *l = p->leases; l != NULL; l = l->next) {
        for (uint32_t i = 0; i < l->count; i++) {
            uint64_t stripe = l->first + i;
            if (stripe < first || stripe - first >= count)
                continue;
            if (l->states[i] == STRIPE_ARRIVING)
                p->arriving--;
            if (l->states[i] == STRIPE_NONE || l->states[i] == STRIPE_ARRIVING)
                l->states[i] = STRIPE_SETTLED;
        }
    }
    return true;
}

bool dest_plan_entry_failed(const struct dest_plan *p, uint64_t segment, uint32_t entry)
{
    const struct plan_entry *e = entry_of(p, segment, entry);
    return e == NULL || e->failed;
}

bool dest_plan_entries_settled(struct dest_plan *p, uint64_t segment, uint32_t entries)
{
    struct plan_segment *s = segment_find(p, segment);
    if (s == NULL || s->told)
        return false;
    assert(s->open >= entries);
    s->open -= entries;
    s->told = s->open == 0;
    return s->told;
}
