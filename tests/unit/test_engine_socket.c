#include <errno.h>
#include <netinet/in.h>
#include <semaphore.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>

#include "proto/limits.h"
#include "tests/unit/engine_kit.h"

struct pair {
    int fds[2];
};

enum flavour { UNIX_PAIR, UNIX_PAIR_NON_BLOCKING, TCP_PAIR, FLAVOURS };

static void tcp_pair(struct pair *p)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(at);
    int door = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CU_ASSERT_FATAL(door >= 0 && bind(door, (struct sockaddr *)&at, len) == 0 && listen(door, 1) == 0);
    CU_ASSERT_EQUAL_FATAL(getsockname(door, (struct sockaddr *)&at, &len), 0);
    p->fds[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CU_ASSERT_FATAL(p->fds[0] >= 0 && connect(p->fds[0], (struct sockaddr *)&at, len) == 0);
    p->fds[1] = accept4(door, NULL, NULL, SOCK_CLOEXEC);
    CU_ASSERT_FATAL(p->fds[1] >= 0);
    close(door);
}

static void pair_open(struct pair *p, enum flavour flavour)
{
    int type = SOCK_STREAM | SOCK_CLOEXEC | (flavour == UNIX_PAIR_NON_BLOCKING ? SOCK_NONBLOCK : 0);
    if (flavour == TCP_PAIR)
        tcp_pair(p);
    else
        CU_ASSERT_EQUAL_FATAL(socketpair(AF_UNIX, type, 0, p->fds), 0);
}

static void pair_buffers(const struct pair *p, int bytes)
{
    for (int i = 0; i < 2; i++) {
        CU_ASSERT_EQUAL(setsockopt(p->fds[i], SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes)), 0);
        CU_ASSERT_EQUAL(setsockopt(p->fds[i], SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes)), 0);
    }
}

static void pair_close(struct pair *p)
{
    for (int i = 0; i < 2; i++)
        if (p->fds[i] >= 0)
            close(p->fds[i]);
}

// The bytes of every stream here: a piece of PERIOD bytes over and over, so that any of its parts of at most
// PIECE_MAX bytes lies in one piece of memory. The period is odd: bytes that moved by a power of two show.
enum { PERIOD = 65521, PIECE_MAX = 3 * MIB };

static uint8_t *pattern_new(void)
{
    uint8_t *pattern = calloc(1, PERIOD + PIECE_MAX);
    CU_ASSERT_PTR_NOT_NULL_FATAL(pattern);
    kit_fill(pattern, PERIOD, 3);
    for (size_t i = PERIOD; i < PERIOD + PIECE_MAX; i++)
        pattern[i] = pattern[i - PERIOD];
    return pattern;
}

// One direction of a stream at one end: an operation at a time, of sizes from 1 byte to `piece_max`.
struct flow {
    struct op op;
    struct engine *e;
    uint8_t *pattern;
    uint64_t moved, total;
    size_t piece_max;
    unsigned round;
    unsigned wrong;
};

static void flow_start(struct flow *f)
{
    size_t len = f->round++ % 5 == 0 ? f->round % 7 + 1 : f->round * UINT64_C(40503) % f->piece_max + 1;
    f->op.len = (size_t)u64_min(len, f->total - f->moved);
    if (f->op.kind == OP_SEND)
        f->op.buf = f->pattern + f->moved % PERIOD;
    engine_start(f->e, &f->op);
}

static void on_flow(struct op *op, int64_t result)
{
    struct flow *f = CONTAINER_OF(op, struct flow, op);
    if (op->kind == OP_RECV)
        f->wrong += memcmp(op->buf, f->pattern + f->moved % PERIOD, op->len) != 0;
    f->wrong += result != 0;
    f->moved += op->len;
    if (result == 0 && f->moved < f->total)
        flow_start(f);
}

