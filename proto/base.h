// Words that every file of Penstock shares: fixed-width types, the marks for results that
// must not be ignored, checked arithmetic. Nothing here has state.
#ifndef PENSTOCK_PROTO_BASE_H
#define PENSTOCK_PROTO_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// A result that says whether the call worked: ignoring it is a compile error under -Werror.
#define MUST_CHECK __attribute__((warn_unused_result))

// A function of printf's kind; FMT and FIRST are argument positions counted from 1.
#define PRINTF_LIKE(fmt, first) __attribute__((format(printf, fmt, first)))

// For a large buffer on a hot path that is written before it is read: the compiler zeroes all others, which
// costs more than what goes into this one.
#define NOT_ZEROED __attribute__((uninitialized))

#define ARRAY_LEN(array) (sizeof(array) / sizeof((array)[0]))

// The structure that holds MEMBER at PTR: for an operation embedded in its owner.
#define CONTAINER_OF(ptr, type, member) ((type *)(void *)((char *)(ptr)-offsetof(type, member)))

static inline uint64_t u64_min(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}
static inline uint64_t u64_max(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

// n / d rounded up; d > 0. Cannot overflow.
static inline uint64_t u64_div_up(uint64_t n, uint64_t d)
{
    return n / d + (n % d != 0);
}

// n rounded up to a multiple of the power of two `unit`; the caller knows that it cannot overflow.
static inline uint64_t u64_align_up(uint64_t n, uint64_t unit)
{
    return (n + unit - 1) & ~(unit - 1);
}

// A range of bytes (or of leaves, where it says so): [offset, offset + len).
struct range {
    uint64_t offset;
    uint64_t len;
};

// Names a job: 120 random bits and a last byte of 0; all zero = no job. At one of its agents the job goes by
// job_id_at, whose last byte is the agent's node number + 1: one listener may serve both ends of a job.
struct job_id {
    uint8_t bytes[16];
};

static inline struct job_id job_id_at(const struct job_id *job, unsigned node)
{
    struct job_id at = *job;
    at.bytes[sizeof at.bytes - 1] = (uint8_t)(node + 1);
    return at;
}

#endif
