#include "proto/cut.h"

#include "proto/range.h"

void cut_init(struct cut *c, const struct entry *e, const struct entry_need *need, uint64_t start,
              uint64_t end)
{
    *c = (struct cut){.at = start, .end = end};
    if (need->verdict == NEED_LEAVES) {
        c->leaves = need->leaves;
        c->leaf_count = need->count;
    } else if (need->verdict == NEED_ALL) {
        c->all_leaves = (struct range){0, u64_div_up(e->size, LEAF_BYTES)};
        c->leaves = &c->all_leaves;
        c->leaf_count = 1;
    }
    if (e->sparse) {
        c->data = e->data;
        c->data_count = e->data_count;
    } else {
        c->all_data = (struct range){0, e->size};
        c->data = &c->all_data;
        c->data_count = 1;
    }
    c->leaf_at = ranges_find(c->leaves, c->leaf_count, 0, start / LEAF_BYTES);
}

bool cut_next(struct cut *c, struct range *out)
{
    for (; c->leaf_at < c->leaf_count; c->leaf_at++) {
        const struct range *leaves = &c->leaves[c->leaf_at];
        uint64_t start = u64_max(c->at, leaves->offset * LEAF_BYTES);
        // The last leaf may end behind the file; data does not.
        uint64_t end = u64_min(c->end, (leaves->offset + leaves->len) * LEAF_BYTES);
        if (start >= c->end)
            return false;
        c->data_at = ranges_find(c->data, c->data_count, c->data_at, start);
        if (c->data_at == c->data_count)
            return false;
        const struct range *data = &c->data[c->data_at];
        start = u64_max(start, data->offset);
        if (start >= end)
            continue;
        uint64_t data_end = data->offset + data->len;
        if (data_end <= end)
            c->data_at++;
        c->at = u64_min(end, data_end);
        *out = (struct range){start, c->at - start};
        return true;
    }
    return false;
}
