#include "tests/sim/model.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/world.h"

enum { MTIME_FIRST_S = 1500000000, YEAR_S = 31536000 };

static uint64_t word_at(uint64_t key, uint64_t offset)
{
    uint64_t z = key + (offset >> 3) * UINT64_C(0x9e3779b97f4a7c15);
    return z ^ (z >> 29);
}

// ---- versions ----

static void fill(uint8_t *buf, size_t len, uint64_t key, uint64_t offset)
{
    size_t i = 0;
    for (; i + 8 <= len; i += 8) {
        uint64_t word = word_at(key, offset + i);
        memcpy(buf + i, &word, 8);
    }
    if (i < len) {
        uint64_t word = word_at(key, offset + i);
        memcpy(buf + i, &word, len - i);
    }
}

static uint64_t key_at(const struct version *v, uint64_t offset)
{
    return v->split > 0 && offset >= v->split ? v->old_key : v->key;
}

static void write_range(struct inode *f, const struct version *v, uint64_t offset, uint64_t len)
{
    uint8_t block[BLOCK_BYTES];
    for (uint64_t at = offset; at < offset + len; at += BLOCK_BYTES) {
        size_t n = u64_min(BLOCK_BYTES, offset + len - at);
        fill(block, n, key_at(v, at), at);
        int rc = fs_write(f, block, n, at);
        assert(rc == 0);
    }
}

void version_write(struct inode *f, const struct version *v)
{
    if (S_ISREG(v->mode)) {
        (void)fs_truncate(f, 0);
        if (!v->sparse)
            write_range(f, v, 0, v->size);
        for (uint32_t i = 0; i < v->range_count; i++)
            write_range(f, v, v->ranges[i].offset, v->ranges[i].len);
        (void)fs_truncate(f, v->size);
    }
    f->seen.mode = v->mode;
    f->seen.mtime = v->mtime;
    f->ctime = fs_now();
}

void version_random(struct version *v, uint64_t size, bool may_be_sparse)
{
    static const mode_t modes[] = {0644, 0600, 0444, 0755, 0640, 0777};
    struct rng *rng = world_rng();
    *v = (struct version){
        .mode = S_IFREG | modes[rng_below(rng, ARRAY_LEN(modes))], .size = size, .key = rng_next(rng)};
    v->mtime = (struct timespec){.tv_sec = MTIME_FIRST_S + (time_t)rng_below(rng, 5 * YEAR_S),
                                 .tv_nsec = (long)rng_below(rng, 1000000000)};
    if (!may_be_sparse || size <= 2 * BLOCK_BYTES)
        return;
    v->sparse = true;
    uint64_t blocks = u64_div_up(size, BLOCK_BYTES), at = rng_below(rng, blocks);
    while (at < blocks && v->range_count < RANGES_MAX && !rng_once_in(rng, 6)) {
        uint64_t len = u64_min(rng_range(rng, 1, 1 + blocks / 4), blocks - at);
        v->ranges[v->range_count++] = (struct range){
            .offset = at * BLOCK_BYTES, .len = u64_min(size, (at + len) * BLOCK_BYTES) - at * BLOCK_BYTES};
        at += len + rng_range(rng, 1, 1 + blocks / 3);
    }
    const struct range *first = &v->ranges[0];
    if (v->range_count == 1 && first->offset == 0 && first->len == size)
        v->sparse = false;
}

uint64_t version_data_bytes(const struct version *v)
{
    if (!S_ISREG(v->mode))
        return 0;
    if (!v->sparse)
        return v->size;
    uint64_t sum = 0;
    for (uint32_t i = 0; i < v->range_count; i++)
        sum += v->ranges[i].len;
    return sum;
}

static bool is_data(const struct version *v, uint64_t offset)
{
    if (!v->sparse)
        return true;
    for (uint32_t i = 0; i < v->range_count; i++)
        if (offset >= v->ranges[i].offset && offset - v->ranges[i].offset < v->ranges[i].len)
            return true;
    return false;
}

bool version_block_is(const struct inode *f, const struct version *v, uint64_t number, bool kept)
{
    static const uint8_t zeros[BLOCK_BYTES];
    uint8_t expected[BLOCK_BYTES];
    uint64_t at = number * BLOCK_BYTES;
    size_t len = u64_min(BLOCK_BYTES, v->size - at);
    const uint8_t *block = fs_block(f, number, kept);
    if (block == NULL)
        block = zeros;
    if (!is_data(v, at))
        return memcmp(block, zeros, len) == 0;
    fill(expected, len, key_at(v, at), at);
    return memcmp(block, expected, len) == 0;
}

