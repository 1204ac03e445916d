#include "proto/range.h"

bool ranges_valid(const struct range *ranges, uint32_t count, uint64_t end)
{
    uint64_t behind = 0; // the end of the range before
    for (uint32_t i = 0; i < count; i++) {
        const struct range *r = &ranges[i];
        uint64_t r_end;
        if (r->len == 0 || __builtin_add_overflow(r->offset, r->len, &r_end) || r_end > end)
            return false;
        if (i > 0 && r->offset <= behind)
            return false;
        behind = r_end;
    }
    return true;
}

uint32_t ranges_find(const struct range *ranges, uint32_t count, uint32_t from, uint64_t offset)
{
    if (from >= count || ranges[from].offset + ranges[from].len > offset)
        return from < count ? from : count;
    uint32_t low = from + 1, high = count;
    while (low < high) {
        uint32_t mid = low + (high - low) / 2;
        if (ranges[mid].offset + ranges[mid].len > offset)
            high = mid;
        else
            low = mid + 1;
    }
    return low;
}

uint32_t ranges_complement(const struct range *ranges, uint32_t count, uint64_t end, struct range *out)
{
    uint32_t n = 0;
    uint64_t at = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (ranges[i].offset > at)
            out[n++] = (struct range){.offset = at, .len = ranges[i].offset - at};
        at = ranges[i].offset + ranges[i].len;
    }
    if (at < end)
        out[n++] = (struct range){.offset = at, .len = end - at};
    return n;
}
