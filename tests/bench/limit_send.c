// The sending process of a stream.
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "tests/bench/limit.h"

struct sending {
    struct limit_end *end;
    struct limit_leaves *leaves;
    uint8_t *buffer;              // a piece, or a packed unit
    struct limit_digest *digests; // of a packed unit
    uint32_t file;                // the one that is open
    int fd;
    const uint8_t *mapped; // all of it, with --map
};

static void send_all(struct sending *s, const void *bytes, size_t len, int flags)
{
    const uint8_t *at = bytes;
    while (len > 0) {
        ssize_t n = send(s->end->socket, at, len, flags | MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            limit_die("send", "stream");
        at += n;
        len -= (size_t)n;
    }
}

static void read_all(int fd, uint8_t *to, size_t len, uint64_t offset)
{
    while (len > 0) {
        ssize_t n = pread(fd, to, len, (off_t)offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            limit_die("read", "source");
        to += n;
        len -= (size_t)n;
        offset += (uint64_t)n;
    }
}

static void open_file(struct sending *s, uint32_t file)
{
    const struct limit_file *f = &s->end->plan->files[file];
    if (s->fd >= 0 && s->file == file)
        return;
    if (s->mapped != NULL)
        munmap((void *)(uintptr_t)s->mapped, s->end->plan->files[s->file].size);
    s->mapped = NULL;
    if (s->fd >= 0)
        close(s->fd);
    s->file = file;
    s->fd = openat(s->end->plan->source_fd, f->path, O_RDONLY | O_CLOEXEC);
    if (s->fd < 0)
        limit_die("open", f->path);
    if (s->end->options->map) {
        void *map = mmap(NULL, f->size, PROT_READ, MAP_SHARED, s->fd, 0);
        if (map == MAP_FAILED)
            limit_die("mmap", f->path);
        s->mapped = map;
    }
}

// The bytes of a piece, wherever they lie.
static const uint8_t *piece(struct sending *s, const struct limit_unit *unit, uint32_t at, size_t len)
{
    if (s->end->options->source == NULL)
        return s->buffer;
    if (s->mapped != NULL)
        return s->mapped + unit->offset + at;
    read_all(s->fd, s->buffer, len, unit->offset + at);
    return s->buffer;
}

static void send_large(struct sending *s, const struct limit_unit *unit)
{
    struct limit_end *end = s->end;
    if (end->options->source != NULL)
        open_file(s, unit->file);
    for (uint32_t at = 0; at < unit->bytes; at += end->options->piece_bytes) {
        size_t left = unit->bytes - at;
        size_t len = left < end->options->piece_bytes ? left : end->options->piece_bytes;
        const uint8_t *bytes = piece(s, unit, at, len);
        limit_leaves_add(s->leaves, bytes, len);
        if (end->cipher != NULL) {
            limit_cipher_run(end->cipher, bytes, s->buffer, len);
            bytes = s->buffer;
        }
        send_all(s, bytes, len, MSG_MORE);
    }
    uint32_t count;
    const struct limit_digest *digests = limit_leaves_end(s->leaves, &count);
    send_all(s, digests, count * sizeof(*digests), end->cipher != NULL ? MSG_MORE : 0);
}

static void send_packed(struct sending *s, const struct limit_unit *unit)
{
    const struct limit_plan *plan = s->end->plan;
    size_t at = 0;
    for (uint32_t i = 0; i < unit->files; i++) {
        const struct limit_file *f = &plan->files[unit->file + i];
        int fd = openat(plan->source_fd, f->path, O_RDONLY | O_CLOEXEC);
        if (fd < 0)
            limit_die("open", f->path);
        read_all(fd, s->buffer + at, f->size, 0);
        close(fd);
        s->digests[i] = limit_digest_of(s->buffer + at, f->size);
        at += f->size;
    }
    if (s->end->cipher != NULL)
        limit_cipher_run(s->end->cipher, s->buffer, s->buffer, at);
    send_all(s, s->buffer, at, MSG_MORE);
    send_all(s, s->digests, unit->files * sizeof(*s->digests), s->end->cipher != NULL ? MSG_MORE : 0);
}

static void send_unit(struct sending *s, uint32_t number)
{
    const struct limit_unit *unit = &s->end->plan->units[number];
    struct limit_cipher *cipher = s->end->cipher;
    if (cipher != NULL)
        limit_cipher_begin(cipher, number);
    send_all(s, &number, sizeof(number), MSG_MORE);
    if (limit_unit_packed(s->end->plan, unit))
        send_packed(s, unit);
    else
        send_large(s, unit);
    if (cipher != NULL) {
        uint8_t tag[LIMIT_TAG_BYTES];
        limit_cipher_seal_end(cipher, tag);
        send_all(s, tag, sizeof(tag), 0);
    }
}

void limit_send(struct limit_end *end)
{
    const struct limit_options *o = end->options;
    struct sending s = {.end = end, .leaves = limit_leaves_new(), .fd = -1};
    size_t bytes = o->unit_bytes > o->piece_bytes ? o->unit_bytes : o->piece_bytes;
    s.buffer = limit_memory(bytes);
    s.digests = calloc(LIMIT_PACKED_FILES_MAX, sizeof(*s.digests));
    if (s.digests == NULL)
        limit_die("memory", "digests");
    for (size_t i = 0; o->source == NULL && i < o->piece_bytes; i++)
        s.buffer[i] = (uint8_t)(i * 2654435761U >> 13);
    uint32_t number;
    while ((number = atomic_fetch_add(end->plan->cursor, 1)) < end->plan->unit_count)
        send_unit(&s, number);
    number = (uint32_t)LIMIT_END;
    send_all(&s, &number, sizeof(number), 0);
}
