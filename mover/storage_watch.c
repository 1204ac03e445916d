#include "mover/storage_watch.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "storage/mount.h"
#include "storage/sys.h"

#define NS_PER_S    UINT64_C(1000000000)
#define LOOK_GAP_NS (UINT64_C(3000000) * HEARTBEAT_MS) // more than that between two looks is no waiting

enum { MOUNT_BYTES = 256 };

struct mount_text {
    char text[MOUNT_BYTES];
};

struct storage_watch {
    struct storage_watch_config cfg;
    uint64_t slow_ns;
    struct mount_text *mounts; // by root
    uint32_t mount_count;
    pthread_mutex_t lock; // over what follows and the marks
    struct storage_wait *oldest, *youngest;
    uint64_t looked_ns;
    uint64_t quiet_until_ns;
};

struct storage_watch *storage_watch_new(const struct storage_watch_config *cfg)
{
    struct storage_watch *w = calloc(1, sizeof *w);
    if (w == NULL)
        return NULL;
    w->cfg = *cfg;
    w->slow_ns = u64_min(STORAGE_SLOW_NS, cfg->timeout_ns / 2);
    w->looked_ns = sys_clock_ns();
    pthread_mutex_init(&w->lock, NULL);
    return w;
}

void storage_watch_free(struct storage_watch *w)
{
    if (w == NULL)
        return;
    assert(w->oldest == NULL);
    pthread_mutex_destroy(&w->lock);
    free(w->mounts);
    free(w);
}

int storage_watch_root(struct storage_watch *w, int fd)
{
    struct mount_text *more = realloc(w->mounts, (w->mount_count + 1) * sizeof *more);
    if (more == NULL)
        return -ENOMEM;
    w->mounts = more;
    mount_name(fd, more[w->mount_count++].text, MOUNT_BYTES);
    return 0;
}

static void unlink_wait(struct storage_watch *w, struct storage_wait *wait)
{
    *(wait->before != NULL ? &wait->before->after : &w->oldest) = wait->after;
    *(wait->after != NULL ? &wait->after->before : &w->youngest) = wait->before;
    wait->before = wait->after = NULL;
    wait->since_ns = 0;
}

static void link_wait(struct storage_watch *w, struct storage_wait *wait, uint64_t now_ns)
{
    wait->since_ns = now_ns;
    wait->before = w->youngest;
    *(wait->before != NULL ? &wait->before->after : &w->oldest) = wait;
    w->youngest = wait;
}

// "WORDS N s", and where.
static void describe(const struct storage_watch *w, const struct storage_wait *wait, enum err_class class,
                     const char *words, uint64_t waited_ns, struct err *err)
{
    const struct entry *e = wait->entry;
    uint32_t root = e != NULL ? e->root : 0;
    if (root >= w->mount_count)
        root = w->mount_count - 1;
    const char *mount = w->mount_count > 0 ? w->mounts[root].text : "";
    err_set(err, class, 0, wait->op, e != NULL ? e->path : NULL, e != NULL ? e->path_len : 0, "%s %llu s%s%s",
            words, (unsigned long long)(waited_ns / NS_PER_S), mount[0] != '\0' ? ", on " : "", mount);
}

// Takes the mark off. True: it had been told, and *err tells that it is over.
static bool settle(struct storage_watch *w, struct storage_wait *wait, uint64_t now_ns, struct err *err)
{
    if (wait->since_ns == 0)
        return false;
    bool told = wait->told;
    if (told)
        describe(w, wait, ERR_NONE, "answered after", now_ns - wait->since_ns, err);
    wait->told = false;
    unlink_wait(w, wait);
    return told;
}

void storage_watch_begin(struct storage_watch *w, struct storage_wait *wait, const char *op,
                         const struct entry *entry)
{
    if (w == NULL)
        return;
    struct err err;
    pthread_mutex_lock(&w->lock);
    uint64_t now_ns = sys_clock_ns(); // under the lock, by which the list is in the order of time
    bool told = settle(w, wait, now_ns, &err);
    wait->op = op;
    wait->entry = entry;
    link_wait(w, wait, now_ns);
    pthread_mutex_unlock(&w->lock);
    if (told)
        w->cfg.notice(w->cfg.arg, &err);
}

void storage_watch_end(struct storage_watch *w, struct storage_wait *wait)
{
    if (w == NULL)
        return;
    struct err err;
    pthread_mutex_lock(&w->lock);
    bool told = settle(w, wait, sys_clock_ns(), &err);
    pthread_mutex_unlock(&w->lock);
    if (told)
        w->cfg.notice(w->cfg.arg, &err);
}

static uint64_t oldest_ns(const struct storage_watch *w, uint64_t now_ns)
{
    return w->oldest != NULL && now_ns > w->oldest->since_ns ? now_ns - w->oldest->since_ns : 0;
}

// Time in which nobody looked is taken off all that waited then.
static void forgive(struct storage_watch *w, uint64_t now_ns)
{
    uint64_t gap_ns = now_ns - w->looked_ns;
    w->looked_ns = now_ns;
    if (gap_ns <= LOOK_GAP_NS)
        return;
    for (struct storage_wait *wait = w->oldest; wait != NULL; wait = wait->after)
        wait->since_ns = u64_min(wait->since_ns + gap_ns, now_ns);
}

int storage_watch_look(struct storage_watch *w, uint64_t now_ns, struct err *err)
{
    struct err slow;
    bool tell = false;
    int rc = 0;
    pthread_mutex_lock(&w->lock);
    forgive(w, now_ns);
    uint64_t waited_ns = oldest_ns(w, now_ns);
    if (waited_ns >= w->cfg.timeout_ns) {
        describe(w, w->oldest, w->cfg.class, "no answer for", waited_ns, err);
        rc = -ETIMEDOUT;
    } else if (waited_ns >= w->slow_ns && !w->oldest->told && now_ns >= w->quiet_until_ns) {
        describe(w, w->oldest, ERR_NONE, "no answer for", waited_ns, &slow);
        w->quiet_until_ns = now_ns + STORAGE_QUIET_NS;
        tell = w->oldest->told = true;
    }
    pthread_mutex_unlock(&w->lock);
    if (tell)
        w->cfg.notice(w->cfg.arg, &slow);
    return rc;
}

bool storage_watch_is_slow(struct storage_watch *w, uint64_t now_ns)
{
    pthread_mutex_lock(&w->lock);
    bool slow = oldest_ns(w, now_ns) >= w->slow_ns;
    pthread_mutex_unlock(&w->lock);
    return slow;
}
