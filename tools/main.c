// The program: finds the command and runs it.
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "proto/err.h"
#include "tools/command.h"
#include "tools/outcome.h"
#include "proto/version.h"

struct command {
    const char *name, *about;
    int (*run)(int argc, char **argv);
};

static const struct command commands[] = {
    {"copy", "copy files and trees, locally, over ssh or between running agents", cmd_copy},
    {"bench", "measure: a copy whose bytes are made or forgotten", cmd_bench},
    {"serve", "run an agent that copies reach at penstock://HOST/PATH", cmd_serve},
    {"key", "make a key file, which both sides of a copy between agents need", cmd_key},
    {"verify", "read a finished copy again and compare it with its receipt", cmd_verify},
};

static const struct command *find(const char *name)
{
    for (size_t i = 0; i < ARRAY_LEN(commands); i++) {
        if (strcmp(commands[i].name, name) == 0)
            return &commands[i];
    }
    return NULL;
}

static void print_help(FILE *to)
{
    fprintf(to, "Usage: penstock COMMAND [options] ...\n\nCommands:\n");
    for (size_t i = 0; i < ARRAY_LEN(commands); i++)
        fprintf(to, "  %-10s%s\n", commands[i].name, commands[i].about);
    fprintf(
        to,
        "\n`penstock COMMAND --help` tells the options of a command, `penstock --version` the version.\n");
}

static int wrong_command(const char *name)
{
    char clean[256];
    err_escape(clean, sizeof(clean), name, strlen(name));
    fprintf(stderr, "penstock: unknown %s '%s' (see penstock --help)\n",
            name[0] == '-' ? "option" : "command", clean);
    return OUTCOME_USAGE;
}

static int help_on(const char *name)
{
    char option[] = "--help", word[64];
    const struct command *command = find(name);
    if (command == NULL)
        return wrong_command(name);
    snprintf(word, sizeof(word), "%s", name);
    char *argv[] = {word, option, NULL};
    return command->run(2, argv);
}

static int dispatch(int argc, char **argv)
{
    const char *word = argc > 1 ? argv[1] : "";
    if (*word == '\0') {
        fprintf(stderr, "penstock: a command is missing (see penstock --help)\n");
        return OUTCOME_USAGE;
    }
    if (strcmp(word, "--version") == 0 || strcmp(word, "-V") == 0) {
        printf("penstock %s\n", PENSTOCK_VERSION);
        return OUTCOME_COMPLETE;
    }
    bool help = strcmp(word, "help") == 0;
    if (help && argc > 2)
        return help_on(argv[2]);
    if (help || strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) {
        print_help(stdout);
        return OUTCOME_COMPLETE;
    }
    const struct command *command = find(word);
    return command != NULL ? command->run(argc - 1, argv + 1) : wrong_command(word);
}

// A file that is opened must not become the standard output because that was closed.
static bool standard_streams_open(void)
{
    for (int fd = 0; fd <= 2; fd++) {
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd == 0 ? O_RDONLY : O_WRONLY) != fd)
            return false;
    }
    return true;
}

int main(int argc, char **argv)
{
    if (!standard_streams_open() || signal(SIGPIPE, SIG_IGN) == SIG_ERR)
        return OUTCOME_NOT_STARTED;
    int status = dispatch(argc, argv);
    errno = 0;
    if ((fflush(stdout) == 0 && !ferror(stdout)) || errno == EPIPE)
        return status;
    fprintf(stderr, "penstock: standard output: %s\n", errno != 0 ? strerrordesc_np(errno) : "write error");
    return err_exit_worse(status, OUTCOME_INCOMPLETE);
}
