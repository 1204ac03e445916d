#include "tools/teller.h"

#include <errno.h>

#include "tools/outcome.h"
#include "tools/units.h"

#define SNAPSHOT_LINE_NS UINT64_C(1000000000)

enum { LINE_BYTES = 4096 };

void teller_info(struct teller *t, const char *line)
{
    if (t->info == NULL)
        return;
    progress_clear(&t->progress);
    fprintf(t->info, "%s\n", line);
    fflush(t->info);
}

static void print_problem(struct teller *t, const struct err *problem)
{
    char line[LINE_BYTES];
    progress_clear(&t->progress);
    fprintf(stderr, "penstock: %s\n", err_line(problem, line, sizeof(line)));
}

void teller_problem(struct teller *t, const struct err *problem)
{
    print_problem(t, problem);
    if (t->report != NULL)
        report_problem(t->report, problem);
}

// Remembers the first failure of a JSON line, and says so once.
static void events_result(struct teller *t, int rc)
{
    struct err err;
    if (rc == 0)
        return;
    t->events_failed = rc;
    err_set(&err, ERR_START, -rc, "write events to", NULL, 0, "standard output");
    print_problem(t, &err);
}

static bool events_wanted(const struct teller *t)
{
    return t->events && t->events_failed == 0;
}

void teller_event(struct teller *t, const struct job_event *event)
{
    if (events_wanted(t))
        events_result(t, report_event_line(stdout, event));
    if (event->kind == JOB_PROBLEM)
        teller_problem(t, &event->err);
    else if (event->kind != JOB_ENDED)
        teller_info(t, event->text);
}

bool teller_due(const struct teller *t, uint64_t now_ns)
{
    return progress_due(&t->progress, now_ns) || (events_wanted(t) && now_ns >= t->next_event_ns);
}

void teller_snapshot(struct teller *t, const struct job_snapshot *s, uint64_t now_ns)
{
    if (progress_due(&t->progress, now_ns))
        progress_draw(&t->progress, s, now_ns);
    if (!events_wanted(t) || now_ns < t->next_event_ns)
        return;
    events_result(t, report_snapshot_line(stdout, s));
    t->next_event_ns = now_ns + SNAPSHOT_LINE_NS;
}

static void tell_stream(struct teller *t, const struct job_stream *s)
{
    char line[LINE_BYTES], bytes[UNITS_TEXT_BYTES], seconds[UNITS_TEXT_BYTES], rate[UNITS_TEXT_BYTES];
    snprintf(line, sizeof(line), "stream %u.%u %s -> %s: %s in %s (%s), %llu retransmits, round trip %.2f ms",
             s->session, s->stream, s->source, s->destination, units_bytes(s->bytes, bytes),
             units_seconds(s->seconds, seconds),
             units_rate(s->seconds > 0 ? (double)s->bytes / s->seconds : 0, rate),
             (unsigned long long)s->retransmits, (double)s->rtt_us / 1000);
    teller_info(t, line);
}

static void tell_details(struct teller *t, const struct job_snapshot *s, const struct job_result *result)
{
    char line[LINE_BYTES], a[UNITS_TEXT_BYTES], b[UNITS_TEXT_BYTES];
    for (size_t i = 0; i < u64_min(s->stream_count, ARRAY_LEN(s->streams)); i++)
        tell_stream(t, &s->streams[i]);
    if (s->engine_source[0] != '\0') { // it came to work
        snprintf(line, sizeof(line), "source: engine %s, %s of memory", s->engine_source,
                 units_bytes(result->source_resident_bytes, a));
        teller_info(t, line);
        snprintf(line, sizeof(line), "destination: engine %s, %s of memory", s->engine_destination,
                 units_bytes(result->destination_resident_bytes, b));
        teller_info(t, line);
    }
    if (result->receipt[0] != '\0') {
        snprintf(line, sizeof(line), "receipt: %s", result->receipt);
        teller_info(t, line);
    }
}

static void tell_end(struct teller *t, const struct job_snapshot *s, const struct job_result *result)
{
    char line[LINE_BYTES];
    if (!t->progress.terminal)
        progress_draw(&t->progress, s, 0);
    if (t->verbose)
        tell_details(t, s, result);
    teller_info(t, progress_summary(s, result->exit_status, line, sizeof(line)));
}

int teller_end(struct teller *t, bool began, const struct job_snapshot *s, const struct job_result *result)
{
    struct err err;
    int status = result->exit_status;
    if (began)
        tell_end(t, s, result);
    if (events_wanted(t))
        events_result(t, report_end_line(stdout, s, result));
    if (t->report != NULL && report_finish(t->report, s, result, &err) < 0) {
        print_problem(t, &err);
        status = err_exit_worse(status, OUTCOME_INCOMPLETE);
    }
    return t->events_failed < 0 ? err_exit_worse(status, OUTCOME_INCOMPLETE) : status;
}
