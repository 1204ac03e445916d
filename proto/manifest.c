#include "proto/manifest.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "proto/range.h"
#include "proto/wire.h"

enum {
    SEGMENT_MAGIC = 0x4d4b5350, // "PSKM"
    SEGMENT_HEAD_BYTES = 24,
    ENTRY_FIXED_BYTES = 60, // up to and with the length of the path
    ENTRY_RANGE_BYTES = 16,
    ENTRY_SPARSE = 1, // the only flag
    MODE_BITS = 07777,
    NS_PER_S = 1000000000,
};

_Static_assert(SEGMENT_HEAD_BYTES + ENTRY_FIXED_BYTES + PATH_BYTES_MAX + 4 + TARGET_BYTES_MAX +
                       ENTRY_RANGE_BYTES * ENTRY_RANGES_MAX <=
                   SEGMENT_BYTES_MAX,
               "an entry always fits an empty segment");

static bool component_safe(const uint8_t *name, size_t len)
{
    if (len == 0 || len > NAME_BYTES_MAX)
        return false;
    return !(len == 1 && name[0] == '.') && !(len == 2 && name[0] == '.' && name[1] == '.');
}

bool manifest_is_own(const void *name, size_t len)
{
    static const char own[] = ".penstock"; // lock, journal and temporary files of a destination
    return len == sizeof(own) - 1 && memcmp(name, own, len) == 0;
}

bool manifest_path_safe(const void *path, size_t len)
{
    if (len == 0 || len > PATH_BYTES_MAX || memchr(path, 0, len) != NULL)
        return false;
    const uint8_t *at = path, *end = at + len;
    while (true) {
        const uint8_t *slash = memchr(at, '/', (size_t)(end - at));
        size_t name_len = (size_t)((slash != NULL ? slash : end) - at);
        if (!component_safe(at, name_len) || manifest_is_own(at, name_len))
            return false;
        if (slash == NULL)
            return true;
        at = slash + 1; // a trailing slash leaves an empty component
    }
}

bool entry_same_version(const struct entry *a, const struct entry *b)
{
    return a->size == b->size && a->inode == b->inode && a->mtime.s == b->mtime.s &&
           a->mtime.ns == b->mtime.ns && a->ctime.s == b->ctime.s && a->ctime.ns == b->ctime.ns;
}

uint64_t entry_data_bytes(const struct entry *e)
{
    if (e->type != ENTRY_FILE)
        return 0;
    if (!e->sparse)
        return e->size;
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < e->data_count; i++)
        bytes += e->data[i].len; // disjoint and inside the file: cannot overflow
    return bytes;
}

// Data ranges of a sparse file: whole blocks, but for the end of the last one, which may be the file's.
static int check_data(const struct entry *e)
{
    if (e->data_count > ENTRY_RANGES_MAX)
        return -EMSGSIZE;
    if (!ranges_valid(e->data, e->data_count, e->size))
        return -EPROTO;
    for (uint32_t i = 0; i < e->data_count; i++) {
        const struct range *r = &e->data[i];
        bool ends_file = r->offset + r->len == e->size;
        if (r->offset % BLOCK_BYTES != 0 || (r->len % BLOCK_BYTES != 0 && !ends_file))
            return -EPROTO;
    }
    return 0;
}

static int check_target(const struct entry *e)
{
    if (e->target_len > TARGET_BYTES_MAX)
        return -EMSGSIZE;
    if (e->target_len == 0 || memchr(e->target, 0, e->target_len) != NULL)
        return -EPROTO;
    return 0;
}

static int check_type(const struct entry *e)
{
    if (e->type == ENTRY_FILE) {
        if (e->size > FILE_BYTES_MAX)
            return -EMSGSIZE;
        return e->sparse ? check_data(e) : 0;
    }
    if (e->size != 0 || e->sparse)
        return -EPROTO;
    if (e->type == ENTRY_SYMLINK)
        return check_target(e);
    return e->type == ENTRY_DIR ? 0 : -EPROTO;
}

