// When a connection stands still: two judges with the time and the figures of TCP given to them, so that they
// need neither clock nor socket.
//
// - A path that drops packets resets nothing: the sender's kernel sends again for a quarter of an hour. It is
//   dead when data or probes have been on their way for STALL_DEAD_NS and nothing was acknowledged. A peer
//   whose disk is slow closes its window, and its kernel still answers every probe: that is not death,
//   however long it lasts (which is why TCP_USER_TIMEOUT is not used: since Linux 5.11 it ends such a
//   connection). Two probes must be unanswered, since one may be lost, and the next comes as late as two
//   minutes after it.
// - A frame that is being received makes STALL_BYTES of progress in each window of STALL_WINDOW_NS (longer
//   where --rate allows less), else it trickles. Between frames nothing is expected.
//
// The receiving side of an idle or dead path is seen by keepalive (net_tune). What is no TCP (inside ssh) has
// no figures and is never judged: there ssh watches its own connection, which carries the control plane too.
#ifndef PENSTOCK_MOVER_STALL_H
#define PENSTOCK_MOVER_STALL_H

#include "mover/tcp.h"
#include "proto/limits.h"

#define STALL_DEAD_NS   UINT64_C(30000000000)
#define STALL_WINDOW_NS UINT64_C(30000000000)
enum { STALL_BYTES = 64 * KIB };

struct stall_path {
    uint64_t since_ns; // so long nothing was on its way, or the last acknowledgement came
};
void stall_path_begin(struct stall_path *p, uint64_t now_ns);
// Whether the path is dead. To be called every few seconds at least.
bool stall_path_dead(struct stall_path *p, const struct tcp_figures *tcp, uint64_t now_ns);

struct stall_trickle {
    uint64_t window_ns;
    uint64_t since_ns, bytes; // of the current window: its begin, and what had been received then
};
// A frame is awaited from now on. rate_bytes_s: the cap of this stream, 0: none.
void stall_trickle_begin(struct stall_trickle *t, const struct tcp_figures *tcp, uint64_t rate_bytes_s,
                         uint64_t now_ns);
// Whether it trickles.
bool stall_trickles(struct stall_trickle *t, const struct tcp_figures *tcp, uint64_t now_ns);

#endif
