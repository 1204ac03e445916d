// sim [--seeds N] [--seed S] [--trace] [SCENARIO...]: runs scenarios over seeds S to S + N - 1 (1 unless
// given), each in a process of its own, and prints a result line for each scenario.
#include <getopt.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/sim/net.h"
#include "tests/sim/scenario.h"
#include "tests/sim/sched.h"
#include "tests/sim/world.h"

enum { WORKERS = 2, WATCHDOG_S = 120 };

static const struct scenario {
    const char *name;
    void (*run)(void *arg);
} scenarios[] = {
    {"copy", scenario_copy},
    {"lossy", scenario_lossy},
    {"crash", scenario_crash},
    {"kill", scenario_kill},
};

struct options {
    uint64_t seed, seeds;
    bool trace;
};

struct tally {
    uint64_t failed, first_seed;
};

static void child(const struct scenario *s, const struct options *opt, uint64_t seed)
{
    alarm(WATCHDOG_S);
    world_set_trace(opt->trace);
    world_begin(seed);
    net_begin();
    sched_run(s->run, NULL);
    _exit(0);
}

// Waits for one of the workers.
static void reap(const struct scenario *s, pid_t pids[WORKERS], const uint64_t seeds[WORKERS],
                 struct tally *t)
{
    int status;
    pid_t pid = waitpid(-1, &status, 0);
    for (unsigned i = 0; i < WORKERS; i++) {
        if (pids[i] != pid)
            continue;
        pids[i] = 0;
        if (status == 0)
            continue;
        fprintf(stderr, "sim.%s: seed %llu failed (status %d): sim --seed %llu --trace %s\n", s->name,
                (unsigned long long)seeds[i], status, (unsigned long long)seeds[i], s->name);
        if (t->failed++ == 0 || seeds[i] < t->first_seed)
            t->first_seed = seeds[i];
    }
}

static unsigned idle(const pid_t pids[WORKERS])
{
    unsigned i = 0;
    while (i < WORKERS && pids[i] != 0)
        i++;
    return i;
}

static struct tally run_seeds(const struct scenario *s, const struct options *opt)
{
    pid_t pids[WORKERS] = {0};
    uint64_t seeds[WORKERS] = {0};
    struct tally tally = {0};
    for (uint64_t seed = opt->seed; seed < opt->seed + opt->seeds; seed++) {
        if (idle(pids) == WORKERS)
            reap(s, pids, seeds, &tally);
        unsigned at = idle(pids);
        seeds[at] = seed;
        pids[at] = fork();
        if (pids[at] == 0)
            child(s, opt, seed);
    }
    for (unsigned i = 0; i < WORKERS; i++)
        while (pids[i] > 0)
            reap(s, pids, seeds, &tally);
    return tally;
}

static double seconds(void)
{
    struct timespec t;
    timespec_get(&t, TIME_UTC); // clock_gettime is the simulated one
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static bool run_scenario(const struct scenario *s, const struct options *opt)
{
    double began = seconds();
    struct tally t = run_seeds(s, opt);
    if (t.failed == 0)
        printf("ok sim.%s %.2f\n", s->name, seconds() - began);
    else
        printf("not ok sim.%s %llu of %llu seeds failed, the first is %llu\n", s->name,
               (unsigned long long)t.failed, (unsigned long long)opt->seeds,
               (unsigned long long)t.first_seed);
    fflush(stdout);
    return t.failed == 0;
}

static bool is_wanted(const char *name, int argc, char **argv)
{
    for (int i = optind; i < argc; i++)
        if (strcmp(argv[i], name) == 0)
            return true;
    return optind == argc;
}

static bool take_options(int argc, char **argv, struct options *opt)
{
    static const struct option options[] = {{"seeds", required_argument, NULL, 'n'},
                                            {"seed", required_argument, NULL, 's'},
                                            {"trace", no_argument, NULL, 't'},
                                            {0}};
    int c;
    while ((c = getopt_long(argc, argv, "", options, NULL)) >= 0) {
        if (c == 'n')
            opt->seeds = strtoull(optarg, NULL, 10);
        else if (c == 's')
            opt->seed = strtoull(optarg, NULL, 10);
        else if (c == 't')
            opt->trace = true;
        else
            return false;
    }
    return opt->seeds > 0;
}

int main(int argc, char **argv)
{
    struct options opt = {.seed = 1, .seeds = 1};
    bool good = take_options(argc, argv, &opt), any = false;
    (void)mallopt(M_MMAP_THRESHOLD, 1 << 30); // memory that goes back to the kernel has to be cleared again
    (void)mallopt(M_TRIM_THRESHOLD, 1 << 30);
    if (!good) {
        fprintf(stderr, "usage: sim [--seeds N] [--seed S] [--trace] [SCENARIO...]\n");
        return 2;
    }
    for (size_t i = 0; i < sizeof scenarios / sizeof scenarios[0]; i++) {
        if (!is_wanted(scenarios[i].name, argc, argv))
            continue;
        any = true;
        good = run_scenario(&scenarios[i], &opt) && good;
    }
    return good && any ? 0 : 1;
}
