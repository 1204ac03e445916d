#include "tools/report.h"

#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "storage/sys.h"
#include "tools/outcome.h"
#include "proto/version.h"

#define SECONDS_DIGITS JSON_REAL_PRECISION(9)

static const char schema[] = "penstock-job-1";

struct report {
    FILE *to;
    char temp[PATH_MAX + 32]; // becomes `path` at the end; "": written in place
    char path[PATH_MAX];
    json_t *problems;
    uint64_t left_out;
    bool out_of_memory;
};

// Text as a JSON string; what is no UTF-8 after all is escaped. NULL: out of memory.
static json_t *text(const char *words)
{
    json_t *value = json_string(words);
    if (value != NULL)
        return value;
    char clean[4 * TEXT_BYTES_MAX];
    err_escape(clean, sizeof(clean), words, strlen(words));
    return json_string(clean);
}

// JSON's integers are signed here: no counter reaches that far.
static json_int_t number(uint64_t n)
{
    return n <= INT64_MAX ? (json_int_t)n : INT64_MAX;
}

static json_t *entries_json(const struct job_counters *c)
{
    return json_pack("{sI sI sI sI sI sI sI}", "total", number(c->entries_total), "moved",
                     number(c->entries_moved), "skipped", number(c->entries_skipped), "changed",
                     number(c->entries_changed), "vanished", number(c->entries_vanished), "failed",
                     number(c->entries_failed), "pending", number(c->entries_pending));
}

static json_t *bytes_json(const struct job_counters *c)
{
    return json_pack("{sI sI sI sI sI}", "total", number(c->bytes_total), "needed", number(c->bytes_needed),
                     "moved", number(c->bytes_moved), "sent", number(c->bytes_sent), "resent",
                     number(c->bytes_resent));
}

static json_t *stream_json(const struct job_stream *s)
{
    return json_pack("{sI sI so so sI sI sf sI sI}", "session", number(s->session), "stream",
                     number(s->stream), "source", text(s->source), "destination", text(s->destination),
                     "bytes", number(s->bytes), "resent", number(s->resent_bytes), "seconds", s->seconds,
                     "retransmits", number(s->retransmits), "rtt_us", number(s->rtt_us));
}

