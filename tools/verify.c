// penstock verify: has a finished copy read again, wherever it lies, and compares it with its receipt.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mover/verify.h"
#include "tools/command.h"
#include "tools/keys.h"
#include "tools/options.h"
#include "tools/outcome.h"
#include "tools/reach_options.h"
#include "tools/units.h"

enum { LINE_BYTES = 4096 };

struct verify_options {
    const char *key;
    int quiet;
    struct reach_options reach;
};

#define AT(member) .at = offsetof(struct verify_options, member)
static const struct option_row verify_rows[] = {
    {.name = "key",
     .kind = OPTION_TEXT,
     AT(key),
     .arg = "FILE",
     .help = "the key file for a penstock:// place: its line named like the host counts, else its only line"},
    REACH_ROWS(struct verify_options),
    {.name = "quiet",
     .letter = 'q',
     .kind = OPTION_FLAG,
     AT(quiet),
     .value = 1,
     .help = "print problems only"},
};
#undef AT

static const struct option_set verify_options = {
    .command = "verify",
    .operands = "RECEIPT [PATH]",
    .about = "Reads every entry of a finished copy again, past the page cache where possible, and compares "
             "it with the receipt.",
    .notes =
        "PATH is the directory that holds the entries, in any form that copy takes: PATH, [USER@]HOST:PATH "
        "or\n"
        "penstock://HOST[:PORT]/PATH; without it the directory that received them, as the receipt names it.\n"
        "The source can be compared too: of SRC/ give SRC itself, of SRC the directory that SRC lies in. "
        "Nothing is\n"
        "written where PATH is.\n"
        "\n"
        "Compared are kind, size, content, text of links, and modes but for set-ID bits; times only of what "
        "the receipt\n"
        "has no digest of. Entries that the receipt does not name are not looked at.\n"
        "\n"
        "Exit status:\n"
        "  0  everything that the receipt proves is as it says\n"
        "  2  wrong usage\n"
        "  3  the receipt or something to compare could not be read, or PATH not be reached\n"
        "  6  the host of PATH was lost on the way\n"
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

// The directory to compare: the one that was named, else the receipt's.
static int find_place(const struct receipt_reader *receipt, const char *named, struct place *out,
                      struct err *err)
{
    const struct blob *place = &receipt_reader_job(receipt)->place;
    if (named == NULL && place->len == 0) {
        err_set(err, ERR_USAGE, 0, NULL, NULL, 0, "the receipt does not say where the copy lies: give PATH");
        return -EINVAL;
    }
    char *text = named != NULL ? strdup(named) : blob_copy(place);
    if (text == NULL) {
        err_set(err, ERR_START, ENOMEM, NULL, NULL, 0, NULL);
        return -ENOMEM;
    }
    int rc = place_parse(text, out, err);
    free(text);
    return rc;
}

static int verdict_exit(const struct verify_tally *t)
{
    int status = OUTCOME_COMPLETE;
    if (t->entries[CHECK_WRONG] > 0 || t->entries[CHECK_MISSING] > 0)
        status = OUTCOME_WRONG;
    return t->entries[CHECK_UNREADABLE] > 0 ? err_exit_worse(status, OUTCOME_NOT_STARTED) : status;
}

static void print_tally(const struct verify_tally *t, int status)
{
    char bytes[UNITS_TEXT_BYTES];
    const uint64_t *n = t->entries;
    if (n[CHECK_UNPROVED] > 0)
        printf(
            "%llu entries were skipped by size and time and carry no digest: nothing more is known of them\n",
            (unsigned long long)n[CHECK_UNPROVED]);
    if (t->not_copied > 0)
        printf("%llu entries were not copied by the job: nothing is known of them\n",
               (unsigned long long)t->not_copied);
    printf(
        "%s: %llu entries right (%s read again), %llu unproved, %llu wrong, %llu missing, %llu unreadable\n",
        status != OUTCOME_COMPLETE                   ? "not fine"
        : n[CHECK_UNPROVED] > 0 || t->not_copied > 0 ? "nothing wrong, not all proved"
                                                     : "fine",
        (unsigned long long)n[CHECK_RIGHT], units_bytes(t->bytes, bytes),
        (unsigned long long)n[CHECK_UNPROVED], (unsigned long long)n[CHECK_WRONG],
        (unsigned long long)n[CHECK_MISSING], (unsigned long long)n[CHECK_UNREADABLE]);
}

static int verify(const struct verify_options *opt, const struct key_ring *keys, const struct place *place,
                  struct receipt_reader *receipt)
{
    struct verify_config cfg = {.reach = {.keys = keys,
                                          .family = (enum net_family)opt->reach.family,
                                          .rsh = opt->reach.rsh,
                                          .remote_path = opt->reach.remote_path},
                                .place = place,
                                .found = print_problem};
    struct verify_tally tally;
    struct err err;
    if (!opt->quiet) {
        char line[LINE_BYTES];
        err_escape(line, sizeof(line), place->text, strlen(place->text));
        printf("comparing %s\n", line);
        fflush(stdout);
    }
    int rc = verify_run(&cfg, receipt, &tally, &err);
    int status = verdict_exit(&tally);
    if (rc < 0)
        return err_exit_worse(status, report_err(&err));
    if (!opt->quiet)
        print_tally(&tally, status);
    return status;
}

static int find_and_verify(const struct verify_options *opt, struct receipt_reader *receipt,
                           const char *named)
{
    struct place place;
    struct key_ring keys = {.count = 0};
    struct err err;
    if (find_place(receipt, named, &place, &err) < 0)
        return report_err(&err);
    int rc = keys_for_place(opt->key, &place, &keys, &err);
    int status = rc < 0 ? report_err(&err) : verify(opt, &keys, &place, receipt);
    key_ring_free(&keys);
    place_free(&place);
    return status;
}

int cmd_verify(int argc, char **argv)
{
    struct verify_options opt = {.reach = {.family = NET_ANY}};
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
    status = find_and_verify(&opt, receipt, found.count == 2 ? found.operands[1] : NULL);
    receipt_reader_free(receipt);
    return status;
}
