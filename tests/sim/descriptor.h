// Descriptors of the simulated processes. A number is never used twice, and each belongs to one process, so
// that a descriptor that is used after it was closed, or by somebody else, is a failure and not an accident.
#ifndef PENSTOCK_TESTS_SIM_DESCRIPTOR_H
#define PENSTOCK_TESTS_SIM_DESCRIPTOR_H

#include <poll.h>

#include "proto/base.h"

struct process;

enum descriptor_kind { DESCRIPTOR_EVENT, DESCRIPTOR_SOCKET, DESCRIPTOR_LISTENER, DESCRIPTOR_FILE };

struct descriptor_ops {
    enum descriptor_kind kind;
    short (*ready)(void *object, short events); // what poll would say; NULL: it cannot be polled
    void (*close)(void *object, bool silently); // silently: the host has lost its power
};

void descriptor_end(void); // forgets all: the next number is the first again
// Gives the object to a process (NULL: the current one) under a new number.
int descriptor_new(struct process *owner, const struct descriptor_ops *ops, void *object);
// The object; a number that is not the current process's, or of another kind, fails the simulation.
void *descriptor_object(int fd, enum descriptor_kind kind);
// NULL when it is not of that kind.
void *descriptor_try(int fd, enum descriptor_kind kind);
void descriptor_close(int fd, enum descriptor_kind kind);
void descriptor_close_any(int fd); // but files, which the product closes by sys_close
void descriptor_close_all(struct process *owner, bool silently);
// A process that ends in order has closed everything.
void descriptor_check_closed(const struct process *owner);
// Fills revents; how many are ready. A negative number is passed over.
int descriptor_poll(struct pollfd *fds, size_t count);
bool descriptor_blocks(int fd); // without O_NONBLOCK
void descriptor_set_blocking(int fd, bool blocks);

#endif
