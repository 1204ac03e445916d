// Scenarios: each runs in a world of its own, as its first task.
#ifndef PENSTOCK_TESTS_SIM_SCENARIO_H
#define PENSTOCK_TESTS_SIM_SCENARIO_H

#include "proto/base.h"

// What a seed stands for: one world, or several one after the other.
struct turn {
    uint64_t seed, seeds; // this one; how many there are
    uint64_t number;      // of the world, from 0
    uint64_t world_seed;
    bool again; // set by the scenario: another world, please
};

void scenario_copy(void *turn);
void scenario_lossy(void *turn);
void scenario_crash(void *turn);
void scenario_kill(void *turn);
void scenario_full(void *turn);
void scenario_rivals(void *turn);
void scenario_stuck(void *turn);
void scenario_source(void *turn);
void scenario_sweep(void *turn);
void sweep_prepare(struct turn *t);

#endif
