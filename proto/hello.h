// HELLO, the first message of both ends of a control connection: what a release says of itself, and whether
// it and the other can work together.
#ifndef PENSTOCK_PROTO_HELLO_H
#define PENSTOCK_PROTO_HELLO_H

#include "proto/message.h"

// HELLO of this release, whose blobs point into the texts.
void hello_make(const char *software, const char *node, struct message *out);
// Whether there is a wire version that both speak, and each has the features that the other cannot do
// without. 0, or -EPROTONOSUPPORT with *err (ERR_VERSION), which names both; `software` is ours.
MUST_CHECK int hello_accept(const struct msg_hello *theirs, const char *software, struct err *err);

#endif
