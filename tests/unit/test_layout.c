// The line: stripes and extents cover the needed data once and nothing else, and both ends agree on it.
#include <CUnit/CUnit.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/tree.h"

static const uint32_t stripe_sizes[] = {MIB, 2 * MIB, 4 * MIB, 8 * MIB, 16 * MIB};

// A stripe with room for its extents; several may be alive, so they live on the heap.
struct shown {
    struct stripe stripe;
    struct extent extents[STRIPE_EXTENTS_MAX];
};

static struct shown *show_new(void)
{
    struct shown *s = malloc(sizeof(*s));
    CU_ASSERT_PTR_NOT_NULL_FATAL(s);
    return s;
}

static void show(const struct layout *l, uint64_t number, struct shown *s)
{
    memset(s, 0x5a, sizeof(*s));
    layout_stripe(l, number, &s->stripe, s->extents);
}

// One block of memory per block of a file: how often the layout covers it.
struct cover {
    uint8_t *wanted; // 1 where data is needed
    uint8_t *seen;
};

static void mark(uint8_t *map, uint64_t size, uint64_t offset, uint64_t len)
{
    CU_ASSERT_EQUAL(offset % BLOCK_BYTES, 0);
    CU_ASSERT_TRUE(len > 0 && offset + len <= size);
    CU_ASSERT_TRUE(len % BLOCK_BYTES == 0 || offset + len == size);
    for (uint64_t b = offset / BLOCK_BYTES; b < u64_div_up(offset + len, BLOCK_BYTES); b++)
        map[b]++;
}

static bool in_ranges(const struct range *ranges, uint32_t count, uint64_t x)
{
    for (uint32_t i = 0; i < count; i++)
        if (x >= ranges[i].offset && x - ranges[i].offset < ranges[i].len)
            return true;
    return false;
}

// Whether the byte is to be sent, straight from the definition.
static bool is_wanted(const struct entry *e, const struct entry_need *n, uint64_t byte)
{
    if (n->verdict == NEED_NOTHING)
        return false;
    if (e->size <= PACKED_FILE_BYTES_MAX)
        return true; // packed: holes too
    if (n->verdict == NEED_LEAVES && !in_ranges(n->leaves, n->count, byte / LEAF_BYTES))
        return false;
    return !e->sparse || in_ranges(e->data, e->data_count, byte);
}

static struct cover *cover_new(const struct segment *s, const struct need *n)
{
    struct cover *c = calloc(s->entry_count + 1, sizeof(*c));
    CU_ASSERT_PTR_NOT_NULL_FATAL(c);
    for (uint32_t i = 0; i < s->entry_count; i++) {
        uint64_t blocks = u64_div_up(s->entries[i].size, BLOCK_BYTES);
        c[i].wanted = calloc(blocks + 1, 1);
        c[i].seen = calloc(blocks + 1, 1);
        CU_ASSERT_FATAL(c[i].wanted != NULL && c[i].seen != NULL);
        for (uint64_t b = 0; b < blocks; b++)
            c[i].wanted[b] = is_wanted(&s->entries[i], &n->entries[i], b * BLOCK_BYTES);
    }
    return c;
}

// Everything that is wanted was seen once, and nothing else was.
static void cover_end(struct cover *c, const struct segment *s)
{
    for (uint32_t i = 0; i < s->entry_count; i++) {
        uint64_t blocks = u64_div_up(s->entries[i].size, BLOCK_BYTES);
        CU_ASSERT_EQUAL(memcmp(c[i].wanted, c[i].seen, blocks), 0);
        free(c[i].wanted);
        free(c[i].seen);
    }
    free(c);
}

// What is true of every large stripe.
static void check_large(const struct layout *l, const struct shown *s)
{
    const struct entry *e = &layout_segment(l)->entries[s->stripe.entry];
    uint64_t start = s->stripe.file_stripe * layout_stripe_bytes(l), behind = 0;
    CU_ASSERT_TRUE(e->size > PACKED_FILE_BYTES_MAX);
    for (uint32_t i = 0; i < s->stripe.extent_count; i++) {
        const struct extent *x = &s->extents[i];
        CU_ASSERT_EQUAL(x->entry, s->stripe.entry);
        CU_ASSERT_TRUE(x->offset >= start && x->offset - start + x->len <= layout_stripe_bytes(l));
        CU_ASSERT_TRUE(i == 0 || x->offset > behind); // as long as can be: no two touch
        behind = x->offset + x->len;
    }
}

