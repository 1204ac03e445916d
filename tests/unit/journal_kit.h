// What the tests of the journal share: a model of what must be held, and images of journal files.
#ifndef PENSTOCK_TESTS_UNIT_JOURNAL_KIT_H
#define PENSTOCK_TESTS_UNIT_JOURNAL_KIT_H

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <CUnit/CUnit.h>

#include "proto/record.h"
#include "proto/wire.h"
#include "storage/journal.h"
#include "storage/sys.h"
#include "tests/unit/scratch.h"
#include "tests/unit/tree.h"

enum { MODEL_FILES = 5, MODEL_LEAVES = 40 };

// A few files of MODEL_LEAVES leaves; of each the digests held, as one byte that they are filled with (0: not
// held).
struct model {
    uint8_t leaves[MODEL_FILES][MODEL_LEAVES];
};

static inline struct job_id kit_job(uint8_t byte)
{
    struct job_id job;
    memset(job.bytes, byte, sizeof(job.bytes));
    return job;
}

static inline struct entry kit_large(const char *path)
{
    return tree_file(path, MODEL_LEAVES * (uint64_t)LEAF_BYTES - 17);
}

static inline struct entry model_entry(unsigned file)
{
    static const char *const paths[MODEL_FILES] = {"a", "some/longer/path/b", "c", "d\n\xff", "e"};
    return kit_large(paths[file]);
}

static inline struct digest kit_leaf(uint8_t byte)
{
    struct digest d;
    memset(d.bytes, byte, sizeof(d.bytes));
    return d;
}

static inline struct journal *kit_journal(int state_fd, bool *damaged)
{
    struct journal *j = NULL;
    struct job_id job = kit_job(1);
    CU_ASSERT_EQUAL_FATAL(journal_open(state_fd, &job, &j, damaged), 0);
    return j;
}

// Opens one that must be whole.
static inline struct journal *kit_journal_whole(int state_fd)
{
    bool damaged = true;
    struct journal *j = kit_journal(state_fd, &damaged);
    CU_ASSERT_FALSE(damaged);
    return j;
}

static inline struct journal_file *kit_journal_file(struct journal *j, const struct entry *e)
{
    struct journal_file *f = NULL;
    CU_ASSERT_EQUAL_FATAL(journal_file(j, e, &f), 0);
    return f;
}

// Journals `count` leaves from `first` on, each filled with `byte`.
static inline void kit_durable(struct journal *j, const struct entry *e, uint64_t first, uint32_t count,
                               uint8_t byte)
{
    struct digest *leaves = calloc(count, sizeof(*leaves));
    for (uint32_t i = 0; i < count; i++)
        leaves[i] = kit_leaf(byte);
    CU_ASSERT_EQUAL(journal_durable(j, kit_journal_file(j, e), first, leaves, count), 0);
    free(leaves);
}

static inline void model_durable(struct model *m, struct journal *j, unsigned file, unsigned first,
                                 unsigned count, uint8_t byte)
{
    struct entry e = model_entry(file);
    memset(m->leaves[file] + first, byte, count);
    kit_durable(j, &e, first, count, byte);
}

static inline void model_gone(struct model *m, struct journal *j, unsigned file)
{
    struct entry e = model_entry(file);
    memset(m->leaves[file], 0, MODEL_LEAVES);
    CU_ASSERT_EQUAL(journal_gone(j, kit_journal_file(j, &e)), 0);
}

// Whether the file (NULL: there is none) holds just the leaves of `want`, in proper ranges.
static inline bool kit_file_is(const struct journal_file *f, const uint8_t want[MODEL_LEAVES])
{
    static const uint8_t nothing[MODEL_LEAVES];
    if (f == NULL)
        return memcmp(want, nothing, MODEL_LEAVES) == 0;
    uint32_t count = 0;
    const struct range *held = journal_held(f, &count);
    const struct digest *leaves = journal_leaves(f);
    unsigned at = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint64_t end = held[i].offset + held[i].len;
        if (held[i].len == 0 || end > MODEL_LEAVES || (i > 0 && held[i].offset <= at))
            return false; // empty, too far, touching or not sorted
        for (; at < end; at++) {
            struct digest leaf = kit_leaf(want[at]);
            if ((want[at] != 0) != (at >= held[i].offset) ||
                (want[at] != 0 && !digest_equal(&leaves[at], &leaf)))
                return false;
        }
    }
    for (; at < MODEL_LEAVES; at++)
        if (want[at] != 0)
            return false;
    return true;
}

static inline bool kit_held_is(struct journal *j, const struct entry *e, const uint8_t want[MODEL_LEAVES])
{
    return kit_file_is(journal_find(j, e), want);
}

static inline bool model_is(const struct model *m, struct journal *j)
{
    for (unsigned i = 0; i < MODEL_FILES; i++) {
        struct entry e = model_entry(i);
        if (!kit_held_is(j, &e, m->leaves[i]))
            return false;
    }
    return true;
}

// The bytes of a journal file.
struct image {
    uint8_t *bytes;
    size_t len;
};

static inline struct image image_read(int state_fd)
{
    int fd = openat(state_fd, "journal", O_RDONLY | O_CLOEXEC);
    struct stat st = {0};
    CU_ASSERT_FATAL(fd >= 0 && fstat(fd, &st) == 0);
    struct image image = {.bytes = malloc((size_t)st.st_size + 1), .len = (size_t)st.st_size};
    CU_ASSERT_EQUAL(sys_pread_full(fd, image.bytes, image.len, 0), st.st_size);
    close(fd);
    return image;
}

static inline void image_write(int state_fd, const void *bytes, size_t len)
{
    int fd = openat(state_fd, "journal", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    CU_ASSERT_FATAL(fd >= 0);
    CU_ASSERT_EQUAL(sys_pwrite_full(fd, bytes, len, 0), 0);
    CU_ASSERT_EQUAL(ftruncate(fd, (off_t)len), 0);
    close(fd);
}

static inline bool image_same(int state_fd, const void *bytes, size_t len)
{
    struct image now = image_read(state_fd);
    bool same = now.len == len && memcmp(now.bytes, bytes, len) == 0;
    free(now.bytes);
    return same;
}

#endif
