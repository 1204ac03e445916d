#include "tools/checker.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/digest.h"
#include "proto/wire.h"
#include "storage/path.h"

enum {
    READ_BYTES = 4 * MIB, // whole leaves
    QUEUE_ENTRIES = 256,
};

// What one thread works with.
struct reader {
    struct checker *checker;
    pthread_t thread;
    struct path_cache *folders;
    struct digest_stream *sum;
    uint8_t *buf;
    uint64_t bytes;
};

// An entry that waits or is looked at, and what its path points into.
struct item {
    struct receipt_entry entry;
    uint8_t *path;
};

struct checker {
    int root_fd;
    void (*found)(void *arg, const struct err *problem);
    void *arg;
    pthread_mutex_t lock;
    pthread_cond_t more, less; // the queue has more, less than before
    struct item queue[QUEUE_ENTRIES];
    size_t first, count;
    bool over; // nothing is added any more
    struct check_tally tally;
    unsigned reader_count;
    struct reader *readers;
};

static const char *type_name(mode_t mode)
{
    if (S_ISREG(mode))
        return "a file";
    if (S_ISDIR(mode))
        return "a directory";
    return S_ISLNK(mode) ? "a link" : "something else";
}

static const mode_t type_modes[] = {[ENTRY_DIR] = S_IFDIR, [ENTRY_FILE] = S_IFREG, [ENTRY_SYMLINK] = S_IFLNK};

PRINTF_LIKE(3, 4)
static enum check_verdict wrong(const struct receipt_entry *e, struct err *err, const char *fmt, ...)
{
    char words[TEXT_BYTES_MAX];
    va_list args;
    va_start(args, fmt);
    vsnprintf(words, sizeof(words), fmt, args);
    va_end(args);
    err_set(err, ERR_DIGEST, 0, NULL, e->path.bytes, e->path.len, "%s", words);
    return CHECK_WRONG;
}

// What a failed call says of the entry.
static enum check_verdict failed(const struct receipt_entry *e, int rc, const char *op, struct err *err)
{
    if (rc == -ENOENT) {
        err_set(err, ERR_DIGEST, 0, NULL, e->path.bytes, e->path.len, "is missing");
        return CHECK_MISSING;
    }
    if (rc == -ENOTDIR || rc == -ELOOP)
        return wrong(e, err, "a part of its path is a link, or no directory any more");
    err_set(err, ERR_ENTRY, -rc, op, e->path.bytes, e->path.len, NULL);
    return CHECK_UNREADABLE;
}

// Digest of the first `size` bytes of a file, as digest_file makes it of its leaves. -ENODATA: it has fewer.
static int sum_file(struct reader *r, int fd, uint64_t size, struct digest *out)
{
    uint8_t end[sizeof(uint64_t)];
    struct wire_writer w;
    digest_stream_reset(r->sum);
    for (uint64_t at = 0; at < size;) {
        uint64_t want = u64_min(size - at, READ_BYTES);
        ssize_t got = sys_pread_full(fd, r->buf, (size_t)u64_align_up(want, BLOCK_BYTES), at);
        if (got < 0)
            return (int)got;
        if ((uint64_t)got < want)
            return -ENODATA;
        for (uint64_t leaf = 0; leaf < want; leaf += LEAF_BYTES) {
            struct digest d = digest_of(r->buf + leaf, (size_t)u64_min(want - leaf, LEAF_BYTES));
            digest_stream_add(r->sum, d.bytes, sizeof(d.bytes));
        }
        at += want;
        r->bytes += want;
    }
    wire_writer_init(&w, end, sizeof(end));
    wire_put_u64(&w, size);
    digest_stream_add(r->sum, end, sizeof(end));
    *out = digest_stream_end(r->sum);
    return 0;
}

// Opens the file and sums it up, with direct I/O or else with what the page cache holds of it dropped before.
static int open_and_sum(struct reader *r, int dir_fd, const char *name, uint64_t size, bool direct,
                        struct digest *out)
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
        rc = sum_file(r, fd, size, out);
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

static enum check_verdict check_file(struct reader *r, const struct receipt_entry *e, int dir_fd,
                                     const char *name, const struct stat *st, struct err *err)
{
    struct digest d;
    if ((uint64_t)st->st_size != e->size)
        return wrong(e, err, "has %llu bytes, not %llu", (unsigned long long)st->st_size,
                     (unsigned long long)e->size);
    if (without_digest(e)) {
        if (st->st_mtim.tv_sec != e->mtime.s || st->st_mtim.tv_nsec != (long)e->mtime.ns)
            return wrong(e, err, "has another modification time, and no digest to tell more");
        return CHECK_UNPROVED;
    }
    int rc = open_and_sum(r, dir_fd, name, e->size, true, &d);
    if (rc == -EINVAL) // no direct I/O here
        rc = open_and_sum(r, dir_fd, name, e->size, false, &d);
    if (rc == -ENODATA)
        return wrong(e, err, "became shorter while it was read");
    if (rc < 0)
        return failed(e, rc, "read", err);
    return digest_equal(&d, &e->digest) ? CHECK_RIGHT
                                        : wrong(e, err, "has other content: its digest differs");
}

