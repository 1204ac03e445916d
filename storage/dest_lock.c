#include "storage/dest_inner.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>

static bool plain(unsigned char c)
{
    return c > ' ' && c < 0x7f && c != '\\';
}

// Appends `text`, escaped, to out[at..LOCK_TEXT_BYTES); returns the new end.
static size_t put_escaped(char *out, size_t at, const char *text)
{
    for (; *text != '\0'; text++) {
        unsigned char c = (unsigned char)*text;
        assert(at + 5 < LOCK_TEXT_BYTES);
        if (plain(c))
            out[at++] = (char)c;
        else
            at += (size_t)snprintf(out + at, 5, "\\x%02x", c);
    }
    return at;
}

int dest_lock_write(int fd, const struct dest_lock_info *info)
{
    _Static_assert(33 + 4 * (sizeof(info->host) + sizeof(info->user)) + 32 < LOCK_TEXT_BYTES,
                   "the line fits");
    char line[LOCK_TEXT_BYTES];
    size_t at = 0;
    for (size_t i = 0; i < sizeof(info->job.bytes); i++)
        at += (size_t)snprintf(line + at, 3, "%02x", info->job.bytes[i]);
    line[at++] = ' ';
    at = put_escaped(line, at, info->host);
    line[at++] = ' ';
    at = put_escaped(line, at, info->user);
    at += (size_t)snprintf(line + at, sizeof(line) - at, " %lld\n", (long long)info->since_s);
    int err = sys_pwrite_full(fd, line, at, 0);
    return err < 0 ? err : sys_ftruncate(fd, at);
}

static int hex_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

// Two hex digits at `text` as a byte, or -1.
static int hex_byte(const char *text)
{
    int high = hex_value(text[0]);
    int low = high < 0 ? -1 : hex_value(text[1]);
    return low < 0 ? -1 : high << 4 | low;
}

// Takes an escaped field and the blank behind it; returns what follows, or NULL where it is malformed or too
// long.
static const char *get_escaped(const char *text, char *out, size_t out_len)
{
    size_t len = 0;
    while (*text != ' ') {
        int c = plain((unsigned char)*text) ? *text : -1;
        if (text[0] == '\\' && text[1] == 'x') {
            c = hex_byte(text + 2);
            text += c < 0 ? 0 : 3;
        }
        if (c <= 0 || len + 1 >= out_len)
            return NULL;
        out[len++] = (char)c;
        text++;
    }
    out[len] = '\0';
    return text + 1;
}

// Parses one terminated line; false: not what dest_lock_write writes.
static bool parse_line(const char *text, struct dest_lock_info *info)
{
    for (size_t i = 0; i < sizeof(info->job.bytes); i++, text += 2) {
        int byte = hex_byte(text);
        if (byte < 0)
            return false;
        info->job.bytes[i] = (uint8_t)byte;
    }
    if (*text++ != ' ' || (text = get_escaped(text, info->host, sizeof(info->host))) == NULL ||
        (text = get_escaped(text, info->user, sizeof(info->user))) == NULL)
        return false;
    char *end;
    errno = 0;
    info->since_s = strtoll(text, &end, 10);
    return errno == 0 && end != text && *end == '\0';
}

void dest_lock_read(int fd, struct dest_lock_info *info)
{
    char text[LOCK_TEXT_BYTES];
    ssize_t len = sys_pread_full(fd, text, sizeof(text), 0);
    char *newline = len > 0 ? memchr(text, '\n', (size_t)len) : NULL;
    struct dest_lock_info found = {0};
    if (newline != NULL)
        *newline = '\0';
    if (newline == NULL || !parse_line(text, &found))
        memset(&found, 0, sizeof(found));
    *info = found;
}

void dest_lock_release(int fd)
{
    int err = sys_flock(fd, LOCK_UN);
    (void)err; // there may be none to release
    sys_close(fd);
}

// A wait for the lock with a limit. flock has none of its own, so a thread blocks in it. The thread owns the
// file while it runs: it hands it back with the lock, or, when the waiter has gone, closes it the moment it
// gets the lock. Nobody is interrupted by a signal, nothing polls.
struct lock_wait {
    pthread_mutex_t mutex;
    pthread_cond_t done_changed;
    int fd;
    int result; // of flock, once done
    bool done;
    bool gone; // the waiter has left: the thread frees this
};

