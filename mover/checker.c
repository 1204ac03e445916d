#include "mover/checker.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "proto/digest.h"
#include "storage/path.h"

enum { READ_BYTES = 4 * MIB }; // whole leaves

// What one thread works with.
struct reader {
    struct checker *checker;
    pthread_t thread;
    struct path_cache *folders;
    struct digest_stream *sum;
    uint8_t *buf;
};

// Entries that are compared as one and answered as one.
struct batch {
    uint8_t *records;             // the batch's copy
    struct wire_reader left;      // of them: entries that no thread has taken
    struct check_result *results; // one an entry
    uint32_t count, taken, done;
    uint64_t bytes; // read
};

// One entry of a batch in the hands of a thread.
struct item {
    struct receipt_entry entry;
    struct batch *batch;
    uint32_t index;
    uint64_t bytes; // read
};

struct checker {
    int root_fd;
    void (*done)(void *arg, const struct checked *checked);
    void *arg;
    atomic_bool stop;
    unsigned reader_count;
    struct reader *readers;
    pthread_mutex_t lock;
    pthread_cond_t more; // there are entries to take, or it stops
    struct batch batches[CHECKS_OPEN_MAX];
    size_t first, count; // of the batches, a ring
};

static struct check_result verdict(enum check_verdict verdict)
{
    return (struct check_result){.verdict = verdict};
}

static struct check_result wrong(enum check_difference difference, uint64_t found)
{
    return (struct check_result){.verdict = CHECK_WRONG, .difference = difference, .found = found};
}

// What a failed call says of the entry.
static struct check_result failed(int rc)
{
    if (rc == -ENOENT)
        return verdict(CHECK_MISSING);
    if (rc == -ENOTDIR || rc == -ELOOP)
        return wrong(DIFFERS_PATH, 0);
    return (struct check_result){.verdict = CHECK_UNREADABLE, .os = -rc};
}

static uint64_t type_of(mode_t mode)
{
    return S_ISREG(mode) ? ENTRY_FILE : S_ISDIR(mode) ? ENTRY_DIR : S_ISLNK(mode) ? ENTRY_SYMLINK : 0;
}

// Digest of the first `size` bytes of a file, as digest_file makes it of its leaves. *have: how many of them
// were read; fewer than size: there were no more, and no digest.
static int sum_file(struct reader *r, int fd, uint64_t size, uint64_t *have, struct digest *out)
{
    uint8_t end[sizeof(uint64_t)];
    struct wire_writer w;
    *have = 0;
    digest_stream_reset(r->sum);
    for (uint64_t at = 0; at < size;) {
        uint64_t want = u64_min(size - at, READ_BYTES);
        if (atomic_load(&r->checker->stop))
            return -ECANCELED;
        ssize_t got = sys_pread_full(fd, r->buf, (size_t)u64_align_up(want, BLOCK_BYTES), at);
        if (got < 0)
            return (int)got;
        *have += u64_min((uint64_t)got, want);
        if ((uint64_t)got < want)
            return 0;
        for (uint64_t leaf = 0; leaf < want; leaf += LEAF_BYTES) {
            struct digest d = digest_of(r->buf + leaf, (size_t)u64_min(want - leaf, LEAF_BYTES));
            digest_stream_add(r->sum, d.bytes, sizeof(d.bytes));
        }
        at += want;
    }
    wire_writer_init(&w, end, sizeof(end));
    wire_put_u64(&w, size);
    digest_stream_add(r->sum, end, sizeof(end));
    *out = digest_stream_end(r->sum);
    return 0;
}

// Opens the file and sums it up, with direct I/O or else with what the page cache holds of it dropped before.
static int open_and_sum(struct reader *r, int dir_fd, const char *name, uint64_t size, bool direct,
                        uint64_t *have, struct digest *out)
{
    struct stat st;
    int fd =
        sys_openat(dir_fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | (direct ? O_DIRECT : 0), 0);
    if (fd < 0)
        return fd;
    int rc = sys_fstat(fd, &st);
    if (rc == 0 && !S_ISREG(st.st_mode))
        rc = -ELOOP; // replaced just now
    if (rc == 0 && !direct) {
        int dropped = sys_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
        (void)dropped; // a file system that does not know it has nothing better to offer
    }
    if (rc == 0)
        rc = sum_file(r, fd, size, have, out);
    sys_close(fd);
    return rc;
}

// Whether the receipt has nothing to compare the content with. (The text of a link that was made is in it,
// though nobody read that again.)
static bool without_digest(const struct receipt_entry *e)
{
    static const struct digest none;
    return e->proof == PROOF_NONE && digest_equal(&e->digest, &none);
}

