#include "tests/sim/fiber.h"

#include <assert.h>
#include <dlfcn.h>
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
    bool done;          // `run` has returned: it can be given another
    struct fiber *next; // idle
};

#if defined(__SANITIZE_ADDRESS__)
// libasan's swapcontext, which knows nothing of what it is told here, clears the shadow of the whole stack.
static int switch_context(ucontext_t *from, const ucontext_t *to)
{
    static int (*real)(ucontext_t * from, const ucontext_t *to);
    if (real == NULL) {
        void *libc = dlopen("libc.so.6", RTLD_NOW | RTLD_NOLOAD);
        assert(libc != NULL);
        *(void **)&real = dlsym(libc, "swapcontext");
        assert(real != NULL);
    }
    return real(from, to);
}

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
static int switch_context(ucontext_t *from, const ucontext_t *to)
{
    return swapcontext(from, to);
}

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
static int switch_context(ucontext_t *from, const ucontext_t *to)
{
    return swapcontext(from, to);
}

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

static struct fiber *idle_fibers; // those that are done, to be used again
static struct fiber *left_fibers; // those that were freed in the middle: their stacks can be

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
    for (;;) {
        f->run(f->arg);
        f->done = true;
        fiber_switch(f, f->came_from);
    }
}

static struct fiber *take(struct fiber **list)
{
    struct fiber *f = *list;
    if (f != NULL)
        *list = f->next;
    return f;
}

static struct fiber *with_memory(void)
{
    struct fiber *f = take(&left_fibers);
    if (f != NULL)
        return f;
    f = calloc(1, sizeof *f);
    assert(f != NULL);
    f->memory = __real_mmap(NULL, GUARD_BYTES + STACK_BYTES, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    assert(f->memory != MAP_FAILED);
    int rc = mprotect(f->memory, GUARD_BYTES, PROT_NONE);
    assert(rc == 0);
    f->bottom = f->memory + GUARD_BYTES;
    f->len = STACK_BYTES;
    return f;
}

static void set_up(struct fiber *f)
{
    prepare(f);
    f->came_from = NULL;
    int rc = getcontext(&f->context);
    assert(rc == 0);
    f->context.uc_stack.ss_sp = f->memory + GUARD_BYTES;
    f->context.uc_stack.ss_size = STACK_BYTES;
    makecontext(&f->context, (void (*)(void))(uintptr_t)begin, 2, (unsigned)((uintptr_t)f >> 32),
                (unsigned)(uintptr_t)f);
}

struct fiber *fiber_new(void (*run)(void *arg), void *arg)
{
    struct fiber *f = take(&idle_fibers);
    if (f == NULL) {
        f = with_memory();
        set_up(f);
    }
    f->run = run;
    f->arg = arg;
    f->done = false;
    return f;
}

void fiber_free(struct fiber *f)
{
    if (f == NULL)
        return;
    struct fiber **list = f->done ? &idle_fibers : &left_fibers;
    if (!f->done)
        discard(f);
    f->next = *list;
    *list = f;
}

void fiber_switch(struct fiber *from, struct fiber *to)
{
    to->came_from = from;
    leave(from, to);
    int rc = switch_context(&from->context, &to->context);
    assert(rc == 0);
    arrive(from);
}
