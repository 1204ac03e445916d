// What tests/peer.py, a second implementation, makes of segments and needs: the same bytes, the same stripes.
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <CUnit/CUnit.h>

#include "proto/layout.h"
#include "tests/unit/vectors.h"

static struct segment *segment_of(const struct vector_case *c)
{
    struct vector_bytes b = vector_bytes(c, "segment");
    struct segment *s = NULL;
    CU_ASSERT_EQUAL_FATAL(segment_decode(b.bytes, b.len, &s), 0);
    free(b.bytes);
    return s;
}

static bool bytes_follow(const char **words, const uint8_t *bytes, size_t len)
{
    struct vector_bytes b = vector_hex(words);
    bool same = b.len == len && (len == 0 || memcmp(b.bytes, bytes, len) == 0);
    free(b.bytes);
    return same;
}

static void check_ranges(const char *words, const struct entry *e)
{
    CU_ASSERT_EQUAL(e->sparse, *words != '-');
    uint32_t count = 0;
    if (e->sparse && strcmp(words, "none") != 0) {
        for (; *words != '\0' && count < e->data_count; count++) {
            CU_ASSERT_EQUAL(vector_next(&words), e->data[count].offset);
            CU_ASSERT_EQUAL(vector_next(&words), e->data[count].len);
        }
        CU_ASSERT_EQUAL(*words, '\0');
    }
    CU_ASSERT_EQUAL(count, e->data_count);
}

static void check_entry(const char *words, const struct entry *e)
{
    CU_ASSERT_EQUAL(vector_next(&words), e->type);
    CU_ASSERT_EQUAL(vector_next(&words), e->root);
    CU_ASSERT_EQUAL(vector_next(&words), e->mode);
    CU_ASSERT_EQUAL(vector_next(&words), e->uid);
    CU_ASSERT_EQUAL(vector_next(&words), e->gid);
    CU_ASSERT_EQUAL(vector_next(&words), e->size);
    CU_ASSERT_EQUAL((int64_t)vector_next(&words), e->mtime.s);
    CU_ASSERT_EQUAL(vector_next(&words), e->mtime.ns);
    CU_ASSERT_EQUAL((int64_t)vector_next(&words), e->ctime.s);
    CU_ASSERT_EQUAL(vector_next(&words), e->ctime.ns);
    CU_ASSERT_EQUAL(vector_next(&words), e->inode);
    CU_ASSERT(bytes_follow(&words, e->path, e->path_len));
    CU_ASSERT(bytes_follow(&words, e->target, e->target_len));
    check_ranges(words, e);
}

static void check_segment(const struct vector_case *c, const struct segment *s)
{
    struct segment_builder *b = segment_builder_new();
    size_t len = 0;
    CU_ASSERT_PTR_NOT_NULL_FATAL(b);
    CU_ASSERT_EQUAL(s->number, vector_number(c, "number"));
    CU_ASSERT_EQUAL(s->last, vector_number(c, "last") == 1);
    CU_ASSERT(vector_is(c, "digest", s->digest.bytes, sizeof(s->digest.bytes)));
    CU_ASSERT_PTR_NULL(vector_words(c, "entry", s->entry_count));
    segment_builder_begin(b, s->number);
    for (uint32_t i = 0; i < s->entry_count; i++) {
        const char *words = vector_words(c, "entry", i);
        CU_ASSERT_PTR_NOT_NULL_FATAL(words);
        check_entry(words, &s->entries[i]);
        CU_ASSERT_EQUAL(segment_builder_add(b, &s->entries[i]), 0);
    }
    const uint8_t *bytes = segment_builder_end(b, s->last, &len);
    CU_ASSERT(vector_is(c, "segment", bytes, len));
    segment_builder_free(b);
}

static struct need *need_of(const struct vector_case *c, const struct segment *s)
{
    struct vector_bytes b = vector_bytes(c, "need");
    struct need *n = NULL;
    CU_ASSERT_EQUAL_FATAL(need_decode(b.bytes, b.len, s, &n), 0);
    uint8_t *again = malloc(b.len);
    CU_ASSERT_PTR_NOT_NULL_FATAL(again);
    CU_ASSERT_EQUAL(need_encode(n, again, b.len), (int64_t)b.len);
    CU_ASSERT_EQUAL(memcmp(again, b.bytes, b.len), 0);
    free(again);
    free(b.bytes);
    return n;
}

