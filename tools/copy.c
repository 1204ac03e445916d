// penstock copy: files and trees.
#include "tools/command.h"
#include "tools/job_command.h"
#include "tools/outcome.h"

static const struct job_command copy = {
    .name = "copy",
    .operands = "SRC... DST",
    .about = "Copies files and trees; what is there already by size and time is skipped, what was begun is "
             "gone on with.",
    .notes = "SRC and DST are PATH, [USER@]HOST:PATH (over ssh) or penstock://HOST[:PORT]/PATH (a running "
             "agent, port 7420\n"
             "unless given; PATH beneath its root). A name with a '/' before its first ':' is a local path. "
             "SRC/ means the\n"
             "contents of SRC, SRC becomes DST/SRC. All sources lie at one place.\n"
             "\n" OUTCOME_HELP,
    .place = place_parse,
};

int cmd_copy(int argc, char **argv)
{
    return job_command_run(&copy, argc, argv);
}
