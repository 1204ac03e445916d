#include "tools/progress.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <CUnit/CUnit.h>

#include "tools/outcome.h"
#include "tools/units.h"

static void test_bytes(void)
{
    static const struct {
        uint64_t bytes;
        const char *text;
    } rows[] = {
        {0, "0 B"},
        {1, "1 B"},
        {1023, "1023 B"},
        {1024, "1.00 KiB"},
        {1536, "1.50 KiB"},
        {10 * 1024, "10.0 KiB"},
        {1023 * 1024, "1023 KiB"},
        {1024 * 1024 - 1, "1.00 MiB"},
        {1024 * 1024, "1.00 MiB"},
        {UINT64_C(3650722202), "3.40 GiB"},
        {UINT64_C(999) << 40, "999 TiB"},
        {UINT64_MAX, "16.0 EiB"},
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        char out[UNITS_TEXT_BYTES];
        CU_ASSERT_STRING_EQUAL(units_bytes(rows[i].bytes, out), rows[i].text);
    }
}

static void test_rate(void)
{
    static const struct {
        double bytes_per_s;
        const char *text;
    } rows[] = {
        {0, "0 bit/s"},         {-5, "0 bit/s"},
        {NAN, "0 bit/s"},       {1, "8 bit/s"},
        {124.9, "999 bit/s"},   {125, "1.00 kbit/s"},
        {1250, "10.0 kbit/s"},  {1.1775e9, "9.42 Gbit/s"},
        {125e9, "1.00 Tbit/s"}, {124.99e6, "1.00 Gbit/s"},
        {12.5e6, "100 Mbit/s"}, {INFINITY, "1000000 Tbit/s"},
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        char out[UNITS_TEXT_BYTES];
        CU_ASSERT_STRING_EQUAL(units_rate(rows[i].bytes_per_s, out), rows[i].text);
    }
}

static void test_times(void)
{
    static const struct {
        double seconds;
        const char *text;
    } rows[] = {
        {0, "0.00 s"},     {-1, "0.00 s"},       {0.516, "0.52 s"},     {9.994, "9.99 s"},
        {9.996, "10.0 s"}, {75.04, "75.0 s"},    {599.9, "599.9 s"},    {600, "600 s"},
        {3569, "3569 s"},  {3570, "1 h 00 min"}, {10920, "3 h 02 min"}, {NAN, "0.00 s"},
    };
    static const struct {
        uint64_t seconds;
        const char *text;
    } clocks[] = {
        {0, "0:00"},       {7, "0:07"},          {754, "12:34"},        {3599, "59:59"},
        {3723, "1:02:03"}, {359999, "99:59:59"}, {360000, "over 99 h"},
    };
    char out[UNITS_TEXT_BYTES];
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        CU_ASSERT_STRING_EQUAL(units_seconds(rows[i].seconds, out), rows[i].text);
    for (size_t i = 0; i < ARRAY_LEN(clocks); i++)
        CU_ASSERT_STRING_EQUAL(units_clock(clocks[i].seconds, out), clocks[i].text);
}

static void test_eta(void)
{
    uint64_t s = 77;
    CU_ASSERT_FALSE(progress_eta(100, 0, &s));
    CU_ASSERT_FALSE(progress_eta(100, -1, &s));
    CU_ASSERT_FALSE(progress_eta(100, NAN, &s));
    CU_ASSERT_FALSE(progress_eta(UINT64_MAX, 1, &s));
    CU_ASSERT_EQUAL(s, 77);
    CU_ASSERT_TRUE(progress_eta(100, 10, &s));
    CU_ASSERT_EQUAL(s, 10);
    CU_ASSERT_TRUE(progress_eta(101, 10, &s));
    CU_ASSERT_EQUAL(s, 11); // never promised too early
    CU_ASSERT_TRUE(progress_eta(0, 10, &s));
    CU_ASSERT_EQUAL(s, 0);
}

