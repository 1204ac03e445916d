// Open addressing at half load at most; the bytes lie one after the other.
#include "mover/path_set.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "proto/digest.h"

enum { PLACES = 2 * SEGMENT_ENTRIES_MAX }; // a power of two

struct path_set {
    uint32_t count, used;
    struct {
        uint32_t at, len_more; // len_more: length + 1, 0 = free
    } places[PLACES];
    uint8_t bytes[SEGMENT_BYTES_MAX];
};

struct path_set *path_set_new(void)
{
    return calloc(1, sizeof(struct path_set));
}

void path_set_free(struct path_set *s)
{
    free(s);
}

void path_set_clear(struct path_set *s)
{
    memset(s->places, 0, sizeof s->places);
    s->count = s->used = 0;
}

// The place of the path, or the free one where it belongs.
static uint32_t place_of(const struct path_set *s, const void *path, size_t len)
{
    uint32_t i = (uint32_t)digest_check64(path, len) & (PLACES - 1);
    while (s->places[i].len_more != 0 &&
           (s->places[i].len_more != len + 1 || memcmp(s->bytes + s->places[i].at, path, len) != 0))
        i = (i + 1) & (PLACES - 1);
    return i;
}

bool path_set_has(const struct path_set *s, const void *path, size_t len)
{
    return s->places[place_of(s, path, len)].len_more != 0;
}

void path_set_add(struct path_set *s, const void *path, size_t len)
{
    uint32_t i = place_of(s, path, len);
    assert(s->places[i].len_more == 0 && s->count < SEGMENT_ENTRIES_MAX && len <= sizeof s->bytes - s->used);
    s->places[i].at = s->used;
    s->places[i].len_more = (uint32_t)len + 1;
    if (len > 0)
        memcpy(s->bytes + s->used, path, len);
    s->used += (uint32_t)len;
    s->count++;
}
