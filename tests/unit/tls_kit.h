// Keys and pairs for the tests of TLS and of what runs over it.
#ifndef PENSTOCK_TESTS_UNIT_TLS_KIT_H
#define PENSTOCK_TESTS_UNIT_TLS_KIT_H

#include <stdio.h>
#include <string.h>

#include <CUnit/CUnit.h>

#include "mover/tls.h"
#include "tests/unit/hex.h"

// A key whose secret counts up from `first`.
static inline struct key kit_key(const char *name, uint8_t first)
{
    struct key key = {0};
    snprintf(key.name, sizeof(key.name), "%s", name);
    count_up(key.secret.bytes, sizeof(key.secret.bytes), first);
    return key;
}

// Carries what `from` has to say to `to`, at most `step` bytes at a time. Bytes carried.
static inline size_t kit_carry(struct tls *from, struct tls *to, size_t step)
{
    uint8_t bytes[4096];
    size_t sum = 0;
    int64_t n;
    while ((n = tls_get_wire(from, bytes, step < sizeof(bytes) ? step : sizeof(bytes))) > 0) {
        CU_ASSERT_EQUAL(tls_put_wire(to, bytes, (size_t)n), 0);
        sum += (size_t)n;
    }
    CU_ASSERT_EQUAL(n, 0);
    return sum;
}

#endif