static void flow_open(struct flow *f, struct engine *e, enum op_kind kind, int fd, uint8_t *pattern,
                      uint64_t total)
{
    *f = (struct flow){
        .op = {.kind = kind, .fd = fd, .done = on_flow}, .e = e, .pattern = pattern, .total = total};
    f->piece_max = PIECE_MAX - (kind == OP_SEND ? 0 : 77777); // the two ends never agree
    if (kind == OP_RECV) {
        f->op.buf = malloc(PIECE_MAX);
        CU_ASSERT_PTR_NOT_NULL_FATAL(f->op.buf);
    }
}

// `total` bytes in each of `directions` (1, 2) at the same time, both ends in one engine.
static void stream(struct engine *e, const struct pair *p, unsigned directions, uint64_t total)
{
    uint8_t *pattern = pattern_new();
    struct flow flows[4];
    unsigned count = directions * 2;
    for (unsigned i = 0; i < count; i++) {
        int fd = p->fds[(i + i / 2) % 2]; // 0 sends to 1, and then 1 to 0
        flow_open(&flows[i], e, i % 2 == 0 ? OP_SEND : OP_RECV, fd, pattern, total);
        flow_start(&flows[i]);
    }
    CU_ASSERT_TRUE_FATAL(kit_drain(e));
    for (unsigned i = 0; i < count; i++) {
        CU_ASSERT_EQUAL(flows[i].moved, total);
        CU_ASSERT_EQUAL(flows[i].wrong, 0);
        if (flows[i].op.kind == OP_RECV)
            free(flows[i].op.buf);
    }
    free(pattern);
}

static void streams(struct engine *e)
{
    struct pair p;
    for (enum flavour flavour = 0; flavour < FLAVOURS; flavour++) {
        pair_open(&p, flavour);
        stream(e, &p, 1, 64 * MIB);
        stream(e, &p, 2, 8 * MIB); // and the same sockets go on
        pair_close(&p);
    }
}

static void test_stream(void)
{
    kit_each(streams);
}

static void streams_small_buffers(struct engine *e)
{
    struct pair p;
    for (enum flavour flavour = 0; flavour < FLAVOURS; flavour++) {
        pair_open(&p, flavour);
        pair_buffers(&p, 16 * KIB); // TCP itself crawls with less than its loopback segments
        stream(e, &p, 1, 64 * MIB);
        stream(e, &p, 2, 4 * MIB);
        pair_close(&p);
    }
}

static void test_stream_small_buffers(void)
{
    kit_each(streams_small_buffers);
}

// The end of the stream before, in and behind the awaited bytes; come before the receive is started, or while
// it waits.
static void ends(struct engine *e)
{
    static const struct {
        size_t sent;
        int64_t result;
    } cases[] = {{0, -ENODATA}, {1, -ECONNRESET}, {99, -ECONNRESET}, {100, 0}, {101, 0}};
    for (size_t i = 0; i < ARRAY_LEN(cases) * FLAVOURS * 2; i++) {
        size_t sent = cases[i % ARRAY_LEN(cases)].sent;
        bool early = i >= ARRAY_LEN(cases) * FLAVOURS;
        struct pair p;
        char out[101] = "", in[100];
        struct kit_op op;
        pair_open(&p, (enum flavour)(i / ARRAY_LEN(cases) % FLAVOURS));
        op = kit_transfer(OP_RECV, p.fds[1], in, sizeof(in), 0);
        if (early) {
            engine_start(e, &op.op);
            CU_ASSERT_EQUAL(engine_step(e, 0), 0);
        }
        CU_ASSERT_EQUAL(send(p.fds[0], out, sent, 0), (ssize_t)sent);
        if (early && sent < sizeof(in))
            CU_ASSERT_EQUAL(engine_step(e, 1), 0);
        CU_ASSERT_EQUAL(shutdown(p.fds[0], SHUT_WR), 0);
        if (!early)
            engine_start(e, &op.op);
        CU_ASSERT_TRUE_FATAL(kit_drain(e));
        CU_ASSERT_EQUAL(op.result, cases[i % ARRAY_LEN(cases)].result);
        pair_close(&p);
    }
}

