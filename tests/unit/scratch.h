// A directory of one test, under TMPDIR or /tmp, gone at its end. What is made in it is made with the C
// library alone, not with what is tested. All of it aborts the test program when it does not work.
#ifndef PENSTOCK_TESTS_UNIT_SCRATCH_H
#define PENSTOCK_TESTS_UNIT_SCRATCH_H

#include "proto/base.h"

struct scratch {
    char path[512];
    int fd;
};

struct scratch scratch_begin(void);
void scratch_end(struct scratch *s);

// In the directory `fd`: a directory (mode 0755), a file that holds `text`, a link.
void scratch_dir(int fd, const char *path);
void scratch_file(int fd, const char *path, const char *text);
void scratch_link(int fd, const char *path, const char *target);
// A file of `size` bytes of data.
void scratch_bytes(int fd, const char *path, size_t size);
// A chain of `depth` directories, each called `name` and with a file "f" when `with_file`, beneath the
// directory `fd`. Returns the last one.
int scratch_deep(int fd, const char *name, uint32_t depth, bool with_file);

// Descriptors that the process has open.
uint32_t scratch_open_files(void);

// Runs f(arg) in a child process, as user 65534 without groups when we are root; returns what it returned
// (0..255), or -1 when it crashed.
int scratch_child(int (*f)(void *arg), void *arg);
// The same as whoever we are.
int scratch_root_child(int (*f)(void *arg), void *arg);

// Exchanges the names `a` and `b` in the directory `fd`, over and over, until it is stopped.
struct swapper;
struct swapper *swapper_start(int fd, const char *a, const char *b);
uint64_t swapper_stop(struct swapper *s); // how often it did

#endif
