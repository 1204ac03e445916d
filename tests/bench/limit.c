// The yardstick's command line; it starts the processes, waits for them, syncs and prints one line of JSON.
#include "tests/bench/limit.h"

#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <linux/magic.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/statfs.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { HUGE_PAGE_BYTES = 2 << 20, STREAMS_MAX = 64, SLOTS_MAX = 256, USAGE = 2 };

static const char usage[] =
    "Usage: limit [options] SOURCE TARGET    copy the files beneath one folder to another, over loopback\n"
    "       limit [options] --memory SIZE    from memory to memory\n"
    "  --streams N   pairs of processes, a TCP connection each (2)\n"
    "  --unit SIZE   what streams take in turn (4M)\n"
    "  --piece SIZE  what is read, digested, sent and received at a time: a power of two up to the unit "
    "(1M)\n"
    "  --slots N     buffers of a receiver, of a MiB or a piece, that may be on their way to the disk (8)\n"
    "  --lowat SIZE  SO_RCVLOWAT while more than that is awaited; 0: off (512K)\n"
    "  --socket SIZE SO_SNDBUF and SO_RCVBUF; 0: as the kernel likes (0)\n"
    "  --pin         every process stays on a processor\n"
    "  --sealed      AES-256-GCM\n"
    "  --map         digest and send from a mapping of the source instead of reading it\n"
    "  --buffered    plain writes, as on tmpfs\n";

void limit_die(const char *what, const char *name)
{
    fprintf(stderr, "limit: %s: %s%s%s\n", what, name, errno != 0 ? ": " : "",
            errno != 0 ? strerror(errno) : "");
    exit(EXIT_FAILURE);
}

uint8_t *limit_memory(size_t bytes)
{
    size_t whole = (bytes + HUGE_PAGE_BYTES - 1) & ~(size_t)(HUGE_PAGE_BYTES - 1);
    void *memory = aligned_alloc(HUGE_PAGE_BYTES, whole);
    if (memory == NULL)
        limit_die("memory", "buffer");
    (void)madvise(memory, whole, MADV_HUGEPAGE); // a hint
    memset(memory, 0, whole);
    return memory;
}

static uint64_t size_of(const char *text)
{
    char *end;
    errno = 0;
    uint64_t value = strtoull(text, &end, 10);
    unsigned shift = *end == 'K' ? 10 : *end == 'M' ? 20 : *end == 'G' ? 30 : 0;
    if (errno != 0 || end == text || (shift == 0 ? *end : end[1]) != '\0' ||
        value > (UINT64_MAX >> 1) >> shift) {
        fprintf(stderr, "limit: %s is no size\n", text);
        exit(USAGE);
    }
    return value << shift;
}

static bool is_power(uint32_t n)
{
    return (n & (n - 1)) == 0;
}

static uint32_t count_of(const char *text, uint32_t max)
{
    uint64_t value = size_of(text);
    if (value > max) {
        fprintf(stderr, "limit: %s is more than %u\n", text, max);
        exit(USAGE);
    }
    return (uint32_t)value;
}

static void set_option(struct limit_options *o, int option)
{
    switch (option) {
    case 's':
        o->streams = count_of(optarg, STREAMS_MAX);
        break;
    case 'u':
        o->unit_bytes = count_of(optarg, LIMIT_UNIT_BYTES_MAX);
        break;
    case 'p':
        o->piece_bytes = count_of(optarg, LIMIT_UNIT_BYTES_MAX);
        break;
    case 'n':
        o->slots = count_of(optarg, SLOTS_MAX);
        break;
    case 'l':
        o->lowat_bytes = count_of(optarg, LIMIT_UNIT_BYTES_MAX);
        break;
    case 'k':
        o->socket_bytes = count_of(optarg, LIMIT_UNIT_BYTES_MAX);
        break;
    case 'P':
        o->pin = true;
        break;
    case 'e':
        o->sealed = true;
        break;
    case 'm':
        o->map = true;
        break;
    case 'b':
        o->write = LIMIT_WRITE_PLAIN;
        break;
    case 'M':
        o->memory_bytes = size_of(optarg);
        break;
    default:
        fputs(usage, stderr);
        exit(USAGE);
    }
}

// Direct writes unless the target has no disk.
static enum limit_write writing(const struct limit_options *o)
{
    struct statfs fs;
    if (o->target == NULL)
        return LIMIT_WRITE_NONE;
    if (statfs(o->target, &fs) < 0)
        limit_die("statfs", o->target);
    return fs.f_type == TMPFS_MAGIC ? LIMIT_WRITE_PLAIN : o->write;
}

