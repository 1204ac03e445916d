// The threads that read a copy again: the order of what they say, what they refuse, and how they end.
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/inotify.h>

#include "tests/unit/checker_kit.h"

// Several batches over several threads: every entry has its result, in the order in which they were handed
// over.
static void test_order(void)
{
    enum { BATCHES = 64, MANY = 40 };
    struct scratch s = scratch_begin();
    struct said said;
    struct checker *c;
    uint8_t *buf = malloc(RECORDS_BYTES);
    CU_ASSERT_PTR_NOT_NULL_FATAL(buf);
    scratch_file(s.fd, "f", "text");
    scratch_bytes(s.fd, "slow", 3 * LEAF_BYTES);
    scratch_bytes(s.fd, "slower", 64 * LEAF_BYTES);
    struct receipt_entry right = expect_file(s.fd, "f"), slow = expect_file(s.fd, "slow"),
                         slower = expect_file(s.fd, "slower"), wrong = right, gone = right;
    wrong.digest.bytes[0] ^= 1;
    gone.path = blob_text("gone");
    said_begin(&said);
    CU_ASSERT_EQUAL_FATAL(checker_new(s.fd, 4, remember, &said, &c), 0);
    for (uint32_t b = 0; b < BATCHES; b++) {
        struct receipt_entry entries[MANY];
        for (uint32_t i = 0; i < MANY; i++) {
            uint32_t n = b * MANY + i;
            entries[i] = n % 50 == 0 ? slow : n % 3 == 0 ? right : n % 3 == 1 ? wrong : gone;
        }
        if (b == BATCHES - 2) // done after the last batch
            entries[0] = slower;
        if (b >= CHECKS_OPEN_MAX)
            wait_batches(&said, b - CHECKS_OPEN_MAX + 1);
        struct blob records = records_of(entries, 1 + b % MANY, buf);
        CU_ASSERT_EQUAL(checker_add(c, &records), 0);
    }
    wait_batches(&said, BATCHES);
    checker_free(c);
    uint32_t at = 0;
    for (uint32_t b = 0; b < BATCHES; b++) {
        CU_ASSERT_EQUAL_FATAL(said.batch_counts[b], 1 + b % MANY);
        for (uint32_t i = 0; i < 1 + b % MANY; i++) {
            uint32_t n = b * MANY + i;
            bool late = b == BATCHES - 2 && i == 0;
            enum check_verdict expected = late || n % 50 == 0 || n % 3 == 0 ? CHECK_RIGHT
                                          : n % 3 == 1                      ? CHECK_WRONG
                                                                            : CHECK_MISSING;
            CU_ASSERT_EQUAL(said.results[at++].verdict, expected);
        }
    }
    CU_ASSERT_EQUAL(said.count, at);
    free(buf);
    scratch_end(&s);
}

// What is no list of records, or has none, is refused as a whole; and so is a batch too many.
static void test_refused(void)
{
    struct scratch s = scratch_begin();
    struct said said;
    struct checker *c;
    uint8_t *buf = malloc(RECORDS_BYTES);
    CU_ASSERT_PTR_NOT_NULL_FATAL(buf);
    struct receipt_entry e[2] = {expect(ENTRY_DIR, "d"), expect(ENTRY_DIR, "e")};
    struct blob good = records_of(e, 2, buf);
    said_begin(&said);
    CU_ASSERT_EQUAL_FATAL(checker_new(s.fd, 1, remember, &said, &c), 0);
    struct blob bad = good;
    for (bad.len = 0; bad.len < good.len; bad.len++) {
        if (bad.len != good.len / 2) // exactly the first one
            CU_ASSERT_EQUAL(checker_add(c, &bad), -EPROTO);
    }
    buf[good.len / 2 + 4] = 9; // an unknown type in the second
    CU_ASSERT_EQUAL(checker_add(c, &good), -EPROTO);
    CU_ASSERT_EQUAL(said.batches, 0);
    buf[good.len / 2 + 4] = ENTRY_DIR;
    CU_ASSERT_EQUAL(checker_add(c, &good), 0);
    wait_batches(&said, 1);
    checker_free(c);
    free(buf);
    scratch_end(&s);
}

