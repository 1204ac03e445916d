#include "storage/journal_inner.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "proto/wire.h"
#include "storage/sys.h"

enum {
    BUFFER_BYTES = 512 * KIB,
    PAYLOAD_BYTES = JOURNAL_LEAVES_BYTES + JOURNAL_LEAVES_MAX * sizeof(struct digest),
};

_Static_assert(PAYLOAD_BYTES >= JOURNAL_FILE_BYTES + PATH_BYTES_MAX, "a FILE payload fits too");
_Static_assert((size_t)PAYLOAD_BYTES <= RECORD_PAYLOAD_MAX, "every payload fits a record");
_Static_assert((size_t)PAYLOAD_BYTES + RECORD_FRAME_BYTES <= BUFFER_BYTES, "every record fits the buffer");

struct journal {
    struct journal_table table;
    struct journal_file *forgotten; // other versions, until journal_each_stale
    int state_fd;
    int fd;
    struct job_id job;
    struct digest boot;   // of this machine now; zero: unknown
    int failed;           // the first error of a write or sync: nothing is believed after it
    bool unsynced;        // written, but not synced
    uint64_t end;         // where the buffer belongs in the file
    uint64_t next_number; // of a file
    struct record_chain chain;
    size_t used; // bytes in the buffer
    uint8_t buffer[BUFFER_BYTES];
    uint8_t payload[PAYLOAD_BYTES]; // of the record being made
};

// ---- appending ----

static int fail(struct journal *j, int err)
{
    if (err < 0 && j->failed == 0)
        j->failed = err;
    return j->failed;
}

static int flush(struct journal *j)
{
    if (j->failed < 0 || j->used == 0)
        return j->failed;
    int err = sys_pwrite_full(j->fd, j->buffer, j->used, j->end);
    j->end += j->used;
    j->used = 0;
    j->unsynced = true;
    return fail(j, err);
}

// Appends a record whose payload is `w`, which writes into j->payload.
static int append(struct journal *j, enum journal_record type, const struct wire_writer *w)
{
    int64_t len = wire_written(w);
    assert(len > 0);
    if (j->used + (size_t)len + RECORD_FRAME_BYTES > BUFFER_BYTES) {
        int err = flush(j);
        if (err < 0)
            return err;
    }
    if (j->failed < 0)
        return j->failed;
    int64_t n = record_encode(&j->chain, (uint16_t)type, j->payload, (size_t)len, j->buffer + j->used,
                              BUFFER_BYTES - j->used);
    assert(n > 0);
    j->used += (size_t)n;
    return 0;
}

static void put_time(struct wire_writer *w, const struct entry_time *t)
{
    wire_put_u64(w, (uint64_t)t->s);
    wire_put_u32(w, t->ns);
}

// Names the file in the journal, unless it is named already.
static int append_file(struct journal *j, struct journal_file *f)
{
    if (f->named)
        return 0;
    if (f->count == 0)
        f->boot = j->boot;
    struct wire_writer w;
    wire_writer_init(&w, j->payload, sizeof(j->payload));
    wire_put_u64(&w, j->next_number);
    wire_put_u64(&w, f->entry.size);
    put_time(&w, &f->entry.mtime);
    put_time(&w, &f->entry.ctime);
    wire_put_u64(&w, f->entry.inode);
    wire_put_bytes(&w, f->boot.bytes, sizeof(f->boot.bytes));
    wire_put_blob(&w, f->path, f->entry.path_len);
    int err = append(j, JOURNAL_FILE, &w);
    if (err < 0)
        return err;
    f->number = j->next_number++;
    f->named = true;
    return 0;
}

static int append_leaves(struct journal *j, const struct journal_file *f, uint64_t first,
                         const struct digest *leaves, uint64_t count)
{
    int err = 0;
    for (uint64_t done = 0, n; done < count && err == 0; done += n) {
        n = u64_min(count - done, JOURNAL_LEAVES_MAX);
        struct wire_writer w;
        wire_writer_init(&w, j->payload, sizeof(j->payload));
        wire_put_u64(&w, f->number);
        wire_put_u64(&w, first + done);
        wire_put_bytes(&w, leaves + done, n * sizeof(*leaves));
        err = append(j, JOURNAL_LEAVES, &w);
    }
    return err;
}

static int append_gone(struct journal *j, const struct journal_file *f)
{
    if (!f->named)
        return j->failed;
    struct wire_writer w;
    wire_writer_init(&w, j->payload, sizeof(j->payload));
    wire_put_u64(&w, f->number);
    return append(j, JOURNAL_GONE, &w);
}

// ---- opening ----

static int append_known(struct journal *j, struct journal_file *f)
{
    f->named = false; // it may be in the old journal, but not in this one
    int err = append_file(j, f);
    for (uint32_t i = 0; i < f->count && err == 0; i++)
        err = append_leaves(j, f, f->held[i].offset, &f->leaves[f->held[i].offset], f->held[i].len);
    return err;
}

