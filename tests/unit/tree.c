#include "tests/unit/tree.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Aborts the test program when the means of a test do not work: nothing that is tested hangs on it.
static void must(bool ok, const char *what)
{
    if (ok)
        return;
    fprintf(stderr, "tests/unit/tree.c: %s\n", what);
    abort();
}

struct rnd rnd_begin(const char *test)
{
    const char *given = getenv("PENSTOCK_TEST_SEED");
    uint64_t seed = given != NULL ? strtoull(given, NULL, 0) : 0x70656e73746f636b;
    fprintf(stderr, "%s: PENSTOCK_TEST_SEED=%#llx\n", test, (unsigned long long)seed);
    return (struct rnd){seed};
}

uint64_t rnd_next(struct rnd *r)
{
    uint64_t z = r->state += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
}

uint64_t rnd_below(struct rnd *r, uint64_t n)
{
    return rnd_next(r) % n;
}

static struct entry plain(enum entry_type type, const char *path)
{
    struct entry e = {.type = type, .mode = 0644, .uid = 1000, .gid = 100, .inode = 4711};
    e.mtime = (struct entry_time){1700000000, 123456789};
    e.ctime = (struct entry_time){1700000001, 999999999};
    e.path = (const uint8_t *)path;
    e.path_len = (uint32_t)strlen(path);
    return e;
}

struct entry tree_dir(const char *path)
{
    return plain(ENTRY_DIR, path);
}

struct entry tree_link(const char *path, const char *target)
{
    struct entry e = plain(ENTRY_SYMLINK, path);
    e.target = (const uint8_t *)target;
    e.target_len = (uint32_t)strlen(target);
    return e;
}

struct entry tree_file(const char *path, uint64_t size)
{
    struct entry e = plain(ENTRY_FILE, path);
    e.size = size;
    return e;
}

struct entry tree_sparse(const char *path, uint64_t size, const struct range *data, uint32_t count)
{
    struct entry e = tree_file(path, size);
    e.sparse = true;
    e.data = data;
    e.data_count = count;
    return e;
}

uint8_t *tree_encode(uint64_t number, const struct entry *entries, uint32_t count, size_t *len)
{
    struct segment_builder *b = segment_builder_new();
    must(b != NULL, "no builder");
    segment_builder_begin(b, number);
    for (uint32_t i = 0; i < count; i++)
        must(segment_builder_add(b, &entries[i]) == 0, "an entry was refused");
    const uint8_t *bytes = segment_builder_end(b, false, len);
    uint8_t *copy = malloc(*len);
    must(copy != NULL, "no memory");
    memcpy(copy, bytes, *len);
    segment_builder_free(b);
    return copy;
}

struct segment *tree_segment(uint64_t number, const struct entry *entries, uint32_t count)
{
    size_t len;
    uint8_t *bytes = tree_encode(number, entries, count, &len);
    struct segment *s = NULL;
    must(segment_decode(bytes, len, &s) == 0, "a segment was refused");
    free(bytes);
    return s;
}

uint32_t tree_ranges(struct rnd *r, uint64_t units, uint64_t step, struct range *out, uint32_t max)
{
    uint32_t count = 0;
    uint64_t at = rnd_below(r, step + 1);
    while (at < units && count < max) {
        uint64_t len = u64_min(1 + rnd_below(r, step), units - at);
        out[count++] = (struct range){at, len};
        at += len + 1 + rnd_below(r, step);
    }
    return count;
}

uint32_t tree_data(struct rnd *r, uint64_t size, uint64_t step, struct range *out, uint32_t max)
{
    uint32_t count = tree_ranges(r, u64_div_up(size, BLOCK_BYTES), step, out, max);
    for (uint32_t i = 0; i < count; i++) {
        out[i].offset *= BLOCK_BYTES;
        out[i].len = u64_min(out[i].len * BLOCK_BYTES, size - out[i].offset);
    }
    return count;
}

static uint64_t random_size(struct rnd *r, uint64_t size_max)
{
    static const uint64_t edges[] = {
        0, 1, 4095, 4096, 4097, MIB - 1, MIB, MIB + 1, 2 * MIB, 4 * MIB - 1, 4 * MIB, 4 * MIB + 1,
    };
    uint64_t size = edges[rnd_below(r, ARRAY_LEN(edges))];
    if (rnd_below(r, 2) == 0)
        size = rnd_below(r, rnd_below(r, 2) == 0 ? size_max : 64 * KIB);
    return u64_min(size, size_max);
}

struct segment *tree_random(struct rnd *r, uint32_t files, uint64_t size_max)
{
    enum { RANGES = 512, PATH = 32 };
    char(*paths)[PATH] = calloc(files, PATH);
    struct range(*data)[RANGES] = calloc(files, sizeof(*data));
    struct entry *entries = calloc(files, sizeof(*entries));
    must(paths != NULL && data != NULL && entries != NULL, "no memory");
    for (uint32_t i = 0; i < files; i++) {
        snprintf(paths[i], PATH, "d%u/%u", (unsigned)rnd_below(r, 9), i);
        uint64_t size = random_size(r, size_max);
        uint64_t kind = rnd_below(r, 16);
        if (kind == 0) {
            entries[i] = tree_dir(paths[i]);
        } else if (kind == 1) {
            entries[i] = tree_link(paths[i], "../elsewhere");
        } else if (kind < 9) {
            entries[i] = tree_file(paths[i], size);
        } else {
            uint32_t count = tree_data(r, size, 1 + rnd_below(r, kind < 12 ? 4 : 600), data[i], RANGES);
            entries[i] = tree_sparse(paths[i], size, data[i], count);
        }
    }
    struct segment *s = tree_segment(rnd_below(r, 100), entries, files);
    free(paths);
    free(data);
    free(entries);
    return s;
}

struct need *tree_need_random(struct rnd *r, const struct segment *segment)
{
    struct need *n = need_new(segment->number, segment->entry_count);
    must(n != NULL, "no memory");
    for (uint32_t i = 0; i < segment->entry_count; i++) {
        const struct entry *e = &segment->entries[i];
        struct range leaves[64];
        uint64_t pick = entry_data_bytes(e) == 0 ? 0 : rnd_below(r, 4);
        uint32_t count = 0;
        if (pick >= 2 && e->size > PACKED_FILE_BYTES_MAX)
            count = tree_ranges(r, u64_div_up(e->size, LEAF_BYTES), 1 + rnd_below(r, 6), leaves, 64);
        enum need_verdict verdict = count > 0 ? NEED_LEAVES : pick > 0 ? NEED_ALL : NEED_NOTHING;
        must(need_set(n, i, verdict, leaves, count) == 0, "need_set");
    }
    return n;
}

struct need *tree_need_all(const struct segment *segment)
{
    struct need *n = need_new(segment->number, segment->entry_count);
    must(n != NULL, "no memory");
    for (uint32_t i = 0; i < segment->entry_count; i++)
        if (entry_data_bytes(&segment->entries[i]) > 0)
            must(need_set(n, i, NEED_ALL, NULL, 0) == 0, "need_set");
    return n;
}

struct layout *tree_layout(const struct segment *segment, const struct need *need, uint32_t stripe_bytes)
{
    struct layout *l = NULL;
    must(layout_new(segment, need, stripe_bytes, &l) == 0, "no layout");
    return l;
}
