// Which engine is taken, and what is left behind. What a kernel or an account refuses is played by a child
// process that binds itself.
#include <dirent.h>
#include <errno.h>
#include <grp.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "tests/unit/engine_kit.h"

enum { WHY_BYTES = 160, NOBODY = 65534 };

static void test_names(void)
{
    CU_ASSERT_STRING_EQUAL(engine_kind_name(ENGINE_AUTO), "auto");
    CU_ASSERT_STRING_EQUAL(engine_kind_name(ENGINE_URING), "uring");
    CU_ASSERT_STRING_EQUAL(engine_kind_name(ENGINE_AIO), "aio");
    CU_ASSERT_STRING_EQUAL(engine_kind_name(ENGINE_THREADS), "threads");
}

// What a child finds out; every field is plain, so that it can be compared by the parent.
struct finding {
    int rc; // of engine_new
    enum engine_kind kind;
    bool works; // a write and a read through a file
    char why[WHY_BYTES];
};

static bool works(struct engine *e)
{
    char out[] = "through the engine", in[sizeof(out)] = "";
    int fd = kit_file("/dev/shm", 0);
    bool same = kit_run(e, kit_transfer(OP_WRITE, fd, out, sizeof(out), 0)) == 0 &&
                kit_run(e, kit_transfer(OP_READ, fd, in, sizeof(in), 0)) == sizeof(in) &&
                memcmp(out, in, sizeof(in)) == 0;
    close(fd);
    return same;
}

static struct finding look(enum engine_kind kind, unsigned depth)
{
    struct engine_config cfg = {.kind = kind, .depth = depth, .file_threads = 1};
    struct finding f = {.kind = ENGINE_KINDS};
    struct engine *e = NULL;
    f.rc = engine_new(&cfg, &e, f.why);
    if (f.rc == 0) {
        f.kind = engine_kind_of(e);
        f.works = works(e);
        engine_free(e);
    }
    return f;
}

// From now on the system call answers with this errno.
static bool refuse(long call, int os_errno)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)call, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)os_errno),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = ARRAY_LEN(code), .filter = code};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

// An account without privileges that may lock so much memory. An account that is one already stays.
static bool become_nobody(rlim_t memlock)
{
    struct rlimit limit = {memlock, memlock};
    if (setrlimit(RLIMIT_MEMLOCK, &limit) < 0)
        return false;
    return geteuid() != 0 || (setgroups(0, NULL) == 0 && setgid(NOBODY) == 0 && setuid(NOBODY) == 0);
}

struct hardship {
    long call; // refused with os_errno, -1: none
    int os_errno;
    rlim_t memlock; // 0: as it is
    enum engine_kind kind;
    unsigned depth;
};

// Tells what a child under this hardship finds.
static struct finding suffer(const struct hardship *h)
{
    struct finding f = {.rc = 1};
    int pipe_fds[2];
    CU_ASSERT_EQUAL_FATAL(pipe(pipe_fds), 0);
    pid_t child = fork();
    CU_ASSERT_FATAL(child >= 0);
    if (child == 0) {
        bool ready =
            (h->memlock == 0 || become_nobody(h->memlock)) && (h->call < 0 || refuse(h->call, h->os_errno));
        if (ready)
            f = look(h->kind, h->depth);
        _exit(write(pipe_fds[1], &f, sizeof(f)) != sizeof(f));
    }
    close(pipe_fds[1]);
    CU_ASSERT_EQUAL(read(pipe_fds[0], &f, sizeof(f)), sizeof(f));
    close(pipe_fds[0]);
    CU_ASSERT_EQUAL(waitpid(child, NULL, 0), child);
    fprintf(stderr, "  %d: %s\n", f.rc, f.why);
    return f;
}

