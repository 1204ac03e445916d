// The lock on a destination root, between processes.
#include <poll.h>
#include <signal.h>
#include <time.h>

#include "tests/unit/dest_kit.h"

static uint64_t now_ms(void)
{
    return sys_clock_ns() / 1000000;
}

// A child that holds the lock, or waits for it.
struct other {
    pid_t pid;
    int says; // reads a byte from it: it has the lock
    int told; // 'g' makes it go for the lock, then 'u' leave unfinished, 'f' finished
};

static _Noreturn void be_other(int dir_fd, const struct dest_lock_info *info, uint32_t wait_ms, int says,
                               int told)
{
    struct dest d;
    struct dest_lock_info holder;
    char how = 0;
    if (read(told, &how, 1) != 1 || how != 'g')
        _exit(1);
    if (dest_open(kit_root(dir_fd), info, wait_ms, &d, &holder) != 0)
        _exit(2);
    // The lock must be the file that the path names, and the directories must be those of the path.
    struct stat named, open;
    if (fstatat(dir_fd, ".penstock/lock", &named, 0) != 0 || fstat(d.lock_fd, &open) != 0 ||
        named.st_ino != open.st_ino)
        _exit(3);
    scratch_file(d.temp_fd, "mine", "");
    if (!kit_there(dir_fd, ".penstock/temp/mine") || write(says, "l", 1) != 1 || read(told, &how, 1) != 1)
        _exit(4);
    _exit(dest_close(&d, how == 'f') == 0 ? 0 : 5);
}

// It does nothing yet. (Before threads of ours: a child of several threads should not start its own.)
static struct other other_prepare(int dir_fd, const struct dest_lock_info *info, uint32_t wait_ms)
{
    int says[2], told[2];
    CU_ASSERT_FATAL(pipe2(says, O_CLOEXEC) == 0 && pipe2(told, O_CLOEXEC) == 0);
    fflush(NULL);
    struct other o = {.pid = fork(), .says = says[0], .told = told[1]};
    CU_ASSERT_FATAL(o.pid >= 0);
    if (o.pid == 0) {
        close(told[1]);
        be_other(dir_fd, info, wait_ms, says[1], told[0]);
    }
    close(says[1]);
    close(told[0]);
    return o;
}

static void other_tell(const struct other *o, char how)
{
    CU_ASSERT_EQUAL(write(o->told, &how, 1), 1);
}

static struct other other_start(int dir_fd, const struct dest_lock_info *info, uint32_t wait_ms)
{
    struct other o = other_prepare(dir_fd, info, wait_ms);
    other_tell(&o, 'g');
    return o;
}

static bool other_has_lock(const struct other *o, int wait_ms)
{
    struct pollfd p = {.fd = o->says, .events = POLLIN};
    char c;
    return poll(&p, 1, wait_ms) == 1 && read(o->says, &c, 1) == 1;
}

static struct other other_holding(int dir_fd, const char *host)
{
    struct dest_lock_info info = kit_info(host);
    struct other o = other_start(dir_fd, &info, 0);
    CU_ASSERT_TRUE_FATAL(other_has_lock(&o, 10000));
    return o;
}

