// Memory of slots, and the pieces in which a stripe goes from and to its file.
#include "mover/slot.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "storage/memory.h"
#include "storage/sys.h"

static size_t slot_bytes(uint32_t stripe_bytes)
{
    return (size_t)u64_align_up(BLOCK_BYTES + (uint64_t)stripe_bytes + BLOCK_BYTES + TRAILER_BYTES_MAX +
                                    FRAME_TAG_BYTES,
                                BLOCK_BYTES);
}

int slots_new(struct engine *engine, uint32_t count, uint32_t stripe_bytes, void *owner, struct slot **out)
{
    struct slot *slots = calloc(count, sizeof *slots);
    if (slots == NULL)
        return -ENOMEM;
    size_t each = slot_bytes(stripe_bytes);
    uint8_t *memory = mmap(NULL, count * each, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        free(slots);
        return -ENOMEM;
    }
    // A child forked while the kernel reads into the memory would take pages away from the operation.
    if (madvise(memory, count * each, MADV_DONTFORK) < 0) {
        munmap(memory, count * each);
        free(slots);
        return -ENOMEM;
    }
    // Fewer faults where the memory is used, which mostly is in whole stripes. A wish: kernels without it go
    // on.
    (void)madvise(memory, count * each, MADV_HUGEPAGE);
    bool ok = true;
    for (uint32_t i = 0; i < count; i++) {
        struct slot *s = &slots[i];
        s->memory = memory + i * each;
        s->body = s->memory + BLOCK_BYTES;
        s->head = s->body - FRAME_HEAD_BYTES;
        s->owner = owner;
        s->body_bytes = stripe_bytes;
        s->engine = engine;
        s->extents = calloc(STRIPE_EXTENTS_MAX, sizeof *s->extents);
        s->status = calloc(STRIPE_EXTENTS_MAX, sizeof *s->status);
        s->leaves = calloc(STRIPE_LEAVES_MAX, sizeof *s->leaves);
        ok = ok && s->extents != NULL && s->status != NULL && s->leaves != NULL;
    }
    if (!ok) {
        slots_free(slots, count, stripe_bytes);
        return -ENOMEM;
    }
    *out = slots;
    return 0;
}

void slots_free(struct slot *slots, uint32_t count, uint32_t stripe_bytes)
{
    if (slots == NULL)
        return;
    for (uint32_t i = 0; i < count; i++) {
        free(slots[i].extents);
        free(slots[i].status);
        free(slots[i].leaves);
    }
    munmap(slots[0].memory, count * slot_bytes(stripe_bytes));
    free(slots);
}

const struct entry *slot_entry(const struct slot *s, uint32_t extent)
{
    return &s->work->segment->entries[s->extents[extent].entry];
}

// The stripe waits for storage anew: pieces on their way, and the last that ended was progress.
static void watch_pieces(struct slot *s, enum op_kind kind)
{
    if (s->watch != NULL)
        storage_watch_begin(s->watch, &s->wait, kind == OP_READ ? "read" : "write", slot_entry(s, 0));
}

static void piece_done(struct op *op, int64_t result);

// Starts the next piece in `p`; false: there is none.
static bool piece_start(struct slot *s, struct slot_piece *p, enum op_kind kind)
{
    if (s->piece_extent >= s->stripe.extent_count || s->io_error != 0)
        return false;
    const struct extent *e = &s->extents[s->piece_extent];
    uint32_t len = (uint32_t)u64_min(e->len - s->piece_at, SLOT_IO_BYTES);
    p->slot = s;
    p->want = len;
    p->op = (struct op){.kind = kind,
                        .fd = s->fd,
                        .buf = s->body + s->piece_body,
                        .len = s->direct ? (size_t)u64_align_up(len, BLOCK_BYTES) : len,
                        .offset = e->offset + s->piece_at,
                        .at_once = s->at_once,
                        .done = piece_done};
    s->piece_body += len;
    s->piece_at += len;
    if (s->piece_at == e->len) {
        s->piece_extent++;
        s->piece_at = 0;
    }
    s->pieces_out++;
    engine_start(s->engine, &p->op);
    return true;
}

static void piece_done(struct op *op, int64_t result)
{
    struct slot_piece *p = CONTAINER_OF(op, struct slot_piece, op);
    struct slot *s = p->slot;
    s->pieces_out--;
    if (result < 0 && s->io_error == 0)
        s->io_error = result;
    if (op->kind == OP_READ && result >= 0 && (size_t)result < p->want) {
        memset((uint8_t *)op->buf + result, 0, p->want - (size_t)result);
        s->io_short = true;
    }
    if (piece_start(s, p, op->kind) || s->pieces_out > 0) {
        watch_pieces(s, op->kind);
        return;
    }
    storage_watch_end(s->watch, &s->wait);
    s->io_done(s);
}

// Instead of a read: stamps. The noise between them is of the buffer, whatever was in it before.
static int memory_read(void *arg)
{
    struct slot *s = arg;
    const struct entry *e = slot_entry(s, 0);
    const struct extent *x = &s->extents[0];
    if (!s->noisy)
        memory_noise(s->body, s->body_bytes, (uint64_t)(uintptr_t)s->body ^ sys_clock_ns());
    s->noisy = true;
    memory_fill(s->body, x->len, memory_file(e->path, e->path_len), x->offset);
    return 0;
}

// Instead of a write.
static int memory_write(void *arg)
{
    struct slot *s = arg;
    const struct entry *e = slot_entry(s, 0);
    const struct extent *x = &s->extents[0];
    return s->nowhere == OPEN_STAMPED
               ? memory_check(s->body, x->len, memory_file(e->path, e->path_len), x->offset)
               : 0;
}

static void memory_done(struct op *op, int64_t result)
{
    struct slot *s = CONTAINER_OF(op, struct slot, op);
    s->io_error = result;
    s->io_done(s);
}

static void memory_io(struct slot *s, enum op_kind kind)
{
    s->io_error = 0;
    s->io_short = false;
    s->op = (struct op){.kind = OP_CALL,
                        .call = kind == OP_READ ? memory_read : memory_write,
                        .arg = s,
                        .at_once = true,
                        .done = memory_done};
    engine_start(s->engine, &s->op);
}

void slot_io(struct slot *s, enum op_kind kind)
{
    assert(s->stripe.extent_count > 0 && s->pieces_out == 0);
    if (s->nowhere != OPEN_STORAGE) {
        memory_io(s, kind);
        return;
    }
    s->piece_extent = s->piece_at = s->piece_body = 0;
    s->io_error = 0;
    s->io_short = false;
    watch_pieces(s, kind);
    for (uint32_t i = 0; i < SLOT_IO && piece_start(s, &s->pieces[i], kind); i++)
        ;
}
