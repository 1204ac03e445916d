#include "tests/unit/scratch.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pthread.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static void must(bool ok, const char *what)
{
    if (ok)
        return;
    perror(what);
    abort();
}

struct scratch scratch_begin(void)
{
    struct scratch s;
    const char *where = getenv("TMPDIR");
    int n = snprintf(s.path, sizeof(s.path), "%s/penstock-unit-XXXXXX",
                     where != NULL && where[0] != '\0' ? where : "/tmp");
    must(n > 0 && (size_t)n < sizeof(s.path) && mkdtemp(s.path) != NULL, "mkdtemp");
    s.fd = open(s.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    must(s.fd >= 0 && fchmod(s.fd, 0755) == 0, s.path);
    return s;
}

void scratch_end(struct scratch *s)
{
    close(s->fd);
    char rm[] = "rm", options[] = "-rf", end[] = "--";
    char *argv[] = {rm, options, end, s->path, NULL};
    pid_t pid;
    int status;
    must(posix_spawnp(&pid, "rm", NULL, NULL, argv, environ) == 0, "rm");
    must(waitpid(pid, &status, 0) == pid && status == 0, "rm -rf");
}

void scratch_dir(int fd, const char *path)
{
    must(mkdirat(fd, path, 0755) == 0, path);
}

void scratch_file(int fd, const char *path, const char *text)
{
    int file = openat(fd, path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    must(file >= 0 && write(file, text, strlen(text)) == (ssize_t)strlen(text), path);
    close(file);
}

void scratch_bytes(int fd, const char *path, size_t size)
{
    uint8_t *bytes = malloc(size + 1);
    must(bytes != NULL, "malloc");
    for (size_t i = 0; i < size; i++)
        bytes[i] = (uint8_t)(i * 2654435761U >> 24);
    int file = openat(fd, path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    must(file >= 0 && write(file, bytes, size) == (ssize_t)size, path);
    close(file);
    free(bytes);
}

void scratch_link(int fd, const char *path, const char *target)
{
    must(symlinkat(target, fd, path) == 0, path);
}

int scratch_deep(int fd, const char *name, uint32_t depth, bool with_file)
{
    int at = dup(fd);
    for (uint32_t i = 0; i < depth; i++) {
        scratch_dir(at, name);
        int next = openat(at, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        must(next >= 0, name);
        close(at);
        at = next;
        if (with_file)
            scratch_file(at, "f", "");
    }
    return at;
}

uint32_t scratch_open_files(void)
{
    DIR *dir = opendir("/proc/self/fd");
    must(dir != NULL, "/proc/self/fd");
    uint32_t count = 0;
    while (readdir(dir) != NULL)
        count++;
    closedir(dir);
    return count;
}

static int child(int (*f)(void *arg), void *arg, bool as_nobody)
{
    pid_t pid = fork();
    must(pid >= 0, "fork");
    if (pid == 0) {
        bool nobody = !as_nobody || geteuid() != 0 ||
                      (setgroups(0, NULL) == 0 && setresgid(65534, 65534, 65534) == 0 &&
                       setresuid(65534, 65534, 65534) == 0);
        must(nobody, "setresuid");
        _exit(f(arg));
    }
    int status;
    must(waitpid(pid, &status, 0) == pid, "waitpid");
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

int scratch_child(int (*f)(void *arg), void *arg)
{
    return child(f, arg, true);
}

int scratch_root_child(int (*f)(void *arg), void *arg)
{
    return child(f, arg, false);
}

struct swapper {
    int fd;
    const char *a, *b;
    atomic_bool stop;
    atomic_ullong swaps;
    pthread_t thread;
};

static void *swap(void *arg)
{
    struct swapper *s = arg;
    while (!atomic_load(&s->stop)) {
        if (renameat2(s->fd, s->a, s->fd, s->b, RENAME_EXCHANGE) == 0)
            atomic_fetch_add(&s->swaps, 1);
        else
            must(errno == ENOENT, "renameat2"); // one of them was removed
    }
    return NULL;
}

struct swapper *swapper_start(int fd, const char *a, const char *b)
{
    struct swapper *s = calloc(1, sizeof(*s));
    must(s != NULL, "malloc");
    s->fd = fd;
    s->a = a;
    s->b = b;
    must(pthread_create(&s->thread, NULL, swap, s) == 0, "pthread_create");
    return s;
}

uint64_t swapper_stop(struct swapper *s)
{
    atomic_store(&s->stop, true);
    must(pthread_join(s->thread, NULL) == 0, "pthread_join");
    uint64_t swaps = atomic_load(&s->swaps);
    free(s);
    return swaps;
}
