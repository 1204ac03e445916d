// The inside of the file system, for fs*.c only.
#ifndef PENSTOCK_TESTS_SIM_FS_INNER_H
#define PENSTOCK_TESTS_SIM_FS_INNER_H

#include "tests/sim/fs.h"
#include "tests/sim/rng.h"

enum change_kind { CHANGE_ADD, CHANGE_REMOVE, CHANGE_MOVE };

// A change of names that no sync has made durable yet.
struct change {
    enum change_kind kind;
    struct inode *dir;
    char *name;
    struct inode *inode;  // added or moved
    struct inode *to_dir; // CHANGE_MOVE
    char *to_name;
    struct change *next;
};

struct fs {
    uint64_t device, next_number, limit, used;
    struct rng rng;
    struct inode *root, *inodes;
    struct change *changes; // oldest first
};

struct inode *inode_new(struct fs *fs, mode_t mode);
struct name *names_find(const struct names *n, const char *text);
void names_add(struct names *n, const char *text, struct inode *inode, uint64_t cookie);
void names_remove(struct names *n, const char *text);
void names_copy(const struct names *from, struct names *to);
void names_free(struct names *n);
void change_log(struct fs *fs, enum change_kind kind, struct inode *dir, const char *name,
                struct inode *inode, struct inode *to_dir, const char *to_name);
// Makes the changes that touch `dir` durable (NULL: all); with `rng` each only by chance, and the rest is
// lost.
void changes_free(struct fs *fs);
void changes_keep(struct fs *fs, const struct inode *dir, struct rng *rng, unsigned keep_percent);

#endif
