// What is found when a copy is read again: the threads behind `penstock verify`.
#include "mover/checker.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include <CUnit/CUnit.h>

#include "tests/unit/scratch.h"

enum { LOG_MAX = 4096, RECORDS_BYTES = 256 * KIB };

// What the checker said, in the order in which it did.
struct said {
    pthread_mutex_t lock;
    pthread_cond_t more;
    uint32_t batches, batch_counts[64], count;
    struct check_result results[LOG_MAX];
    uint64_t bytes;
    uint64_t tally[CHECK_VERDICTS];
    struct err last; // in words, of the only entry that verdict() asked for
};

static void said_begin(struct said *said)
{
    *said = (struct said){.count = 0};
    pthread_mutex_init(&said->lock, NULL);
    pthread_cond_init(&said->more, NULL);
}

static void remember(void *arg, const struct checked *checked)
{
    struct said *said = arg;
    pthread_mutex_lock(&said->lock);
    said->batch_counts[said->batches++ % ARRAY_LEN(said->batch_counts)] = checked->count;
    said->bytes += checked->bytes;
    for (uint32_t i = 0; i < checked->count && said->count < LOG_MAX; i++) {
        said->tally[checked->results[i].verdict]++;
        said->results[said->count++] = checked->results[i];
    }
    pthread_cond_signal(&said->more);
    pthread_mutex_unlock(&said->lock);
}

static void wait_batches(struct said *said, uint32_t batches)
{
    pthread_mutex_lock(&said->lock);
    while (said->batches < batches)
        pthread_cond_wait(&said->more, &said->lock);
    pthread_mutex_unlock(&said->lock);
}

// The records of a CHECK.
static struct blob records_of(const struct receipt_entry *entries, size_t count, uint8_t *buf)
{
    struct wire_writer w;
    uint8_t one[PATH_BYTES_MAX + 64];
    wire_writer_init(&w, buf, RECORDS_BYTES);
    for (size_t i = 0; i < count; i++) {
        int64_t len = receipt_entry_encode(&entries[i], one, sizeof(one));
        CU_ASSERT_FATAL(len > 0);
        wire_put_blob(&w, one, (size_t)len);
    }
    int64_t len = wire_written(&w);
    CU_ASSERT_FATAL(len >= 0);
    return blob_of(buf, (size_t)len);
}

// Digest of a file as the receipt has it, from all its leaves at once.
static struct digest digest_of_file(int dir_fd, const char *name, uint64_t *size)
{
    struct stat st;
    int fd = openat(dir_fd, name, O_RDONLY | O_CLOEXEC);
    CU_ASSERT_FATAL(fd >= 0 && fstat(fd, &st) == 0);
    *size = (uint64_t)st.st_size;
    size_t count = (size_t)u64_div_up(*size, LEAF_BYTES);
    uint8_t *bytes = malloc(*size + 1);
    struct digest *leaves = calloc(count + 1, sizeof(*leaves));
    CU_ASSERT_FATAL(bytes != NULL && leaves != NULL && read(fd, bytes, *size + 1) == st.st_size);
    for (size_t i = 0; i < count; i++)
        leaves[i] = digest_of(bytes + i * LEAF_BYTES, (size_t)u64_min(LEAF_BYTES, *size - i * LEAF_BYTES));
    struct digest d = digest_file(leaves, *size);
    free(leaves);
    free(bytes);
    close(fd);
    return d;
}

static struct receipt_entry expect(enum entry_type type, const char *path)
{
    return (struct receipt_entry){.type = type,
                                  .outcome = RECEIPT_MOVED,
                                  .proof = PROOF_WIRE,
                                  .mode = type == ENTRY_DIR ? 0755 : 0644,
                                  .path = blob_text(path)};
}

static struct receipt_entry expect_file(int dir_fd, const char *path)
{
    struct receipt_entry e = expect(ENTRY_FILE, path);
    e.digest = digest_of_file(dir_fd, path, &e.size);
    return e;
}

static struct receipt_entry expect_link(const char *path, const char *target)
{
    struct receipt_entry e = expect(ENTRY_SYMLINK, path);
    e.digest = digest_of(target, strlen(target));
    return e;
}

