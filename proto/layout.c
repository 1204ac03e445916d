#include "proto/layout.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "proto/cut.h"
#include "proto/wire.h"

enum { LAYOUT_MAGIC = 0x4c4b5350 }; // "PSKL"

// Consecutive stripes of a large file none of which is empty.
struct run {
    uint64_t index; // of the first of them in the layout
    uint64_t first; // its k
    uint64_t count;
    uint32_t entry;
};

// A large file with at least one stripe.
struct large_file {
    uint32_t entry;
    size_t run_at, run_count; // in layout.runs
};

// A packed stripe: files packed[at .. at + count).
struct pack {
    uint32_t at, count;
    uint32_t bytes;
};

struct layout {
    const struct segment *segment;
    const struct need *need;
    uint32_t stripe_bytes;
    uint64_t first;         // number of the first stripe
    uint64_t large_stripes; // they come first, the packed ones behind them
    uint64_t bytes;
    struct digest digest;
    size_t run_count;
    uint32_t large_count, packed_count, pack_count;
    struct run *runs;          // of all large files, by index
    struct large_file *larges; // by entry
    uint32_t *packed;          // entries, ascending
    struct pack *packs;
};

static bool is_packed(const struct entry *e)
{
    return e->size <= PACKED_FILE_BYTES_MAX;
}

// Whether the entry is laid out at all.
static bool is_needed(const struct layout *l, uint32_t entry)
{
    return l->need->entries[entry].verdict != NEED_NOTHING;
}

static int add_u64(uint64_t *sum, uint64_t v)
{
    return __builtin_add_overflow(*sum, v, sum) ? -EOVERFLOW : 0;
}

// The most runs that a file can have: two lists of m and n disjoint ranges meet in at most m + n - 1 pieces.
static size_t runs_bound(const struct entry *e, const struct entry_need *n)
{
    size_t leaf_ranges = n->verdict == NEED_LEAVES ? n->count : 1;
    size_t data_ranges = e->sparse ? e->data_count : 1;
    return leaf_ranges + data_ranges - 1;
}

// Room for everything that segment and need can lead to.
static int layout_allocate(struct layout *l)
{
    size_t larges = 0, packed = 0, runs = 0;
    for (uint32_t i = 0; i < l->segment->entry_count; i++) {
        const struct entry *e = &l->segment->entries[i];
        if (!is_needed(l, i))
            continue;
        if (is_packed(e)) {
            packed++;
        } else {
            larges++;
            runs += runs_bound(e, &l->need->entries[i]);
        }
    }
    l->larges = reallocarray(NULL, larges + 1, sizeof(*l->larges)); // + 1: never of no bytes
    l->runs = reallocarray(NULL, runs + 1, sizeof(*l->runs));
    l->packed = reallocarray(NULL, packed + 1, sizeof(*l->packed));
    l->packs = reallocarray(NULL, packed + 1, sizeof(*l->packs));
    return l->larges == NULL || l->runs == NULL || l->packed == NULL || l->packs == NULL ? -ENOMEM : 0;
}

// Makes the stripes first..last hold something: they go on with the run `at` of the file, or begin the one
// behind it. Returns the number of runs that the file has then.
static size_t runs_add(struct run *runs, size_t count, uint64_t first, uint64_t last)
{
    struct run *r = count > 0 ? &runs[count - 1] : NULL;
    if (r != NULL && first <= r->first + r->count) {
        r->count = last - r->first + 1; // pieces ascend: last is never before the run's end - 1
        return count;
    }
    runs[count] = (struct run){.first = first, .count = last - first + 1};
    return count + 1;
}

// Cuts one large file into runs of stripes, from the ranges alone: never a step per stripe.
static int lay_large(struct layout *l, uint32_t entry)
{
    const struct entry *e = &l->segment->entries[entry];
    struct run *runs = &l->runs[l->run_count];
    size_t count = 0;
    struct cut cut;
    struct range piece;
    cut_init(&cut, e, &l->need->entries[entry], 0, e->size);
    while (cut_next(&cut, &piece)) {
        if (add_u64(&l->bytes, piece.len) < 0)
            return -EOVERFLOW;
        uint64_t last = (piece.offset + piece.len - 1) / l->stripe_bytes;
        count = runs_add(runs, count, piece.offset / l->stripe_bytes, last);
    }
    for (size_t i = 0; i < count; i++) {
        runs[i].entry = entry;
        runs[i].index = l->large_stripes;
        if (add_u64(&l->large_stripes, runs[i].count) < 0)
            return -EOVERFLOW;
    }
    if (count > 0)
        l->larges[l->large_count++] =
            (struct large_file){.entry = entry, .run_at = l->run_count, .run_count = count};
    l->run_count += count;
    return 0;
}

