// TLS 1.3 with a pre-shared key over memory: ciphertext in, ciphertext out, no descriptor. The only user of
// libssl. psk_dhe_ke only, SHA-256 suites, no tickets, no early data, no certificates: after the handshake
// both sides require that the PSK was used (a server that would go on without one is refused by the client,
// and the other way round).
#ifndef PENSTOCK_MOVER_TLS_H
#define PENSTOCK_MOVER_TLS_H

#include "mover/key.h"
#include "proto/base.h"

struct tls;
// Client: speaks as key->name. Server: accepts every line of `keys` (borrowed until tls_free). -ENOMEM, -EIO.
MUST_CHECK int tls_client_new(const struct key *key, struct tls **out);
MUST_CHECK int tls_server_new(const struct key_ring *keys, struct tls **out);
void tls_free(struct tls *t); // NULL is fine
// Bytes that came from the network. -ENOBUFS never: it takes all of them (the caller bounds what it reads).
MUST_CHECK int tls_put_wire(struct tls *t, const void *bytes, size_t len);
// Bytes for the network: how many were written into out (0: none now).
MUST_CHECK int64_t tls_get_wire(struct tls *t, void *out, size_t len);
// Goes on with the handshake. 1: done; 0: needs more bytes from the network; -EACCES: the other side did not
// prove the key, or is no TLS 1.3 PSK peer; *why gets words. On the server tls_peer_name then tells which
// key.
MUST_CHECK int tls_handshake(struct tls *t, char why[128]);
const char *tls_peer_name(const struct tls *t);
// Plain bytes. Read: > 0, 0 = nothing now, -ENODATA = closed in order, -EBADMSG = broken. Write: takes all of
// it.
MUST_CHECK int64_t tls_read(struct tls *t, void *out, size_t len);
MUST_CHECK int tls_write(struct tls *t, const void *bytes, size_t len);
// Says that nothing more will be written (close_notify, for tls_get_wire to fetch). Without it the other side
// takes the end of the connection for a cut. Nothing happens before the handshake is over.
void tls_close(struct tls *t);

#endif