// One batch.
static void check(int root_fd, const struct receipt_entry *entries, size_t count, unsigned threads,
                  struct said *said)
{
    struct checker *c;
    uint8_t *buf = malloc(RECORDS_BYTES);
    CU_ASSERT_PTR_NOT_NULL_FATAL(buf);
    said_begin(said);
    CU_ASSERT_EQUAL_FATAL(checker_new(root_fd, threads, remember, said, &c), 0);
    struct blob records = records_of(entries, count, buf);
    CU_ASSERT_EQUAL(checker_add(c, &records), 0);
    memset(buf, 0xff, RECORDS_BYTES); // copied by the checker
    wait_batches(said, 1);
    checker_free(c);
    free(buf);
    CU_ASSERT_EQUAL(said->count, count);
}

// The verdict on a single entry, and words for it.
static enum check_verdict verdict(int root_fd, const struct receipt_entry *e, struct said *said)
{
    check(root_fd, e, 1, 1, said);
    check_err(&said->results[0], e, &said->last);
    return said->results[0].verdict;
}

static void test_right(void)
{
    static const size_t sizes[] = {0,
                                   1,
                                   4095,
                                   4096,
                                   4097,
                                   LEAF_BYTES - 1,
                                   LEAF_BYTES,
                                   LEAF_BYTES + 1,
                                   4 * LEAF_BYTES,
                                   9 * LEAF_BYTES + 12345};
    struct scratch s = scratch_begin();
    struct said said;
    uint64_t bytes = 0;
    struct receipt_entry entries[ARRAY_LEN(sizes) + 4];
    char names[ARRAY_LEN(sizes)][16];
    size_t count = 0;
    scratch_dir(s.fd, "d");
    scratch_link(s.fd, "d/link", "../nowhere");
    entries[count++] = expect(ENTRY_DIR, "");
    entries[count++] = expect(ENTRY_DIR, "d");
    entries[count++] = expect_link("d/link", "../nowhere");
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        snprintf(names[i], sizeof(names[i]), "d/size%zu", i);
        scratch_bytes(s.fd, names[i], sizes[i]);
        entries[count++] = expect_file(s.fd, names[i]);
        bytes += sizes[i];
    }
    for (unsigned threads = 1; threads <= 3; threads += 2) {
        check(s.fd, entries, count, threads, &said);
        CU_ASSERT_EQUAL(said.tally[CHECK_RIGHT], count);
        CU_ASSERT_EQUAL(said.bytes, bytes);
    }
    scratch_end(&s);
}

// One byte at a time changed, near the borders of leaves and of reads.
static void test_wrong_byte(void)
{
    static const off_t places[] = {
        0, 4095, LEAF_BYTES - 1, LEAF_BYTES, 4 * LEAF_BYTES - 1, 4 * LEAF_BYTES, 5 * LEAF_BYTES + 99};
    struct scratch s = scratch_begin();
    struct said said;
    scratch_bytes(s.fd, "f", 5 * LEAF_BYTES + 100);
    struct receipt_entry e = expect_file(s.fd, "f");
    int fd = openat(s.fd, "f", O_RDWR | O_CLOEXEC);
    CU_ASSERT_FATAL(fd >= 0);
    for (size_t i = 0; i < ARRAY_LEN(places); i++) {
        uint8_t byte;
        CU_ASSERT_FATAL(pread(fd, &byte, 1, places[i]) == 1);
        byte ^= 1;
        CU_ASSERT_FATAL(pwrite(fd, &byte, 1, places[i]) == 1);
        CU_ASSERT_EQUAL(verdict(s.fd, &e, &said), CHECK_WRONG);
        CU_ASSERT_EQUAL(said.last.class, ERR_DIGEST);
        CU_ASSERT_STRING_EQUAL(said.last.path, "f");
        CU_ASSERT_PTR_NOT_NULL(strstr(said.last.text, "digest differs"));
        byte ^= 1;
        CU_ASSERT_FATAL(pwrite(fd, &byte, 1, places[i]) == 1);
    }
    CU_ASSERT_EQUAL(verdict(s.fd, &e, &said), CHECK_RIGHT);
    close(fd);
    scratch_end(&s);
}