// Fills the new file with the header and all that is known, and syncs it.
static int write_known(struct journal *j)
{
    struct record_header header = {.kind = RECORD_JOURNAL, .version = JOURNAL_VERSION, .job = j->job};
    int err = sys_random(header.salt, sizeof(header.salt));
    if (err < 0)
        return err;
    record_header_encode(&header, j->buffer, &j->chain);
    j->used = RECORD_HEADER_BYTES;
    j->end = j->next_number = 0;
    j->failed = 0;
    for (size_t i = 0; i < j->table.bucket_count; i++) {
        for (struct journal_file *f = j->table.buckets[i]; f != NULL; f = f->next) {
            err = append_known(j, f);
            if (err < 0)
                return err;
        }
    }
    err = flush(j);
    if (err == 0)
        err = sys_fsync(j->fd);
    j->unsynced = false;
    return err;
}

// Creates a file of that name which was not there.
static int create_new(int dir_fd, const char *name)
{
    int flags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW;
    int fd = sys_openat(dir_fd, name, flags, 0600);
    if (fd != -EEXIST)
        return fd;
    int err = sys_unlinkat(dir_fd, name, 0); // from a run that was cut off here
    return err < 0 ? err : sys_openat(dir_fd, name, flags, 0600);
}

// Writes the journal anew and puts it in the place of the old one, which stays until then.
static int compact(struct journal *j)
{
    static const char new_name[] = "journal.new";
    j->fd = create_new(j->state_fd, new_name);
    if (j->fd < 0)
        return j->fd;
    int err = write_known(j);
    if (err == 0)
        err = sys_renameat(j->state_fd, new_name, j->state_fd, "journal");
    if (err == 0)
        return sys_fsync(j->state_fd);
    int unlinked = sys_unlinkat(j->state_fd, new_name, 0);
    (void)unlinked; // the next to open it removes it
    return err;
}

static struct digest boot_now(void)
{
    char id[64];
    sys_boot_id(id);
    return id[0] != '\0' ? digest_of(id, strlen(id)) : (struct digest){0};
}

int journal_open(int state_fd, const struct job_id *job, struct journal **out, bool *damaged)
{
    struct journal *j = calloc(1, sizeof(*j));
    if (j == NULL)
        return -ENOMEM;
    j->state_fd = state_fd;
    j->fd = -1;
    j->job = *job;
    j->boot = boot_now();
    bool hurt = false;
    int err = journal_table_init(&j->table);
    if (err == 0)
        err = journal_replay(state_fd, &j->table, &hurt);
    if (err == 0)
        err = compact(j);
    if (err < 0) {
        journal_close(j);
        return err;
    }
    *out = j;
    *damaged = hurt;
    return 0;
}

static void free_forgotten(struct journal *j)
{
    while (j->forgotten != NULL) {
        struct journal_file *f = j->forgotten;
        j->forgotten = f->next;
        journal_file_free(f);
    }
}

void journal_close(struct journal *j)
{
    if (j == NULL)
        return;
    if (j->fd >= 0)
        sys_close(j->fd); // what was not synced is no promise yet
    journal_table_fini(&j->table);
    free_forgotten(j);
    free(j);
}

// ---- files ----

// The file of that path and version, marked as asked for. Another version of the path is forgotten; an error
// of that stays in j->failed for the next append.
static struct journal_file *find(struct journal *j, const struct entry *e)
{
    assert(e->type == ENTRY_FILE && e->size > 0);
    struct journal_file *f = journal_table_find(&j->table, e->path, e->path_len);
    if (f == NULL)
        return NULL;
    if (entry_same_version(&f->entry, e)) {
        f->asked = true;
        return f;
    }
    fail(j, append_gone(j, f));
    journal_table_remove(&j->table, f);
    f->next = j->forgotten;
    j->forgotten = f;
    free(f->held);
    free(f->leaves);
    f->held = NULL;
    f->leaves = NULL;
    f->count = f->capacity = 0;
    return NULL;
}

struct journal_file *journal_other(const struct journal *j, const struct entry *e, struct entry *version)
{
    struct journal_file *f = journal_table_find(&j->table, e->path, e->path_len);
    if (f == NULL || entry_same_version(&f->entry, e))
        return NULL;
    *version = f->entry;
    version->path = e->path;
    return f;
}

int journal_file(struct journal *j, const struct entry *e, struct journal_file **out)
{
    struct journal_file *f = find(j, e);
    if (j->failed < 0)
        return j->failed;
    if (f == NULL) {
        int err = journal_table_add(&j->table, e, &f);
        if (err < 0)
            return err;
        f->asked = true;
    }
    *out = f;
    return 0;
}