// The threads end between two reads, whatever they still had to do.
static void test_stop(void)
{
    struct scratch s = scratch_begin();
    struct said said;
    struct checker *c;
    char path[600];
    uint8_t *buf = malloc(RECORDS_BYTES), events[4096];
    CU_ASSERT_PTR_NOT_NULL_FATAL(buf);
    int fd = openat(s.fd, "huge", O_CREAT | O_WRONLY | O_CLOEXEC, 0644);
    CU_ASSERT_FATAL(fd >= 0 && ftruncate(fd, INT64_C(1) << 43) == 0); // a hole that takes minutes to read
    close(fd);
    int watch = inotify_init1(IN_CLOEXEC);
    snprintf(path, sizeof(path), "%s/huge", s.path);
    CU_ASSERT_FATAL(watch >= 0 && inotify_add_watch(watch, path, IN_ACCESS) >= 0);
    struct receipt_entry e = expect(ENTRY_FILE, "huge");
    e.size = UINT64_C(1) << 43;
    struct blob records = records_of(&e, 1, buf);
    said_begin(&said);
    CU_ASSERT_EQUAL_FATAL(checker_new(s.fd, 2, remember, &said, &c), 0);
    for (int i = 0; i < CHECKS_OPEN_MAX; i++)
        CU_ASSERT_EQUAL(checker_add(c, &records), 0);
    CU_ASSERT_EQUAL(checker_add(c, &records), -EPROTO); // one too many
    CU_ASSERT(read(watch, events, sizeof(events)) > 0); // it is being read
    checker_free(c);
    checker_free(NULL);
    CU_ASSERT_EQUAL(said.batches, 0);
    close(watch);
    free(buf);
    scratch_end(&s);
}

// A file that becomes shorter and longer again, all zeros, while it is read.
struct shrinker {
    int fd;
    atomic_bool stop;
};

static void *shrink(void *arg)
{
    struct shrinker *s = arg;
    while (!atomic_load(&s->stop)) {
        for (int leaves = 8; leaves > 0; leaves -= 7)
            if (ftruncate(s->fd, (off_t)leaves * LEAF_BYTES) < 0)
                abort();
    }
    return NULL;
}

static void test_shrinks(void)
{
    enum { TRIES = 150 };
    struct scratch s = scratch_begin();
    struct said said;
    pthread_t thread;
    struct shrinker shrinker = {.fd = openat(s.fd, "f", O_CREAT | O_WRONLY | O_CLOEXEC, 0644)};
    CU_ASSERT_FATAL(shrinker.fd >= 0 && ftruncate(shrinker.fd, 8 * LEAF_BYTES) == 0);
    struct receipt_entry e = expect_file(s.fd, "f");
    CU_ASSERT_EQUAL_FATAL(pthread_create(&thread, NULL, shrink, &shrinker), 0);
    for (int i = 0; i < TRIES; i++) {
        enum check_verdict found = verdict(s.fd, &e, &said);
        CU_ASSERT(found == CHECK_RIGHT ||
                  (found == CHECK_WRONG && said.results[0].difference == DIFFERS_SIZE));
    }
    atomic_store(&shrinker.stop, true);
    CU_ASSERT_EQUAL(pthread_join(thread, NULL), 0);
    close(shrinker.fd);
    scratch_end(&s);
}

void suite_checker_threads(void)
{
    CU_pSuite suite = CU_add_suite("checker_threads", NULL, NULL);
    CU_add_test(suite, "order", test_order);
    CU_add_test(suite, "refused", test_refused);
    CU_add_test(suite, "stop", test_stop);
    CU_add_test(suite, "shrinks", test_shrinks);
}
