#include "proto/need.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "proto/range.h"
#include "proto/wire.h"

enum {
    NEED_MAGIC = 0x4e4b5350, // "PSKN"
    NEED_HEAD_BYTES = 16,
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

// Ranges that are too many by, to be encoded.
static uint64_t ranges_excess(const struct need *n)
{
    uint64_t bytes = NEED_HEAD_BYTES + n->entry_count;
    for (uint32_t i = 0; i < n->entry_count; i++)
        if (n->entries[i].verdict == NEED_LEAVES)
            bytes += sizeof(uint32_t) + UINT64_C(1) * n->entries[i].count * NEED_RANGE_BYTES;
    return bytes > NEED_BYTES_MAX ? u64_div_up(bytes - NEED_BYTES_MAX, NEED_RANGE_BYTES) : 0;
}

static uint64_t gap_before(const struct range *r)
{
    return r->offset - (r[-1].offset + r[-1].len);
}

static int by_size(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

// All gaps between ranges, the smallest first.
static uint64_t *gaps_sorted(const struct need *n, uint64_t *count)
{
    uint64_t total = 0, at = 0;
    for (uint32_t i = 0; i < n->entry_count; i++)
        total += n->entries[i].count;
    uint64_t *gaps = reallocarray(NULL, total, sizeof(*gaps));
    for (uint32_t i = 0; gaps != NULL && i < n->entry_count; i++)
        for (uint32_t k = 1; k < n->entries[i].count; k++)
            gaps[at++] = gap_before(&n->entries[i].leaves[k]);
    if (gaps != NULL)
        qsort(gaps, at, sizeof(*gaps), by_size);
    *count = at;
    return gaps;
}

// Joins the ranges of one entry across gaps below `limit`, and across *more of those that are as large.
static void ranges_join(struct range *leaves, uint32_t *count, uint64_t limit, uint64_t *more)
{
    uint32_t kept = 0;
    for (uint32_t k = 1; k < *count; k++) {
        uint64_t gap = leaves[k].offset - (leaves[kept].offset + leaves[kept].len);
        bool join = gap < limit || (gap == limit && *more > 0);
        *more -= join && gap == limit;
        if (join)
            leaves[kept].len += gap + leaves[k].len;
        else
            leaves[++kept] = leaves[k];
    }
    *count = kept + 1;
}

int need_fit(struct need *n)
{
    assert(n->entry_count <= SEGMENT_ENTRIES_MAX); // then one range of each fits
    uint64_t excess = ranges_excess(n), count;
    if (excess == 0)
        return 0;
    uint64_t *gaps = gaps_sorted(n, &count);
    if (gaps == NULL)
        return -ENOMEM;
    assert(excess <= count);
    uint64_t limit = gaps[excess - 1], more = 0;
    for (uint64_t k = excess; k > 0 && gaps[k - 1] == limit; k--)
        more++;
    for (uint32_t i = 0; i < n->entry_count; i++)
        if (n->entries[i].verdict == NEED_LEAVES)
            ranges_join(store_of(n)->leaves[i], &n->entries[i].count, limit, &more);
    free(gaps);
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
