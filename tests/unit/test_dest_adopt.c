// Large files of an earlier run: what is taken up, and what of it is read again first.
#include <signal.h>
#include <sys/resource.h>

#include "storage/journal_inner.h"
#include "tests/unit/dest_agent_kit.h"

enum { LEAVES = 5, SIZE = LEAVES * MIB - 100 };

static const struct entry *entry(const struct kit *k)
{
    return &k->work.segment->entries[0];
}

// A job whose file has all leaves but 2 in the journal and in its temporary file.
static void begin(struct kit *k)
{
    struct entry e = kit_file("large", SIZE);
    kit_begin_with(k, &e, 1, 1);
    struct dest_file f;
    CU_ASSERT_EQUAL_FATAL(dest_temp_open(&k->d->dest, entry(k), false, false, &f), 0);
    uint8_t *bytes = malloc(MIB);
    for (uint8_t n = 0; n < LEAVES; n++) {
        memset(bytes, n + 1, MIB);
        struct digest leaf = digest_of(bytes, n + 1 < LEAVES ? MIB : MIB - 100);
        CU_ASSERT_EQUAL(sys_pwrite_full(f.fd, bytes, MIB, (uint64_t)n * MIB), 0);
        if (n != 2)
            CU_ASSERT_EQUAL(
                journal_durable(k->d->journal, kit_journal_file(k->d->journal, entry(k)), n, &leaf, 1), 0);
    }
    free(bytes);
    dest_file_close(&f);
    CU_ASSERT_EQUAL(journal_sync(k->d->journal), 0);
    kit_journal_again(k);
}

static void flip(const struct kit *k, uint64_t offset)
{
    char name[TEMP_NAME_BYTES];
    dest_temp_name(entry(k), name);
    int fd = openat(k->d->dest.temp_fd, name, O_RDWR | O_CLOEXEC);
    uint8_t byte;
    CU_ASSERT_EQUAL_FATAL(sys_pread_full(fd, &byte, 1, offset), 1);
    byte ^= 1;
    CU_ASSERT(sys_pwrite_full(fd, &byte, 1, offset) == 0 && close(fd) == 0);
}

// The journal in memory as one of another boot leaves it.
static void other_boot(struct kit *k)
{
    journal_find(k->d->journal, entry(k))->boot.bytes[3] ^= 1;
    CU_ASSERT_TRUE(journal_doubtful(k->d->journal, journal_find(k->d->journal, entry(k))));
}

static unsigned held(struct kit *k)
{
    uint32_t count = 0;
    unsigned leaves = 0;
    const struct journal_file *f = journal_find(k->d->journal, entry(k));
    const struct range *ranges = f != NULL ? journal_held(f, &count) : NULL;
    for (uint32_t i = 0; i < count; i++)
        for (uint64_t n = 0; n < ranges[i].len; n++)
            leaves |= 1U << (ranges[i].offset + n);
    return leaves;
}

// Leaves that are needed, as the answer to the source says it.
static unsigned needed(const struct kit *k)
{
    const struct entry_need *n = &k->work.need->entries[0];
    unsigned leaves = n->verdict == NEED_ALL ? (1U << LEAVES) - 1 : 0;
    for (uint32_t i = 0; i < n->count; i++)
        for (uint64_t leaf = 0; leaf < n->leaves[i].len; leaf++)
            leaves |= 1U << (n->leaves[i].offset + leaf);
    return leaves;
}

enum { HELD = 1 << 0 | 1 << 1 | 1 << 3 | 1 << 4, ALL = (1 << LEAVES) - 1 };

static void expect_notice(struct kit *k, const char *words)
{
    const struct blob *text = &kit_expect(k, MESSAGE_NOTICE)->notice.text;
    CU_ASSERT_PTR_NOT_NULL(memmem(text->bytes, text->len, words, strlen(words)));
}

static void test_doubt(void)
{
    static const struct {
        bool other_boot;
        uint64_t flips[4];
        uint32_t flip_count;
        unsigned held;
    } table[] = {
        {false, {0}, 0, HELD},
        {false, {0}, 1, HELD}, // within a boot the promise holds: nobody reads it again
        {true, {0}, 0, HELD},
        {true, {0}, 1, HELD & ~(1U << 0)},
        {true, {2 * MIB - 1}, 1, HELD & ~(1U << 1)},
        {true, {2 * MIB + 5}, 1, HELD}, // of which nothing was promised
        {true, {SIZE - 1}, 1, HELD & ~(1U << 4)},
        {true, {SIZE}, 1, HELD}, // behind the end
        {true, {MIB + 7, 3 * MIB}, 2, 1 << 0 | 1 << 4},
        {true, {0, MIB, 3 * MIB, 4 * MIB}, 4, 0},
    };
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        struct kit k;
        begin(&k);
        for (uint32_t n = 0; n < table[i].flip_count; n++)
            flip(&k, table[i].flips[n]);
        if (table[i].other_boot)
            other_boot(&k);
        bool complete = true;
        CU_ASSERT_EQUAL(dest_adopt(k.d, &k.work, 0, &complete), 0);
        CU_ASSERT_FALSE(complete);
        CU_ASSERT_EQUAL(held(&k), table[i].held);
        CU_ASSERT_EQUAL(needed(&k), ALL & ~table[i].held);
        CU_ASSERT_EQUAL(k.side.entries[0].adopt, table[i].held != 0);
        if (table[i].other_boot)
            expect_notice(&k, "4.00 MiB");
        CU_ASSERT_PTR_NULL(kit_word(&k));
        // It is not asked again, and what did not hold stays forgotten.
        kit_journal_again(&k);
        CU_ASSERT_EQUAL(held(&k), table[i].held);
        CU_ASSERT_EQUAL(journal_doubtful_bytes(k.d->journal), 0);
        kit_end(&k);
    }
}

