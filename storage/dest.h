// The destination root: the directory that receives entries, and the folder `.penstock/` in it while a job is
// unfinished: lock, journal, and temporary files under temp/. All by held descriptors.
//
// A file is written under a temporary name that carries the version of its source (dest_temp_name), gets its
// metadata through its descriptor, is synced, and only then renamed to its final name: an existing file stays
// whole until then. Temporary files lie in `.penstock/temp/`; where the target directory is on another mount
// (rename says EXDEV) the file is written beside its target under ".penstock-" + a number of the root + "-" +
// temporary name: decided by sys_mount_id of the parent. Directories in which that was done are named in
// `.penstock/beside`, so that a later run finds what one that was cut off has left (dest_sweep). A mount that
// it does not show (a bind mount of the same file system, before Linux 5.8) is learnt from the rename:
// publishing fails once with -EXDEV, and what is written anew for that directory goes beside.
#ifndef PENSTOCK_STORAGE_DEST_H
#define PENSTOCK_STORAGE_DEST_H

#include "proto/base.h"
#include "proto/err.h"
#include "proto/manifest.h"
#include "storage/path.h"

struct dest {
    int fd;       // the destination root
    int state_fd; // .penstock/
    int temp_fd;  // .penstock/temp/
    int lock_fd;
    uint64_t dev, mount;        // of the root: st_dev and sys_mount_id
    bool can_chown;             // effective root: owner and group are kept
    struct dest_mounts *mounts; // owned; which parents lie on another mount: for dest's own files
};

struct dest_lock_info {
    struct job_id job;
    char host[256];
    char user[64];
    int64_t since_s; // wall clock, for the age shown
};

// Opens the root (`root_fd` is taken over also on failure), makes .penstock/ and temp/ and takes the lock:
// flock on .penstock/lock, which then holds *mine as one line "job host user since". When another job has it:
// waits for it up to `wait_ms` (a thread of its own blocks in flock; after the limit it may live on until the
// lock is free, and gives it back at once), then -EWOULDBLOCK and *holder (all zero when unknown). A
// `.penstock/` that is there is adopted; a link or something else in its place: -ELOOP, -ENOTDIR. Syncs what
// it made.
MUST_CHECK int dest_open(int root_fd, const struct dest_lock_info *mine, uint32_t wait_ms, struct dest *out,
                         struct dest_lock_info *holder);
// Closes and releases the lock; with `finished` removes all temporary files, .penstock/ and everything in it
// first (best effort; returns the first error of that). Who waits for the lock then finds that the path names
// another file, and begins anew.
int dest_close(struct dest *d, bool finished);

enum { TEMP_NAME_BYTES = 64 };
// Name of the temporary file of a source version: hex of XXH3-128 over path, size, mtime, ctime and inode.
void dest_temp_name(const struct entry *e, char out[TEMP_NAME_BYTES]);

// An open temporary file.
struct dest_file {
    int fd;     // writes of whole blocks; O_DIRECT when `direct`
    int dir_fd; // where the temporary file lies: temp_fd (borrowed), or an own descriptor when `beside`
    bool direct;
    bool beside;
    char name[TEMP_NAME_BYTES];
};

// Creates the temporary file of `e`, or with `adopt` opens the one that is there (-ENOENT when it is not). A
// new one: O_EXCL after removing a leftover of the same name, mode 0600, size set to e->size, data ranges
// preallocated (not on tmpfs; where the file system cannot, the size alone). -ENOSPC, -EDQUOT, -EFBIG tell
// before any byte moves. What is adopted must be a file of ours with one name and not shorter than e->size,
// else -ENOENT; it is not preallocated (dest_file_reserve). `direct`: try O_DIRECT.
MUST_CHECK int dest_temp_open(const struct dest *d, const struct entry *e, bool adopt, bool direct,
                              struct dest_file *out);
void dest_file_close(struct dest_file *f);
// Room for what is not there yet of an adopted file, as for a new one.
MUST_CHECK int dest_file_reserve(const struct dest_file *f, const struct entry *e);
// Unlinks, and gives the room back although others still hold the descriptor, which stays open.
void dest_file_drop(const struct dest_file *f);

// Owner and group (as root), mode, exact size, times, through the descriptor. Set-id bits are kept only when
// the owner is.
MUST_CHECK int dest_file_metadata(const struct dest *d, int fd, const struct entry *e);
// Renames to the final name. A directory in the way: -EISDIR. The directory is not yet synced: its descriptor
// is given out
// (*parent_fd, the caller's to close) so that a group syncs each directory once.
MUST_CHECK int dest_file_publish(const struct dest *d, const struct dest_file *f, const struct entry *e,
                                 int *parent_fd);

// Makes a whole small file under a temporary name, metadata set, not synced: `body` is its logical content of
// e->size bytes (holes of a sparse entry are left out; NULL and 0 will do for an entry without data). On 0 it
// waits for dest_small_publish; the descriptor is closed. `cache` is the calling thread's.
MUST_CHECK int dest_small_write(const struct dest *d, struct path_cache *cache, const struct entry *e,
                                const void *body, size_t len);
MUST_CHECK int dest_small_publish(const struct dest *d, struct path_cache *cache, const struct entry *e);

// ---- what is left of unfinished files (dest_left.c) ----

// Removes the temporary file of `e`, small or large, by its name; as far as it goes.
void dest_temp_discard(const struct dest *d, const struct entry *e);
// The temporary file of `e` keeps these leaves (sorted, disjoint, inside the file) and gives back the room of
// all others, where the file system can. *kept_bytes: what it takes up of what it keeps. -ENOENT: there is
// none that could be adopted. Only the size and the version of `e` are looked at.
MUST_CHECK int dest_temp_trim(const struct dest *d, const struct entry *e, const struct range *leaves,
                              uint32_t count, uint64_t *kept_bytes);
// Removes all temporary files, those beside their targets too, but for the names that `wanted` (NULL: none)
// says true to: it gets what dest_temp_name gave. Goes on after an error; returns the first one. Nobody
// writes meanwhile.
MUST_CHECK int dest_sweep(const struct dest *d, bool (*wanted)(void *arg, const char *name), void *arg);

// Everything that was made beneath the root is on stable storage: syncs the root's file system, and those of
// mounts in it in which something was made.
MUST_CHECK int dest_sync(const struct dest *d);

// Compare with what is there. Sets *same when the final name holds the entry already: same type, and for a
// file size and mtime, for a link its text. Missing: *same = false. *meta_differs: it is the same but mode,
// owner (as root) or a link's time differ. A directory where a file or link is to be: -EISDIR.
MUST_CHECK int dest_compare(const struct dest *d, struct path_cache *cache, const struct entry *e, bool *same,
                            bool *meta_differs);
// Sets mode, owner and time of an entry that is there (file, link) to the manifest's.
MUST_CHECK int dest_fix_metadata(const struct dest *d, struct path_cache *cache, const struct entry *e);
// Makes the directory (mode 0700 | mode until the closing pass) or keeps the one that is there, made writable
// for the owner. Something else in the way that is not a directory is removed first. *made.
MUST_CHECK int dest_make_dir(const struct dest *d, const struct entry *e, bool *made);
// Makes the link under a temporary name and renames it over what is there (a directory in the way: -EISDIR).
MUST_CHECK int dest_make_link(const struct dest *d, struct path_cache *cache, const struct entry *e);
// Closing pass for one directory: owner, mode, times; not synced.
MUST_CHECK int dest_finish_dir(const struct dest *d, const struct entry *e);

#endif
