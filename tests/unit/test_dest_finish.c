// Directories in the closing pass: all of them, deepest first, however many there are.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mover/dest_agent.h"
#include "tests/unit/dest_kit.h"

// A destination agent of which nothing stands but its root, its list of directories and its mailbox.
struct kit {
    struct scratch s;
    struct agent agent;
    struct dest_agent *d;
};

static void kit_begin(struct kit *k)
{
    k->s = scratch_begin();
    k->agent = (struct agent){.mailbox = mailbox_new()};
    k->d = calloc(1, sizeof *k->d);
    CU_ASSERT_FATAL(k->d != NULL && k->agent.mailbox != NULL);
    k->d->agent = &k->agent;
    k->d->dest = kit_open(k->s.fd);
    k->d->dirs = segment_builder_new();
    CU_ASSERT_PTR_NOT_NULL_FATAL(k->d->dirs);
    segment_builder_begin(k->d->dirs, 0);
    k->d->dirs_fd = openat(k->d->dest.state_fd, "directories", O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    CU_ASSERT_FATAL(k->d->dirs_fd >= 0);
}

static void kit_end(struct kit *k)
{
    close(k->d->dirs_fd);
    segment_builder_free(k->d->dirs);
    CU_ASSERT_EQUAL(dest_close(&k->d->dest, true), 0);
    mailbox_free(k->agent.mailbox);
    free(k->d);
    scratch_end(&k->s);
}

static struct entry dir_entry(const char *path, uint32_t mode, int64_t mtime_s)
{
    struct entry e = tree_dir(path);
    e.uid = geteuid();
    e.gid = getegid();
    e.mode = mode;
    e.mtime = (struct entry_time){.s = mtime_s, .ns = 5};
    return e;
}

static void add(struct kit *k, const char *path, uint32_t mode, int64_t mtime_s)
{
    struct entry e = dir_entry(path, mode, mtime_s);
    CU_ASSERT_EQUAL(dest_dirs_add(k->d, &e), 0);
}

// How many problems the coordinator hears of; the path of the last.
static unsigned problems(struct kit *k, char path[64])
{
    unsigned count = 0;
    for (struct mail *mail = mailbox_take(k->agent.mailbox); mail != NULL; count++) {
        struct mail *next = mail->next;
        struct message m;
        CU_ASSERT_EQUAL_FATAL(message_decode(MESSAGE_PROBLEM, mail->bytes + MESSAGE_HEAD_BYTES,
                                             mail->len - MESSAGE_HEAD_BYTES, &m),
                              0);
        CU_ASSERT_EQUAL(m.problem.count, PROBLEM_RECORDED);
        blob_string(&m.problem.path, path, 64);
        free(mail);
        mail = next;
    }
    return count;
}

static bool exact(const struct kit *k, const char *path, uint32_t mode, int64_t mtime_s)
{
    struct entry e = dir_entry(path, mode, mtime_s);
    struct stat st = kit_stat(k->s.fd, path);
    return kit_exact(&st, &e);
}

// A directory that nobody may enter any more is closed after those in it.
static void test_deepest_first(void)
{
    struct kit k;
    char path[64];
    kit_begin(&k);
    scratch_dir(k.s.fd, "a");
    scratch_dir(k.s.fd, "a/b");
    scratch_dir(k.s.fd, "a/b/c");
    add(&k, "a", 0500, 1000);
    add(&k, "a/b", 0, 2000);
    add(&k, "a/b/c", 0700, 3000);
    CU_ASSERT_EQUAL(dest_dirs_finish(k.d), 0);
    CU_ASSERT_EQUAL(problems(&k, path), 0);
    CU_ASSERT_TRUE(exact(&k, "a", 0500, 1000));
    CU_ASSERT_TRUE(exact(&k, "a/b", 0, 2000));
    CU_ASSERT_EQUAL(k.d->dir_count, 3);
    CU_ASSERT_EQUAL(fchmodat(k.s.fd, "a", 0700, 0), 0);
    CU_ASSERT_EQUAL(fchmodat(k.s.fd, "a/b", 0700, 0), 0);
    CU_ASSERT_TRUE(exact(&k, "a/b/c", 0700, 3000));
    kit_end(&k);
}

static void test_none(void)
{
    struct kit k;
    kit_begin(&k);
    CU_ASSERT_EQUAL(dest_dirs_finish(k.d), 0);
    CU_ASSERT_EQUAL(k.d->dir_count, 0);
    CU_ASSERT_FALSE(k.d->root_listed);
    kit_end(&k);
}

enum { MANY = SEGMENT_ENTRIES_MAX + 1000 };

static void many_name(char name[NAME_BYTES_MAX + 1], uint32_t number, int len)
{
    memset(name, 'n', NAME_BYTES_MAX);
    snprintf(name, NAME_BYTES_MAX + 1, "%08u", number);
    name[8] = 'n';
    name[len] = '\0';
}

// More than go into one segment, by their number or by their names: spilled, and read back from the end.
static void many_of(int len)
{
    struct kit k;
    char name[NAME_BYTES_MAX + 1], path[64];
    kit_begin(&k);
    for (uint32_t i = 0; i < MANY; i++) {
        many_name(name, i, len);
        if (i % 500 == 0 || i == MANY - 1)
            scratch_dir(k.s.fd, name);
        add(&k, name, 0711, 10000 + i);
    }
    CU_ASSERT(k.d->dirs_end > 0 && k.d->dir_count == MANY);
    CU_ASSERT_EQUAL(dest_dirs_finish(k.d), 0);
    uint32_t made = 0;
    for (uint32_t i = 0; i < MANY; i += i + 500 < MANY || i == MANY - 1 ? 500 : MANY - 1 - i, made++) {
        many_name(name, i, len);
        CU_ASSERT_TRUE(exact(&k, name, 0711, 10000 + i));
    }
    CU_ASSERT_EQUAL(problems(&k, path), MANY - made); // those that were not made
    kit_end(&k);
}

static void test_many(void)
{
    many_of(20);
    many_of(NAME_BYTES_MAX);
}

// One that has gone is a problem of its own.
static void test_gone(void)
{
    struct kit k;
    char path[64];
    kit_begin(&k);
    scratch_dir(k.s.fd, "a");
    scratch_dir(k.s.fd, "c");
    scratch_link(k.s.fd, "b", "c"); // and a link in its place is not followed
    add(&k, "a", 0755, 1000);
    add(&k, "b", 0700, 2000);
    add(&k, "c", 0755, 3000);
    CU_ASSERT_EQUAL(dest_dirs_finish(k.d), 0);
    CU_ASSERT_EQUAL(problems(&k, path), 1);
    CU_ASSERT_STRING_EQUAL(path, "b");
    CU_ASSERT_TRUE(exact(&k, "a", 0755, 1000));
    CU_ASSERT_TRUE(exact(&k, "c", 0755, 3000));
    kit_end(&k);
}

// The root itself waits until nothing more is made in it.
static void test_root(void)
{
    struct kit k;
    kit_begin(&k);
    scratch_dir(k.s.fd, "a");
    add(&k, "", 0750, 1000);
    add(&k, "a", 0755, 2000);
    CU_ASSERT_EQUAL(dest_dirs_finish(k.d), 0);
    CU_ASSERT_TRUE(k.d->root_listed);
    CU_ASSERT_FALSE(exact(&k, ".", 0750, 1000));
    CU_ASSERT_TRUE(exact(&k, "a", 0755, 2000));
    CU_ASSERT_EQUAL(dest_root_finish(k.d, k.s.fd), 0);
    CU_ASSERT_TRUE(exact(&k, ".", 0750, 1000));
    kit_end(&k);
}

// A list that was damaged meanwhile is not believed.
static void test_damaged(void)
{
    static const uint32_t lengths[] = {0, 1, SEGMENT_BYTES_MAX + 1, UINT32_MAX, UINT32_MAX - 3};
    for (size_t i = 0; i <= ARRAY_LEN(lengths); i++) {
        struct kit k;
        kit_begin(&k);
        for (uint32_t n = 0; n < SEGMENT_ENTRIES_MAX + 1; n++) {
            char path[64];
            snprintf(path, sizeof path, "d%u", n);
            add(&k, path, 0755, 1000);
        }
        CU_ASSERT_FATAL(k.d->dirs_end > 0);
        if (i < ARRAY_LEN(lengths)) {
            uint8_t tail[4];
            struct wire_writer w;
            wire_writer_init(&w, tail, sizeof tail);
            wire_put_u32(&w, lengths[i]);
            CU_ASSERT_EQUAL(pwrite(k.d->dirs_fd, tail, 4, (off_t)k.d->dirs_end - 4), 4);
        } else {
            CU_ASSERT_EQUAL(ftruncate(k.d->dirs_fd, 100), 0);
        }
        int rc = dest_dirs_finish(k.d);
        CU_ASSERT(rc == -EBADMSG || rc == -EPROTO);
        kit_end(&k);
    }
}

void suite_dest_finish(void)
{
    CU_pSuite s = CU_add_suite("dest_finish", NULL, NULL);
    CU_add_test(s, "none", test_none);
    CU_add_test(s, "deepest_first", test_deepest_first);
    CU_add_test(s, "many", test_many);
    CU_add_test(s, "gone", test_gone);
    CU_add_test(s, "root", test_root);
    CU_add_test(s, "damaged", test_damaged);
}