// The rate is that of the last five seconds, whatever came before, and however often samples come.
static void test_window(void)
{
    struct progress_window w = {.count = 0};
    CU_ASSERT_EQUAL(progress_window_rate(&w), 0);
    progress_window_add(&w, 0, 0);
    CU_ASSERT_EQUAL(progress_window_rate(&w), 0);
    progress_window_add(&w, 0, 5);
    CU_ASSERT_EQUAL(progress_window_rate(&w), 0); // no time has passed
    for (int i = 1; i <= 400; i++)
        progress_window_add(&w, i * 0.25, (uint64_t)(i <= 200 ? i * 1000 : 200000 + (i - 200) * 10));
    double slow = progress_window_rate(&w);
    CU_ASSERT(slow > 35 && slow < 45);
    for (int i = 1; i <= 10000; i++)
        progress_window_add(&w, 100 + i * 0.001, (uint64_t)(202000 + i));
    CU_ASSERT(w.count <= PROGRESS_SAMPLES);
    double fast = progress_window_rate(&w);
    CU_ASSERT(fast > 990 && fast < 1010);
    progress_window_add(&w, 200, 212000); // a long silence
    CU_ASSERT(progress_window_rate(&w) < 10);
}

// Durable bytes come a group at a time, once a second, while samples come much more often: the window is as
// long all the same, and no longer.
static void test_window_length(void)
{
    struct progress_window w = {.count = 0};
    for (int i = 0; i <= 10000; i++)
        progress_window_add(&w, i * 0.001, (uint64_t)(i / 1000 * 1000));
    double groups = progress_window_rate(&w);
    CU_ASSERT(groups > 800 && groups < 1300);
    w = (struct progress_window){.count = 0};
    for (int i = 0; i <= 26; i++)
        progress_window_add(&w, i, (uint64_t)(i <= 20 ? i * 1000 : 20000 + (i - 20) * 10));
    CU_ASSERT_EQUAL(progress_window_rate(&w), 10);
}

static const struct job_counters walked = {
    .files_total = 1200,
    .files_moved = 120,
    .bytes_total = UINT64_C(5) << 30,
    .bytes_needed = UINT64_C(4) << 30,
    .bytes_moved = UINT64_C(1) << 30,
    .walked = true,
};

static void test_line(void)
{
    static const struct {
        unsigned columns;
        const char *text;
    } rows[] = {
        {200, " 25%  1.00 GiB of 4.00 GiB  1.00 Gbit/s  ETA 0:26  4 streams  120 of 1200 files"},
        {79, " 25%  1.00 GiB of 4.00 GiB  1.00 Gbit/s  ETA 0:26  4 streams  120 of 1200 files"},
        {78, " 25%  1.00 GiB of 4.00 GiB  1.00 Gbit/s  ETA 0:26  4 streams"},
        {59, " 25%  1.00 GiB of 4.00 GiB  1.00 Gbit/s  ETA 0:26"},
        {38, " 25%  1.00 GiB of 4.00 GiB"},
        {26, " 25%  1.00 GiB of 4.00 GiB"},
        {25, " 25%"},
        {4, " 25%"},
        {3, ""},
        {0, ""},
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        char line[256];
        progress_line(&walked, 4, 125e6, rows[i].columns, line, sizeof(line));
        CU_ASSERT_STRING_EQUAL(line, rows[i].text);
        CU_ASSERT(strlen(line) <= rows[i].columns);
    }
    char tight[10];
    progress_line(&walked, 4, 125e6, 200, tight, sizeof(tight));
    CU_ASSERT_STRING_EQUAL(tight, " 25%");
}

// While the walk goes on the totals have a '+' and nothing is foretold; 100 % is said of the end only.
static void test_line_ends(void)
{
    char line[256];
    struct job_counters c = walked;
    c.walked = false;
    progress_line(&c, 1, 125e6, 200, line, sizeof(line));
    CU_ASSERT_STRING_EQUAL(line, " 25%  1.00 GiB of 4.00 GiB+  1.00 Gbit/s  1 stream  120 of 1200+ files");
    c.bytes_moved = c.bytes_needed;
    progress_line(&c, 1, 0, 4, line, sizeof(line));
    CU_ASSERT_STRING_EQUAL(line, " 99%");
    c.walked = true;
    progress_line(&c, 1, 0, 4, line, sizeof(line));
    CU_ASSERT_STRING_EQUAL(line, "100%");
    c.bytes_moved = c.bytes_needed - 1;
    progress_line(&c, 1, 0, 4, line, sizeof(line));
    CU_ASSERT_STRING_EQUAL(line, " 99%");
    c = (struct job_counters){.walked = false};
    progress_line(&c, 0, 0, 4, line, sizeof(line));
    CU_ASSERT_STRING_EQUAL(line, "  0%");
    c.bytes_needed = UINT64_MAX;
    c.bytes_moved = UINT64_MAX / 2;
    progress_line(&c, 0, 0, 4, line, sizeof(line));
    CU_ASSERT_STRING_EQUAL(line, " 50%");
}

