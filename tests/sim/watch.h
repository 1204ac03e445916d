// Watches what the destination's agent promises, at the moment when it is promised.
#ifndef PENSTOCK_TESTS_SIM_WATCH_H
#define PENSTOCK_TESTS_SIM_WATCH_H

#include "tests/sim/model.h"

void watch_begin(struct model *m);
uint64_t watch_acknowledged(void); // body bytes that the destination said are durable, in all runs

// Every range that the journal at the destination says is durable holds the right bytes: as it is seen, or as
// a crash would leave it. Fails the simulation.
void check_journal(struct model *m, bool kept);

#endif
