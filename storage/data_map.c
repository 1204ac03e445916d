#include "storage/data_map.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "storage/sys.h"

enum { RANGES_GATHERED_MAX = 2 * ENTRY_RANGES_MAX };

void data_map_fini(struct data_map *m)
{
    free(m->data);
    *m = (struct data_map){0};
}

static uint64_t range_end(const struct range *r)
{
    return r->offset + r->len;
}

// The hole between a range and the next one.
static uint64_t hole_after(const struct data_map *m, uint32_t i)
{
    return m->data[i + 1].offset - range_end(&m->data[i]);
}

static int larger_first(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x < y) - (x > y);
}

int data_map_thin(struct data_map *m, uint32_t keep)
{
    if (m->count <= keep)
        return 0;
    uint32_t holes = m->count - 1, kept = keep - 1;
    uint64_t *sorted = calloc(holes, sizeof(*sorted));
    if (sorted == NULL)
        return -ENOMEM;
    for (uint32_t i = 0; i < holes; i++)
        sorted[i] = hole_after(m, i);
    qsort(sorted, holes, sizeof(*sorted), larger_first);
    uint64_t least = kept > 0 ? sorted[kept - 1] : UINT64_MAX; // the smallest hole that stays
    uint32_t equal = 0;                                        // of that size so many may stay
    for (uint32_t i = 0; i < kept; i++)
        equal += sorted[i] == least;
    free(sorted);

    uint32_t last = 0;
    for (uint32_t i = 0; i < holes; i++) {
        struct range next = m->data[i + 1];
        uint64_t hole = next.offset - range_end(&m->data[last]);
        bool stays = hole > least || (hole == least && equal > 0);
        if (hole == least && stays)
            equal--;
        if (stays)
            m->data[++last] = next;
        else
            m->data[last].len = range_end(&next) - m->data[last].offset;
    }
    m->count = last + 1;
    return 0;
}

static int reserve(struct data_map *m)
{
    if (m->count == RANGES_GATHERED_MAX)
        return data_map_thin(m, ENTRY_RANGES_MAX);
    if (m->count < m->cap)
        return 0;
    uint32_t cap = m->cap == 0 ? 16 : 2 * m->cap;
    struct range *data = reallocarray(m->data, cap, sizeof(*data));
    if (data == NULL)
        return -ENOMEM;
    m->data = data;
    m->cap = cap;
    return 0;
}

int data_map_add(struct data_map *m, uint64_t start, uint64_t end, uint64_t size)
{
    start -= start % BLOCK_BYTES;
    end = u64_min(u64_align_up(end, BLOCK_BYTES), size);
    struct range *last = m->count > 0 ? &m->data[m->count - 1] : NULL;
    if (last != NULL && start <= range_end(last)) {
        last->len = u64_max(range_end(last), end) - last->offset;
        return 0;
    }
    int rc = reserve(m);
    if (rc < 0)
        return rc;
    m->data[m->count++] = (struct range){.offset = start, .len = end - start};
    return 0;
}

int data_map_find(struct data_map *m, int fd, uint64_t size, bool *sparse)
{
    m->count = 0;
    uint64_t at = 0;
    while (at < size) {
        int64_t data = sys_lseek(fd, at, SEEK_DATA);
        if (data == -ENXIO || (data >= 0 && (uint64_t)data >= size)) // the rest is hole
            break;
        int64_t hole = data < 0 ? data : sys_lseek(fd, (uint64_t)data, SEEK_HOLE);
        if (data < (int64_t)at || hole <= data) { // it cannot say, or what it says makes no sense
            *sparse = false;
            return 0;
        }
        int rc = data_map_add(m, (uint64_t)data, (uint64_t)hole, size);
        if (rc < 0)
            return rc;
        at = (uint64_t)hole;
    }
    int rc = data_map_thin(m, ENTRY_RANGES_MAX);
    if (rc < 0)
        return rc;
    *sparse = size > 0 && (m->count != 1 || m->data[0].offset > 0 || m->data[0].len < size);
    return 0;
}