static void test_end_of_stream(void)
{
    kit_each(ends);
}

// A reset is an error of its own also before the first byte.
static void reset(struct engine *e)
{
    struct linger at_once = {.l_onoff = 1, .l_linger = 0};
    struct pair p;
    char in[100];
    pair_open(&p, TCP_PAIR);
    struct kit_op op = kit_transfer(OP_RECV, p.fds[1], in, sizeof(in), 0);
    engine_start(e, &op.op);
    CU_ASSERT_EQUAL(engine_step(e, 0), 0);
    CU_ASSERT_EQUAL(setsockopt(p.fds[0], SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once)), 0);
    close(p.fds[0]);
    p.fds[0] = -1;
    CU_ASSERT_TRUE_FATAL(kit_drain(e));
    CU_ASSERT_EQUAL(op.result, -ECONNRESET);
    pair_close(&p);
}

static void test_reset(void)
{
    kit_each(reset);
}

// The peer has gone, or goes while a send waits for room: an error, and no SIGPIPE, whose action here would
// end us.
static void peer_gone(struct engine *e)
{
    char *out = calloc(1, 32 * MIB);
    CU_ASSERT_PTR_NOT_NULL_FATAL(out);
    for (int i = 0; i < FLAVOURS * 2; i++) {
        bool early = i >= FLAVOURS;
        struct pair p;
        pair_open(&p, (enum flavour)(i % FLAVOURS));
        struct kit_op op = kit_transfer(OP_SEND, p.fds[0], out, 32 * MIB, 0);
        if (early) {
            engine_start(e, &op.op);
            CU_ASSERT_EQUAL(engine_step(e, 1), 0);
        }
        close(p.fds[1]);
        p.fds[1] = -1;
        if (!early)
            engine_start(e, &op.op);
        CU_ASSERT_TRUE_FATAL(kit_drain(e));
        // A TCP peer that closes over bytes it has not read resets the connection.
        CU_ASSERT(op.result == -EPIPE || (op.result == -ECONNRESET && i % FLAVOURS == TCP_PAIR));
        // From now on it is a broken pipe for every kind.
        CU_ASSERT_EQUAL(kit_run(e, kit_transfer(OP_SEND, p.fds[0], out, 1, 0)), -EPIPE);
        pair_close(&p);
    }
    free(out);
}

static void test_peer_gone(void)
{
    struct sigaction fatal = {.sa_handler = SIG_DFL}, old;
    CU_ASSERT_EQUAL(sigaction(SIGPIPE, &fatal, &old), 0);
    kit_each(peer_gone);
    CU_ASSERT_EQUAL(sigaction(SIGPIPE, &old, NULL), 0);
}

// The way to stop: shut the socket down, drain.
static void shut_down(struct engine *e)
{
    char *out = calloc(1, 32 * MIB), in[10];
    CU_ASSERT_PTR_NOT_NULL_FATAL(out);
    for (enum flavour flavour = 0; flavour < FLAVOURS; flavour++) {
        struct pair p;
        pair_open(&p, flavour);
        struct kit_op sends = kit_transfer(OP_SEND, p.fds[0], out, 32 * MIB, 0);
        struct kit_op receives = kit_transfer(OP_RECV, p.fds[0], in, sizeof(in), 0);
        engine_start(e, &sends.op);
        engine_start(e, &receives.op);
        CU_ASSERT_EQUAL(engine_step(e, 1), 0);
        CU_ASSERT_EQUAL(shutdown(p.fds[0], SHUT_RDWR), 0);
        CU_ASSERT_TRUE_FATAL(kit_drain(e));
        CU_ASSERT_EQUAL(sends.result, -EPIPE);
        CU_ASSERT_EQUAL(receives.result, -ENODATA);
        pair_close(&p);
    }
    free(out);
}

