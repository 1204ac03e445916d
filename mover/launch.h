// Starts an agent as a child process whose control plane is its standard input and output: `penstock serve
// --stdio` here, or over ssh. Both standard streams are one end of a socketpair; the other end is the
// caller's. Arguments are passed as they are, never through a shell of ours.
#ifndef PENSTOCK_MOVER_LAUNCH_H
#define PENSTOCK_MOVER_LAUNCH_H

#include <sys/types.h>

#include "proto/base.h"
#include "proto/err.h"

struct launched {
    pid_t pid;
    int fd;
};

// argv[0] is looked up in PATH when it has no slash. stderr and the process group stay the caller's, so that
// ssh can ask on the terminal. Signals are reset; SIGINT, SIGQUIT and SIGHUP, which a terminal sends to
// everybody before it, are blocked in the child: it ends when its input closes. No thread of ours may hold a
// lock: posix_spawn. -errno with *err set (ERR_START).
MUST_CHECK int launch_spawn(char *const argv[], struct launched *out, struct err *err);
// Closes the descriptor (unless fd is -1: somebody has taken it over and closed it), waits up to wait_ms for
// the child to end, then kills it (SIGTERM, two seconds later SIGKILL). Returns its wait status; -1: somebody
// else has taken that, or it has not ended two seconds later still, since it waits in the kernel for a device
// that does not answer: it is left. Blocks.
int launch_end(struct launched *l, uint32_t wait_ms);
// The path of the running program (/proc/self/exe), for a local child; that name itself when the program
// was replaced since. -errno.
MUST_CHECK int launch_self(char *out, size_t len);

#endif
