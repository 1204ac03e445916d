// The destination agent: compare (peer stream's thread), receive (data streams), commit (its own thread), and
// what they share. For dest_*.c only.
#ifndef PENSTOCK_MOVER_DEST_AGENT_H
#define PENSTOCK_MOVER_DEST_AGENT_H

#include <pthread.h>

#include "mover/agent_inner.h"
#include "mover/plan/dest.h"
#include "mover/receiver.h"
#include "proto/receipt.h"
#include "storage/dest.h"
#include "storage/journal.h"

// What takes long tells so often that it goes on.
#define DEST_TELL_NS UINT64_C(10000000000)

// What is kept of one entry of a segment under way (side of struct work).
struct dest_entry {
    struct dest_file file;
    bool open;  // file stands
    bool named; // and its temporary name is durable
    bool adopt; // an earlier run made it: to be gone on with
};

// A large file that failed, on its way to the commit thread, which removes its temporary file.
struct dest_drop {
    const struct work *work; // stands until the entry is settled
    uint32_t entry;
    struct dest_drop *next;
};

struct dest_side {
    bool retry; // the segment of files tried once more
    uint32_t count;
    struct dest_entry *entries;
    uint64_t *awaited; // sorted digests of the paths of files that wait for data
    uint32_t awaited_count;
    struct dest_agent *dest; // in whose list of sides it is, or NULL
    struct dest_side *next;
};

// One leaf or small file of a written stripe.
struct written_part {
    uint32_t entry;
    uint32_t len;
    uint64_t leaf;
    struct digest digest;
    bool failed; // packed: it could not be published
};

// A written stripe on its way through commit.
struct written {
    struct dest_written plan;
    struct work *work; // held
    bool packed;
    uint32_t entry; // large
    uint32_t count;
    struct written_part parts[];
};

// Receipt records on their way: a list of blobs, posted when full.
struct records {
    struct agent *agent;
    uint64_t segment;
    struct wire_writer writer;
    uint8_t buf[64 * KIB];
};

struct dest_agent {
    struct agent *agent;
    struct dest dest;
    bool in_memory;
    struct memory_tree memory; // of a destination that forgets the data
    struct worktab *works;
    // Locks, outermost first: journal_lock or files_lock (never both), plan_lock, that of the table of works.
    // Those of the mailbox and of the storage watch are taken within any and take none.
    pthread_mutex_t plan_lock; // plan, drops, sides, open_segments, finish, stopping, failed, full_path
    pthread_cond_t written;    // the open group may be due
    struct dest_plan *plan;
    uint32_t open_segments;     // taken, with entries that are not settled
    struct dest_drop *drops;    // large files that failed and are not settled
    uint64_t next_segment;      // the peer stream's: the number that comes next
    bool stopping, failed;      // failed: nothing is committed any more
    pthread_mutex_t files_lock; // opening of large files
    pthread_mutex_t journal_lock;
    struct journal *journal;
    struct storage_wait comparing, committing; // what the peer thread and the commit thread wait for
    pthread_t commit_thread;
    bool commit_running;
    int dirs_fd; // directories seen, for the closing pass: encoded segments, each followed by its length
                 // (u32)
    uint64_t dirs_end;
    struct dest_side *sides; // under plan_lock: segments that are compared and not settled
    struct segment_builder *dirs;
    uint64_t dir_count, finished_dirs;
    uint64_t told_ns;  // of the closing pass: when the coordinator heard of it last
    struct entry root; // the destination root itself, when the job listed it: finished after all else is gone
    bool root_listed;
    struct receiver_dest receive;
    struct receiver **receivers; // one a stream
    char **names;
    uint32_t source_count;
    char *shown, *place; // the root: for people, and as OPEN takes it
    struct wire_writer names_list;
    uint8_t names_buf[NAMES_BYTES_MAX];
    char *full_path; // under plan_lock: of the entry at which storage failed, or NULL
    bool finish;     // the coordinator asked for the closing pass
    bool doubt_told; // the peer stream's: that files are read again
};

