// An error is a value: what kind, which errno, which operation, on which path, at which node. It travels in
// messages, reports and receipts in the same form. One table (ERR_CLASSES) gives each class its name in JSON,
// what a job does about it, and the exit status it leads to (DESIGN §11).
#ifndef PENSTOCK_PROTO_ERR_H
#define PENSTOCK_PROTO_ERR_H

#include "proto/base.h"
#include "proto/limits.h"

// What a job does when the error occurs.
enum err_action {
    ERR_RETRY_STRIPE, // the stripe goes back to the pool
    ERR_RETRY_PATH,   // the stream or control connection is dialled again
    ERR_FAIL_ENTRY,   // this entry is not moved, the rest is
    ERR_STOP_JOB,     // the job stops, resumable
    ERR_REFUSE,       // nothing was started
};

//        class            name in JSON       action            exit
#define ERR_CLASSES(X)                                                                                  \
    X(ERR_NONE, "none", ERR_FAIL_ENTRY, 0)                                                              \
    X(ERR_ENTRY, "entry", ERR_FAIL_ENTRY, 1)             /* unreadable source, refused metadata, ... */ \
    X(ERR_UNSUPPORTED, "unsupported", ERR_FAIL_ENTRY, 1) /* a device, socket or fifo in the source */   \
    X(ERR_USAGE, "usage", ERR_REFUSE, 2)                                                                \
    X(ERR_START, "start", ERR_REFUSE, 3) /* address, permission, missing root */                        \
    X(ERR_AUTH, "auth", ERR_REFUSE, 3)                                                                  \
    X(ERR_VERSION, "version", ERR_REFUSE, 3)                                                            \
    X(ERR_STORAGE, "storage", ERR_STOP_JOB, 4) /* the destination is full or fails */                   \
    X(ERR_INTERRUPTED, "interrupted", ERR_STOP_JOB, 5)                                                  \
    X(ERR_LOST, "lost", ERR_STOP_JOB, 6) /* a node or a path */                                         \
    X(ERR_STREAM, "stream", ERR_RETRY_PATH, 6)                                                          \
    X(ERR_PROTOCOL, "protocol", ERR_STOP_JOB, 6) /* the peer broke the rules */                         \
    X(ERR_STRIPE, "stripe", ERR_RETRY_STRIPE, 7) /* a bad tag or digest, to be sent again */            \
    X(ERR_DIGEST, "digest", ERR_FAIL_ENTRY, 7)   /* wrong three times, or wrong at verify */            \
    X(ERR_CHANGED, "changed", ERR_FAIL_ENTRY, 8)                                                        \
    X(ERR_VANISHED, "vanished", ERR_FAIL_ENTRY, 8)                                                      \
    X(ERR_LOCKED, "locked", ERR_REFUSE, 9)

enum err_class {
#define X(class, name, action, exit) class,
    ERR_CLASSES(X)
#undef X
        ERR_CLASS_COUNT,
};

struct err {
    enum err_class class;
    int os;                       // errno, 0 = none
    char op[32];                  // what was tried: "open", "fsync", "connect"
    char node[ADDRESS_BYTES_MAX]; // where: the name of the agent, "" = here
    char path[1024];              // on what, escaped by err_escape and cut from the left when too long
    char text[TEXT_BYTES_MAX];    // words beyond errno's, escaped; may be ""
};

// The name of a class in JSON and logs; a class from outside that is out of range is "protocol".
const char *err_class_name(enum err_class class);
enum err_action err_class_action(enum err_class class);
// The exit status of a class.
int err_class_exit(enum err_class class);
// Of two exit statuses the one that counts: the first of 5, 4, 6, 7, 9, 3, 1, 8 (2 before all), 0 last.
int err_exit_worse(int a, int b);

// Fills `err`, its node with "". `path` (path_len raw bytes, may be NULL) is escaped, and when it is too long
// "..." and its end are kept; text is printf-like and escaped too, fmt may be NULL.
void err_set(struct err *err, enum err_class class, int os, const char *op, const void *path, size_t path_len,
             const char *fmt, ...) PRINTF_LIKE(7, 8);

// One line without newline: "NODE: OP PATH: TEXT: STRERROR"; parts that are empty are left out. `os` is
// spelled by strerrordesc_np, so that the line is the same in every locale; with nothing to say the class is
// named. Fields of a peer that are not escaped as they should be are made printable. Always terminated;
// returns `buf`.
const char *err_line(const struct err *err, char *buf, size_t len);

// Writes `len` raw bytes as printable UTF-8: valid UTF-8 that is not a control character (C0, DEL, C1)
// stays, a backslash is doubled, every other byte becomes \xHH (lower-case digits). Always terminated, never
// cuts an escape or a character in two. Returns the bytes written without the terminator.
size_t err_escape(char *out, size_t out_len, const void *bytes, size_t len);

#endif
