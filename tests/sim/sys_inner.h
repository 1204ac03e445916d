// The inside of the system calls on files, for sys*.c and engine.c only.
#ifndef PENSTOCK_TESTS_SIM_SYS_INNER_H
#define PENSTOCK_TESTS_SIM_SYS_INNER_H

#include "tests/sim/fs.h"

struct host;

// An open file description.
struct open_file {
    struct inode *inode;
    int flags;         // of open
    uint64_t position; // of a listing: the cookie of the next name
};

struct open_file *file_of(int fd);
// Where a call of the current process begins; 0 or what it is to return.
int sys_begin(const char *what);
int file_open(struct inode *i, int flags); // a descriptor of the current process
// The directory that `dir_fd` stands for; AT_FDCWD: the root.
struct inode *dir_of(int dir_fd);

enum { FOLLOW_LAST = 1, FOLLOW_NONE = 2 };
// Walks the path. *dir and name: where the last component lies (name "" when that is the directory itself);
// *out: what it names, NULL when there is nothing. -ENOENT, -ENOTDIR, -ELOOP, -EACCES.
int walk_path(struct inode *start, const char *path, int follow, struct inode **dir, char *name,
              struct inode **out);
enum { MAY_READ = 4, MAY_WRITE = 2, MAY_SEARCH = 1 };
bool may(const struct inode *i, int what); // the current process

// READ and WRITE of a host's file, as the kernel does them; `calls`: with the host's trouble.
int64_t file_read(struct open_file *f, void *buf, size_t len, uint64_t offset);
int64_t file_write(struct open_file *f, const void *buf, size_t len, uint64_t offset);

#endif
