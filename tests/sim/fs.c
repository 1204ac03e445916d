#include "tests/sim/fs.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/fs_inner.h"
#include "tests/sim/sched.h"

enum { WALL_S = 1700000000, NO_LIMIT_BLOCKS = 1 << 30 };

struct timespec fs_now(void)
{
    // Two changes at the same moment would have the same mtime, which no mover could tell apart.
    uint64_t ns = sched_stamp_ns();
    return (struct timespec){.tv_sec = (time_t)(WALL_S + ns / NS_PER_S), .tv_nsec = (long)(ns % NS_PER_S)};
}

struct inode *inode_new(struct fs *fs, mode_t mode)
{
    struct inode *i = calloc(1, sizeof *i);
    assert(i != NULL);
    *i = (struct inode){.fs = fs, .number = fs->next_number++, .next = fs->inodes, .ctime = fs_now()};
    i->seen = i->kept = (struct attributes){.mode = mode, .mtime = i->ctime};
    fs->inodes = i;
    return i;
}

struct fs *fs_new(uint64_t device, uint64_t seed)
{
    struct fs *fs = calloc(1, sizeof *fs);
    assert(fs != NULL);
    *fs = (struct fs){.device = device, .next_number = 2, .limit = NO_LIMIT_BLOCKS, .rng = {.state = seed}};
    fs->root = inode_new(fs, S_IFDIR | 0755);
    fs->root->parent = fs->root;
    fs->root->links = 1;
    return fs;
}

static void inode_free(struct inode *i)
{
    for (size_t k = 0; k < i->room; k++) {
        if (i->kept_blocks[k] != i->seen_blocks[k])
            free(i->kept_blocks[k]);
        free(i->seen_blocks[k]);
    }
    free(i->seen_blocks);
    free(i->kept_blocks);
    free(i->lost);
    free(i->target);
    names_free(&i->names);
    names_free(&i->kept_names);
    free(i);
}

void fs_free(struct fs *fs)
{
    while (fs->inodes != NULL) {
        struct inode *i = fs->inodes;
        fs->inodes = i->next;
        inode_free(i);
    }
    changes_free(fs);
    free(fs);
}

struct inode *fs_root(struct fs *fs)
{
    return fs->root;
}

uint64_t fs_device(const struct fs *fs)
{
    return fs->device;
}

void fs_limit(struct fs *fs, uint64_t blocks)
{
    fs->limit = blocks;
}

uint64_t fs_used(const struct fs *fs)
{
    return fs->used;
}

uint64_t fs_free_blocks(const struct fs *fs)
{
    return fs->used < fs->limit ? fs->limit - fs->used : 0;
}

// ---- bytes ----

static void grow(struct inode *f, size_t blocks)
{
    if (blocks <= f->room)
        return;
    size_t room = u64_max(blocks, 2 * f->room);
    f->seen_blocks = reallocarray(f->seen_blocks, room, sizeof *f->seen_blocks);
    f->kept_blocks = reallocarray(f->kept_blocks, room, sizeof *f->kept_blocks);
    f->lost = reallocarray(f->lost, room, sizeof *f->lost);
    assert(f->seen_blocks != NULL && f->kept_blocks != NULL && f->lost != NULL);
    for (size_t i = f->room; i < room; i++) {
        f->seen_blocks[i] = f->kept_blocks[i] = NULL;
        f->lost[i] = false;
    }
    f->room = room;
}

const uint8_t *fs_block(const struct inode *f, uint64_t number, bool kept)
{
    return number >= f->room ? NULL : kept ? f->kept_blocks[number] : f->seen_blocks[number];
}

uint64_t fs_used_blocks(const struct inode *f)
{
    uint64_t count = 0;
    for (size_t i = 0; i < f->room; i++)
        count += f->seen_blocks[i] != NULL;
    return count;
}

