// Journals that were cut off, damaged or put together from others: never a wrong range, always the valid
// prefix.
#include "storage/journal_inner.h"
#include "tests/unit/hex.h"
#include "tests/unit/journal_kit.h"

enum { STEPS = 9 };

// A journal of some steps, with what must be held after each of them.
struct history {
    struct image image;
    size_t ends[STEPS + 1]; // of the file after each step; [0]: of the header
    struct model held[STEPS + 1];
};

static void take_step(struct model *m, struct journal *j, unsigned step)
{
    switch (step) {
    case 0:
        model_durable(m, j, 0, 3, 2, 1);
        break;
    case 1:
        model_durable(m, j, 1, 0, 1, 2);
        break;
    case 2:
        model_durable(m, j, 0, 5, 3, 3);
        break;
    case 3:
        model_gone(m, j, 1);
        break;
    case 4:
        model_durable(m, j, 2, 20, 4, 4);
        break;
    case 5:
        model_durable(m, j, 1, 7, 1, 5);
        break;
    case 6:
        model_durable(m, j, 0, 4, 1, 6); // again, another digest
        break;
    case 7:
        model_gone(m, j, 2);
        break;
    default:
        model_durable(m, j, 3, 39, 1, 7);
        break;
    }
}

static struct history history_make(int state_fd)
{
    struct history h = {0};
    struct stat st = {0};
    struct journal *j = kit_journal_whole(state_fd);
    h.ends[0] = RECORD_HEADER_BYTES;
    for (unsigned i = 0; i < STEPS; i++) {
        h.held[i + 1] = h.held[i];
        take_step(&h.held[i + 1], j, i);
        CU_ASSERT_EQUAL(journal_sync(j), 0);
        CU_ASSERT_EQUAL(fstatat(state_fd, "journal", &st, 0), 0);
        h.ends[i + 1] = (size_t)st.st_size;
    }
    journal_close(j);
    h.image = image_read(state_fd);
    return h;
}

// The last step that lies wholly in the first `len` bytes. A step may be two records; the first alone holds
// nothing.
static unsigned steps_in(const struct history *h, size_t len)
{
    unsigned step = 0;
    while (step < STEPS && h->ends[step + 1] <= len)
        step++;
    return step;
}

// Whether a journal of these bytes opens to what was held after `step`.
static bool opens_to(int state_fd, const void *bytes, size_t len, const struct model *held, bool *damaged)
{
    image_write(state_fd, bytes, len);
    struct journal *j = kit_journal(state_fd, damaged);
    bool right = model_is(held, j);
    // And what it wrote anew is whole and says the same.
    journal_close(j);
    j = kit_journal_whole(state_fd);
    right = right && model_is(held, j);
    journal_close(j);
    return right;
}

// The same question to the reader alone, which writes and syncs nothing: for every byte of a journal.
static bool replays_to(int state_fd, const void *bytes, size_t len, const struct model *held, bool *damaged)
{
    struct journal_table table;
    image_write(state_fd, bytes, len);
    CU_ASSERT_EQUAL_FATAL(journal_table_init(&table), 0);
    bool right = journal_replay(state_fd, &table, damaged) == 0;
    for (unsigned i = 0; i < MODEL_FILES; i++) {
        struct entry e = model_entry(i);
        right = right && kit_file_is(journal_table_find(&table, e.path, e.path_len), held->leaves[i]);
    }
    journal_table_fini(&table);
    return right;
}

static void test_cut(void)
{
    struct scratch s = scratch_begin();
    struct history h = history_make(s.fd);
    unsigned wrong = 0, called_damaged = 0;
    for (size_t len = 0; len <= h.image.len; len++) {
        bool damaged = false;
        const struct model *held = &h.held[steps_in(&h, len)];
        wrong += !replays_to(s.fd, h.image.bytes, len, held, &damaged);
        if (len % 100 == 0)
            wrong += !opens_to(s.fd, h.image.bytes, len, held, &damaged);
        called_damaged += damaged != (len < RECORD_HEADER_BYTES);
    }
    CU_ASSERT_EQUAL(wrong, 0);
    CU_ASSERT_EQUAL(called_damaged, 0);
    free(h.image.bytes);
    scratch_end(&s);
}

