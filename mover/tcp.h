// What TCP itself says of a stream, and its pacing.
#ifndef PENSTOCK_MOVER_TCP_H
#define PENSTOCK_MOVER_TCP_H

#include "proto/base.h"

struct tcp_figures {
    uint64_t retransmits; // segments sent again
    uint32_t rtt_us;
    uint32_t unacked, probes; // segments on their way, probes of a closed window that nobody answered
    uint64_t ack_age_ms;      // since the last acknowledgement
    uint64_t received;        // bytes, read or not
};
// Zeros for what is no TCP socket (one that has received nothing has not been greeted).
void tcp_figures(int fd, struct tcp_figures *out);

// Caps the payload rate by SO_MAX_PACING_RATE (64-bit) and reads it back: -ERANGE when the kernel kept
// another value; -EOPNOTSUPP for what is no TCP socket, which the kernel would take the cap for and not keep.
MUST_CHECK int tcp_pace(int fd, uint64_t bytes_s);

// Whether the other end has closed or reset a socket that only we write to: seen without reading from it.
bool tcp_broken(int fd);

#endif
