// What a checker says, remembered; and entries for it.
#ifndef PENSTOCK_TESTS_UNIT_CHECKER_KIT_H
#define PENSTOCK_TESTS_UNIT_CHECKER_KIT_H

#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <CUnit/CUnit.h>

#include "mover/checker.h"
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

static inline void said_begin(struct said *said)
{
    *said = (struct said){.count = 0};
    pthread_mutex_init(&said->lock, NULL);
    pthread_cond_init(&said->more, NULL);
}

static inline void remember(void *arg, const struct checked *checked)
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

static inline void wait_batches(struct said *said, uint32_t batches)
{
    pthread_mutex_lock(&said->lock);
    while (said->batches < batches)
        pthread_cond_wait(&said->more, &said->lock);
    pthread_mutex_unlock(&said->lock);
}

// The records of a CHECK.
static inline struct blob records_of(const struct receipt_entry *entries, size_t count, uint8_t *buf)
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
static inline struct digest digest_of_file(int dir_fd, const char *name, uint64_t *size)
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

static inline struct receipt_entry expect(enum entry_type type, const char *path)
{
    return (struct receipt_entry){.type = type,
                                  .outcome = RECEIPT_MOVED,
                                  .proof = PROOF_WIRE,
                                  .mode = type == ENTRY_DIR ? 0755 : 0644,
                                  .path = blob_text(path)};
}

static inline struct receipt_entry expect_file(int dir_fd, const char *path)
{
    struct receipt_entry e = expect(ENTRY_FILE, path);
    e.digest = digest_of_file(dir_fd, path, &e.size);
    return e;
}

static inline struct receipt_entry expect_link(const char *path, const char *target)
{
    struct receipt_entry e = expect(ENTRY_SYMLINK, path);
    e.digest = digest_of(target, strlen(target));
    return e;
}

// One batch.
static inline void check(int root_fd, const struct receipt_entry *entries, size_t count, unsigned threads,
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
static inline enum check_verdict verdict(int root_fd, const struct receipt_entry *e, struct said *said)
{
    check(root_fd, e, 1, 1, said);
    check_err(&said->results[0], e, &said->last);
    return said->results[0].verdict;
}

#endif
