// The journal: what is remembered, over runs, and what is forgotten.
#include "tests/unit/journal_kit.h"

// A sanitizer would rather abort than say that there is no memory, which is asked for here.
const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
    return "allocator_may_return_null=1";
}
const char *__tsan_default_options(void);
const char *__tsan_default_options(void)
{
    return "allocator_may_return_null=1";
}

static void test_empty(void)
{
    struct scratch s = scratch_begin();
    uint32_t open_before = scratch_open_files();
    scratch_file(s.fd, "victim", "whole");
    scratch_link(s.fd, "journal.new", "victim"); // a run before was cut off, or somebody is up to something
    struct job_id job = kit_job(7);
    struct journal *j;
    bool damaged = true;
    CU_ASSERT_EQUAL_FATAL(journal_open(s.fd, &job, &j, &damaged), 0);
    CU_ASSERT_FALSE(damaged);
    struct image image = image_read(s.fd);
    struct record_header header;
    struct record_chain chain;
    CU_ASSERT_EQUAL(image.len, RECORD_HEADER_BYTES);
    CU_ASSERT_EQUAL(record_header_decode(image.bytes, RECORD_JOURNAL, 1, &header, &chain), 0);
    CU_ASSERT_EQUAL(memcmp(&header.job, &job, sizeof(job)), 0);
    struct stat st;
    CU_ASSERT_EQUAL(fstatat(s.fd, "journal", &st, AT_SYMLINK_NOFOLLOW), 0);
    CU_ASSERT_EQUAL(st.st_mode, S_IFREG | 0600);
    CU_ASSERT_EQUAL(fstatat(s.fd, "victim", &st, 0), 0);
    CU_ASSERT_EQUAL(st.st_size, 5);
    CU_ASSERT_NOT_EQUAL(fstatat(s.fd, "journal.new", &st, AT_SYMLINK_NOFOLLOW), 0);
    CU_ASSERT_EQUAL(journal_sync(j), 0);
    struct entry e = kit_large("a");
    CU_ASSERT_PTR_NULL(journal_find(j, &e));
    journal_close(j);
    journal_close(NULL);
    free(image.bytes);
    CU_ASSERT_EQUAL(scratch_open_files(), open_before);
    scratch_end(&s);
}

// Ranges as they come, and what is held then: in memory, and after a new start.
static void test_merge(void)
{
    static const struct {
        struct range in[6];
        struct range held[3];
    } table[] = {
        {{{0, 1}}, {{0, 1}}},
        {{{0, 4}, {4, 4}}, {{0, 8}}}, // adjacent
        {{{4, 4}, {0, 4}}, {{0, 8}}}, // and the other way round
        {{{8, 2}, {0, 2}, {4, 2}}, {{0, 2}, {4, 2}, {8, 2}}},
        {{{8, 2}, {0, 2}, {2, 6}}, {{0, 10}}}, // fills the gap
        {{{3, 3}, {3, 3}, {3, 3}}, {{3, 3}}},  // twice
        {{{3, 6}, {4, 2}}, {{3, 6}}},          // inside
        {{{4, 2}, {3, 6}}, {{3, 6}}},          // around
        {{{0, 4}, {2, 4}}, {{0, 6}}},          // overlaps behind
        {{{2, 4}, {0, 4}}, {{0, 6}}},          // overlaps before
        {{{0, 1}, {2, 1}, {4, 1}, {6, 1}, {8, 1}, {1, 7}}, {{0, 9}}},
        {{{10, 1}, {39, 1}, {0, 40}}, {{0, 40}}},
        {{{5, 1}, {7, 1}, {6, 1}}, {{5, 3}}},
        {{{39, 1}, {0, 1}}, {{0, 1}, {39, 1}}},
    };
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        struct scratch s = scratch_begin();
        struct entry e = kit_large("f");
        struct journal *j = kit_journal_whole(s.fd);
        for (size_t k = 0; k < 6 && table[i].in[k].len > 0; k++)
            kit_durable(j, &e, table[i].in[k].offset, (uint32_t)table[i].in[k].len, 5);
        for (int again = 0; again < 2; again++) {
            uint32_t count = 0, want = 0;
            const struct range *held = journal_held(journal_find(j, &e), &count);
            while (want < 3 && table[i].held[want].len > 0)
                want++;
            CU_ASSERT_EQUAL(count, want);
            CU_ASSERT_EQUAL(memcmp(held, table[i].held, u64_min(count, want) * sizeof(*held)), 0);
            CU_ASSERT_EQUAL(journal_sync(j), 0);
            journal_close(j);
            j = kit_journal_whole(s.fd);
        }
        journal_close(j);
        scratch_end(&s);
    }
}

