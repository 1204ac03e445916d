// nosys ERRNO NUMBER... -- COMMAND...: runs COMMAND where these system calls fail with ERRNO; NUMBER+ stands
// for all calls from that number on, as on a kernel that is older than they are.
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

enum { CALLS_MAX = 32, FIXED = 1 };

static int wrong(const char *what)
{
    fprintf(stderr, "nosys: %s: %s\n", what, strerror(errno));
    return 125;
}

int main(int argc, char **argv)
{
    struct sock_filter program[FIXED + 2 * CALLS_MAX + 1] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr))};
    unsigned short len = FIXED;
    int at = 2;
    unsigned error = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : 0;
    for (; at < argc && strcmp(argv[at], "--") != 0 && at - 2 < CALLS_MAX; at++) {
        char *end;
        unsigned number = (unsigned)strtoul(argv[at], &end, 10);
        program[len++] = (struct sock_filter)BPF_JUMP(
            (unsigned short)(BPF_JMP | BPF_K | (*end == '+' ? BPF_JGE : BPF_JEQ)), number, 0, 1);
        program[len++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error);
    }
    if (error == 0 || at + 1 >= argc || strcmp(argv[at], "--") != 0) {
        fprintf(stderr, "usage: nosys ERRNO NUMBER... -- COMMAND...\n");
        return 125;
    }
    program[len++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog filter = {.len = len, .filter = program};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return wrong("no_new_privs");
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) < 0)
        return wrong("seccomp");
    execvp(argv[at + 1], &argv[at + 1]);
    return wrong(argv[at + 1]);
}
