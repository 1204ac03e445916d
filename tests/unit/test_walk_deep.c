#include "storage/walk.h"

#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <CUnit/CUnit.h>

#include "storage/dir_chain.h"
#include "tests/unit/scratch.h"
#include "tests/unit/walked.h"

static char nothing[] = "", from[] = "a/b", to[] = "to/it";

static struct walk *walk_of(const struct walk_source *source)
{
    struct walk *w = walk_new(source, 1);
    CU_ASSERT_FATAL(w != NULL);
    return w;
}

// Steps until `path` comes; false at the end.
static bool walk_to(struct walk *w, const char *path, size_t len)
{
    struct entry e;
    struct err problem;
    for (;;) {
        enum walk_result said = walk_next(w, &e, &problem);
        if (said == WALK_END)
            return false;
        if (said == WALK_ENTRY && e.path_len == len && memcmp(e.path, path, len) == 0)
            return true;
    }
}

static char *chain_path(uint32_t depth)
{
    char *path = malloc(2 * depth);
    for (uint32_t i = 0; i < depth; i++)
        memcpy(path + 2 * i, "d/", 2);
    path[2 * depth - 1] = '\0';
    return path;
}

static void test_depth(void)
{
    enum { DEPTH = 4000 };
    struct scratch s = scratch_begin();
    int last = scratch_deep(s.fd, "d", DEPTH, false);
    scratch_file(last, "f", "deep");
    close(last);
    struct rlimit before, few;
    CU_ASSERT_EQUAL_FATAL(getrlimit(RLIMIT_NOFILE, &before), 0);
    few = (struct rlimit){300, before.rlim_max};
    CU_ASSERT_EQUAL(setrlimit(RLIMIT_NOFILE, &few), 0);
    uint32_t open_before = scratch_open_files();
    struct walked l = walked_dir(s.fd);
    CU_ASSERT_EQUAL(setrlimit(RLIMIT_NOFILE, &before), 0);
    CU_ASSERT_EQUAL(scratch_open_files(), open_before);
    CU_ASSERT_EQUAL(l.count, DEPTH + 2);
    CU_ASSERT_EQUAL(walked_count(&l, "!") + l.bad, 0);
    CU_ASSERT_EQUAL(l.count > 0 && strlen(l.lines[l.count - 1]) == 2 + 2 * DEPTH + 3, true);
    walked_free(&l);
    scratch_end(&s);
}

