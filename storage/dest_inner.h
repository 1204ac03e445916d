// What the files of the destination (dest*.c) share; nobody else includes it.
#ifndef PENSTOCK_STORAGE_DEST_INNER_H
#define PENSTOCK_STORAGE_DEST_INNER_H

#include "storage/dest.h"
#include "storage/sys.h"

// ---- the lock (dest_lock.c) ----

enum { LOCK_TEXT_BYTES = 2048 }; // more than the longest line

// Writes *info into the lock file as one line "job host user since\n": the job in hex, host and user with
// every byte that is not printable ASCII, and blank and backslash, as \xHH, seconds in decimal. What is
// behind the first newline means nothing, so that a reader without the lock never sees half of two lines.
MUST_CHECK int dest_lock_write(int fd, const struct dest_lock_info *info);
// Reads it; all zero where the line is not whole.
void dest_lock_read(int fd, struct dest_lock_info *info);
// Takes the lock on the open file. Another has it: waits until it is free or sys_clock_ns() reaches
// `deadline_ns` (0: does not wait), then -EWOULDBLOCK and *holder. *fd is the caller's after 0 only; after an
// error it is gone and set to -1.
MUST_CHECK int dest_lock_take(int *fd, uint64_t deadline_ns, struct dest_lock_info *holder);

// Gives the lock free, if it is held, and closes the file. Closing alone would not do while a child that was
// just forked still has a copy of the descriptor.
void dest_lock_release(int fd);

// ---- which parents lie on another mount (dest_mounts.c) ----

// A memo shared by all threads, so that a run of files in one directory asks the kernel once. Lossy: what it
// does not know is asked again.
struct dest_mounts;
MUST_CHECK struct dest_mounts *dest_mounts_new(void); // NULL: out of memory
void dest_mounts_free(struct dest_mounts *m);
// Under the lock of the root: takes the number that names beside targets carry from the list of an earlier
// run, or draws one. It tells leftovers of this root from those of others, and from what users have. -errno.
MUST_CHECK int dest_beside_begin(struct dest *d);
// Whether the memo knows of the directory that holds `e`; then *beside.
bool dest_mounts_ask(const struct dest *d, const struct entry *e, bool *beside);
void dest_mounts_tell(const struct dest *d, const struct entry *e, bool beside);
// Something is made in this directory, which lies on the file system `dev`: another than the root's is kept
// for dest_sync. -ENOMEM, or -errno of opening it.
MUST_CHECK int dest_mounts_note(const struct dest *d, uint64_t dev, int dir_fd);
// Asks the kernel, and notes: *beside when this directory lies on another mount than temp/. -errno.
MUST_CHECK int dest_mounts_find(const struct dest *d, int dir_fd, bool *beside);

// ---- temporary names (dest_file.c) ----

#define BESIDE_LIST "beside" // in .penstock/
enum { BESIDE_NUMBER_BYTES = 8 };
// What every name beside a target begins with, at this destination root: a data set that holds the leftovers
// of another root must not lose them here.
const char *dest_beside_prefix(const struct dest *d);
// The name beside the target, where temp/ is on another mount.
void dest_beside_name(const struct dest *d, const struct entry *e, char out[TEMP_NAME_BYTES]);
// The directory of `e` gets a name beside a target: into `.penstock/beside`, before that. Any thread.
MUST_CHECK int dest_beside_note(const struct dest *d, const struct entry *e);
// Creates the file, O_EXCL, after removing a leftover of the same name. `flags`: O_WRONLY or O_RDWR,
// O_DIRECT.
MUST_CHECK int dest_create(int dir_fd, const char *name, int flags, mode_t mode);
// As dest_temp_open that adopts, without O_DIRECT, of a file whose owner nobody tells: the journal has none.
MUST_CHECK int dest_temp_reopen(const struct dest *d, const struct entry *e, struct dest_file *out);
// Removes a temporary name as far as it goes: one that stays is removed by who creates it next, or with
// .penstock/.
void dest_unlink_temp(int dir_fd, const char *name);

// ---- metadata (dest_file.c) ----

// The permission bits that an entry gets: without set-id bits unless owner and group are the manifest's too.
mode_t dest_mode(const struct dest *d, const struct entry *e, uid_t uid, gid_t gid);
// {access time left as it is, modification time of the entry}.
void dest_times(const struct entry *e, struct timespec times[2]);
// Owner, mode and times through the descriptor, in this order: chown clears set-id bits, and the time is
// last.
MUST_CHECK int dest_set_metadata(const struct dest *d, int fd, const struct entry *e);

#endif
