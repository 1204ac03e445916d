// What the yardstick moves: the list of files, the units, and the target made ready for them.
#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/bench/limit.h"

enum { DIRECTORY_MODE = 0755, FILE_MODE = 0644 };

// Doubles an array when it is full.
static void *grow(void *array, size_t count, size_t size)
{
    if (count != 0 && (count & (count - 1)) != 0)
        return array;
    void *grown = reallocarray(array, count == 0 ? 1 : 2 * count, size);
    if (grown == NULL)
        limit_die("memory", "plan");
    return grown;
}

static void add_file(struct limit_plan *plan, const char *path, uint64_t size)
{
    plan->files = grow(plan->files, plan->file_count, sizeof(*plan->files));
    char *copy = strdup(path);
    if (copy == NULL)
        limit_die("memory", path);
    plan->files[plan->file_count++] = (struct limit_file){.path = copy, .size = size, .fd = -1};
    plan->bytes += size;
}

static void add_unit(struct limit_plan *plan, struct limit_unit unit)
{
    plan->units = grow(plan->units, plan->unit_count, sizeof(*plan->units));
    plan->units[plan->unit_count++] = unit;
}

static void list_entry(const struct limit_options *o, struct limit_plan *plan, const FTSENT *entry)
{
    if (entry->fts_level == FTS_ROOTLEVEL)
        return;
    const char *rest = entry->fts_path + strlen(o->source) + 1;
    if (entry->fts_info == FTS_D && o->target != NULL && mkdirat(plan->target_fd, rest, DIRECTORY_MODE) < 0)
        limit_die("mkdir", rest);
    if (entry->fts_info == FTS_F)
        add_file(plan, rest, (uint64_t)entry->fts_statp->st_size);
    if (entry->fts_info == FTS_DNR || entry->fts_info == FTS_ERR || entry->fts_info == FTS_NS) {
        errno = entry->fts_errno;
        limit_die("list", rest);
    }
}

static void list_source(const struct limit_options *o, struct limit_plan *plan)
{
    if (o->source == NULL) {
        add_file(plan, "memory", o->memory_bytes);
        return;
    }
    plan->source_fd = open(o->source, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    char *const roots[] = {(char *)(uintptr_t)o->source, NULL};
    FTS *listing = plan->source_fd < 0 ? NULL : fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR, NULL);
    if (listing == NULL)
        limit_die("open", o->source);
    FTSENT *entry;
    while (errno = 0, (entry = fts_read(listing)) != NULL)
        list_entry(o, plan, entry);
    if (errno != 0)
        limit_die("list", o->source);
    fts_close(listing);
}

static bool small(const struct limit_file *f)
{
    return f->size <= LIMIT_LEAF_BYTES;
}

static void cut_large(const struct limit_options *o, struct limit_plan *plan, uint32_t i)
{
    uint64_t size = plan->files[i].size;
    for (uint64_t at = 0; at < size; at += o->unit_bytes) {
        uint64_t left = size - at;
        uint32_t bytes = left < o->unit_bytes ? (uint32_t)left : o->unit_bytes;
        add_unit(plan, (struct limit_unit){.file = i, .files = 1, .offset = at, .bytes = bytes});
    }
}

static void cut(const struct limit_options *o, struct limit_plan *plan)
{
    struct limit_unit pack = {0};
    for (uint32_t i = 0; i < plan->file_count; i++) {
        const struct limit_file *f = &plan->files[i];
        bool fits = small(f) && pack.files < LIMIT_PACKED_FILES_MAX && pack.bytes + f->size <= o->unit_bytes;
        if (pack.files > 0 && !fits) {
            add_unit(plan, pack);
            pack = (struct limit_unit){0};
        }
        if (!small(f)) {
            cut_large(o, plan, i);
            continue;
        }
        if (pack.files++ == 0)
            pack.file = i;
        pack.bytes += (uint32_t)f->size;
    }
    if (pack.files > 0)
        add_unit(plan, pack);
}

bool limit_unit_packed(const struct limit_plan *plan, const struct limit_unit *unit)
{
    return small(&plan->files[unit->file]);
}

// Space for every large file before its bytes come: direct writes inside the size run without waiting (on
// tmpfs there is nothing to gain, and it would be filled with zeros first).
static void make_targets(const struct limit_options *o, struct limit_plan *plan)
{
    int direct = o->write == LIMIT_WRITE_RING ? O_DIRECT : 0;
    for (size_t i = 0; i < plan->file_count; i++) {
        struct limit_file *f = &plan->files[i];
        if (small(f))
            continue;
        f->fd =
            openat(plan->target_fd, f->path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | direct, FILE_MODE);
        if (f->fd < 0)
            limit_die("create", f->path);
        if (direct != 0 && fallocate(f->fd, 0, 0, (off_t)f->size) < 0)
            limit_die("fallocate", f->path);
    }
}

void limit_plan_make(const struct limit_options *o, struct limit_plan *plan)
{
    *plan = (struct limit_plan){.source_fd = -1, .target_fd = -1};
    plan->cursor =
        mmap(NULL, sizeof(*plan->cursor), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (plan->cursor == MAP_FAILED)
        limit_die("mmap", "cursor");
    if (o->target != NULL) {
        plan->target_fd = open(o->target, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (plan->target_fd < 0)
            limit_die("open", o->target);
    }
    list_source(o, plan);
    cut(o, plan);
    if (o->target != NULL)
        make_targets(o, plan);
}

void limit_plan_sync(const struct limit_options *o, const struct limit_plan *plan)
{
    if (o->target == NULL)
        return;
    for (size_t i = 0; i < plan->file_count; i++) {
        const struct limit_file *f = &plan->files[i];
        // The last write of a file was of whole blocks.
        if (f->fd >= 0 && f->size % LIMIT_BLOCK_BYTES != 0 && ftruncate(f->fd, (off_t)f->size) < 0)
            limit_die("truncate", f->path);
    }
    bool one = plan->file_count == 1 && plan->files[0].fd >= 0;
    if (one ? fsync(plan->files[0].fd) < 0 || fsync(plan->target_fd) < 0 : syncfs(plan->target_fd) < 0)
        limit_die("sync", o->target);
}
