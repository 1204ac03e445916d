#include "mover/receipt_file.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/record.h"
#include "proto/wire.h"
#include "storage/sys.h"

enum {
    // Entries of one record. An entry of the longest path still fits.
    ENTRIES_BYTES_MAX = 64 * KIB,
    RECORD_BYTES_MAX = RECORD_PAYLOAD_MAX + RECORD_FRAME_BYTES,
    FOLDER_MODE = 0700,
    FILE_MODE = 0600,
    JOB_HEX_BYTES = 33,
};

static const char folder_name[] = "receipts";

struct receipt_writer {
    int dir_fd, fd;
    bool complete;
    int failed;  // of an earlier write: 0 or negative errno
    uint64_t at; // bytes of the file
    struct record_chain chain;
    struct wire_writer entries; // over `payload`
    char folder[PATH_MAX];
    char part[JOB_HEX_BYTES + sizeof(".part")], name[JOB_HEX_BYTES + sizeof(".receipt")];
    uint8_t payload[ENTRIES_BYTES_MAX];
    uint8_t record[RECORD_BYTES_MAX];
};

// Appends one record. The first failure is remembered: behind a hole in the chain nothing could be read.
static int writer_put(struct receipt_writer *w, enum receipt_record type, const void *payload, size_t len)
{
    if (w->failed < 0)
        return w->failed;
    int64_t bytes = record_encode(&w->chain, (uint16_t)type, payload, len, w->record, sizeof(w->record));
    int rc = bytes < 0 ? (int)bytes : sys_pwrite_full(w->fd, w->record, (size_t)bytes, w->at);
    if (rc == 0)
        w->at += (uint64_t)bytes;
    w->failed = rc;
    return rc;
}

static int writer_flush(struct receipt_writer *w)
{
    int64_t bytes = wire_written(&w->entries);
    if (bytes <= 0)
        return (int)bytes;
    wire_writer_init(&w->entries, w->payload, sizeof(w->payload));
    return writer_put(w, RECEIPT_ENTRIES, w->payload, (size_t)bytes);
}

// Header and JOB record.
static int writer_begin(struct receipt_writer *w, const struct job_id *job, const struct receipt_job *about)
{
    struct record_header head = {.kind = RECORD_RECEIPT, .version = RECEIPT_VERSION, .job = *job};
    uint8_t bytes[RECORD_HEADER_BYTES];
    int rc = sys_random(head.salt, sizeof(head.salt));
    if (rc < 0)
        return rc;
    record_header_encode(&head, bytes, &w->chain);
    rc = sys_pwrite_full(w->fd, bytes, sizeof(bytes), 0);
    if (rc < 0)
        return rc;
    w->at = sizeof(bytes);
    uint8_t *payload = malloc(RECORD_PAYLOAD_MAX);
    if (payload == NULL)
        return -ENOMEM;
    int64_t len = receipt_job_encode(about, payload, RECORD_PAYLOAD_MAX);
    rc = len < 0 ? (int)len : writer_put(w, RECEIPT_JOB, payload, (size_t)len);
    free(payload);
    return rc;
}

static int writer_create(struct receipt_writer *w, const char *state_dir, const struct job_id *job)
{
    char hex[JOB_HEX_BYTES];
    struct digest id;
    memcpy(id.bytes, job->bytes, sizeof(id.bytes));
    digest_hex(&id, hex);
    snprintf(w->part, sizeof(w->part), "%s.part", hex);
    snprintf(w->name, sizeof(w->name), "%s.receipt", hex);
    int len = snprintf(w->folder, sizeof(w->folder), "%s/%s", state_dir, folder_name);
    if (len < 0 || (size_t)len >= sizeof(w->folder))
        return -ENAMETOOLONG;
    int rc = sys_mkdirat(AT_FDCWD, w->folder, FOLDER_MODE);
    if (rc < 0 && rc != -EEXIST)
        return rc;
    w->dir_fd = sys_openat(AT_FDCWD, w->folder, O_RDONLY | O_DIRECTORY, 0);
    if (w->dir_fd < 0)
        return w->dir_fd;
    w->fd = sys_openat(w->dir_fd, w->part, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, FILE_MODE);
    return w->fd < 0 ? w->fd : 0;
}

