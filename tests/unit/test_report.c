// The JSON of a job, as text: what is in it, where it goes, what becomes of names that are no text.
#include "tools/report.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <CUnit/CUnit.h>

#include "tests/unit/scratch.h"

static const struct job_result result = {
    .job = "00112233445566778899aabbccddeeff",
    .exit_status = 1,
    .retryable = true,
    .receipt = "/state/receipts/0.receipt",
    .source_resident_bytes = 111,
    .destination_resident_bytes = 222,
};

static struct job_snapshot *snapshot(void)
{
    struct job_snapshot *s = calloc(1, sizeof(*s));
    CU_ASSERT_PTR_NOT_NULL_FATAL(s);
    s->seconds = 2.5;
    s->counters = (struct job_counters){.entries_total = 21,
                                        .entries_moved = 6,
                                        .entries_skipped = 5,
                                        .entries_changed = 4,
                                        .entries_vanished = 3,
                                        .entries_failed = 2,
                                        .entries_pending = 1,
                                        .bytes_total = 1000,
                                        .bytes_needed = 900,
                                        .bytes_moved = 800,
                                        .bytes_sent = 820,
                                        .bytes_resent = 20,
                                        .walked = true};
    s->stream_count = 1;
    s->streams[0] = (struct job_stream){.session = 3,
                                        .stream = 4,
                                        .source = "[::1]:5",
                                        .destination = "[::1]:6",
                                        .bytes = 800,
                                        .seconds = 2,
                                        .retransmits = 9,
                                        .rtt_us = 77};
    memcpy(s->engine_source, "uring", 6);
    memcpy(s->engine_destination, "threads", 8);
    return s;
}

// The file `name` of the folder, without blanks and newlines.
static char *squeezed(const struct scratch *s, const char *name)
{
    struct stat st;
    int fd = openat(s->fd, name, O_RDONLY | O_CLOEXEC);
    CU_ASSERT_FATAL(fd >= 0 && fstat(fd, &st) == 0);
    char *text = calloc(1, (size_t)st.st_size + 1), *to = text;
    CU_ASSERT_FATAL(text != NULL && read(fd, text, (size_t)st.st_size) == st.st_size);
    close(fd);
    for (const char *at = text; *at != '\0'; at++) {
        if (*at != ' ' && *at != '\n')
            *to++ = *at;
    }
    *to = '\0';
    return text;
}

static void check_has(const char *text, const char *part)
{
    CU_ASSERT_PTR_NOT_NULL(strstr(text, part));
    if (strstr(text, part) == NULL)
        fprintf(stderr, "has no %s: %.2000s\n", part, text);
}

static struct report *open_at(const struct scratch *s, const char *name)
{
    char path[1024];
    struct report *r = NULL;
    struct err err;
    snprintf(path, sizeof(path), "%s/%s", s->path, name);
    CU_ASSERT_EQUAL_FATAL(report_open(path, &r, &err), 0);
    return r;
}

static void test_document(void)
{
    struct scratch s = scratch_begin();
    struct job_snapshot *snap = snapshot();
    struct report *r = open_at(&s, "report");
    struct err err;
    err_set(&err, ERR_ENTRY, EACCES, "open", "a\\b\n\xff\"", 6, "said \"no\"");
    report_problem(r, &err);
    CU_ASSERT(faccessat(s.fd, "report", F_OK, 0) < 0); // nobody sees half a report
    CU_ASSERT_EQUAL(report_finish(r, snap, &result, &err), 0);
    report_free(r);
    char *text = squeezed(&s, "report");
    check_has(text,
              "{\"schema\":\"penstock-job-1\",\"job\":\"00112233445566778899aabbccddeeff\",\"version\":\"");
    check_has(text, "\"retryable\":true");
    check_has(text, "\"exit\":1,\"status\":\"incomplete\",\"seconds\":2.5");
    check_has(text,
              "\"entries\":{\"total\":21,\"moved\":6,\"skipped\":5,\"changed\":4,\"vanished\":3,\"failed\":2,"
              "\"pending\":1}");
    check_has(text, "\"bytes\":{\"total\":1000,\"needed\":900,\"moved\":800,\"sent\":820,\"resent\":20}");
    check_has(text, "\"engine\":{\"source\":\"uring\",\"destination\":\"threads\"}");
    check_has(text,
              "\"streams\":[{\"session\":3,\"stream\":4,\"source\":\"[::1]:5\",\"destination\":\"[::1]:6\","
              "\"bytes\":800,\"resent\":0,\"seconds\":2.0,\"retransmits\":9,\"rtt_us\":77}]");
    check_has(text,
              "\"problems\":[{\"path\":\"a\\\\\\\\b\\\\x0a\\\\xff\\\"\",\"class\":\"entry\",\"errno\":13,");
    check_has(text, "\"text\":\"open:said\\\"no\\\":Permissiondenied\"}]");
    check_has(text, "\"problems_left_out\":0,\"receipt\":\"/state/receipts/0.receipt\",\"resident_bytes\":"
                    "{\"source\":111,\"destination\":222}}");
    free(text);
    free(snap);
    scratch_end(&s);
}

