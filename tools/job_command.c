#include "tools/job_command.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "storage/sys.h"
#include "tools/keys.h"
#include "tools/options.h"
#include "tools/outcome.h"
#include "tools/reach_options.h"
#include "tools/state.h"
#include "tools/stopper.h"
#include "tools/teller.h"

enum { IO_TIMEOUT_DEFAULT_S = 3600, IO_TIMEOUT_MAX_S = 30 * 24 * 3600 };

enum talk { TALK_NORMAL, TALK_PROGRESS, TALK_QUIET };

struct copy_options {
    const char *key, *json, *bind, *state;
    uint64_t streams, rate_bits, stripe_bytes, io_timeout_s;
    int engine, direct, verify, encrypt, json_events, talk, verbose, dial;
    struct reach_options reach;
    struct port_range ports;
};

// In the order of the enums.
static const char *const engine_words[] = {"auto", "uring", "aio", "threads", NULL};
static const char *const direct_words[] = {"auto", "on", "off", NULL};
static const char *const verify_words[] = {"wire", NULL};
static const char *const encrypt_words[] = {"off", "on", NULL};
static const char *const dial_words[] = {"auto", "src", "dst", NULL};

#define AT(member) .at = offsetof(struct copy_options, member)
static const struct option_row rows[] = {
    {.name = "key",
     .kind = OPTION_TEXT,
     AT(key),
     .arg = "FILE",
     .help = "the key file for penstock:// ends: its line named like the host counts, else its only line"},
    {.name = "streams",
     .kind = OPTION_COUNT,
     AT(streams),
     .arg = "N|auto",
     .auto_word = "auto",
     .min = 1,
     .max = STREAMS_MAX,
     .help = "TCP connections that carry data"},
    {.name = "rate",
     .kind = OPTION_RATE,
     AT(rate_bits),
     .arg = "BITS",
     .min = 1,
     .help = "the most that the job may send, in bit/s: 500M, 10G; no cap unless given"},
    {.name = "stripe",
     .kind = OPTION_SIZE,
     AT(stripe_bytes),
     .arg = "SIZE",
     .min = STRIPE_BYTES_MIN,
     .max = STRIPE_BYTES_MAX,
     .help = "the piece that streams take in turn: a power of two from 1M to 16M; 4M unless given"},
    {.name = "engine",
     .kind = OPTION_CHOICE,
     AT(engine),
     .arg = "NAME",
     .words = engine_words,
     .help = "how disks and sockets are driven: auto, uring, aio or threads"},
    {.name = "direct",
     .kind = OPTION_CHOICE,
     AT(direct),
     .arg = "WHEN",
     .words = direct_words,
     .help = "past the page cache: auto, on or off"},
    {.name = "verify",
     .kind = OPTION_CHOICE,
     AT(verify),
     .arg = "HOW",
     .words = verify_words,
     .help =
         "how what moves is proved: wire (each MiB is digested where it is read and where it arrives, and "
         "synced)"},
    {.name = "encrypt",
     .kind = OPTION_CHOICE,
     AT(encrypt),
     .arg = "WHEN",
     .words = encrypt_words,
     .help = "on, or off on a path that you trust"},
    {.name = "io-timeout",
     .kind = OPTION_TIME,
     AT(io_timeout_s),
     .arg = "TIME",
     .min = 1,
     .max = IO_TIMEOUT_MAX_S,
     .help = "how long a disk may not answer before the job ends: 90s, 5m, 2h; 1h unless given"},
    {.name = "bind",
     .kind = OPTION_TEXT,
     AT(bind),
     .arg = "ADDR",
     .help = "the local address of this host's connections"},
    {.name = "ports",
     .kind = OPTION_PORTS,
     AT(ports),
     .arg = "LO-HI",
     .help = "the TCP ports on which the agents that this job starts take data, one for each; any "
             "unless given"},
    {.name = "dial",
     .kind = OPTION_CHOICE,
     AT(dial),
     .arg = "SIDE",
     .words = dial_words,
     .help = "who opens the data connections: src, dst, or auto to try both; when nobody can and one end is "
             "local, they run inside ssh to the other"},
    REACH_ROWS(struct copy_options),
    {.name = "state",
     .kind = OPTION_TEXT,
     AT(state),
     .arg = "DIR",
     .help = "where receipts are kept; $XDG_STATE_HOME/penstock or ~/.local/state/penstock unless given"},
    {.name = "json",
     .kind = OPTION_TEXT,
     AT(json),
     .arg = "FILE",
     .help = "write a report of the job as JSON at its end; - is standard output"},
    {.name = "json-events",
     .kind = OPTION_FLAG,
     AT(json_events),
     .value = 1,
     .help = "print what happens as JSON, one object a line, and the counters every second"},
    {.name = "progress",
     .kind = OPTION_FLAG,
     AT(talk),
     .value = TALK_PROGRESS,
     .help = "show progress also where standard error is no terminal"},
    {.name = "quiet",
     .letter = 'q',
     .kind = OPTION_FLAG,
     AT(talk),
     .value = TALK_QUIET,
     .help = "print problems only"},
    {.name = "verbose",
     .letter = 'v',
     .kind = OPTION_FLAG,
     AT(verbose),
     .value = 1,
     .help = "at the end tell of engines, streams and the receipt too"},
};
#undef AT

