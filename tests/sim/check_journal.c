// Reads the destination's journal by the layout in storage/journal.h; only the chain of checksums, which says
// where a torn tail begins, is the product's.
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/record.h"
#include "proto/wire.h"
#include "storage/dest.h"
#include "tests/sim/watch.h"
#include "tests/sim/world.h"

enum { RECORD_FILE = 1, RECORD_LEAVES = 2, RECORD_GONE = 3, FILES_MAX = 256, LEAVES_MAX = 64 };

struct listed {
    bool there;
    struct entry entry; // its path is in `path`
    char path[1024];
    bool leaves[LEAVES_MAX];
};

struct listing {
    struct model *model;
    bool kept;
    unsigned count;
    struct listed files[FILES_MAX];
};

static struct inode *find(const struct inode *dir, const char *name, bool kept)
{
    return dir == NULL ? NULL : kept ? fs_find_kept(dir, name) : fs_find(dir, name);
}

static struct inode *find_path(struct inode *dir, const char *path, bool kept)
{
    while (dir != NULL && *path != '\0') {
        char part[NAME_BYTES_MAX + 1];
        size_t len = strcspn(path, "/");
        snprintf(part, sizeof part, "%.*s", (int)len, path);
        dir = find(dir, part, kept);
        path += len;
        path += *path == '/';
    }
    return dir;
}

static void take_file(struct listing *l, struct wire_reader *r)
{
    uint64_t number = wire_get_u64(r);
    if (number != l->count || l->count == FILES_MAX)
        world_fail("file %llu of the journal is out of order", (unsigned long long)number);
    struct listed *f = &l->files[l->count++];
    *f = (struct listed){.there = true, .entry = {.type = ENTRY_FILE}};
    f->entry.size = wire_get_u64(r);
    f->entry.mtime.s = (int64_t)wire_get_u64(r);
    f->entry.mtime.ns = wire_get_u32(r);
    f->entry.ctime.s = (int64_t)wire_get_u64(r);
    f->entry.ctime.ns = wire_get_u32(r);
    f->entry.inode = wire_get_u64(r);
    (void)wire_get_span(r, 16); // the boot
    size_t len;
    const uint8_t *path = wire_get_blob(r, sizeof f->path - 1, &len);
    if (path == NULL)
        world_fail("a path of the journal cannot be read");
    memcpy(f->path, path, len);
    f->entry.path = (const uint8_t *)f->path;
    f->entry.path_len = (uint32_t)len;
}

static void take_record(struct listing *l, const struct record *record)
{
    struct wire_reader r;
    wire_reader_init(&r, record->payload, record->payload_bytes);
    if (record->type == RECORD_FILE) {
        take_file(l, &r);
        return;
    }
    uint64_t number = wire_get_u64(&r);
    if (number >= l->count)
        world_fail("the journal names file %llu, which it has not listed", (unsigned long long)number);
    if (record->type == RECORD_GONE) {
        l->files[number].there = false;
        return;
    }
    uint64_t first = wire_get_u64(&r), count = wire_left(&r) / 16;
    for (uint64_t i = first; i < first + count && i < LEAVES_MAX; i++)
        l->files[number].leaves[i] = true;
}

static const struct version *version_of(const struct item *item, const struct entry *e)
{
    for (unsigned i = 0; item != NULL && i < item->count; i++) {
        const struct version *v = &item->versions[i];
        if (v->size == e->size && v->mtime.tv_sec == e->mtime.s && v->mtime.tv_nsec == (long)e->mtime.ns)
            return v;
    }
    return NULL;
}

static void check_leaf(const struct listing *l, const struct listed *f, const struct inode *temp,
                       const struct version *v, uint64_t leaf)
{
    for (uint64_t b = leaf * (LEAF_BYTES / BLOCK_BYTES); b < (leaf + 1) * (LEAF_BYTES / BLOCK_BYTES); b++)
        if (b * BLOCK_BYTES < v->size && !version_block_is(temp, v, b, l->kept))
            world_fail("the journal says that leaf %llu of %s is durable, and its block %llu is not",
                       (unsigned long long)leaf, f->path, (unsigned long long)b);
}