size_t fs_read(const struct inode *f, void *buf, size_t len, uint64_t offset)
{
    if (offset >= f->seen.size)
        return 0;
    len = u64_min(len, f->seen.size - offset);
    for (size_t done = 0; done < len;) {
        uint64_t at = offset + done;
        size_t in = at % BLOCK_BYTES, n = u64_min(len - done, BLOCK_BYTES - in);
        const uint8_t *block = fs_block(f, at / BLOCK_BYTES, false);
        if (block != NULL)
            memcpy((uint8_t *)buf + done, block + in, n);
        else
            memset((uint8_t *)buf + done, 0, n);
        done += n;
    }
    return len;
}

static void drop_seen(struct inode *f, size_t number)
{
    uint8_t *block = f->seen_blocks[number];
    if (block == NULL)
        return;
    f->fs->used -= f->links > 0;
    f->seen_blocks[number] = NULL;
    f->lost[number] = false;
    if (block != f->kept_blocks[number])
        free(block);
}

// The block, to be written to: its own since the last sync. NULL: no space.
static uint8_t *own_block(struct inode *f, uint64_t number, bool whole)
{
    grow(f, number + 1);
    f->lost[number] = false;
    uint8_t *old = f->seen_blocks[number];
    if (old != NULL && old != f->kept_blocks[number])
        return old;
    if (old == NULL && fs_free_blocks(f->fs) == 0)
        return NULL;
    uint8_t *block = whole ? malloc(BLOCK_BYTES) : calloc(1, BLOCK_BYTES);
    assert(block != NULL);
    if (old != NULL && !whole)
        memcpy(block, old, BLOCK_BYTES);
    f->fs->used += old == NULL && f->links > 0;
    f->seen_blocks[number] = block;
    return block;
}

int fs_write(struct inode *f, const void *buf, size_t len, uint64_t offset)
{
    for (size_t done = 0; done < len;) {
        uint64_t at = offset + done;
        size_t in = at % BLOCK_BYTES, n = u64_min(len - done, BLOCK_BYTES - in);
        uint8_t *block = own_block(f, at / BLOCK_BYTES, n == BLOCK_BYTES);
        if (block == NULL)
            return -ENOSPC;
        memcpy(block + in, (const uint8_t *)buf + done, n);
        done += n;
        f->seen.size = u64_max(f->seen.size, offset + done);
    }
    f->seen.mtime = f->ctime = fs_now();
    return 0;
}

int fs_truncate(struct inode *f, uint64_t size)
{
    size_t first = u64_div_up(size, BLOCK_BYTES);
    for (size_t i = first; i < f->room; i++)
        drop_seen(f, i);
    size_t in = size % BLOCK_BYTES;
    if (in > 0 && size < f->seen.size && fs_block(f, size / BLOCK_BYTES, false) != NULL)
        memset(own_block(f, size / BLOCK_BYTES, false) + in, 0, BLOCK_BYTES - in);
    f->seen.size = size;
    f->seen.mtime = f->ctime = fs_now();
    return 0;
}

int fs_punch(struct inode *f, uint64_t offset, uint64_t len)
{
    assert(offset % BLOCK_BYTES == 0 && len % BLOCK_BYTES == 0 && len > 0);
    for (uint64_t i = offset / BLOCK_BYTES; i < (offset + len) / BLOCK_BYTES && i < f->room; i++)
        drop_seen(f, i);
    f->seen.mtime = f->ctime = fs_now();
    return 0;
}

int fs_set_target(struct inode *f, const char *target)
{
    f->target = strdup(target);
    assert(f->target != NULL);
    f->seen.size = f->kept.size = strlen(target);
    return 0;
}

// ---- syncs ----

void fs_sync_data(struct inode *f)
{
    for (size_t i = 0; i < f->room; i++) {
        if (f->kept_blocks[i] != f->seen_blocks[i] && !f->lost[i]) {
            free(f->kept_blocks[i]);
            f->kept_blocks[i] = f->seen_blocks[i];
        }
    }
    f->kept.size = f->seen.size;
}

void fs_sync_fails(struct inode *f)
{
    for (size_t i = 0; i < f->room; i++)
        f->lost[i] = f->kept_blocks[i] != f->seen_blocks[i];
}