// Everything of one run. Places are sources and, last, the destination.
struct copy {
    const struct job_command *command;
    struct copy_options opt;
    struct place places[SOURCES_MAX + 1];
    uint32_t place_count;
    struct key_ring keys;
    char state[PATH_MAX]; // "": none, so no receipt
    struct teller teller;
};

static int wrong_usage(struct err *err, const char *what)
{
    err_set(err, ERR_USAGE, 0, NULL, NULL, 0, "%s", what);
    return -EINVAL;
}

static int check_options(const struct copy_options *opt, const char *command, int operands, struct err *err)
{
    if (operands < 2) {
        err_set(err, ERR_USAGE, 0, NULL, NULL, 0, "SRC and DST are needed (see penstock %s --help)", command);
        return -EINVAL;
    }
    if (operands > SOURCES_MAX + 1) { // before there is a place for each; the other limits: job_check
        err_set(err, ERR_USAGE, 0, NULL, NULL, 0, "%d sources are given, the most is %d", operands - 1,
                SOURCES_MAX);
        return -EINVAL;
    }
    if ((opt->stripe_bytes & (opt->stripe_bytes - 1)) != 0)
        return wrong_usage(err, "--stripe is a power of two: 1M, 2M, 4M, 8M or 16M");
    if (opt->json_events && opt->json != NULL && strcmp(opt->json, "-") == 0)
        return wrong_usage(err, "--json - and --json-events both want standard output");
    return 0;
}

static int parse_places(struct copy *c, char *const *operands, int count, struct err *err)
{
    for (int i = 0; i < count; i++) {
        int rc = c->command->place(operands[i], &c->places[i], err);
        if (rc < 0)
            return rc;
        c->place_count++;
    }
    for (uint32_t i = 1; i + 1 < c->place_count; i++) {
        if (place_same_agent(&c->places[0], &c->places[i]))
            continue;
        const char *text = c->places[i].text;
        err_set(err, ERR_USAGE, 0, NULL, text, strlen(text),
                "lies elsewhere than %s: all sources must be at one place", c->places[0].text);
        return -EINVAL;
    }
    return 0;
}

static int load_keys(struct copy *c, struct err *err)
{
    int rc = 0;
    for (uint32_t i = 0; i < c->place_count && rc == 0; i++)
        rc = keys_for_place(c->opt.key, &c->places[i], &c->keys, err);
    return rc;
}

// A folder of receipts that was asked for must be there; without the usual one the copy goes on.
static int find_state(struct copy *c, struct err *err)
{
    for (uint32_t i = 0; i < c->place_count; i++)
        if (c->places[i].memory) // there is nothing to prove
            return 0;
    char line[2048], full[2100];
    int rc = state_folder(c->opt.state, c->state, sizeof(c->state), err);
    if (rc == 0 || c->opt.state != NULL)
        return rc;
    c->state[0] = '\0';
    snprintf(full, sizeof(full), "no receipt will be written: %s", err_line(err, line, sizeof(line)));
    teller_info(&c->teller, full);
    return 0;
}

static struct job_config job_config(const struct copy *c)
{
    const struct copy_options *opt = &c->opt;
    return (struct job_config){
        .sources = c->places,
        .source_count = c->place_count - 1,
        .destination = &c->places[c->place_count - 1],
        .keys = c->keys.count > 0 ? &c->keys : NULL,
        .streams = (uint32_t)opt->streams,
        .stripe_bytes = (uint32_t)opt->stripe_bytes,
        .rate_bits = opt->rate_bits,
        .engine = (enum engine_kind)opt->engine,
        .direct = (enum direct_mode)opt->direct,
        .encrypt = opt->encrypt != 0,
        .family = (enum net_family)opt->reach.family,
        .bind_to = opt->bind,
        .port = opt->ports.low,
        .port_hi = opt->ports.high,
        .dial = (enum job_dial)opt->dial,
        .rsh = opt->reach.rsh,
        .remote_path = opt->reach.remote_path,
        .io_timeout_s = (uint32_t)opt->io_timeout_s,
        .state_dir = c->state[0] != '\0' ? c->state : NULL,
    };
}