// Its status, -1 when it was killed.
static int other_end(struct other *o)
{
    int status = 0;
    CU_ASSERT_EQUAL(waitpid(o->pid, &status, 0), o->pid);
    close(o->says);
    close(o->told);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// Until a lock request of process `pid` is queued in the kernel.
static void wait_until_queued(pid_t pid)
{
    char line[256], who[32];
    snprintf(who, sizeof(who), " %d ", (int)pid);
    for (int tries = 0; tries < 5000; tries++) {
        FILE *locks = fopen("/proc/locks", "re");
        CU_ASSERT_PTR_NOT_NULL_FATAL(locks);
        bool queued = false;
        while (fgets(line, sizeof(line), locks) != NULL)
            queued |= strstr(line, "-> FLOCK") != NULL && strstr(line, who) != NULL;
        fclose(locks);
        if (queued)
            return;
        usleep(1000);
    }
    CU_FAIL("nobody waits for the lock");
}

static void test_holder(void)
{
    static const char *const hosts[] = {
        "plain.example", "", "blank and\ttab", "new\nline", "back\\slash\\x41", "\xc3\xa9\xff\x01\x7f", " ",
    };
    struct dest_lock_info infos[ARRAY_LEN(hosts) + 2];
    for (size_t i = 0; i < ARRAY_LEN(hosts); i++) {
        infos[i] = kit_info(hosts[i]);
        snprintf(infos[i].user, sizeof(infos[i].user), "%s", hosts[ARRAY_LEN(hosts) - 1 - i]);
        infos[i].since_s = (int64_t)i * 1000000007 - 3;
    }
    for (size_t i = ARRAY_LEN(hosts); i < ARRAY_LEN(infos); i++) {
        infos[i] = (struct dest_lock_info){.since_s = i % 2 == 0 ? INT64_MIN : INT64_MAX};
        memset(infos[i].host, i % 2 == 0 ? '\n' : 'h', sizeof(infos[i].host) - 1); // as long as can be
        memset(infos[i].user, i % 2 == 0 ? ' ' : 'u', sizeof(infos[i].user) - 1);
    }
    for (size_t i = 0; i < ARRAY_LEN(infos); i++) {
        struct scratch s = scratch_begin();
        struct other o = other_start(s.fd, &infos[i], 0);
        CU_ASSERT_TRUE_FATAL(other_has_lock(&o, 10000));
        struct dest d;
        struct dest_lock_info mine = kit_info("here"), holder;
        memset(&holder, 0xee, sizeof(holder));
        CU_ASSERT_EQUAL(dest_open(kit_root(s.fd), &mine, 0, &d, &holder), -EWOULDBLOCK);
        CU_ASSERT_EQUAL(memcmp(&holder.job, &infos[i].job, sizeof(holder.job)), 0);
        CU_ASSERT_STRING_EQUAL(holder.host, infos[i].host);
        CU_ASSERT_STRING_EQUAL(holder.user, infos[i].user);
        CU_ASSERT_EQUAL(holder.since_s, infos[i].since_s);
        other_tell(&o, 'u');
        CU_ASSERT_EQUAL(other_end(&o), 0);
        scratch_end(&s);
    }
}

// A line that is cut off or not ours says nothing: all zero, never something else.
static void test_holder_unknown(void)
{
    static const char job[] = "000102030405060708090a0b0c0d0e0f";
    static const struct {
        const char *behind; // the job
        bool known;
    } table[] = {
        {" host user 17\n", true},
        {" host user 17\nmore", true},
        {" h\\x20h u -1\n", true},
        {"", false},
        {"\n", false},
        {" host user 17", false},
        {" host user\n", false},
        {" host user \n", false},
        {" host user 1x\n", false},
        {" h\\y user 1\n", false},
        {" h\\x2 u 1\n", false},
        {" h\\x00 u 1\n", false},
        {" host\tx user 1\n", false},
        {" h u 99999999999999999999\n", false},
        {"f h u 1\n", false},
        {" h \\x", false},
    };
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        struct scratch s = scratch_begin();
        struct other o = other_holding(s.fd, "x");
        char text[256];
        snprintf(text, sizeof(text), "%s%s", job, table[i].behind);
        scratch_file(s.fd, ".penstock/lock", text);
        struct dest d;
        struct dest_lock_info mine = kit_info("here"), holder, zero;
        memset(&zero, 0, sizeof(zero));
        CU_ASSERT_EQUAL(dest_open(kit_root(s.fd), &mine, 0, &d, &holder), -EWOULDBLOCK);
        CU_ASSERT_EQUAL(holder.job.bytes[15] == 15, table[i].known);
        CU_ASSERT_EQUAL(memcmp(&holder, &zero, sizeof(zero)) != 0, table[i].known);
        other_tell(&o, 'u');
        CU_ASSERT_EQUAL(other_end(&o), 0);
        scratch_end(&s);
    }
}

static void test_killed(void)
{
    struct scratch s = scratch_begin();
    struct other o = other_holding(s.fd, "x");
    struct dest d;
    CU_ASSERT_EQUAL(kit_try(s.fd, &d), -EWOULDBLOCK);
    CU_ASSERT_EQUAL(kill(o.pid, SIGKILL), 0);
    CU_ASSERT_EQUAL(other_end(&o), -1);
    d = kit_open(s.fd);
    CU_ASSERT_EQUAL(dest_close(&d, false), 0);
    scratch_end(&s);
}

static void test_waiting(void)
{
    static const char how[] = {'u', 'f', 'k'};
    for (size_t i = 0; i < ARRAY_LEN(how); i++) {
        struct scratch s = scratch_begin();
        struct other first = other_holding(s.fd, "first");
        struct dest_lock_info info = kit_info("second");
        struct other second = other_start(s.fd, &info, 20000);
        wait_until_queued(second.pid);
        CU_ASSERT_FALSE(other_has_lock(&second, 20));
        if (how[i] == 'k')
            CU_ASSERT_EQUAL(kill(first.pid, SIGKILL), 0);
        if (how[i] != 'k')
            other_tell(&first, how[i]);
        CU_ASSERT_EQUAL(other_end(&first), how[i] == 'k' ? -1 : 0);
        CU_ASSERT_TRUE(other_has_lock(&second, 10000));
        struct dest d;
        CU_ASSERT_EQUAL(kit_try(s.fd, &d), -EWOULDBLOCK);
        other_tell(&second, 'f');
        CU_ASSERT_EQUAL(other_end(&second), 0);
        CU_ASSERT_EQUAL(kit_names(s.fd), 0);
        scratch_end(&s);
    }
}

// Until this process has `files` open files again: the threads that were left in the queue close theirs as
// the last thing.
static void wait_until_alone(uint32_t files)
{
    for (int tries = 0; tries < 5000; tries++) {
        if (scratch_open_files() == files)
            return;
        usleep(1000);
    }
    CU_FAIL("a file has stayed open");
}

