// What the linker puts in the place of calls in the product's objects (-Wl,--wrap): the Makefile takes the
// names from here. Threads, time, descriptors that are no files, and the few functions by which hosts reach
// each other.
#ifndef PENSTOCK_TESTS_SIM_WRAPS_H
#define PENSTOCK_TESTS_SIM_WRAPS_H

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>

#include "mover/launch.h"
#include "mover/mailbox.h"
#include "mover/net.h"

// threads.c
int __wrap_pthread_create(pthread_t *out, const pthread_attr_t *attr, void *(*run)(void *), void *arg);
int __wrap_pthread_join(pthread_t thread, void **result);
int __wrap_pthread_detach(pthread_t thread);
int __wrap_pthread_mutex_lock(pthread_mutex_t *m);
int __wrap_pthread_mutex_unlock(pthread_mutex_t *m);
int __wrap_pthread_cond_wait(pthread_cond_t *c, pthread_mutex_t *m);
int __wrap_pthread_cond_timedwait(pthread_cond_t *c, pthread_mutex_t *m, const struct timespec *until);
int __wrap_pthread_cond_signal(pthread_cond_t *c);
int __wrap_pthread_cond_broadcast(pthread_cond_t *c);
int __wrap_clock_gettime(clockid_t clock, struct timespec *out);

// memory.c
void *__wrap_mmap(void *addr, size_t len, int protection, int flags, int fd, off_t offset);
void *__real_mmap(void *addr, size_t len, int protection, int flags, int fd, off_t offset);
int __wrap_munmap(void *memory, size_t len);

// calls.c
int __wrap_poll(struct pollfd *fds, nfds_t count, int timeout_ms);
int __wrap___poll_chk(struct pollfd *fds, nfds_t count, int timeout_ms, size_t fds_len);
ssize_t __wrap_read(int fd, void *buf, size_t len);
ssize_t __wrap___read_chk(int fd, void *buf, size_t len, size_t buf_len);
ssize_t __wrap_write(int fd, const void *buf, size_t len);
ssize_t __wrap_send(int fd, const void *buf, size_t len, int flags);
ssize_t __wrap_recv(int fd, void *buf, size_t len, int flags);
ssize_t __wrap___recv_chk(int fd, void *buf, size_t len, size_t buf_len, int flags);
int __wrap_close(int fd);
int __wrap_shutdown(int fd, int how);
int __wrap_fcntl(int fd, int command, ...);
int __wrap_eventfd(unsigned count, int flags);
int __wrap_accept4(int fd, struct sockaddr *addr, socklen_t *len, int flags);
int __wrap_getsockopt(int fd, int level, int name, void *value, socklen_t *len);
int __wrap_setsockopt(int fd, int level, int name, const void *value, socklen_t len);
int __wrap_getsockname(int fd, struct sockaddr *addr, socklen_t *len);
int __wrap_getpeername(int fd, struct sockaddr *addr, socklen_t *len);

// net.c
int __wrap_net_listen(const char *host, uint16_t port, uint16_t port_hi, enum net_family family,
                      int fds[NET_LISTEN_MAX], uint16_t *bound, struct err *err);
int __wrap_net_connect(const char *host, uint16_t port, enum net_family family, const char *bind_to,
                       uint64_t deadline_ns, int cancel_fd, struct err *err);
int64_t __wrap_net_addresses(uint16_t port, uint8_t *out, size_t len);

// launch.c
int __wrap_launch_spawn(char *const argv[], struct launched *out, struct err *err);
int __wrap_launch_end(struct launched *l, uint32_t wait_ms);

// watch.c
void __wrap_mailbox_post(struct mailbox *m, const struct message *message);
void __real_mailbox_post(struct mailbox *m, const struct message *message);

#endif
