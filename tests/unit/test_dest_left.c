// What unfinished files leave at the destination: of one that failed nothing, of a job that stopped what is
// durable.
#include <signal.h>
#include <sys/resource.h>
#include <sys/statfs.h>

#include "tests/unit/dest_agent_kit.h"

enum { HALF, NONE, SHORT, OTHER, SMALL, ENTRIES, SIZE = 5 * MIB - 100 };

static void begin(struct kit *k)
{
    struct entry entries[ENTRIES] = {
        [HALF] = kit_file("half", SIZE), [NONE] = kit_file("none", SIZE), [SHORT] = kit_file("short", SIZE),
        [OTHER] = kit_file("x", SIZE),   [SMALL] = kit_file("small", 10),
    };
    kit_begin_with(k, entries, ENTRIES, ENTRIES);
}

static const struct entry *entry(const struct kit *k, uint32_t i)
{
    return &k->work.segment->entries[i];
}

// The temporary file stands, and holds in each byte the number of its leaf and one.
static void fill(struct kit *k, uint32_t i)
{
    struct dest_entry *de = &k->side.entries[i];
    CU_ASSERT_EQUAL_FATAL(dest_temp_open(&k->d->dest, entry(k, i), false, false, &de->file), 0);
    de->open = true;
    uint8_t *leaf = malloc(MIB);
    for (uint8_t n = 0; n < 5; n++) {
        memset(leaf, n + 1, MIB);
        CU_ASSERT_EQUAL(sys_pwrite_full(de->file.fd, leaf, MIB, (uint64_t)n * MIB), 0); // the last one padded
    }
    free(leaf);
}

static void promise(struct kit *k, uint32_t i, uint64_t first, uint32_t count)
{
    kit_durable(k->d->journal, entry(k, i), first, count, 7);
    CU_ASSERT_EQUAL(journal_sync(k->d->journal), 0);
}

static bool temp_there(const struct kit *k, uint32_t i)
{
    char name[TEMP_NAME_BYTES];
    dest_temp_name(entry(k, i), name);
    return kit_there(k->d->dest.temp_fd, name);
}

static struct stat temp_stat(const struct kit *k, uint32_t i)
{
    char name[TEMP_NAME_BYTES];
    dest_temp_name(entry(k, i), name);
    return kit_stat(k->d->dest.temp_fd, name);
}

// First byte of each leaf.
static bool temp_holds(const struct kit *k, uint32_t i, const uint8_t want[5])
{
    char name[TEMP_NAME_BYTES];
    dest_temp_name(entry(k, i), name);
    int fd = openat(k->d->dest.temp_fd, name, O_RDONLY | O_CLOEXEC);
    bool same = fd >= 0;
    for (uint64_t n = 0; n < 5; n++) {
        uint8_t byte = 99;
        same = same && sys_pread_full(fd, &byte, 1, n * MIB) == 1 && byte == want[n];
    }
    close(fd);
    return same;
}

static void fail_entry(struct kit *k, uint32_t i)
{
    struct err err;
    err_set(&err, ERR_ENTRY, EACCES, "read", NULL, 0, NULL);
    settle_failed(k->d, &k->work, i, &err);
}

// A large file that failed gives back its name and its room while streams still hold it, and nothing of it is
// promised; only then is it settled. One of an earlier run that was not opened yet as well.
static void test_drop(void)
{
    struct kit k;
    begin(&k);
    fill(&k, HALF);
    promise(&k, HALF, 1, 2);
    fill(&k, NONE);
    dest_entry_close(&k.side.entries[NONE]);
    k.side.entries[NONE].adopt = true;
    settle_entries(k.d, &k.work, 0);
    fail_entry(&k, HALF);
    fail_entry(&k, NONE);
    fail_entry(&k, OTHER); // of which nothing is there
    CU_ASSERT(temp_there(&k, HALF) && temp_there(&k, NONE));
    kit_run_drops(&k);
    CU_ASSERT_FALSE(temp_there(&k, HALF) || temp_there(&k, NONE));
    struct stat st = {0};
    CU_ASSERT(fstat(k.side.entries[HALF].file.fd, &st) == 0 && st.st_blocks == 0 && st.st_nlink == 0);
    CU_ASSERT_PTR_NULL(journal_find(k.d->journal, entry(&k, HALF)));
    kit_journal_again(&k);
    CU_ASSERT_PTR_NULL(journal_find(k.d->journal, entry(&k, HALF)));
    settle_entries(k.d, &k.work, ENTRIES - 4);
    fail_entry(&k, SHORT);
    const struct message *m;
    while ((m = kit_word(&k)) != NULL)
        CU_ASSERT_NOT_EQUAL(m->type, MESSAGE_SEGMENT_DONE);
    kit_run_drops(&k);
    CU_ASSERT_EQUAL(kit_expect(&k, MESSAGE_SEGMENT_DONE)->segment_done.segment, 4);
    kit_end(&k);
}