// All of it holds: nothing is missing but the publication.
static void test_complete(void)
{
    struct kit k;
    begin(&k);
    uint8_t *bytes = malloc(MIB);
    memset(bytes, 3, MIB);
    struct digest leaf = digest_of(bytes, MIB);
    free(bytes);
    CU_ASSERT_EQUAL(journal_durable(k.d->journal, kit_journal_file(k.d->journal, entry(&k)), 2, &leaf, 1), 0);
    other_boot(&k);
    bool complete = false;
    CU_ASSERT_EQUAL(dest_adopt(k.d, &k.work, 0, &complete), 0);
    CU_ASSERT(complete && held(&k) == ALL && k.side.entries[0].open);
    kit_end(&k);
}

// The source has another version now: nothing of the old one is promised, and its room is free at once.
static void test_other_version(void)
{
    struct kit k;
    char name[TEMP_NAME_BYTES];
    begin(&k);
    dest_temp_name(entry(&k), name);
    struct entry *e = (struct entry *)(uintptr_t)entry(&k); // of the heap
    e->mtime.s++;
    bool complete = true;
    CU_ASSERT_EQUAL(faccessat(k.d->dest.temp_fd, name, F_OK, 0), 0);
    CU_ASSERT_EQUAL(dest_adopt(k.d, &k.work, 0, &complete), 0);
    CU_ASSERT(!complete && needed(&k) == ALL && !k.side.entries[0].adopt);
    CU_ASSERT_EQUAL(faccessat(k.d->dest.temp_fd, name, F_OK, 0), -1);
    kit_journal_again(&k);
    e->mtime.s--;
    CU_ASSERT_EQUAL(held(&k), 0);
    kit_end(&k);
}

// The end of the job does not wait for the reading, and nothing is decided.
static void test_stopped(void)
{
    struct kit k;
    begin(&k);
    other_boot(&k);
    k.d->stopping = true;
    bool complete = true;
    CU_ASSERT_EQUAL(dest_adopt(k.d, &k.work, 0, &complete), -ECANCELED);
    CU_ASSERT_EQUAL(held(&k), HELD);
    CU_ASSERT_TRUE(journal_doubtful(k.d->journal, journal_find(k.d->journal, entry(&k))));
    kit_end(&k);
}

// A run that does not come to the file leaves it as doubtful as it was.
static void test_doubt_stays(void)
{
    struct kit k;
    begin(&k);
    other_boot(&k);
    struct rlimit limit = {.rlim_cur = 1, .rlim_max = RLIM_INFINITY};
    signal(SIGXFSZ, SIG_IGN);
    CU_ASSERT_EQUAL(setrlimit(RLIMIT_FSIZE, &limit), 0);
    struct entry other = kit_file("other", SIZE);
    kit_durable(k.d->journal, &other, 0, 1, 9);
    CU_ASSERT_EQUAL(journal_sync(k.d->journal), -EFBIG);
    limit.rlim_cur = RLIM_INFINITY;
    CU_ASSERT_EQUAL(setrlimit(RLIMIT_FSIZE, &limit), 0);
    CU_ASSERT_EQUAL(journal_renew(k.d->journal), 0); // written anew from memory, where the doubt is
    for (unsigned run = 0; run < 3; run++) {
        kit_journal_again(&k);
        CU_ASSERT_EQUAL(journal_doubtful_bytes(k.d->journal), 4 * MIB - 100);
        CU_ASSERT_FALSE(journal_doubtful(k.d->journal, journal_find(k.d->journal, &other)));
    }
    kit_end(&k);
}

void suite_dest_adopt(void)
{
    CU_pSuite s = CU_add_suite("dest_adopt", NULL, NULL);
    CU_add_test(s, "another boot", test_doubt);
    CU_add_test(s, "all of it holds", test_complete);
    CU_add_test(s, "another version", test_other_version);
    CU_add_test(s, "the job stops", test_stopped);
    CU_add_test(s, "a doubt stays", test_doubt_stays);
}
