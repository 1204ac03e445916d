#include "mover/launch.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CUnit/CUnit.h>

#include "mover/net.h"
#include "storage/sys.h"
#include "tests/unit/scratch.h"

static const uint64_t NS_PER_MS = 1000000;

static struct launched launch(char *const argv[])
{
    struct launched l;
    struct err err;
    CU_ASSERT_EQUAL_FATAL(launch_spawn(argv, &l, &err), 0);
    CU_ASSERT_FATAL(l.pid > 0 && l.fd >= 0);
    return l;
}

static struct launched launch_shell(const char *script)
{
    char sh[] = "sh", c[] = "-c", *text = strdup(script);
    CU_ASSERT_PTR_NOT_NULL_FATAL(text);
    char *argv[] = {sh, c, text, NULL};
    struct launched l = launch(argv);
    free(text);
    return l;
}

// Everything the child says until it closes its output.
static const char *hear(const struct launched *l, char *out, size_t len)
{
    size_t got = 0;
    ssize_t n;
    while (got + 1 < len && (n = read(l->fd, out + got, len - 1 - got)) > 0)
        got += (size_t)n;
    out[got] = '\0';
    return out;
}

static void test_both_ways(void)
{
    char cat[] = "cat", *argv[] = {cat, NULL};
    char bytes[32];
    uint32_t open_before = scratch_open_files();
    struct launched l = launch(argv);
    CU_ASSERT_EQUAL(write(l.fd, "there and back", 14), 14);
    CU_ASSERT_EQUAL(net_read_full(l.fd, bytes, 14, sys_clock_ns() + 5000 * NS_PER_MS, -1), 0);
    CU_ASSERT_EQUAL(memcmp(bytes, "there and back", 14), 0);
    int status = launch_end(&l, 5000); // its input closes, so it ends by itself
    CU_ASSERT_TRUE(WIFEXITED(status));
    CU_ASSERT_EQUAL(WEXITSTATUS(status), 0);
    CU_ASSERT_EQUAL(l.fd, -1);
    CU_ASSERT_EQUAL(scratch_open_files(), open_before);
}

static void test_arguments_as_they_are(void)
{
    char env[] = "printf", format[] = "%s|", a[] = "a b", b[] = "$HOME;`id`'\"", c[] = "",
         d[] = "-oProxyCommand=x";
    char *argv[] = {env, format, a, b, c, d, NULL};
    char out[256];
    struct launched l = launch(argv);
    CU_ASSERT_STRING_EQUAL(hear(&l, out, sizeof(out)), "a b|$HOME;`id`'\"||-oProxyCommand=x|");
    CU_ASSERT_EQUAL(launch_end(&l, 5000), 0);
}

static void test_no_program(void)
{
    char none[] = "no-such-program-here", path[] = "/no/such/program", *argv[] = {none, NULL};
    struct launched l = {.pid = 4711, .fd = 4711};
    struct err err;
    uint32_t open_before = scratch_open_files();
    int rc = launch_spawn(argv, &l, &err);
    CU_ASSERT(rc == -ENOENT || rc == -EACCES); // PATH may name a directory that is closed to us
    CU_ASSERT_EQUAL(err.class, ERR_START);
    CU_ASSERT_STRING_EQUAL(err.path, none);
    argv[0] = path;
    CU_ASSERT_EQUAL(launch_spawn(argv, &l, &err), -ENOENT);
    CU_ASSERT_EQUAL(l.pid, 4711);
    CU_ASSERT_EQUAL(scratch_open_files(), open_before);
}