// What is true of every packed stripe; `before` is the stripe before it in the layout, or NULL.
static void check_packed(const struct layout *l, const struct shown *s, const struct shown *before)
{
    const struct entry *entries = layout_segment(l)->entries;
    CU_ASSERT_TRUE(s->stripe.extent_count <= PACKED_EXTENTS_MAX);
    CU_ASSERT_EQUAL(s->stripe.entry, s->extents[0].entry);
    CU_ASSERT_EQUAL(s->stripe.leaf_count, s->stripe.extent_count);
    for (uint32_t i = 0; i < s->stripe.extent_count; i++) {
        const struct extent *x = &s->extents[i];
        CU_ASSERT_EQUAL(x->offset, 0);
        CU_ASSERT_EQUAL(x->len, entries[x->entry].size);
        CU_ASSERT_TRUE(i == 0 || x->entry > x[-1].entry);
    }
    if (before == NULL || !before->stripe.packed)
        return;
    CU_ASSERT_TRUE(before->extents[before->stripe.extent_count - 1].entry < s->extents[0].entry);
    // Only a file that did not fit any more begins a new stripe.
    CU_ASSERT_TRUE(before->stripe.extent_count == PACKED_EXTENTS_MAX ||
                   before->stripe.body_bytes + s->extents[0].len > layout_stripe_bytes(l));
}

// The leaves are the ones that the extents touch, each once and in order.
static void check_leaves(const struct layout *l, const struct shown *s)
{
    static const struct leaf_span none = {0};
    const struct entry *entries = layout_segment(l)->entries;
    struct leaf_span spans[STRIPE_LEAVES_MAX];
    CU_ASSERT_FATAL(s->stripe.leaf_count > 0 && s->stripe.leaf_count <= STRIPE_LEAVES_MAX);
    layout_leaves(l, &s->stripe, s->extents, spans);
    uint32_t at = 0; // extents before it are done with
    for (uint32_t i = 0; i < s->stripe.leaf_count; i++) {
        const struct leaf_span *leaf = &spans[i], *before = i > 0 ? &spans[i - 1] : &none;
        uint64_t start = leaf->leaf * LEAF_BYTES, end = start + leaf->len;
        CU_ASSERT_TRUE(i == 0 || leaf->entry > before->entry || leaf->leaf > before->leaf);
        CU_ASSERT_EQUAL(end, u64_min(start + LEAF_BYTES, entries[leaf->entry].size));
        CU_ASSERT_TRUE_FATAL(at < s->stripe.extent_count);
        CU_ASSERT_EQUAL(s->extents[at].entry, leaf->entry);
        CU_ASSERT_TRUE(s->extents[at].offset < end && s->extents[at].offset + s->extents[at].len > start);
        while (at < s->stripe.extent_count && s->extents[at].entry == leaf->entry &&
               s->extents[at].offset + s->extents[at].len <= end)
            at++;
    }
    CU_ASSERT_EQUAL(at, s->stripe.extent_count);
}

// Stripe `s` comes where it belongs: behind `before`, and within what is said of its entry.
static void check_place(const struct layout *l, const struct shown *s, const struct shown *before)
{
    uint64_t first = 0;
    uint64_t count = layout_entry_stripes(l, s->stripe.entry, &first);
    CU_ASSERT_TRUE(s->stripe.number >= first && s->stripe.number - first < count);
    if (before == NULL)
        return;
    CU_ASSERT_FALSE(before->stripe.packed && !s->stripe.packed);
    if (before->stripe.packed == s->stripe.packed)
        CU_ASSERT_TRUE(
            before->stripe.entry < s->stripe.entry ||
            (before->stripe.entry == s->stripe.entry && before->stripe.file_stripe < s->stripe.file_stripe));
}

