#include "tools/progress.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "storage/sys.h"
#include "tools/outcome.h"
#include "tools/units.h"

#define REDRAW_NS UINT64_C(250000000)
#define LINE_NS   UINT64_C(1000000000)

enum { COLUMNS_DEFAULT = 80, COLUMNS_MAX = 1000 };

void progress_window_add(struct progress_window *w, double seconds, uint64_t bytes)
{
    const double gap = (double)PROGRESS_WINDOW_S / (PROGRESS_SAMPLES - 2);
    if (w->count >= 2) {
        unsigned last = (w->first + w->count - 1) % PROGRESS_SAMPLES;
        unsigned before = (w->first + w->count - 2) % PROGRESS_SAMPLES;
        if (w->seconds[last] - w->seconds[before] < gap)
            w->count--;
    }
    if (w->count == PROGRESS_SAMPLES) {
        w->first = (w->first + 1) % PROGRESS_SAMPLES;
        w->count--;
    }
    unsigned at = (w->first + w->count++) % PROGRESS_SAMPLES;
    w->seconds[at] = seconds;
    w->bytes[at] = bytes;
    // What is older than the window goes, but for one sample at or before its start.
    while (w->count > 2 && w->seconds[(w->first + 1) % PROGRESS_SAMPLES] <= seconds - PROGRESS_WINDOW_S) {
        w->first = (w->first + 1) % PROGRESS_SAMPLES;
        w->count--;
    }
}

double progress_window_rate(const struct progress_window *w)
{
    if (w->count < 2)
        return 0;
    unsigned last = (w->first + w->count - 1) % PROGRESS_SAMPLES;
    double seconds = w->seconds[last] - w->seconds[w->first];
    uint64_t bytes = w->bytes[last] - w->bytes[w->first];
    return seconds > 0 && w->bytes[last] >= w->bytes[w->first] ? (double)bytes / seconds : 0;
}

bool progress_eta(uint64_t left, double rate, uint64_t *seconds)
{
    double s = rate > 0 ? (double)left / rate : -1;
    if (s < 0 || s > 1e9)
        return false;
    *seconds = (uint64_t)s + ((double)(uint64_t)s < s);
    return true;
}

static uint64_t percent(const struct job_counters *c)
{
    if (c->walked && c->bytes_moved >= c->bytes_needed)
        return 100;
    if (c->bytes_needed == 0)
        return 0;
    // 100 only when all is there. In double, since 100 times a large number of bytes overflows.
    return u64_min(99, (uint64_t)((double)c->bytes_moved / (double)c->bytes_needed * 100));
}

// Appends a part when the line with it is not longer than `columns`; whatever follows a part that did not fit
// is left out.
static bool add_part(char *buf, size_t len, unsigned columns, const char *part)
{
    size_t at = strlen(buf), more = strlen(part) + (at > 0 ? 2 : 0);
    if (at + more > columns || at + more >= len)
        return false;
    snprintf(buf + at, len - at, "%s%s", at > 0 ? "  " : "", part);
    return true;
}

const char *progress_line(const struct job_counters *c, uint32_t streams, double rate, unsigned columns,
                          char *buf, size_t len)
{
    char a[UNITS_TEXT_BYTES], b[UNITS_TEXT_BYTES], parts[6][80];
    uint64_t eta, left = c->bytes_needed > c->bytes_moved ? c->bytes_needed - c->bytes_moved : 0;
    const char *more = c->walked ? "" : "+";
    size_t count = 0;
    snprintf(parts[count++], sizeof(parts[0]), "%3u%%", (unsigned)percent(c));
    snprintf(parts[count++], sizeof(parts[0]), "%s of %s%s", units_bytes(c->bytes_moved, a),
             units_bytes(c->bytes_needed, b), more);
    snprintf(parts[count++], sizeof(parts[0]), "%s", units_rate(rate, a));
    if (c->walked && left > 0 && progress_eta(left, rate, &eta))
        snprintf(parts[count++], sizeof(parts[0]), "ETA %s", units_clock(eta, a));
    snprintf(parts[count++], sizeof(parts[0]), "%u %s", streams, streams == 1 ? "stream" : "streams");
    snprintf(parts[count++], sizeof(parts[0]), "%llu of %llu%s files", (unsigned long long)c->files_moved,
             (unsigned long long)c->files_total, more);
    buf[0] = '\0';
    for (size_t i = 0; i < count && add_part(buf, len, columns, parts[i]); i++)
        continue;
    return buf;
}