// The child has its three standard streams and nothing else of ours.
static void test_nothing_inherited(void)
{
    char out[256];
    int pair[2];
    CU_ASSERT_EQUAL_FATAL(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    struct launched l = launch_shell("cd /proc/self/fd; for f in *; do [ -e $f ] && echo $f; done; true");
    CU_ASSERT_STRING_EQUAL(hear(&l, out, sizeof(out)), "0\n1\n2\n");
    CU_ASSERT_EQUAL(launch_end(&l, 5000), 0);
    close(pair[0]);
    close(pair[1]);
}

static uint64_t mask_in(const char *status, const char *name)
{
    const char *at = strstr(status, name);
    return at != NULL ? strtoull(at + strlen(name), NULL, 16) : UINT64_MAX;
}

static uint64_t bit_of(int number)
{
    return UINT64_C(1) << (number - 1);
}

// Ours may be ignored or blocked: the child's are not. What a terminal sends to all before it is held back.
static void test_signals(void)
{
    char cat[] = "cat", file[] = "/proc/self/status", *argv[] = {cat, file, NULL};
    char out[8192];
    sigset_t usr, before;
    void (*pipe_before)(int) = signal(SIGPIPE, SIG_IGN);
    sigemptyset(&usr);
    sigaddset(&usr, SIGUSR1);
    CU_ASSERT_EQUAL(sigprocmask(SIG_BLOCK, &usr, &before), 0);
    struct launched l = launch(argv);
    CU_ASSERT_EQUAL(sigprocmask(SIG_SETMASK, &before, NULL), 0);
    signal(SIGPIPE, pipe_before);
    hear(&l, out, sizeof(out));
    CU_ASSERT_EQUAL(mask_in(out, "SigBlk:"), bit_of(SIGINT) | bit_of(SIGQUIT) | bit_of(SIGHUP));
    CU_ASSERT_EQUAL(mask_in(out, "SigIgn:") & 0x7fffffff, 0); // the two above are the C library's own
    CU_ASSERT_EQUAL(launch_end(&l, 5000), 0);
}

// Only who stands before the terminal may ask on it: the child is in our process group.
static void test_process_group(void)
{
    char cat[] = "cat", *argv[] = {cat, NULL};
    struct launched l = launch(argv);
    CU_ASSERT_EQUAL(getpgid(l.pid), getpgrp());
    CU_ASSERT_EQUAL(launch_end(&l, 5000), 0);
}

static void expect_ended(const char *script, uint32_t wait_ms, int by_signal, uint64_t most_ms)
{
    char ready[8];
    struct launched l = launch_shell(script);
    CU_ASSERT_EQUAL(net_read_full(l.fd, ready, 3, sys_clock_ns() + 5000 * NS_PER_MS, -1), 0);
    uint64_t start = sys_clock_ns();
    int status = launch_end(&l, wait_ms);
    uint64_t took_ms = (sys_clock_ns() - start) / NS_PER_MS;
    CU_ASSERT(took_ms < most_ms);
    if (by_signal != 0)
        CU_ASSERT(took_ms >= wait_ms);
    CU_ASSERT_EQUAL(WIFSIGNALED(status) ? WTERMSIG(status) : 0, by_signal);
    if (by_signal == 0)
        CU_ASSERT_EQUAL(WEXITSTATUS(status), 7);
}

static void test_end(void)
{
    expect_ended("echo ok; cat; exit 7", 5000, 0, 3000);
    expect_ended("echo ok; exec sleep 60", 100, SIGTERM, 2000); // does not look at its input
}

static void test_end_of_a_stubborn_one(void)
{
    expect_ended("trap '' TERM; echo ok; exec sleep 60", 50, SIGKILL, 10000);
}

static void test_taken_over(void)
{
    char cat[] = "cat", *argv[] = {cat, NULL};
    struct launched l = launch(argv);
    close(l.fd); // as a channel does
    l.fd = -1;
    CU_ASSERT_EQUAL(launch_end(&l, 5000), 0);
}

static void test_self(void)
{
    char path[4096], link[4096] = "", small[4];
    ssize_t n = readlink("/proc/self/exe", link, sizeof(link) - 1);
    CU_ASSERT(n > 0);
    CU_ASSERT_EQUAL(launch_self(path, sizeof(path)), 0);
    CU_ASSERT_STRING_EQUAL(path, link);
    CU_ASSERT_EQUAL(launch_self(small, sizeof(small)), -ENAMETOOLONG);
}

void suite_launch(void)
{
    CU_pSuite suite = CU_add_suite("launch", NULL, NULL);
    CU_add_test(suite, "both_ways", test_both_ways);
    CU_add_test(suite, "arguments_as_they_are", test_arguments_as_they_are);
    CU_add_test(suite, "no_program", test_no_program);
    CU_add_test(suite, "nothing_inherited", test_nothing_inherited);
    CU_add_test(suite, "signals", test_signals);
    CU_add_test(suite, "process_group", test_process_group);
    CU_add_test(suite, "end", test_end);
    CU_add_test(suite, "end_of_a_stubborn_one", test_end_of_a_stubborn_one);
    CU_add_test(suite, "taken_over", test_taken_over);
    CU_add_test(suite, "self", test_self);
}
