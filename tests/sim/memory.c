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

static struct mapping *mappings;

void *__wrap_mmap(void *addr, size_t len, int protection, int flags, int fd, off_t offset)
{
    void *memory = __real_mmap(addr, len, protection, flags, fd, offset);
    struct mapping *m = malloc(sizeof *m);
    assert(m != NULL && memory != MAP_FAILED);
    *m = (struct mapping){.process = process_current(), .memory = memory, .len = len, .next = mappings};
    mappings = m;
    return memory;
}

int __wrap_munmap(void *memory, size_t len)
{
    struct mapping **at = &mappings;
    while (*at != NULL && (*at)->memory != memory)
        at = &(*at)->next;
    struct mapping *m = *at;
    if (m == NULL || m->len != len)
        world_fail("memory is given back that was not mapped so");
    *at = m->next;
    free(m);
    return __real_munmap(memory, len);
}

void memory_release(const struct process *p)
{
    for (struct mapping **at = &mappings; *at != NULL;) {
        struct mapping *m = *at;
        if (m->process != p) {
            at = &m->next;
            continue;
        }
        *at = m->next;
        int rc = __real_munmap(m->memory, m->len);
        assert(rc == 0);
        free(m);
    }
}