static int prepare(struct copy *c, const struct options_found *found, struct err *err)
{
    int rc = parse_places(c, found->operands, found->count, err);
    if (rc == 0) {
        struct job_config cfg = job_config(c);
        rc = job_check(&cfg, err);
    }
    if (rc == 0)
        rc = load_keys(c, err);
    if (rc == 0)
        rc = find_state(c, err);
    return rc;
}

// Tells of the job until it has ended.
static void follow(struct copy *c, struct job *job, struct stopper *stopper)
{
    enum { TICK_MS = 250 };
    struct job_event event = {.kind = JOB_NOTICE};
    struct job_snapshot snapshot;
    unsigned stops_told = 0;
    while (event.kind != JOB_ENDED) {
        if (job_next(job, TICK_MS, &event))
            teller_event(&c->teller, &event);
        unsigned stops = stopper_count(stopper);
        if (stops > stops_told)
            teller_info(&c->teller, stops == 1 ? "stopping (once more to stop at once)" : "stopping at once");
        stops_told = stops;
        uint64_t now = sys_clock_ns();
        if (!teller_due(&c->teller, now))
            continue;
        job_snapshot(job, &snapshot);
        teller_snapshot(&c->teller, &snapshot, now);
    }
}

static int run_job(struct copy *c, struct job_snapshot *snapshot, struct job_result *result, struct err *err)
{
    struct job_config cfg = job_config(c);
    struct stopper *stopper;
    struct job *job = NULL;
    int rc = stopper_new(&stopper);
    if (rc == 0) {
        rc = job_start(&cfg, &job);
        if (rc == 0) {
            stopper_watch(stopper, job);
            follow(c, job, stopper);
            job_snapshot(job, snapshot);
            job_result(job, result);
        }
        stopper_free(stopper);
        job_free(job);
    }
    if (rc < 0)
        err_set(err, ERR_START, -rc, "start", NULL, 0, "the job");
    return rc;
}

// The end of a job that was never begun, as a result like any other.
static void refused(struct copy *c, const struct err *err, struct job_result *result)
{
    teller_problem(&c->teller, err);
    *result = (struct job_result){.exit_status = err_class_exit(err->class)};
    result->retryable = result->exit_status != OUTCOME_USAGE;
}

static int run(struct copy *c, const struct options_found *found)
{
    struct job_snapshot snapshot = {0};
    struct job_result result;
    struct err err;
    int rc = prepare(c, found, &err);
    if (rc == 0)
        rc = run_job(c, &snapshot, &result, &err);
    if (rc < 0)
        refused(c, &err, &result);
    return teller_end(&c->teller, rc == 0, &snapshot, &result);
}

static void teller_begin(struct copy *c)
{
    const struct copy_options *opt = &c->opt;
    bool stdout_taken = opt->json_events || (opt->json != NULL && strcmp(opt->json, "-") == 0);
    FILE *info = stdout_taken ? stderr : stdout;
    c->teller = (struct teller){
        .info = opt->talk == TALK_QUIET ? NULL : info,
        .verbose = opt->verbose != 0,
        .events = opt->json_events != 0,
    };
    progress_init(&c->teller.progress, stderr, opt->talk == TALK_PROGRESS, opt->talk == TALK_QUIET);
    if (!opt->encrypt)
        teller_info(&c->teller, "data is sent without encryption (--encrypt off)");
}

static int begin(struct copy *c, const struct options_found *found)
{
    struct err err;
    char line[2048];
    int rc = check_options(&c->opt, c->command->name, found->count, &err);
    if (rc == 0 && c->opt.json != NULL)
        rc = report_open(c->opt.json, &c->teller.report, &err);
    if (rc == 0)
        return run(c, found);
    fprintf(stderr, "penstock %s: %s\n", c->command->name, err_line(&err, line, sizeof(line)));
    return err_class_exit(err.class);
}

int job_command_run(const struct job_command *command, int argc, char **argv)
{
    const struct option_set options = {.command = command->name,
                                       .operands = command->operands,
                                       .about = command->about,
                                       .notes = command->notes,
                                       .rows = rows,
                                       .count = ARRAY_LEN(rows)};
    struct options_found found;
    struct copy *c = calloc(1, sizeof(*c));
    if (c == NULL)
        return OUTCOME_NOT_STARTED;
    c->command = command;
    c->opt = (struct copy_options){.reach = {.rsh = "ssh", .remote_path = "penstock"},
                                   .encrypt = 1,
                                   .stripe_bytes = STRIPE_BYTES_DEFAULT,
                                   .io_timeout_s = IO_TIMEOUT_DEFAULT_S};
    int status = options_take(&options, argc, argv, &c->opt, &found);
    if (status < 0) {
        teller_begin(c);
        status = begin(c, &found);
    }
    report_free(c->teller.report);
    key_ring_free(&c->keys);
    for (uint32_t i = 0; i < c->place_count; i++)
        place_free(&c->places[i]);
    free(c);
    return status;
}
