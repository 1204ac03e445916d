// Reads a receipt by the layout in proto/receipt.h: it names every entry of the source once, with the digest
// of the bytes that the source has. The digest itself and the chain of checksums are the product's.
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "proto/digest.h"
#include "proto/record.h"
#include "proto/wire.h"
#include "tests/sim/model.h"
#include "tests/sim/world.h"

enum {
    RECORD_ENTRIES = 2,
    RECORD_END = 3,
    OUTCOME_MOVED = 1,
    OUTCOME_SKIPPED = 2,
    TYPE_FILE = 2,
    LEAVES_MAX = 64
};

struct receipt {
    struct model *model;
    bool ended;
    bool seen[ITEMS_MAX];
};

static struct digest file_digest(const struct inode *f)
{
    struct digest leaves[LEAVES_MAX];
    size_t count = 0;
    uint8_t *leaf = malloc(LEAF_BYTES);
    assert(leaf != NULL && f->seen.size <= (uint64_t)LEAVES_MAX * LEAF_BYTES);
    for (uint64_t at = 0; at < f->seen.size; at += LEAF_BYTES)
        leaves[count++] = digest_of(leaf, fs_read(f, leaf, LEAF_BYTES, at));
    free(leaf);
    return digest_file(leaves, f->seen.size);
}

static void take_entry(struct receipt *r, const uint8_t *bytes, size_t len)
{
    struct wire_reader in;
    struct digest digest;
    char path[1024];
    wire_reader_init(&in, bytes, len);
    uint8_t type = wire_get_u8(&in), outcome = wire_get_u8(&in);
    (void)wire_get_span(&in, 1 + 1 + 4 + 8 + 8 + 4); // proof to mtime
    wire_get_bytes(&in, digest.bytes, sizeof digest.bytes);
    size_t path_len;
    const uint8_t *text = wire_get_blob(&in, sizeof path - 1, &path_len);
    if (text == NULL || (outcome != OUTCOME_MOVED && outcome != OUTCOME_SKIPPED))
        world_fail("an entry of the receipt of a complete copy that cannot be");
    memcpy(path, text, path_len);
    path[path_len] = '\0';
    if (path_len == 0)
        return;
    const struct item *item = model_find(r->model, path);
    if (item == NULL || r->seen[item - r->model->items])
        world_fail("the receipt names %s, which it should not, or not again", path);
    r->seen[item - r->model->items] = true;
    if (type != TYPE_FILE || outcome != OUTCOME_MOVED)
        return;
    const char *name;
    const struct inode *dir = model_source_dir(path, &name);
    struct digest expected = file_digest(fs_find(dir, name));
    if (!digest_equal(&expected, &digest))
        world_fail("the receipt has another digest of %s", path);
}

static void take_record(struct receipt *r, const struct record *record)
{
    struct wire_reader in;
    wire_reader_init(&in, record->payload, record->payload_bytes);
    r->ended = record->type == RECORD_END;
    while (record->type == RECORD_ENTRIES && wire_left(&in) > 0) {
        size_t len;
        const uint8_t *bytes = wire_get_blob(&in, wire_left(&in), &len);
        if (bytes == NULL)
            world_fail("the receipt cannot be read");
        take_entry(r, bytes, len);
    }
}

void check_receipt(struct model *m, const char *path)
{
    static const char folder[] = "/state/receipts/";
    struct receipt r = {.model = m};
    if (strncmp(path, folder, strlen(folder)) != 0)
        world_fail("there is no receipt");
    struct inode *state = fs_find(fs_root(world_host(HOST_COORD)->fs), "state");
    const struct inode *f = fs_find_kept(fs_find(state, "receipts"), path + strlen(folder));
    if (f == NULL)
        world_fail("a crash would lose the receipt");
    size_t len = f->kept.size, at = RECORD_HEADER_BYTES;
    uint8_t *bytes = malloc(len + 1);
    assert(bytes != NULL);
    struct record_header head;
    struct record_chain chain;
    struct record record;
    if (fs_read(f, bytes, len, 0) != len || len < at ||
        record_header_decode(bytes, RECORD_RECEIPT, 1, &head, &chain) < 0)
        world_fail("the receipt has no header");
    for (int64_t n; (n = record_decode(&chain, bytes + at, len - at, &record)) > 0; at += (size_t)n)
        take_record(&r, &record);
    if (at != len || !r.ended)
        world_fail("the receipt does not end as it should");
    for (unsigned i = 0; i < m->count; i++)
        if (!r.seen[i] && !m->items[i].gone)
            world_fail("the receipt says nothing of %s", m->items[i].path);
    free(bytes);
}