static void check_file(const struct listing *l, const struct listed *f)
{
    const struct version *v = version_of(model_find(l->model, f->path), &f->entry);
    struct inode *store = fs_find(fs_root(world_host(HOST_DEST)->fs), "store");
    const struct inode *published = find_path(store, f->path, l->kept);
    if (v == NULL || (published != NULL && version_is(published, v, l->kept)))
        return;
    char name[TEMP_NAME_BYTES], path[TEMP_NAME_BYTES + 32];
    dest_temp_name(&f->entry, name);
    snprintf(path, sizeof path, ".penstock/temp/%s", name);
    const struct inode *temp = find_path(store, path, l->kept);
    for (uint64_t leaf = 0; leaf * LEAF_BYTES < v->size; leaf++) {
        if (!f->leaves[leaf] || (temp == NULL && l->model->temps_lost))
            continue;
        if (temp == NULL)
            world_fail("the journal says that leaves of %s are durable, and its temporary file %s", f->path,
                       l->kept ? "would be lost in a crash" : "is not there");
        if ((l->kept ? temp->kept.size : temp->seen.size) < v->size)
            world_fail("the temporary file of %s is shorter than what the journal says of it", f->path);
        if (!l->model->temps_spoilt)
            check_leaf(l, f, temp, v, leaf);
    }
}

static uint8_t *read_whole(const struct inode *f, bool kept, size_t *len)
{
    *len = kept ? f->kept.size : f->seen.size;
    uint8_t *bytes = calloc(1, *len + BLOCK_BYTES);
    assert(bytes != NULL);
    for (size_t at = 0; at < *len; at += BLOCK_BYTES) {
        const uint8_t *block = fs_block(f, at / BLOCK_BYTES, kept);
        if (block != NULL)
            memcpy(bytes + at, block, BLOCK_BYTES);
    }
    return bytes;
}

// What the journal says; the caller's to free. NULL: there is none.
static struct listing *journal_read(struct model *m, bool journal_kept, bool files_kept)
{
    struct inode *store = fs_find(fs_root(world_host(HOST_DEST)->fs), "store");
    const struct inode *f = find_path(store, ".penstock/journal", journal_kept);
    if (f == NULL)
        return NULL;
    size_t len;
    uint8_t *bytes = read_whole(f, journal_kept, &len);
    struct listing *l = calloc(1, sizeof *l);
    assert(l != NULL);
    l->model = m;
    l->kept = files_kept;
    struct record_header head;
    struct record_chain chain;
    if (len < RECORD_HEADER_BYTES || record_header_decode(bytes, RECORD_JOURNAL, 1, &head, &chain) < 0)
        world_fail("the journal has no header"); // it is synced before it gets its name
    size_t at = RECORD_HEADER_BYTES;
    struct record record;
    int64_t taken;
    while ((taken = record_decode(&chain, bytes + at, len - at, &record)) > 0) {
        take_record(l, &record);
        at += (size_t)taken;
    }
    free(bytes);
    return l;
}

void check_journal(struct model *m, bool journal_kept, bool files_kept)
{
    struct listing *l = journal_read(m, journal_kept, files_kept);
    for (unsigned i = 0; l != NULL && i < l->count; i++)
        if (l->files[i].there)
            check_file(l, &l->files[i]);
    free(l);
}

void check_new_temp(struct model *m, const char *name)
{
    struct listing *l = journal_read(m, true, true);
    for (unsigned i = 0; l != NULL && i < l->count; i++) {
        const struct listed *f = &l->files[i];
        char listed[TEMP_NAME_BYTES];
        dest_temp_name(&f->entry, listed);
        if (f->there && memchr(f->leaves, true, sizeof f->leaves) != NULL && strcmp(listed, name) == 0)
            world_fail(
                "the temporary file of %s is made anew, and after a crash the journal would still promise "
                "what the old one held",
                f->path);
    }
    free(l);
}