int receipt_writer_new(const char *state_dir, const struct job_id *job, const struct receipt_job *about,
                       struct receipt_writer **out, struct err *err)
{
    struct receipt_writer *w = calloc(1, sizeof(*w));
    int rc = -ENOMEM;
    if (w != NULL) {
        w->dir_fd = w->fd = -1;
        wire_writer_init(&w->entries, w->payload, sizeof(w->payload));
        rc = writer_create(w, state_dir, job);
        if (rc == 0)
            rc = writer_begin(w, job, about);
    }
    if (rc < 0) {
        receipt_writer_free(w);
        err_set(err, ERR_START, -rc, "write a receipt in", state_dir, strlen(state_dir), NULL);
        return rc;
    }
    *out = w;
    return 0;
}

int receipt_writer_add(struct receipt_writer *w, const struct receipt_entry *e)
{
    enum { ENTRY_BYTES_MAX = PATH_BYTES_MAX + 64 };
    uint8_t entry[ENTRY_BYTES_MAX] NOT_ZEROED;
    if (w->failed < 0)
        return w->failed;
    int64_t len = receipt_entry_encode(e, entry, sizeof(entry));
    if (len < 0)
        return (int)len;
    if ((size_t)len + sizeof(uint32_t) > (size_t)(w->entries.end - w->entries.at)) {
        int rc = writer_flush(w);
        if (rc < 0)
            return rc;
    }
    wire_put_blob(&w->entries, entry, (size_t)len);
    return 0;
}

static int writer_finish(struct receipt_writer *w, const struct receipt_end *end)
{
    uint8_t payload[128];
    int64_t len = receipt_end_encode(end, payload, sizeof(payload));
    int rc = len < 0 ? (int)len : writer_flush(w);
    if (rc == 0)
        rc = writer_put(w, RECEIPT_END, payload, (size_t)len);
    if (rc == 0)
        rc = sys_fsync(w->fd);
    if (rc == 0)
        rc = sys_renameat(w->dir_fd, w->part, w->dir_fd, w->name);
    if (rc < 0)
        return rc;
    w->complete = true; // under its final name: to be kept, also when the sync of the directory fails
    return sys_fsync(w->dir_fd);
}

int receipt_writer_end(struct receipt_writer *w, const struct receipt_end *end, char *path, size_t path_len)
{
    char full[PATH_MAX + sizeof(w->name)];
    int len = snprintf(full, sizeof(full), "%s/%s", w->folder, w->name);
    if (len < 0 || (size_t)len >= path_len)
        return -ENAMETOOLONG;
    int rc = writer_finish(w, end);
    if (rc < 0)
        return rc;
    memcpy(path, full, (size_t)len + 1);
    return 0;
}

void receipt_writer_free(struct receipt_writer *w)
{
    if (w == NULL)
        return;
    if (w->fd >= 0) {
        sys_close(w->fd);
        int rc = w->complete ? 0 : sys_unlinkat(w->dir_fd, w->part, 0);
        (void)rc; // what stays is a .part, which nobody takes for a receipt
    }
    if (w->dir_fd >= 0)
        sys_close(w->dir_fd);
    free(w);
}

struct receipt_reader {
    int fd;
    struct record_header head;
    struct record_chain chain, first_chain; // now; behind JOB
    uint64_t at, first_at; // where the bytes of `buf` end in the file; where the record behind JOB starts
    size_t used, have;     // in buf
    struct wire_reader entries; // the rest of the record in hand
    struct receipt_job job;
    uint8_t *job_bytes; // what `job` points into
    struct receipt_end end;
    uint8_t buf[2 * RECORD_BYTES_MAX];
};

// The next record: 1, 0 at the end of the file, -EBADMSG, or an errno of a read.
static int reader_record(struct receipt_reader *r, struct record *out)
{
    int64_t taken = record_decode(&r->chain, r->buf + r->used, r->have - r->used, out);
    if (taken == 0) {
        memmove(r->buf, r->buf + r->used, r->have - r->used);
        r->have -= r->used;
        r->used = 0;
        ssize_t got = sys_pread_full(r->fd, r->buf + r->have, sizeof(r->buf) - r->have, r->at);
        if (got < 0)
            return (int)got;
        r->at += (uint64_t)got;
        r->have += (size_t)got;
        if (r->have == 0)
            return 0;
        taken = record_decode(&r->chain, r->buf, r->have, out);
    }
    if (taken == 0)
        return -ENODATA; // torn
    if (taken < 0)
        return -EBADMSG;
    r->used += (size_t)taken;
    return 1;
}

static void reader_rewind(struct receipt_reader *r)
{
    r->chain = r->first_chain;
    r->at = r->first_at;
    r->used = r->have = 0;
    wire_reader_init(&r->entries, NULL, 0);
}