static void test_flip(void)
{
    struct scratch s = scratch_begin();
    struct history h = history_make(s.fd);
    unsigned wrong = 0, missed = 0;
    size_t last = h.image.len - (RECORD_FRAME_BYTES + 16 + 16); // the last record is LEAVES of one leaf
    for (size_t at = 0; at < h.image.len; at++) {
        uint8_t kept = h.image.bytes[at];
        bool damaged = false;
        h.image.bytes[at] ^= (uint8_t)(1U << (at * 5 + at / 8) % 8);
        const struct model *held = &h.held[steps_in(&h, at)];
        wrong += !replays_to(s.fd, h.image.bytes, h.image.len, held, &damaged);
        if (at % 100 == 0)
            wrong += !opens_to(s.fd, h.image.bytes, h.image.len, held, &damaged);
        if (at < last || at >= last + 4) // a last record that says it is shorter has something behind it
            missed += damaged != (at < last);
        h.image.bytes[at] = kept;
    }
    CU_ASSERT_EQUAL(wrong, 0);
    CU_ASSERT_EQUAL(missed, 0);
    free(h.image.bytes);
    scratch_end(&s);
}

// Ends as crashes leave them, and as they do not.
static void test_tail(void)
{
    struct scratch s = scratch_begin();
    struct history h = history_make(s.fd);
    static const struct {
        size_t kept; // of the last step, in bytes; SIZE_MAX: all
        size_t zeros, junk;
        bool damaged;
    } table[] = {
        {SIZE_MAX, 1, 0, false},    {SIZE_MAX, 23, 0, false},      {SIZE_MAX, 24, 0, false},
        {SIZE_MAX, 4096, 0, false}, {SIZE_MAX, 2 * MIB, 0, false}, {30, 4096, 0, false},
        {70, 2, 0, false},          {SIZE_MAX, 0, 1, false},       {SIZE_MAX, 0, 15, false},
        {SIZE_MAX, 0, 4096, true},  {SIZE_MAX, 4096, 1, true},     {SIZE_MAX, 2 * MIB, 1, true},
        {0, 100, 100, true},
    };
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        size_t start = h.ends[STEPS - 1];
        size_t kept = table[i].kept == SIZE_MAX ? h.image.len : start + table[i].kept;
        size_t len = kept + table[i].zeros + table[i].junk;
        uint8_t *bytes = calloc(1, len);
        memcpy(bytes, h.image.bytes, kept);
        memset(bytes + kept + table[i].zeros, 0x5a, table[i].junk);
        bool damaged = !table[i].damaged;
        CU_ASSERT_TRUE(opens_to(s.fd, bytes, len, &h.held[steps_in(&h, kept)], &damaged));
        CU_ASSERT_EQUAL(damaged, table[i].damaged);
        free(bytes);
    }
    free(h.image.bytes);
    scratch_end(&s);
}

// Records behind the header of another journal, or of the same one from before: the chain refuses them.
static void test_pasted(void)
{
    struct scratch s = scratch_begin();
    struct history a = history_make(s.fd);
    CU_ASSERT_EQUAL(unlinkat(s.fd, "journal", 0), 0);
    struct history b = history_make(s.fd); // the same steps, another salt
    CU_ASSERT_EQUAL(a.image.len, b.image.len);
    bool damaged = false;
    uint8_t *bytes = malloc(2 * a.image.len);
    for (unsigned step = 0; step < STEPS; step++) { // of `a` to the end of the step, then `b`
        memcpy(bytes, b.image.bytes, b.image.len);
        memcpy(bytes, a.image.bytes, a.ends[step]);
        CU_ASSERT_TRUE(opens_to(s.fd, bytes, b.image.len, &a.held[step], &damaged));
        CU_ASSERT_TRUE(damaged);
    }
    memcpy(bytes, a.image.bytes, a.image.len); // its own records once more
    memcpy(bytes + a.image.len, a.image.bytes + a.ends[0], a.image.len - a.ends[0]);
    CU_ASSERT_TRUE(opens_to(s.fd, bytes, 2 * a.image.len - a.ends[0], &a.held[STEPS], &damaged));
    CU_ASSERT_TRUE(damaged);
    memmove(bytes, b.image.bytes, b.ends[0]); // a record missing
    memcpy(bytes + b.ends[0], b.image.bytes + b.ends[1], b.image.len - b.ends[1]);
    CU_ASSERT_TRUE(opens_to(s.fd, bytes, b.image.len - b.ends[1] + b.ends[0], &b.held[0], &damaged));
    CU_ASSERT_TRUE(damaged);
    free(bytes);
    free(a.image.bytes);
    free(b.image.bytes);
    scratch_end(&s);
}

