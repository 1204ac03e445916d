// Receipt files (proto/receipt.h): written by the coordinator while entries are settled, read back by
// `verify`. Both sides work record by record in bounded memory.
//
// A receipt grows as RECEIPTS/JOB.part and is complete once it is named RECEIPTS/JOB.receipt, where RECEIPTS
// is STATE/receipts and JOB the job's id in hex: END is written, the file synced, then renamed, then the
// directory synced.
#ifndef PENSTOCK_MOVER_RECEIPT_FILE_H
#define PENSTOCK_MOVER_RECEIPT_FILE_H

#include "proto/err.h"
#include "proto/receipt.h"

struct receipt_writer;

// Makes STATE/receipts (mode 0700; STATE is there) where needed, and the file in it (mode 0600) with its JOB
// record. -errno with *err (ERR_START); -EMSGSIZE: `about` says more than a receipt can.
MUST_CHECK int receipt_writer_new(const char *state_dir, const struct job_id *job,
                                  const struct receipt_job *about, struct receipt_writer **out,
                                  struct err *err);
// Adds an entry; written with the next full record. -errno of a write: the receipt cannot be completed any
// more and every later call says so again. -EMSGSIZE: the entry is none that a receipt can say, nothing was
// added.
MUST_CHECK int receipt_writer_add(struct receipt_writer *w, const struct receipt_entry *e);
// Completes the receipt: its path goes to `path`. -errno: there is none, the unfinished file is left to
// receipt_writer_free.
MUST_CHECK int receipt_writer_end(struct receipt_writer *w, const struct receipt_end *end, char *path,
                                  size_t path_len);
// Removes the file when it was not completed. NULL is fine.
void receipt_writer_free(struct receipt_writer *w);

struct receipt_reader;

// Reads the whole file once to see that it is a complete and undamaged receipt, then stands before the first
// entry. -EBADMSG: no receipt or damaged; -ENODATA: no END, the job did not finish; -EPROTONOSUPPORT: a newer
// version; another -errno: it cannot be read. *err (ERR_START) names file and reason.
MUST_CHECK int receipt_reader_open(const char *path, struct receipt_reader **out, struct err *err);
void receipt_reader_free(struct receipt_reader *r); // NULL is fine
// The job and how it ended; the reader's.
const struct job_id *receipt_reader_id(const struct receipt_reader *r);
const struct receipt_job *receipt_reader_job(const struct receipt_reader *r);
const struct receipt_end *receipt_reader_end(const struct receipt_reader *r);
// The next entry, valid until the next call: 1; 0: there are no more; -errno: the file has changed since it
// was opened.
MUST_CHECK int receipt_reader_next(struct receipt_reader *r, struct receipt_entry *out);

#endif