int entry_check(const struct entry *e)
{
    if (e->path_len > PATH_BYTES_MAX || e->root >= SOURCES_MAX)
        return -EMSGSIZE;
    bool is_root = e->path_len == 0 && e->type == ENTRY_DIR;
    if (!is_root && !manifest_path_safe(e->path, e->path_len))
        return -EPROTO;
    if (e->mode > MODE_BITS || e->mtime.ns >= NS_PER_S || e->ctime.ns >= NS_PER_S)
        return -EPROTO;
    return check_type(e);
}

// Whether `bytes` of data more leave room in a segment that holds `count` entries with `data`: a single entry
// may be of any size, together they may not pass the limit.
static bool data_fits(uint32_t count, uint64_t data, uint64_t bytes)
{
    uint64_t sum;
    return count == 0 || (!__builtin_add_overflow(data, bytes, &sum) && sum <= SEGMENT_DATA_BYTES);
}

struct segment_builder {
    struct wire_writer writer;
    uint64_t number;
    uint64_t data; // bytes of file data so far
    uint32_t count;
    uint8_t buf[SEGMENT_BYTES_MAX];
};

struct segment_builder *segment_builder_new(void)
{
    struct segment_builder *b = malloc(sizeof(*b));
    if (b != NULL)
        segment_builder_begin(b, 0);
    return b;
}

void segment_builder_free(struct segment_builder *b)
{
    free(b);
}

void segment_builder_begin(struct segment_builder *b, uint64_t number)
{
    b->number = number;
    b->data = 0;
    b->count = 0;
    wire_writer_init(&b->writer, b->buf, sizeof(b->buf));
    wire_put_zeros(&b->writer, SEGMENT_HEAD_BYTES); // the head is known at the end
}

static size_t entry_encoded_bytes(const struct entry *e)
{
    size_t bytes = ENTRY_FIXED_BYTES + (size_t)e->path_len;
    if (e->type == ENTRY_SYMLINK)
        bytes += sizeof(uint32_t) + e->target_len;
    if (e->sparse)
        bytes += sizeof(uint32_t) + (size_t)e->data_count * ENTRY_RANGE_BYTES;
    return bytes;
}

static void entry_encode(struct wire_writer *w, const struct entry *e)
{
    wire_put_u8(w, (uint8_t)e->type);
    wire_put_u8(w, e->sparse ? ENTRY_SPARSE : 0);
    wire_put_u16(w, e->root);
    wire_put_u32(w, e->mode);
    wire_put_u32(w, e->uid);
    wire_put_u32(w, e->gid);
    wire_put_u64(w, e->size);
    wire_put_u64(w, (uint64_t)e->mtime.s);
    wire_put_u32(w, e->mtime.ns);
    wire_put_u32(w, e->ctime.ns);
    wire_put_u64(w, (uint64_t)e->ctime.s);
    wire_put_u64(w, e->inode);
    wire_put_blob(w, e->path, e->path_len);
    if (e->type == ENTRY_SYMLINK)
        wire_put_blob(w, e->target, e->target_len);
    if (!e->sparse)
        return;
    wire_put_u32(w, e->data_count);
    for (uint32_t i = 0; i < e->data_count; i++) {
        wire_put_u64(w, e->data[i].offset);
        wire_put_u64(w, e->data[i].len);
    }
}

int segment_builder_add(struct segment_builder *b, const struct entry *e)
{
    int rc = entry_check(e);
    if (rc < 0)
        return rc;
    uint64_t data = entry_data_bytes(e);
    size_t left = (size_t)(b->writer.end - b->writer.at);
    if (b->count == SEGMENT_ENTRIES_MAX || entry_encoded_bytes(e) > left ||
        !data_fits(b->count, b->data, data))
        return -ENOSPC;
    entry_encode(&b->writer, e);
    b->data += data;
    b->count++;
    return 0;
}

