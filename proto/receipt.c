#include "proto/receipt.h"

#include <errno.h>
#include <string.h>

#include "proto/wire.h"

enum {
    NS_PER_S = 1000000000,
    MODE_BITS = 07777,
    PROGRAM_BYTES_MAX = 64,
    SOURCES_BYTES_MAX = 96 * KIB,
    PLACE_BYTES_MAX = PATH_BYTES_MAX + ADDRESS_BYTES_MAX + 64, // scheme, port and brackets too
};

int64_t receipt_entry_encode(const struct receipt_entry *e, void *out, size_t len)
{
    struct wire_writer w;
    wire_writer_init(&w, out, len);
    wire_put_u8(&w, (uint8_t)e->type);
    wire_put_u8(&w, (uint8_t)e->outcome);
    wire_put_u8(&w, (uint8_t)e->proof);
    wire_put_u8(&w, 0);
    wire_put_u32(&w, e->mode);
    wire_put_u64(&w, e->size);
    wire_put_u64(&w, (uint64_t)e->mtime.s);
    wire_put_u32(&w, e->mtime.ns);
    wire_put_bytes(&w, e->digest.bytes, sizeof(e->digest.bytes));
    wire_put_blob(&w, e->path.bytes, e->path.len);
    return wire_written(&w);
}

// What can be said of an entry: known codes, a size only where there is one, a path that stays beneath the
// root.
static bool entry_possible(const struct receipt_entry *e)
{
    if (e->type < ENTRY_DIR || e->type > ENTRY_SYMLINK || e->outcome < RECEIPT_MOVED ||
        e->outcome > RECEIPT_FAILED || e->proof > PROOF_CARRIED)
        return false;
    if (e->mode > MODE_BITS || e->mtime.ns >= NS_PER_S)
        return false;
    if (e->type == ENTRY_FILE ? e->size > FILE_BYTES_MAX : e->size != 0)
        return false;
    if (e->path.len == 0)
        return e->type == ENTRY_DIR;
    return manifest_path_safe(e->path.bytes, e->path.len);
}

int receipt_entry_decode(const void *bytes, size_t len, struct receipt_entry *out)
{
    struct wire_reader r;
    struct receipt_entry e;
    wire_reader_init(&r, bytes, len);
    e.type = (enum entry_type)wire_get_u8(&r);
    e.outcome = (enum receipt_outcome)wire_get_u8(&r);
    e.proof = (enum receipt_proof)wire_get_u8(&r);
    if (wire_get_u8(&r) != 0)
        wire_fail(&r);
    e.mode = wire_get_u32(&r);
    e.size = wire_get_u64(&r);
    e.mtime.s = (int64_t)wire_get_u64(&r);
    e.mtime.ns = wire_get_u32(&r);
    wire_get_bytes(&r, e.digest.bytes, sizeof(e.digest.bytes));
    e.path.bytes = wire_get_blob(&r, PATH_BYTES_MAX, &e.path.len);
    int rc = wire_done(&r);
    if (rc < 0)
        return rc;
    if (!entry_possible(&e))
        return -EPROTO;
    *out = e;
    return 0;
}

static void put_blob(struct wire_writer *w, const struct blob *b, size_t max)
{
    if (b->len > max)
        w->full = true;
    else
        wire_put_blob(w, b->bytes, b->len);
}

static struct blob get_blob(struct wire_reader *r, size_t max)
{
    struct blob b;
    b.bytes = wire_get_blob(r, max, &b.len);
    return b;
}

int64_t receipt_job_encode(const struct receipt_job *j, void *out, size_t len)
{
    struct wire_writer w;
    wire_writer_init(&w, out, len);
    wire_put_u64(&w, (uint64_t)j->started_s);
    put_blob(&w, &j->program, PROGRAM_BYTES_MAX);
    put_blob(&w, &j->sources, SOURCES_BYTES_MAX);
    put_blob(&w, &j->destination, PLACE_BYTES_MAX);
    put_blob(&w, &j->place, PLACE_BYTES_MAX);
    return wire_written(&w);
}

// Whether a blob is a list of blobs, none of which says more than a place can.
static bool list_possible(const struct blob *list)
{
    struct wire_reader r;
    wire_reader_init(&r, list->bytes, list->len);
    while (!r.bad && wire_left(&r) > 0)
        get_blob(&r, PLACE_BYTES_MAX);
    return wire_done(&r) == 0;
}

int receipt_job_decode(const void *bytes, size_t len, struct receipt_job *out)
{
    struct wire_reader r;
    struct receipt_job j;
    wire_reader_init(&r, bytes, len);
    j.started_s = (int64_t)wire_get_u64(&r);
    j.program = get_blob(&r, PROGRAM_BYTES_MAX);
    j.sources = get_blob(&r, SOURCES_BYTES_MAX);
    j.destination = get_blob(&r, PLACE_BYTES_MAX);
    j.place = get_blob(&r, PLACE_BYTES_MAX);
    int rc = wire_done(&r);
    if (rc < 0)
        return rc;
    if (!list_possible(&j.sources))
        return -EPROTO;
    *out = j;
    return 0;
}

int64_t receipt_end_encode(const struct receipt_end *e, void *out, size_t len)
{
    struct wire_writer w;
    wire_writer_init(&w, out, len);
    wire_put_u64(&w, (uint64_t)e->ended_s);
    wire_put_u32(&w, e->exit_status);
    wire_put_u32(&w, 0);
    wire_put_u64(&w, e->total);
    wire_put_u64(&w, e->moved);
    wire_put_u64(&w, e->skipped);
    wire_put_u64(&w, e->changed);
    wire_put_u64(&w, e->vanished);
    wire_put_u64(&w, e->failed);
    wire_put_u64(&w, e->bytes);
    return wire_written(&w);
}

int receipt_end_decode(const void *bytes, size_t len, struct receipt_end *out)
{
    struct wire_reader r;
    struct receipt_end e;
    wire_reader_init(&r, bytes, len);
    e.ended_s = (int64_t)wire_get_u64(&r);
    e.exit_status = wire_get_u32(&r);
    if (wire_get_u32(&r) != 0)
        wire_fail(&r);
    e.total = wire_get_u64(&r);
    e.moved = wire_get_u64(&r);
    e.skipped = wire_get_u64(&r);
    e.changed = wire_get_u64(&r);
    e.vanished = wire_get_u64(&r);
    e.failed = wire_get_u64(&r);
    e.bytes = wire_get_u64(&r);
    int rc = wire_done(&r);
    if (rc == 0)
        *out = e;
    return rc;
}
