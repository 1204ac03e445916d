// At most SEGMENTS_OPEN_MAX segments and a few that are still held: a list.
#include "mover/work.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

struct worktab {
    pthread_mutex_t lock;
    struct work *first;
};

int work_place(struct work *w, uint64_t first)
{
    if (w->placed)
        return -EPROTO;
    int rc = layout_place(w->layout, first);
    w->placed = rc == 0;
    return rc;
}

bool work_has(const struct work *w, uint64_t first, uint64_t count)
{
    if (!w->placed || first < layout_first(w->layout))
        return false;
    uint64_t at = first - layout_first(w->layout), all = layout_count(w->layout);
    return at <= all && count <= all - at;
}

struct worktab *worktab_new(void)
{
    struct worktab *t = calloc(1, sizeof *t);
    if (t != NULL && pthread_mutex_init(&t->lock, NULL) != 0) {
        free(t);
        return NULL;
    }
    return t;
}

void work_free(struct work *w)
{
    if (w == NULL)
        return;
    if (w->side_free != NULL)
        w->side_free(w->side);
    layout_free(w->layout);
    need_free(w->need);
    segment_free(w->segment);
    free(w);
}

void worktab_free(struct worktab *t)
{
    if (t == NULL)
        return;
    while (t->first != NULL) {
        struct work *w = t->first;
        t->first = w->next;
        work_free(w);
    }
    pthread_mutex_destroy(&t->lock);
    free(t);
}

void worktab_add(struct worktab *t, struct work *w)
{
    pthread_mutex_lock(&t->lock);
    w->refs = 1;
    w->next = t->first;
    t->first = w;
    pthread_mutex_unlock(&t->lock);
}

struct work *worktab_get(struct worktab *t, uint64_t number)
{
    pthread_mutex_lock(&t->lock);
    struct work *w = t->first;
    while (w != NULL && w->number != number)
        w = w->next;
    if (w != NULL)
        w->refs++;
    pthread_mutex_unlock(&t->lock);
    return w;
}

void worktab_put(struct worktab *t, struct work *w)
{
    if (w == NULL)
        return;
    pthread_mutex_lock(&t->lock);
    assert(w->refs > 0);
    bool last = --w->refs == 0;
    pthread_mutex_unlock(&t->lock);
    if (last)
        work_free(w);
}

void worktab_drop(struct worktab *t, uint64_t number)
{
    pthread_mutex_lock(&t->lock);
    struct work **at = &t->first;
    while (*at != NULL && (*at)->number != number)
        at = &(*at)->next;
    struct work *w = *at;
    if (w != NULL)
        *at = w->next;
    pthread_mutex_unlock(&t->lock);
    worktab_put(t, w);
}