void fs_sync_all_fails(struct fs *fs)
{
    for (struct inode *f = fs->inodes; f != NULL; f = f->next)
        fs_sync_fails(f);
}

void fs_sync(struct inode *f)
{
    fs_sync_data(f);
    f->kept = f->seen;
    if (S_ISDIR(f->seen.mode))
        changes_keep(f->fs, f, NULL, 100);
}

void fs_sync_all(struct fs *fs)
{
    for (struct inode *f = fs->inodes; f != NULL; f = f->next) {
        fs_sync_data(f);
        f->kept = f->seen;
    }
    changes_keep(fs, NULL, NULL, 100);
}

// ---- crash ----

// What is left of a block that was written since the sync: the new one, the old one, or some sectors of each.
static void crash_block(struct inode *f, size_t i, struct rng *rng, unsigned keep_percent)
{
    enum { SECTOR_BYTES = 512 };
    uint8_t *seen = f->seen_blocks[i], *kept = f->kept_blocks[i];
    bool survives = !f->lost[i] && rng_below(rng, 100) < keep_percent, torn = rng_once_in(rng, 8);
    f->lost[i] = false;
    if (survives && torn && seen != NULL) {
        for (size_t at = 0; at < BLOCK_BYTES; at += SECTOR_BYTES) {
            if (rng_once_in(rng, 2) && kept != NULL)
                memcpy(seen + at, kept + at, SECTOR_BYTES);
            else if (rng_once_in(rng, 2))
                memset(seen + at, 0, SECTOR_BYTES);
        }
    }
    if (survives) {
        free(kept);
        f->kept_blocks[i] = seen;
    } else {
        free(seen);
        f->seen_blocks[i] = kept;
    }
}

static void crash_inode(struct inode *f, struct rng *rng, unsigned keep_percent)
{
    for (size_t i = 0; i < f->room; i++)
        if (f->seen_blocks[i] != f->kept_blocks[i])
            crash_block(f, i, rng, keep_percent);
    if (!S_ISLNK(f->seen.mode) && rng_below(rng, 100) < keep_percent)
        f->kept.size = f->seen.size;
    if (rng_below(rng, 100) < keep_percent)
        f->kept.mtime = f->seen.mtime;
    if (rng_below(rng, 100) < keep_percent) {
        f->kept.mode = f->seen.mode;
        f->kept.uid = f->seen.uid;
        f->kept.gid = f->seen.gid;
    }
    uint64_t size = f->kept.size;
    f->seen = f->kept;
    f->seen.size = UINT64_MAX; // a tail behind the size must not come back
    if (S_ISREG(f->kept.mode)) {
        struct timespec mtime = f->kept.mtime;
        (void)fs_truncate(f, size);
        fs_sync_data(f);
        f->seen.mtime = f->kept.mtime = mtime;
    }
    f->seen.size = f->kept.size = size;
    f->locked_by = NULL;
    f->links = 0;
}

void fs_spoil(struct inode *f, uint64_t number)
{
    if (fs_block(f, number, true) != NULL)
        memset(f->kept_blocks[number], 0x5a, BLOCK_BYTES / 2);
}

void fs_crash(struct fs *fs)
{
    static const unsigned percents[] = {0, 10, 50, 90, 100};
    unsigned names = percents[rng_below(&fs->rng, ARRAY_LEN(percents))];
    unsigned blocks = percents[rng_below(&fs->rng, ARRAY_LEN(percents))];
    changes_keep(fs, NULL, &fs->rng, names);
    for (struct inode *f = fs->inodes; f != NULL; f = f->next)
        crash_inode(f, &fs->rng, blocks);
    fs->root->links = 1;
    for (struct inode *f = fs->inodes; f != NULL; f = f->next) {
        names_copy(&f->kept_names, &f->names);
        for (size_t i = 0; i < f->names.count; i++) {
            f->names.list[i].inode->links++;
            f->names.list[i].inode->parent = f;
        }
    }
    fs->used = 0;
    for (const struct inode *f = fs->inodes; f != NULL; f = f->next)
        fs->used += f->links > 0 ? fs_used_blocks(f) : 0;
}