static struct limit_options options_of(int argc, char **argv)
{
    static const struct option names[] = {
        {"streams", required_argument, NULL, 's'}, {"unit", required_argument, NULL, 'u'},
        {"piece", required_argument, NULL, 'p'},   {"slots", required_argument, NULL, 'n'},
        {"lowat", required_argument, NULL, 'l'},   {"sealed", no_argument, NULL, 'e'},
        {"map", no_argument, NULL, 'm'},           {"buffered", no_argument, NULL, 'b'},
        {"memory", required_argument, NULL, 'M'},  {"socket", required_argument, NULL, 'k'},
        {"pin", no_argument, NULL, 'P'},           {0},
    };
    struct limit_options o = {.streams = 2,
                              .slots = 8,
                              .unit_bytes = 4 << 20,
                              .piece_bytes = 1 << 20,
                              .lowat_bytes = 512 << 10,
                              .write = LIMIT_WRITE_RING};
    int option;
    while ((option = getopt_long(argc, argv, "", names, NULL)) != -1)
        set_option(&o, option);
    bool memory = o.memory_bytes > LIMIT_LEAF_BYTES;
    if (argc - optind != (memory ? 0 : 2) || o.streams == 0 || o.slots == 0 || o.unit_bytes == 0 ||
        o.unit_bytes % LIMIT_LEAF_BYTES != 0 || o.piece_bytes == 0 || !is_power(o.piece_bytes) ||
        o.unit_bytes % o.piece_bytes != 0)
        set_option(&o, '?');
    if (!memory) {
        o.source = argv[optind];
        o.target = argv[optind + 1];
    }
    o.write = writing(&o);
    return o;
}

// Buffers of a fixed size; set before the connection is made, so that the window can be scaled to it.
static void size_buffers(const struct limit_options *o, int fd)
{
    int bytes = (int)o->socket_bytes;
    if (bytes > 0 && (setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes)) < 0 ||
                      setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes)) < 0))
        limit_die("buffers", "loopback");
}

// Two ends of one connection over loopback.
static void connect_pair(const struct limit_options *o, int ends[2])
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct sockaddr *any = (struct sockaddr *)&address;
    socklen_t len = sizeof(address);
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ends[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    size_buffers(o, listener);
    size_buffers(o, ends[0]);
    if (listener < 0 || ends[0] < 0 || bind(listener, any, len) < 0 || listen(listener, 1) < 0 ||
        getsockname(listener, any, &len) < 0 || connect(ends[0], any, len) < 0)
        limit_die("connect", "loopback");
    ends[1] = accept(listener, NULL, NULL);
    if (ends[1] < 0)
        limit_die("accept", "loopback");
    if (setsockopt(ends[0], IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int)) < 0)
        limit_die("TCP_NODELAY", "loopback");
    close(listener);
}

// Senders and receivers in turn to the processors in turn.
static void pin(unsigned number)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(number % (unsigned)sysconf(_SC_NPROCESSORS_ONLN), &set);
    if (sched_setaffinity(0, sizeof(set), &set) < 0)
        limit_die("affinity", "stream");
}

// Starts process `number`, one of a stream. It ends with its parent.
static void start(const struct limit_options *o, const struct limit_plan *plan, int ends[2], unsigned number)
{
    bool sends = number % 2 == 0;
    pid_t parent = getpid(), pid = fork();
    if (pid < 0)
        limit_die("fork", "stream");
    if (pid > 0)
        return;
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || getppid() != parent)
        exit(EXIT_FAILURE);
    close(ends[sends]);
    if (o->pin)
        pin(number);
    struct limit_end end = {.options = o, .plan = plan, .socket = ends[!sends]};
    if (o->sealed)
        end.cipher = limit_cipher_new(sends);
    if (sends)
        limit_send(&end);
    else
        limit_receive(&end);
    exit(EXIT_SUCCESS);
}

static void wait_all(unsigned processes)
{
    for (; processes > 0; processes--) {
        int status;
        if (wait(&status) < 0)
            limit_die("wait", "stream");
        errno = 0;
        if (status != 0)
            limit_die("a stream", "failed"); // the others end with this process
    }
}

static double seconds_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static double cpu_of(int who)
{
    struct rusage use;
    getrusage(who, &use);
    return (double)(use.ru_utime.tv_sec + use.ru_stime.tv_sec) +
           (double)(use.ru_utime.tv_usec + use.ru_stime.tv_usec) / 1e6;
}

int main(int argc, char **argv)
{
    static const char *const written[] = {"ring", "plain", "none"};
    struct limit_options o = options_of(argc, argv);
    struct limit_plan plan;
    double began = seconds_now();
    limit_plan_make(&o, &plan);
    for (unsigned i = 0; i < o.streams; i++) {
        int ends[2];
        connect_pair(&o, ends);
        start(&o, &plan, ends, 2 * i);
        start(&o, &plan, ends, 2 * i + 1);
        close(ends[0]);
        close(ends[1]);
    }
    wait_all(2 * o.streams);
    limit_plan_sync(&o, &plan);
    double seconds = seconds_now() - began;
    printf("{\"bytes\": %llu, \"files\": %zu, \"seconds\": %.6f, \"cpu_seconds\": %.6f, \"streams\": %u, "
           "\"unit_bytes\": %u, \"piece_bytes\": %u, \"slots\": %u, \"lowat_bytes\": %u, \"sealed\": %s, "
           "\"map\": %s, \"write\": \"%s\"}\n",
           (unsigned long long)plan.bytes, plan.file_count, seconds,
           cpu_of(RUSAGE_SELF) + cpu_of(RUSAGE_CHILDREN), o.streams, o.unit_bytes, o.piece_bytes, o.slots,
           o.lowat_bytes, o.sealed ? "true" : "false", o.map ? "true" : "false", written[o.write]);
    return EXIT_SUCCESS;
}