uint32_t segment_builder_count(const struct segment_builder *b)
{
    return b->count;
}

const uint8_t *segment_builder_end(struct segment_builder *b, bool last, size_t *len)
{
    struct wire_writer head;
    wire_writer_init(&head, b->buf, SEGMENT_HEAD_BYTES);
    wire_put_u32(&head, SEGMENT_MAGIC);
    wire_put_u32(&head, b->count);
    wire_put_u64(&head, b->number);
    wire_put_u8(&head, last);
    wire_put_zeros(&head, 7);
    int64_t written = wire_written(&b->writer);
    assert(wire_written(&head) == SEGMENT_HEAD_BYTES && written >= SEGMENT_HEAD_BYTES);
    *len = (size_t)written;
    return b->buf;
}

// What segment_decode hands out, with what it owns.
struct segment_store {
    struct segment segment;
    struct entry *entries;
    struct range *ranges; // the data ranges of all entries
    uint8_t *bytes;       // the copy that paths and targets point into
};

static void store_free(struct segment_store *s)
{
    if (s == NULL)
        return;
    free(s->entries);
    free(s->ranges);
    free(s->bytes);
    free(s);
}

void segment_free(struct segment *s)
{
    if (s != NULL)
        store_free(CONTAINER_OF(s, struct segment_store, segment));
}

// A store for `entries` entries with a copy of the bytes.
static struct segment_store *store_new(const void *bytes, size_t len, uint32_t entries)
{
    struct segment_store *s = calloc(1, sizeof(*s));
    if (s == NULL)
        return NULL;
    s->bytes = malloc(len);
    s->entries = calloc((size_t)entries + 1, sizeof(*s->entries));    // never of no bytes
    s->ranges = malloc(len / ENTRY_RANGE_BYTES * sizeof(*s->ranges)); // more cannot be in so many bytes
    if (s->bytes == NULL || s->entries == NULL || s->ranges == NULL) {
        store_free(s);
        return NULL;
    }
    memcpy(s->bytes, bytes, len);
    s->segment.entry_count = entries;
    s->segment.entries = s->entries;
    return s;
}

// A length of at most `max` and so many bytes in place.
static int get_text(struct wire_reader *r, size_t max, const uint8_t **text, uint32_t *len)
{
    uint32_t n = wire_get_u32(r);
    if (n > max)
        return -EMSGSIZE;
    const uint8_t *at = wire_get_span(r, n);
    if (r->bad)
        return -EPROTO;
    *text = at;
    *len = n;
    return 0;
}

// The data ranges of an entry into `room`, which has room for all that the bytes can hold.
static int get_ranges(struct wire_reader *r, struct range *room, uint32_t *count)
{
    uint32_t n = wire_get_u32(r);
    if (n > ENTRY_RANGES_MAX)
        return -EMSGSIZE;
    if (n > wire_left(r) / ENTRY_RANGE_BYTES)
        return -EPROTO;
    for (uint32_t i = 0; i < n; i++) {
        room[i].offset = wire_get_u64(r);
        room[i].len = wire_get_u64(r);
    }
    *count = n;
    return 0;
}

static int entry_decode(struct wire_reader *r, struct range *room, struct entry *e)
{
    e->type = (enum entry_type)wire_get_u8(r);
    uint8_t flags = wire_get_u8(r);
    e->sparse = flags == ENTRY_SPARSE;
    e->root = wire_get_u16(r);
    e->mode = wire_get_u32(r);
    e->uid = wire_get_u32(r);
    e->gid = wire_get_u32(r);
    e->size = wire_get_u64(r);
    e->mtime.s = (int64_t)wire_get_u64(r);
    e->mtime.ns = wire_get_u32(r);
    e->ctime.ns = wire_get_u32(r);
    e->ctime.s = (int64_t)wire_get_u64(r);
    e->inode = wire_get_u64(r);
    if (flags & ~ENTRY_SPARSE)
        return -EPROTO;
    int rc = get_text(r, PATH_BYTES_MAX, &e->path, &e->path_len);
    if (rc == 0 && e->type == ENTRY_SYMLINK)
        rc = get_text(r, TARGET_BYTES_MAX, &e->target, &e->target_len);
    if (rc == 0 && e->sparse) {
        e->data = room;
        rc = get_ranges(r, room, &e->data_count);
    }
    return rc < 0 ? rc : entry_check(e);
}

