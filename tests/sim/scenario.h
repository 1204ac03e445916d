// Scenarios: each runs once a seed, in a world of its own, as its first task.
#ifndef PENSTOCK_TESTS_SIM_SCENARIO_H
#define PENSTOCK_TESTS_SIM_SCENARIO_H

void scenario_copy(void *arg);
void scenario_lossy(void *arg);
void scenario_crash(void *arg);
void scenario_kill(void *arg);

#endif
