// Memory of slots, and stripes as they go from and to their files: with each engine that works here.
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "mover/slot.h"
#include "tests/unit/engine_kit.h"
#include "tests/unit/scratch.h"

enum { STRIPE = 8 * MIB };

struct io {
    struct slot *slot;
    unsigned done;
};

static void on_io(struct slot *s)
{
    struct io *io = s->owner;
    io->done++;
}

static struct io io_begin(struct engine *e)
{
    struct io io = {0};
    CU_ASSERT_EQUAL_FATAL(slots_new(e, 1, STRIPE, NULL, &io.slot), 0);
    io.slot->io_done = on_io;
    return io;
}

static void io_end(struct io *io)
{
    slots_free(io->slot, 1, STRIPE);
}

// Reads or writes these extents of the file, to the end.
static void run(struct io *io, enum op_kind kind, int fd, const struct extent *extents, uint32_t count)
{
    struct slot *s = io->slot;
    s->owner = io;
    s->fd = fd;
    s->stripe = (struct stripe){.extent_count = count};
    for (uint32_t i = 0; i < count; i++) {
        s->extents[i] = extents[i];
        s->stripe.body_bytes += extents[i].len;
    }
    io->done = 0;
    slot_io(s, kind);
    CU_ASSERT_EQUAL(io->done, 0); // never from within
    CU_ASSERT_TRUE_FATAL(kit_drain(s->engine));
    CU_ASSERT_EQUAL(io->done, 1);
    CU_ASSERT_EQUAL(s->pieces_out, 0);
}

static uint8_t pattern(uint64_t offset)
{
    return (uint8_t)(offset * 7 + offset / 4096 + offset / MIB * 13 + 1);
}

static void fill_body(struct slot *s, const struct extent *extents, uint32_t count)
{
    uint8_t *at = s->body;
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t k = 0; k < extents[i].len; k++)
            *at++ = pattern(extents[i].offset + k);
}

// Whether the body holds `bytes` bytes of the extents, and zeros behind them.
static bool body_is(const struct slot *s, const struct extent *extents, uint32_t count, uint64_t bytes)
{
    const uint8_t *at = s->body;
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t k = 0; k<extents[i].len; k++, bytes -= bytes> 0)
            if (*at++ != (bytes > 0 ? pattern(extents[i].offset + k) : 0))
                return false;
    return true;
}

// ---- memory ----

// Whether this process has memory there, by asking the kernel to read it.
static int is_there(void *arg)
{
    int fds[2];
    if (pipe2(fds, O_CLOEXEC) < 0)
        return -1;
    bool there = write(fds[1], arg, 1) == 1;
    close(fds[0]);
    close(fds[1]);
    return there;
}

static void test_memory(void)
{
    struct engine *e = kit_engine(ENGINE_THREADS);
    static const uint32_t sizes[] = {STRIPE_BYTES_MIN, 4 * MIB, STRIPE_BYTES_MAX};
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        struct slot *slots;
        int owner;
        size_t most = sizes[i] + BLOCK_BYTES + TRAILER_BYTES_MAX + FRAME_TAG_BYTES;
        CU_ASSERT_EQUAL_FATAL(slots_new(e, 3, sizes[i], &owner, &slots), 0);
        for (int n = 0; n < 3; n++) {
            struct slot *s = &slots[n];
            CU_ASSERT_PTR_EQUAL(s->owner, &owner);
            CU_ASSERT_PTR_EQUAL(s->engine, e);
            CU_ASSERT_EQUAL((uintptr_t)s->body % BLOCK_BYTES, 0);
            CU_ASSERT_PTR_EQUAL(s->head + FRAME_HEAD_BYTES, s->body); // sent as one
            CU_ASSERT(s->head >= s->memory);
            if (n > 0)
                CU_ASSERT(s->memory >= slots[n - 1].body + most);
            memset(s->memory, 1, (size_t)(s->body + most - s->memory));
            s->extents[STRIPE_EXTENTS_MAX - 1].len = 1;
            s->status[STRIPE_EXTENTS_MAX - 1].os = 1;
            s->leaves[STRIPE_LEAVES_MAX - 1].bytes[15] = 1;
        }
        CU_ASSERT_EQUAL(is_there(slots[1].body), 1);
        CU_ASSERT_EQUAL(scratch_root_child(is_there, slots[1].body), 0); // a child has not
        slots_free(slots, 3, sizes[i]);
    }
    slots_free(NULL, 3, MIB);
    engine_free(e);
}

// ---- files ----