// dest_settle.c: entries as they are settled, said to the coordinator
void records_init(struct records *r, struct agent *a, uint64_t segment);
void records_add(struct records *r, const struct entry *e, enum receipt_outcome outcome,
                 enum receipt_proof proof, const struct digest *digest);
void records_flush(struct records *r);
// So many more entries of the segment are settled: says SEGMENT_DONE when all are and the segment is placed.
void settle_entries(struct dest_agent *d, const struct work *w, uint32_t entries);
// Entry fails with `err`: its stripes are settled, its record and problem are posted, unless it is left to
// the retry segment. A large one is settled by the commit thread, when its temporary file is gone.
void settle_failed(struct dest_agent *d, const struct work *w, uint32_t entry, const struct err *err);
// The stripes carry nothing any more: they are never to be sent.
void settle_stripes(struct dest_agent *d, uint64_t first, uint64_t count);
// The destination itself fails: the job stops. Only the first is told.
void dest_stop_storage(struct dest_agent *d, int error, const char *op, const struct entry *e);
bool dest_has_failed(struct dest_agent *d);
// Whether large files are to be written past the page cache, where that goes.
bool dest_direct(const struct dest_agent *d);
// Whether this errno at the destination ends the job (no space, quota, I/O, read-only) rather than one entry.
bool dest_is_fatal(int error);

// dest_awaited.c: files that wait for data
// Whether the path waits for data in a segment that is under way.
bool dest_awaited(struct dest_agent *d, const struct entry *e);
void dest_side_await(struct dest_side *s, const struct entry *e); // of the segment being compared
void dest_side_link(struct dest_agent *d, struct dest_side *s);   // the segment is compared
// All its entries are settled. Under plan_lock.
void dest_side_unlink(struct dest_side *s);

// dest_left.c: what unfinished files leave
// The commit thread settles the entry when its temporary file is gone. false: out of memory.
MUST_CHECK bool dest_drop_later(struct dest_agent *d, const struct work *w, uint32_t entry);
void dest_drops_run(struct dest_agent *d, struct dest_drop *drops); // the commit thread; frees them
void dest_drops_free(struct dest_drop *drops);
// Nothing of the file is promised, and then its temporary file is removed. -errno of the journal.
MUST_CHECK int dest_drop(struct dest_agent *d, const struct entry *e, struct dest_entry *de);
// All threads have ended and the job is not finished: what is durable of large files stays, all else gives
// its room back. Fills what CLOSED says.
void dest_give_back(struct dest_agent *d);

// dest_adopt.c
// What is durable of a large file from an earlier run: of what another boot has promised, what is still
// there. Sets the need; *complete: nothing is missing but the publication. -ECANCELED: the job stops.
MUST_CHECK int dest_adopt(struct dest_agent *d, const struct work *w, uint32_t entry, bool *complete);
void dest_entry_close(struct dest_entry *de);

// dest_compare.c
void dest_run_peer(void *self, struct stream *s, const struct conn *conn, struct conn_end *end);
// dest_write.c
void dest_receive_init(struct dest_agent *d);
// dest_commit.c
// A large file that is published: its digest from the leaves in the journal (those that are all hole are of
// zeros), and it goes out of the journal.
MUST_CHECK int dest_file_retire(struct dest_agent *d, const struct entry *e, struct digest *out);
void *dest_commit_main(void *self);
void dest_group_free(struct dest_agent *d, struct dest_written *group); // NULL is fine
// dest_finish.c: directories
MUST_CHECK int dest_dirs_add(struct dest_agent *d, const struct entry *e);
MUST_CHECK int dest_dirs_finish(struct dest_agent *d);
// What earlier runs have left may be much: it goes here, where nobody waits, and not when the job closes.
// What stays is told then.
void dest_remove_temp(struct dest_agent *d);
// The destination root, at `fd`, when the job listed it: after `.penstock` is gone, which changes its time
// and could not go from a directory without write permission.
MUST_CHECK int dest_root_finish(const struct dest_agent *d, int fd);

#endif
