#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/fs_inner.h"

// ---- lists of names ----

struct name *names_find(const struct names *n, const char *text)
{
    for (size_t i = 0; i < n->count; i++)
        if (strcmp(n->list[i].text, text) == 0)
            return &n->list[i];
    return NULL;
}

void names_add(struct names *n, const char *text, struct inode *inode, uint64_t cookie)
{
    if (n->count == n->room) {
        n->room = n->room > 0 ? 2 * n->room : 8;
        n->list = reallocarray(n->list, n->room, sizeof *n->list);
        assert(n->list != NULL);
    }
    size_t at = n->count++;
    for (; at > 0 && n->list[at - 1].cookie > cookie; at--)
        n->list[at] = n->list[at - 1];
    n->list[at] = (struct name){.text = strdup(text), .inode = inode, .cookie = cookie};
    assert(n->list[at].text != NULL);
}

void names_remove(struct names *n, const char *text)
{
    struct name *found = names_find(n, text);
    if (found == NULL)
        return;
    free(found->text);
    size_t at = (size_t)(found - n->list);
    n->count--;
    memmove(found, found + 1, (n->count - at) * sizeof *found);
}

void names_free(struct names *n)
{
    for (size_t i = 0; i < n->count; i++)
        free(n->list[i].text);
    free(n->list);
    *n = (struct names){0};
}

void names_copy(const struct names *from, struct names *to)
{
    names_free(to);
    for (size_t i = 0; i < from->count; i++)
        names_add(to, from->list[i].text, from->list[i].inode, from->list[i].cookie);
}

// ---- changes that wait for a sync ----

void change_log(struct fs *fs, enum change_kind kind, struct inode *dir, const char *name,
                struct inode *inode, struct inode *to_dir, const char *to_name)
{
    struct change *c = calloc(1, sizeof *c);
    assert(c != NULL);
    *c = (struct change){.kind = kind,
                         .dir = dir,
                         .name = strdup(name),
                         .inode = inode,
                         .to_dir = to_dir,
                         .to_name = to_name != NULL ? strdup(to_name) : NULL};
    struct change **at = &fs->changes;
    while (*at != NULL)
        at = &(*at)->next;
    *at = c;
}

static uint64_t cookie_of(struct fs *fs)
{
    return 3 + (rng_next(&fs->rng) >> 24);
}

static void put(struct inode *dir, const char *name, struct inode *inode)
{
    names_remove(&dir->kept_names, name);
    const struct name *seen = names_find(&dir->names, name);
    names_add(&dir->kept_names, name, inode, seen != NULL ? seen->cookie : cookie_of(dir->fs));
}

static void apply(const struct change *c)
{
    if (c->kind == CHANGE_ADD)
        put(c->dir, c->name, c->inode);
    else
        names_remove(&c->dir->kept_names, c->name);
    if (c->kind == CHANGE_MOVE)
        put(c->to_dir, c->to_name, c->inode);
}

static bool same_name(const struct inode *dir, const char *name, const struct inode *other, const char *text)
{
    return dir != NULL && dir == other && strcmp(name, text) == 0;
}

// Whether both change the same name.
static bool overlap(const struct change *a, const struct change *b)
{
    return same_name(a->dir, a->name, b->dir, b->name) || same_name(a->to_dir, a->to_name, b->dir, b->name) ||
           (b->to_dir != NULL && (same_name(a->dir, a->name, b->to_dir, b->to_name) ||
                                  same_name(a->to_dir, a->to_name, b->to_dir, b->to_name)));
}

static void change_free(struct change *c)
{
    free(c->name);
    free(c->to_name);
    free(c);
}

void changes_free(struct fs *fs)
{
    while (fs->changes != NULL) {
        struct change *c = fs->changes;
        fs->changes = c->next;
        change_free(c);
    }
}

// A change of the directory takes with it the earlier ones of the same names elsewhere: they come in order.
static bool is_due(const struct change *c, const struct inode *dir)
{
    if (dir == NULL || c->dir == dir || c->to_dir == dir)
        return true;
    for (const struct change *later = c->next; later != NULL; later = later->next)
        if ((later->dir == dir || later->to_dir == dir) && overlap(c, later))
            return true;
    return false;
}

void changes_keep(struct fs *fs, const struct inode *dir, struct rng *rng, unsigned keep_percent)
{
    for (struct change **at = &fs->changes; *at != NULL;) {
        struct change *c = *at;
        if (!is_due(c, dir)) {
            at = &c->next;
            continue;
        }
        if (rng == NULL || rng_below(rng, 100) < keep_percent)
            apply(c);
        *at = c->next;
        change_free(c);
    }
}

// ---- names as processes see them ----

struct inode *fs_find(const struct inode *dir, const char *name)
{
    const struct name *n = names_find(&dir->names, name);
    return n != NULL ? n->inode : NULL;
}

struct inode *fs_find_kept(const struct inode *dir, const char *name)
{
    const struct name *n = names_find(&dir->kept_names, name);
    return n != NULL ? n->inode : NULL;
}

static void touch(struct inode *dir)
{
    dir->seen.mtime = dir->ctime = fs_now();
}

int fs_create(struct inode *dir, const char *name, mode_t mode, struct inode **out)
{
    if (fs_find(dir, name) != NULL)
        return -EEXIST;
    if (dir->links == 0)
        return -ENOENT; // removed while it was open
    struct inode *i = inode_new(dir->fs, mode);
    i->links = 1;
    i->parent = dir;
    names_add(&dir->names, name, i, cookie_of(dir->fs));
    change_log(dir->fs, CHANGE_ADD, dir, name, i, NULL, NULL);
    touch(dir);
    *out = i;
    return 0;
}

// One name less. The blocks of a file without a name are free, though an open one keeps its bytes.
static void unlink_inode(struct inode *i)
{
    i->links--;
    i->ctime = fs_now();
    if (i->links == 0)
        i->fs->used -= u64_min(i->fs->used, fs_used_blocks(i));
}

int fs_remove(struct inode *dir, const char *name, bool directory)
{
    struct inode *i = fs_find(dir, name);
    if (i == NULL)
        return -ENOENT;
    if (directory && !S_ISDIR(i->seen.mode))
        return -ENOTDIR;
    if (!directory && S_ISDIR(i->seen.mode))
        return -EISDIR;
    if (directory && i->names.count > 0)
        return -ENOTEMPTY;
    change_log(dir->fs, CHANGE_REMOVE, dir, name, NULL, NULL, NULL);
    names_remove(&dir->names, name); // `name` may be the text of its own entry
    unlink_inode(i);
    touch(dir);
    return 0;
}

int fs_rename(struct inode *from, const char *name, struct inode *to, const char *new_name)
{
    struct inode *i = fs_find(from, name), *old = fs_find(to, new_name);
    if (i == NULL)
        return -ENOENT;
    if (i == old)
        return 0;
    if (to->links == 0)
        return -ENOENT;
    if (old != NULL && S_ISDIR(old->seen.mode) && !S_ISDIR(i->seen.mode))
        return -EISDIR;
    if (old != NULL && !S_ISDIR(old->seen.mode) && S_ISDIR(i->seen.mode))
        return -ENOTDIR;
    if (old != NULL && old->names.count > 0)
        return -ENOTEMPTY;
    names_remove(&to->names, new_name);
    if (old != NULL)
        unlink_inode(old);
    names_remove(&from->names, name);
    names_add(&to->names, new_name, i, cookie_of(to->fs));
    i->parent = to;
    i->ctime = fs_now();
    change_log(from->fs, CHANGE_MOVE, from, name, i, to, new_name);
    touch(from);
    touch(to);
    return 0;
}
