// Stacks that hand the one thread to each other, with the words that the sanitizers need to follow it.
#ifndef PENSTOCK_TESTS_SIM_FIBER_H
#define PENSTOCK_TESTS_SIM_FIBER_H

#include "proto/base.h"

struct fiber;
struct fiber *fiber_of_thread(void); // the stack that the program began on
// When `run` returns the fiber goes back to who switched to it last.
struct fiber *fiber_new(void (*run)(void *arg), void *arg);
// Not the running one; what lies on its stack is gone, whatever it was doing.
void fiber_free(struct fiber *f);
void fiber_switch(struct fiber *from, struct fiber *to);

#endif
