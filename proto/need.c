#include "proto/need.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "proto/range.h"
#include "proto/wire.h"

enum {
    NEED_MAGIC = 0x4e4b5350, // "PSKN"
    NEED_RANGE_BYTES = 16,
};

// What need_new hands out, with what it owns.
struct need_store {
    struct need need;
    struct range **leaves; // of each entry, NULL where there are none
};

static struct need_store *store_of(struct need *n)
{
    return CONTAINER_OF(n, struct need_store, need);
}

struct need *need_new(uint64_t segment, uint32_t entries)
{
    struct need_store *s = calloc(1, sizeof(*s));
    if (s == NULL)
        return NULL;
    s->need.segment = segment;
    s->need.entries = calloc((size_t)entries + 1, sizeof(*s->need.entries)); // never of no bytes
    s->leaves = calloc((size_t)entries + 1, sizeof(*s->leaves));
    if (s->need.entries == NULL || s->leaves == NULL) {
        need_free(&s->need);
        return NULL;
    }
    s->need.entry_count = entries;
    return &s->need;
}

void need_free(struct need *n)
{
    if (n == NULL)
        return;
    struct need_store *s = store_of(n);
    for (uint32_t i = 0; i < n->entry_count; i++)
        free(s->leaves[i]);
    free(s->leaves);
    free(n->entries);
    free(s);
}

// Sets an answer; takes `leaves`.
static void answer(struct need *n, uint32_t entry, enum need_verdict verdict, struct range *leaves,
                   uint32_t count)
{
    struct need_store *s = store_of(n);
    free(s->leaves[entry]);
    s->leaves[entry] = leaves;
    n->entries[entry] = (struct entry_need){.verdict = verdict, .leaves = leaves, .count = count};
}

int need_set(struct need *n, uint32_t entry, enum need_verdict verdict, const struct range *leaves,
             uint32_t count)
{
    assert(entry < n->entry_count);
    if (verdict != NEED_LEAVES) {
        answer(n, entry, verdict, NULL, 0);
        return 0;
    }
    assert(count > 0);
    struct range *copy = reallocarray(NULL, count, sizeof(*copy));
    if (copy == NULL)
        return -ENOMEM;
    memcpy(copy, leaves, count * sizeof(*copy));
    answer(n, entry, verdict, copy, count);
    return 0;
}

// Whether the answer fits the entry: data is asked only of what has data, leaves only of what is cut into
// leaves.
static bool answer_fits(const struct entry_need *n, const struct entry *e)
{
    if (n->verdict == NEED_NOTHING)
        return true;
    if (entry_data_bytes(e) == 0)
        return false;
    if (n->verdict == NEED_ALL)
        return true;
    return n->verdict == NEED_LEAVES && e->size > PACKED_FILE_BYTES_MAX && n->count > 0 &&
           ranges_valid(n->leaves, n->count, u64_div_up(e->size, LEAF_BYTES));
}

int need_check(const struct need *n, const struct segment *segment)
{
    if (n->segment != segment->number || n->entry_count != segment->entry_count)
        return -EPROTO;
    for (uint32_t i = 0; i < n->entry_count; i++)
        if (!answer_fits(&n->entries[i], &segment->entries[i]))
            return -EPROTO;
    return 0;
}

int64_t need_encode(const struct need *n, void *out, size_t out_len)
{
    struct wire_writer w;
    wire_writer_init(&w, out, u64_min(out_len, NEED_BYTES_MAX));
    wire_put_u32(&w, NEED_MAGIC);
    wire_put_u32(&w, n->entry_count);
    wire_put_u64(&w, n->segment);
    for (uint32_t i = 0; i < n->entry_count && !w.full; i++) {
        const struct entry_need *e = &n->entries[i];
        wire_put_u8(&w, (uint8_t)e->verdict);
        if (e->verdict != NEED_LEAVES)
            continue;
        wire_put_u32(&w, e->count);
        for (uint32_t k = 0; k < e->count && !w.full; k++) {
            wire_put_u64(&w, e->leaves[k].offset);
            wire_put_u64(&w, e->leaves[k].len);
        }
    }
    return wire_written(&w);
}

// The leaf ranges of one entry. Their number is held against the bytes that are there before anything is
// allocated.
static int leaves_decode(struct wire_reader *r, struct need *n, uint32_t entry)
{
    uint32_t count = wire_get_u32(r);
    if (count == 0 || count > wire_left(r) / NEED_RANGE_BYTES)
        return -EPROTO;
    struct range *leaves = reallocarray(NULL, count, sizeof(*leaves));
    if (leaves == NULL)
        return -ENOMEM;
    for (uint32_t i = 0; i < count; i++) {
        leaves[i].offset = wire_get_u64(r);
        leaves[i].len = wire_get_u64(r);
    }
    answer(n, entry, NEED_LEAVES, leaves, count);
    return 0;
}

static int answers_decode(struct wire_reader *r, struct need *n)
{
    for (uint32_t i = 0; i < n->entry_count; i++) {
        uint8_t verdict = wire_get_u8(r);
        int rc = 0;
        if (verdict == NEED_LEAVES)
            rc = leaves_decode(r, n, i);
        else
            answer(n, i, (enum need_verdict)verdict, NULL, 0);
        if (rc < 0)
            return rc;
    }
    return wire_done(r);
}

int need_decode(const void *bytes, size_t len, const struct segment *segment, struct need **out)
{
    if (len > NEED_BYTES_MAX)
        return -EMSGSIZE;
    struct wire_reader r;
    wire_reader_init(&r, bytes, len);
    uint32_t magic = wire_get_u32(&r);
    uint32_t entries = wire_get_u32(&r);
    uint64_t number = wire_get_u64(&r);
    if (r.bad || magic != NEED_MAGIC || entries != segment->entry_count)
        return -EPROTO;
    struct need *n = need_new(number, entries);
    if (n == NULL)
        return -ENOMEM;
    int rc = answers_decode(&r, n);
    if (rc == 0)
        rc = need_check(n, segment);
    if (rc < 0) {
        need_free(n);
        return rc;
    }
    *out = n;
    return 0;
}
