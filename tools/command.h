// The commands of the program: one file each, listed in tools/main.c. argv[0] is the command's name; the
// result is the exit status (tools/outcome.h). SIGPIPE is ignored and descriptors 0 to 2 are open when they
// run.
#ifndef PENSTOCK_TOOLS_COMMAND_H
#define PENSTOCK_TOOLS_COMMAND_H

int cmd_copy(int argc, char **argv);
int cmd_bench(int argc, char **argv);
int cmd_serve(int argc, char **argv);
int cmd_key(int argc, char **argv);
int cmd_verify(int argc, char **argv);

#endif
