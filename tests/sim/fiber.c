#include "tests/sim/fiber.h"

#include <assert.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <ucontext.h>

#include "tests/sim/wraps.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#elif defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

enum { STACK_BYTES = 1 << 20, GUARD_BYTES = 1 << 16 };

struct fiber {
    ucontext_t context;
    uint8_t *memory; // guard, then stack; NULL: the thread's own
    const void *bottom;
    size_t len;
    void (*run)(void *arg);
    void *arg;
    struct fiber *came_from; // who switched here last
    void *sanitizer;
};

#if defined(__SANITIZE_ADDRESS__)
static void leave(struct fiber *from, const struct fiber *to)
{
    __sanitizer_start_switch_fiber(&from->sanitizer, to->bottom, to->len);
}

static void arrive(struct fiber *here)
{
    struct fiber *from = here->came_from;
    __sanitizer_finish_switch_fiber(here->sanitizer, from != NULL ? &from->bottom : NULL,
                                    from != NULL ? &from->len : NULL);
}

static void prepare(struct fiber *f)
{
    __asan_unpoison_memory_region(f->memory, GUARD_BYTES + STACK_BYTES);
}

static void discard(struct fiber *f)
{
    __asan_unpoison_memory_region(f->memory, GUARD_BYTES + STACK_BYTES);
}
#elif defined(__SANITIZE_THREAD__)
static void leave(struct fiber *from, const struct fiber *to)
{
    from->sanitizer = __tsan_get_current_fiber();
    __tsan_switch_to_fiber(to->sanitizer, 0);
}

static void arrive(struct fiber *here)
{
    (void)here;
}

static void prepare(struct fiber *f)
{
    f->sanitizer = __tsan_create_fiber(0);
}

static void discard(struct fiber *f)
{
    __tsan_destroy_fiber(f->sanitizer);
}
#else
static void leave(struct fiber *from, const struct fiber *to)
{
    (void)from;
    (void)to;
}

static void arrive(struct fiber *here)
{
    (void)here;
}

static void prepare(struct fiber *f)
{
    (void)f;
}

static void discard(struct fiber *f)
{
    (void)f;
}
#endif

// Stacks that were given back, to be used again.
struct idle_stack {
    struct idle_stack *next;
};
static struct idle_stack *idle_stacks;

static uint8_t *stack_take(void)
{
    if (idle_stacks != NULL) {
        struct idle_stack *idle = idle_stacks;
        idle_stacks = idle->next;
        return (uint8_t *)idle - GUARD_BYTES;
    }
    uint8_t *memory = __real_mmap(NULL, GUARD_BYTES + STACK_BYTES, PROT_READ | PROT_WRITE,
                                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    assert(memory != MAP_FAILED);
    int rc = mprotect(memory, GUARD_BYTES, PROT_NONE);
    assert(rc == 0);
    return memory;
}

struct fiber *fiber_of_thread(void)
{
    struct fiber *f = calloc(1, sizeof *f);
    assert(f != NULL);
    return f;
}

// makecontext passes integers only.
static void begin(unsigned high, unsigned low)
{
    struct fiber *f = (struct fiber *)(((uintptr_t)high << 32) | low);
    arrive(f);
    f->run(f->arg);
    abort(); // see the header
}

struct fiber *fiber_new(void (*run)(void *arg), void *arg)
{
    struct fiber *f = calloc(1, sizeof *f);
    assert(f != NULL);
    f->memory = stack_take();
    f->bottom = f->memory + GUARD_BYTES;
    f->len = STACK_BYTES;
    f->run = run;
    f->arg = arg;
    prepare(f);
    int rc = getcontext(&f->context);
    assert(rc == 0);
    f->context.uc_stack.ss_sp = f->memory + GUARD_BYTES;
    f->context.uc_stack.ss_size = STACK_BYTES;
    makecontext(&f->context, (void (*)(void))(uintptr_t)begin, 2, (unsigned)((uintptr_t)f >> 32),
                (unsigned)(uintptr_t)f);
    return f;
}

void fiber_free(struct fiber *f)
{
    if (f == NULL)
        return;
    discard(f);
    struct idle_stack *idle = (struct idle_stack *)(void *)(f->memory + GUARD_BYTES);
    idle->next = idle_stacks;
    idle_stacks = idle;
    free(f);
}

void fiber_switch(struct fiber *from, struct fiber *to)
{
    to->came_from = from;
    leave(from, to);
    int rc = swapcontext(&from->context, &to->context);
    assert(rc == 0);
    arrive(from);
}