// A body of which byte i is (7 i + 13 floor(i / 256)) mod 256: its leaves, and the digest over them.
static struct digest stripe_digest(const struct layout *l, const struct stripe *st,
                                   const struct extent *extents)
{
    uint8_t *body = malloc(st->body_bytes);
    struct digest leaves[STRIPE_LEAVES_MAX];
    struct digest_stream *scratch = digest_stream_new();
    CU_ASSERT_FATAL(body != NULL && scratch != NULL);
    for (uint32_t i = 0; i < st->body_bytes; i++)
        body[i] = (uint8_t)(7 * i + 13 * (i / 256));
    layout_digest_body(l, st, extents, body, scratch, leaves);
    digest_stream_free(scratch);
    free(body);
    return digest_of(leaves, st->leaf_count * sizeof(leaves[0]));
}

static void check_stripe(const char *words, const struct layout *l, uint64_t number)
{
    struct stripe st;
    struct extent extents[STRIPE_EXTENTS_MAX];
    struct leaf_span spans[STRIPE_LEAVES_MAX];
    layout_stripe(l, number, &st, extents);
    layout_leaves(l, &st, extents, spans);
    CU_ASSERT_EQUAL(st.number, number);
    CU_ASSERT_EQUAL(vector_next(&words), st.packed);
    uint64_t k = vector_next(&words);
    CU_ASSERT(st.packed || st.file_stripe == k);
    uint32_t body = 0;
    for (uint32_t i = 0; i < st.extent_count; i++) {
        CU_ASSERT_EQUAL(vector_next(&words), extents[i].entry);
        CU_ASSERT_EQUAL(vector_next(&words), extents[i].offset);
        CU_ASSERT_EQUAL(vector_next(&words), extents[i].len);
        body += extents[i].len;
    }
    CU_ASSERT_EQUAL_FATAL(words[-1], ' '); // the extents end here
    CU_ASSERT_EQUAL(body, st.body_bytes);
    for (uint32_t i = 0; i < st.leaf_count; i++) {
        CU_ASSERT_EQUAL(vector_next(&words), spans[i].entry);
        CU_ASSERT_EQUAL(vector_next(&words), spans[i].leaf);
        CU_ASSERT_EQUAL(vector_next(&words), spans[i].len);
    }
    CU_ASSERT_EQUAL_FATAL(words[-1], ' ');
    struct digest digest = stripe_digest(l, &st, extents);
    CU_ASSERT(bytes_follow(&words, digest.bytes, sizeof(digest.bytes)));
}

static void check_layout(const struct vector_case *c)
{
    const uint64_t first = 1000;
    struct segment *s = segment_of(c);
    check_segment(c, s);
    struct need *n = need_of(c, s);
    struct layout *l = NULL;
    CU_ASSERT_EQUAL_FATAL(layout_new(s, n, (uint32_t)vector_number(c, "stripe_bytes"), &l), 0);
    CU_ASSERT_EQUAL(layout_count(l), vector_number(c, "stripes"));
    CU_ASSERT_EQUAL(layout_bytes(l), vector_number(c, "bytes"));
    struct digest digest = layout_digest(l);
    CU_ASSERT(vector_is(c, "layout", digest.bytes, sizeof(digest.bytes)));
    CU_ASSERT_EQUAL(layout_place(l, first), 0);
    for (uint64_t i = 0; i < layout_count(l); i++) {
        const char *words = vector_words(c, "stripe", i);
        CU_ASSERT_PTR_NOT_NULL_FATAL(words);
        check_stripe(words, l, first + i);
    }
    CU_ASSERT_PTR_NULL(vector_words(c, "stripe", layout_count(l)));
    layout_free(l);
    need_free(n);
    segment_free(s);
}

static void check_bad_segment(const struct vector_case *c)
{
    struct vector_bytes b = vector_bytes(c, "segment");
    struct segment *s = NULL;
    CU_ASSERT(segment_decode(b.bytes, b.len, &s) < 0);
    free(b.bytes);
}

static void check_bad_need(const struct vector_case *c)
{
    struct segment *s = segment_of(c);
    struct vector_bytes b = vector_bytes(c, "need");
    struct need *n = NULL;
    CU_ASSERT(need_decode(b.bytes, b.len, s, &n) < 0);
    free(b.bytes);
    segment_free(s);
}

static void test_layouts(void)
{
    static const struct vector_check checks[] = {
        {"layout", check_layout}, {"bad-segment", check_bad_segment}, {"bad-need", check_bad_need}};
    vectors_run("manifest.txt", checks, ARRAY_LEN(checks));
}

void suite_vectors_layout(void)
{
    CU_pSuite suite = CU_add_suite("vectors_layout", NULL, NULL);
    CU_add_test(suite, "layouts", test_layouts);
}
