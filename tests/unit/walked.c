#include "tests/unit/walked.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void must(bool ok)
{
    if (ok)
        return;
    perror("tests/unit/walked.c");
    abort();
}

static void add(struct walked *l, char *line)
{
    if (l->count == l->cap) {
        l->cap = l->cap == 0 ? 64 : 2 * l->cap;
        l->lines = realloc(l->lines, l->cap * sizeof(*l->lines));
        must(l->lines != NULL);
    }
    l->lines[l->count++] = line;
}

static char *entry_line(const struct entry *e)
{
    size_t cap = e->path_len + e->target_len + 64, len = 2;
    char *line = calloc(1, cap);
    must(line != NULL);
    memcpy(line, e->type == ENTRY_DIR ? "d " : e->type == ENTRY_FILE ? "f " : "l ", len);
    memcpy(line + len, e->path, e->path_len);
    len += e->path_len;
    if (e->type == ENTRY_FILE)
        snprintf(line + len, cap - len, " %llu", (unsigned long long)e->size);
    if (e->type == ENTRY_SYMLINK) {
        memcpy(line + len, " -> ", 4);
        memcpy(line + len + 4, e->target, e->target_len);
    }
    return line;
}

// Whether the directory of the entry came before it. Sources begin somewhere: what they name has none.
static bool has_parent(const struct walked *l, const struct entry *e, const struct walk_source *sources,
                       uint32_t count)
{
    if (sources != NULL && e->root < count && e->path_len == strlen(sources[e->root].to))
        return true;
    char line[PATH_BYTES_MAX + 3] = "d ";
    const uint8_t *slash = memrchr(e->path, '/', e->path_len);
    size_t len = slash == NULL ? 0 : (size_t)(slash - e->path);
    memcpy(line + 2, e->path, len);
    line[2 + len] = '\0';
    for (uint32_t i = l->count; i-- > 0;) // most often it is near
        if (strcmp(l->lines[i], line) == 0)
            return true;
    return false;
}

static struct walked collect(struct walk *w, const struct walk_source *sources, uint32_t count)
{
    struct walked l = {0};
    struct entry e;
    struct err problem;
    for (;;) {
        enum walk_result said = walk_next(w, &e, &problem);
        if (said == WALK_END)
            break;
        char *line = NULL;
        if (said == WALK_ENTRY) {
            l.bad += entry_check(&e) != 0 || (sources != NULL && !has_parent(&l, &e, sources, count));
            line = entry_line(&e);
        } else {
            must(asprintf(&line, "! %s %d %s", err_class_name(problem.class), problem.os, problem.path) > 0);
        }
        add(&l, line);
    }
    l.bad += walk_next(w, &e, &problem) != WALK_END; // the end stays the end
    return l;
}

struct walked walked_all(struct walk *w)
{
    return collect(w, NULL, 0);
}

struct walked walked_sources(const struct walk_source *sources, uint32_t count)
{
    struct walk *w = walk_new(sources, count);
    must(w != NULL);
    struct walked l = collect(w, sources, count);
    walk_free(w);
    return l;
}

struct walked walked_dir(int fd)
{
    char nothing[] = "";
    const struct walk_source source = {fd, nothing, nothing};
    return walked_sources(&source, 1);
}

void walked_free(struct walked *l)
{
    for (uint32_t i = 0; i < l->count; i++)
        free(l->lines[i]);
    free(l->lines);
    *l = (struct walked){0};
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

bool walked_is(struct walked *l, const char *const *expected, uint32_t count)
{
    if (l->count > 0)
        qsort(l->lines, l->count, sizeof(*l->lines), by_text);
    for (uint32_t i = 0; i < l->count || i < count; i++) {
        const char *line = i < l->count ? l->lines[i] : "(nothing)",
                   *want = i < count ? expected[i] : "(nothing)";
        if (strcmp(line, want) != 0) {
            fprintf(stderr, "line %u is\n  %s\ninstead of\n  %s\n", i, line, want);
            return false;
        }
    }
    return l->bad == 0;
}

uint32_t walked_count(const struct walked *l, const char *start)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < l->count; i++)
        n += strncmp(l->lines[i], start, strlen(start)) == 0;
    return n;
}
