// The journal file. The first byte of an input says how the rest is meant: even: the bytes of a journal file;
// odd: the payloads of records, each {u8 type, u16 length, bytes}, which get a right header and chain, so
// that what is behind the checksums is reached too.
//
// Whatever the file holds, opening it must not crash, must yield just what a simple reading of its valid
// records yields, and must leave a journal that says the same.
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/range.h"
#include "proto/record.h"
#include "proto/wire.h"
#include "storage/journal.h"
#include "storage/sys.h"

// A file may claim to be larger than memory. That is -ENOMEM, not a finding, and a small limit keeps the
// machine well.
#define ALLOCATOR "allocator_may_return_null=1:max_allocation_size_mb=64"
const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
    return ALLOCATOR;
}

const char *__tsan_default_options(void);
const char *__tsan_default_options(void)
{
    return ALLOCATOR;
}

enum { FILES_MAX = 64, LEAVES_MAX = 64, FORGED_MAX = 1 << 20 };

// A file as the records tell it, of the first leaves.
struct known {
    struct entry entry;
    bool alive;
    bool any; // leaf is held, also behind the first
    bool held[LEAVES_MAX];
    struct digest leaves[LEAVES_MAX];
};

struct reading {
    struct known files[FILES_MAX];
    uint64_t count;
    bool full; // there were more files: nothing is known for certain
};

static bool path_alive(const struct reading *r, const struct entry *e)
{
    for (uint64_t i = 0; i < r->count; i++) {
        const struct known *k = &r->files[i];
        if (k->alive && k->entry.path_len == e->path_len && memcmp(k->entry.path, e->path, e->path_len) == 0)
            return true;
    }
    return false;
}

// The three records; false: makes no sense.

static bool read_file(struct reading *r, struct wire_reader *in, uint64_t number)
{
    struct entry e = {.type = ENTRY_FILE};
    e.size = wire_get_u64(in);
    e.mtime.s = (int64_t)wire_get_u64(in);
    e.mtime.ns = wire_get_u32(in);
    e.ctime.s = (int64_t)wire_get_u64(in);
    e.ctime.ns = wire_get_u32(in);
    e.inode = wire_get_u64(in);
    (void)wire_get_span(in, 16); // the boot
    size_t len = 0;
    e.path = wire_get_blob(in, PATH_BYTES_MAX, &len);
    e.path_len = (uint32_t)len;
    r->full = r->count == FILES_MAX;
    if (wire_done(in) < 0 || r->full || number != r->count || e.size == 0 || e.size > DIGESTED_BYTES_MAX ||
        e.mtime.ns > 999999999 || e.ctime.ns > 999999999 || !manifest_path_safe(e.path, len) ||
        path_alive(r, &e))
        return false;
    r->files[r->count++] = (struct known){.entry = e, .alive = true};
    return true;
}

static bool read_leaves(struct reading *r, struct wire_reader *in, uint64_t number)
{
    uint64_t first = wire_get_u64(in), bytes = wire_left(in);
    if (in->bad || number >= r->count || !r->files[number].alive || bytes == 0 || bytes % 16 != 0)
        return false;
    struct known *k = &r->files[number];
    uint64_t all = u64_div_up(k->entry.size, LEAF_BYTES);
    if (first >= all || bytes / 16 > all - first)
        return false;
    k->any = true;
    for (uint64_t leaf = first; leaf < LEAVES_MAX && wire_left(in) > 0; leaf++) {
        k->held[leaf] = true;
        wire_get_bytes(in, k->leaves[leaf].bytes, 16);
    }
    return true;
}

static bool read_gone(struct reading *r, const struct wire_reader *in, uint64_t number)
{
    if (wire_done(in) < 0 || number >= r->count || !r->files[number].alive)
        return false;
    r->files[number].alive = false;
    return true;
}

// Reads up to the first record that is damaged or makes no sense.
static void read_simply(struct reading *r, const uint8_t *bytes, size_t len)
{
    struct record_header header;
    struct record_chain chain;
    if (len < RECORD_HEADER_BYTES || record_header_decode(bytes, RECORD_JOURNAL, 1, &header, &chain) != 0)
        return;
    size_t at = RECORD_HEADER_BYTES;
    for (bool sense = true; sense;) {
        struct record record;
        int64_t n = record_decode(&chain, bytes + at, len - at, &record);
        if (n <= 0)
            return;
        at += (size_t)n;
        struct wire_reader in;
        wire_reader_init(&in, record.payload, record.payload_bytes);
        uint64_t number = wire_get_u64(&in);
        sense = (record.type == 1 && read_file(r, &in, number)) ||
                (record.type == 2 && read_leaves(r, &in, number)) ||
                (record.type == 3 && read_gone(r, &in, number));
    }
}