// What is durable stays byte for byte, the rest of its file is given back, and what has nothing durable goes.
static void test_give_back(void)
{
    static const uint8_t want[5] = {0, 2, 3, 0, 5};
    struct kit k;
    begin(&k);
    for (uint32_t i = HALF; i <= SHORT; i++) {
        fill(&k, i);
        dest_entry_close(&k.side.entries[i]);
    }
    promise(&k, HALF, 1, 2);
    promise(&k, HALF, 4, 1);
    promise(&k, SHORT, 0, 1);
    promise(&k, OTHER, 0, 1); // whose temporary file somebody has removed
    char name[TEMP_NAME_BYTES];
    dest_temp_name(entry(&k, SHORT), name);
    int fd = openat(k.d->dest.temp_fd, name, O_WRONLY | O_CLOEXEC);
    CU_ASSERT(fd >= 0 && ftruncate(fd, SIZE - 1) == 0 && close(fd) == 0);
    struct path_cache *cache = kit_cache(&k.d->dest);
    CU_ASSERT_EQUAL(kit_small_write(&k.d->dest, cache, entry(&k, SMALL), "0123456789"), 0);
    path_cache_free(cache);
    scratch_file(k.d->dest.temp_fd, "ffffffffffffffffffffffffffffffff", "of an earlier run");
    scratch_file(k.d->dest.temp_fd, "not one of ours", "");
    dest_give_back(k.d);
    struct stat st = temp_stat(&k, HALF);
    CU_ASSERT_EQUAL(st.st_size, SIZE);
    CU_ASSERT_EQUAL(st.st_blocks * 512, 3 * MIB);
    CU_ASSERT(temp_holds(&k, HALF, want));
    CU_ASSERT_FALSE(temp_there(&k, NONE) || temp_there(&k, SHORT) || temp_there(&k, SMALL));
    CU_ASSERT_EQUAL(kit_names(k.d->dest.temp_fd), 2);
    CU_ASSERT_EQUAL(k.agent.kept_bytes, 3 * MIB - 100);
    struct statfs fs;
    CU_ASSERT_EQUAL(fstatfs(k.scratch.fd, &fs), 0);
    uint64_t room = (uint64_t)fs.f_bavail * (uint64_t)fs.f_bsize;
    CU_ASSERT(k.agent.free_bytes > room / 2 && k.agent.free_bytes < 2 * room);
    // The next run goes on: as if nothing had been given back.
    kit_journal_again(&k);
    struct dest_entry *de = &k.side.entries[HALF];
    CU_ASSERT_EQUAL_FATAL(dest_temp_open(&k.d->dest, entry(&k, HALF), true, false, &de->file), 0);
    de->open = true;
    CU_ASSERT_EQUAL(dest_file_reserve(&de->file, entry(&k, HALF)), 0);
    CU_ASSERT(temp_holds(&k, HALF, want));
    st = temp_stat(&k, HALF);
    CU_ASSERT(st.st_size == SIZE && st.st_blocks * 512 >= 5 * MIB - 4096);
    kit_end(&k);
}

// Files of this process end at `bytes` from now on.
static bool limit_files(rlim_t bytes)
{
    struct rlimit limit = {.rlim_cur = bytes, .rlim_max = RLIM_INFINITY};
    return signal(SIGXFSZ, SIG_IGN) != SIG_ERR && setrlimit(RLIMIT_FSIZE, &limit) == 0;
}

// The journal itself found no room: what is durable is written down once there is some again. Where there is
// none even then, nothing is said to be kept but what the journal said before is.
static int journal_without_room(void *arg)
{
    bool room_again = *(bool *)arg;
    struct kit k;
    begin(&k);
    fill(&k, HALF);
    dest_entry_close(&k.side.entries[HALF]);
    promise(&k, HALF, 1, 1);
    struct stat st;
    KIT_CHECK(fstatat(k.d->dest.state_fd, "journal", &st, 0) == 0 && limit_files((rlim_t)st.st_size));
    kit_durable(k.d->journal, entry(&k, HALF), 3, 1, 8);
    KIT_CHECK(journal_sync(k.d->journal) == -EFBIG);
    KIT_CHECK(limit_files(room_again ? RLIM_INFINITY : 100));
    dest_give_back(k.d);
    KIT_CHECK(limit_files(RLIM_INFINITY) && k.agent.kept_bytes == (room_again ? 2 * MIB : 0));
    static const uint8_t want[5] = {0, 2, 0, 4, 0};
    KIT_CHECK(temp_holds(&k, HALF, want)); // in any case: it is durable
    kit_journal_again(&k);
    uint32_t count = 0;
    const struct journal_file *f = journal_find(k.d->journal, entry(&k, HALF));
    KIT_CHECK(f != NULL && journal_held(f, &count)[0].offset == 1 && count == (room_again ? 2 : 1));
    kit_end(&k);
    return CU_get_number_of_failures() == 0 ? 0 : 1;
}

