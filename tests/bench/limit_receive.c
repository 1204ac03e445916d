// The receiving process of a stream. Direct writes go through a ring, a slot each, and are waited for only
// when no slot is left; plain ones are made piece by piece, while the bytes are still in the cache.
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/bench/limit.h"

enum { FILE_MODE = 0644 };

struct receiving {
    struct limit_end *end;
    struct limit_leaves *leaves;
    struct limit_digest *expected; // LIMIT_DIGESTS_MAX
    struct limit_digest *seen;     // of a packed unit
    struct io_uring ring;
    uint8_t *buffer;  // the slots, or a packed unit
    uint32_t *idle;   // numbers of free slots
    uint32_t *wanted; // by slot: bytes being written
    uint32_t idle_count;
    size_t slot_bytes; // a MiB, or a piece if that is more
    uint32_t lowat;
};

static void set_lowat(struct receiving *r, size_t len)
{
    uint32_t wanted = r->end->options->lowat_bytes;
    if (wanted == 0)
        return;
    if (len < wanted)
        wanted = 1; // a mark above what is still to come would never be reached
    if (wanted != r->lowat &&
        setsockopt(r->end->socket, SOL_SOCKET, SO_RCVLOWAT, &(int){(int)wanted}, sizeof(int)) < 0)
        limit_die("SO_RCVLOWAT", "stream");
    r->lowat = wanted;
}