// Extents with holes between them, of several pieces, of less than one, and more of them than go at a time.
static const struct extent sparse[] = {
    {0, 5 * BLOCK_BYTES, 3 * BLOCK_BYTES},       {0, MIB, MIB},
    {0, 2 * MIB + 3 * BLOCK_BYTES, 4 * MIB},     {0, BLOCK_BYTES, 8 * MIB},
    {0, BLOCK_BYTES, 8 * MIB + 2 * BLOCK_BYTES}, {0, MIB + 1, 9 * MIB},
};

static uint64_t bytes_of(const struct extent *extents, uint32_t count)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < count; i++)
        bytes += extents[i].len;
    return bytes;
}

static void write_and_read(struct engine *e, int fd, bool at_once)
{
    struct io io = io_begin(e);
    const uint32_t count = ARRAY_LEN(sparse);
    io.slot->at_once = at_once;
    fill_body(io.slot, sparse, count);
    run(&io, OP_WRITE, fd, sparse, count);
    CU_ASSERT_EQUAL(io.slot->io_error, 0);
    CU_ASSERT_FALSE(io.slot->io_short);
    struct stat st;
    CU_ASSERT_EQUAL(fstat(fd, &st), 0);
    CU_ASSERT_EQUAL(st.st_size, 10 * MIB + 1);
    uint8_t byte = 1;
    for (uint64_t offset = 0; offset < 3 * BLOCK_BYTES; offset += BLOCK_BYTES / 2) {
        CU_ASSERT_EQUAL(pread(fd, &byte, 1, (off_t)offset), 1);
        CU_ASSERT_EQUAL(byte, 0); // a hole stays one
    }
    memset(io.slot->body, 0xee, STRIPE);
    run(&io, OP_READ, fd, sparse, count);
    CU_ASSERT_EQUAL(io.slot->io_error, 0);
    CU_ASSERT_FALSE(io.slot->io_short);
    CU_ASSERT_TRUE(body_is(io.slot, sparse, count, bytes_of(sparse, count)));
    CU_ASSERT_EQUAL(io.slot->body[bytes_of(sparse, count)], 0xee); // and not a byte more
    io_end(&io);
}

static void sparse_with(struct engine *e)
{
    for (int at_once = 0; at_once < 2; at_once++) {
        int fd = kit_file(kit_disk(), 0);
        CU_ASSERT_FATAL(fd >= 0);
        write_and_read(e, fd, at_once);
        close(fd);
    }
}

static void test_sparse(void)
{
    kit_each(sparse_with);
}

// The file has become shorter: what is not there is zeros, and that is told.
static void short_with(struct engine *e)
{
    static const uint64_t sizes[] = {10 * MIB, 9 * MIB, 8 * MIB + 1, 4 * MIB + MIB + 5, MIB, 0};
    int fd = kit_file(kit_disk(), 0);
    CU_ASSERT_FATAL(fd >= 0);
    struct io io = io_begin(e);
    const uint32_t count = ARRAY_LEN(sparse);
    fill_body(io.slot, sparse, count);
    run(&io, OP_WRITE, fd, sparse, count);
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        CU_ASSERT_EQUAL(ftruncate(fd, (off_t)sizes[i]), 0);
        uint64_t left = 0;
        for (uint32_t x = 0; x < count; x++)
            left += sizes[i] > sparse[x].offset ? u64_min(sparse[x].len, sizes[i] - sparse[x].offset) : 0;
        memset(io.slot->body, 0xee, STRIPE);
        run(&io, OP_READ, fd, sparse, count);
        CU_ASSERT_EQUAL(io.slot->io_error, 0);
        CU_ASSERT_TRUE(io.slot->io_short);
        CU_ASSERT_TRUE(body_is(io.slot, sparse, count, left));
    }
    io_end(&io);
    close(fd);
}

static void test_short(void)
{
    kit_each(short_with);
}

// An error ends it once, after what was under way; the next stripe of the slot is not touched by it.
static void error_with(struct engine *e)
{
    static const struct {
        enum op_kind kind;
        int flags;
    } table[] = {{OP_READ, O_WRONLY}, {OP_WRITE, O_RDONLY}};
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        struct scratch dir = scratch_begin();
        scratch_file(dir.fd, "f", "");
        int fd = openat(dir.fd, "f", table[i].flags | O_CLOEXEC);
        int good = openat(dir.fd, "f", O_RDWR | O_CLOEXEC);
        CU_ASSERT_FATAL(fd >= 0 && good >= 0);
        struct io io = io_begin(e);
        run(&io, table[i].kind, fd, sparse, ARRAY_LEN(sparse));
        CU_ASSERT_EQUAL(io.slot->io_error, -EBADF);
        fill_body(io.slot, sparse, 1);
        run(&io, OP_WRITE, good, sparse, 1);
        CU_ASSERT_EQUAL(io.slot->io_error, 0);
        run(&io, OP_READ, good, sparse, 1);
        CU_ASSERT_FALSE(io.slot->io_short);
        CU_ASSERT_TRUE(body_is(io.slot, sparse, 1, sparse[0].len));
        io_end(&io);
        close(fd);
        close(good);
        scratch_end(&dir);
    }
}