static json_t *streams_json(const struct job_snapshot *s)
{
    json_t *list = json_array();
    size_t count = u64_min(s->stream_count, ARRAY_LEN(s->streams));
    for (size_t i = 0; i < count; i++) {
        if (json_array_append_new(list, stream_json(&s->streams[i])) < 0) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

// `text` says all but where and on what, which stand beside it.
static json_t *problem_json(const struct err *problem)
{
    char line[TEXT_BYTES_MAX + 256];
    struct err words = *problem;
    words.node[0] = words.path[0] = '\0';
    err_line(&words, line, sizeof(line));
    return json_pack("{so ss si so so so}", "path", text(problem->path), "class",
                     err_class_name(problem->class), "errno", problem->os, "operation", text(problem->op),
                     "node", text(problem->node), "text", text(line));
}

// A file to be renamed at the end. A link is followed, so that it stays one.
static int open_beside(struct report *r, const char *path)
{
    char there[PATH_MAX];
    uint64_t salt;
    if (realpath(path, there) == NULL) {
        size_t len = strlen(path);
        if (len >= sizeof(there))
            return -ENAMETOOLONG;
        memcpy(there, path, len + 1);
    }
    int rc = sys_random(&salt, sizeof(salt));
    if (rc < 0)
        return rc;
    snprintf(r->temp, sizeof(r->temp), "%s.%016llx", there, (unsigned long long)salt);
    int fd = sys_openat(AT_FDCWD, r->temp, O_WRONLY | O_CREAT | O_EXCL, 0666);
    if (fd < 0) {
        r->temp[0] = '\0';
        return fd;
    }
    memcpy(r->path, there, strlen(there) + 1);
    r->to = fdopen(fd, "w");
    if (r->to == NULL) {
        sys_close(fd);
        return -ENOMEM;
    }
    return 0;
}

static int open_target(struct report *r, const char *path)
{
    struct stat st;
    if (strcmp(path, "-") == 0) {
        r->to = stdout;
        return 0;
    }
    int rc = sys_fstatat(AT_FDCWD, path, &st, 0);
    if (rc == -ENOENT || (rc == 0 && S_ISREG(st.st_mode)))
        return open_beside(r, path);
    if (rc < 0)
        return rc;
    r->to = fopen(path, "we");
    return r->to == NULL ? -errno : 0;
}

int report_open(const char *path, struct report **out, struct err *err)
{
    struct report *r = calloc(1, sizeof(*r));
    int rc = -ENOMEM;
    if (r != NULL && (r->problems = json_array()) != NULL) {
        snprintf(r->path, sizeof(r->path), "%s", path);
        rc = open_target(r, path);
    }
    if (rc < 0) {
        report_free(r);
        err_set(err, ERR_START, -rc, "write the report", path, strlen(path), NULL);
        return rc;
    }
    *out = r;
    return 0;
}

void report_problem(struct report *r, const struct err *problem)
{
    if (json_array_size(r->problems) >= REPORT_PROBLEMS_MAX)
        r->left_out++;
    else if (json_array_append_new(r->problems, problem_json(problem)) < 0)
        r->out_of_memory = true;
}

// What the document and the last event line say of the end.
static json_t *result_json(const struct job_result *result)
{
    return json_pack("{ss so ss sb si ss}", "schema", schema, "job", text(result->job), "version",
                     PENSTOCK_VERSION, "retryable", result->retryable, "exit", result->exit_status, "status",
                     outcome_word(result->exit_status));
}

static json_t *document(const struct report *r, const struct job_snapshot *s, const struct job_result *result)
{
    json_t *all = result_json(result);
    json_t *rest = json_pack("{sf so so s{so so} so sO sI so s{sI sI}}", "seconds", s->seconds, "entries",
                             entries_json(&s->counters), "bytes", bytes_json(&s->counters), "engine",
                             "source", text(s->engine_source), "destination", text(s->engine_destination),
                             "streams", streams_json(s), "problems", r->problems, "problems_left_out",
                             number(r->left_out), "receipt", text(result->receipt), "resident_bytes",
                             "source", number(result->source_resident_bytes), "destination",
                             number(result->destination_resident_bytes));
    if (all == NULL || rest == NULL || json_object_update(all, rest) < 0) {
        json_decref(all);
        all = NULL;
    }
    json_decref(rest);
    return all;
}

static int flush(FILE *to)
{
    errno = 0;
    if (fflush(to) == 0 && !ferror(to))
        return 0;
    return errno != 0 ? -errno : -EIO;
}

// Gives the finished file its name. Its content is on the disk before.
static int publish(struct report *r)
{
    int rc = sys_fsync(fileno(r->to));
    if (rc == 0)
        rc = sys_renameat(AT_FDCWD, r->temp, AT_FDCWD, r->path);
    if (rc == 0)
        r->temp[0] = '\0';
    return rc;
}

static int write_document(struct report *r, const struct job_snapshot *s, const struct job_result *result)
{
    json_t *all = r->out_of_memory ? NULL : document(r, s, result);
    if (all == NULL)
        return -ENOMEM;
    int failed = json_dumpf(all, r->to, JSON_INDENT(2) | SECONDS_DIGITS);
    json_decref(all);
    if (failed < 0 || fputc('\n', r->to) == EOF)
        return errno != 0 ? -errno : -EIO;
    int rc = flush(r->to);
    return rc == 0 && r->temp[0] != '\0' ? publish(r) : rc;
}

int report_finish(struct report *r, const struct job_snapshot *s, const struct job_result *result,
                  struct err *err)
{
    errno = 0;
    int rc = write_document(r, s, result);
    if (rc < 0)
        err_set(err, ERR_START, -rc, "write the report", r->path, strlen(r->path), NULL);
    return rc;
}

void report_free(struct report *r)
{
    if (r == NULL)
        return;
    if (r->temp[0] != '\0') {
        int rc = sys_unlinkat(AT_FDCWD, r->temp, 0);
        (void)rc; // nothing better can be done with what cannot be removed
    }
    if (r->to != NULL && r->to != stdout)
        fclose(r->to);
    json_decref(r->problems);
    free(r);
}

// Writes and frees an object, its event before it.
static int put_line(FILE *to, const char *event, json_t *rest)
{
    json_t *line = json_pack("{ss}", "event", event);
    int failed = json_object_update(line, rest);
    json_decref(rest);
    if (failed < 0) {
        json_decref(line);
        return -ENOMEM;
    }
    errno = 0;
    failed = json_dumpf(line, to, JSON_COMPACT | SECONDS_DIGITS);
    json_decref(line);
    if (failed < 0 || fputc('\n', to) == EOF)
        return errno != 0 ? -errno : -EIO;
    return flush(to);
}

int report_event_line(FILE *to, const struct job_event *event)
{
    switch (event->kind) {
    case JOB_RESOLVED:
        return put_line(to, "resolved", json_pack("{so}", "text", text(event->text)));
    case JOB_NOTICE:
        return put_line(to, "notice", json_pack("{so}", "text", text(event->text)));
    case JOB_PROBLEM:
        return put_line(to, "problem", problem_json(&event->err));
    case JOB_ENDED:
        break; // report_end_line says more
    }
    return 0;
}

static json_t *snapshot_json(const struct job_snapshot *s)
{
    return json_pack("{sf so so sI sb}", "seconds", s->seconds, "entries", entries_json(&s->counters),
                     "bytes", bytes_json(&s->counters), "stream_count", number(s->stream_count), "walked",
                     s->counters.walked);
}

int report_snapshot_line(FILE *to, const struct job_snapshot *s)
{
    return put_line(to, "snapshot", snapshot_json(s));
}

int report_end_line(FILE *to, const struct job_snapshot *s, const struct job_result *result)
{
    json_t *line = result_json(result), *rest = snapshot_json(s);
    if (line == NULL || rest == NULL || json_object_update(line, rest) < 0) {
        json_decref(line);
        line = NULL;
    }
    json_decref(rest);
    return put_line(to, "ended", line);
}
