#include "mover/sender_files.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "storage/source.h"
#include "storage/sys.h"

// A large file that a stream has open. Slots hold it while they read; the last one used stays open for the
// next stripe.
struct sender_file {
    struct sender_files *files;
    uint64_t segment;
    uint32_t entry;
    int fd; // or -errno of the open
    bool opened, direct;
    unsigned slots; // that hold it
    struct sender_file *next;
};

void sender_files_init(struct sender_files *f, struct engine *engine, const struct walk_source *roots,
                       enum direct_mode direct, bool in_memory)
{
    *f = (struct sender_files){.engine = engine, .roots = roots, .direct = direct, .in_memory = in_memory};
}

static void file_free(struct sender_file *file)
{
    if (file->fd >= 0)
        (void)sys_close(file->fd); // only read from: a close tells nothing
    free(file);
}

void sender_files_fini(struct sender_files *f)
{
    while (f->open != NULL) {
        struct sender_file *file = f->open;
        f->open = file->next;
        file_free(file);
    }
}

// Closes files that no slot holds, but for `keep`.
static void close_unused(struct sender_files *f, const struct sender_file *keep)
{
    struct sender_file **at = &f->open;
    while (*at != NULL) {
        struct sender_file *file = *at;
        if (file->slots == 0 && file != keep) {
            *at = file->next;
            file_free(file);
        } else {
            at = &file->next;
        }
    }
}

static struct sender_file *file_find(struct sender_files *f, uint64_t segment, uint32_t entry)
{
    struct sender_file *file = f->open;
    while (file != NULL && (file->segment != segment || file->entry != entry))
        file = file->next;
    if (file == NULL) {
        file = calloc(1, sizeof *file);
        if (file == NULL)
            return NULL;
        *file =
            (struct sender_file){.files = f, .segment = segment, .entry = entry, .fd = -1, .next = f->open};
        f->open = file;
    }
    return file;
}

// No byte of the stripe is to be believed: why, and zeros.
static void spoil(struct slot *slot, struct extent_status status)
{
    for (uint32_t i = 0; i < slot->stripe.extent_count; i++)
        slot->status[i] = status;
    memset(slot->body, 0, slot->stripe.body_bytes);
}

// On a file thread. Two slots may open the same file at once; each then has a descriptor, and the loser's is
// closed.
static int open_call(void *arg)
{
    struct slot *slot = arg;
    struct sender_file *file = slot->file;
    const struct entry *e = slot_entry(slot, 0);
    storage_watch_begin(slot->watch, &slot->wait, "open", e);
    int fd = source_open(file->files->roots, e, file->files->direct, &slot->direct);
    storage_watch_end(slot->watch, &slot->wait);
    slot->fd = fd;
    if (fd < 0)
        spoil(slot, source_failure(fd));
    return fd < 0 ? fd : 0;
}

static void let_go(struct slot *slot)
{
    struct sender_file *file = slot->file;
    if (file == NULL)
        return;
    assert(file->slots > 0);
    file->slots--;
    slot->file = NULL;
}

static void on_open(struct op *op, int64_t result)
{
    struct slot *slot = CONTAINER_OF(op, struct slot, op);
    struct sender_file *file = slot->file;
    if (result < 0) {
        let_go(slot);
    } else if (file->opened) {
        (void)sys_close(slot->fd);
        slot->fd = file->fd;
        slot->direct = file->direct;
    } else {
        file->opened = true;
        file->fd = slot->fd;
        file->direct = slot->direct;
    }
    slot->then(op, result);
}

static void nothing_done(struct op *op, int64_t result)
{
    struct slot *slot = CONTAINER_OF(op, struct slot, op);
    slot->then(op, result);
}

static int out_of_memory(void *arg)
{
    spoil(arg, source_failure(-ENOMEM));
    return -ENOMEM;
}

static int already_open(void *arg)
{
    (void)arg;
    return 0;
}

static void call(struct sender_files *f, struct slot *slot, int (*function)(void *),
                 void (*done)(struct op *, int64_t), bool at_once)
{
    slot->op = (struct op){.kind = OP_CALL, .call = function, .arg = slot, .at_once = at_once, .done = done};
    engine_start(f->engine, &slot->op);
}

void sender_files_open(struct sender_files *f, struct slot *slot, void (*done)(struct op *op, int64_t result))
{
    slot->then = done;
    slot->touched = false;
    struct sender_file *file = file_find(f, slot->segment, slot->stripe.entry);
    close_unused(f, file);
    if (file == NULL) {
        call(f, slot, out_of_memory, nothing_done, true);
        return;
    }
    file->slots++;
    slot->file = file;
    if (file->opened) {
        slot->fd = file->fd;
        slot->direct = file->direct;
        call(f, slot, already_open, nothing_done, true);
        return;
    }
    call(f, slot, open_call, on_open, f->in_memory);
}