static void test_refused(void)
{
    static const struct {
        enum record_file kind;
        uint32_t version;
        int err;
    } table[] = {
        {RECORD_JOURNAL, 2, -EPROTONOSUPPORT},
        {RECORD_JOURNAL, UINT32_MAX, -EPROTONOSUPPORT},
        {RECORD_RECEIPT, 1, -EBADMSG},
        {RECORD_RECEIPT, 9, -EBADMSG},
    };
    struct scratch s = scratch_begin();
    struct job_id job = kit_job(3);
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        uint8_t bytes[RECORD_HEADER_BYTES + 100] = {0};
        struct record_header header = {.kind = table[i].kind, .version = table[i].version, .job = job};
        struct record_chain chain;
        record_header_encode(&header, bytes, &chain);
        image_write(s.fd, bytes, sizeof(bytes));
        uint32_t open_before = scratch_open_files();
        struct journal *j = NULL;
        bool damaged = true;
        CU_ASSERT_EQUAL(journal_open(s.fd, &job, &j, &damaged), table[i].err);
        CU_ASSERT_PTR_NULL(j);
        CU_ASSERT_TRUE(damaged); // untouched
        CU_ASSERT_TRUE(image_same(s.fd, bytes, sizeof(bytes)));
        CU_ASSERT_EQUAL(scratch_open_files(), open_before);
    }
    scratch_end(&s);
}

// No journal at all: what does not even look like one is as if it were not there; what is no file is refused.
static void test_no_journal(void)
{
    struct scratch s = scratch_begin();
    struct model nothing = {0};
    uint8_t junk[3000];
    memset(junk, 0x77, sizeof(junk));
    bool damaged = false;
    CU_ASSERT_TRUE(opens_to(s.fd, junk, sizeof(junk), &nothing, &damaged));
    CU_ASSERT_TRUE(damaged);
    struct job_id job = kit_job(3);
    struct journal *j = NULL;
    CU_ASSERT_EQUAL(renameat(s.fd, "journal", s.fd, "elsewhere"), 0);
    scratch_link(s.fd, "journal", "elsewhere");
    CU_ASSERT_EQUAL(journal_open(s.fd, &job, &j, &damaged), -ELOOP);
    CU_ASSERT_EQUAL(unlinkat(s.fd, "journal", 0), 0);
    CU_ASSERT_EQUAL(mkfifoat(s.fd, "journal", 0600), 0);
    CU_ASSERT_EQUAL(journal_open(s.fd, &job, &j, &damaged), -EINVAL);
    CU_ASSERT_EQUAL(unlinkat(s.fd, "journal", 0), 0);
    scratch_dir(s.fd, "journal");
    CU_ASSERT_EQUAL(journal_open(s.fd, &job, &j, &damaged), -EINVAL);
    CU_ASSERT_PTR_NULL(j);
    scratch_end(&s);
}

