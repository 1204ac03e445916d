// What is found when an entry of a receipt is read again (`penstock verify`): the results in CHECKED.
//
// A result: u8 verdict (enum check_verdict) | u8 difference (enum check_difference) | u16 errno | u64 found.
// A field that the verdict, or the difference, has no use for is 0.
#ifndef PENSTOCK_PROTO_CHECK_H
#define PENSTOCK_PROTO_CHECK_H

#include "proto/receipt.h"
#include "proto/wire.h"

enum { CHECK_RESULT_BYTES = 12 };

enum check_verdict {
    CHECK_RIGHT = 0,
    CHECK_UNPROVED = 1, // what the receipt says of it fits, but the receipt has no digest of it
    CHECK_WRONG = 2,    // the difference tells what
    CHECK_MISSING = 3,
    CHECK_UNREADABLE = 4, // nobody knows: errno tells why
    CHECK_VERDICTS,
};

// The first of these counts.
enum check_difference {
    DIFFERS_NOT = 0,
    DIFFERS_PATH = 1, // a part of its path is a link, or no directory any more
    DIFFERS_TYPE = 2, // found: enum entry_type, 0: something else
    DIFFERS_SIZE = 3, // found: bytes
    DIFFERS_TIME = 4, // modification time; told only where there is no digest
    DIFFERS_CONTENT = 5,
    DIFFERS_MODE = 6, // found: mode
    CHECK_DIFFERENCES,
};

struct check_result {
    enum check_verdict verdict;
    enum check_difference difference; // CHECK_WRONG
    int os;                           // CHECK_UNREADABLE: errno
    uint64_t found;
};

void check_put(struct wire_writer *w, const struct check_result *r);
// The next result of the reader. -EPROTO: the bytes ended, or there can be no such result.
MUST_CHECK int check_get(struct wire_reader *r, struct check_result *out);
// The result for an entry in words: what is wrong, missing or unreadable (ERR_DIGEST, or ERR_ENTRY).
void check_err(const struct check_result *r, const struct receipt_entry *e, struct err *err);

// Set-user-ID and set-group-ID are not compared: a destination that cannot give a file its owner leaves them
// off.
enum { CHECK_MODE_BITS = 01777 };

#endif
