// What the two sides of the listener's fork share. Nobody else includes it.
#ifndef PENSTOCK_MOVER_SERVE_INNER_H
#define PENSTOCK_MOVER_SERVE_INNER_H

#include <poll.h>
#include <sys/types.h>

#include "mover/door.h"
#include "mover/serve.h"

enum { FROM_BYTES = 80, LINE_BYTES = 640 };

// A process that runs a job, or has a connection that has yet to show its key.
struct child {
    pid_t pid;
    int pair; // sockets go to it, notes come back
    struct job_id job;
    bool proved;
    bool silent; // it has closed its end
    char from[FROM_BYTES];
};

struct server {
    const struct serve_config *cfg;
    void (*cfg_say)(void *arg, const char *line);
    void *cfg_arg;
    int stop_fd;
    int listeners[NET_LISTEN_MAX], listeners_count;
    uint16_t port;
    struct door *door;
    struct child *children; // in the order in which they came
    size_t count, children_max, jobs_max;
    struct pollfd *fds;
    uint64_t rest_until_ns, rest_said_ns;
    uint64_t said_ns; // when a refusal was last told
    unsigned unsaid;  // refusals since
    uint64_t refused_said, refused_ns;
};

// From the child, once: how its handshake went. Answered by one word when it has proved itself.
enum note_kind { NOTE_PROVED = 'P', NOTE_REFUSED = 'R' };
enum word { WORD_GO = 'G', WORD_BUSY = 'B', WORD_TWICE = 'T' };

struct child_note {
    char kind;
    char text[159]; // why it was refused
};

void serve_say(const struct server *s, const char *fmt, ...) PRINTF_LIKE(2, 3);

// The child's side of the fork: gives up everything of the listener's, makes the other end show its key, runs
// the job.
_Noreturn void serve_child(struct server *s, const struct arrival *a, int pair, pid_t parent);

#endif
