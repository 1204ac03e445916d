// penstock verify: reads a finished copy again and compares it with its receipt.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "mover/place.h"
#include "mover/receipt_file.h"
#include "storage/sys.h"
#include "tools/checker.h"
#include "tools/command.h"
#include "tools/options.h"
#include "tools/outcome.h"
#include "tools/units.h"

enum { THREADS_MAX = 16, LINE_BYTES = 4096 };

struct verify_options {
    int quiet;
};

static const struct option_row verify_rows[] = {
    {.name = "quiet",
     .letter = 'q',
     .kind = OPTION_FLAG,
     .at = offsetof(struct verify_options, quiet),
     .value = 1,
     .help = "print problems only"},
};

static const struct option_set verify_options = {
    .command = "verify",
    .operands = "RECEIPT [PATH]",
    .about = "Reads every entry of a finished copy again, past the page cache where possible, and compares "
             "it with the receipt.",
    .notes = "PATH is the directory that received the entries; without it the one that the receipt names. It "
             "lies on this host.\n"
             "\n"
             "Exit status:\n"
             "  0  everything that the receipt proves is as it says\n"
             "  2  wrong usage\n"
             "  3  the receipt or something to compare could not be read\n"
             "  7  something is wrong or missing\n",
    .rows = verify_rows,
    .count = ARRAY_LEN(verify_rows),
};

static int report_err(const struct err *err)
{
    char line[LINE_BYTES];
    fprintf(stderr, "penstock verify: %s\n", err_line(err, line, sizeof(line)));
    return err_class_exit(err->class);
}

static void print_problem(void *arg, const struct err *problem)
{
    char line[LINE_BYTES];
    (void)arg;
    fprintf(stderr, "penstock: %s\n", err_line(problem, line, sizeof(line)));
}

// Opens the directory to compare: the one that was named, else the receipt's.
static int open_root(const struct receipt_reader *receipt, const char *named, struct err *err)
{
    const struct blob *place_blob = &receipt_reader_job(receipt)->place;
    struct place place;
    char *text = named != NULL ? strdup(named) : strndup((const char *)place_blob->bytes, place_blob->len);
    if (text == NULL) {
        err_set(err, ERR_START, ENOMEM, NULL, NULL, 0, NULL);
        return -ENOMEM;
    }
    int rc = place_parse(text, &place, err);
    free(text);
    if (rc < 0)
        return rc;
    int fd = -EINVAL;
    if (place.kind != PLACE_LOCAL) {
        err_set(err, ERR_USAGE, 0, NULL, place.text, strlen(place.text),
                "is at another host: run this command there, with the receipt and the path");
    } else {
        fd = sys_openat(AT_FDCWD, place.path, O_RDONLY | O_DIRECTORY, 0);
        if (fd < 0)
            err_set(err, ERR_START, -fd, "open", place.path, strlen(place.path), NULL);
    }
    place_free(&place);
    return fd;
}

// Hands over what the job says lies there. Counts the entries that it says were not copied.
static int check_all(struct receipt_reader *receipt, struct checker *checker, uint64_t *not_copied)
{
    struct receipt_entry e;
    int rc;
    while ((rc = receipt_reader_next(receipt, &e)) > 0) {
        if (e.outcome != RECEIPT_MOVED && e.outcome != RECEIPT_SKIPPED) {
            (*not_copied)++;
            continue;
        }
        rc = checker_add(checker, &e);
        if (rc < 0)
            break;
    }
    return rc;
}

static int verdict_exit(const struct check_tally *t)
{
    int status = OUTCOME_COMPLETE;
    if (t->entries[CHECK_WRONG] > 0 || t->entries[CHECK_MISSING] > 0)
        status = OUTCOME_WRONG;
    return t->entries[CHECK_UNREADABLE] > 0 ? err_exit_worse(status, OUTCOME_NOT_STARTED) : status;
}

static void print_tally(const struct check_tally *t, uint64_t not_copied, int status)
{
    char bytes[UNITS_TEXT_BYTES];
    const uint64_t *n = t->entries;
    if (n[CHECK_UNPROVED] > 0)
        printf(
            "%llu entries were skipped by size and time and carry no digest: nothing more is known of them\n",
            (unsigned long long)n[CHECK_UNPROVED]);
    if (not_copied > 0)
        printf("%llu entries were not copied by the job: nothing is known of them\n",
               (unsigned long long)not_copied);
    printf(
        "%s: %llu entries right (%s read again), %llu unproved, %llu wrong, %llu missing, %llu unreadable\n",
        status == OUTCOME_COMPLETE ? "fine" : "not fine", (unsigned long long)n[CHECK_RIGHT],
        units_bytes(t->bytes, bytes), (unsigned long long)n[CHECK_UNPROVED],
        (unsigned long long)n[CHECK_WRONG], (unsigned long long)n[CHECK_MISSING],
        (unsigned long long)n[CHECK_UNREADABLE]);
}

static unsigned thread_count(void)
{
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    return cpus < 1 ? 1 : cpus > THREADS_MAX ? THREADS_MAX : (unsigned)cpus;
}

static int verify(struct receipt_reader *receipt, int root_fd, bool quiet)
{
    struct check_tally tally = {.bytes = 0};
    struct checker *checker;
    struct err err;
    uint64_t not_copied = 0;
    int rc = checker_new(root_fd, thread_count(), print_problem, NULL, &checker);
    if (rc == 0) {
        rc = check_all(receipt, checker, &not_copied);
        checker_end(checker, &tally);
    }
    if (rc < 0) {
        err_set(&err, ERR_START, -rc, "compare", NULL, 0, "not all entries were looked at");
        return err_exit_worse(verdict_exit(&tally), report_err(&err));
    }
    int status = verdict_exit(&tally);
    if (!quiet)
        print_tally(&tally, not_copied, status);
    return status;
}

int cmd_verify(int argc, char **argv)
{
    struct verify_options opt = {0};
    struct options_found found;
    struct receipt_reader *receipt;
    struct err err;
    int status = options_take(&verify_options, argc, argv, &opt, &found);
    if (status >= 0)
        return status;
    if (found.count < 1 || found.count > 2) {
        fprintf(stderr,
                "penstock verify: RECEIPT and perhaps PATH are needed (see penstock verify --help)\n");
        return OUTCOME_USAGE;
    }
    if (receipt_reader_open(found.operands[0], &receipt, &err) < 0)
        return report_err(&err);
    int root_fd = open_root(receipt, found.count == 2 ? found.operands[1] : NULL, &err);
    status = root_fd < 0 ? report_err(&err) : verify(receipt, root_fd, opt.quiet != 0);
    if (root_fd >= 0)
        sys_close(root_fd);
    receipt_reader_free(receipt);
    return status;
}
