// What the files of mover/channel.h share. Nobody else includes it.
#ifndef PENSTOCK_MOVER_CHANNEL_INNER_H
#define PENSTOCK_MOVER_CHANNEL_INNER_H

#include <sys/types.h>

#include "mover/buffer.h"
#include "mover/channel.h"
#include "proto/greet.h"
#include "proto/limits.h"

enum form { FORM_PLAIN, FORM_TLS, FORM_SEALED };

struct channel {
    enum form form;
    int fd_in, fd_out;
    bool out_is_socket;
    size_t max;
    struct tls *tls;
    bool ready;
    struct seal *seal_out, *seal_in;
    uint64_t sealed, opened; // messages so far
    struct buffer in;        // as it came, under TLS deciphered
    struct buffer out;       // as it goes
    struct buffer held;      // plain messages until the TLS handshake is over
    uint8_t *scratch;        // a message being encoded
    int ended;               // why nothing comes any more: -ENODATA in order, else broken
    int out_error;           // why nothing goes any more
    int broken;              // the peer broke the rules of messages
    uint64_t heard_ns;
    // The first bytes under TLS: a listener that speaks another wire version answers with its preamble.
    uint8_t first[PREAMBLE_BYTES];
    size_t first_len;
    bool first_seen;
    char why[128];
};

// A channel of these parts, which it takes over whatever comes of it.
MUST_CHECK int channel_make(const struct channel *parts, struct channel **out);
size_t channel_outbox_max(const struct channel *c);
// Whether what has come ends with a whole message.
bool channel_is_whole(const struct channel *c);
// Bytes of the socket or pipe; 0: none now; -errno, -ENODATA at its end.
MUST_CHECK ssize_t channel_read(struct channel *c, void *buf, size_t len);

// Moves what TLS has to say to the outbox.
MUST_CHECK int channel_tls_drain(struct channel *c);
// Deciphers as far as the inbox has room. Bytes, or -errno.
MUST_CHECK int64_t channel_tls_fill(struct channel *c);
// Takes what has come; what `ended` is to be.
MUST_CHECK int channel_tls_pump(struct channel *c);

#endif