// Puts one small file into the current packed stripe, or into a new one.
static int lay_packed(struct layout *l, uint32_t entry)
{
    uint32_t size = (uint32_t)l->segment->entries[entry].size;
    struct pack *pack = l->pack_count > 0 ? &l->packs[l->pack_count - 1] : NULL;
    if (pack == NULL || pack->count == PACKED_EXTENTS_MAX || size > l->stripe_bytes - pack->bytes) {
        pack = &l->packs[l->pack_count++];
        *pack = (struct pack){.at = l->packed_count};
    }
    pack->count++;
    pack->bytes += size;
    l->packed[l->packed_count++] = entry;
    return add_u64(&l->bytes, size);
}

static int lay_all(struct layout *l)
{
    int rc = 0;
    for (uint32_t i = 0; i < l->segment->entry_count && rc == 0; i++) {
        if (!is_needed(l, i))
            continue;
        rc = is_packed(&l->segment->entries[i]) ? lay_packed(l, i) : lay_large(l, i);
    }
    uint64_t count = l->large_stripes;
    return rc < 0 ? rc : add_u64(&count, l->pack_count);
}

static void hash(struct digest_stream *s, const struct wire_writer *w)
{
    int64_t len = wire_written(w);
    assert(len >= 0);
    digest_stream_add(s, w->start, (size_t)len);
}

static void hash_u64_pair(struct digest_stream *s, uint64_t a, uint64_t b)
{
    uint8_t buf[16];
    struct wire_writer w;
    wire_writer_init(&w, buf, sizeof(buf));
    wire_put_u64(&w, a);
    wire_put_u64(&w, b);
    hash(s, &w);
}

static void hash_large(const struct layout *l, const struct large_file *file, struct digest_stream *s)
{
    struct cut cut; // knows the leaf ranges of either verdict
    const struct entry *e = &l->segment->entries[file->entry];
    cut_init(&cut, e, &l->need->entries[file->entry], 0, e->size);
    uint8_t buf[12];
    struct wire_writer w;
    wire_writer_init(&w, buf, sizeof(buf));
    wire_put_u32(&w, file->entry);
    wire_put_u32(&w, (uint32_t)file->run_count);
    wire_put_u32(&w, cut.leaf_count);
    hash(s, &w);
    for (size_t i = file->run_at; i < file->run_at + file->run_count; i++)
        hash_u64_pair(s, l->runs[i].first, l->runs[i].count);
    for (uint32_t i = 0; i < cut.leaf_count; i++)
        hash_u64_pair(s, cut.leaves[i].offset, cut.leaves[i].len);
}

static void hash_packs(const struct layout *l, struct digest_stream *s)
{
    for (uint32_t p = 0; p < l->pack_count; p++)
        for (uint32_t i = 0; i < l->packs[p].count; i++) {
            uint8_t buf[8];
            struct wire_writer w;
            wire_writer_init(&w, buf, sizeof(buf));
            wire_put_u32(&w, l->packed[l->packs[p].at + i]);
            wire_put_u32(&w, p);
            hash(s, &w);
        }
}

static int make_digest(struct layout *l)
{
    struct digest_stream *s = digest_stream_new();
    if (s == NULL)
        return -ENOMEM;
    uint8_t buf[64];
    struct wire_writer w;
    wire_writer_init(&w, buf, sizeof(buf));
    wire_put_u32(&w, LAYOUT_MAGIC);
    wire_put_u32(&w, l->stripe_bytes);
    wire_put_bytes(&w, l->segment->digest.bytes, sizeof(l->segment->digest.bytes));
    wire_put_u64(&w, l->segment->number);
    wire_put_u64(&w, layout_count(l));
    wire_put_u64(&w, l->bytes);
    wire_put_u32(&w, l->large_count);
    wire_put_u32(&w, l->packed_count);
    hash(s, &w);
    for (uint32_t i = 0; i < l->large_count; i++)
        hash_large(l, &l->larges[i], s);
    hash_packs(l, s);
    l->digest = digest_stream_end(s);
    digest_stream_free(s);
    return 0;
}

int layout_new(const struct segment *segment, const struct need *need, uint32_t stripe_bytes,
               struct layout **out)
{
    bool power = (stripe_bytes & (stripe_bytes - 1)) == 0;
    if (!power || stripe_bytes < STRIPE_BYTES_MIN || stripe_bytes > STRIPE_BYTES_MAX)
        return -EINVAL;
    if (need_check(need, segment) < 0)
        return -EINVAL;
    struct layout *l = calloc(1, sizeof(*l));
    if (l == NULL)
        return -ENOMEM;
    l->segment = segment;
    l->need = need;
    l->stripe_bytes = stripe_bytes;
    int rc = layout_allocate(l);
    if (rc == 0)
        rc = lay_all(l);
    if (rc == 0)
        rc = make_digest(l);
    if (rc < 0) {
        layout_free(l);
        return rc;
    }
    *out = l;
    return 0;
}

void layout_free(struct layout *l)
{
    if (l == NULL)
        return;
    free(l->larges);
    free(l->runs);
    free(l->packed);
    free(l->packs);
    free(l);
}

int layout_place(struct layout *l, uint64_t first_stripe)
{
    uint64_t behind = first_stripe;
    if (add_u64(&behind, layout_count(l)) < 0)
        return -EOVERFLOW;
    l->first = first_stripe;
    return 0;
}