static void test_journal_without_room(void)
{
    for (int room_again = 0; room_again < 2; room_again++)
        CU_ASSERT_EQUAL(scratch_root_child(journal_without_room, &(bool){room_again != 0}), 0);
}

static bool is_name(void *arg, const char *name)
{
    return strcmp(name, arg) == 0;
}

// Beside targets on another mount: what is kept stays there, the rest goes, whoever left it; what is not ours
// stays. After the end of a job nothing is left.
static int beside(struct scratch *s)
{
    scratch_dir(s->fd, "mnt");
    if (!kit_mount(s, "mnt", "tmpfs", "none", "size=32m"))
        return KIT_SKIP;
    scratch_dir(s->fd, "mnt/d");
    scratch_file(s->fd, "mnt/d/.penstock-ffffffffffffffffffffffffffffffff", "");
    scratch_file(s->fd, "mnt/d/.penstock-00000000-ffffffffffffffffffffffffffffffff", "");
    struct dest d;
    KIT_CHECK(kit_try(s->fd, &d) == 0);
    struct entry large = kit_file("mnt/d/large", 3 * MIB), gone = kit_file("mnt/d/gone", 3 * MIB);
    struct entry small = kit_file("mnt/small", 3);
    struct dest_file f;
    struct path_cache *cache = path_cache_new(d.fd);
    KIT_CHECK(dest_temp_open(&d, &large, false, false, &f) == 0 && f.beside);
    dest_file_close(&f);
    KIT_CHECK(dest_temp_open(&d, &gone, false, false, &f) == 0 && f.beside);
    dest_file_close(&f);
    KIT_CHECK(dest_small_write(&d, cache, &small, "new", 3) == 0);
    path_cache_free(cache);
    KIT_CHECK(dest_close(&d, false) == 0); // killed
    KIT_CHECK(kit_try(s->fd, &d) == 0);
    int mnt = openat(s->fd, "mnt", O_RDONLY | O_DIRECTORY),
        dir = openat(s->fd, "mnt/d", O_RDONLY | O_DIRECTORY);
    KIT_CHECK(kit_names(mnt) == 2 && kit_names(dir) == 4);
    char name[TEMP_NAME_BYTES];
    dest_temp_name(&large, name);
    KIT_CHECK(dest_sweep(&d, is_name, name) == 0);
    KIT_CHECK(kit_names(mnt) == 1 && kit_names(dir) == 3);
    KIT_CHECK(dest_temp_open(&d, &large, true, false, &f) == 0 && f.beside);
    dest_file_close(&f);
    KIT_CHECK(dest_close(&d, true) == 0);
    KIT_CHECK(kit_names(dir) == 2 && !kit_there(s->fd, ".penstock"));
    return 0;
}

static void test_beside(void)
{
    kit_child("dest_left.beside targets on another mount", beside);
}

// A file that was complete has its owner already when the process is killed before it is published. (Who is
// not root gives nothing away.)
static void test_given_away(void)
{
    struct kit k;
    begin(&k);
    fill(&k, HALF);
    struct dest_file *f = &k.side.entries[HALF].file;
    promise(&k, HALF, 0, 3);
    if (geteuid() == 0)
        CU_ASSERT_EQUAL(fchown(f->fd, 1234, 1234), 0);
    dest_entry_close(&k.side.entries[HALF]);
    dest_give_back(k.d);
    CU_ASSERT(temp_there(&k, HALF) && k.agent.kept_bytes == 3 * MIB);
    kit_end(&k);
}

void suite_dest_left(void)
{
    CU_pSuite s = CU_add_suite("dest_left", NULL, NULL);
    CU_add_test(s, "a large file that failed", test_drop);
    CU_add_test(s, "what is not durable is given back", test_give_back);
    CU_add_test(s, "a file that has its owner already", test_given_away);
    CU_add_test(s, "no room for the journal", test_journal_without_room);
    CU_add_test(s, "beside targets on another mount", test_beside);
}