static enum check_verdict check_link(const struct receipt_entry *e, int dir_fd, const char *name,
                                     struct err *err)
{
    uint8_t target[TARGET_BYTES_MAX + 1];
    if (without_digest(e))
        return CHECK_UNPROVED;
    ssize_t len = sys_readlinkat(dir_fd, name, target, sizeof(target));
    if (len < 0)
        return failed(e, (int)len, "readlink", err);
    struct digest d = digest_of(target, (size_t)len);
    return digest_equal(&d, &e->digest) ? CHECK_RIGHT : wrong(e, err, "points elsewhere: its digest differs");
}

static enum check_verdict check_entry(struct reader *r, const struct receipt_entry *e, struct err *err)
{
    char name[NAME_BYTES_MAX + 1] = ".";
    struct stat st;
    int dir_fd = r->checker->root_fd;
    if (e->path.len > 0)
        dir_fd = path_cache_parent(r->folders, e->path.bytes, e->path.len, name);
    int rc = dir_fd < 0 ? dir_fd : sys_fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW);
    if (rc < 0)
        return failed(e, rc, "stat", err);
    if ((st.st_mode & S_IFMT) != type_modes[e->type])
        return wrong(e, err, "is %s, not %s", type_name(st.st_mode), type_name(type_modes[e->type]));
    if (e->type == ENTRY_FILE)
        return check_file(r, e, dir_fd, name, &st, err);
    return e->type == ENTRY_SYMLINK ? check_link(e, dir_fd, name, err) : CHECK_RIGHT;
}

// Takes the next entry off the queue, whose path is the caller's then; false when there is no more.
static bool take(struct checker *c, struct item *out)
{
    pthread_mutex_lock(&c->lock);
    while (c->count == 0 && !c->over)
        pthread_cond_wait(&c->more, &c->lock);
    bool got = c->count > 0;
    if (got) {
        *out = c->queue[c->first];
        c->first = (c->first + 1) % QUEUE_ENTRIES;
        c->count--;
        pthread_cond_signal(&c->less);
    }
    pthread_mutex_unlock(&c->lock);
    return got;
}

static void *reader_run(void *arg)
{
    struct reader *r = arg;
    struct checker *c = r->checker;
    struct item item;
    while (take(c, &item)) {
        struct err err;
        enum check_verdict verdict = check_entry(r, &item.entry, &err);
        pthread_mutex_lock(&c->lock);
        c->tally.entries[verdict]++;
        if (verdict != CHECK_RIGHT && verdict != CHECK_UNPROVED)
            c->found(c->arg, &err);
        pthread_mutex_unlock(&c->lock);
        free(item.path);
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

int checker_new(int root_fd, unsigned threads, void (*found)(void *arg, const struct err *problem), void *arg,
                struct checker **out)
{
    struct checker *c = calloc(1, sizeof(*c));
    struct reader *readers = calloc(threads, sizeof(*readers));
    if (c == NULL || readers == NULL) {
        free(c);
        free(readers);
        return -ENOMEM;
    }
    *c = (struct checker){.root_fd = root_fd, .found = found, .arg = arg, .readers = readers};
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->more, NULL);
    pthread_cond_init(&c->less, NULL);
    for (unsigned i = 0; i < threads; i++) {
        int rc = reader_init(&readers[i], c);
        if (rc < 0) {
            struct check_tally none;
            reader_fini(&readers[i]);
            checker_end(c, &none);
            return rc;
        }
        c->reader_count++;
    }
    *out = c;
    return 0;
}

int checker_add(struct checker *c, const struct receipt_entry *e)
{
    uint8_t *path = malloc(e->path.len + 1);
    if (path == NULL)
        return -ENOMEM;
    if (e->path.len > 0)
        memcpy(path, e->path.bytes, e->path.len);
    pthread_mutex_lock(&c->lock);
    while (c->count == QUEUE_ENTRIES)
        pthread_cond_wait(&c->less, &c->lock);
    struct item *item = &c->queue[(c->first + c->count++) % QUEUE_ENTRIES];
    *item = (struct item){.entry = *e, .path = path};
    item->entry.path.bytes = path;
    pthread_cond_signal(&c->more);
    pthread_mutex_unlock(&c->lock);
    return 0;
}

void checker_end(struct checker *c, struct check_tally *tally)
{
    pthread_mutex_lock(&c->lock);
    c->over = true;
    pthread_cond_broadcast(&c->more);
    pthread_mutex_unlock(&c->lock);
    for (unsigned i = 0; i < c->reader_count; i++) {
        int rc = pthread_join(c->readers[i].thread, NULL);
        assert(rc == 0);
        c->tally.bytes += c->readers[i].bytes;
        reader_fini(&c->readers[i]);
    }
    *tally = c->tally;
    pthread_cond_destroy(&c->more);
    pthread_cond_destroy(&c->less);
    pthread_mutex_destroy(&c->lock);
    free(c->readers);
    free(c);
}