static void test_merge_random(void)
{
    struct scratch s = scratch_begin();
    struct rnd r = rnd_begin("journal");
    struct model m = {0};
    struct journal *j = kit_journal_whole(s.fd);
    for (int round = 0; round < 600; round++) {
        unsigned file = (unsigned)rnd_below(&r, MODEL_FILES), first = (unsigned)rnd_below(&r, MODEL_LEAVES);
        unsigned count = 1 + (unsigned)rnd_below(&r, u64_min(MODEL_LEAVES - first, 6));
        if (rnd_below(&r, 30) == 0)
            model_gone(&m, j, file);
        else
            model_durable(&m, j, file, first, count, (uint8_t)(1 + rnd_below(&r, 255)));
        CU_ASSERT_TRUE(model_is(&m, j));
        if (round % 50 != 49)
            continue;
        CU_ASSERT_EQUAL(journal_sync(j), 0);
        journal_close(j);
        j = kit_journal_whole(s.fd);
        CU_ASSERT_TRUE(model_is(&m, j));
    }
    journal_close(j);
    scratch_end(&s);
}

// What was not synced is not promised; what was is, and a file given up stays so.
static void test_sync(void)
{
    struct scratch s = scratch_begin();
    struct model m = {0}, synced;
    struct journal *j = kit_journal_whole(s.fd);
    model_durable(&m, j, 0, 3, 4, 9);
    model_durable(&m, j, 1, 0, 40, 8);
    struct image before = image_read(s.fd);
    CU_ASSERT_EQUAL(before.len, RECORD_HEADER_BYTES); // buffered
    CU_ASSERT_EQUAL(journal_sync(j), 0);
    synced = m;
    model_durable(&m, j, 2, 1, 1, 7);
    model_gone(&m, j, 0);
    CU_ASSERT_TRUE(model_is(&m, j));
    journal_close(j);
    j = kit_journal_whole(s.fd);
    CU_ASSERT_TRUE(model_is(&synced, j));
    m = synced;
    model_gone(&m, j, 0);
    CU_ASSERT_EQUAL(journal_sync(j), 0);
    CU_ASSERT_EQUAL(journal_sync(j), 0);
    journal_close(j);
    j = kit_journal_whole(s.fd);
    CU_ASSERT_TRUE(model_is(&m, j));
    model_durable(&m, j, 0, 39, 1, 3); // and may begin anew
    CU_ASSERT_EQUAL(journal_sync(j), 0);
    journal_close(j);
    j = kit_journal_whole(s.fd);
    CU_ASSERT_TRUE(model_is(&m, j));
    journal_close(j);
    free(before.bytes);
    scratch_end(&s);
}

struct stale {
    unsigned count;
    char last[64];
    uint64_t size_sum;
};

static void note_stale(void *arg, const struct entry *e)
{
    struct stale *stale = arg;
    stale->count++;
    stale->size_sum += e->size + e->mtime.ns + (uint64_t)e->ctime.s + e->inode;
    snprintf(stale->last, sizeof(stale->last), "%.*s", (int)e->path_len, (const char *)e->path);
}

// The same path in another version knows nothing of the old one, whatever it is that differs.
static void test_version(void)
{
    for (int what = 0; what < 6; what++) {
        struct scratch s = scratch_begin();
        struct entry old = kit_large("f"), new = old, sibling = kit_large("g");
        new.size += what == 0;
        new.mtime.s += what == 1;
        new.mtime.ns += what == 2;
        new.ctime.s += what == 3;
        new.ctime.ns -= what == 4;
        new.inode += what == 5;
        struct journal *j = kit_journal_whole(s.fd);
        kit_durable(j, &old, 0, 10, 5);
        kit_durable(j, &sibling, 0, 1, 5);
        CU_ASSERT_EQUAL(journal_sync(j), 0);
        journal_close(j);
        j = kit_journal_whole(s.fd);
        if (what % 2 == 0)
            CU_ASSERT_PTR_NULL(journal_find(j, &new));
        kit_durable(j, &new, 20, 1, 6);
        CU_ASSERT_PTR_NULL(journal_find(j, &old)); // which forgets the new one in turn
        kit_durable(j, &new, 21, 1, 6);
        CU_ASSERT_PTR_NOT_NULL(journal_find(j, &sibling));
        struct stale stale = {0};
        journal_each_stale(j, note_stale, &stale);
        CU_ASSERT_EQUAL(stale.count, 2);
        CU_ASSERT_STRING_EQUAL(stale.last, "f");
        CU_ASSERT_EQUAL(journal_sync(j), 0);
        journal_close(j);
        j = kit_journal_whole(s.fd);
        uint8_t want[MODEL_LEAVES] = {[21] = 6};
        CU_ASSERT_TRUE(kit_held_is(j, &new, want));
        CU_ASSERT_PTR_NULL(journal_find(j, &old));
        journal_close(j);
        scratch_end(&s);
    }
}

