// The peer connection of two agents, as its stream's thread uses it: a sealed channel, and a bell that other
// threads ring.
#ifndef PENSTOCK_MOVER_PEER_H
#define PENSTOCK_MOVER_PEER_H

#include "mover/channel.h"
#include "mover/stall.h"
#include "mover/stream.h"

struct peer {
    struct channel *channel;
    struct stream *stream;
    int bell_fd;
    struct stall_path path;
};

// Takes its own descriptor of the connection: conn's stays the stream's.
MUST_CHECK int peer_open(struct stream *s, const struct conn *conn, struct peer *out);
void peer_close(struct peer *p);
// Moves bytes both ways; with `wait` blocks until there is something to do (bytes, the bell, the end, or what
// was sent to be looked after). 0, -ENODATA (closed; messages may still be taken), -ETIMEDOUT (the path is
// dead), or another -errno.
MUST_CHECK int peer_turn(struct peer *p, bool wait);
// Leaves the connection as it is until the stream is to end.
void peer_rest(struct peer *p);

#endif
