#include "tests/unit/vectors.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <CUnit/CUnit.h>

#include "tests/unit/hex.h"

enum { LINES_MAX = 4096, CHECKS_MAX = 16 };

static FILE *vectors_open(const char *file)
{
    const char *folder = getenv("PENSTOCK_VECTORS");
    char path[4096];
    snprintf(path, sizeof(path), "%s/%s", folder != NULL ? folder : "tests/vectors", file);
    FILE *in = fopen(path, "r");
    if (in == NULL) {
        fprintf(stderr, "%s: %s\n", path, strerror(errno));
        abort();
    }
    return in;
}

// A line without its end; NULL at the end of the file or of a case.
static char *line_read(FILE *in)
{
    char *line = NULL;
    size_t room = 0;
    ssize_t len = getline(&line, &room, in);
    if (len > 0 && line[len - 1] == '\n')
        line[--len] = '\0';
    if (len > 0)
        return line;
    free(line);
    return NULL;
}

static void case_run(const struct vector_case *c, const struct vector_check *checks, size_t count,
                     size_t runs[CHECKS_MAX])
{
    size_t i = 0;
    while (i < count && strcmp(checks[i].kind, c->kind) != 0)
        i++;
    unsigned before = CU_get_number_of_failures();
    if (i < count) {
        checks[i].check(c);
        runs[i]++;
    } else {
        CU_FAIL("a case of an unknown kind");
    }
    if (CU_get_number_of_failures() != before)
        fprintf(stderr, "in case %s %s\n", c->kind, c->name);
}

void vectors_run(const char *file, const struct vector_check *checks, size_t count)
{
    FILE *in = vectors_open(file);
    char *lines[LINES_MAX];
    size_t runs[CHECKS_MAX] = {0};
    assert(count <= CHECKS_MAX);
    while (feof(in) == 0) {
        struct vector_case c = {.lines = lines + 1};
        size_t n = 0;
        while ((lines[n] = line_read(in)) != NULL) {
            n++;
            assert(n < LINES_MAX);
        }
        char *save = NULL;
        if (n > 0 && lines[0][0] != '#') {
            const char *word = strtok_r(lines[0], " ", &save);
            c.kind = strtok_r(NULL, " ", &save);
            c.name = strtok_r(NULL, " ", &save);
            c.count = n - 1;
            assert(word != NULL && strcmp(word, "case") == 0 && c.name != NULL);
            case_run(&c, checks, count, runs);
        }
        for (size_t i = 0; i < n; i++)
            free(lines[i]);
    }
    fclose(in);
    for (size_t i = 0; i < count; i++)
        CU_ASSERT(runs[i] > 0);
}

const char *vector_words(const struct vector_case *c, const char *key, size_t at)
{
    size_t len = strlen(key);
    for (size_t i = 0; i < c->count; i++)
        if (strncmp(c->lines[i], key, len) == 0 && c->lines[i][len] == ' ' && at-- == 0)
            return c->lines[i] + len + 1;
    return NULL;
}

static const char *words_of(const struct vector_case *c, const char *key)
{
    const char *words = vector_words(c, key, 0);
    if (words == NULL) {
        fprintf(stderr, "case %s %s has no %s\n", c->kind, c->name, key);
        abort();
    }
    return words;
}

uint64_t vector_next(const char **words)
{
    char *end;
    errno = 0;
    // A negative number becomes its two's complement.
    uint64_t value = strtoull(*words, &end, 10);
    assert(errno == 0 && end != *words);
    *words = *end != '\0' ? end + 1 : end;
    return value;
}

uint64_t vector_number(const struct vector_case *c, const char *key)
{
    const char *words = words_of(c, key);
    return vector_next(&words);
}

struct vector_bytes vector_hex(const char **words)
{
    size_t digits = strcspn(*words, " ");
    char *hex = strndup(*words, digits);
    struct vector_bytes b = {.len = strcmp(hex, "-") == 0 ? 0 : digits / 2};
    b.bytes = malloc(b.len > 0 ? b.len : 1);
    assert(hex != NULL && b.bytes != NULL);
    if (b.len > 0)
        hex_bytes(hex, b.bytes, b.len);
    free(hex);
    *words += digits;
    *words += **words == ' ';
    return b;
}

struct vector_bytes vector_bytes(const struct vector_case *c, const char *key)
{
    const char *words = words_of(c, key);
    return vector_hex(&words);
}

bool vector_is(const struct vector_case *c, const char *key, const void *bytes, size_t len)
{
    struct vector_bytes b = vector_bytes(c, key);
    bool same = b.len == len && (len == 0 || memcmp(b.bytes, bytes, len) == 0);
    free(b.bytes);
    return same;
}

void vector_copy(const struct vector_case *c, const char *key, void *out, size_t len)
{
    struct vector_bytes b = vector_bytes(c, key);
    assert(b.len == len);
    memcpy(out, b.bytes, len);
    free(b.bytes);
}
