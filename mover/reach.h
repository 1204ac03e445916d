// Reaching the agent of a place. A local one and one over ssh are the same thing: a child whose control plane
// is its standard input and output. A running agent is dialled and takes up TLS with the pre-shared key.
#ifndef PENSTOCK_MOVER_REACH_H
#define PENSTOCK_MOVER_REACH_H

#include "mover/channel.h"
#include "mover/key.h"
#include "mover/launch.h"
#include "mover/net.h"
#include "mover/place.h"

struct reach_config {
    const struct key_ring *keys; // for running agents; NULL: none
    enum net_family family;
    const char *bind_to;        // local address to dial from, or NULL
    const char *rsh;            // split at spaces; NULL: "ssh"
    const char *remote_path;    // NULL: "penstock"
    uint16_t port, port_hi;     // on which a child takes data; 0: any
    bool loopback;              // a child takes data of this host only
    const struct place *inside; // the other end, over ssh: a local child can make connections to it inside
                                // ssh (mover/inside.h); NULL: there is none
};

// Reaches the agent, blocking while it dials; `id` is what the job goes by there, `cancel_fd` (or -1)
// becoming readable ends it with -ECANCELED. Channel (NULL before) and child (pid 0 before) are the caller's,
// to be left by reach_leave whatever came back. -errno with *err set, which names the node.
MUST_CHECK int reach_agent(const struct reach_config *cfg, const struct place *place, const struct job_id *id,
                           int cancel_fd, struct channel **channel, struct launched *child, struct err *err);
// Closes the channel, which may be NULL, and waits some seconds for the child, if there is one, before it
// ends it.
void reach_leave(struct channel *channel, struct launched *child);
// Whether `rsh` (NULL: "ssh") can be run: -EINVAL with *err (ERR_USAGE) when it has no word, or more than are
// passed on.
MUST_CHECK int reach_check_rsh(const char *rsh, struct err *err);
// What the end is called in words to people: its host.
const char *reach_name(const struct place *place);
// What a control connection that ended with -errno means, in *err without the node. `spoke`: a message had
// come; before its first word the agent was never there.
void reach_lost(const struct channel *channel, const struct launched *child, bool spoke, int error,
                struct err *err);

#endif
