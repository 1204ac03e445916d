// Files that wait for data, by path, over all segments under way. A directory that changes while it is listed
// may name a file in two segments: two writers of one temporary name must never meet, so the second waits for
// the retry segment. Digests of paths are enough: two different paths with the same one would only wait
// without need.
#include <stdlib.h>

#include "mover/dest_agent.h"

static int by_digest(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

bool dest_awaited(struct dest_agent *d, const struct entry *e)
{
    uint64_t digest = digest_check64(e->path, e->path_len);
    bool found = false;
    pthread_mutex_lock(&d->plan_lock);
    for (const struct dest_side *s = d->sides; s != NULL && !found; s = s->next)
        found = bsearch(&digest, s->awaited, s->awaited_count, sizeof digest, by_digest) != NULL;
    pthread_mutex_unlock(&d->plan_lock);
    return found;
}

void dest_side_await(struct dest_side *s, const struct entry *e)
{
    s->awaited[s->awaited_count++] = digest_check64(e->path, e->path_len);
}

void dest_side_link(struct dest_agent *d, struct dest_side *s)
{
    qsort(s->awaited, s->awaited_count, sizeof *s->awaited, by_digest);
    pthread_mutex_lock(&d->plan_lock);
    s->dest = d;
    s->next = d->sides;
    d->sides = s;
    pthread_mutex_unlock(&d->plan_lock);
}

void dest_side_unlink(struct dest_side *s)
{
    if (s->dest == NULL)
        return;
    struct dest_side **at = &s->dest->sides;
    while (*at != s)
        at = &(*at)->next;
    *at = s->next;
    s->dest = NULL;
}
