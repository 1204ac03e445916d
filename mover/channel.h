// A conversation of messages over a pair of descriptors (one socket, or two pipes): non-blocking, bounded
// both ways, for one thread. Plain (a pipe that ssh or the parent has authenticated), under TLS, or sealed
// (peer connections). The owner polls the descriptors for channel_events, calls channel_pump, then
// channel_next until it says 0. Sealed form: u32 length of the sealed bytes (additional data) | sealed {u16
// type | fields} | tag 16; message n of the direction.
#ifndef PENSTOCK_MOVER_CHANNEL_H
#define PENSTOCK_MOVER_CHANNEL_H

#include "mover/tls.h"
#include "proto/base.h"
#include "proto/message.h"
#include "proto/seal.h"

struct channel;
// Takes over the descriptors (made non-blocking) and tls / the seals, also on failure. `max` is the largest
// message taken or sent (MESSAGE_BYTES_MAX, PEER_BYTES_MAX).
MUST_CHECK int channel_plain_new(int fd_in, int fd_out, size_t max, struct channel **out);
// The same for a conversation of which somebody has read the first `len` bytes already.
MUST_CHECK int channel_plain_begun(int fd_in, int fd_out, size_t max, const void *begun, size_t len,
                                   struct channel **out);
MUST_CHECK int channel_tls_new(int fd, struct tls *tls, size_t max, struct channel **out);
MUST_CHECK int channel_sealed_new(int fd, struct seal *seal_out, struct seal *seal_in, size_t max,
                                  struct channel **out);
void channel_free(struct channel *c); // closes; NULL is fine

int channel_fd_in(const struct channel *c);
int channel_fd_out(const struct channel *c); // the same as fd_in for a socket
// What to poll for: POLLIN on fd_in always, POLLOUT on fd_out when something waits to be sent.
short channel_events(const struct channel *c);

// Sends as far as the kernel takes it and keeps the rest (outbox of at most 4 x max + 1 MiB): -ENOBUFS
// beyond, -EMSGSIZE.
MUST_CHECK int channel_send(struct channel *c, const struct message *m);
MUST_CHECK int channel_send_bytes(struct channel *c, uint16_t type, const void *fields, size_t len);
// Moves bytes both ways, and the TLS handshake. 0; -ENODATA: the other end closed in order, between two
// messages and under TLS with its word for it (without: -ECONNRESET, which is also what the end of a killed
// process looks like); -EACCES: the TLS handshake failed (channel_why); -EPROTONOSUPPORT: the other side
// speaks another wire version (channel_why names both); another -errno: broken. Whatever it returns, messages
// that came before can still be taken. A failed send is told here, when nothing is left to read, and not by
// channel_send.
MUST_CHECK int channel_pump(struct channel *c);
// The next message, in place until the next call of pump or next: 1; 0: none; -EPROTO, -EMSGSIZE, -EBADMSG:
// the peer broke the rules.
MUST_CHECK int channel_next(struct channel *c, uint16_t *type, const uint8_t **fields, size_t *len);
bool channel_ready(const struct channel *c);            // the handshake is over (at once without TLS)
const char *channel_peer_name(const struct channel *c); // name of the key, "" without TLS
const char *channel_why(const struct channel *c);       // words of the failed handshake
size_t channel_outbox_bytes(const struct channel *c);
uint64_t channel_heard_ns(
    const struct channel *c); // when bytes last came (sys_clock_ns); at first: when it was made

#endif