bool version_is(const struct inode *f, const struct version *v, bool kept)
{
    if ((f->seen.mode & S_IFMT) != (v->mode & S_IFMT))
        return false;
    if (S_ISLNK(v->mode))
        return strcmp(f->target, v->target) == 0;
    if (!S_ISREG(v->mode))
        return true;
    if ((kept ? f->kept.size : f->seen.size) != v->size)
        return false;
    for (uint64_t i = 0; i * BLOCK_BYTES < v->size; i++)
        if (!version_block_is(f, v, i, kept))
            return false;
    return true;
}

bool version_attributes_are(const struct attributes *a, const struct version *v)
{
    bool same_mode = S_ISLNK(v->mode) || (a->mode & 0777) == (v->mode & 0777);
    return same_mode && a->mtime.tv_sec == v->mtime.tv_sec && a->mtime.tv_nsec == v->mtime.tv_nsec;
}

// ---- the tree ----

const struct version *item_now(const struct item *item)
{
    return &item->versions[item->count - 1];
}

struct item *model_find(struct model *m, const char *path)
{
    for (unsigned i = 0; i < m->count; i++)
        if (strcmp(m->items[i].path, path) == 0)
            return &m->items[i];
    return NULL;
}

uint64_t model_needed_bytes(const struct model *m)
{
    uint64_t sum = 0;
    for (unsigned i = 0; i < m->count; i++) {
        const struct item *item = &m->items[i];
        bool there = item->had_old && item->old.key == item_now(item)->key;
        const struct version *v = item_now(item);
        uint64_t data = version_data_bytes(v);
        if (item->gone || there || data == 0)
            continue;
        sum += v->size <= PACKED_FILE_BYTES_MAX ? v->size : data; // a packed file travels with its holes
    }
    return sum;
}

static struct inode *parent_of(struct inode *root, const char *path, const char **name)
{
    struct inode *dir = root;
    *name = path;
    for (const char *slash; (slash = strchr(path, '/')) != NULL; path = slash + 1) {
        char part[NAME_BYTES_MAX + 1];
        snprintf(part, sizeof part, "%.*s", (int)(slash - path), path);
        dir = fs_find(dir, part);
        if (dir == NULL)
            return NULL;
    }
    *name = path;
    return dir;
}

struct inode *model_source_dir(const char *path, const char **name)
{
    return parent_of(fs_find(fs_root(world_host(HOST_SOURCE)->fs), "data"), path, name);
}

static void random_name(char *out, unsigned number)
{
    static const char *const kinds[] = {
        "f", "name with blanks ", "\xc3\xa4\xc3\xb6", "new\nline", "\xff\xfe", ".hidden", "-", "a.tar.gz"};
    struct rng *rng = world_rng();
    const char *kind = kinds[rng_once_in(rng, 3) ? rng_below(rng, ARRAY_LEN(kinds)) : 0];
    int len = snprintf(out, 64, "%s%u", kind, number);
    if (rng_once_in(rng, 20)) {
        memset(out + len, 'x', (size_t)(200 - len));
        out[200] = '\0';
    }
}

// A path in a random directory that the model has already.
static void random_path(const struct model *m, char out[512])
{
    char name[256];
    const struct item *dir = NULL;
    random_name(name, m->count);
    uint64_t which = rng_below(world_rng(), m->count + 1);
    if (which < m->count && S_ISDIR(m->items[which].versions[0].mode) && strlen(m->items[which].path) < 200)
        dir = &m->items[which];
    snprintf(out, 512, "%.250s%s%.250s", dir != NULL ? dir->path : "", dir != NULL ? "/" : "", name);
}

static uint64_t random_size(bool large, uint64_t budget)
{
    static const uint64_t packed[] = {0, 0, 1, 100, 4096, 4097, 20000, 65536, 300000, MIB - 1, MIB};
    static const uint64_t more[] = {MIB + 1,     MIB + 4096,  2 * MIB - 1,      2 * MIB,
                                    2 * MIB + 1, 3 * MIB + 7, 3 * MIB + 500000, 4 * MIB};
    struct rng *rng = world_rng();
    uint64_t size = large && rng_once_in(rng, 3) ? more[rng_below(rng, ARRAY_LEN(more))]
                                                 : packed[rng_below(rng, ARRAY_LEN(packed))];
    return size <= budget ? size : rng_below(rng, 5000);
}

static struct item *add(struct model *m, struct inode *root, const struct version *v)
{
    assert(m->count < ITEMS_MAX);
    struct item *item = &m->items[m->count];
    random_path(m, item->path);
    item->versions[0] = *v;
    item->count = 1;
    const char *name;
    struct inode *dir = parent_of(root, item->path, &name), *f;
    int rc = fs_create(dir, name, v->mode & S_IFMT, &f);
    assert(rc == 0);
    f->seen.uid = f->seen.gid = (uid_t)m->user;
    if (S_ISLNK(v->mode))
        (void)fs_set_target(f, v->target);
    version_write(f, v);
    m->count++;
    return item;
}