static void test_other_things(void)
{
    struct scratch s = scratch_begin();
    struct said said;
    scratch_dir(s.fd, "d");
    scratch_file(s.fd, "d/f", "text");
    scratch_link(s.fd, "l", "d");
    CU_ASSERT_FATAL(mkfifoat(s.fd, "p", 0644) == 0);
    struct receipt_entry f = expect_file(s.fd, "d/f");

    struct receipt_entry e = f;
    e.size = 3;
    CU_ASSERT_EQUAL(verdict(s.fd, &e, &said), CHECK_WRONG);
    CU_ASSERT_STRING_EQUAL(said.last.text, "has 4 bytes, not 3");
    e = expect(ENTRY_DIR, "d/f");
    CU_ASSERT_EQUAL(verdict(s.fd, &e, &said), CHECK_WRONG);
    CU_ASSERT_STRING_EQUAL(said.last.text, "is a file, not a directory");
    e = expect(ENTRY_DIR, "l"); // a link is never followed
    CU_ASSERT_EQUAL(verdict(s.fd, &e, &said), CHECK_WRONG);
    CU_ASSERT_STRING_EQUAL(said.last.text, "is a link, not a directory");
    e = f;
    e.path = blob_text("p"); // nor a fifo opened
    CU_ASSERT_EQUAL(verdict(s.fd, &e, &said), CHECK_WRONG);
    CU_ASSERT_STRING_EQUAL(said.last.text, "is something else, not a file");
    e = expect_link("l", "d");
    CU_ASSERT_EQUAL(verdict(s.fd, &e, &said), CHECK_RIGHT);
    e = expect_link("l", "e");
    CU_ASSERT_EQUAL(verdict(s.fd, &e, &said), CHECK_WRONG);
    e = f;
    e.path = blob_text("l/f"); // there only through the link
    CU_ASSERT_EQUAL(verdict(s.fd, &e, &said), CHECK_WRONG);
    CU_ASSERT_PTR_NOT_NULL(strstr(said.last.text, "no directory any more"));
    e.path = blob_text("d/f/g");
    CU_ASSERT_EQUAL(verdict(s.fd, &e, &said), CHECK_WRONG);
    scratch_end(&s);
}

static void test_missing(void)
{
    static const char *const paths[] = {"f", "d/f", "gone/f", "gone/a/b"};
    struct scratch s = scratch_begin();
    struct said said;
    scratch_dir(s.fd, "d");
    for (size_t i = 0; i < ARRAY_LEN(paths); i++) {
        for (int type = ENTRY_DIR; type <= ENTRY_SYMLINK; type++) {
            struct receipt_entry e = expect((enum entry_type)type, paths[i]);
            CU_ASSERT_EQUAL(verdict(s.fd, &e, &said), CHECK_MISSING);
            CU_ASSERT_STRING_EQUAL(said.last.path, paths[i]);
        }
    }
    scratch_end(&s);
}

// Without a digest only size and time are compared, and that is not called right.
static void test_unproved(void)
{
    struct scratch s = scratch_begin();
    struct said said;
    struct timespec times[2] = {{.tv_sec = 5, .tv_nsec = 7}, {.tv_sec = 5, .tv_nsec = 7}};
    scratch_file(s.fd, "f", "text");
    scratch_link(s.fd, "l", "x");
    CU_ASSERT_FATAL(utimensat(s.fd, "f", times, 0) == 0);
    struct receipt_entry e = expect(ENTRY_FILE, "f");
    e.proof = PROOF_NONE;
    e.size = 4;
    e.mtime = (struct entry_time){.s = 5, .ns = 7};
    CU_ASSERT_EQUAL(verdict(s.fd, &e, &said), CHECK_UNPROVED);
    e.mtime.ns = 8;
    CU_ASSERT_EQUAL(verdict(s.fd, &e, &said), CHECK_WRONG);
    e.mtime = (struct entry_time){.s = 6, .ns = 7};
    CU_ASSERT_EQUAL(verdict(s.fd, &e, &said), CHECK_WRONG);
    e.size = 5;
    CU_ASSERT_EQUAL(verdict(s.fd, &e, &said), CHECK_WRONG);
    e = expect(ENTRY_SYMLINK, "l");
    e.proof = PROOF_NONE;
    CU_ASSERT_EQUAL(verdict(s.fd, &e, &said), CHECK_UNPROVED);
    e = expect_link("l", "x"); // a digest is used whoever vouches for it
    e.proof = PROOF_NONE;
    CU_ASSERT_EQUAL(verdict(s.fd, &e, &said), CHECK_RIGHT);
    e = expect_link("l", "y");
    e.proof = PROOF_NONE;
    CU_ASSERT_EQUAL(verdict(s.fd, &e, &said), CHECK_WRONG);
    for (int proof = PROOF_WIRE; proof <= PROOF_CARRIED; proof++) {
        e = expect_file(s.fd, "f");
        e.proof = (enum receipt_proof)proof;
        e.mtime.s = 999; // a digest says more than a time
        CU_ASSERT_EQUAL(verdict(s.fd, &e, &said), CHECK_RIGHT);
    }
    scratch_end(&s);
}

