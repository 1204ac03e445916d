// Connections: two directions of bytes with room, delay and trouble. A control connection is a pair
// (launch_spawn), data and peer connections come from net_connect to a listener.
#ifndef PENSTOCK_TESTS_SIM_NET_H
#define PENSTOCK_TESTS_SIM_NET_H

#include "proto/base.h"

struct process;
struct socket;

enum { NET_STRIPES_MAX = 256 };

// What befalls connections, and what was seen on them.
struct net_trouble {
    uint64_t delay_ns_max;      // of bytes on their way
    unsigned cut_once_in;       // so many frames a data connection is lost in one
    unsigned flip_body_once_in; // frames whose body, trailer or tag gets a wrong bit
    unsigned flip_head_once_in;
    unsigned stall_once_in; // frames after which nothing arrives for a while
    uint64_t peer_bytes;    // after so many a peer connection is lost or gets a wrong bit, once; 0: none does
    // counted
    uint64_t frames, body_bytes; // that were put on data connections, resent ones too
    uint64_t cuts, flipped_bodies, flipped_heads, data_dials;
    uint8_t flips_of[NET_STRIPES_MAX]; // stripe by number
    unsigned worst_flips;              // of one stripe
};

void net_begin(void);
void net_end(void);
struct net_trouble *net_trouble(void);

// A pair of connected sockets: the result is the current process's, *theirs the other's.
int net_pair(struct process *other, int *theirs);

int64_t socket_send(struct socket *s, const void *bytes,
                    size_t len);                                // bytes, or -EAGAIN, -EPIPE, -ECONNRESET
int64_t socket_recv(struct socket *s, void *bytes, size_t len); // bytes, 0: the end, or -EAGAIN, -ECONNRESET
void socket_shutdown(struct socket *s, bool read, bool write);
int socket_dup(struct socket *s); // a second descriptor of the current process
// A connection that waits, as a descriptor; -1: none.
struct listener;
int listener_accept(struct listener *l);

#endif
