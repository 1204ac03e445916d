#include "storage/journal_inner.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "proto/wire.h"
#include "storage/path.h"
#include "storage/sys.h"

// The longest record and as much again, so that what follows a bad one can be looked at.
enum { WINDOW_BYTES = 2 * (RECORD_PAYLOAD_MAX + RECORD_FRAME_BYTES) };

// A journal file being read through a window.
struct replay {
    struct journal_table *table;
    int fd;
    uint64_t offset; // in the file, of the end of the window
    bool at_end;     // the window reaches the end of the file
    uint8_t *window;
    size_t at, have; // what is left of the window is [at, have)
    struct record_chain chain;
    struct journal_file **files; // by their number; NULL: gone
    uint64_t named, capacity;
};

// Moves what is left to the front and reads on.
static int refill(struct replay *r)
{
    memmove(r->window, r->window + r->at, r->have - r->at);
    r->have -= r->at;
    r->at = 0;
    size_t room = WINDOW_BYTES - r->have;
    ssize_t got = sys_pread_full(r->fd, r->window + r->have, room, r->offset);
    if (got < 0)
        return (int)got;
    r->at_end = (size_t)got < room;
    r->have += (size_t)got;
    r->offset += (size_t)got;
    return 0;
}

static int remember_number(struct replay *r, struct journal_file *f)
{
    if (r->named == r->capacity) {
        uint64_t capacity = r->capacity > 0 ? 2 * r->capacity : 64;
        struct journal_file **files = reallocarray(r->files, capacity, sizeof(struct journal_file *));
        if (files == NULL)
            return -ENOMEM;
        r->files = files;
        r->capacity = capacity;
    }
    r->files[r->named++] = f;
    return 0;
}

static struct entry_time get_time(struct wire_reader *in)
{
    struct entry_time t;
    t.s = (int64_t)wire_get_u64(in);
    t.ns = wire_get_u32(in);
    if (t.ns >= 1000000000)
        wire_fail(in);
    return t;
}

// The records: 0, -ENOMEM, or -EPROTO for one that makes no sense.

static int replay_file(struct replay *r, struct wire_reader *in)
{
    struct entry e = {.type = ENTRY_FILE};
    uint64_t number = wire_get_u64(in);
    e.size = wire_get_u64(in);
    e.mtime = get_time(in);
    e.ctime = get_time(in);
    e.inode = wire_get_u64(in);
    struct digest boot;
    wire_get_bytes(in, boot.bytes, sizeof(boot.bytes));
    size_t path_len = 0;
    e.path = wire_get_blob(in, PATH_BYTES_MAX, &path_len);
    e.path_len = (uint32_t)path_len;
    int err = wire_done(in);
    if (err < 0)
        return err;
    if (number != r->named || e.size == 0 || e.size > DIGESTED_BYTES_MAX ||
        !manifest_path_safe(e.path, path_len) || journal_table_find(r->table, e.path, path_len) != NULL)
        return -EPROTO;
    struct journal_file *f;
    err = journal_table_add(r->table, &e, &f);
    if (err < 0)
        return err;
    f->boot = boot;
    return remember_number(r, f);
}

// The file of a number, or NULL.
static struct journal_file *file_of(const struct replay *r, uint64_t number)
{
    return number < r->named ? r->files[number] : NULL;
}

static int replay_leaves(struct replay *r, struct wire_reader *in)
{
    struct journal_file *f = file_of(r, wire_get_u64(in));
    uint64_t first = wire_get_u64(in);
    size_t bytes = wire_left(in);
    uint64_t count = bytes / sizeof(struct digest);
    const uint8_t *leaves = wire_get_span(in, bytes);
    int err = wire_done(in);
    if (err < 0)
        return err;
    if (f == NULL || count == 0 || bytes % sizeof(struct digest) != 0 || count > journal_file_leaves(f) ||
        first > journal_file_leaves(f) - count)
        return -EPROTO;
    err = journal_file_reserve(f);
    if (err == 0)
        journal_file_hold(f, first, leaves, count);
    return err;
}

static int replay_gone(struct replay *r, struct wire_reader *in)
{
    uint64_t number = wire_get_u64(in);
    struct journal_file *f = file_of(r, number);
    int err = wire_done(in);
    if (err < 0)
        return err;
    if (f == NULL)
        return -EPROTO;
    journal_table_remove(r->table, f);
    journal_file_free(f);
    r->files[number] = NULL;
    return 0;
}