// Walks all stripes and holds them against the definition.
static void check_layout(const struct layout *l, const struct need *need)
{
    const struct segment *segment = layout_segment(l);
    struct cover *cover = cover_new(segment, need);
    struct shown *s = show_new(), *before = show_new();
    uint64_t bytes = 0;
    for (uint64_t i = 0; i < layout_count(l); i++) {
        show(l, layout_first(l) + i, s);
        CU_ASSERT_EQUAL(s->stripe.number, layout_first(l) + i);
        CU_ASSERT_TRUE_FATAL(s->stripe.extent_count > 0 && s->stripe.extent_count <= STRIPE_EXTENTS_MAX);
        CU_ASSERT_TRUE(s->stripe.body_bytes <= layout_stripe_bytes(l));
        uint64_t body = 0;
        for (uint32_t k = 0; k < s->stripe.extent_count; k++) {
            const struct extent *x = &s->extents[k];
            mark(cover[x->entry].seen, segment->entries[x->entry].size, x->offset, x->len);
            body += x->len;
        }
        CU_ASSERT_EQUAL(body, s->stripe.body_bytes);
        bytes += body;
        check_place(l, s, i > 0 ? before : NULL);
        if (s->stripe.packed)
            check_packed(l, s, i > 0 ? before : NULL);
        else
            check_large(l, s);
        check_leaves(l, s);
        struct shown *swap = before;
        before = s;
        s = swap;
    }
    CU_ASSERT_EQUAL(bytes, layout_bytes(l));
    cover_end(cover, segment);
    free(s);
    free(before);
}

static void test_random(void)
{
    struct rnd r = rnd_begin("layout random");
    for (int round = 0; round < 60; round++) {
        struct segment *s = tree_random(&r, (uint32_t)rnd_below(&r, 40), 24 * MIB);
        struct need *n = round % 4 == 0 ? tree_need_all(s) : tree_need_random(&r, s);
        struct layout *l = tree_layout(s, n, stripe_sizes[rnd_below(&r, ARRAY_LEN(stripe_sizes))]);
        CU_ASSERT_EQUAL(layout_place(l, rnd_next(&r) >> 1), 0);
        check_layout(l, n);
        layout_free(l);
        need_free(n);
        segment_free(s);
    }
}

// What layout_entry_stripes says of an entry is what a walk over all stripes finds.
static void check_entry_stripes(const struct layout *l, uint32_t entry)
{
    struct shown *s = show_new();
    uint64_t seen = 0, seen_first = 0;
    for (uint64_t i = 0; i < layout_count(l); i++) {
        show(l, layout_first(l) + i, s);
        bool here = false;
        for (uint32_t k = 0; k < s->stripe.extent_count; k++)
            here = here || s->extents[k].entry == entry;
        if (here && seen++ == 0)
            seen_first = s->stripe.number;
    }
    uint64_t first = 4711;
    CU_ASSERT_EQUAL(layout_entry_stripes(l, entry, &first), seen);
    CU_ASSERT_EQUAL(first, seen > 0 ? seen_first : 4711);
    free(s);
}

static void test_entry_stripes(void)
{
    struct rnd r = rnd_begin("layout entry_stripes");
    for (int round = 0; round < 12; round++) {
        struct segment *s = tree_random(&r, 30, 12 * MIB);
        struct need *n = tree_need_random(&r, s);
        struct layout *l = tree_layout(s, n, MIB);
        CU_ASSERT_EQUAL(layout_place(l, 1000), 0);
        for (uint32_t i = 0; i < s->entry_count; i++)
            check_entry_stripes(l, i);
        layout_free(l);
        need_free(n);
        segment_free(s);
    }
}

// Block, hole, block, hole: no stripe has more extents, and this one has as many as there can be.
static void test_worst_sparse(void)
{
    enum { WORST = STRIPE_BYTES_MAX / (2 * BLOCK_BYTES) };
    _Static_assert((int)WORST <= (int)STRIPE_EXTENTS_MAX, "the limit holds");
    struct range *data = calloc(ENTRY_RANGES_MAX, sizeof(*data));
    CU_ASSERT_PTR_NOT_NULL_FATAL(data);
    for (int odd = 0; odd < 2; odd++) {
        for (uint64_t i = 0; i < ENTRY_RANGES_MAX; i++)
            data[i] = (struct range){(2 * i + (uint64_t)odd) * BLOCK_BYTES, BLOCK_BYTES};
        const struct entry e =
            tree_sparse("f", (2 * ENTRY_RANGES_MAX + 1) * (uint64_t)BLOCK_BYTES, data, ENTRY_RANGES_MAX);
        struct segment *s = tree_segment(0, &e, 1);
        struct need *n = tree_need_all(s);
        struct layout *l = tree_layout(s, n, STRIPE_BYTES_MAX);
        CU_ASSERT_EQUAL(layout_count(l), ENTRY_RANGES_MAX / WORST);
        struct shown *shown = show_new();
        for (uint64_t i = 0; i < layout_count(l); i++) {
            show(l, i, shown);
            CU_ASSERT_EQUAL(shown->stripe.extent_count, WORST);
        }
        check_layout(l, n);
        free(shown);
        layout_free(l);
        need_free(n);
        segment_free(s);
    }
    free(data);
}

