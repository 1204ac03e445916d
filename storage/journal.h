// The journal: what is durable of files that are not published yet (DESIGN §2): per file its path, its source
// version, and the durable leaf ranges with their digests. One append-only file `.penstock/journal` in the
// record form of proto/record.h, one writer. It may lag the data, never lead it: the caller appends a range
// only after the sync that covers it returned 0. Small (packed) files are never in it.
//
// Records (types 1, 2, 3; integers little-endian; version 1):
//   FILE    u64 file number | u64 size | i64 mtime s | u32 mtime ns | i64 ctime s | u32 ctime ns |
//           u64 inode | boot (16) | blob path
//           names a file before its first range; numbers count from 0 in the order of the FILE records; a
//           path that is named already must be gone before it is named again. boot: the digest of the boot id
//           (sys_boot_id) of the machine that journals its ranges, zero when there is none
//   LEAVES  u64 file number | u64 first leaf | digests (16 each, at least one): these leaves are durable
//   GONE    u64 file number: published or given up; the number is not used again
//
// At open the valid prefix is replayed into memory (unfinished files only) and the journal is written anew,
// compacted, under the new job's id (new file `journal.new`, sync, rename, directory sync). A record that is
// cut off by the end of the file, half written as its last, or followed by nothing but zeros is the torn tail
// of a crash and ends the replay; any other bad record, one that makes no sense, or a bad header does too,
// and *damaged is set: what was read before it is still true, the rest is sent again. An unknown newer
// version is refused: -EPROTONOSUPPORT; a whole file of another kind: -EBADMSG.
//
// What was journalled under another boot id is doubtful: a machine that lost its power may have had a disk
// that called synced what was not. The promise is read again before it is trusted (journal_doubtful,
// journal_hold).
//
// Not thread-safe. A failed write or sync is final: every later call that appends or syncs returns the same
// error, until journal_renew.
#ifndef PENSTOCK_STORAGE_JOURNAL_H
#define PENSTOCK_STORAGE_JOURNAL_H

#include "proto/base.h"
#include "proto/digest.h"
#include "proto/manifest.h"

// A larger file cannot be: its digest is over a digest for every MiB, holes too, and would take hours.
#define DIGESTED_BYTES_MAX (UINT64_C(1) << 50)

struct journal;

// state_fd: `.penstock/`, borrowed. Creates an empty journal where there is none. The old journal stays as it
// is when this fails.
MUST_CHECK int journal_open(int state_fd, const struct job_id *job, struct journal **out, bool *damaged);
void journal_close(struct journal *j); // does not sync

// A file is a path and a source version; what is durable of it: journal_held, journal_leaves. A path known in
// another version is forgotten by journal_file and journal_find (its GONE is appended), but not by
// journal_each_stale.
struct journal_file;
// The file's record in memory, made when it is not there. -ENOMEM, or an error of the append. Stays valid
// until journal_gone or close.
MUST_CHECK int journal_file(struct journal *j, const struct entry *e, struct journal_file **out);
// The file, or NULL when nothing is held of that version. (Empty files have no leaves and are not asked for.)
struct journal_file *journal_find(struct journal *j, const struct entry *e);
// What is held of another version of that path, and *version: its size, times and inode (the path stays the
// caller's). NULL: nothing. To be given up with journal_gone before its temporary file goes.
struct journal_file *journal_other(const struct journal *j, const struct entry *e, struct entry *version);
// Durable leaf ranges, sorted, disjoint, not touching; the journal's, valid until the next append for this
// file.
const struct range *journal_held(const struct journal_file *f, uint32_t *count);
// Digest of every leaf of the file, in order; those not held (or holes) are whatever was set by
// journal_leaf_set, else zeros. Memory of the journal: 16 bytes a leaf; NULL while none was held or set.
const struct digest *journal_leaves(const struct journal_file *f);
// Sets the digest of a leaf that is never journalled, a hole: in memory only. -ENOMEM, -EFBIG.
MUST_CHECK int journal_leaf_set(struct journal_file *f, uint64_t leaf, const struct digest *digest);

// The caller's promise: these leaves (count > 0, inside the file) are on stable storage. Appends LEAVES (not
// yet synced) and remembers them; leaves that are held already take the new digests. -ENOMEM, -EFBIG: nothing
// was appended.
MUST_CHECK int journal_durable(struct journal *j, struct journal_file *f, uint64_t first_leaf,
                               const struct digest *leaves, uint32_t count);
// Forget what was held (published, the temporary file is not there, or a sync failed): appends GONE and frees
// the file, also when that fails. Before a temporary file of the same version is made again journal_sync must
// have returned 0: else a crash could leave a journal that promises the old ranges of the new, empty file.
MUST_CHECK int journal_gone(struct journal *j, struct journal_file *f);
// Writes and syncs what was appended.
MUST_CHECK int journal_sync(struct journal *j);
// Whether what is held of the file was journalled under another boot id, or an unknown one.
bool journal_doubtful(const struct journal *j, const struct journal_file *f);
// Bytes of all files that are held and doubtful, holes too.
uint64_t journal_doubtful_bytes(const struct journal *j);
// Of what is held of a doubtful file only these leaves (ranges among journal_held, sorted, disjoint, not
// touching; count 0: nothing) are, and now they are no longer doubtful. Appends GONE and, as a new file, what
// holds; not synced. -ENOMEM, or an error of the append: then the file holds nothing in memory.
MUST_CHECK int journal_hold(struct journal *j, struct journal_file *f, const struct range *leaves,
                            uint32_t count);
// As journal_sync; but where a write or sync has failed the journal is written anew from memory, and takes
// the place of the old one: there may be room again. What is in memory is durable in any case, since it was
// synced before it was journalled.
MUST_CHECK int journal_renew(struct journal *j);
// The files of which something is held, whether asked for in this run or not.
void journal_each(const struct journal *j,
                  void (*each)(void *arg, const struct entry *e, const struct range *held, uint32_t count),
                  void *arg);

// Walks the files that are held but were not asked for in this run: their temporary names, to be removed.
// Calls `each` for files no journal_find/journal_file touched since open, and for the other versions that
// those have forgotten. All of them are forgotten by this (GONE).
void journal_each_stale(struct journal *j, void (*each)(void *arg, const struct entry *e), void *arg);

#endif