static void test_stale(void)
{
    struct scratch s = scratch_begin();
    struct model m = {0};
    struct journal *j = kit_journal_whole(s.fd);
    for (unsigned i = 0; i < MODEL_FILES; i++)
        model_durable(&m, j, i, i, 2, 9);
    struct stale stale = {0};
    journal_each_stale(j, note_stale, &stale);
    CU_ASSERT_EQUAL(stale.count, 0); // all of this run
    CU_ASSERT_EQUAL(journal_sync(j), 0);
    journal_close(j);
    j = kit_journal_whole(s.fd);
    struct entry found = model_entry(0), made = model_entry(1), last = model_entry(3);
    CU_ASSERT_PTR_NOT_NULL(journal_find(j, &found));
    kit_journal_file(j, &made);
    struct entry gone = model_entry(2);
    CU_ASSERT_EQUAL(journal_gone(j, kit_journal_file(j, &gone)), 0);
    journal_each_stale(j, note_stale, &stale);
    CU_ASSERT_EQUAL(stale.count, 2);
    CU_ASSERT_EQUAL(stale.size_sum, 2 * (last.size + last.mtime.ns + (uint64_t)last.ctime.s + last.inode));
    CU_ASSERT_TRUE(strcmp(stale.last, "d\n\xff") == 0 || strcmp(stale.last, "e") == 0);
    journal_each_stale(j, note_stale, &stale);
    CU_ASSERT_EQUAL(stale.count, 2);
    CU_ASSERT_PTR_NULL(journal_find(j, &last));
    CU_ASSERT_EQUAL(journal_sync(j), 0);
    journal_close(j);
    j = kit_journal_whole(s.fd);
    memset(m.leaves[2], 0, 3 * sizeof(m.leaves[2]));
    CU_ASSERT_TRUE(model_is(&m, j));
    journal_close(j);
    scratch_end(&s);
}

static void test_leaves(void)
{
    struct scratch s = scratch_begin();
    struct journal *j = kit_journal_whole(s.fd);
    struct entry e = kit_large("f");
    struct journal_file *f = kit_journal_file(j, &e);
    struct digest hole = kit_leaf(0xaa), zero = {{0}};
    uint32_t count = 1;
    CU_ASSERT_PTR_NULL(journal_leaves(f));
    (void)journal_held(f, &count);
    CU_ASSERT_EQUAL(count, 0);
    CU_ASSERT_EQUAL(journal_leaf_set(f, 39, &hole), 0);
    CU_ASSERT_PTR_NULL(journal_find(j, &e)); // nothing is held yet
    kit_durable(j, &e, 38, 1, 5);
    CU_ASSERT_TRUE(digest_equal(&journal_leaves(f)[39], &hole));
    CU_ASSERT_EQUAL(journal_leaves(f)[38].bytes[7], 5);
    CU_ASSERT_TRUE(digest_equal(&journal_leaves(f)[37], &zero));
    CU_ASSERT_EQUAL(journal_sync(j), 0);
    journal_close(j);
    j = kit_journal_whole(s.fd);
    f = journal_find(j, &e);
    CU_ASSERT_PTR_NOT_NULL_FATAL(f);
    CU_ASSERT_TRUE(digest_equal(&journal_leaves(f)[39], &zero)); // of memory only
    journal_close(j);
    scratch_end(&s);
}

// A file larger than is digested: refused, nothing is written of it, the others go on.
static void test_huge(void)
{
    struct scratch s = scratch_begin();
    struct journal *j = kit_journal_whole(s.fd);
    struct entry huge = tree_file("huge", DIGESTED_BYTES_MAX + 1), e = kit_large("f");
    struct digest leaf = kit_leaf(1);
    struct journal_file *f = kit_journal_file(j, &huge);
    int err = journal_durable(j, f, DIGESTED_BYTES_MAX / LEAF_BYTES, &leaf, 1);
    CU_ASSERT_EQUAL(err, -EFBIG);
    err = journal_leaf_set(f, 0, &leaf);
    CU_ASSERT_EQUAL(err, -EFBIG);
    CU_ASSERT_PTR_NULL(journal_find(j, &huge));
    kit_durable(j, &e, 3, 1, 7);
    CU_ASSERT_EQUAL(journal_gone(j, f), 0);
    CU_ASSERT_EQUAL(journal_sync(j), 0);
    journal_close(j);
    j = kit_journal_whole(s.fd);
    CU_ASSERT_PTR_NOT_NULL(journal_find(j, &e));
    CU_ASSERT_PTR_NULL(journal_find(j, &huge));
    journal_close(j);
    scratch_end(&s);
}

