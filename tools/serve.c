// penstock serve: an agent. It listens, or with --stdio does one job over its standard input and output.
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "mover/agent.h"
#include "mover/inside.h"
#include "mover/serve.h"
#include "storage/sys.h"
#include "tools/command.h"
#include "tools/options.h"
#include "tools/outcome.h"

struct serve_options {
    const char *root, *listen, *key, *bind;
    int read_only, stdio, loopback, family;
    uint64_t jobs;
    struct port_range ports;
};

enum { JOBS_MAX = 4096 };

#define SILENCE_NS (UINT64_C(1000000) * SILENCE_MS)

#define AT(member) .at = offsetof(struct serve_options, member)
static const struct option_row serve_rows[] = {
    {.name = "root",
     .kind = OPTION_TEXT,
     AT(root),
     .arg = "DIR",
     .help = "the folder that every path of a job lies beneath"},
    {.name = "listen",
     .kind = OPTION_TEXT,
     AT(listen),
     .arg = "ADDR:PORT",
     .help = "where to listen: an address, a port (:7421) or both; all addresses and port 7420 unless given"},
    {.name = "key",
     .kind = OPTION_TEXT,
     AT(key),
     .arg = "FILE",
     .help = "the keys that copies may come with (penstock key FILE makes one)"},
    {.name = "read-only", .kind = OPTION_FLAG, AT(read_only), .value = 1, .help = "give data out, take none"},
    {.name = "jobs",
     .kind = OPTION_COUNT,
     AT(jobs),
     .arg = "N",
     .min = 1,
     .max = JOBS_MAX,
     .help = "the most jobs at a time (64 unless given)"},
    {.name = "ipv4", .letter = '4', .kind = OPTION_FLAG, AT(family), .value = NET_V4, .help = "IPv4 only"},
    {.name = "ipv6", .letter = '6', .kind = OPTION_FLAG, AT(family), .value = NET_V6, .help = "IPv6 only"},
    {.name = "stdio",
     .kind = OPTION_FLAG,
     AT(stdio),
     .value = 1,
     .help = "do one job, or carry one connection of it, for a penstock copy that started this over ssh or "
             "here; paths are those of the account, --root is not needed"},
    {.name = "ports",
     .kind = OPTION_PORTS,
     AT(ports),
     .arg = "LO-HI",
     .help = "with --stdio: the ports to take data on"},
    {.name = "bind",
     .kind = OPTION_TEXT,
     AT(bind),
     .arg = "ADDR",
     .help = "with --stdio: the local address of its connections"},
    {.name = "loopback",
     .kind = OPTION_FLAG,
     AT(loopback),
     .value = 1,
     .help = "with --stdio: take data from this host only"},
};
#undef AT

static const struct option_set serve_options = {
    .command = "serve",
    .operands = "[-- COMMAND...]",
    .about = "Runs an agent, at which copies reach paths beneath DIR as penstock://HOST[:PORT]/PATH.",
    .notes = "One TCP port carries everything: 7420 unless --listen says otherwise. SIGTERM and SIGINT end "
             "it; jobs that\n"
             "it served can be run again and go on.\n"
             "\n"
             "With --stdio: COMMAND makes a connection to the agent at the other end when no other way leads "
             "there\n"
             "(ssh HOST penstock serve --stdio).\n",
    .rows = serve_rows,
    .count = ARRAY_LEN(serve_rows),
};

static void say(void *arg, const char *line)
{
    (void)arg;
    fprintf(stderr, "penstock: %s\n", line);
}

// The agent of a copy has the terminal of that copy, which tells everything itself.
static void say_nothing(void *arg, const char *line)
{
    (void)arg;
    (void)line;
}

static int refuse(const char *what)
{
    fprintf(stderr, "penstock serve: %s\n", what);
    return OUTCOME_USAGE;
}

static int report_err(const struct err *err)
{
    char line[2048];
    fprintf(stderr, "penstock serve: %s\n", err_line(err, line, sizeof(line)));
    return err_class_exit(err->class);
}

static bool same_file(int a, int b)
{
    struct stat sa, sb;
    return fstat(a, &sa) == 0 && fstat(b, &sb) == 0 && sa.st_dev == sb.st_dev && sa.st_ino == sb.st_ino &&
           S_ISSOCK(sa.st_mode);
}

// Takes descriptors 0 and 1 away from whatever might print, and puts /dev/null in their place.
static int take_stdio(int *in, int *out)
{
    bool one_socket = same_file(STDIN_FILENO, STDOUT_FILENO);
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    int fd_in = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3);
    int fd_out = one_socket ? fd_in : fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
    if (null < 0 || fd_in < 0 || fd_out < 0 || dup2(null, STDIN_FILENO) < 0 || dup2(null, STDOUT_FILENO) < 0)
        return -errno; // the process ends: nothing to close
    close(null);
    *in = fd_in;
    *out = fd_out;
    return 0;
}

static int run_agent(const struct agent_config *cfg, struct channel *control)
{
    enum agent_end end = agent_run(cfg, control);
    if (end == AGENT_HANGS)
        _exit(OUTCOME_INCOMPLETE); // destructors would meet the threads that are left
    return end == AGENT_DONE ? OUTCOME_COMPLETE : OUTCOME_INCOMPLETE;
}