// `count` files of `size` bytes each fill `full` packed stripes.
static void check_packing(uint32_t count, uint64_t size, uint32_t stripe_bytes, uint64_t stripes)
{
    struct entry *entries = calloc(count, sizeof(*entries));
    char(*paths)[16] = calloc(count, sizeof(*paths));
    CU_ASSERT_FATAL(entries != NULL && paths != NULL);
    for (uint32_t i = 0; i < count; i++) {
        snprintf(paths[i], sizeof(paths[i]), "%u", i);
        entries[i] = tree_file(paths[i], size);
    }
    struct segment *s = tree_segment(0, entries, count);
    struct need *n = tree_need_all(s);
    struct layout *l = tree_layout(s, n, stripe_bytes);
    CU_ASSERT_EQUAL(layout_count(l), stripes);
    check_layout(l, n);
    layout_free(l);
    need_free(n);
    segment_free(s);
    free(entries);
    free(paths);
}

static void test_packed(void)
{
    check_packing(PACKED_EXTENTS_MAX, 1, MIB, 1);
    check_packing(PACKED_EXTENTS_MAX + 1, 1, MIB, 2);
    check_packing(PACKED_EXTENTS_MAX, 1024, MIB, 1); // both limits at once
    check_packing(PACKED_EXTENTS_MAX, 1025, MIB, 2);
    check_packing(SEGMENT_ENTRIES_MAX, 1, STRIPE_BYTES_MAX, 4);
    check_packing(3, MIB, MIB, 3);
    check_packing(16, MIB, STRIPE_BYTES_MAX, 1);
    check_packing(17, MIB, STRIPE_BYTES_MAX, 2);
    check_packing(3, MIB / 2 + 1, MIB, 3);
    check_packing(4, MIB / 2, MIB, 2);
    check_packing(100, 0, MIB, 0);
}

// A packed file with holes goes whole; one that is all hole, or a large one, does not.
static void test_holes(void)
{
    static const struct range data[] = {{4096, 4096}}, far[] = {{9 * MIB, 4096}};
    const struct entry entries[] = {
        tree_sparse("holes", MIB, data, 1),
        tree_sparse("hollow", MIB, NULL, 0),
        tree_dir("dir"),
        tree_sparse("large", 64 * MIB, far, 1),
        tree_link("link", "dir"),
        tree_file("empty", 0),
        tree_sparse("large hollow", FILE_BYTES_MAX, NULL, 0),
    };
    struct segment *s = tree_segment(0, entries, ARRAY_LEN(entries));
    struct need *n = tree_need_all(s);
    struct layout *l = tree_layout(s, n, MIB);
    struct shown *shown = show_new();
    CU_ASSERT_EQUAL_FATAL(layout_count(l), 2);
    CU_ASSERT_EQUAL(layout_bytes(l), MIB + 4096);
    show(l, 0, shown); // the large one first, and of it only the stripe with data
    CU_ASSERT_TRUE(!shown->stripe.packed && shown->stripe.entry == 3 && shown->stripe.file_stripe == 9);
    CU_ASSERT_TRUE(shown->stripe.extent_count == 1 && shown->extents[0].offset == 9 * MIB);
    show(l, 1, shown);
    CU_ASSERT_TRUE(shown->stripe.packed && shown->stripe.entry == 0 && shown->extents[0].len == MIB);
    // Needed leaves that are all hole: no stripe either.
    static const struct range hole[] = {{0, 9}, {10, 54}};
    CU_ASSERT_EQUAL(need_set(n, 3, NEED_LEAVES, hole, 2), 0);
    CU_ASSERT_EQUAL(need_set(n, 0, NEED_NOTHING, NULL, 0), 0);
    struct layout *nothing = tree_layout(s, n, MIB);
    CU_ASSERT_EQUAL(layout_count(nothing), 0);
    CU_ASSERT_EQUAL(layout_bytes(nothing), 0);
    layout_free(nothing);
    free(shown);
    layout_free(l);
    need_free(n);
    segment_free(s);
}

void suite_layout(void)
{
    CU_pSuite s = CU_add_suite("layout", NULL, NULL);
    CU_add_test(s, "random", test_random);
    CU_add_test(s, "entry_stripes", test_entry_stripes);
    CU_add_test(s, "worst_sparse", test_worst_sparse);
    CU_add_test(s, "packed", test_packed);
    CU_add_test(s, "holes", test_holes);
}
