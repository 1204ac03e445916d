// A list under a lock, and an eventfd that is readable while the list is not empty.
#include "mover/mailbox.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct mailbox {
    pthread_mutex_t lock;
    struct mail *first, **end;
    size_t bytes; // of all in the list
    int failed;   // 0, or -errno: a message is lost
    int fd;
};

struct mailbox *mailbox_new(void)
{
    struct mailbox *m = calloc(1, sizeof *m);
    if (m == NULL)
        return NULL;
    m->end = &m->first;
    m->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (m->fd < 0 || pthread_mutex_init(&m->lock, NULL) != 0) {
        if (m->fd >= 0)
            close(m->fd);
        free(m);
        return NULL;
    }
    return m;
}

void mail_free(struct mail *first)
{
    while (first != NULL) {
        struct mail *next = first->next;
        free(first);
        first = next;
    }
}

void mailbox_free(struct mailbox *m)
{
    if (m == NULL)
        return;
    mail_free(m->first);
    close(m->fd);
    pthread_mutex_destroy(&m->lock);
    free(m);
}

static void ring(const struct mailbox *m)
{
    uint64_t one = 1;
    ssize_t rung = write(m->fd, &one, sizeof one); // fails only when the counter is full: readable, then
    (void)rung;
}

static void mailbox_fail(struct mailbox *m, int rc)
{
    pthread_mutex_lock(&m->lock);
    m->failed = rc;
    ring(m);
    pthread_mutex_unlock(&m->lock);
}

int mailbox_failed(struct mailbox *m)
{
    pthread_mutex_lock(&m->lock);
    int rc = m->failed;
    pthread_mutex_unlock(&m->lock);
    return rc;
}

void mailbox_post(struct mailbox *m, const struct message *message)
{
    uint8_t *buf = malloc(MESSAGE_BYTES_MAX + MESSAGE_HEAD_BYTES);
    int64_t len = buf != NULL ? message_encode(message, buf, MESSAGE_BYTES_MAX + MESSAGE_HEAD_BYTES) : -1;
    struct mail *mail = len > 0 ? malloc(sizeof *mail + (size_t)len) : NULL;
    assert(buf == NULL || len > 0);
    if (mail == NULL) {
        free(buf);
        mailbox_fail(m, -ENOMEM);
        return;
    }
    memcpy(mail->bytes, buf, (size_t)len);
    free(buf);
    mail->len = (size_t)len;
    mail->next = NULL;
    pthread_mutex_lock(&m->lock);
    *m->end = mail;
    m->end = &mail->next;
    m->bytes += mail->len;
    ring(m);
    pthread_mutex_unlock(&m->lock);
}

int mailbox_fd(const struct mailbox *m)
{
    return m->fd;
}

size_t mailbox_bytes(struct mailbox *m)
{
    pthread_mutex_lock(&m->lock);
    size_t bytes = m->bytes;
    pthread_mutex_unlock(&m->lock);
    return bytes;
}

struct mail *mailbox_take(struct mailbox *m)
{
    pthread_mutex_lock(&m->lock);
    struct mail *first = m->first;
    m->first = NULL;
    m->end = &m->first;
    m->bytes = 0;
    uint64_t count;
    ssize_t got = read(m->fd, &count, sizeof count); // fails only when it was not rung
    (void)got;
    pthread_mutex_unlock(&m->lock);
    return first;
}
