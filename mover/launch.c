#include "mover/launch.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "proto/limits.h"
#include "storage/sys.h"

enum {
    TERM_WAIT_MS = 2000, // from SIGTERM to SIGKILL
    KILL_WAIT_MS = 2000, // after that it waits in the kernel for a device that does not answer
};

static const uint64_t NS_PER_MS = 1000000;

extern char **environ;

// The child's signals: none ignored or caught, and those that a terminal sends to everybody in front of it
// are held back. Its process group is ours, since only who is in front may ask for a password.
static int signals_set(posix_spawnattr_t *attr)
{
    sigset_t all, held;
    sigfillset(&all);
    sigemptyset(&held);
    sigaddset(&held, SIGINT);
    sigaddset(&held, SIGQUIT);
    sigaddset(&held, SIGHUP);
    int rc = posix_spawnattr_setsigdefault(attr, &all);
    if (rc == 0)
        rc = posix_spawnattr_setsigmask(attr, &held);
    if (rc == 0)
        rc = posix_spawnattr_setflags(attr, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);
    return rc;
}

static int spawn_with(char *const argv[], int stdio, posix_spawn_file_actions_t *actions,
                      posix_spawnattr_t *attr, pid_t *pid)
{
    int rc = posix_spawn_file_actions_adddup2(actions, stdio, STDIN_FILENO);
    if (rc == 0)
        rc = posix_spawn_file_actions_adddup2(actions, stdio, STDOUT_FILENO);
    if (rc == 0) // whatever else we or who started us left open
        rc = posix_spawn_file_actions_addclosefrom_np(actions, STDERR_FILENO + 1);
    if (rc == 0)
        rc = signals_set(attr);
    return rc == 0 ? posix_spawnp(pid, argv[0], actions, attr, argv, environ) : rc;
}

static int spawn(char *const argv[], int stdio, pid_t *pid)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attr;
    int rc = posix_spawn_file_actions_init(&actions);
    if (rc != 0)
        return -rc;
    rc = posix_spawnattr_init(&attr);
    if (rc == 0) {
        rc = spawn_with(argv, stdio, &actions, &attr, pid);
        posix_spawnattr_destroy(&attr);
    }
    posix_spawn_file_actions_destroy(&actions);
    return -rc;
}

int launch_spawn(char *const argv[], struct launched *out, struct err *err)
{
    int pair[2];
    struct launched l;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0) {
        int rc = -errno;
        err_set(err, ERR_START, -rc, "socketpair", NULL, 0, NULL);
        return rc;
    }
    int rc = spawn(argv, pair[1], &l.pid);
    close(pair[1]);
    if (rc < 0) {
        close(pair[0]);
        err_set(err, ERR_START, -rc, "run", argv[0], strlen(argv[0]), NULL);
        return rc;
    }
    l.fd = pair[0];
    *out = l;
    return 0;
}

// Waits for a child in a thread of its own, so that the caller can give up waiting (the kernels we support
// have no descriptor for a process).
struct watch {
    pid_t pid;
    int end_fd; // of a pipe: closed once the child has ended
};

static void *watch_run(void *arg)
{
    struct watch *w = arg;
    siginfo_t info;
    int rc;
    do {
        rc = waitid(P_PID, (id_t)w->pid, &info,
                    WEXITED | WNOWAIT); // the id stays the child's until it is reaped below
    } while (rc < 0 && errno == EINTR);
    close(w->end_fd);
    free(w);
    return NULL;
}

// Starts it; the caller waits for the end of what *fd reads from.
static int watch_start(pid_t pid, pthread_t *thread, int *fd)
{
    int pipe[2];
    struct watch *w = malloc(sizeof *w);
    if (w == NULL)
        return -ENOMEM;
    int rc = pipe2(pipe, O_CLOEXEC) < 0 ? -errno : 0;
    if (rc == 0) {
        *w = (struct watch){.pid = pid, .end_fd = pipe[1]};
        *fd = pipe[0];
        rc = -pthread_create(thread, NULL, watch_run, w);
        if (rc == 0)
            return 0;
        close(pipe[0]);
        close(pipe[1]);
    }
    free(w);
    return rc;
}

static bool watch_ended(int end_fd, uint32_t wait_ms)
{
    struct pollfd fd = {.fd = end_fd, .events = POLLIN};
    uint64_t deadline = sys_clock_ns() + wait_ms * NS_PER_MS;
    for (;;) {
        uint64_t now = sys_clock_ns();
        int left_ms = now < deadline ? (int)u64_min(u64_div_up(deadline - now, NS_PER_MS), INT32_MAX) : 0;
        int n = poll(&fd, 1, left_ms);
        if (n > 0)
            return true;
        if (n == 0 && left_ms == 0)
            return false;
        if (n < 0 && errno != EINTR)
            return false;
    }
}

static void child_signal(pid_t pid, int number)
{
    int rc = kill(pid, number);
    assert(rc == 0 ||
           errno == EPERM); // it is ours and not reaped; one that has changed its user ends with its input
}

// False: it does not even end by SIGKILL.
static bool child_urge(const struct launched *l, uint32_t wait_ms)
{
    pthread_t thread;
    int end_fd = -1;
    if (watch_start(l->pid, &thread, &end_fd) < 0) {
        child_signal(l->pid, SIGKILL);
        return true;
    }
    bool ended = watch_ended(end_fd, wait_ms);
    if (!ended) {
        child_signal(l->pid, SIGTERM);
        ended = watch_ended(end_fd, TERM_WAIT_MS);
    }
    if (!ended) {
        child_signal(l->pid, SIGKILL);
        ended = watch_ended(end_fd, KILL_WAIT_MS);
    }
    int rc = ended ? pthread_join(thread, NULL) : pthread_detach(thread);
    assert(rc == 0);
    close(end_fd);
    return ended;
}

int launch_end(struct launched *l, uint32_t wait_ms)
{
    int status = 0;
    if (l->fd >= 0)
        close(l->fd);
    bool ended = child_urge(l, wait_ms);
    pid_t got;
    do {
        got = ended ? waitpid(l->pid, &status, 0) : 0;
    } while (got < 0 && errno == EINTR);
    bool reaped = got == l->pid;
    *l = (struct launched){.pid = -1, .fd = -1};
    return reaped ? status : -1;
}

int launch_self(char *out, size_t len)
{
    ssize_t n = sys_readlinkat(AT_FDCWD, "/proc/self/exe", out, len);
    if (n < 0)
        return (int)n;
    if ((size_t)n >= len)
        return -ENAMETOOLONG;
    out[n] = '\0';
    // A program that was replaced by another release has lost its name, but can still be run by what it is.
    static const char lost[] = " (deleted)", self[] = "/proc/self/exe";
    size_t end = (size_t)n >= strlen(lost) ? (size_t)n - strlen(lost) : 0;
    if (strcmp(out + end, lost) != 0)
        return 0;
    if (sizeof(self) > len)
        return -ENAMETOOLONG;
    memcpy(out, self, sizeof(self));
    return 0;
}
