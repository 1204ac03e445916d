#include "tests/sim/memory.h"

#include <assert.h>
#include <stdlib.h>

#include "tests/sim/world.h"
#include "tests/sim/wraps.h"

struct mapping {
    const struct process *process;
    void *memory;
    size_t len;
    struct mapping *next;
};

struct memory {
    struct mapping *used;
    // Given back, to be used again as it is: to have the kernel clear it each time costs more than a
    // simulation.
    struct mapping *idle;
};

static struct memory the_memory;

static struct mapping *take(struct mapping **list, const void *memory, size_t len)
{
    struct mapping **at = list;
    while (*at != NULL && ((*at)->len != len || (memory != NULL && (*at)->memory != memory)))
        at = &(*at)->next;
    struct mapping *m = *at;
    if (m != NULL)
        *at = m->next;
    return m;
}

static void put(struct mapping **list, struct mapping *m)
{
    m->next = *list;
    *list = m;
}

void *__wrap_mmap(void *addr, size_t len, int protection, int flags, int fd, off_t offset)
{
    struct mapping *m = take(&the_memory.idle, NULL, len);
    if (m == NULL) {
        m = malloc(sizeof *m);
        assert(m != NULL);
        *m = (struct mapping){.memory = __real_mmap(addr, len, protection, flags, fd, offset), .len = len};
        assert(m->memory != MAP_FAILED);
    }
    m->process = process_current();
    put(&the_memory.used, m);
    return m->memory;
}

int __wrap_munmap(void *memory, size_t len)
{
    struct mapping *m = take(&the_memory.used, memory, len);
    if (m == NULL)
        world_fail("memory is given back that was not mapped so");
    put(&the_memory.idle, m);
    return 0;
}

void memory_release(const struct process *p)
{
    for (struct mapping **at = &the_memory.used; *at != NULL;) {
        struct mapping *m = *at;
        if (m->process != p) {
            at = &m->next;
            continue;
        }
        *at = m->next;
        put(&the_memory.idle, m);
    }
}
