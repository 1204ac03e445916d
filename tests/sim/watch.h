// Watches what the destination's agent promises, at the moment when it is promised.
#ifndef PENSTOCK_TESTS_SIM_WATCH_H
#define PENSTOCK_TESTS_SIM_WATCH_H

#include "tests/sim/model.h"

void watch_begin(struct model *m);
uint64_t watch_acknowledged(void); // body bytes that the destination said are durable, in all runs

// Every range that the journal at the destination says is durable holds the right bytes; the journal and the
// files as they are seen, or as a crash would leave them. Fails the simulation.
void check_journal(struct model *m, bool journal_kept, bool files_kept);

// No durable record of the journal is of a temporary file that is now made under this name.
void check_new_temp(struct model *m, const char *name);

// The file system at the destination: a file is made, gets another name, was written.
void watch_create(const struct inode *dir, const char *name);
void watch_rename(const struct inode *i, const struct inode *from, const struct inode *to);
void watch_write(const struct inode *f);

#endif