// The vector of PROTOCOL.md, and each start of it.
static void test_vector(void)
{
    static const char *const vector[] = {
        "50454e53544f434b0100000001000000a0a1a2a3a4a5a6a7a8a9aaabacadaeaf"
        "b0b1b2b3b4b5b6b7b8b9babbbcbdbebf0000000000000000b0d7e5864d267d72",
        "470000000100000000000000000000000000000000000000010020000000000000f153650000000015cd5b07"
        "01f1536500000000ffc99a3b6712000000000000e0e1e2e3e4e5e6e7e8e9eaebecedeeef03000000612f62"
        "4dfc28dcf8d68109",
        "3000000002000000010000000000000000000000000000000100000000000000"
        "c0c1c2c3c4c5c6c7c8c9cacbcccdcecfd0d1d2d3d4d5d6d7d8d9dadbdcdddedf571481dc15d01d12",
        "080000000300000002000000000000000000000000000000ff226cf20f4e6e06",
    };
    struct scratch s = scratch_begin();
    uint8_t bytes[512];
    size_t len = 0;
    for (size_t records = 0; records < ARRAY_LEN(vector); records++) {
        len += hex_bytes(vector[records], bytes + len, sizeof(bytes) - len);
        image_write(s.fd, bytes, len);
        struct journal *j = kit_journal_whole(s.fd);
        struct entry e = tree_file("a/b", 2 * MIB + 1); // with the times and the inode of the vector
        const struct journal_file *f = journal_find(j, &e);
        CU_ASSERT_EQUAL(f != NULL, records == 2);
        if (f != NULL) {
            uint32_t count = 0;
            const struct range *held = journal_held(f, &count);
            CU_ASSERT_TRUE(count == 1 && held[0].offset == 1 && held[0].len == 2);
            CU_ASSERT_TRUE(hex_equal(journal_leaves(f)[2].bytes, 16, "d0d1d2d3d4d5d6d7d8d9dadbdcdddedf"));
        }
        journal_close(j);
    }
    scratch_end(&s);
}

// ---- records whose chain is right and that make no sense ----

struct forged {
    uint8_t bytes[4096];
    size_t len;
    struct record_chain chain;
};

static void forge(struct forged *f, uint16_t type, const struct wire_writer *w)
{
    int64_t n = record_encode(&f->chain, type, w->start, (size_t)wire_written(w), f->bytes + f->len,
                              sizeof(f->bytes) - f->len);
    CU_ASSERT_TRUE_FATAL(n > 0);
    f->len += (size_t)n;
}

static void forge_file(struct forged *f, uint64_t number, const struct entry *e)
{
    uint8_t payload[512];
    struct wire_writer w;
    wire_writer_init(&w, payload, sizeof(payload));
    wire_put_u64(&w, number);
    wire_put_u64(&w, e->size);
    wire_put_u64(&w, (uint64_t)e->mtime.s);
    wire_put_u32(&w, e->mtime.ns);
    wire_put_u64(&w, (uint64_t)e->ctime.s);
    wire_put_u32(&w, e->ctime.ns);
    wire_put_u64(&w, e->inode);
    wire_put_zeros(&w, 16);
    wire_put_blob(&w, e->path, e->path_len);
    forge(f, 1, &w);
}

static void forge_leaves(struct forged *f, uint64_t number, uint64_t first, uint32_t bytes, uint8_t byte)
{
    uint8_t payload[512];
    struct wire_writer w;
    wire_writer_init(&w, payload, sizeof(payload));
    wire_put_u64(&w, number);
    wire_put_u64(&w, first);
    for (uint32_t i = 0; i < bytes; i++)
        wire_put_u8(&w, byte);
    forge(f, 2, &w);
}

static void forge_numbers(struct forged *f, uint16_t type, uint64_t number, uint32_t junk)
{
    uint8_t payload[512];
    struct wire_writer w;
    wire_writer_init(&w, payload, sizeof(payload));
    wire_put_u64(&w, number);
    wire_put_zeros(&w, junk);
    forge(f, type, &w);
}

