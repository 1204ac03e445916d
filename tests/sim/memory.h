// Mapped memory by process, so that it can be taken back from one that was killed.
#ifndef PENSTOCK_TESTS_SIM_MEMORY_H
#define PENSTOCK_TESTS_SIM_MEMORY_H

struct process;
void memory_release(const struct process *p);

#endif