static void lock_wait_free(struct lock_wait *w)
{
    pthread_cond_destroy(&w->done_changed);
    pthread_mutex_destroy(&w->mutex);
    free(w);
}

static void *lock_wait_run(void *arg)
{
    struct lock_wait *w = arg;
    int result = sys_flock(w->fd, LOCK_EX);
    pthread_mutex_lock(&w->mutex);
    w->result = result;
    w->done = true;
    bool gone = w->gone;
    pthread_cond_signal(&w->done_changed);
    pthread_mutex_unlock(&w->mutex);
    if (gone) {
        dest_lock_release(w->fd);
        lock_wait_free(w);
    }
    return NULL;
}

static struct lock_wait *lock_wait_new(int fd)
{
    struct lock_wait *w = calloc(1, sizeof(*w));
    pthread_condattr_t attr;
    if (w == NULL)
        return NULL;
    w->fd = fd;
    pthread_mutex_init(&w->mutex, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&w->done_changed, &attr);
    pthread_condattr_destroy(&attr);
    return w;
}

// Starts the thread with all signals blocked: those of the process are for others.
static int lock_wait_start(struct lock_wait *w, pthread_t *thread)
{
    sigset_t all, before;
    sigfillset(&all);
    int err = pthread_sigmask(SIG_SETMASK, &all, &before);
    if (err != 0)
        return -err;
    err = pthread_create(thread, NULL, lock_wait_run, w);
    int restored = pthread_sigmask(SIG_SETMASK, &before, NULL);
    assert(restored == 0);
    return -err;
}

// The clock of the condition variable, which knows no CLOCK_BOOTTIME: what is left until the deadline, from
// now on.
static struct timespec condition_deadline(uint64_t deadline_ns)
{
    uint64_t now_ns = sys_clock_ns();
    uint64_t left_ns = deadline_ns > now_ns ? deadline_ns - now_ns : 0;
    struct timespec at;
    int rc = clock_gettime(CLOCK_MONOTONIC, &at);
    assert(rc == 0);
    uint64_t ns = (uint64_t)at.tv_nsec + left_ns % 1000000000;
    at.tv_sec += (time_t)(left_ns / 1000000000 + ns / 1000000000);
    at.tv_nsec = (long)(ns % 1000000000);
    return at;
}

static int lock_wait_for(int *fd, uint64_t deadline_ns, struct dest_lock_info *holder)
{
    pthread_t thread;
    struct lock_wait *w = lock_wait_new(*fd);
    if (w == NULL)
        return -ENOMEM;
    int err = lock_wait_start(w, &thread);
    if (err < 0) {
        lock_wait_free(w);
        return err;
    }
    struct timespec until = condition_deadline(deadline_ns);
    pthread_mutex_lock(&w->mutex);
    while (!w->done && err == 0)
        err = pthread_cond_timedwait(&w->done_changed, &w->mutex, &until);
    if (w->done) {
        pthread_mutex_unlock(&w->mutex);
        pthread_join(thread, NULL);
        err = w->result;
        lock_wait_free(w);
        return err;
    }
    // The file is ours to read only before the thread learns that we go.
    dest_lock_read(w->fd, holder);
    *fd = -1;
    w->gone = true;
    pthread_detach(thread);
    pthread_mutex_unlock(&w->mutex);
    return -EWOULDBLOCK;
}

int dest_lock_take(int *fd, uint64_t deadline_ns, struct dest_lock_info *holder)
{
    int err = sys_flock(*fd, LOCK_EX | LOCK_NB);
    if (err == -EWOULDBLOCK && deadline_ns > sys_clock_ns())
        err = lock_wait_for(fd, deadline_ns, holder);
    else if (err == -EWOULDBLOCK)
        dest_lock_read(*fd, holder);
    if (err < 0 && *fd >= 0) {
        sys_close(*fd);
        *fd = -1;
    }
    return err;
}
