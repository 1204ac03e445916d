// A list under a lock, and an eventfd that is readable while the list is not empty.
#include "mover/mailbox.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct mailbox {
    pthread_mutex_t lock;
    struct mail *first, **end;
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

void mailbox_free(struct mailbox *m)
{
    if (m == NULL)
        return;
    for (struct mail *mail = mailbox_take(m); mail != NULL;) {
        struct mail *next = mail->next;
        free(mail);
        mail = next;
    }
    close(m->fd);
    pthread_mutex_destroy(&m->lock);
    free(m);
}

static void die(const char *why)
{
    fprintf(stderr, "penstock: %s\n", why);
    abort();
}

void mailbox_post(struct mailbox *m, const struct message *message)
{
    uint8_t *buf = malloc(MESSAGE_BYTES_MAX + MESSAGE_HEAD_BYTES);
    int64_t len = buf != NULL ? message_encode(message, buf, MESSAGE_BYTES_MAX + MESSAGE_HEAD_BYTES) : -1;
    struct mail *mail = len > 0 ? malloc(sizeof *mail + (size_t)len) : NULL;
    if (mail == NULL)
        die(buf == NULL || len > 0 ? "out of memory" : "a message over its limits");
    memcpy(mail->bytes, buf, (size_t)len);
    free(buf);
    mail->len = (size_t)len;
    mail->next = NULL;
    pthread_mutex_lock(&m->lock);
    *m->end = mail;
    m->end = &mail->next;
    uint64_t one = 1;
    ssize_t rung =
        write(m->fd, &one, sizeof one); // fails only when the counter is full, and then it is readable
    (void)rung;
    pthread_mutex_unlock(&m->lock);
}

int mailbox_fd(const struct mailbox *m)
{
    return m->fd;
}

struct mail *mailbox_take(struct mailbox *m)
{
    pthread_mutex_lock(&m->lock);
    struct mail *first = m->first;
    m->first = NULL;
    m->end = &m->first;
    uint64_t count;
    ssize_t got = read(m->fd, &count, sizeof count); // fails only when it was not rung
    (void)got;
    pthread_mutex_unlock(&m->lock);
    return first;
}
