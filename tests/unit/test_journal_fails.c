// The journal when its file cannot be written.
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "tests/unit/journal_kit.h"

// In a child: f gets the directory; 0 is right.
static int in_child(int (*f)(int state_fd), int state_fd)
{
    fflush(NULL);
    pid_t pid = fork();
    CU_ASSERT_FATAL(pid >= 0);
    if (pid == 0)
        _exit(f(state_fd));
    int status = -1;
    CU_ASSERT_EQUAL(waitpid(pid, &status, 0), pid);
    return status;
}

// Files of this process end at `bytes` from now on.
static bool limit_files(rlim_t bytes)
{
    struct rlimit limit = {.rlim_cur = bytes, .rlim_max = RLIM_INFINITY};
    return signal(SIGXFSZ, SIG_IGN) != SIG_ERR && setrlimit(RLIMIT_FSIZE, &limit) == 0;
}

// After the first failure every call that writes says the same.
static bool stays_failed(struct journal *j, int err)
{
    struct entry e = kit_large("new");
    struct digest leaf = kit_leaf(1);
    struct entry known = model_entry(0);
    struct journal_file *f = NULL;
    struct journal_file *old = journal_find(j, &known);
    return journal_sync(j) == err && journal_file(j, &e, &f) == err && old != NULL &&
           journal_durable(j, old, 9, &leaf, 1) == err && journal_gone(j, old) == err &&
           journal_sync(j) == err;
}

static int write_fails(int state_fd)
{
    struct model m = {0};
    struct journal *j = kit_journal_whole(state_fd);
    model_durable(&m, j, 0, 0, 4, 9);
    if (journal_sync(j) != 0 || !limit_files(300))
        return 1;
    struct entry e = model_entry(0);
    for (unsigned i = 4; i < 20; i++)
        kit_durable(j, &e, i, 1, 8);
    if (journal_sync(j) != -EFBIG || !limit_files(RLIM_INFINITY) || !stays_failed(j, -EFBIG))
        return 2;
    journal_close(j);
    return 0;
}

// The descriptor of the journal becomes one that takes writes and refuses to sync.
static int sync_fails(int state_fd)
{
    struct model m = {0};
    struct journal *j = kit_journal_whole(state_fd);
    model_durable(&m, j, 0, 0, 4, 9);
    if (journal_sync(j) != 0)
        return 1;
    struct stat want, st;
    int null = open("/dev/null", O_WRONLY | O_CLOEXEC), found = -1;
    if (null < 0 || fstatat(state_fd, "journal", &want, 0) != 0)
        return 2;
    for (int fd = 3; fd < 256; fd++)
        if (fstat(fd, &st) == 0 && st.st_ino == want.st_ino && st.st_dev == want.st_dev)
            found = fd;
    int kept = dup(found);
    if (found < 0 || dup2(null, found) != found)
        return 3;
    model_durable(&m, j, 1, 0, 4, 9);
    if (journal_sync(j) != -EINVAL || dup2(kept, found) != found)
        return 4;
    if (!stays_failed(j, -EINVAL))
        return 5;
    journal_close(j);
    return 0;
}

static void test_sticky(void)
{
    int (*const fails[])(int state_fd) = {write_fails, sync_fails};
    for (size_t i = 0; i < ARRAY_LEN(fails); i++) {
        struct scratch s = scratch_begin();
        CU_ASSERT_EQUAL(in_child(fails[i], s.fd), 0);
        bool damaged;
        struct journal *j = kit_journal(s.fd, &damaged);
        struct entry e = model_entry(0);
        const struct journal_file *f = journal_find(j, &e);
        CU_ASSERT_PTR_NOT_NULL_FATAL(f);
        uint32_t count = 0;
        const struct range *held = journal_held(f, &count);
        CU_ASSERT_TRUE(count == 1 && held[0].offset == 0 && held[0].len >= 4);
        journal_close(j);
        scratch_end(&s);
    }
}

// No room to write it anew: the old one stays.
static int compaction_fails(int state_fd)
{
    struct journal *j = NULL;
    struct job_id job = kit_job(2);
    bool damaged = true;
    if (!limit_files(100) || journal_open(state_fd, &job, &j, &damaged) != -EFBIG)
        return 1;
    return j == NULL && damaged && faccessat(state_fd, "journal.new", F_OK, 0) != 0 ? 0 : 2;
}

static void test_compaction_fails(void)
{
    struct scratch s = scratch_begin();
    struct model m = {0};
    struct journal *j = kit_journal_whole(s.fd);
    model_durable(&m, j, 0, 0, 4, 9);
    CU_ASSERT_EQUAL(journal_sync(j), 0);
    journal_close(j);
    struct image before = image_read(s.fd);
    uint32_t open_before = scratch_open_files();
    CU_ASSERT_EQUAL(in_child(compaction_fails, s.fd), 0);
    CU_ASSERT_TRUE(image_same(s.fd, before.bytes, before.len));
    CU_ASSERT_EQUAL(scratch_open_files(), open_before);
    j = kit_journal_whole(s.fd);
    CU_ASSERT_TRUE(model_is(&m, j));
    journal_close(j);
    free(before.bytes);
    scratch_end(&s);
}

void suite_journal_fails(void)
{
    CU_pSuite s = CU_add_suite("journal_fails", NULL, NULL);
    CU_add_test(s, "a failure is final", test_sticky);
    CU_add_test(s, "a start that fails keeps the old", test_compaction_fails);
}
