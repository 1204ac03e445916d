// What a person sees of a running job: one line that is drawn over and over on a terminal, or now and then
// written as a plain line elsewhere. The parts that make text of numbers are pure.
#ifndef PENSTOCK_TOOLS_PROGRESS_H
#define PENSTOCK_TOOLS_PROGRESS_H

#include <stdio.h>

#include "mover/job.h"

// The rate of the last seconds, from (time, bytes) samples.
enum { PROGRESS_SAMPLES = 32, PROGRESS_WINDOW_S = 5 };
struct progress_window {
    double seconds[PROGRESS_SAMPLES];
    uint64_t bytes[PROGRESS_SAMPLES];
    unsigned count, first;
};
// Times do not go back. A sample closer than a window's PROGRESS_SAMPLES-th part to the one before it
// replaces that one.
void progress_window_add(struct progress_window *w, double seconds, uint64_t bytes);
double progress_window_rate(const struct progress_window *w); // bytes per second; 0 while it is not known

// Seconds until `left` bytes have moved at `rate` bytes per second; false when nobody can say.
bool progress_eta(uint64_t left, double rate, uint64_t *seconds);

// " 35%  1.20 GiB of 3.40 GiB  1.23 Gbit/s  ETA 0:12  4 streams  120 of 1200 files": at most `columns` long,
// the parts at the end are left out first. A total that still grows has a '+', and no time is foretold.
// Returns buf.
const char *progress_line(const struct job_counters *c, uint32_t streams, double rate, unsigned columns,
                          char *buf, size_t len);

// "complete: 1204 entries moved, 30 skipped; 3.40 GiB in 12.3 s (2.37 Gbit/s)": with every class of entries
// that there are some of, bytes sent twice, and, unless all went well, what the exit status means. Returns
// buf.
const char *progress_summary(const struct job_snapshot *s, int exit_status, char *buf, size_t len);

// The line on a screen.
struct progress {
    FILE *to;       // NULL: draws nothing
    bool terminal;  // drawn over; else written as lines
    unsigned shown; // columns that stand on the terminal now
    uint64_t next_ns;
    struct progress_window window;
};
// `wanted`: also when `to` is no terminal; `unwanted`: never.
void progress_init(struct progress *p, FILE *to, bool wanted, bool unwanted);
bool progress_due(const struct progress *p, uint64_t now_ns);
void progress_draw(struct progress *p, const struct job_snapshot *s, uint64_t now_ns);
// Takes the line off the terminal so that something else can be printed.
void progress_clear(struct progress *p);

#endif
