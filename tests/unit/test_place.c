#include "mover/place.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <CUnit/CUnit.h>

static const struct {
    const char *text;
    enum place_kind kind;
    const char *host;
    uint16_t port;
    const char *path;
} good[] = {
    {"a", PLACE_LOCAL, "", 0, "a"},
    {".", PLACE_LOCAL, "", 0, "."},
    {"/", PLACE_LOCAL, "", 0, "/"},
    {"-", PLACE_LOCAL, "", 0, "-"},
    {"a/", PLACE_LOCAL, "", 0, "a/"},
    {"./a:b", PLACE_LOCAL, "", 0, "./a:b"},
    {"a/b:c", PLACE_LOCAL, "", 0, "a/b:c"},
    {"/a:b", PLACE_LOCAL, "", 0, "/a:b"},
    {"./-o:x", PLACE_LOCAL, "", 0, "./-o:x"},
    {"./penstock://h/p", PLACE_LOCAL, "", 0, "./penstock://h/p"},
    {"user@host", PLACE_LOCAL, "", 0, "user@host"},
    {"[a", PLACE_LOCAL, "", 0, "[a"},
    {" ", PLACE_LOCAL, "", 0, " "},
    {"host:path", PLACE_SSH, "host", 0, "path"},
    {"host:/a/b/", PLACE_SSH, "host", 0, "/a/b/"},
    {"host:", PLACE_SSH, "host", 0, "."},
    {"host:a:b", PLACE_SSH, "host", 0, "a:b"},
    {"host:~/x", PLACE_SSH, "host", 0, "~/x"},
    {"host::mod", PLACE_SSH, "host", 0, ":mod"},
    {"user@host:", PLACE_SSH, "user@host", 0, "."},
    {"user@host:p@q", PLACE_SSH, "user@host", 0, "p@q"},
    {"DOM\\user@host:p", PLACE_SSH, "DOM\\user@host", 0, "p"},
    {"a@b@host:p", PLACE_SSH, "a@b@host", 0, "p"},
    {"[::1]:p", PLACE_SSH, "::1", 0, "p"},
    {"[::1]:", PLACE_SSH, "::1", 0, "."},
    {"[fe80::1%eth0]:/p", PLACE_SSH, "fe80::1%eth0", 0, "/p"},
    {"user@[::1]:p", PLACE_SSH, "user@::1", 0, "p"},
    {"penstock://h/p", PLACE_AGENT, "h", 7420, "p"},
    {"penstock://h", PLACE_AGENT, "h", 7420, "."},
    {"penstock://h/", PLACE_AGENT, "h", 7420, "."},
    {"penstock://h//p/", PLACE_AGENT, "h", 7420, "p/"},
    {"penstock://h:1/a:b", PLACE_AGENT, "h", 1, "a:b"},
    {"penstock://h:65535/p", PLACE_AGENT, "h", 65535, "p"},
    {"penstock://h:7421", PLACE_AGENT, "h", 7421, "."},
    {"PENSTOCK://h/p", PLACE_AGENT, "h", 7420, "p"},
    {"penstock://[::1]:7420/a", PLACE_AGENT, "::1", 7420, "a"},
    {"penstock://[::1]/a", PLACE_AGENT, "::1", 7420, "a"},
    {"penstock://127.0.0.1:80/a", PLACE_AGENT, "127.0.0.1", 80, "a"},
};

static void test_good(void)
{
    for (size_t i = 0; i < ARRAY_LEN(good); i++) {
        struct place p;
        struct err err;
        int rc = place_parse(good[i].text, &p, &err);
        CU_ASSERT_EQUAL(rc, 0);
        if (rc < 0) {
            fprintf(stderr, "'%s' is refused: %s\n", good[i].text, err.text);
            continue;
        }
        CU_ASSERT_EQUAL(p.kind, good[i].kind);
        CU_ASSERT_EQUAL(p.port, good[i].port);
        CU_ASSERT_STRING_EQUAL(p.host, good[i].host);
        CU_ASSERT_STRING_EQUAL(p.path, good[i].path);
        CU_ASSERT_STRING_EQUAL(p.text, good[i].text);
        place_free(&p);
    }
}

static const struct {
    const char *text, *why;
} bad[] = {
    {"", "empty"},
    {":p", "no host"},
    {"@host:p", "no user"},
    {"user@:p", "no host"},
    {"-oProxy:x", "start with '-'"},
    {"-oProxyCommand=id:x", "start with '-'"},
    {"user@-oProxy:x", "start with '-'"},
    {"-l@host:x", "start with '-'"},
    {"[-oProxy]:x", "start with '-'"},
    {"[]:p", "no host"},
    {"[::1]", "[ADDRESS]:PATH"},
    {"[::1", "[ADDRESS]:PATH"},
    {"[::1]p:q", "[ADDRESS]:PATH"},
    {"ho st:p", "no host or user name has"},
    {"h`id`:p", "no host or user name has"},
    {"$(id):p", "no host or user name has"},
    {"h;id:p", "no host or user name has"},
    {"h\nid:p", "no host or user name has"},
    {"u|x@h:p", "no host or user name has"},
    {"x://y", "unknown scheme"},
    {"ssh://h/p", "unknown scheme"},
    {"penstock2://h/p", "unknown scheme"},
    {"penstock://", "no host"},
    {"penstock:///p", "no host"},
    {"penstock://:7420/p", "no host"},
    {"penstock://[]/p", "no host"},
    {"penstock://h:99999/", "port"},
    {"penstock://h:65536/p", "port"},
    {"penstock://h:0/p", "port"},
    {"penstock://h:/p", "port"},
    {"penstock://h:-1/p", "port"},
    {"penstock://h:74x/p", "port"},
    {"penstock://h:000007420/p", "port"},
    {"penstock://::1/p", "port"},
    {"penstock://[::1]7420/p", "penstock://HOST[:PORT]/PATH"},
    {"penstock://[::1/p", "penstock://HOST[:PORT]/PATH"},
    {"penstock://-h/p", "start with '-'"},
    {"penstock://user@h/p", "takes no user"},
    {"penstock://h h/p", "no host or user name has"},
};