// A connection inside ssh, or the control plane of an agent: its first bytes tell.
static int serve_begun(const struct agent_config *cfg, int in, int out)
{
    uint8_t first[PREAMBLE_MAGIC_BYTES];
    struct channel *control = NULL;
    struct err err;
    int rc = net_read_full(in, first, sizeof(first), sys_clock_ns() + SILENCE_NS, -1);
    if (rc == 0 && preamble_begins(first))
        return (int)inside_serve(in, out, first);
    if (rc == 0)
        rc = channel_plain_begun(in, out, MESSAGE_BYTES_MAX, first, sizeof(first), &control);
    if (rc == 0)
        return run_agent(cfg, control);
    if (rc == -ENODATA)
        return OUTCOME_INCOMPLETE; // who started it went away before the job began
    err_set(&err, ERR_START, -rc, "take standard input and output", NULL, 0, NULL);
    return report_err(&err);
}

static int serve_stdio(const struct serve_options *opt, char *const *command)
{
    struct agent_config cfg = {
        .root = opt->root,
        .read_only = opt->read_only != 0,
        .family = (enum net_family)opt->family,
        .handoff_fd = -1,
        .port = opt->ports.low,
        .port_hi = opt->ports.high,
        .loopback_only = opt->loopback != 0,
        .bind_to = opt->bind,
        .takes_inside = !opt->loopback,
        .dials_inside = command,
        .say = say_nothing,
    };
    struct err err;
    int in = -1, out = -1;
    if (isatty(STDIN_FILENO))
        return refuse("--stdio is for penstock copy, which starts it; --root DIR runs an agent that listens");
    if (command != NULL && opt->root != NULL)
        return refuse("who is kept beneath --root starts no command");
    int rc = take_stdio(&in, &out);
    if (rc == 0)
        return serve_begun(&cfg, in, out);
    err_set(&err, ERR_START, -rc, "take standard input and output", NULL, 0, NULL);
    return report_err(&err);
}

// A descriptor that becomes readable when one of the signals, ended by 0, comes.
static int signals_descriptor(const int *signals)
{
    sigset_t set;
    sigemptyset(&set);
    for (; *signals != 0; signals++)
        sigaddset(&set, *signals);
    if (sigprocmask(SIG_BLOCK, &set, NULL) < 0)
        return -errno;
    int fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return fd < 0 ? -errno : fd;
}

// A child that caught a signal for the listener would outlive it.
static bool default_signals(void)
{
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGCHLD};
    sigset_t none;
    sigemptyset(&none);
    bool ok = true;
    for (size_t i = 0; i < ARRAY_LEN(signals); i++)
        ok = ok && signal(signals[i], SIG_DFL) != SIG_ERR;
    return ok && sigprocmask(SIG_SETMASK, &none, NULL) == 0;
}

static int listen_until_stopped(struct serve_config *cfg, struct err *err)
{
    static const int stop[] = {SIGTERM, SIGINT, 0}, child[] = {SIGCHLD, 0};
    // Ignored, which a parent may have left to us, it would reap the children without telling.
    int rc = signal(SIGCHLD, SIG_DFL) == SIG_ERR ? -errno : 0;
    int stop_fd = rc == 0 ? signals_descriptor(stop) : rc;
    cfg->child_fd = stop_fd >= 0 ? signals_descriptor(child) : stop_fd;
    cfg->in_child = default_signals;
    rc = cfg->child_fd;
    if (rc < 0)
        err_set(err, ERR_START, -rc, "signalfd", NULL, 0, NULL);
    else
        rc = serve_run(cfg, stop_fd, say, NULL, err);
    if (cfg->child_fd >= 0)
        close(cfg->child_fd);
    if (stop_fd >= 0)
        close(stop_fd);
    return rc;
}

static int serve_keys(const struct serve_options *opt, struct serve_config *cfg)
{
    struct key_ring keys;
    struct err err;
    if (key_ring_load(opt->key, &keys, &err) < 0)
        return report_err(&err);
    cfg->keys = &keys;
    int rc = listen_until_stopped(cfg, &err);
    key_ring_free(&keys);
    return rc < 0 ? report_err(&err) : OUTCOME_COMPLETE;
}

static int serve_listen(const struct serve_options *opt)
{
    char host[ADDRESS_BYTES_MAX], line[2 * ADDRESS_BYTES_MAX];
    struct serve_config cfg = {
        .root = opt->root,
        .listen_host = host,
        .family = (enum net_family)opt->family,
        .read_only = opt->read_only != 0,
        .jobs_max = (unsigned)opt->jobs,
    };
    if (opt->root == NULL)
        return refuse("--root DIR is needed: the folder that copies may reach");
    if (opt->key == NULL)
        return refuse("--key FILE is needed (penstock key FILE makes one)");
    if (opt->ports.low != 0 || opt->loopback || opt->bind != NULL)
        return refuse(
            "--ports, --bind and --loopback go with --stdio; a listening agent has one port, --listen");
    if (net_parse(opt->listen, PENSTOCK_PORT, host, sizeof(host), &cfg.listen_port) < 0) {
        err_escape(line, sizeof(line), opt->listen, strlen(opt->listen));
        fprintf(stderr, "penstock serve: --listen %s: not ADDR, :PORT or ADDR:PORT ([ADDR]:PORT for IPv6)\n",
                line);
        return OUTCOME_USAGE;
    }
    return serve_keys(opt, &cfg);
}

int cmd_serve(int argc, char **argv)
{
    struct serve_options opt = {.listen = ":7420", .family = NET_ANY};
    struct options_found found;
    int status = options_take(&serve_options, argc, argv, &opt, &found);
    if (status >= 0)
        return status;
    if (found.count > 0 && !opt.stdio)
        return refuse("takes no arguments beside options");
    if (opt.stdio && (opt.key != NULL || opt.jobs != 0))
        return refuse("--stdio does one job for who started it: without --key and --jobs");
    found.operands[found.count] = NULL; // of argv, which has room for it
    return opt.stdio ? serve_stdio(&opt, found.count > 0 ? found.operands : NULL) : serve_listen(&opt);
}