static void test_refused(void)
{
    static const struct {
        struct hardship hardship;
        int rc;
        enum engine_kind kind;
        const char *why;
    } cases[] = {
        {{SYS_io_uring_setup, ENOSYS, 0, ENGINE_AUTO, 8},
         0,
         ENGINE_THREADS,
         "threads (io_uring: ENOSYS, not in this kernel, or refused by a seccomp filter)"},
        {{SYS_io_uring_setup, EPERM, 0, ENGINE_AUTO, 8},
         0,
         ENGINE_THREADS,
         "threads (io_uring: EPERM, kernel.io_uring_disabled, or refused by a seccomp filter)"},
        {{SYS_io_uring_setup, ENOMEM, 0, ENGINE_AUTO, 1000},
         0,
         ENGINE_THREADS,
         "threads (io_uring: ENOMEM, memory, or the limit of locked memory)"},
        {{SYS_io_uring_setup, EINVAL, 0, ENGINE_AUTO, 8},
         0,
         ENGINE_THREADS,
         "threads (io_uring: EINVAL, io_uring_setup)"},
        {{SYS_io_uring_register, EINVAL, 0, ENGINE_AUTO, 8},
         0,
         ENGINE_THREADS,
         "threads (io_uring: this kernel's is too old, 5.11 is needed)"},
        {{SYS_io_uring_setup, EPERM, 0, ENGINE_URING, 8},
         -EPERM,
         ENGINE_KINDS,
         "io_uring: EPERM, kernel.io_uring_disabled, or refused by a seccomp filter"},
        {{SYS_io_uring_register, EINVAL, 0, ENGINE_URING, 8},
         -ENOSYS,
         ENGINE_KINDS,
         "io_uring: this kernel's is too old, 5.11 is needed"},
        {{SYS_io_uring_setup, ENOSYS, 0, ENGINE_AIO, 8},
         0,
         ENGINE_AIO,
         "aio (direct I/O; poll and file threads for the rest)"},
        {{SYS_io_setup, ENOSYS, 0, ENGINE_AIO, 8},
         -ENOSYS,
         ENGINE_KINDS,
         "libaio: ENOSYS, not in this kernel, or refused by a seccomp filter"},
        {{SYS_io_setup, EAGAIN, 0, ENGINE_AIO, 8},
         -EAGAIN,
         ENGINE_KINDS,
         "libaio: EAGAIN, fs.aio-max-nr is used up"},
        {{SYS_io_setup, EPERM, 0, ENGINE_THREADS, 8}, 0, ENGINE_THREADS, "threads (poll, file threads)"},
        {{SYS_eventfd2, EMFILE, 0, ENGINE_AUTO, 8},
         -EMFILE,
         ENGINE_KINDS,
         "file threads: Too many open files"},
        {{SYS_clone3, EAGAIN, 0, ENGINE_AUTO, 8},
         -EAGAIN,
         ENGINE_KINDS,
         "file threads: Resource temporarily unavailable"},
    };
    bool has_uring = look(ENGINE_URING, 8).rc == 0;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        if (cases[i].hardship.call == SYS_io_uring_register && !has_uring)
            continue;
        struct finding f = suffer(&cases[i].hardship);
        CU_ASSERT_EQUAL(f.rc, cases[i].rc);
        CU_ASSERT_EQUAL(f.kind, cases[i].kind);
        CU_ASSERT_EQUAL(f.works, cases[i].rc == 0);
        CU_ASSERT_STRING_EQUAL(f.why, cases[i].why);
    }
}

// An ordinary account with the usual limit gets what root gets; with less than a deep ring needs it gets a
// smaller one, with nothing the threads where the kernel counts rings, and all of them work.
static void test_ordinary_account(void)
{
    struct finding as_we_are = look(ENGINE_AUTO, 128), f;
    const struct hardship usual = {-1, 0, 8 << 20, ENGINE_AUTO, 128},
                          poor = {-1, 0, 256 << 10, ENGINE_AUTO, 4000},
                          beggar = {-1, 0, 1, ENGINE_AUTO, 4000};
    f = suffer(&usual);
    CU_ASSERT(f.rc == 0 && f.works);
    CU_ASSERT_EQUAL(f.kind, as_we_are.kind);
    CU_ASSERT_STRING_EQUAL(f.why, as_we_are.why);
    // The kernel gives back the memory of a closed ring late.
    uint64_t end_ns = sys_clock_ns() + UINT64_C(5000000000);
    do {
        f = suffer(&poor);
    } while (f.kind != as_we_are.kind && sys_clock_ns() < end_ns);
    CU_ASSERT_EQUAL(f.kind, as_we_are.kind);
    CU_ASSERT(f.rc == 0 && f.works);
    f = suffer(&beggar);
    CU_ASSERT(f.rc == 0 && f.works);
}