const struct segment *layout_segment(const struct layout *l)
{
    return l->segment;
}

uint64_t layout_first(const struct layout *l)
{
    return l->first;
}

uint64_t layout_count(const struct layout *l)
{
    return l->large_stripes + l->pack_count; // known to fit
}

uint64_t layout_bytes(const struct layout *l)
{
    return l->bytes;
}

uint32_t layout_stripe_bytes(const struct layout *l)
{
    return l->stripe_bytes;
}

struct digest layout_digest(const struct layout *l)
{
    return l->digest;
}

// The run that holds large stripe `index`: the last one that begins at or before it.
static const struct run *find_run(const struct layout *l, uint64_t index)
{
    size_t low = 0, high = l->run_count; // runs[low] is at or before index, runs[high] behind it
    while (high - low > 1) {
        size_t mid = low + (high - low) / 2;
        if (l->runs[mid].index <= index)
            low = mid;
        else
            high = mid;
    }
    return &l->runs[low];
}

// Leaves that [piece) touches and that none before `next_leaf` was counted for; moves next_leaf on.
static uint32_t count_leaves(const struct range *piece, uint64_t *next_leaf)
{
    uint64_t first = u64_max(piece->offset / LEAF_BYTES, *next_leaf);
    *next_leaf = (piece->offset + piece->len - 1) / LEAF_BYTES + 1;
    return (uint32_t)(*next_leaf - first);
}

static void large_stripe(const struct layout *l, uint64_t index, struct stripe *out, struct extent *extents)
{
    const struct run *run = find_run(l, index);
    const struct entry *e = &l->segment->entries[run->entry];
    out->entry = run->entry;
    out->file_stripe = run->first + (index - run->index);
    uint64_t start = out->file_stripe * l->stripe_bytes;
    uint64_t next_leaf = 0;
    struct cut cut;
    struct range piece;
    cut_init(&cut, e, &l->need->entries[run->entry], start, start + l->stripe_bytes);
    while (cut_next(&cut, &piece)) {
        assert(out->extent_count < STRIPE_EXTENTS_MAX);
        extents[out->extent_count++] =
            (struct extent){.entry = run->entry, .len = (uint32_t)piece.len, .offset = piece.offset};
        out->leaf_count += count_leaves(&piece, &next_leaf);
        out->body_bytes += (uint32_t)piece.len;
    }
    assert(out->extent_count > 0);
}

static void packed_stripe(const struct layout *l, const struct pack *pack, struct stripe *out,
                          struct extent *extents)
{
    out->packed = true;
    out->entry = l->packed[pack->at];
    out->extent_count = pack->count;
    out->leaf_count = pack->count;
    out->body_bytes = pack->bytes;
    for (uint32_t i = 0; i < pack->count; i++) {
        uint32_t entry = l->packed[pack->at + i];
        uint32_t size = (uint32_t)l->segment->entries[entry].size;
        extents[i] = (struct extent){.entry = entry, .len = size, .offset = 0};
    }
}

void layout_stripe(const struct layout *l, uint64_t number, struct stripe *out, struct extent *extents)
{
    assert(number >= l->first && number - l->first < layout_count(l));
    uint64_t index = number - l->first;
    *out = (struct stripe){.number = number};
    if (index < l->large_stripes)
        large_stripe(l, index, out, extents);
    else
        packed_stripe(l, &l->packs[index - l->large_stripes], out, extents);
}

// Stripes of a large entry; 0 when it is not among the files that have some.
static uint64_t large_stripes_of(const struct layout *l, uint32_t entry, uint64_t *index)
{
    uint32_t low = 0, high = l->large_count;
    while (low < high) {
        uint32_t mid = low + (high - low) / 2;
        if (l->larges[mid].entry < entry)
            low = mid + 1;
        else
            high = mid;
    }
    if (low == l->large_count || l->larges[low].entry != entry)
        return 0;
    const struct run *first = &l->runs[l->larges[low].run_at];
    const struct run *last = first + l->larges[low].run_count - 1;
    *index = first->index;
    return last->index + last->count - first->index;
}

static int compare_entries(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

// The packed stripe that holds file `at` of the packed ones: the last one that begins at or before it.
static uint32_t find_pack(const struct layout *l, uint32_t at)
{
    uint32_t low = 0, high = l->pack_count;
    while (high - low > 1) {
        uint32_t mid = low + (high - low) / 2;
        if (l->packs[mid].at <= at)
            low = mid;
        else
            high = mid;
    }
    return low;
}

uint64_t layout_entry_stripes(const struct layout *l, uint32_t entry, uint64_t *first)
{
    assert(entry < l->segment->entry_count);
    uint64_t index;
    uint64_t count = large_stripes_of(l, entry, &index);
    if (count == 0) {
        const uint32_t *found =
            bsearch(&entry, l->packed, l->packed_count, sizeof(*l->packed), compare_entries);
        if (found == NULL)
            return 0;
        index = l->large_stripes + find_pack(l, (uint32_t)(found - l->packed));
        count = 1;
    }
    *first = l->first + index;
    return count;
}
