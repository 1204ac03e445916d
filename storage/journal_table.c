#include "storage/journal_inner.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "proto/range.h"

enum { FIRST_BUCKETS = 64, FIRST_RANGES = 4 };

int journal_table_init(struct journal_table *t)
{
    struct journal_file **buckets = calloc(FIRST_BUCKETS, sizeof(struct journal_file *));
    if (buckets == NULL)
        return -ENOMEM;
    *t = (struct journal_table){.buckets = buckets, .bucket_count = FIRST_BUCKETS};
    return 0;
}

void journal_table_fini(struct journal_table *t)
{
    for (size_t i = 0; i < t->bucket_count; i++) {
        while (t->buckets[i] != NULL) {
            struct journal_file *f = t->buckets[i];
            t->buckets[i] = f->next;
            journal_file_free(f);
        }
    }
    free(t->buckets);
    *t = (struct journal_table){0};
}

static struct journal_file **bucket_of(const struct journal_table *t, uint64_t hash)
{
    return &t->buckets[hash & (t->bucket_count - 1)];
}

struct journal_file *journal_table_find(const struct journal_table *t, const void *path, size_t len)
{
    uint64_t hash = digest_check64(path, len);
    for (struct journal_file *f = *bucket_of(t, hash); f != NULL; f = f->next)
        if (f->hash == hash && f->entry.path_len == len && memcmp(f->path, path, len) == 0)
            return f;
    return NULL;
}

static int table_grow(struct journal_table *t)
{
    struct journal_table grown = {.bucket_count = 2 * t->bucket_count, .files = t->files};
    grown.buckets = calloc(grown.bucket_count, sizeof(struct journal_file *));
    if (grown.buckets == NULL)
        return -ENOMEM;
    for (size_t i = 0; i < t->bucket_count; i++) {
        for (struct journal_file *f = t->buckets[i], *next; f != NULL; f = next) {
            next = f->next;
            struct journal_file **bucket = bucket_of(&grown, f->hash);
            f->next = *bucket;
            *bucket = f;
        }
    }
    free(t->buckets);
    *t = grown;
    return 0;
}

int journal_table_add(struct journal_table *t, const struct entry *e, struct journal_file **out)
{
    int err = t->files == t->bucket_count ? table_grow(t) : 0;
    struct journal_file *f = err == 0 ? calloc(1, sizeof(*f) + e->path_len) : NULL;
    if (f == NULL)
        return -ENOMEM;
    memcpy(f->path, e->path, e->path_len);
    f->hash = digest_check64(f->path, e->path_len);
    f->entry = (struct entry){
        .type = ENTRY_FILE,
        .size = e->size,
        .mtime = e->mtime,
        .ctime = e->ctime,
        .inode = e->inode,
        .path = f->path,
        .path_len = e->path_len,
    };
    struct journal_file **bucket = bucket_of(t, f->hash);
    f->next = *bucket;
    *bucket = f;
    t->files++;
    *out = f;
    return 0;
}

void journal_table_remove(struct journal_table *t, struct journal_file *f)
{
    struct journal_file **at = bucket_of(t, f->hash);
    while (*at != f) {
        assert(*at != NULL);
        at = &(*at)->next;
    }
    *at = f->next;
    f->next = NULL;
    t->files--;
}

void journal_file_free(struct journal_file *f)
{
    if (f == NULL)
        return;
    free(f->held);
    free(f->leaves);
    free(f);
}

uint64_t journal_file_leaves(const struct journal_file *f)
{
    return u64_div_up(f->entry.size, LEAF_BYTES);
}

// All digests at once, zero: the kernel gives memory only for those that are written.
static int reserve_leaves(struct journal_file *f)
{
    uint64_t count = journal_file_leaves(f);
    if (f->leaves != NULL)
        return 0;
    if (f->entry.size > DIGESTED_BYTES_MAX)
        return -EFBIG;
    f->leaves = calloc((size_t)count, sizeof(struct digest));
    return f->leaves != NULL ? 0 : -ENOMEM;
}

int journal_file_reserve(struct journal_file *f)
{
    int err = reserve_leaves(f);
    if (err < 0 || f->count < f->capacity)
        return err;
    if (f->capacity > UINT32_MAX / 2)
        return -ENOMEM;
    uint32_t capacity = f->capacity > 0 ? 2 * f->capacity : FIRST_RANGES;
    struct range *held = reallocarray(f->held, capacity, sizeof(*held));
    if (held == NULL)
        return -ENOMEM;
    f->held = held;
    f->capacity = capacity;
    return 0;
}

void journal_file_hold(struct journal_file *f, uint64_t first, const void *leaves, uint64_t count)
{
    assert(count > 0 && first < journal_file_leaves(f) && count <= journal_file_leaves(f) - first);
    memmove(&f->leaves[first], leaves, count * sizeof(struct digest)); // which may be its own
    // [low, high): the ranges that the new one touches or overlaps, to be one with it.
    uint64_t start = first, end = first + count;
    uint32_t low = first > 0 ? ranges_find(f->held, f->count, 0, first - 1) : 0;
    uint32_t high = low;
    for (; high < f->count && f->held[high].offset <= end; high++) {
        start = u64_min(start, f->held[high].offset);
        end = u64_max(end, f->held[high].offset + f->held[high].len);
    }
    assert(high > low || f->count < f->capacity);
    memmove(&f->held[low + 1], &f->held[high], (f->count - high) * sizeof(*f->held));
    f->held[low] = (struct range){.offset = start, .len = end - start};
    f->count -= high - low;
    f->count++;
}