// Modes count, set-ID bits and those of links do not; what is worse is told first.
static void test_modes(void)
{
    struct scratch s = scratch_begin();
    struct said said;
    scratch_dir(s.fd, "d");
    scratch_file(s.fd, "f", "text");
    scratch_link(s.fd, "l", "x");
    struct receipt_entry d = expect(ENTRY_DIR, "d"), f = expect_file(s.fd, "f"), l = expect_link("l", "x");
    CU_ASSERT_EQUAL(verdict(s.fd, &l, &said), CHECK_RIGHT); // its mode is 0777
    f.mode = 06644;
    CU_ASSERT_EQUAL(verdict(s.fd, &f, &said), CHECK_RIGHT);
    static const uint32_t others[] = {0640, 0645, 01644, 0};
    for (size_t i = 0; i < ARRAY_LEN(others); i++) {
        char words[64];
        f.mode = others[i];
        snprintf(words, sizeof(words), "has mode 0644, not %04o", others[i]);
        CU_ASSERT_EQUAL(verdict(s.fd, &f, &said), CHECK_WRONG);
        CU_ASSERT_STRING_EQUAL(said.last.text, words);
    }
    CU_ASSERT_EQUAL(fchmodat(s.fd, "d", 01755, 0), 0);
    CU_ASSERT_EQUAL(verdict(s.fd, &d, &said), CHECK_WRONG);
    CU_ASSERT_STRING_EQUAL(said.last.text, "has mode 1755, not 0755");
    f.digest.bytes[0] ^= 1;
    CU_ASSERT_EQUAL(verdict(s.fd, &f, &said), CHECK_WRONG);
    CU_ASSERT_EQUAL(said.results[0].difference, DIFFERS_CONTENT);
    scratch_end(&s);
}

// As a user who may not read: that is no proof of damage.
static int read_forbidden(void *arg)
{
    const int *fd = arg;
    struct said said;
    struct receipt_entry e = expect(ENTRY_FILE, "f");
    e.mode = 0;
    e.size = 4;
    if (verdict(*fd, &e, &said) != CHECK_UNREADABLE)
        return 2;
    return said.last.class == ERR_ENTRY && said.last.os == EACCES ? 0 : 3;
}

static void test_unreadable(void)
{
    struct scratch s = scratch_begin();
    scratch_file(s.fd, "f", "text");
    CU_ASSERT_FATAL(fchmodat(s.fd, "f", 0, 0) == 0);
    CU_ASSERT_EQUAL(scratch_child(read_forbidden, &s.fd), 0);
    scratch_end(&s);
}

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
            CU_ASSERT_EQUAL(ftruncate(s->fd, (off_t)leaves * LEAF_BYTES), 0);
    }
    return NULL;
}

static void test_shrinks(void)
{
    enum { TRIES = 300 };
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

void suite_checker(void)
{
    CU_pSuite suite = CU_add_suite("checker", NULL, NULL);
    CU_add_test(suite, "right", test_right);
    CU_add_test(suite, "wrong_byte", test_wrong_byte);
    CU_add_test(suite, "other_things", test_other_things);
    CU_add_test(suite, "missing", test_missing);
    CU_add_test(suite, "unproved", test_unproved);
    CU_add_test(suite, "unreadable", test_unreadable);
    CU_add_test(suite, "modes", test_modes);
    CU_add_test(suite, "order", test_order);
    CU_add_test(suite, "refused", test_refused);
    CU_add_test(suite, "stop", test_stop);
    CU_add_test(suite, "shrinks", test_shrinks);
}
