// The commands that run a job and tell how it goes: their options, which are the same, and all that follows
// them.
#ifndef PENSTOCK_TOOLS_JOB_COMMAND_H
#define PENSTOCK_TOOLS_JOB_COMMAND_H

#include "mover/place.h"

struct job_command {
    const char *name, *operands, *about, *notes; // as of struct option_set
    // What an operand means: as place_parse.
    int (*place)(const char *text, struct place *out, struct err *err);
};

// The exit status.
int job_command_run(const struct job_command *command, int argc, char **argv);

#endif