// The kernel takes no more submissions: a step that may wait does, and after a second the engine says that it
// broke.
static int never_entered(void)
{
    struct engine_config cfg = {.kind = ENGINE_URING, .depth = 4, .file_threads = 1};
    struct engine *e;
    char byte;
    struct kit_op op = kit_transfer(OP_READ, STDIN_FILENO, &byte, 1, 0);
    if (engine_new(&cfg, &e, NULL) < 0)
        return 0;
    if (!refuse(SYS_io_uring_enter, EAGAIN))
        return 1;
    engine_start(e, &op.op);
    uint64_t start_ns = sys_clock_ns();
    if (engine_step(e, 0) != 0 || sys_clock_ns() - start_ns > UINT64_C(5000000000))
        return 2;
    if (engine_step(e, 50) != 0 || sys_clock_ns() - start_ns < UINT64_C(50000000))
        return 3;
    engine_wake(e);
    if (engine_step(e, -1) != 0)
        return 4;
    return engine_step(e, -1) == -EAGAIN && op.done == 0 ? 0 : 5;
}

static void test_ring_refuses(void)
{
    int status;
    pid_t child = fork();
    CU_ASSERT_FATAL(child >= 0);
    if (child == 0)
        _exit(never_entered());
    CU_ASSERT_EQUAL(waitpid(child, &status, 0), child);
    CU_ASSERT_TRUE(WIFEXITED(status));
    CU_ASSERT_EQUAL(WEXITSTATUS(status), 0);
}

static unsigned entries_of(const char *path)
{
    unsigned count = 0;
    DIR *dir = opendir(path);
    CU_ASSERT_PTR_NOT_NULL_FATAL(dir);
    while (readdir(dir) != NULL)
        count++;
    closedir(dir);
    return count;
}

static void *use_engine(void *arg)
{
    enum engine_kind kind = *(const enum engine_kind *)arg;
    struct engine *e = kit_engine(kind);
    if (e == NULL)
        return NULL;
    int fds[2];
    char out[100] = "", in[100];
    CU_ASSERT_TRUE(works(e));
    CU_ASSERT_EQUAL_FATAL(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    struct kit_op sends = kit_transfer(OP_SEND, fds[0], out, sizeof(out), 0);
    struct kit_op receives = kit_transfer(OP_RECV, fds[1], in, sizeof(in), 0);
    engine_start(e, &receives.op);
    CU_ASSERT_EQUAL(engine_step(e, 1), 0);
    engine_start(e, &sends.op);
    CU_ASSERT_TRUE(kit_drain(e));
    engine_wake(e);
    engine_free(e);
    close(fds[0]);
    close(fds[1]);
    return NULL;
}

// No descriptor and no thread outlives an engine; the kernel's own workers of a ring end with the thread that
// used it.
static void test_leaves_nothing(void)
{
    engine_free(NULL);
    unsigned fds = entries_of("/proc/self/fd"), threads = entries_of("/proc/self/task");
    for (enum engine_kind kind = ENGINE_URING; kind < ENGINE_KINDS; kind++) {
        pthread_t thread;
        CU_ASSERT_EQUAL_FATAL(pthread_create(&thread, NULL, use_engine, &kind), 0);
        CU_ASSERT_EQUAL(pthread_join(thread, NULL), 0);
        CU_ASSERT_EQUAL(entries_of("/proc/self/fd"), fds);
        // A joined thread may still be on its way out of the list.
        uint64_t end_ns = sys_clock_ns() + UINT64_C(5000000000);
        while (entries_of("/proc/self/task") != threads && sys_clock_ns() < end_ns)
            sched_yield();
        CU_ASSERT_EQUAL(entries_of("/proc/self/task"), threads);
    }
}

void suite_engine_choice(void)
{
    CU_pSuite suite = CU_add_suite("engine_choice", NULL, NULL);
    CU_add_test(suite, "names", test_names);
    CU_add_test(suite, "refused", test_refused);
    CU_add_test(suite, "ordinary_account", test_ordinary_account);
    CU_add_test(suite, "ring_refuses", test_ring_refuses);
    CU_add_test(suite, "leaves_nothing", test_leaves_nothing);
}