static void test_bad(void)
{
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct place p = {.port = 77};
        struct err err = {.class = ERR_NONE};
        int rc = place_parse(bad[i].text, &p, &err);
        CU_ASSERT_EQUAL(rc, -EINVAL);
        CU_ASSERT_EQUAL(p.port, 77); // untouched
        CU_ASSERT_EQUAL(err.class, ERR_USAGE);
        CU_ASSERT_PTR_NOT_NULL(strstr(err.text, bad[i].why));
        if (rc == 0 || strstr(err.text, bad[i].why) == NULL)
            fprintf(stderr, "'%s' says '%s'\n", bad[i].text, err.text);
        if (rc == 0)
            place_free(&p);
    }
}

// A place of `host_len` bytes of host and `path_len` bytes of path.
static int parse_long(size_t host_len, size_t path_len)
{
    struct place p;
    struct err err;
    char *text = malloc(host_len + path_len + 2);
    CU_ASSERT_PTR_NOT_NULL_FATAL(text);
    memset(text, 'h', host_len);
    text[host_len] = ':';
    memset(text + host_len + 1, 'p', path_len);
    text[host_len + 1 + path_len] = '\0';
    int rc = place_parse(text, &p, &err);
    free(text);
    if (rc == 0) {
        CU_ASSERT_EQUAL(strlen(p.host), host_len);
        CU_ASSERT_EQUAL(strlen(p.path), path_len);
        place_free(&p);
    }
    return rc;
}

static void test_limits(void)
{
    CU_ASSERT_EQUAL(parse_long(ADDRESS_BYTES_MAX - 1, 1), 0);
    CU_ASSERT_EQUAL(parse_long(ADDRESS_BYTES_MAX, 1), -EINVAL);
    CU_ASSERT_EQUAL(parse_long(1, PATH_BYTES_MAX), 0);
    CU_ASSERT_EQUAL(parse_long(1, PATH_BYTES_MAX + 1), -EINVAL);
}

static void test_same_agent(void)
{
    static const struct {
        const char *a, *b;
        bool same;
    } rows[] = {
        {"a", "/b", true},
        {"a", "h:a", false},
        {"h:a", "h:b", true},
        {"h:a", "u@h:a", false},
        {"h:a", "g:a", false},
        {"penstock://h/a", "penstock://h:7420/b", true},
        {"penstock://H/a", "penstock://h/b", true},
        {"penstock://h:1/a", "penstock://h:2/a", false},
        {"penstock://h/a", "h:a", false},
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct place a, b;
        struct err err;
        CU_ASSERT_EQUAL_FATAL(place_parse(rows[i].a, &a, &err), 0);
        CU_ASSERT_EQUAL_FATAL(place_parse(rows[i].b, &b, &err), 0);
        CU_ASSERT_EQUAL(place_same_agent(&a, &b), rows[i].same);
        CU_ASSERT_EQUAL(place_same_agent(&b, &a), rows[i].same);
        place_free(&a);
        place_free(&b);
    }
}

// Another path at the same end, in words that name that end and path again.
static void test_words(void)
{
    static const char *const paths[] = {"/", "/a:b/ c", "/[x]", "/p@q"}, *const beneath[] = {".", "p",
                                                                                             "a:b/@c"};
    for (size_t i = 0; i < ARRAY_LEN(good); i++) {
        struct place p, again;
        struct err err;
        CU_ASSERT_EQUAL_FATAL(place_parse(good[i].text, &p, &err), 0);
        bool agent = p.kind == PLACE_AGENT;
        for (size_t k = 0; k < (agent ? ARRAY_LEN(beneath) : ARRAY_LEN(paths)); k++) {
            const char *path = agent ? beneath[k] : paths[k];
            char *words = place_words(&p, path);
            CU_ASSERT_PTR_NOT_NULL_FATAL(words);
            CU_ASSERT_EQUAL_FATAL(place_parse(words, &again, &err), 0);
            CU_ASSERT(again.kind == p.kind && again.port == p.port && strcmp(again.host, p.host) == 0);
            CU_ASSERT_STRING_EQUAL(again.path, path);
            place_free(&again);
            free(words);
        }
        place_free(&p);
    }
}

void suite_place(void)
{
    CU_pSuite suite = CU_add_suite("place", NULL, NULL);
    CU_add_test(suite, "good", test_good);
    CU_add_test(suite, "bad", test_bad);
    CU_add_test(suite, "limits", test_limits);
    CU_add_test(suite, "words", test_words);
    CU_add_test(suite, "same_agent", test_same_agent);
}
