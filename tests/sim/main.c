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
#include "tests/sim/wraps.h"

enum { WORKERS = 2, BATCH_MAX = 16, WATCHDOG_S = 120, SEEDS_FOR_TSAN = 20 };

static const struct scenario {
    const char *name;
    void (*run)(void *turn);
    void (*prepare)(struct turn *turn); // chooses turn->world_seed; may be NULL
    unsigned share; // when all run: of so many seeds it gets one, as it finds the least for its time
} scenarios[] = {
    {"copy", scenario_copy, NULL, 4},
    {"lossy", scenario_lossy, NULL, 2},
    {"crash", scenario_crash, NULL, 1},
    {"kill", scenario_kill, NULL, 1},
    {"source", scenario_source, NULL, 2},
    {"full", scenario_full, NULL, 4},
    {"rivals", scenario_rivals, NULL, 4},
    {"stuck", scenario_stuck, NULL, 2},
    {"sweep", scenario_sweep, sweep_prepare, 1},
};

// The sanitizer keeps freed memory back; much of it costs more than the simulation.
const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
    return "quarantine_size_mb=8";
}

struct options {
    uint64_t seed, seeds;
    uint64_t step; // what is split among the seeds of a run is split in so many parts
    bool trace;
};

struct tally {
    uint64_t failed, first_seed;
};

// A child runs some seeds, one after the other: a process of its own for each would cost more than the seeds.
struct worker {
    pid_t pid;       // 0: idle
    uint64_t *seed;  // in shared memory: the one it is at
    uint64_t behind; // its last seed, and one
};

// All worlds of a seed.
static void run_seed(const struct scenario *s, const struct options *opt, uint64_t seed)
{
    struct turn t = {.seed = seed, .seeds = opt->step, .world_seed = seed, .again = true};
    for (; t.again; t.number++) {
        t.again = false;
        if (s->prepare != NULL)
            s->prepare(&t);
        alarm(WATCHDOG_S);
        world_begin(t.world_seed);
        net_begin();
        sched_run(s->run, &t);
        world_end();
    }
}

static void child(const struct scenario *s, const struct options *opt, const struct worker *w)
{
    world_set_trace(opt->trace);
    for (; *w->seed < w->behind; ++*w->seed)
        run_seed(s, opt, *w->seed);
    _exit(0);
}

static void start(const struct scenario *s, const struct options *opt, struct worker *w)
{
    w->pid = fork();
    if (w->pid == 0)
        child(s, opt, w);
    if (w->pid < 0) {
        perror("fork");
        exit(1);
    }
}

// Waits for a worker to end. One that failed goes on behind the seed that it failed with.
static void reap(const struct scenario *s, const struct options *opt, struct worker workers[WORKERS],
                 struct tally *t)
{
    int status;
    pid_t pid = waitpid(-1, &status, 0);
    struct worker *w = workers;
    while (w->pid != pid)
        w++;
    w->pid = 0;
    if (status == 0)
        return;
    fprintf(stderr, "sim.%s failed (status %d): sim --seed %llu --step %llu --trace %s\n", s->name, status,
            (unsigned long long)*w->seed, (unsigned long long)opt->step, s->name);
    if (t->failed++ == 0 || *w->seed < t->first_seed)
        t->first_seed = *w->seed;
    if (++*w->seed < w->behind)
        start(s, opt, w);
}

static bool busy(const struct worker workers[WORKERS])
{
    bool any = false;
    for (unsigned i = 0; i < WORKERS; i++)
        any = any || workers[i].pid != 0;
    return any;
}

static struct tally run_seeds(const struct scenario *s, const struct options *opt)
{
    struct tally tally = {0};
    struct worker workers[WORKERS] = {0};
    uint64_t *shared = __real_mmap(NULL, WORKERS * sizeof *shared, PROT_READ | PROT_WRITE,
                                   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    uint64_t next = opt->seed, behind = opt->seed + opt->seeds;
    uint64_t batch = u64_max(u64_min(opt->seeds / (4 * WORKERS), BATCH_MAX), 1);
    while (next < behind || busy(workers)) {
        bool started = false;
        for (unsigned i = 0; i < WORKERS && next < behind; i++) {
            if (workers[i].pid != 0)
                continue;
            workers[i].seed = &shared[i];
            *workers[i].seed = next;
            next = workers[i].behind = u64_min(next + batch, behind);
            start(s, opt, &workers[i]);
            started = true;
        }
        if (!started)
            reap(s, opt, workers, &tally);
    }
    return tally;
}

static double seconds(void)
{
    struct timespec t;
    timespec_get(&t, TIME_UTC); // clock_gettime is the simulated one
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static bool run_scenario(const struct scenario *s, const struct options *all, bool named)
{
    struct options some = *all, *opt = &some;
    some.seeds = named ? all->seeds : (all->seeds + s->share - 1) / s->share;
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
                                            {"step", required_argument, NULL, 'p'},
                                            {"trace", no_argument, NULL, 't'},
                                            {0}};
    int c;
    while ((c = getopt_long(argc, argv, "", options, NULL)) >= 0) {
        if (c == 'n')
            opt->seeds = strtoull(optarg, NULL, 10);
        else if (c == 's')
            opt->seed = strtoull(optarg, NULL, 10);
        else if (c == 'p')
            opt->step = strtoull(optarg, NULL, 10);
        else if (c == 't')
            opt->trace = true;
        else
            return false;
    }
#ifdef __SANITIZE_THREAD__
    opt->seeds = opt->seeds < SEEDS_FOR_TSAN ? opt->seeds : SEEDS_FOR_TSAN; // one thread: it only has to run
#endif
    opt->step = opt->step > 0 ? opt->step : opt->seeds;
    return opt->seeds > 0;
}

int main(int argc, char **argv)
{
    struct options opt = {.seed = 1, .seeds = 1};
    bool good = take_options(argc, argv, &opt), any = false;
    (void)mallopt(M_MMAP_THRESHOLD, 1 << 30); // memory that goes back to the kernel has to be cleared again
    (void)mallopt(M_TRIM_THRESHOLD, 1 << 30);
    if (!good) {
        fprintf(stderr, "usage: sim [--seeds N] [--seed S] [--step N] [--trace] [SCENARIO...]\n");
        return 2;
    }
    for (size_t i = 0; i < sizeof scenarios / sizeof scenarios[0]; i++) {
        if (!is_wanted(scenarios[i].name, argc, argv))
            continue;
        any = true;
        good = run_scenario(&scenarios[i], &opt, optind < argc) && good;
    }
    return good && any ? 0 : 1;
}
