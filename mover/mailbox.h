// Messages from the threads of an agent to its control thread, which alone speaks on the control channel.
// Encoded where they are made, so that blobs need not live on.
#ifndef PENSTOCK_MOVER_MAILBOX_H
#define PENSTOCK_MOVER_MAILBOX_H

#include "proto/message.h"

struct mailbox;
MUST_CHECK struct mailbox *mailbox_new(void); // NULL: out of memory or descriptors
void mailbox_free(struct mailbox *m);
// Any thread. A message that is over its limits is a bug. One for which there is no memory is lost and told
// by mailbox_failed: the taker then ends the job, which would wait for that word for ever.
void mailbox_post(struct mailbox *m, const struct message *message);
MUST_CHECK int mailbox_failed(struct mailbox *m); // 0, or -ENOMEM once a message is lost
int mailbox_fd(const struct mailbox *m);          // readable while something is in it
enum { MAILBOX_CROWDED_BYTES = MIB };
// Bytes that are in it. Who makes mail without bound rests while it is crowded; the taker wakes it.
size_t mailbox_bytes(struct mailbox *m);

struct mail {
    struct mail *next;
    size_t len;      // of bytes
    uint8_t bytes[]; // head and fields
};
// Everything that is in it, oldest first; the caller frees each. NULL: nothing.
struct mail *mailbox_take(struct mailbox *m);
void mail_free(struct mail *first); // all of a list; NULL is fine

#endif