// Everything else fits: the mode of files and directories is what is left.
static struct check_result check_mode(const struct receipt_entry *e, const struct stat *st,
                                      enum check_verdict good)
{
    uint32_t mode = (uint32_t)st->st_mode & 07777;
    return ((mode ^ e->mode) & CHECK_MODE_BITS) == 0 ? verdict(good) : wrong(DIFFERS_MODE, mode);
}

static struct check_result check_file(struct reader *r, struct item *item, int dir_fd, const char *name,
                                      const struct stat *st)
{
    const struct receipt_entry *e = &item->entry;
    struct digest d;
    if ((uint64_t)st->st_size != e->size)
        return wrong(DIFFERS_SIZE, (uint64_t)st->st_size);
    if (without_digest(e)) {
        bool same = st->st_mtim.tv_sec == e->mtime.s && st->st_mtim.tv_nsec == (long)e->mtime.ns;
        return same ? check_mode(e, st, CHECK_UNPROVED) : wrong(DIFFERS_TIME, 0);
    }
    int rc = open_and_sum(r, dir_fd, name, e->size, true, &item->bytes, &d);
    if (rc == -EINVAL) // no direct I/O here
        rc = open_and_sum(r, dir_fd, name, e->size, false, &item->bytes, &d);
    if (rc < 0)
        return failed(rc);
    if (item->bytes < e->size) // it became shorter meanwhile
        return wrong(DIFFERS_SIZE, item->bytes);
    return digest_equal(&d, &e->digest) ? check_mode(e, st, CHECK_RIGHT) : wrong(DIFFERS_CONTENT, 0);
}

static struct check_result check_link(const struct receipt_entry *e, int dir_fd, const char *name)
{
    uint8_t target[TARGET_BYTES_MAX + 1];
    if (without_digest(e))
        return verdict(CHECK_UNPROVED);
    ssize_t len = sys_readlinkat(dir_fd, name, target, sizeof(target));
    if (len < 0)
        return failed((int)len);
    struct digest d = digest_of(target, (size_t)len);
    return digest_equal(&d, &e->digest) ? verdict(CHECK_RIGHT) : wrong(DIFFERS_CONTENT, 0);
}

static struct check_result check_entry(struct reader *r, struct item *item)
{
    const struct receipt_entry *e = &item->entry;
    char name[NAME_BYTES_MAX + 1] = ".";
    struct stat st;
    int dir_fd = r->checker->root_fd;
    if (e->path.len > 0)
        dir_fd = path_cache_parent(r->folders, e->path.bytes, e->path.len, name);
    int rc = dir_fd < 0 ? dir_fd : sys_fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW);
    if (rc < 0)
        return failed(rc);
    if (type_of(st.st_mode) != e->type)
        return wrong(DIFFERS_TYPE, type_of(st.st_mode));
    if (e->type == ENTRY_FILE)
        return check_file(r, item, dir_fd, name, &st);
    return e->type == ENTRY_SYMLINK ? check_link(e, dir_fd, name) : check_mode(e, &st, CHECK_RIGHT);
}

static int next_entry(struct wire_reader *left, struct receipt_entry *out)
{
    size_t len;
    const uint8_t *bytes = wire_get_blob(left, wire_left(left), &len);
    return bytes != NULL ? receipt_entry_decode(bytes, len, out) : -EPROTO;
}

// The oldest batch of which something is not taken yet, or NULL.
static struct batch *batch_untaken(struct checker *c)
{
    for (size_t i = 0; i < c->count; i++) {
        struct batch *b = &c->batches[(c->first + i) % CHECKS_OPEN_MAX];
        if (b->taken < b->count)
            return b;
    }
    return NULL;
}

// Waits for the next entry; false when the threads are to end.
static bool take(struct checker *c, struct item *out)
{
    struct batch *b = NULL;
    pthread_mutex_lock(&c->lock);
    while (!atomic_load(&c->stop) && (b = batch_untaken(c)) == NULL)
        pthread_cond_wait(&c->more, &c->lock);
    bool got = !atomic_load(&c->stop);
    if (got) {
        *out = (struct item){.batch = b, .index = b->taken++};
        int rc = next_entry(&b->left, &out->entry);
        assert(rc == 0); // checker_add has seen it
    }
    pthread_mutex_unlock(&c->lock);
    return got;
}

static void batch_clear(struct batch *b)
{
    free(b->records);
    free(b->results);
    *b = (struct batch){.count = 0};
}

