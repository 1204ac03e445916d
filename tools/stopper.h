// Makes SIGINT, SIGTERM and SIGHUP (unless it was ignored, nohup) cancel a job: a thread takes them, so that
// no code runs in a signal handler. The first asks for an orderly stop, the second for one at once.
#ifndef PENSTOCK_TOOLS_STOPPER_H
#define PENSTOCK_TOOLS_STOPPER_H

#include "mover/job.h"

struct stopper;
// Blocks the signals, for every thread that is started from here on too; they wait for stopper_watch. -errno.
MUST_CHECK int stopper_new(struct stopper **out);
// From now on signals cancel `job`, those that waited too. The job is to outlive the stopper.
void stopper_watch(struct stopper *s, struct job *job);
unsigned stopper_count(const struct stopper *s); // signals so far
void stopper_free(struct stopper *s);            // the signals stay blocked; NULL is fine

#endif