// Behind a journal that names "a" (0) and "e" (1, gone).
static const struct {
    uint16_t type; // 2: leaves; else a number and `bytes` zeros
    uint64_t number, first;
    uint32_t bytes; // of digests
} senseless[] = {
    {2, 2, 0, 16},          {2, UINT64_MAX, 0, 16},     // nobody's number
    {2, 1, 0, 16},                                      // gone
    {2, 0, 1, 0},           {2, 0, 1, 17},              // none; one and a bit
    {2, 0, 40, 16},         {2, 0, 39, 32},             // behind the end, over the end
    {2, 0, UINT64_MAX, 16}, {2, 0, UINT64_MAX - 1, 48}, // wraps
    {3, 1, 0, 0},           {3, 2, 0, 0},               // gone twice, nobody gone
    {3, 0, 0, 1},                                       // with something behind it
    {0, 0, 0, 0},           {4, 0, 0, 0},               // of no type that there is
    {1, 2, 0, 20},                                      // too short for a file
};

static const struct {
    uint64_t number;
    uint64_t size;
    uint32_t mtime_ns, ctime_ns;
    const char *path;
} senseless_files[] = {
    {3, 100, 0, 0, "x"},
    {1, 100, 0, 0, "x"}, // not the next number
    {2, 0, 0, 0, "x"},
    {2, DIGESTED_BYTES_MAX + 1, 0, 0, "x"},
    {2, 100, 1000000000, 0, "x"},
    {2, 100, 0, UINT32_MAX, "x"},
    {2, 100, 0, 0, "a"}, // named already
    {2, 100, 0, 0, ""},
    {2, 100, 0, 0, "../up"},
    {2, 100, 0, 0, "/abs"},
    {2, 100, 0, 0, ".penstock/journal"},
};

// Appends the senseless record `what`; false: there are no more.
static bool forge_senseless(struct forged *f, size_t what)
{
    if (what < ARRAY_LEN(senseless)) {
        if (senseless[what].type == 2)
            forge_leaves(f, senseless[what].number, senseless[what].first, senseless[what].bytes, 9);
        else
            forge_numbers(f, senseless[what].type, senseless[what].number, senseless[what].bytes);
        return true;
    }
    what -= ARRAY_LEN(senseless);
    if (what >= ARRAY_LEN(senseless_files))
        return false;
    struct entry e = tree_file(senseless_files[what].path, senseless_files[what].size);
    e.mtime.ns = senseless_files[what].mtime_ns;
    e.ctime.ns = senseless_files[what].ctime_ns;
    forge_file(f, senseless_files[what].number, &e);
    return true;
}

static void test_senseless(void)
{
    struct scratch s = scratch_begin();
    struct model held = {0};
    memset(held.leaves[0] + 5, 8, 3);
    for (size_t what = 0;; what++) {
        struct forged f = {.len = RECORD_HEADER_BYTES};
        struct record_header header = {.kind = RECORD_JOURNAL, .version = 1};
        struct entry a = model_entry(0), e = model_entry(4);
        record_header_encode(&header, f.bytes, &f.chain);
        forge_file(&f, 0, &a);
        forge_leaves(&f, 0, 5, 48, 8);
        forge_file(&f, 1, &e);
        forge_numbers(&f, 3, 1, 0);
        bool damaged = false, more = forge_senseless(&f, what);
        if (more)
            forge_leaves(&f, 0, 30, 16, 9); // behind it: not believed
        CU_ASSERT_TRUE(opens_to(s.fd, f.bytes, f.len, &held, &damaged));
        CU_ASSERT_EQUAL(damaged, more);
        if (!more)
            break;
    }
    scratch_end(&s);
}

void suite_journal_damage(void)
{
    CU_pSuite s = CU_add_suite("journal_damage", NULL, NULL);
    CU_add_test(s, "cut off at every byte", test_cut);
    CU_add_test(s, "a bit flipped in every byte", test_flip);
    CU_add_test(s, "ends of crashes", test_tail);
    CU_add_test(s, "records pasted in", test_pasted);
    CU_add_test(s, "a newer version and another kind", test_refused);
    CU_add_test(s, "no journal", test_no_journal);
    CU_add_test(s, "records that make no sense", test_senseless);
    CU_add_test(s, "the vector of the document", test_vector);
}