static void test_summary(void)
{
    char line[512];
    struct job_snapshot *s = calloc(1, sizeof(*s));
    CU_ASSERT_PTR_NOT_NULL_FATAL(s);
    progress_summary(s, OUTCOME_COMPLETE, line, sizeof(line));
    CU_ASSERT_STRING_EQUAL(line, "complete: 0 entries moved; 0 B in 0.00 s (0 bit/s)");
    s->counters = walked;
    s->counters.entries_moved = 1;
    s->counters.entries_skipped = 30;
    s->seconds = 8;
    progress_summary(s, OUTCOME_COMPLETE, line, sizeof(line));
    CU_ASSERT_STRING_EQUAL(line, "complete: 1 entry moved, 30 skipped; 1.00 GiB in 8.00 s (1.07 Gbit/s)");
    s->counters.entries_changed = 2;
    s->counters.entries_vanished = 3;
    s->counters.entries_failed = 4;
    s->counters.entries_pending = 5;
    s->counters.bytes_resent = 4096;
    progress_summary(s, OUTCOME_STORAGE, line, sizeof(line));
    CU_ASSERT_STRING_EQUAL(
        line, "storage: 1 entry moved, 30 skipped, 2 changed, 3 vanished, 4 not moved, 5 pending; "
              "1.00 GiB in 8.00 s (1.07 Gbit/s), 4.00 KiB sent again; exit 4: stopped by the "
              "storage of the destination");
    progress_summary(s, OUTCOME_STORAGE, line, 20);
    CU_ASSERT_STRING_EQUAL(line, "storage: 1 entry mo");
    progress_summary(s, 42, line, sizeof(line));
    CU_ASSERT_PTR_NOT_NULL(strstr(line, "unknown: "));
    free(s);
}

// What a stream gets that is no terminal: whole lines when asked, else nothing.
static void test_draw(void)
{
    char *text;
    size_t len;
    struct progress p;
    struct job_snapshot *s = calloc(1, sizeof(*s));
    FILE *to = tmpfile();
    CU_ASSERT_FATAL(s != NULL && to != NULL);
    s->counters = walked;
    progress_init(&p, to, false, false);
    CU_ASSERT_FALSE(progress_due(&p, UINT64_MAX));
    progress_draw(&p, s, 0);
    progress_init(&p, to, true, true);
    CU_ASSERT_FALSE(progress_due(&p, UINT64_MAX));
    CU_ASSERT_EQUAL(ftell(to), 0);
    progress_init(&p, to, true, false);
    CU_ASSERT_TRUE(progress_due(&p, 1));
    progress_draw(&p, s, UINT64_C(5000000000));
    CU_ASSERT_FALSE(progress_due(&p, UINT64_C(5999999999)));
    CU_ASSERT_TRUE(progress_due(&p, UINT64_C(6000000000)));
    progress_clear(&p); // a line that was written stays
    len = (size_t)ftell(to);
    rewind(to);
    text = calloc(1, len + 1);
    CU_ASSERT_FATAL(text != NULL && fread(text, 1, len, to) == len);
    CU_ASSERT_STRING_EQUAL(text, " 25%  1.00 GiB of 4.00 GiB  0 bit/s  0 streams  120 of 1200 files\n");
    free(text);
    fclose(to);
    free(s);
}

void suite_progress(void)
{
    CU_pSuite suite = CU_add_suite("progress", NULL, NULL);
    CU_add_test(suite, "bytes", test_bytes);
    CU_add_test(suite, "rate", test_rate);
    CU_add_test(suite, "times", test_times);
    CU_add_test(suite, "eta", test_eta);
    CU_add_test(suite, "window", test_window);
    CU_add_test(suite, "window_length", test_window_length);
    CU_add_test(suite, "line", test_line);
    CU_add_test(suite, "line_ends", test_line_ends);
    CU_add_test(suite, "summary", test_summary);
    CU_add_test(suite, "draw", test_draw);
}