// Same file, untouched between two looks at it.
static bool stood_still(const struct stat *a, const struct stat *b)
{
    return a->st_ino == b->st_ino && a->st_size == b->st_size && a->st_mtim.tv_sec == b->st_mtim.tv_sec &&
           a->st_mtim.tv_nsec == b->st_mtim.tv_nsec && a->st_ctim.tv_sec == b->st_ctim.tv_sec &&
           a->st_ctim.tv_nsec == b->st_ctim.tv_nsec;
}

static int check_file(struct slot *slot)
{
    const struct entry *e = slot_entry(slot, 0);
    enum source_check check;
    int rc = slot->io_error != 0 ? (int)slot->io_error : source_compare(slot->fd, e, &check);
    if (rc < 0) {
        spoil(slot, source_failure(rc));
        return 0;
    }
    struct stat now;
    if (check == SOURCE_TOUCHED && (rc = sys_fstat(slot->fd, &now)) == 0) {
        if (slot->touched && stood_still(&slot->seen, &now))
            check = SOURCE_SAME;
        else if (slot->touched)
            check = SOURCE_CHANGED;
        else {
            slot->touched = true;
            slot->seen = now;
            return SENDER_READ_AGAIN;
        }
    }
    if (rc < 0)
        spoil(slot, source_failure(rc));
    else if (check != SOURCE_SAME || slot->io_short)
        spoil(slot, (struct extent_status){.state = EXTENT_CHANGED});
    return 0;
}

static int check_call(void *arg)
{
    struct slot *slot = arg;
    storage_watch_begin(slot->watch, &slot->wait, "check", slot_entry(slot, 0));
    int rc = check_file(slot);
    storage_watch_end(slot->watch, &slot->wait);
    return rc;
}

static void on_check(struct op *op, int64_t result)
{
    struct slot *slot = CONTAINER_OF(op, struct slot, op);
    if (result != SENDER_READ_AGAIN)
        let_go(slot);
    slot->then(op, result);
}

void sender_files_check(struct sender_files *f, struct slot *slot,
                        void (*done)(struct op *op, int64_t result))
{
    slot->then = done;
    call(f, slot, check_call, on_check, f->in_memory);
}

// One small file into the body at `at`.
static struct extent_status read_small(const struct sender_files *f, const struct entry *e, uint8_t *at,
                                       uint32_t len)
{
    bool direct;
    int fd = source_open(f->roots, e, DIRECT_OFF, &direct);
    if (fd < 0)
        return source_failure(fd);
    // A second look at a file whose ctime alone moved, as for large ones.
    enum source_check check = SOURCE_TOUCHED;
    struct stat seen = {0}, now;
    ssize_t got = 0;
    int rc = 0;
    for (int look = 0; look < 2 && rc == 0 && got >= 0 && check == SOURCE_TOUCHED; look++) {
        got = sys_pread_full(fd, at, len, 0);
        rc = source_compare(fd, e, &check);
        if (rc == 0 && check == SOURCE_TOUCHED && (rc = sys_fstat(fd, &now)) == 0) {
            if (look == 1)
                check = stood_still(&seen, &now) ? SOURCE_SAME : SOURCE_CHANGED;
            seen = now;
        }
    }
    (void)sys_close(fd); // only read from: a close tells nothing
    if (got < 0 || rc < 0)
        return source_failure(got < 0 ? (int)got : rc);
    if (check != SOURCE_SAME || (uint32_t)got < len)
        return (struct extent_status){.state = EXTENT_CHANGED};
    return (struct extent_status){.state = EXTENT_OK};
}

static int packed_call(void *arg)
{
    struct slot *slot = arg;
    const struct sender_files *f = slot->file;
    uint8_t *at = slot->body;
    for (uint32_t i = 0; i < slot->stripe.extent_count; i++) {
        uint32_t len = slot->extents[i].len;
        storage_watch_begin(slot->watch, &slot->wait, "read", slot_entry(slot, i));
        slot->status[i] = read_small(f, slot_entry(slot, i), at, len);
        if (slot->status[i].state != EXTENT_OK)
            memset(at, 0, len);
        at += len;
    }
    storage_watch_end(slot->watch, &slot->wait);
    return 0;
}

static void on_packed(struct op *op, int64_t result)
{
    struct slot *slot = CONTAINER_OF(op, struct slot, op);
    slot->file = NULL;
    slot->then(op, result);
}

void sender_files_packed(struct sender_files *f, struct slot *slot,
                         void (*done)(struct op *op, int64_t result))
{
    slot->then = done;
    slot->file = f;
    call(f, slot, packed_call, on_packed, f->in_memory);
}
