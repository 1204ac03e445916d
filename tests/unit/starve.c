#include "tests/unit/starve.h"

#include <stdlib.h>

void *__real_calloc(size_t count, size_t len);
void *__wrap_calloc(size_t count, size_t len);

static _Thread_local uint32_t left = UINT32_MAX;

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