struct journal_file *journal_find(struct journal *j, const struct entry *e)
{
    struct journal_file *f = find(j, e);
    return f != NULL && f->count > 0 ? f : NULL;
}

const struct range *journal_held(const struct journal_file *f, uint32_t *count)
{
    *count = f->count;
    return f->held;
}

const struct digest *journal_leaves(const struct journal_file *f)
{
    return f->leaves;
}

int journal_leaf_set(struct journal_file *f, uint64_t leaf, const struct digest *digest)
{
    assert(leaf < journal_file_leaves(f));
    int err = journal_file_reserve(f);
    if (err < 0)
        return err;
    f->leaves[leaf] = *digest;
    return 0;
}

int journal_durable(struct journal *j, struct journal_file *f, uint64_t first_leaf,
                    const struct digest *leaves, uint32_t count)
{
    uint64_t all = journal_file_leaves(f);
    assert(count > 0 && count <= all && first_leaf <= all - count);
    if (j->failed < 0)
        return j->failed;
    int err = journal_file_reserve(f); // first, so that memory never knows less than the file
    if (err == 0)
        err = append_file(j, f);
    if (err == 0)
        err = append_leaves(j, f, first_leaf, leaves, count);
    if (err == 0)
        journal_file_hold(f, first_leaf, leaves, count);
    return err;
}

int journal_gone(struct journal *j, struct journal_file *f)
{
    int err = append_gone(j, f);
    journal_table_remove(&j->table, f);
    journal_file_free(f);
    return err;
}

int journal_sync(struct journal *j)
{
    int err = flush(j);
    if (err < 0 || !j->unsynced)
        return err;
    j->unsynced = false;
    return fail(j, sys_fdatasync(j->fd));
}

int journal_renew(struct journal *j)
{
    int failed = journal_sync(j);
    if (failed == 0)
        return 0;
    int old_fd = j->fd;
    int err = compact(j);
    if (old_fd >= 0)
        sys_close(old_fd); // nobody believes what it could still say
    if (err < 0 && j->fd >= 0)
        sys_close(j->fd);
    if (err < 0)
        j->fd = -1;
    if (err < 0)
        j->failed = failed;
    return err;
}

void journal_each(const struct journal *j,
                  void (*each)(void *arg, const struct entry *e, const struct range *held, uint32_t count),
                  void *arg)
{
    for (size_t i = 0; i < j->table.bucket_count; i++)
        for (const struct journal_file *f = j->table.buckets[i]; f != NULL; f = f->next)
            if (f->count > 0)
                each(arg, &f->entry, f->held, f->count);
}

// ---- another boot ----

static uint64_t held_bytes(const struct journal_file *f)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < f->count; i++) {
        uint64_t start = f->held[i].offset * LEAF_BYTES;
        bytes += u64_min(f->held[i].len * LEAF_BYTES, f->entry.size - start);
    }
    return bytes;
}

bool journal_doubtful(const struct journal *j, const struct journal_file *f)
{
    static const struct digest unknown;
    return f->count > 0 && (!digest_equal(&f->boot, &j->boot) || digest_equal(&f->boot, &unknown));
}

uint64_t journal_doubtful_bytes(const struct journal *j)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < j->table.bucket_count; i++)
        for (const struct journal_file *f = j->table.buckets[i]; f != NULL; f = f->next)
            if (journal_doubtful(j, f))
                bytes += held_bytes(f);
    return bytes;
}

static int hold_again(struct journal *j, struct journal_file *f, const struct range *leaves)
{
    int err = journal_file_reserve(f);
    if (err == 0)
        err = append_file(j, f);
    if (err == 0)
        err = append_leaves(j, f, leaves->offset, &f->leaves[leaves->offset], leaves->len);
    if (err == 0)
        journal_file_hold(f, leaves->offset, &f->leaves[leaves->offset], leaves->len);
    return err;
}

int journal_hold(struct journal *j, struct journal_file *f, const struct range *leaves, uint32_t count)
{
    int err = append_gone(j, f);
    f->named = false;
    f->count = 0;
    for (uint32_t i = 0; i < count && err == 0; i++)
        err = hold_again(j, f, &leaves[i]);
    if (err < 0)
        f->count = 0;
    return err;
}

void journal_each_stale(struct journal *j, void (*each)(void *arg, const struct entry *e), void *arg)
{
    for (size_t i = 0; i < j->table.bucket_count; i++) {
        for (struct journal_file *f = j->table.buckets[i], *next; f != NULL; f = next) {
            next = f->next;
            if (f->asked)
                continue;
            fail(j, append_gone(j, f));
            journal_table_remove(&j->table, f);
            f->next = j->forgotten;
            j->forgotten = f;
        }
    }
    while (j->forgotten != NULL) {
        struct journal_file *f = j->forgotten;
        j->forgotten = f->next;
        each(arg, &f->entry);
        journal_file_free(f);
    }
}