static void test_shut_down(void)
{
    kit_each(shut_down);
}

static void no_socket(struct engine *e)
{
    char byte = 0;
    int fd = kit_file("/dev/shm", 0);
    CU_ASSERT_EQUAL(kit_run(e, kit_transfer(OP_SEND, fd, &byte, 1, 0)), -ENOTSOCK);
    CU_ASSERT_EQUAL(kit_run(e, kit_transfer(OP_RECV, fd, &byte, 1, 0)), -ENOTSOCK);
    CU_ASSERT_EQUAL(kit_run(e, kit_transfer(OP_SEND, 999999, &byte, 1, 0)), -EBADF);
    CU_ASSERT_EQUAL(kit_run(e, kit_transfer(OP_RECV, 999999, &byte, 1, 0)), -EBADF);
    close(fd);
}

static void test_no_socket(void)
{
    kit_each(no_socket);
}

static int wait_for_post(void *arg)
{
    while (sem_wait(arg) < 0)
        continue;
    return 5;
}

// While every file thread is stuck the sockets go on.
static void slow_calls(struct engine *e)
{
    sem_t go;
    struct pair p;
    struct kit_op ops[KIT_FILE_THREADS];
    CU_ASSERT_EQUAL_FATAL(sem_init(&go, 0, 0), 0);
    for (size_t i = 0; i < ARRAY_LEN(ops); i++) {
        ops[i] = kit_call(wait_for_post, &go);
        engine_start(e, &ops[i].op);
    }
    uint8_t *pattern = pattern_new();
    struct flow sends, receives;
    pair_open(&p, TCP_PAIR);
    flow_open(&sends, e, OP_SEND, p.fds[0], pattern, 8 * MIB);
    flow_open(&receives, e, OP_RECV, p.fds[1], pattern, 8 * MIB);
    flow_start(&sends);
    flow_start(&receives);
    uint64_t end_ns = sys_clock_ns() + UINT64_C(1000000) * KIT_WAIT_MS;
    while (engine_in_flight(e) > ARRAY_LEN(ops) && sys_clock_ns() < end_ns)
        CU_ASSERT_FATAL(engine_step(e, KIT_WAIT_MS) >= 0);
    CU_ASSERT_EQUAL(receives.moved, 8 * MIB);
    CU_ASSERT_EQUAL(sends.wrong + receives.wrong, 0);
    for (size_t i = 0; i < ARRAY_LEN(ops); i++) {
        CU_ASSERT_EQUAL(ops[i].done, 0);
        CU_ASSERT_EQUAL(sem_post(&go), 0);
    }
    CU_ASSERT_TRUE_FATAL(kit_drain(e));
    for (size_t i = 0; i < ARRAY_LEN(ops); i++)
        CU_ASSERT_EQUAL(ops[i].result, 5);
    free(receives.op.buf);
    free(pattern);
    pair_close(&p);
    sem_destroy(&go);
}

static void test_slow_call(void)
{
    kit_each(slow_calls);
}

// Read, send, receive, write: a file goes through a socket to another file, all in one engine, one block
// after the other in one slot, as many slots as there are pairs of sockets.
enum { COPY_BLOCK = 256 * KIB, COPY_BLOCKS = 64, COPY_SLOTS = 4 };

struct copy {
    struct engine *e;
    int from, to;
    unsigned next, wrong;
};

struct slot {
    struct op source, sink;
    struct copy *copy;
    struct pair pair;
    unsigned busy; // of source and sink
};

static void slot_next(struct slot *s)
{
    if (s->busy > 0 || s->copy->next >= COPY_BLOCKS)
        return;
    s->busy = 2;
    s->source.kind = OP_READ;
    s->sink.kind = OP_RECV;
    s->source.fd = s->copy->from;
    s->sink.fd = s->pair.fds[1];
    s->source.offset = s->sink.offset = (uint64_t)COPY_BLOCK * s->copy->next++;
    engine_start(s->copy->e, &s->source);
    engine_start(s->copy->e, &s->sink);
}

