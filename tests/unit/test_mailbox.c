// Messages between threads: in order, whole, and the descriptor that tells of them.
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include <CUnit/CUnit.h>

#include "mover/mailbox.h"
#include "tests/unit/scratch.h"

static struct mailbox *box_new(void)
{
    struct mailbox *m = mailbox_new();
    CU_ASSERT_PTR_NOT_NULL_FATAL(m);
    return m;
}

static bool readable(const struct mailbox *m, int wait_ms)
{
    struct pollfd p = {.fd = mailbox_fd(m), .events = POLLIN};
    return poll(&p, 1, wait_ms) == 1 && p.revents == POLLIN;
}

static void post_ping(struct mailbox *m, uint64_t cookie)
{
    struct message ping = {.type = MESSAGE_PING, .ping = {.cookie = cookie}};
    mailbox_post(m, &ping);
}

// The message in one piece of mail, as an agent reads it.
static struct message read_mail(const struct mail *mail)
{
    struct message m = {.type = MESSAGE_TYPES};
    uint32_t len;
    uint16_t type;
    CU_ASSERT_EQUAL_FATAL(message_head(mail->bytes, MESSAGE_BYTES_MAX, &len, &type), 0);
    CU_ASSERT_EQUAL_FATAL((size_t)len + MESSAGE_HEAD_BYTES, mail->len);
    CU_ASSERT_EQUAL_FATAL(message_decode(type, mail->bytes + MESSAGE_HEAD_BYTES, len, &m), 0);
    return m;
}

static uint64_t cookie_of(const struct mail *mail)
{
    struct message m = read_mail(mail);
    CU_ASSERT_EQUAL(m.type, MESSAGE_PING);
    return m.ping.cookie;
}

static void test_order(void)
{
    struct mailbox *m = box_new();
    CU_ASSERT_FALSE(readable(m, 0));
    CU_ASSERT_PTR_NULL(mailbox_take(m));
    for (uint64_t round = 0; round < 3; round++) {
        for (uint64_t i = 0; i < 5; i++)
            post_ping(m, 10 * round + i);
        CU_ASSERT_TRUE(readable(m, 0));
        struct mail *mail = mailbox_take(m);
        CU_ASSERT_FALSE(readable(m, 0));
        CU_ASSERT_PTR_NULL(mailbox_take(m));
        for (uint64_t i = 0; i < 5; i++) {
            CU_ASSERT_PTR_NOT_NULL_FATAL(mail);
            struct mail *next = mail->next;
            CU_ASSERT_EQUAL(cookie_of(mail), 10 * round + i);
            free(mail);
            mail = next;
        }
        CU_ASSERT_PTR_NULL(mail);
    }
    mailbox_free(m);
    mailbox_free(NULL);
}

// Blobs are taken over as they are when the message is posted; what nobody takes goes with the box.
static void test_copied(void)
{
    struct mailbox *m = box_new();
    size_t len = 96 * KIB; // as many as there may be
    uint8_t *records = malloc(len);
    CU_ASSERT_PTR_NOT_NULL_FATAL(records);
    memset(records, 'a', len);
    struct message done = {.type = MESSAGE_ENTRIES_DONE,
                           .entries_done = {.segment = 3, .records = blob_of(records, len)}};
    mailbox_post(m, &done);
    memset(records, 'x', len);
    struct mail *mail = mailbox_take(m);
    CU_ASSERT_PTR_NOT_NULL_FATAL(mail);
    struct message got = read_mail(mail);
    CU_ASSERT(got.type == MESSAGE_ENTRIES_DONE && got.entries_done.records.len == len);
    for (size_t i = 0; i < len; i += 1023)
        CU_ASSERT_EQUAL(got.entries_done.records.bytes[i], 'a');
    free(mail);
    mailbox_post(m, &done);
    post_ping(m, 1);
    mailbox_free(m);
    free(records);
}

static int post_too_long(void *arg)
{
    (void)arg;
    struct rlimit none = {0, 0};
    (void)setrlimit(RLIMIT_CORE, &none);
    struct mailbox *m = mailbox_new();
    char text[TEXT_BYTES_MAX + 1];
    memset(text, 't', sizeof text);
    struct message fail = {.type = MESSAGE_FAIL, .fail = {.text = blob_of(text, sizeof text)}};
    if (m != NULL)
        mailbox_post(m, &fail);
    return 0;
}

// A word that cannot be said is a bug, and ends the process: lost, it would hang the job.
static void test_too_long(void)
{
    CU_ASSERT_EQUAL(scratch_root_child(post_too_long, NULL), -1);
}

// Who makes mail without bound looks at how much waits; what was taken does not wait any more.
static void test_crowded(void)
{
    struct mailbox *m = box_new();
    size_t bytes = 0;
    CU_ASSERT_EQUAL(mailbox_bytes(m), 0);
    while (mailbox_bytes(m) < MAILBOX_CROWDED_BYTES) {
        post_ping(m, bytes);
        bytes += MESSAGE_HEAD_BYTES + 8;
        CU_ASSERT_EQUAL_FATAL(mailbox_bytes(m), bytes);
    }
    mail_free(mailbox_take(m));
    CU_ASSERT_EQUAL(mailbox_bytes(m), 0);
    mail_free(NULL);
    post_ping(m, 0);
    CU_ASSERT_EQUAL(mailbox_bytes(m), MESSAGE_HEAD_BYTES + 8);
    mailbox_free(m);
}

enum { POSTERS = 3, POSTS = 500 };

struct poster {
    struct mailbox *m;
    uint64_t number;
};

static void *post_many(void *arg)
{
    const struct poster *p = arg;
    for (uint64_t i = 0; i < POSTS; i++)
        post_ping(p->m, p->number << 32 | i);
    return NULL;
}

// Nothing is lost, each thread's words stay in order, and the descriptor never stays silent.
static void test_threads(void)
{
    struct mailbox *m = box_new();
    pthread_t threads[POSTERS];
    struct poster posters[POSTERS];
    for (uint64_t i = 0; i < POSTERS; i++) {
        posters[i] = (struct poster){.m = m, .number = i};
        CU_ASSERT_EQUAL_FATAL(pthread_create(&threads[i], NULL, post_many, &posters[i]), 0);
    }
    uint64_t next[POSTERS] = {0}, got = 0;
    while (got < POSTERS * POSTS && readable(m, 10000)) {
        for (struct mail *mail = mailbox_take(m); mail != NULL; got++) {
            struct mail *after = mail->next;
            uint64_t cookie = cookie_of(mail);
            CU_ASSERT_EQUAL((uint32_t)cookie, next[cookie >> 32]);
            next[cookie >> 32]++;
            free(mail);
            mail = after;
        }
    }
    CU_ASSERT_EQUAL(got, POSTERS * POSTS);
    for (int i = 0; i < POSTERS; i++)
        CU_ASSERT_EQUAL(pthread_join(threads[i], NULL), 0);
    CU_ASSERT_FALSE(readable(m, 0));
    mailbox_free(m);
}

void suite_mailbox(void)
{
    CU_pSuite s = CU_add_suite("mailbox", NULL, NULL);
    CU_add_test(s, "order", test_order);
    CU_add_test(s, "copied", test_copied);
    CU_add_test(s, "too_long", test_too_long);
    CU_add_test(s, "crowded", test_crowded);
    CU_add_test(s, "threads", test_threads);
}