// What was there stays until the new report is whole; one that is given up leaves nothing.
static void test_replaces(void)
{
    struct scratch s = scratch_begin();
    struct job_snapshot *snap = snapshot();
    struct err err;
    struct stat before, after;
    scratch_file(s.fd, "report", "old");
    scratch_link(s.fd, "link", "report");
    struct report *r = open_at(&s, "link");
    CU_ASSERT(fstatat(s.fd, "report", &before, 0) == 0 && before.st_size == 3);
    report_free(r);
    CU_ASSERT(fstatat(s.fd, "report", &after, 0) == 0 && after.st_size == 3);
    r = open_at(&s, "link");
    CU_ASSERT_EQUAL(report_finish(r, snap, &result, &err), 0);
    report_free(r);
    CU_ASSERT(fstatat(s.fd, "report", &after, 0) == 0 && after.st_size > 100);
    CU_ASSERT(fstatat(s.fd, "link", &after, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(after.st_mode));
    unlinkat(s.fd, "report", 0);
    unlinkat(s.fd, "link", 0);
    CU_ASSERT(unlinkat(AT_FDCWD, s.path, AT_REMOVEDIR) == 0); // nothing else was left there
    CU_ASSERT(mkdir(s.path, 0700) == 0);
    free(snap);
    scratch_end(&s);
}

// What is no regular file is written to, never replaced; its failures are told. A fifo of our own stands for
// it: a test must not put a device of the machine at stake.
static void test_special(void)
{
    struct scratch s = scratch_begin();
    struct job_snapshot *snap = snapshot();
    char text[8192] = "";
    struct err err;
    struct stat st;
    CU_ASSERT_FATAL(mkfifoat(s.fd, "fifo", 0600) == 0);
    int reader = openat(s.fd, "fifo", O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    CU_ASSERT_FATAL(reader >= 0);
    struct report *r = open_at(&s, "fifo");
    CU_ASSERT_EQUAL(report_finish(r, snap, &result, &err), 0);
    report_free(r);
    CU_ASSERT(read(reader, text, sizeof(text) - 1) > 100);
    check_has(text, "penstock-job-1");
    CU_ASSERT(fstatat(s.fd, "fifo", &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISFIFO(st.st_mode));
    r = open_at(&s, "fifo");
    close(reader);
    void (*before)(int) = signal(SIGPIPE, SIG_IGN); // as the program does
    CU_ASSERT_EQUAL(report_finish(r, snap, &result, &err), -EPIPE);
    signal(SIGPIPE, before);
    CU_ASSERT_EQUAL(err.os, EPIPE);
    CU_ASSERT_PTR_NOT_NULL(strstr(err.path, "/fifo"));
    report_free(r);
    free(snap);
    scratch_end(&s);
}

static void test_refused(void)
{
    struct report *r = NULL;
    struct err err;
    CU_ASSERT_EQUAL(report_open("/nowhere/at/all", &r, &err), -ENOENT);
    CU_ASSERT_EQUAL(err.class, ERR_START);
    CU_ASSERT_EQUAL(report_open("/", &r, &err), -EISDIR);
    CU_ASSERT_PTR_NULL(r);
    report_free(NULL);
}

// Of too many problems the first ones are kept, and the rest is counted.
static void test_problems_capped(void)
{
    struct scratch s = scratch_begin();
    struct job_snapshot *snap = snapshot();
    struct report *r = open_at(&s, "report");
    struct err err;
    for (unsigned i = 0; i < REPORT_PROBLEMS_MAX + 7; i++) {
        char name[16];
        int len = snprintf(name, sizeof(name), "f%u", i);
        err_set(&err, ERR_VANISHED, 0, NULL, name, (size_t)len, "vanished");
        report_problem(r, &err);
    }
    CU_ASSERT_EQUAL(report_finish(r, snap, &result, &err), 0);
    report_free(r);
    char *text = squeezed(&s, "report");
    check_has(text, "\"path\":\"f0\"");
    check_has(text, "\"path\":\"f9999\"");
    CU_ASSERT_PTR_NULL(strstr(text, "\"path\":\"f10000\""));
    check_has(text, "\"problems_left_out\":7,");
    free(text);
    free(snap);
    scratch_end(&s);
}

static void test_lines(void)
{
    char *text;
    size_t len;
    struct job_snapshot *snap = snapshot();
    struct job_event event = {.kind = JOB_RESOLVED, .text = "a -> b\xff"}; // should have been escaped
    FILE *to = open_memstream(&text, &len);
    CU_ASSERT_PTR_NOT_NULL_FATAL(to);
    CU_ASSERT_EQUAL(report_event_line(to, &event), 0);
    event = (struct job_event){.kind = JOB_NOTICE, .text = "slow"};
    CU_ASSERT_EQUAL(report_event_line(to, &event), 0);
    event = (struct job_event){.kind = JOB_PROBLEM};
    err_set(&event.err, ERR_STORAGE, ENOSPC, "write", "f", 1, NULL);
    CU_ASSERT_EQUAL(report_event_line(to, &event), 0);
    CU_ASSERT_EQUAL(report_snapshot_line(to, snap), 0);
    CU_ASSERT_EQUAL(report_end_line(to, snap, &result), 0);
    event = (struct job_event){.kind = JOB_ENDED};
    CU_ASSERT_EQUAL(report_event_line(to, &event), 0);
    fclose(to);
    check_has(
        text,
        "{\"event\":\"resolved\",\"text\":\"a -> b\\\\xff\"}\n{\"event\":\"notice\",\"text\":\"slow\"}\n");
    check_has(text, "{\"event\":\"problem\",\"path\":\"f\",\"class\":\"storage\",\"errno\":28,");
    check_has(text, "}\n{\"event\":\"snapshot\",\"seconds\":2.5,\"entries\":{\"total\":21,");
    check_has(text, "}\n{\"event\":\"ended\",\"schema\":\"penstock-job-1\",");
    unsigned lines = 0;
    for (const char *at = text; (at = strchr(at, '\n')) != NULL; at++)
        lines++;
    CU_ASSERT_EQUAL(lines, 5);
    free(text);
    free(snap);
}

static void test_lines_fail(void)
{
    struct job_event event = {.kind = JOB_NOTICE, .text = "x"};
    FILE *full = fopen("/dev/full", "we");
    CU_ASSERT_PTR_NOT_NULL_FATAL(full);
    CU_ASSERT_EQUAL(report_event_line(full, &event), -ENOSPC);
    fclose(full);
}

void suite_report(void)
{
    CU_pSuite suite = CU_add_suite("report", NULL, NULL);
    CU_add_test(suite, "document", test_document);
    CU_add_test(suite, "replaces", test_replaces);
    CU_add_test(suite, "special", test_special);
    CU_add_test(suite, "refused", test_refused);
    CU_add_test(suite, "problems_capped", test_problems_capped);
    CU_add_test(suite, "lines", test_lines);
    CU_add_test(suite, "lines_fail", test_lines_fail);
}
