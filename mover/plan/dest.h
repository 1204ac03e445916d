// The destination agent's side of a job, as a pure machine: which leased stripes have come, which commit
// group they are in, when a group closes, when a file is complete and when a segment is. Events are function
// calls, the answer is their result; no thread, clock (times are given) or file inside. The owner keeps it
// under one lock.
//
// A leased stripe is NONE, ARRIVING (its head was accepted), WRITTEN (whole, checked, in the open group),
// COMMITTING (its group is being synced), DURABLE, or SETTLED (its file failed: frames of it are received and
// dropped).
#ifndef PENSTOCK_MOVER_PLAN_DEST_H
#define PENSTOCK_MOVER_PLAN_DEST_H

#include "proto/base.h"
#include "proto/limits.h"

#define GROUP_BYTES (UINT64_C(256) << 20) // a commit group closes after so many bytes,
// or so many packed files, a quarter of what is under way at most (SEGMENTS_OPEN_MAX): while they are
// published the others flow,
#define GROUP_FILES SEGMENT_ENTRIES_MAX
#define GROUP_NS    UINT64_C(1000000000) // or so long after its first stripe, or when nothing is in flight
#define DAMAGED_MAX 3                    // a stripe is sent again twice, then its files fail

struct dest_plan;
MUST_CHECK struct dest_plan *dest_plan_new(void);
void dest_plan_free(struct dest_plan *p);

// A segment was compared and laid out: stripes[e] says how many stripes carry data of entry e (0 for those
// that need none). `open_entries` entries are not settled yet (those without data may be settled already).
// -EEXIST, -ENOMEM.
MUST_CHECK int dest_plan_segment(struct dest_plan *p, uint64_t segment, uint32_t entries,
                                 const uint64_t *stripes, uint32_t open_entries);
// Every entry of the segment is settled and no lease of it is open: it may be forgotten.
bool dest_plan_segment_over(const struct dest_plan *p, uint64_t segment);
// Stripes of files that failed may still arrive, be written and committed: of a forgotten segment every entry
// has failed, and none is settled once more.
void dest_plan_segment_forget(struct dest_plan *p, uint64_t segment);

// The segment's stripes were numbered up to `end`: a stripe below it that no lease has is done or settled,
// one above it was never laid out.
void dest_plan_placed(struct dest_plan *p, uint64_t end);

MUST_CHECK int dest_plan_lease(struct dest_plan *p, uint64_t lease, uint64_t segment, uint64_t first,
                               uint32_t count);
MUST_CHECK int dest_plan_lease_done(struct dest_plan *p, uint64_t lease);

enum dest_answer {
    DEST_TAKE,    // receive and write it; it is ARRIVING now
    DEST_DROP,    // receive and forget it: it is here already, or not wanted any more
    DEST_FOREIGN, // it was never laid out, or is of another segment: the sender breaks the rules
};
// The head of a frame came.
enum dest_answer dest_plan_arrive(struct dest_plan *p, uint64_t segment, uint64_t stripe);
// It did not come whole, or damaged: NONE again.
void dest_plan_lost(struct dest_plan *p, uint64_t stripe);
// It came whole but damaged: NONE again. true: for the last time (DAMAGED_MAX); then it is SETTLED, and what
// it carries fails.
bool dest_plan_damaged(struct dest_plan *p, uint64_t stripe);

// One written stripe: embedded in what the owner keeps of it (leaves, states).
struct dest_written {
    struct dest_written *next;
    uint64_t segment, stripe;
    uint64_t bytes;
    uint32_t files; // packed in it; 0: a stripe of a large one
};
// All its bytes were handed to the file system without error. Joins the open group; `w` is the owner's and
// stays until dest_plan_group_take gives it back. Settled meanwhile: false, and `w` is not taken.
bool dest_plan_written(struct dest_plan *p, struct dest_written *w, uint64_t now_ns);
// Nanoseconds until the open group must be closed: 0 now, UINT64_MAX: it is empty.
uint64_t dest_plan_group_due_ns(const struct dest_plan *p, uint64_t now_ns);
// Closes the open group: its stripes, in order of arrival, are COMMITTING. NULL: there was none.
struct dest_written *dest_plan_group_take(struct dest_plan *p);
// Of entry e of the segment one more stripe is in the group being committed. true: it was the last one, and
// the entry has not failed: publish it in this commit.
bool dest_plan_entry_commit(struct dest_plan *p, uint64_t segment, uint32_t entry);
// The group is synced, journalled, its files published.
void dest_plan_group_durable(struct dest_plan *p, const struct dest_written *group);

// Entry e fails: nothing of it is published. Its stripes first..first+count-1 (large files; count 0 for a
// packed one) are SETTLED where they are not yet in a group being committed. false: it had failed before.
bool dest_plan_entry_fail(struct dest_plan *p, uint64_t segment, uint32_t entry, uint64_t first,
                          uint64_t count);
bool dest_plan_entry_failed(const struct dest_plan *p, uint64_t segment, uint32_t entry);
// `entries` more entries are settled (published, skipped, failed, left to the retry). true, and only once:
// all of the segment are.
bool dest_plan_entries_settled(struct dest_plan *p, uint64_t segment, uint32_t entries);

#endif