// An entry is compared: tells of every batch that is done and has none before it.
static void give(struct checker *c, const struct item *item, const struct check_result *result)
{
    pthread_mutex_lock(&c->lock);
    item->batch->results[item->index] = *result;
    item->batch->bytes += item->bytes;
    item->batch->done++;
    while (c->count > 0 && c->batches[c->first].done == c->batches[c->first].count) {
        struct batch *b = &c->batches[c->first];
        struct checked checked = {.results = b->results, .count = b->count, .bytes = b->bytes};
        c->done(c->arg, &checked);
        batch_clear(b);
        c->first = (c->first + 1) % CHECKS_OPEN_MAX;
        c->count--;
    }
    pthread_mutex_unlock(&c->lock);
}

static void *reader_run(void *arg)
{
    struct reader *r = arg;
    struct item item;
    while (take(r->checker, &item)) {
        struct check_result result = check_entry(r, &item);
        if (atomic_load(
                &r->checker->stop)) // nobody waits for it, and the file may not have been read to its end
            break;
        give(r->checker, &item, &result);
    }
    return NULL;
}

static int reader_init(struct reader *r, struct checker *c)
{
    r->checker = c;
    r->folders = path_cache_new(c->root_fd);
    r->sum = digest_stream_new();
    r->buf = aligned_alloc(BLOCK_BYTES, READ_BYTES);
    if (r->folders == NULL || r->sum == NULL || r->buf == NULL)
        return -ENOMEM;
    return -pthread_create(&r->thread, NULL, reader_run, r);
}

static void reader_fini(struct reader *r)
{
    path_cache_free(r->folders);
    digest_stream_free(r->sum);
    free(r->buf);
}

int checker_new(int root_fd, unsigned threads, void (*done)(void *arg, const struct checked *checked),
                void *arg, struct checker **out)
{
    struct checker *c = calloc(1, sizeof(*c));
    struct reader *readers = calloc(threads, sizeof(*readers));
    if (c == NULL || readers == NULL) {
        free(c);
        free(readers);
        return -ENOMEM;
    }
    *c = (struct checker){.root_fd = root_fd, .done = done, .arg = arg, .readers = readers};
    atomic_init(&c->stop, false);
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->more, NULL);
    for (unsigned i = 0; i < threads; i++) {
        int rc = reader_init(&readers[i], c);
        if (rc < 0) {
            reader_fini(&readers[i]);
            checker_free(c);
            return rc;
        }
        c->reader_count++;
    }
    *out = c;
    return 0;
}

// Copies the records and makes room for their results.
static int batch_fill(struct batch *b, const struct blob *records)
{
    struct wire_reader r;
    struct receipt_entry e;
    wire_reader_init(&r, records->bytes, records->len);
    while (wire_left(&r) > 0) {
        if (next_entry(&r, &e) < 0)
            return -EPROTO;
        b->count++;
    }
    if (b->count == 0)
        return -EPROTO;
    b->records = malloc(records->len);
    b->results = calloc(b->count, sizeof(*b->results));
    if (b->records == NULL || b->results == NULL)
        return -ENOMEM;
    memcpy(b->records, records->bytes, records->len);
    wire_reader_init(&b->left, b->records, records->len);
    return 0;
}

int checker_add(struct checker *c, const struct blob *records)
{
    struct batch b = {.count = 0};
    int rc = batch_fill(&b, records);
    pthread_mutex_lock(&c->lock);
    if (rc == 0 && c->count == CHECKS_OPEN_MAX)
        rc = -EPROTO;
    if (rc == 0) {
        c->batches[(c->first + c->count++) % CHECKS_OPEN_MAX] = b;
        pthread_cond_broadcast(&c->more);
    }
    pthread_mutex_unlock(&c->lock);
    if (rc < 0)
        batch_clear(&b);
    return rc;
}

void checker_free(struct checker *c)
{
    if (c == NULL)
        return;
    pthread_mutex_lock(&c->lock);
    atomic_store(&c->stop, true);
    pthread_cond_broadcast(&c->more);
    pthread_mutex_unlock(&c->lock);
    for (unsigned i = 0; i < c->reader_count; i++) {
        int rc = pthread_join(c->readers[i].thread, NULL);
        assert(rc == 0);
        reader_fini(&c->readers[i]);
    }
    for (size_t i = 0; i < CHECKS_OPEN_MAX; i++)
        batch_clear(&c->batches[i]);
    pthread_cond_destroy(&c->more);
    pthread_mutex_destroy(&c->lock);
    free(c->readers);
    free(c);
}