static int reader_begin(struct receipt_reader *r)
{
    uint8_t head[RECORD_HEADER_BYTES];
    struct record record;
    ssize_t got = sys_pread_full(r->fd, head, sizeof(head), 0);
    if (got < 0)
        return (int)got;
    if ((size_t)got < sizeof(head))
        return -EBADMSG;
    int rc = record_header_decode(head, RECORD_RECEIPT, RECEIPT_VERSION, &r->head, &r->chain);
    if (rc < 0)
        return rc;
    r->at = sizeof(head);
    rc = reader_record(r, &record);
    if (rc <= 0)
        return rc < 0 ? rc : -ENODATA;
    r->first_chain = r->chain;
    r->first_at = sizeof(head) + r->used;
    r->job_bytes = malloc((size_t)record.payload_bytes + 1);
    if (r->job_bytes == NULL)
        return -ENOMEM;
    memcpy(r->job_bytes, record.payload, record.payload_bytes);
    if (record.type != RECEIPT_JOB || receipt_job_decode(r->job_bytes, record.payload_bytes, &r->job) < 0)
        return -EBADMSG;
    return 0;
}

static int next_in_record(struct receipt_reader *r, struct receipt_entry *out)
{
    size_t len;
    const uint8_t *bytes = wire_get_blob(&r->entries, RECORD_PAYLOAD_MAX, &len);
    return receipt_entry_decode(bytes, len, out) < 0 ? -EBADMSG : 1; // of no bytes when they ended before
}

int receipt_reader_next(struct receipt_reader *r, struct receipt_entry *out)
{
    while (wire_left(&r->entries) == 0) {
        struct record record;
        int rc = reader_record(r, &record);
        if (rc <= 0)
            return rc < 0 ? rc : -ENODATA;
        if (record.type == RECEIPT_END)
            return receipt_end_decode(record.payload, record.payload_bytes, &r->end) < 0 ? -EBADMSG : 0;
        if (record.type != RECEIPT_ENTRIES)
            return -EBADMSG;
        wire_reader_init(&r->entries, record.payload, record.payload_bytes);
    }
    return next_in_record(r, out);
}

// Goes through all entries to END, behind which nothing may follow.
static int reader_check(struct receipt_reader *r)
{
    struct receipt_entry entry;
    struct record beyond;
    int rc = reader_begin(r);
    if (rc < 0)
        return rc;
    wire_reader_init(&r->entries, NULL, 0);
    do {
        rc = receipt_reader_next(r, &entry);
    } while (rc > 0);
    if (rc == 0 && reader_record(r, &beyond) != 0)
        return -EBADMSG;
    reader_rewind(r);
    return rc;
}

static void set_reader_err(struct err *err, int rc, const char *path, const struct receipt_reader *r)
{
    size_t len = strlen(path);
    if (rc == -EBADMSG)
        err_set(err, ERR_START, 0, NULL, path, len, "is no receipt, or a damaged one");
    else if (rc == -ENODATA)
        err_set(err, ERR_START, 0, NULL, path, len,
                "is the receipt of a job that did not finish, or was cut off");
    else if (rc == -EPROTONOSUPPORT)
        err_set(err, ERR_START, 0, NULL, path, len, "is a receipt of version %u; this release reads up to %u",
                (unsigned)r->head.version, (unsigned)RECEIPT_VERSION);
    else
        err_set(err, ERR_START, -rc, "read", path, len, NULL);
}

int receipt_reader_open(const char *path, struct receipt_reader **out, struct err *err)
{
    struct receipt_reader *r = calloc(1, sizeof(*r));
    int rc = -ENOMEM;
    if (r != NULL) {
        r->fd = sys_openat(AT_FDCWD, path, O_RDONLY | O_NOCTTY | O_NONBLOCK, 0);
        rc = r->fd < 0 ? r->fd : reader_check(r);
    }
    if (rc < 0) {
        set_reader_err(err, rc, path, r);
        receipt_reader_free(r);
        return rc;
    }
    *out = r;
    return 0;
}

void receipt_reader_free(struct receipt_reader *r)
{
    if (r == NULL)
        return;
    if (r->fd >= 0)
        sys_close(r->fd);
    free(r->job_bytes);
    free(r);
}

const struct job_id *receipt_reader_id(const struct receipt_reader *r)
{
    return &r->head.job;
}

const struct receipt_job *receipt_reader_job(const struct receipt_reader *r)
{
    return &r->job;
}

const struct receipt_end *receipt_reader_end(const struct receipt_reader *r)
{
    return &r->end;
}
