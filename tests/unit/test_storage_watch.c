// Who waits for storage, and for how long: told once, answered, over the limit. The clock of the looks is the
// test's; that of the marks is the real one, which stands still beside it.
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include <CUnit/CUnit.h>

#include "mover/storage_watch.h"
#include "storage/sys.h"

#define S UINT64_C(1000000000)

struct heard {
    unsigned notices;
    struct err last;
};

static void hear(void *arg, const struct err *err)
{
    struct heard *h = arg;
    h->notices++;
    h->last = *err;
}

static struct storage_watch *watch_of(uint64_t timeout_s, struct heard *h)
{
    *h = (struct heard){.notices = 0};
    struct storage_watch_config cfg = {
        .timeout_ns = timeout_s * S, .class = ERR_STORAGE, .notice = hear, .arg = h};
    struct storage_watch *w = storage_watch_new(&cfg);
    CU_ASSERT_PTR_NOT_NULL_FATAL(w);
    return w;
}

static const struct entry file = {.type = ENTRY_FILE, .path = (const uint8_t *)"a/b", .path_len = 3};

// Looks every second from *now_ns on, for so many; the first answer that is not 0.
static int look_for(struct storage_watch *w, uint64_t *now_ns, unsigned seconds, struct err *err)
{
    int rc = 0;
    for (unsigned i = 0; i < seconds && rc == 0; i++) {
        *now_ns += S;
        rc = storage_watch_look(w, *now_ns, err);
    }
    return rc;
}

static void slow_then_answered(void)
{
    struct heard h;
    struct storage_watch *w = watch_of(3600, &h);
    struct storage_wait wait = {0};
    struct err err;
    uint64_t now_ns = sys_clock_ns();
    int fd = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    CU_ASSERT_EQUAL(storage_watch_root(w, fd), 0);
    close(fd);
    storage_watch_begin(w, &wait, "write", &file);
    CU_ASSERT_EQUAL(look_for(w, &now_ns, 59, &err), 0);
    CU_ASSERT_EQUAL(h.notices, 0);
    CU_ASSERT_FALSE(storage_watch_is_slow(w, now_ns));
    CU_ASSERT_EQUAL(look_for(w, &now_ns, 300, &err), 0);
    CU_ASSERT_EQUAL(h.notices, 1); // once
    CU_ASSERT_TRUE(storage_watch_is_slow(w, now_ns));
    CU_ASSERT_EQUAL(h.last.class, ERR_NONE);
    CU_ASSERT_STRING_EQUAL(h.last.op, "write");
    CU_ASSERT_STRING_EQUAL(h.last.path, "a/b");
    CU_ASSERT_STRING_EQUAL(h.last.text, "no answer for 60 s, on /proc (proc)");
    storage_watch_end(w, &wait);
    CU_ASSERT_EQUAL(h.notices, 2);
    CU_ASSERT_PTR_NOT_NULL(strstr(h.last.text, "answered after"));
    CU_ASSERT_STRING_EQUAL(h.last.path, "a/b");
    CU_ASSERT_FALSE(storage_watch_is_slow(w, now_ns));
    // Another one soon after: nobody wants to hear of each file of a tape.
    storage_watch_begin(w, &wait, "read", &file);
    CU_ASSERT_EQUAL(look_for(w, &now_ns, 200, &err), 0);
    storage_watch_end(w, &wait);
    CU_ASSERT_EQUAL(h.notices, 2);
    storage_watch_begin(w, &wait, "read", &file);
    CU_ASSERT_EQUAL(look_for(w, &now_ns, 400, &err), 0);
    CU_ASSERT_EQUAL(h.notices, 3);
    storage_watch_end(w, &wait);
    storage_watch_free(w);
}

static void over_the_limit(void)
{
    struct heard h;
    struct storage_watch *w = watch_of(20, &h);
    struct storage_wait wait = {0}, younger = {0};
    struct err err = {.class = ERR_NONE};
    uint64_t now_ns = sys_clock_ns();
    storage_watch_begin(w, &wait, "sync", NULL);
    storage_watch_begin(w, &younger, "read", &file);
    CU_ASSERT_EQUAL(look_for(w, &now_ns, 9, &err), 0);
    CU_ASSERT_EQUAL(h.notices, 0);
    CU_ASSERT_EQUAL(look_for(w, &now_ns, 10, &err), 0);
    CU_ASSERT_EQUAL(h.notices, 1); // half of the limit, since that is less than a minute
    CU_ASSERT_EQUAL(look_for(w, &now_ns, 2, &err), -ETIMEDOUT);
    CU_ASSERT_EQUAL(err.class, ERR_STORAGE);
    CU_ASSERT_STRING_EQUAL(err.op, "sync");
    CU_ASSERT_STRING_EQUAL(err.path, "");
    CU_ASSERT_STRING_EQUAL(err.text, "no answer for 20 s");
    storage_watch_end(w, &younger);
    storage_watch_end(w, &wait);
    storage_watch_free(w);
}

// Marks made anew, and ends in any order: only who waits without a break is over the limit.
static void many(void)
{
    struct heard h;
    struct storage_watch *w = watch_of(20, &h);
    struct storage_wait waits[3] = {{0}};
    struct err err = {.class = ERR_NONE};
    for (int i = 0; i < 3; i++)
        storage_watch_begin(w, &waits[i], "read", NULL);
    storage_watch_end(w, &waits[1]);
    storage_watch_end(w, &waits[1]);                  // twice is once
    storage_watch_begin(w, &waits[0], "open", &file); // the youngest now
    storage_watch_end(w, &waits[2]);
    uint64_t now_ns = sys_clock_ns();
    CU_ASSERT_EQUAL(look_for(w, &now_ns, 30, &err), -ETIMEDOUT);
    CU_ASSERT_STRING_EQUAL(err.op, "open");
    storage_watch_end(w, &waits[0]);
    CU_ASSERT_EQUAL(look_for(w, &now_ns, 300, &err), 0);
    storage_watch_begin(w, &waits[2], "check", &file);
    storage_watch_end(w, &waits[2]);
    storage_watch_begin(NULL, &waits[2], "check", &file); // nobody watches
    storage_watch_end(NULL, &waits[2]);
    storage_watch_free(w);
}

// Nobody looked for an hour: the process was stopped, the disk is not to blame.
static void stopped(void)
{
    struct heard h;
    struct storage_watch *w = watch_of(20, &h);
    struct storage_wait wait = {0};
    struct err err;
    uint64_t now_ns = sys_clock_ns();
    storage_watch_begin(w, &wait, "read", &file);
    CU_ASSERT_EQUAL(look_for(w, &now_ns, 5, &err), 0);
    now_ns += 3600 * S;
    CU_ASSERT_EQUAL(storage_watch_look(w, now_ns, &err), 0);
    CU_ASSERT_EQUAL(h.notices, 0);
    CU_ASSERT_EQUAL(look_for(w, &now_ns, 12, &err), 0);
    CU_ASSERT_EQUAL(h.notices, 1);
    CU_ASSERT_EQUAL(look_for(w, &now_ns, 8, &err), -ETIMEDOUT);
    storage_watch_end(w, &wait);
    storage_watch_free(w);
}

void suite_storage_watch(void)
{
    CU_pSuite s = CU_add_suite("storage_watch", NULL, NULL);
    CU_add_test(s, "slow, then answered", slow_then_answered);
    CU_add_test(s, "over the limit", over_the_limit);
    CU_add_test(s, "many at a time", many);
    CU_add_test(s, "nobody looked", stopped);
}
