// The judgements of a model.
#include <stdio.h>
#include <string.h>

#include "tests/sim/model.h"
#include "tests/sim/world.h"

// Calls for every entry beneath the destination root, `.penstock/` apart.
static void each(struct inode *dir, const char *path,
                 void (*call)(void *arg, const char *path, struct inode *i), void *arg)
{
    for (size_t k = 0; k < dir->names.count; k++) {
        const struct name *n = &dir->names.list[k];
        char whole[1024];
        if (path[0] == '\0' && strcmp(n->text, ".penstock") == 0)
            continue;
        snprintf(whole, sizeof whole, "%.700s%s%.255s", path, path[0] != '\0' ? "/" : "", n->text);
        call(arg, whole, n->inode);
        if (S_ISDIR(n->inode->seen.mode))
            each(n->inode, whole, call, arg);
    }
}

static struct inode *store(void)
{
    return fs_find(fs_root(world_host(HOST_DEST)->fs), "store");
}

static void check_one_safe(void *arg, const char *path, struct inode *i)
{
    struct model *m = arg;
    const struct item *item = model_find(m, path);
    if (item == NULL)
        world_fail("%s lies at the destination, and never was at the source", path);
    if (item->had_old && version_is(i, &item->old, false))
        return;
    for (unsigned v = 0; v < item->count; v++)
        if (version_is(i, &item->versions[v], false))
            return;
    world_fail("%s is neither the old file nor a whole version of the source", path);
}

void check_safe(struct model *m)
{
    each(store(), "", check_one_safe, m);
}

static struct inode *at_dest(const char *path, bool kept)
{
    struct inode *i = store();
    while (i != NULL && *path != '\0') {
        char part[NAME_BYTES_MAX + 1];
        size_t len = strcspn(path, "/");
        snprintf(part, sizeof part, "%.*s", (int)len, path);
        i = kept ? fs_find_kept(i, part) : fs_find(i, part);
        path += len;
        path += *path == '/';
    }
    return i;
}

static void check_one_known(void *arg, const char *path, struct inode *i)
{
    (void)i;
    if (model_find(arg, path) == NULL)
        world_fail("%s lies at the destination, and never was at the source", path);
}

void check_tidy(void)
{
    if (fs_find(store(), ".penstock") != NULL)
        world_fail(".penstock/ is left behind");
}

void check_equal(struct model *m)
{
    each(store(), "", check_one_known, m);
    for (unsigned k = 0; k < m->count; k++) {
        const struct item *item = &m->items[k];
        const struct version *v = item_now(item);
        const struct inode *i = at_dest(item->path, false);
        if (item->gone || item->absent_ok)
            continue;
        if (i == NULL)
            world_fail("%s is missing at the destination", item->path);
        if (!version_is(i, v, false))
            world_fail("%s differs", item->path);
        if (!version_attributes_are(&i->seen, v))
            world_fail("%s has other attributes: mode %o for %o, time %lld.%09ld for %lld.%09ld", item->path,
                       i->seen.mode, v->mode, (long long)i->seen.mtime.tv_sec, i->seen.mtime.tv_nsec,
                       (long long)v->mtime.tv_sec, v->mtime.tv_nsec);
        if (world_host(HOST_DEST)->root && i->seen.uid != m->user)
            world_fail("%s has another owner", item->path);
    }
}

void check_durable(struct model *m, const char *path, uint64_t size, struct timespec mtime)
{
    if (path[0] == '\0')
        return; // the root was there before
    const struct item *item = model_find(m, path);
    if (item == NULL)
        world_fail("%s is acknowledged, and never was at the source", path);
    const struct inode *i = at_dest(path, true);
    if (i == NULL)
        world_fail("%s is acknowledged, and a crash would lose its name", path);
    const char *lost = "it never was at the source so";
    for (unsigned k = 0; k < item->count; k++) {
        const struct version *v = &item->versions[k];
        bool named = S_ISREG(v->mode) ? v->size == size && v->mtime.tv_sec == mtime.tv_sec &&
                                            v->mtime.tv_nsec == mtime.tv_nsec
                                      : !S_ISREG(i->seen.mode);
        if (!named)
            continue;
        lost = version_is(i, v, true) ? "attributes" : "bytes";
        if (lost[0] == 'a' && (!S_ISREG(v->mode) || version_attributes_are(&i->kept, v)))
            return;
    }
    world_fail("%s is acknowledged, and a crash would lose of it: %s", path, lost);
}