static struct inode *make_root(struct host *h, const char *name, uid_t user)
{
    struct inode *dir;
    int rc = fs_create(fs_root(h->fs), name, S_IFDIR | 0755, &dir);
    assert(rc == 0);
    dir->seen.uid = dir->seen.gid = user;
    fs_sync_all(h->fs);
    return dir;
}

// Directories get their time last, as making names in them moves it.
static void set_dir_times(const struct model *m)
{
    for (unsigned i = 0; i < m->count; i++) {
        const char *name;
        const struct item *item = &m->items[i];
        const struct inode *parent = model_source_dir(item->path, &name);
        if (S_ISDIR(item->versions[0].mode))
            fs_find(parent, name)->seen.mtime = item->versions[0].mtime;
    }
}

static uint64_t how_many(const struct shape *shape, unsigned least, unsigned most)
{
    return shape->full ? most : rng_range(world_rng(), least, most);
}

static void add_files(struct model *m, const struct shape *shape, struct inode *root)
{
    struct rng *rng = world_rng();
    uint64_t left = shape->bytes, count = how_many(shape, 1, shape->files);
    for (uint64_t n = 0; n < count; n++) {
        struct version v;
        bool sparse = (shape->full && n == 1) || rng_once_in(rng, 8);
        uint64_t size = random_size(shape->large, sparse ? 8 * left : left);
        if (shape->full && n < 2)
            size = MIB + (n == 0 ? 1 : 20 * BLOCK_BYTES);
        version_random(&v, size, sparse);
        left -= u64_min(left, version_data_bytes(&v));
        add(m, root, &v);
    }
}

void model_make(struct model *m, const struct shape *shape)
{
    struct rng *rng = world_rng();
    struct host *source = world_host(HOST_SOURCE);
    *m = (struct model){.user = source->root ? 0 : 1000};
    struct inode *root = make_root(source, "data", (uid_t)m->user);
    make_root(world_host(HOST_DEST), "store", world_host(HOST_DEST)->root ? 0 : 1000);
    make_root(world_host(HOST_COORD), "state", world_host(HOST_COORD)->root ? 0 : 1000);
    struct version v;
    for (uint64_t n = how_many(shape, 0, shape->dirs); n > 0; n--) {
        version_random(&v, 0, false);
        v.mode = S_IFDIR | (rng_once_in(rng, 6) ? 0555 : 0755);
        add(m, root, &v);
    }
    add_files(m, shape, root);
    for (uint64_t n = how_many(shape, 0, shape->links); n > 0; n--) {
        version_random(&v, 0, false);
        v.mode = S_IFLNK | 0777;
        snprintf(v.target, sizeof v.target, "../target/%llu", (unsigned long long)rng_below(rng, 1000));
        add(m, root, &v);
    }
    set_dir_times(m);
    fs_sync_all(source->fs);
}

static void put_old(struct model *m, struct item *item, const struct version *v)
{
    const char *name;
    struct host *dest = world_host(HOST_DEST);
    struct inode *f, *root = fs_find(fs_root(dest->fs), "store");
    struct inode *dir = parent_of(root, item->path, &name);
    if (dir == NULL || !S_ISDIR(dir->seen.mode) || fs_create(dir, name, v->mode & S_IFMT, &f) != 0)
        return;
    if (S_ISLNK(v->mode))
        (void)fs_set_target(f, v->target);
    version_write(f, v);
    if (S_ISDIR(v->mode))
        f->seen.mode |= 0700;
    f->seen.uid = f->seen.gid = dest->root ? 0 : 1000;
    item->old = *v;
    item->had_old = true;
    (void)m;
}

void model_make_old(struct model *m, unsigned old_percent, unsigned same_percent)
{
    struct rng *rng = world_rng();
    for (unsigned i = 0; i < m->count; i++) {
        struct item *item = &m->items[i];
        uint64_t dice = rng_below(rng, 100);
        struct version v = item->versions[0];
        if (dice >= old_percent + same_percent)
            continue;
        if (dice < old_percent && S_ISREG(v.mode))
            version_random(&v, random_size(rng_once_in(rng, 4), MIB * 2), false);
        else if (dice < old_percent && S_ISLNK(v.mode))
            snprintf(v.target, sizeof v.target, "old");
        put_old(m, item, &v);
    }
    fs_sync_all(world_host(HOST_DEST)->fs);
}