static void on_source(struct op *op, int64_t result)
{
    struct slot *s = CONTAINER_OF(op, struct slot, source);
    s->copy->wrong += result != (op->kind == OP_READ ? COPY_BLOCK : 0);
    if (op->kind == OP_SEND) {
        s->busy--;
        slot_next(s);
        return;
    }
    op->kind = OP_SEND;
    op->fd = s->pair.fds[0];
    engine_start(s->copy->e, op);
}

static void on_sink(struct op *op, int64_t result)
{
    struct slot *s = CONTAINER_OF(op, struct slot, sink);
    s->copy->wrong += result != 0;
    if (op->kind == OP_WRITE) {
        s->busy--;
        slot_next(s);
        return;
    }
    op->kind = OP_WRITE;
    op->fd = s->copy->to;
    engine_start(s->copy->e, op);
}

static void copies(struct engine *e)
{
    size_t len = (size_t)COPY_BLOCK * COPY_BLOCKS;
    uint8_t *all = aligned_alloc(BLOCK_BYTES, len), *back = aligned_alloc(BLOCK_BYTES, len);
    uint8_t *buffers = aligned_alloc(BLOCK_BYTES, (size_t)COPY_BLOCK * COPY_SLOTS * 2);
    CU_ASSERT_FATAL(all != NULL && back != NULL && buffers != NULL);
    struct copy copy = {
        .e = e, .from = kit_file(kit_disk(), 0), .to = kit_file(kit_disk(), O_RDWR | O_DIRECT)};
    if (copy.to < 0)
        copy.to = kit_file(kit_disk(), 0);
    kit_fill(all, len, 4);
    CU_ASSERT_EQUAL(sys_pwrite_full(copy.from, all, len, 0), 0);
    struct slot slots[COPY_SLOTS];
    for (size_t i = 0; i < COPY_SLOTS; i++) {
        uint8_t *buf = buffers + i * 2 * COPY_BLOCK;
        slots[i] = (struct slot){.copy = &copy,
                                 .source = {.buf = buf, .len = COPY_BLOCK, .done = on_source},
                                 .sink = {.buf = buf + COPY_BLOCK, .len = COPY_BLOCK, .done = on_sink}};
        pair_open(&slots[i].pair, i % 2 == 0 ? TCP_PAIR : UNIX_PAIR);
        slot_next(&slots[i]);
    }
    CU_ASSERT_TRUE_FATAL(kit_drain(e));
    CU_ASSERT_EQUAL(copy.next, COPY_BLOCKS);
    CU_ASSERT_EQUAL(copy.wrong, 0);
    CU_ASSERT_EQUAL(sys_pread_full(copy.to, back, len, 0), (ssize_t)len);
    CU_ASSERT_EQUAL(memcmp(all, back, len), 0);
    for (size_t i = 0; i < COPY_SLOTS; i++)
        pair_close(&slots[i].pair);
    close(copy.from);
    close(copy.to);
    free(all);
    free(back);
    free(buffers);
}

static void test_copy(void)
{
    kit_each(copies);
}

void suite_engine_socket(void)
{
    CU_pSuite suite = CU_add_suite("engine_socket", NULL, NULL);
    CU_add_test(suite, "stream", test_stream);
    CU_add_test(suite, "stream_small_buffers", test_stream_small_buffers);
    CU_add_test(suite, "end_of_stream", test_end_of_stream);
    CU_add_test(suite, "reset", test_reset);
    CU_add_test(suite, "peer_gone", test_peer_gone);
    CU_add_test(suite, "shut_down", test_shut_down);
    CU_add_test(suite, "no_socket", test_no_socket);
    CU_add_test(suite, "slow_call", test_slow_call);
    CU_add_test(suite, "copy", test_copy);
}
