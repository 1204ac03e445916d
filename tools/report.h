// What a program sees of a job (DESIGN §11): one JSON document at its end (--json), and one JSON object per
// line while it runs (--json-events). The only user of jansson.
//
// In text that came from names a byte that is no part of printable UTF-8 is written \xHH and a backslash
// doubled: before JSON's own quoting.
#ifndef PENSTOCK_TOOLS_REPORT_H
#define PENSTOCK_TOOLS_REPORT_H

#include <stdio.h>

#include "mover/job.h"

// Problems kept for the document; of those beyond only the number is told ("problems_left_out").
enum { REPORT_PROBLEMS_MAX = 10000 };

struct report;

// Opens where the document will go, so that it cannot fail for that reason after the job: `path` "-" is
// stdout; what is there and no regular file (a device, a pipe) is written to as it is; else a temporary file
// beside it takes its name at the end. -errno with *err (ERR_START).
MUST_CHECK int report_open(const char *path, struct report **out, struct err *err);
// Remembers a problem.
void report_problem(struct report *r, const struct err *problem);
// Writes the document and gives it its name. -errno with *err.
MUST_CHECK int report_finish(struct report *r, const struct job_snapshot *s, const struct job_result *result,
                             struct err *err);
void report_free(struct report *r); // removes what was not finished; NULL is fine

// One line each, flushed. -errno when it cannot be written (-ENOMEM, -EPIPE ...).
MUST_CHECK int report_event_line(FILE *to, const struct job_event *event);
MUST_CHECK int report_snapshot_line(FILE *to, const struct job_snapshot *s);
MUST_CHECK int report_end_line(FILE *to, const struct job_snapshot *s, const struct job_result *result);

#endif