// More than a record, more than the buffer, more than the reader's window; the longest path.
static void test_long(void)
{
    enum { LEAVES = 200000 };
    struct scratch s = scratch_begin();
    char *path = malloc(PATH_BYTES_MAX);
    for (size_t i = 0; i < PATH_BYTES_MAX; i++)
        path[i] = i % 200 == 199 ? '/' : 'x';
    struct entry e = tree_file("", LEAVES * (uint64_t)LEAF_BYTES);
    e.path = (const uint8_t *)path;
    e.path_len = PATH_BYTES_MAX;
    struct digest *leaves = malloc(LEAVES * sizeof(*leaves));
    for (uint32_t i = 0; i < LEAVES; i++)
        leaves[i] = digest_of(&i, sizeof(i));
    struct journal *j = kit_journal_whole(s.fd);
    CU_ASSERT_EQUAL(journal_durable(j, kit_journal_file(j, &e), 1, leaves + 1, LEAVES - 1), 0);
    struct stat st;
    CU_ASSERT_TRUE(fstatat(s.fd, "journal", &st, 0) == 0 &&
                   st.st_size > 2 * MIB); // the buffer went out by itself
    CU_ASSERT_EQUAL(journal_sync(j), 0);
    journal_close(j);
    for (int again = 0; again < 2; again++) {
        j = kit_journal_whole(s.fd);
        const struct journal_file *f = journal_find(j, &e);
        CU_ASSERT_PTR_NOT_NULL_FATAL(f);
        uint32_t count = 0;
        const struct range *held = journal_held(f, &count);
        CU_ASSERT_TRUE(count == 1 && held[0].offset == 1 && held[0].len == LEAVES - 1);
        CU_ASSERT_EQUAL(memcmp(journal_leaves(f) + 1, leaves + 1, (LEAVES - 1) * sizeof(*leaves)), 0);
        journal_close(j);
    }
    free(leaves);
    free(path);
    scratch_end(&s);
}

static struct entry numbered(char path[32], unsigned i)
{
    snprintf(path, 32, "dir/%u", i);
    struct entry e = kit_large(path);
    e.inode = i;
    return e;
}

static void test_many(void)
{
    enum { FILES = 10000 };
    struct scratch s = scratch_begin();
    char path[32];
    struct journal *j = kit_journal_whole(s.fd);
    for (unsigned i = 0; i < FILES; i++) {
        struct entry e = numbered(path, i);
        kit_durable(j, &e, i % MODEL_LEAVES, 1, (uint8_t)(1 + i % 255));
    }
    CU_ASSERT_EQUAL(journal_sync(j), 0);
    struct image full = image_read(s.fd);
    journal_close(j);
    j = kit_journal_whole(s.fd);
    unsigned right = 0;
    for (unsigned i = 0; i < FILES; i++) {
        struct entry e = numbered(path, i);
        uint8_t want[MODEL_LEAVES] = {0};
        want[i % MODEL_LEAVES] = (uint8_t)(1 + i % 255);
        right += kit_held_is(j, &e, want);
        if (i % 100 != 0)
            CU_ASSERT_EQUAL(journal_gone(j, journal_find(j, &e)), 0);
    }
    CU_ASSERT_EQUAL(right, FILES);
    CU_ASSERT_EQUAL(journal_sync(j), 0);
    journal_close(j);
    // What was published is dropped by the next start, from the file too.
    j = kit_journal_whole(s.fd);
    struct image compact = image_read(s.fd);
    CU_ASSERT_TRUE(compact.len < full.len / 90);
    struct stale stale = {0};
    journal_each_stale(j, note_stale, &stale);
    CU_ASSERT_EQUAL(stale.count, FILES / 100);
    journal_close(j);
    free(full.bytes);
    free(compact.bytes);
    scratch_end(&s);
}

void suite_journal(void)
{
    CU_pSuite s = CU_add_suite("journal", NULL, NULL);
    CU_add_test(s, "a new one", test_empty);
    CU_add_test(s, "ranges merge", test_merge);
    CU_add_test(s, "ranges merge as in a model", test_merge_random);
    CU_add_test(s, "what is synced is kept", test_sync);
    CU_add_test(s, "another version forgets", test_version);
    CU_add_test(s, "what nobody asked for", test_stale);
    CU_add_test(s, "digests of leaves", test_leaves);
    CU_add_test(s, "a file as large as can be", test_huge);
    CU_add_test(s, "more than a record and a buffer", test_long);
    CU_add_test(s, "ten thousand files", test_many);
}
