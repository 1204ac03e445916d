// Somebody works in the source while it is copied: appends, truncates, rewrites, replaces and removes files.
// What the destination gets is one whole version of each or none, and what could not be had is told.
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "tests/sim/net.h"
#include "tests/sim/runs.h"
#include "tests/sim/scenario.h"
#include "tests/sim/sched.h"
#include "tests/sim/watch.h"
#include "tests/sim/world.h"

enum { CHANGES_MAX = 12, EXIT_CHANGED = 8 };

static struct version *add_version(struct item *item, const struct version *v)
{
    assert(item->count < VERSIONS_MAX);
    item->versions[item->count] = *v;
    return &item->versions[item->count++];
}

// Writes the version over the file, with the time of now.
static void write_in_place(struct inode *f, struct version *v)
{
    v->mtime = fs_now();
    version_write(f, v);
}

// Other bytes at the same place; seen half done by who looks in between.
static void rewrite(struct item *item, struct inode *f)
{
    struct version v = *item_now(item);
    uint64_t blocks = v.size / BLOCK_BYTES;
    v.old_key = v.key;
    v.key = rng_next(world_rng());
    v.split = blocks > 1 ? rng_range(world_rng(), 1, blocks - 1) * BLOCK_BYTES : 0;
    if (v.split > 0) {
        write_in_place(f, add_version(item, &v));
        task_sleep(rng_below(world_rng(), 20 * NS_PER_MS));
    }
    v.split = 0;
    write_in_place(f, add_version(item, &v));
}

static void resize(struct item *item, struct inode *f)
{
    struct version v = *item_now(item);
    if (v.sparse)
        return;
    v.size = rng_once_in(world_rng(), 2) ? v.size + rng_range(world_rng(), 1, 400000)
                                         : rng_below(world_rng(), v.size + 1);
    write_in_place(f, add_version(item, &v));
}

// A new file, or a link, takes the name.
static void replace(struct item *item, struct inode *dir, const char *name)
{
    struct version v;
    struct inode *f;
    version_random(&v, rng_below(world_rng(), 3 * MIB), rng_once_in(world_rng(), 4));
    bool link = rng_once_in(world_rng(), 6);
    if (link) {
        v = (struct version){.mode = S_IFLNK | 0777, .target = "elsewhere", .mtime = v.mtime};
        v.size = strlen(v.target);
    }
    struct inode *root = fs_root(dir->fs);
    int rc = fs_create(root, "fresh", v.mode & S_IFMT, &f);
    assert(rc == 0);
    f->seen.uid = f->seen.gid = fs_find(root, "data")->seen.uid;
    if (link)
        (void)fs_set_target(f, v.target);
    write_in_place(f, add_version(item, &v));
    rc = fs_rename(root, "fresh", dir, name);
    assert(rc == 0);
}

static void change_one(struct model *m)
{
    struct item *item = &m->items[rng_below(world_rng(), m->count)];
    const char *name;
    struct inode *dir = model_source_dir(item->path, &name);
    struct inode *f = dir != NULL ? fs_find(dir, name) : NULL;
    if (item->gone || f == NULL || !S_ISREG(item_now(item)->mode) || item->count + 2 > VERSIONS_MAX)
        return;
    struct timespec before = dir->seen.mtime;
    switch (rng_below(world_rng(), 5)) {
    case 0:
        item->gone = fs_remove(dir, name, false) == 0;
        break;
    case 1:
        replace(item, dir, name);
        break;
    case 2:
        f->seen.mode ^= 0022;
        f->ctime = fs_now();
        add_version(item, item_now(item))->mode = f->seen.mode;
        break;
    case 3:
        resize(item, f);
        break;
    default:
        rewrite(item, f);
    }
    dir->seen.mtime = before; // directories are not what this is about
    world_trace("%s is changed", item->path);
}

struct worker {
    struct model *model;
    bool stop;
};

static void *work(void *arg)
{
    struct worker *w = arg;
    uint64_t pace_ns = net_trouble()->delay_ns_max << rng_below(world_rng(), 6);
    for (unsigned i = 0; i < CHANGES_MAX && !w->stop; i++) {
        task_sleep(rng_below(world_rng(), pace_ns));
        change_one(w->model);
    }
    return NULL;
}

void scenario_source(void *turn)
{
    (void)turn;
    static struct model m;
    const struct shape shape = {.files = 12, .dirs = 2, .links = 1, .bytes = 5 * MIB, .large = true};
    struct run r;
    model_make(&m, &shape);
    model_make_old(&m, 20, 10);
    watch_begin(&m);
    run_random(&r);
    struct worker w = {.model = &m};
    struct task *worker = task_new(NULL, "worker", work, &w);
    run_copy(&r);
    w.stop = true;
    task_join(worker);
    check_safe(&m);
    if (r.result.exit_status != 0 && r.result.exit_status != EXIT_CHANGED)
        world_fail("exit %d while the source changes", r.result.exit_status);
    run_sums(&r);
    run_random(&r);
    run_copy(&r);
    run_check_copy(&r, &m);
}