// What was not begun when the error came never is.
static void after_error_with(struct engine *e)
{
    enum { EXTENTS = 12 };
    struct extent extents[EXTENTS];
    for (uint32_t i = 0; i < EXTENTS; i++)
        extents[i] = (struct extent){.len = BLOCK_BYTES, .offset = (uint64_t)i * 2 * BLOCK_BYTES};
    extents[0].offset = UINT64_MAX - 2 * BLOCK_BYTES; // there is no such place
    int fd = kit_file(kit_disk(), 0);
    CU_ASSERT_FATAL(fd >= 0);
    struct io io = io_begin(e);
    io.slot->at_once = true; // one after the other
    fill_body(io.slot, extents, EXTENTS);
    run(&io, OP_WRITE, fd, extents, EXTENTS);
    CU_ASSERT(io.slot->io_error < 0);
    struct stat st;
    CU_ASSERT_EQUAL(fstat(fd, &st), 0);
    CU_ASSERT_EQUAL(st.st_size, (off_t)(extents[SLOT_IO - 1].offset + BLOCK_BYTES)); // begun with it
    io_end(&io);
    close(fd);
}

static void test_error(void)
{
    kit_each(error_with);
    kit_each(after_error_with);
}

// ---- direct ----

// The tail of a file is written as a whole block, cut afterwards; it is read as what there is of it.
static void direct_with(struct engine *e)
{
    static const struct extent tails[][2] = {
        {{0, BLOCK_BYTES, 0}, {0, 1, 2 * BLOCK_BYTES}},
        {{0, 2 * MIB, BLOCK_BYTES}, {0, MIB + 4095, 4 * MIB}},
        {{0, MIB, 0}, {0, BLOCK_BYTES, 2 * MIB}}, // it ends with a block
    };
    int fd = kit_file(kit_disk(), O_RDWR | O_DIRECT);
    if (fd < 0) {
        CU_ASSERT_EQUAL(errno, EINVAL);
        printf("skip unit.slot.direct no direct I/O in %s\n", kit_disk());
        return;
    }
    struct io io = io_begin(e);
    io.slot->direct = true;
    for (size_t i = 0; i < ARRAY_LEN(tails); i++) {
        uint64_t end = tails[i][1].offset + tails[i][1].len, bytes = bytes_of(tails[i], 2);
        CU_ASSERT_EQUAL(ftruncate(fd, 0), 0);
        memset(io.slot->body, 0, STRIPE);
        fill_body(io.slot, tails[i], 2);
        run(&io, OP_WRITE, fd, tails[i], 2);
        CU_ASSERT_EQUAL(io.slot->io_error, 0);
        struct stat st;
        CU_ASSERT_EQUAL(fstat(fd, &st), 0);
        CU_ASSERT_EQUAL((uint64_t)st.st_size, u64_align_up(end, BLOCK_BYTES));
        for (int cut = 0; cut < 2; cut++) { // as written, and as it is published
            memset(io.slot->body, 0xee, STRIPE);
            run(&io, OP_READ, fd, tails[i], 2);
            CU_ASSERT_EQUAL(io.slot->io_error, 0);
            CU_ASSERT_FALSE(io.slot->io_short);
            CU_ASSERT_TRUE(body_is(io.slot, tails[i], 2, bytes));
            CU_ASSERT_EQUAL(ftruncate(fd, (off_t)end), 0);
        }
        CU_ASSERT_EQUAL(ftruncate(fd, (off_t)end - 1), 0);
        run(&io, OP_READ, fd, tails[i], 2);
        CU_ASSERT_TRUE(io.slot->io_short);
        CU_ASSERT_TRUE(body_is(io.slot, tails[i], 2, bytes - 1));
    }
    io_end(&io);
    close(fd);
}

static void test_direct(void)
{
    kit_each(direct_with);
}

void suite_slot(void)
{
    CU_pSuite s = CU_add_suite("slot", NULL, NULL);
    CU_add_test(s, "memory", test_memory);
    CU_add_test(s, "sparse", test_sparse);
    CU_add_test(s, "short", test_short);
    CU_add_test(s, "error", test_error);
    CU_add_test(s, "direct", test_direct);
}
