#include "tests/unit/starve.h"

#include <stdlib.h>

int __real_sys_syncfs(int fd);
int __wrap_sys_syncfs(int fd);
void *__real_calloc(size_t count, size_t len);
void *__wrap_calloc(size_t count, size_t len);

static _Thread_local uint32_t left = UINT32_MAX;
static _Thread_local int lost_write;

void starve_calloc(uint32_t after)
{
    left = after;
}

void *__wrap_calloc(size_t count, size_t len)
{
    bool starved = left == 0;
    left -= left != UINT32_MAX;
    return starved ? NULL : __real_calloc(count, len);
}

void starve_syncfs(int rc)
{
    lost_write = rc;
}

int __wrap_sys_syncfs(int fd)
{
    int rc = lost_write;
    lost_write = 0;
    return rc < 0 ? rc : __real_sys_syncfs(fd);
}