static void receive(struct receiving *r, void *bytes, size_t len)
{
    uint8_t *at = bytes;
    set_lowat(r, len);
    while (len > 0) {
        ssize_t n = recv(r->end->socket, at, len, MSG_WAITALL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            limit_die("receive", "stream");
        if (n == 0) {
            errno = 0;
            limit_die("the stream ended", "early");
        }
        at += n;
        len -= (size_t)n;
    }
}

static void open_ring(struct receiving *r)
{
    struct io_uring_params best = {.flags = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN};
    int rc = io_uring_queue_init_params(2 * r->end->options->slots, &r->ring, &best);
    if (rc == -EINVAL)
        rc = io_uring_queue_init(2 * r->end->options->slots, &r->ring, 0);
    if (rc < 0) {
        errno = -rc;
        limit_die("io_uring", "setup");
    }
}

// Waits for `least` writes at least and frees the slots of all that are done.
static void reap(struct receiving *r, unsigned least)
{
    int rc = io_uring_submit_and_wait(&r->ring, least);
    if (rc < 0 && rc != -EINTR) {
        errno = -rc;
        limit_die("io_uring", "wait");
    }
    struct io_uring_cqe *cqe;
    unsigned head, count = 0;
    io_uring_for_each_cqe(&r->ring, head, cqe)
    {
        uint32_t slot = (uint32_t)cqe->user_data;
        if (cqe->res != (int)r->wanted[slot]) {
            errno = cqe->res < 0 ? -cqe->res : EIO;
            limit_die("write", "target");
        }
        r->idle[r->idle_count++] = slot;
        count++;
    }
    io_uring_cq_advance(&r->ring, count);
}

static void write_direct(struct receiving *r, uint32_t slot, int fd, size_t len, uint64_t offset)
{
    struct io_uring_sqe *sqe = io_uring_get_sqe(&r->ring);
    size_t whole = (len + LIMIT_BLOCK_BYTES - 1) & ~(size_t)(LIMIT_BLOCK_BYTES - 1);
    r->wanted[slot] = (uint32_t)whole;
    io_uring_prep_write(sqe, fd, r->buffer + slot * r->slot_bytes, (unsigned)whole, offset);
    sqe->user_data = slot;
    int rc = io_uring_submit(&r->ring);
    if (rc < 0) {
        errno = -rc;
        limit_die("io_uring", "submit");
    }
}

static void write_plain(int fd, const uint8_t *bytes, size_t len, uint64_t offset)
{
    while (len > 0) {
        ssize_t n = pwrite(fd, bytes, len, (off_t)offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            limit_die("write", "target");
        bytes += n;
        len -= (size_t)n;
        offset += (uint64_t)n;
    }
}

// A slot full of a large file, or its end.
static void receive_slot(struct receiving *r, int fd, size_t len, uint64_t offset)
{
    const struct limit_options *o = r->end->options;
    uint32_t slot = 0;
    if (o->write == LIMIT_WRITE_RING) {
        while (r->idle_count == 0)
            reap(r, 1);
        slot = r->idle[--r->idle_count];
    }
    uint8_t *bytes = r->buffer + slot * r->slot_bytes;
    for (size_t at = 0; at < len; at += o->piece_bytes) {
        size_t n = len - at < o->piece_bytes ? len - at : o->piece_bytes;
        uint8_t *piece = o->write == LIMIT_WRITE_RING ? bytes + at : bytes;
        receive(r, piece, n);
        if (r->end->cipher != NULL)
            limit_cipher_run(r->end->cipher, piece, piece, n);
        limit_leaves_add(r->leaves, piece, n);
        if (o->write == LIMIT_WRITE_PLAIN)
            write_plain(fd, piece, n, offset + at);
    }
    if (o->write == LIMIT_WRITE_RING)
        write_direct(r, slot, fd, len, offset);
}

static void check(struct receiving *r, const struct limit_digest *seen, uint32_t count)
{
    receive(r, r->expected, count * sizeof(*seen));
    if (memcmp(seen, r->expected, count * sizeof(*seen)) != 0) {
        errno = 0;
        limit_die("digest", "wrong");
    }
}

static void receive_large(struct receiving *r, const struct limit_unit *unit)
{
    int fd = r->end->plan->files[unit->file].fd;
    for (size_t at = 0; at < unit->bytes; at += r->slot_bytes) {
        size_t left = unit->bytes - at;
        receive_slot(r, fd, left < r->slot_bytes ? left : r->slot_bytes, unit->offset + at);
    }
    uint32_t count;
    const struct limit_digest *seen = limit_leaves_end(r->leaves, &count);
    check(r, seen, count);
}

static void write_small(struct receiving *r, const struct limit_file *f, const uint8_t *bytes)
{
    if (r->end->options->write == LIMIT_WRITE_NONE)
        return;
    int fd = openat(r->end->plan->target_fd, f->path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, FILE_MODE);
    if (fd < 0)
        limit_die("create", f->path);
    write_plain(fd, bytes, f->size, 0);
    close(fd);
}

static void receive_packed(struct receiving *r, const struct limit_unit *unit)
{
    const struct limit_file *files = &r->end->plan->files[unit->file];
    while (r->idle_count < r->end->options->slots && r->end->options->write == LIMIT_WRITE_RING)
        reap(r, 1);
    receive(r, r->buffer, unit->bytes);
    if (r->end->cipher != NULL)
        limit_cipher_run(r->end->cipher, r->buffer, r->buffer, unit->bytes);
    size_t at = 0;
    for (uint32_t i = 0; i < unit->files; at += files[i].size, i++)
        r->seen[i] = limit_digest_of(r->buffer + at, files[i].size);
    check(r, r->seen, unit->files);
    at = 0;
    for (uint32_t i = 0; i < unit->files; at += files[i].size, i++)
        write_small(r, &files[i], r->buffer + at);
}

static void receive_unit(struct receiving *r, uint32_t number)
{
    const struct limit_plan *plan = r->end->plan;
    struct limit_cipher *cipher = r->end->cipher;
    if (number >= plan->unit_count) {
        errno = 0;
        limit_die("a unit", "that is not in the plan");
    }
    if (cipher != NULL)
        limit_cipher_begin(cipher, number);
    const struct limit_unit *unit = &plan->units[number];
    if (limit_unit_packed(plan, unit))
        receive_packed(r, unit);
    else
        receive_large(r, unit);
    if (cipher != NULL) {
        uint8_t tag[LIMIT_TAG_BYTES];
        receive(r, tag, sizeof(tag));
        limit_cipher_open_end(cipher, tag);
    }
}

void limit_receive(struct limit_end *end)
{
    const struct limit_options *o = end->options;
    struct receiving r = {.end = end, .leaves = limit_leaves_new()};
    r.slot_bytes = o->piece_bytes > LIMIT_LEAF_BYTES ? o->piece_bytes : LIMIT_LEAF_BYTES;
    size_t slots_bytes = o->slots * r.slot_bytes;
    r.buffer = limit_memory(slots_bytes > o->unit_bytes ? slots_bytes : o->unit_bytes);
    r.expected = calloc(LIMIT_DIGESTS_MAX, sizeof(*r.expected));
    r.seen = calloc(LIMIT_PACKED_FILES_MAX, sizeof(*r.seen));
    r.idle = calloc(o->slots, sizeof(*r.idle));
    r.wanted = calloc(o->slots, sizeof(*r.wanted));
    if (r.expected == NULL || r.seen == NULL || r.idle == NULL || r.wanted == NULL)
        limit_die("memory", "slots");
    for (uint32_t i = 0; i < o->slots; i++)
        r.idle[r.idle_count++] = o->slots - 1 - i;
    if (o->write == LIMIT_WRITE_RING)
        open_ring(&r);
    uint32_t number;
    for (receive(&r, &number, sizeof(number)); number != (uint32_t)LIMIT_END;
         receive(&r, &number, sizeof(number)))
        receive_unit(&r, number);
    while (o->write == LIMIT_WRITE_RING && r.idle_count < o->slots)
        reap(&r, 1);
}