static int replay_record(struct replay *r, const struct record *record)
{
    struct wire_reader in;
    wire_reader_init(&in, record->payload, record->payload_bytes);
    switch (record->type) {
    case JOURNAL_FILE:
        return replay_file(r, &in);
    case JOURNAL_LEAVES:
        return replay_leaves(r, &in);
    case JOURNAL_GONE:
        return replay_gone(r, &in);
    default:
        return -EPROTO;
    }
}

// Whether a record of this chain lies somewhere behind the start of the bytes: the checksum that a record is
// chained to stands right before it.
static bool holds_record(const struct record_chain *chain, const uint8_t *bytes, size_t len)
{
    for (size_t at = RECORD_FRAME_BYTES; at + RECORD_FRAME_BYTES <= len; at++) {
        struct wire_reader in;
        wire_reader_init(&in, bytes + at - 8, len - at + 8);
        struct record_chain there = {.sum = wire_get_u64(&in)};
        wire_get_u64(&in); // length, type, zero: record_decode looks at them
        there.number = wire_get_u64(&in);
        if (there.number <= chain->number || there.number - chain->number > at / RECORD_FRAME_BYTES)
            continue;
        struct record ignored;
        if (record_decode(&there, bytes + at, len - at, &ignored) > 0)
            return true;
    }
    return false;
}

// Whether all bytes from here to the end of the file are zero. A negative errno when it cannot be read.
static int zeros_only(struct replay *r)
{
    for (;;) {
        for (; r->at < r->have; r->at++)
            if (r->window[r->at] != 0)
                return 0;
        if (r->at_end)
            return 1;
        int err = refill(r);
        if (err < 0)
            return err;
    }
}

// At a record that cannot be taken (`why`: what record_decode said): is it the torn end of an append, or
// damage in the middle? 1: damage.
static int judge_rest(struct replay *r, int64_t why)
{
    if (!r->at_end) {
        int err = refill(r);
        if (err < 0)
            return err;
    }
    const uint8_t *rest = r->window + r->at;
    size_t len = r->have - r->at;
    if (holds_record(&r->chain, rest, len))
        return 1;
    if (why == 0)
        return 0; // cut off
    struct wire_reader in;
    wire_reader_init(&in, rest, len);
    uint64_t claimed = (uint64_t)wire_get_u32(&in) + RECORD_FRAME_BYTES;
    if (why == -EBADMSG)
        r->at += (size_t)u64_min(claimed, len); // half written, perhaps
    int zeros = zeros_only(r);
    return zeros < 0 ? zeros : !zeros;
}

static int replay_records(struct replay *r, bool *damaged)
{
    for (;;) {
        struct record record;
        int64_t n = record_decode(&r->chain, r->window + r->at, r->have - r->at, &record);
        if (n == 0 && !r->at_end) {
            int err = refill(r);
            if (err < 0)
                return err;
            continue;
        }
        if (n <= 0) {
            int judged = judge_rest(r, n);
            *damaged = judged > 0;
            return judged < 0 ? judged : 0;
        }
        int err = replay_record(r, &record);
        if (err == -EPROTO)
            *damaged = true;
        if (err < 0)
            return err == -EPROTO ? 0 : err;
        r->at += (size_t)n;
    }
}

// The header: 1 when records follow that are ours; 0 when it is damaged or cut off.
static int replay_header(struct replay *r, bool *damaged)
{
    struct record_header header;
    int err = refill(r);
    if (err < 0)
        return err;
    if (r->have < RECORD_HEADER_BYTES) {
        *damaged = true; // a journal gets its name when all of it is on disk
        return 0;
    }
    err = record_header_decode(r->window, RECORD_JOURNAL, JOURNAL_VERSION, &header, &r->chain);
    if (err == -EBADMSG) {
        int other = record_header_decode(r->window, RECORD_RECEIPT, UINT32_MAX, &header, &r->chain);
        if (other == 0)
            return -EBADMSG; // whole, but of another kind: not ours to overwrite
        *damaged = true;
        return 0;
    }
    r->at = RECORD_HEADER_BYTES;
    return err < 0 ? err : 1;
}

static int open_journal(int state_fd)
{
    struct stat st;
    return path_open_own(state_fd, "journal", O_RDONLY, &st);
}

int journal_replay(int state_fd, struct journal_table *table, bool *damaged)
{
    struct replay r = {.table = table, .fd = open_journal(state_fd)};
    *damaged = false;
    if (r.fd < 0)
        return r.fd == -ENOENT ? 0 : r.fd;
    r.window = malloc(WINDOW_BYTES);
    int err = r.window != NULL ? replay_header(&r, damaged) : -ENOMEM;
    if (err > 0)
        err = replay_records(&r, damaged);
    free(r.files);
    free(r.window);
    sys_close(r.fd);
    return err;
}