// After the limit the lock is not ours, now or later: who comes next gets it although our thread stood in the
// queue before, and although a child of ours, forked meanwhile, has a copy of its descriptor.
static void test_limit(void)
{
    struct scratch s = scratch_begin();
    struct dest_lock_info mine = kit_info("here"), holder;
    struct other o = other_holding(s.fd, "busy"), next = other_prepare(s.fd, &mine, 20000);
    uint32_t open_before = scratch_open_files();
    struct dest d;
    uint64_t began = now_ms();
    CU_ASSERT_EQUAL(dest_open(kit_root(s.fd), &mine, 150, &d, &holder), -EWOULDBLOCK);
    uint64_t took = now_ms() - began;
    CU_ASSERT_TRUE(took >= 150 && took < 5000);
    CU_ASSERT_STRING_EQUAL(holder.host, "busy");
    CU_ASSERT_EQUAL(scratch_open_files(), open_before + 1); // the thread's
    struct other bystander = other_prepare(s.fd, &mine, 0);
    other_tell(&next, 'g');
    wait_until_queued(next.pid);
    other_tell(&o, 'u');
    CU_ASSERT_EQUAL(other_end(&o), 0);
    CU_ASSERT_TRUE(other_has_lock(&next, 10000));
    other_tell(&next, 'u');
    CU_ASSERT_EQUAL(other_end(&next), 0);
    other_tell(&bystander, 'x');
    CU_ASSERT_EQUAL(other_end(&bystander), 1);
    wait_until_alone(open_before - 4); // the pipes of the children are gone too
    d = kit_open(s.fd);
    CU_ASSERT_EQUAL(dest_close(&d, true), 0);
    scratch_end(&s);
}

// Waiters in one process, most of which leave before the lock is free.
static void test_many_limits(void)
{
    struct scratch s = scratch_begin();
    struct other o = other_holding(s.fd, "busy");
    uint32_t open_before = scratch_open_files();
    struct dest d;
    struct dest_lock_info mine = kit_info("here"), holder;
    for (int i = 0; i < 20; i++)
        CU_ASSERT_EQUAL(dest_open(kit_root(s.fd), &mine, 1, &d, &holder), -EWOULDBLOCK);
    other_tell(&o, 'f');
    CU_ASSERT_EQUAL_FATAL(dest_open(kit_root(s.fd), &mine, 20000, &d, &holder), 0);
    CU_ASSERT_EQUAL(other_end(&o), 0);
    CU_ASSERT_EQUAL(dest_close(&d, true), 0);
    CU_ASSERT_EQUAL(kit_names(s.fd), 0);
    wait_until_alone(open_before - 2);
    scratch_end(&s);
}

// Jobs that come and go as fast as they can, half of them ending finished: never two at once, and whoever is
// in can use its folders.
static int come_and_go(int dir_fd, unsigned seed)
{
    for (unsigned round = 0; round < 60; round++) {
        struct dest d;
        struct dest_lock_info mine = kit_info("x"), holder;
        int err = dest_open(kit_root(dir_fd), &mine, (round + seed) % 3 == 0 ? 1 : 20000, &d, &holder);
        if (err == -EWOULDBLOCK && (round + seed) % 3 == 0)
            continue;
        KIT_CHECK(err == 0);
        int inside = openat(dir_fd, "inside", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        KIT_CHECK(inside >= 0); // else another is in
        close(inside);
        scratch_file(d.temp_fd, "f", "");
        KIT_CHECK(kit_there(dir_fd, ".penstock/temp/f"));
        KIT_CHECK(unlinkat(dir_fd, "inside", 0) == 0);
        KIT_CHECK(dest_close(&d, (round ^ seed) % 2 == 0) == 0);
    }
    return 0;
}

static void test_come_and_go(void)
{
    struct scratch s = scratch_begin();
    pid_t pids[4];
    fflush(NULL);
    for (unsigned i = 0; i < ARRAY_LEN(pids); i++) {
        pids[i] = fork();
        CU_ASSERT_FATAL(pids[i] >= 0);
        if (pids[i] == 0)
            _exit(come_and_go(s.fd, i));
    }
    for (size_t i = 0; i < ARRAY_LEN(pids); i++) {
        int status = -1;
        CU_ASSERT_EQUAL(waitpid(pids[i], &status, 0), pids[i]);
        CU_ASSERT_EQUAL(status, 0);
    }
    scratch_end(&s);
}

void suite_dest_lock(void)
{
    CU_pSuite s = CU_add_suite("dest_lock", NULL, NULL);
    CU_add_test(s, "the holder is told", test_holder);
    CU_add_test(s, "a holder that cannot be told", test_holder_unknown);
    CU_add_test(s, "a killed holder holds nothing", test_killed);
    CU_add_test(s, "waiting until the holder leaves", test_waiting);
    CU_add_test(s, "the limit of waiting", test_limit);
    CU_add_test(s, "many limits", test_many_limits);
    CU_add_test(s, "never two at once", test_come_and_go);
}