static bool in_ranges(const struct range *held, uint32_t count, uint64_t leaf)
{
    for (uint32_t i = 0; i < count; i++)
        if (leaf >= held[i].offset && leaf - held[i].offset < held[i].len)
            return true;
    return false;
}

static void check_file(struct journal *j, const struct known *k)
{
    const struct journal_file *f = journal_find(j, &k->entry);
    assert((f != NULL) == k->any);
    if (f == NULL)
        return;
    uint32_t count = 0;
    const struct range *held = journal_held(f, &count);
    const struct digest *leaves = journal_leaves(f);
    uint64_t all = u64_div_up(k->entry.size, LEAF_BYTES);
    assert(ranges_valid(held, count, all));
    for (uint64_t leaf = 0; leaf < LEAVES_MAX; leaf++) {
        assert(in_ranges(held, count, leaf) == k->held[leaf]);
        assert(!k->held[leaf] || digest_equal(&leaves[leaf], &k->leaves[leaf]));
    }
}

static void count_stale(void *arg, const struct entry *e)
{
    assert(manifest_path_safe(e->path, e->path_len) && e->size > 0);
    ++*(unsigned *)arg;
}

// All that is known, and nothing else.
static void check_journal(struct journal *j, const struct reading *r, bool by_name)
{
    unsigned stale = 0, alive = 0;
    for (uint64_t i = 0; i < r->count; i++) {
        alive += r->files[i].alive;
        if (by_name && r->files[i].alive)
            check_file(j, &r->files[i]);
    }
    journal_each_stale(j, count_stale, &stale);
    assert(stale == (by_name ? 0 : alive));
}

static void write_file(int dir_fd, const void *bytes, size_t len)
{
    int fd = openat(dir_fd, "journal", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0 || sys_pwrite_full(fd, bytes, len, 0) != 0)
        abort();
    close(fd);
}

static void try_file(int dir_fd, const uint8_t *bytes, size_t len)
{
    struct reading *r = calloc(1, sizeof(*r));
    struct job_id job = {.bytes = {1}};
    struct journal *j = NULL;
    bool damaged = false;
    write_file(dir_fd, bytes, len);
    read_simply(r, bytes, len);
    int err = journal_open(dir_fd, &job, &j, &damaged);
    assert(err == 0 || err == -EPROTONOSUPPORT || err == -EBADMSG || err == -ENOMEM || err == -EFBIG);
    for (int round = 0; err == 0 && round < 3; round++) {
        assert(round == 0 || !damaged); // what it wrote itself is whole
        if (!r->full)
            check_journal(j, r, round != 1);
        journal_close(j); // not synced: forgotten by this run alone
        err = journal_open(dir_fd, &job, &j, &damaged);
        assert(err == 0);
    }
    journal_close(j);
    free(r);
}

// Gives the payloads a header and a chain.
static size_t forge(const uint8_t *data, size_t size, uint8_t *out)
{
    struct record_header header = {.kind = RECORD_JOURNAL, .version = 1};
    struct record_chain chain;
    record_header_encode(&header, out, &chain);
    size_t len = RECORD_HEADER_BYTES;
    struct wire_reader in;
    wire_reader_init(&in, data, size);
    while (wire_left(&in) > 3) {
        uint16_t type = wire_get_u8(&in);
        size_t payload_len = wire_get_u16(&in);
        payload_len = u64_min(payload_len, wire_left(&in));
        const uint8_t *payload = wire_get_span(&in, payload_len);
        int64_t n = record_encode(&chain, type, payload, payload_len, out + len, FORGED_MAX - len);
        if (n < 0)
            break;
        len += (size_t)n;
    }
    return len;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[] = "/dev/shm/penstock-fuzz-XXXXXX", other[] = "/tmp/penstock-fuzz-XXXXXX";
    if (size == 0)
        return 0;
    const char *dir = mkdtemp(path);
    if (dir == NULL)
        dir = mkdtemp(other);
    int dir_fd = dir != NULL ? open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    if (dir_fd < 0)
        abort();
    if (data[0] % 2 == 0) {
        try_file(dir_fd, data + 1, size - 1);
    } else {
        uint8_t *forged = malloc(FORGED_MAX);
        try_file(dir_fd, forged, forge(data + 1, size - 1, forged));
        free(forged);
    }
    unlinkat(dir_fd, "journal", 0);
    unlinkat(dir_fd, "journal.new", 0);
    close(dir_fd);
    rmdir(dir);
    return 0;
}
