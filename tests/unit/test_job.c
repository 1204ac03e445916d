// What no job can do is refused before anything is started, and the limit is named.
#include <CUnit/CUnit.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mover/job.h"
#include "storage/journal.h"
#include "storage/memory.h"

// `count` sources and a destination, each path `len` bytes long, the last source `more` bytes longer.
static struct place *places(uint32_t count, size_t len, size_t more)
{
    struct place *p = calloc((size_t)count + 1, sizeof *p);
    CU_ASSERT_PTR_NOT_NULL_FATAL(p);
    for (uint32_t i = 0; i <= count; i++) {
        size_t bytes = len + (i + 1 == count ? more : 0);
        char *path = malloc(bytes + 1);
        memset(path, 'a', bytes);
        path[bytes] = '\0';
        p[i] = (struct place){.kind = PLACE_LOCAL, .path = path, .text = path};
    }
    return p;
}

static int check(uint32_t count, size_t len, size_t more, const char *rsh, struct err *err)
{
    struct place *p = places(count, len, more);
    struct job_config cfg = {.sources = p, .source_count = count, .destination = &p[count], .rsh = rsh};
    *err = (struct err){.class = ERR_NONE};
    int rc = job_check(&cfg, err);
    for (uint32_t i = 0; i <= count; i++)
        free(p[i].path);
    free(p);
    return rc;
}

static void test_sources(void)
{
    static const struct {
        uint32_t count;
        size_t len, more;
        const char *words; // NULL: good
    } table[] = {
        {1, 1, 0, NULL},
        {SOURCES_MAX, 252, 0, NULL}, // 256 * (252 + 4) are 64 KiB
        {SOURCES_MAX, 252, 1, "have 65537 bytes together, the most is 65536"},
        {SOURCES_MAX + 1, 1, 0, "257 sources are given, the most is 256"},
        {2, 32764, 0, NULL},
        {2, 32764, 1, "have 65537 bytes together, the most is 65536"},
        {1, PATH_BYTES_MAX, 0, NULL},
        {1, 1, PATH_BYTES_MAX, "the path has 32769 bytes, the most is 32768"},
        {1, PATH_BYTES_MAX + 1, 0, "the path has 32769 bytes, the most is 32768"},
    };
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        struct err err;
        int rc = check(table[i].count, table[i].len, table[i].more, "ssh", &err);
        CU_ASSERT_EQUAL(rc, table[i].words != NULL ? -EINVAL : 0);
        CU_ASSERT_EQUAL(err.class, table[i].words != NULL ? ERR_USAGE : ERR_NONE);
        if (table[i].words != NULL)
            CU_ASSERT_PTR_NOT_NULL(strstr(err.text, table[i].words));
    }
    // The destination alone.
    struct place *p = places(1, PATH_BYTES_MAX + 1, 0);
    char word[] = "a";
    struct place source = {.kind = PLACE_LOCAL, .path = word, .text = word};
    struct job_config cfg = {.sources = &source, .source_count = 1, .destination = p};
    struct err err;
    CU_ASSERT_EQUAL(job_check(&cfg, &err), -EINVAL);
    free(p[0].path);
    free(p[1].path);
    free(p);
}

static int check_memory(struct place source, struct place destination, uint32_t count, struct err *err)
{
    char word[] = "a";
    source.path = source.text = destination.path = destination.text = word;
    struct place sources[] = {source, {.path = word, .text = word}};
    struct job_config cfg = {.sources = sources, .source_count = count, .destination = &destination};
    *err = (struct err){.class = ERR_NONE};
    return job_check(&cfg, err);
}

static void test_memory(void)
{
    static const struct {
        uint32_t count, files, sink_files;
        uint64_t bytes;
        const char *words; // NULL: good
    } table[] = {
        {1, 1, 0, PACKED_FILE_BYTES_MAX + 1, NULL},
        {1, MEMORY_FILES_MAX, 0, FILE_BYTES_MAX / MEMORY_FILES_MAX, NULL},
        {1, 8191, 0, DIGESTED_BYTES_MAX, NULL},
        {2, 1, 0, 1024 * MIB, "the only source"},
        {1, 0, 0, 1024 * MIB, "no size"},
        {1, MEMORY_FILES_MAX + 1, 0, 1024 * MIB, "more than 100000 files"},
        {1, 1, 0, PACKED_FILE_BYTES_MAX, "not more than 1 MiB"},
        {1, 1, 0, DIGESTED_BYTES_MAX + 1, "more than 1024 TiB"},
        {1, 8192, 0, DIGESTED_BYTES_MAX, "more than 8 EiB"},
        {1, 1, 1, 1024 * MIB, "the size of what comes"},
    };
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        struct place source = {
            .memory = true, .memory_files = table[i].files, .memory_bytes = table[i].bytes};
        struct place sink = {.memory = true, .memory_files = table[i].sink_files};
        struct err err;
        CU_ASSERT_EQUAL(check_memory(source, sink, table[i].count, &err),
                        table[i].words != NULL ? -EINVAL : 0);
        CU_ASSERT_EQUAL(err.class, table[i].words != NULL ? ERR_USAGE : ERR_NONE);
        if (table[i].words != NULL)
            CU_ASSERT_PTR_NOT_NULL(strstr(err.text, table[i].words));
    }
    struct err err; // one end of the two
    CU_ASSERT_EQUAL(check_memory((struct place){0}, (struct place){.memory = true}, 2, &err), 0);
}

static void test_rsh(void)
{
    static const struct {
        unsigned words;
        const char *gap, *told; // NULL: good
    } table[] = {
        {1, " ", NULL},         {2, "   ", NULL},
        {32, " ", NULL},        {33, " ", "--rsh has 33 words, the most is 32"},
        {40, "  ", "40 words"}, {0, " ", "--rsh names no program"},
    };
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        char rsh[512] = " ";
        for (unsigned k = 0; k < table[i].words; k++) {
            strcat(rsh, "word");
            strcat(rsh, table[i].gap);
        }
        struct err err;
        CU_ASSERT_EQUAL(check(1, 1, 0, rsh, &err), table[i].told != NULL ? -EINVAL : 0);
        if (table[i].told != NULL) {
            CU_ASSERT_EQUAL(err.class, ERR_USAGE);
            CU_ASSERT_PTR_NOT_NULL(strstr(err.text, table[i].told));
        }
    }
    struct err err;
    CU_ASSERT_EQUAL(check(1, 1, 0, NULL, &err), 0); // ssh
    CU_ASSERT_EQUAL(check(1, 1, 0, "", &err), -EINVAL);
}

void suite_job(void)
{
    CU_pSuite s = CU_add_suite("job", NULL, NULL);
    CU_add_test(s, "sources", test_sources);
    CU_add_test(s, "memory", test_memory);
    CU_add_test(s, "rsh", test_rsh);
}
