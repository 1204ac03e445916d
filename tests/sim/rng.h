// Random numbers from a seed: every choice of a simulation comes from one of these.
#ifndef PENSTOCK_TESTS_SIM_RNG_H
#define PENSTOCK_TESTS_SIM_RNG_H

#include "proto/base.h"

struct rng {
    uint64_t state;
};

// A step of splitmix64 (Steele, Lea, Flood 2014): also a good mixer of 64 bits.
static inline uint64_t rng_mix(uint64_t z)
{
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static inline uint64_t rng_next(struct rng *r)
{
    return rng_mix(r->state += UINT64_C(0x9e3779b97f4a7c15));
}

// Below n; 0 for n = 0.
static inline uint64_t rng_below(struct rng *r, uint64_t n)
{
    return n == 0 ? 0 : rng_next(r) % n;
}

// From low to high, both included.
static inline uint64_t rng_range(struct rng *r, uint64_t low, uint64_t high)
{
    return low + rng_below(r, high - low + 1);
}

// True once in n; never for n = 0.
static inline bool rng_once_in(struct rng *r, uint64_t n)
{
    return n > 0 && rng_below(r, n) == 0;
}

#endif
