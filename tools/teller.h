// Tells how a job goes: plain lines and progress to people, JSON to programs. Fed with the events and
// snapshots of the job.
#ifndef PENSTOCK_TOOLS_TELLER_H
#define PENSTOCK_TOOLS_TELLER_H

#include <stdio.h>

#include "mover/job.h"
#include "tools/progress.h"
#include "tools/report.h"

struct teller {
    FILE *info;        // what is no problem; NULL: quiet
    bool verbose;      // more of it at the end
    bool events;       // JSON lines on standard output
    int events_failed; // negative errno of the first line that could not be written; none is tried after it
    struct report *report; // NULL: none
    struct progress progress;
    uint64_t next_event_ns; // of the next snapshot line
};

// One line to people, a prefix and a newline added; problems go to standard error, whatever else is said.
void teller_info(struct teller *t, const char *line);
void teller_problem(struct teller *t, const struct err *problem);
// Everything but JOB_ENDED, of which teller_end tells.
void teller_event(struct teller *t, const struct job_event *event);
// Whether somebody waits for a snapshot by now, and the snapshot.
bool teller_due(const struct teller *t, uint64_t now_ns);
void teller_snapshot(struct teller *t, const struct job_snapshot *s, uint64_t now_ns);
// The summary (not of a job that was refused before it `began`), the report, the last JSON line. Returns the
// exit status: the job's, or OUTCOME_INCOMPLETE in place of OUTCOME_COMPLETE when a report that was asked for
// could not be written.
MUST_CHECK int teller_end(struct teller *t, bool began, const struct job_snapshot *s,
                          const struct job_result *result);

#endif