static int head_decode(struct wire_reader *r, struct segment *head)
{
    uint32_t magic = wire_get_u32(r);
    head->entry_count = wire_get_u32(r);
    head->number = wire_get_u64(r);
    uint8_t last = wire_get_u8(r);
    uint8_t zeros[7];
    wire_get_bytes(r, zeros, sizeof(zeros));
    if (r->bad || magic != SEGMENT_MAGIC || last > 1)
        return -EPROTO;
    for (size_t i = 0; i < sizeof(zeros); i++)
        if (zeros[i] != 0)
            return -EPROTO;
    head->last = last == 1;
    if (head->entry_count > SEGMENT_ENTRIES_MAX)
        return -EMSGSIZE;
    return head->entry_count > wire_left(r) / ENTRY_FIXED_BYTES ? -EPROTO : 0;
}

static int entries_decode(struct segment_store *s, struct wire_reader *r)
{
    uint64_t data = 0;
    struct range *room = s->ranges;
    for (uint32_t i = 0; i < s->segment.entry_count; i++) {
        struct entry *e = &s->entries[i];
        int rc = entry_decode(r, room, e);
        if (rc < 0)
            return rc;
        room += e->data_count;
        uint64_t bytes = entry_data_bytes(e);
        if (!data_fits(i, data, bytes))
            return -EMSGSIZE;
        data += bytes;
    }
    return wire_done(r);
}

static int compare_paths(const void *a, const void *b)
{
    const struct entry *x = *(const struct entry *const *)a, *y = *(const struct entry *const *)b;
    if (x->path_len != y->path_len)
        return x->path_len < y->path_len ? -1 : 1;
    return x->path_len == 0 ? 0 : memcmp(x->path, y->path, x->path_len);
}

// -EPROTO when two entries have the same path.
static int check_unique(const struct segment *s)
{
    const struct entry **sorted = malloc(((size_t)s->entry_count + 1) * sizeof(struct entry *));
    if (sorted == NULL)
        return -ENOMEM;
    for (uint32_t i = 0; i < s->entry_count; i++)
        sorted[i] = &s->entries[i];
    qsort(sorted, s->entry_count, sizeof(struct entry *), compare_paths);
    int rc = 0;
    for (uint32_t i = 1; i < s->entry_count && rc == 0; i++)
        if (compare_paths(&sorted[i - 1], &sorted[i]) == 0)
            rc = -EPROTO;
    free(sorted);
    return rc;
}

int segment_decode(const void *bytes, size_t len, struct segment **out)
{
    if (len > SEGMENT_BYTES_MAX)
        return -EMSGSIZE;
    struct wire_reader r;
    struct segment head;
    wire_reader_init(&r, bytes, len);
    int rc = head_decode(&r, &head);
    if (rc < 0)
        return rc;
    struct segment_store *s = store_new(bytes, len, head.entry_count);
    if (s == NULL)
        return -ENOMEM;
    s->segment.number = head.number;
    s->segment.last = head.last;
    wire_reader_init(&r, s->bytes + SEGMENT_HEAD_BYTES, len - SEGMENT_HEAD_BYTES);
    rc = entries_decode(s, &r);
    if (rc == 0)
        rc = check_unique(&s->segment);
    if (rc < 0) {
        store_free(s);
        return rc;
    }
    s->segment.digest = digest_of(s->bytes, len);
    *out = &s->segment;
    return 0;
}