// Directories that do not fit one buffer, each with a directory somewhere in its middle: they are left and
// come back to, closed meanwhile, and nothing is passed over or seen twice.
static void test_way_back(void)
{
    enum { DEPTH = DIR_CHAIN_HELD_MAX + DIR_CHAIN_REFILL + 8, FILES = 60 };
    struct scratch s = scratch_begin();
    scratch_dir(s.fd, "a");
    scratch_dir(s.fd, "a/b");
    scratch_file(s.fd, "0", "");
    int at = openat(s.fd, "a/b", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (int depth = 0; depth < DEPTH; depth++) {
        for (int i = 0; i < FILES; i++) { // of names so long that few fit a buffer
            char name[256];
            snprintf(name, sizeof(name), "%0200d", i);
            CU_ASSERT_EQUAL_FATAL(linkat(s.fd, "0", at, name, 0), 0);
        }
        int next = scratch_deep(at, "d", 1, false);
        close(at);
        at = next;
    }
    close(at);
    const struct walk_source source = {s.fd, from, to};
    struct walked l = walked_sources(&source, 1);
    CU_ASSERT_EQUAL(l.count, DEPTH + 1 + DEPTH * FILES);
    CU_ASSERT_EQUAL(walked_count(&l, "d to/it") + walked_count(&l, "f to/it/"), l.count);
    CU_ASSERT_EQUAL(l.bad, 0);
    uint32_t twice = 0;
    for (uint32_t i = 1; i < l.count; i++) // the same name again would be near in a directory read anew
        for (uint32_t k = i > 3 * FILES ? i - 3 * FILES : 0; k < i; k++)
            twice += strcmp(l.lines[i], l.lines[k]) == 0;
    CU_ASSERT_EQUAL(twice, 0);
    walked_free(&l);
    scratch_end(&s);
}

// The way back leads elsewhere: told, and not followed.
static void test_way_back_is_lost(void)
{
    enum { LOST = DIR_CHAIN_REFILL + 18, DEPTH = DIR_CHAIN_HELD_MAX + LOST };
    static const struct {
        const char *instead;     // what lies in the place of the first directory then
        const char *problems[2]; // of the levels that were closed
        uint32_t counts[2];
    } cases[] = {
        // A directory whose like is there two levels deep: the deepest levels are looked for by longer paths.
        {"other", {"! changed 116 d", "! vanished 2 d"}, {DIR_CHAIN_REFILL + 1, LOST - DIR_CHAIN_REFILL - 1}},
        {"link", {"! changed 40 d", "!"}, {LOST, LOST}},
        {"file", {"! changed 20 d", "!"}, {LOST, LOST}},
        {NULL, {"! vanished 2 d", "!"}, {LOST, LOST}},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct scratch s = scratch_begin();
        scratch_dir(s.fd, "top");
        scratch_dir(s.fd, "other");
        scratch_dir(s.fd, "other/d");
        scratch_file(s.fd, "other/d/secret", "");
        scratch_link(s.fd, "link", "../moved"); // where the directory really is
        scratch_file(s.fd, "file", "");
        int top = openat(s.fd, "top", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        close(scratch_deep(top, "d", DEPTH, true));
        uint32_t open_before = scratch_open_files();
        const struct walk_source source = {top, nothing, nothing};
        struct walk *w = walk_of(&source);
        char *last = chain_path(DEPTH);
        CU_ASSERT(walk_to(w, last, strlen(last)));
        CU_ASSERT_EQUAL(renameat(top, "d", s.fd, "moved"), 0);
        if (cases[i].instead != NULL) {
            CU_ASSERT_EQUAL(renameat(s.fd, cases[i].instead, top, "d"), 0);
        }
        struct walked l = walked_all(w);
        CU_ASSERT_EQUAL(walked_count(&l, "!"), LOST); // those still open are read to their ends
        for (size_t k = 0; k < 2; k++)
            CU_ASSERT_EQUAL(walked_count(&l, cases[i].problems[k]), cases[i].counts[k]);
        for (uint32_t k = 0; k < l.count; k++)
            CU_ASSERT_PTR_NULL(strstr(l.lines[k], "secret"));
        walked_free(&l);
        walk_free(w);
        CU_ASSERT_EQUAL(scratch_open_files(), open_before);
        free(last);
        close(top);
        scratch_end(&s);
    }
}

static void test_path_limit(void)
{
    // 200 + 1 bytes a level: 163 levels have a path of 32762 bytes, and only names of up to 5 bytes fit
    // behind it.
    struct scratch s = scratch_begin();
    char name[201];
    memset(name, 'n', 200);
    name[200] = '\0';
    int at = scratch_deep(s.fd, name, 163, false);
    scratch_file(at, "fits5", "");
    scratch_file(at, "toolong", "");
    scratch_link(at, "sixsix", "f");
    close(scratch_deep(at, name, 5, true));
    close(at);
    struct walked l = walked_dir(s.fd);
    CU_ASSERT_EQUAL(walked_count(&l, "d "), 164);
    CU_ASSERT_EQUAL(walked_count(&l, "f "), 1);
    CU_ASSERT_EQUAL(walked_count(&l, "! entry 36 "), 3); // nothing is said of what lies below
    CU_ASSERT_EQUAL(l.count, 168);
    CU_ASSERT_EQUAL(l.bad, 0);
    walked_free(&l);
    scratch_end(&s);
}

static void test_one_large_directory(void)
{
    enum { FILES = 20000 };
    struct scratch s = scratch_begin();
    scratch_dir(s.fd, "d");
    scratch_file(s.fd, "one", "");
    for (int i = 0; i < FILES; i++) {
        char path[32];
        snprintf(path, sizeof(path), "d/%d", i);
        CU_ASSERT_EQUAL_FATAL(linkat(s.fd, "one", s.fd, path, 0), 0);
    }
    const struct walk_source source = {s.fd, nothing, nothing};
    size_t before = mallinfo2().uordblks, most = 0;
    struct walk *w = walk_of(&source);
    struct entry e;
    struct err problem;
    uint32_t count = 0;
    while (walk_next(w, &e, &problem) == WALK_ENTRY) {
        count++;
        if (count % 1000 == 0) {
            size_t now = mallinfo2().uordblks;
            most = now > before && now - before > most ? now - before : most;
        }
    }
    CU_ASSERT_EQUAL(count, FILES + 3);
    CU_ASSERT(most < 256 * KIB);
    walk_free(w);
    scratch_end(&s);
}

// What vanishes after it was listed is passed over without a word; so is the rest of a directory that is
// gone.
static void test_vanish(void)
{
    struct scratch s = scratch_begin();
    scratch_dir(s.fd, "t");
    scratch_dir(s.fd, "t/gone");
    for (char c = 'a'; c <= 'j'; c++) {
        scratch_file(s.fd, (char[]){'t', '/', c, '\0'}, "");
        scratch_dir(s.fd, (char[]){'t', '/', c, c, '\0'});
        scratch_link(s.fd, (char[]){'t', '/', c, c, c, '\0'}, "x");
    }
    int top = openat(s.fd, "t", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const struct walk_source source = {top, nothing, nothing};
    struct walk *w = walk_of(&source);
    struct entry e;
    struct err problem;
    CU_ASSERT_EQUAL(walk_next(w, &e, &problem), WALK_ENTRY); // the root
    CU_ASSERT_EQUAL(walk_next(w, &e, &problem), WALK_ENTRY); // the names are listed now
    bool first_is_gone = e.path_len == 4;
    for (char c = 'a'; c <= 'j'; c++) {
        (void)unlinkat(top, (char[]){c, '\0'}, 0);
        (void)unlinkat(top, (char[]){c, c, '\0'}, AT_REMOVEDIR);
        (void)unlinkat(top, (char[]){c, c, c, '\0'}, 0);
    }
    struct walked l = walked_all(w);
    static const char *const expected[] = {"d gone"};
    CU_ASSERT(walked_is(&l, expected, first_is_gone ? 0 : 1));
    walked_free(&l);
    walk_free(w);
    // The directory itself, while it is read.
    w = walk_of(&source);
    CU_ASSERT(walk_to(w, "gone", 4));
    CU_ASSERT_EQUAL(unlinkat(top, "gone", AT_REMOVEDIR), 0);
    CU_ASSERT_EQUAL(walk_next(w, &e, &problem), WALK_END);
    walk_free(w);
    close(top);
    scratch_end(&s);
}

// A directory is a link to the outside by turns: it is seen as the one or the other, and what is outside
// never.
static void test_race(void)
{
    struct scratch s = scratch_begin();
    scratch_dir(s.fd, "outside");
    scratch_file(s.fd, "outside/secret", "");
    scratch_dir(s.fd, "t");
    scratch_dir(s.fd, "t/x");
    scratch_file(s.fd, "t/x/f", "");
    scratch_link(s.fd, "t/y", "../outside");
    int top = openat(s.fd, "t", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct swapper *swapper = swapper_start(top, "x", "y");
    uint32_t outside = 0, odd = 0, inside = 0;
    for (int i = 0; i < 3000; i++) {
        struct walked l = walked_dir(top);
        for (uint32_t k = 0; k < l.count; k++)
            outside += strstr(l.lines[k], "secret") != NULL;
        inside += walked_count(&l, "f x/f") + walked_count(&l, "f y/f") > 0;
        odd += l.bad + walked_count(&l, "! entry") + walked_count(&l, "! vanished");
        walked_free(&l);
    }
    CU_ASSERT(swapper_stop(swapper) > 100);
    CU_ASSERT_EQUAL(outside, 0);
    CU_ASSERT_EQUAL(odd, 0);
    CU_ASSERT(inside > 100);
    close(top);
    scratch_end(&s);
}

void suite_walk_deep(void)
{
    CU_pSuite suite = CU_add_suite("walk_deep", NULL, NULL);
    CU_add_test(suite, "depth", test_depth);
    CU_add_test(suite, "way_back", test_way_back);
    CU_add_test(suite, "way_back_is_lost", test_way_back_is_lost);
    CU_add_test(suite, "path_limit", test_path_limit);
    CU_add_test(suite, "one_large_directory", test_one_large_directory);
    CU_add_test(suite, "vanish", test_vanish);
    CU_add_test(suite, "race", test_race);
}
