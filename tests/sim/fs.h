// A file system in memory with two states: what processes see, and what a power cut leaves. File bytes and
// attributes become durable by a sync of the file, names by a sync of their directory, everything by a sync
// of the file system; nothing else is promised, and of the rest a crash keeps a random part: each block, each
// attribute and each change of a name on its own (a rename as a whole).
#ifndef PENSTOCK_TESTS_SIM_FS_H
#define PENSTOCK_TESTS_SIM_FS_H

#include <sys/stat.h>

#include "proto/base.h"
#include "proto/limits.h"

struct fs;

struct attributes {
    mode_t mode; // with the type
    uid_t uid;
    gid_t gid;
    uint64_t size;
    struct timespec mtime;
};

struct name {
    char *text;
    struct inode *inode;
    uint64_t cookie; // the order of a listing
};

struct names {
    struct name *list; // by cookie
    size_t count, room;
};

struct inode {
    struct fs *fs;
    uint64_t number;
    struct attributes seen, kept;
    struct timespec ctime;
    uint8_t **seen_blocks, **kept_blocks; // [room]; NULL: a hole; equal: not changed since the sync
    bool *lost; // [room]: a failed sync has let go of this block, which no later one writes
    size_t room;
    char *target; // of a link
    struct inode *parent;
    struct names names, kept_names; // of a directory
    unsigned links;                 // names that are seen
    const void *locked_by;          // flock
    struct inode *next;
};

struct fs *fs_new(uint64_t device, uint64_t seed);
void fs_free(struct fs *fs);
struct inode *fs_root(struct fs *fs);
uint64_t fs_device(const struct fs *fs);
void fs_limit(struct fs *fs, uint64_t blocks); // so many may be in use from now on
uint64_t fs_used(const struct fs *fs);
uint64_t fs_free_blocks(const struct fs *fs);
struct timespec fs_now(void); // never the same twice

// Names. -EEXIST, -ENOENT, -ENOTDIR, -EISDIR, -ENOTEMPTY as the kernel has them.
struct inode *fs_find(const struct inode *dir, const char *name);      // NULL: none
struct inode *fs_find_kept(const struct inode *dir, const char *name); // in what a crash would leave
int fs_create(struct inode *dir, const char *name, mode_t mode, struct inode **out); // mode has the type
int fs_remove(struct inode *dir, const char *name, bool directory);
int fs_rename(struct inode *from, const char *name, struct inode *to, const char *new_name);

// Bytes. Of what is seen; a read gives fewer at the end of the file.
size_t fs_read(const struct inode *f, void *buf, size_t len, uint64_t offset);
int fs_write(struct inode *f, const void *buf, size_t len, uint64_t offset); // 0 or -ENOSPC; moves the mtime
int fs_truncate(struct inode *f, uint64_t size);
int fs_punch(struct inode *f, uint64_t offset, uint64_t len); // whole blocks
int fs_set_target(struct inode *f, const char *target);
// The block with this number as it is seen or kept; NULL: a hole.
const uint8_t *fs_block(const struct inode *f, uint64_t number, bool kept);
uint64_t fs_used_blocks(const struct inode *f);

void fs_sync_data(struct inode *f); // fdatasync
void fs_sync(struct inode *f);      // fsync, of a file or directory
void fs_sync_all(struct fs *fs);
// What a failed sync does: bytes that are not durable stay to be seen, but later syncs pass over them.
void fs_sync_fails(struct inode *f);
void fs_sync_all_fails(struct fs *fs);
void fs_crash(struct fs *fs);
void fs_spoil(struct inode *f, uint64_t number); // a durable block turns out to hold something else

#endif