// Appends to a text that is cut off at its end when it is too long.
PRINTF_LIKE(3, 4) static void append(char *buf, size_t len, const char *fmt, ...)
{
    size_t at = strlen(buf);
    va_list args;
    va_start(args, fmt);
    vsnprintf(buf + at, len - at, fmt, args);
    va_end(args);
}

const char *progress_summary(const struct job_snapshot *s, int exit_status, char *buf, size_t len)
{
    const struct job_counters *c = &s->counters;
    const struct {
        uint64_t count;
        const char *name;
    } classes[] = {
        {c->entries_skipped, "skipped"},  {c->entries_changed, "changed"}, {c->entries_vanished, "vanished"},
        {c->entries_failed, "not moved"}, {c->entries_pending, "pending"},
    };
    char a[UNITS_TEXT_BYTES];
    snprintf(buf, len, "%s: %llu %s moved", outcome_word(exit_status), (unsigned long long)c->entries_moved,
             c->entries_moved == 1 ? "entry" : "entries");
    for (size_t i = 0; i < ARRAY_LEN(classes); i++) {
        if (classes[i].count > 0)
            append(buf, len, ", %llu %s", (unsigned long long)classes[i].count, classes[i].name);
    }
    append(buf, len, "; %s", units_bytes(c->bytes_moved, a));
    append(buf, len, " in %s", units_seconds(s->seconds, a));
    append(buf, len, " (%s)", units_rate(s->seconds > 0 ? (double)c->bytes_moved / s->seconds : 0, a));
    if (c->bytes_resent > 0)
        append(buf, len, ", %s sent again", units_bytes(c->bytes_resent, a));
    if (exit_status != OUTCOME_COMPLETE)
        append(buf, len, "; exit %d: %s", exit_status, outcome_sentence(exit_status));
    return buf;
}

void progress_init(struct progress *p, FILE *to, bool wanted, bool unwanted)
{
    bool terminal = isatty(fileno(to)) == 1;
    *p = (struct progress){.to = !unwanted && (terminal || wanted) ? to : NULL, .terminal = terminal};
    progress_window_add(&p->window, 0, 0);
}

// Columns of the terminal: as it says itself, else as COLUMNS says. One is left free, so that no terminal
// breaks the line.
static unsigned columns_now(FILE *to)
{
    struct winsize size;
    const char *said = getenv("COLUMNS");
    unsigned long columns = 0;
    if (ioctl(fileno(to), TIOCGWINSZ, &size) == 0)
        columns = size.ws_col;
    if (columns == 0 && said != NULL)
        columns = strtoul(said, NULL, 10);
    if (columns < 2 || columns > COLUMNS_MAX)
        columns = COLUMNS_DEFAULT;
    return (unsigned)columns - 1;
}

bool progress_due(const struct progress *p, uint64_t now_ns)
{
    return p->to != NULL && now_ns >= p->next_ns;
}

void progress_draw(struct progress *p, const struct job_snapshot *s, uint64_t now_ns)
{
    char line[COLUMNS_MAX + 1];
    if (p->to == NULL)
        return;
    progress_window_add(&p->window, s->seconds, s->counters.bytes_moved);
    unsigned columns = p->terminal ? columns_now(p->to) : COLUMNS_MAX;
    progress_line(&s->counters, s->stream_count, progress_window_rate(&p->window), columns, line,
                  sizeof(line));
    unsigned len = (unsigned)strlen(line);
    if (!p->terminal)
        fprintf(p->to, "%s\n", line);
    else
        fprintf(p->to, "\r%s%*s", line, p->shown > len ? (int)(p->shown - len) : 0, "");
    fflush(p->to);
    p->shown = p->terminal ? len : 0;
    p->next_ns = now_ns + (p->terminal ? REDRAW_NS : LINE_NS);
}

void progress_clear(struct progress *p)
{
    if (p->to == NULL || p->shown == 0)
        return;
    fprintf(p->to, "\r%*s\r", (int)p->shown, "");
    fflush(p->to);
    p->shown = 0;
}
