#include "mover/place.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "proto/limits.h"

static const char agent_scheme[] = "penstock://";

// Where the parts of an argument lie in it.
struct parts {
    enum place_kind kind;
    const char *user; // ends with its '@'
    size_t user_len;
    const char *host;
    size_t host_len;
    uint16_t port;
    const char *path;
};

static int refuse(struct err *err, const char *text, const char *why)
{
    err_set(err, ERR_USAGE, 0, NULL, text, strlen(text), "%s", why);
    return -EINVAL;
}

// Bytes of the scheme of a URL, "://" too; 0 when it does not start with one (RFC 3986, 3.1).
static size_t scheme_bytes(const char *text)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    if (strspn(text, letters) == 0)
        return 0;
    size_t len = strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+.-");
    return strncmp(text + len, "://", 3) == 0 ? len + 3 : 0;
}

// Names go into the argument list of ssh, whose configuration may hand them to a shell: what a shell would
// take as more than a word is no name. A user may have a '\' (DOMAIN\USER) and a '$'.
static bool name_harmless(const char *name, size_t len, const char *also_bad)
{
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)name[i];
        if (c <= 0x20 || c == 0x7f || strchr("'\"`;&<>|(){}", c) != NULL || strchr(also_bad, c) != NULL)
            return false;
    }
    return true;
}

static int check_names(const struct parts *p, const char *text, struct err *err)
{
    if (p->host_len == 0)
        return refuse(err, text, "has no host before the ':' (a local name with a colon: put ./ before it)");
    if (p->host[0] == '-' || (p->user_len > 0 && p->user[0] == '-'))
        return refuse(err, text, "a host or user name does not start with '-'");
    if (p->user_len == 1)
        return refuse(err, text, "has no user before the '@'");
    if (!name_harmless(p->host, p->host_len, "$\\@") || !name_harmless(p->user, p->user_len, ""))
        return refuse(err, text, "has a character that no host or user name has");
    if (p->user_len + p->host_len >= ADDRESS_BYTES_MAX)
        return refuse(err, text, "has a host name that is too long");
    return 0;
}

// A port of 1..65535, digits only, up to `len` bytes of text.
static bool port_parse(const char *text, size_t len, uint16_t *out)
{
    unsigned value = 0;
    if (len == 0 || len > 5)
        return false;
    for (size_t i = 0; i < len; i++) {
        if (text[i] < '0' || text[i] > '9')
            return false;
        value = value * 10 + (unsigned)(text[i] - '0');
    }
    if (value == 0 || value > UINT16_MAX)
        return false;
    *out = (uint16_t)value;
    return true;
}

// `at` stands on a host in brackets: takes it without them. What follows the brackets, or NULL.
static const char *take_brackets(const char *at, const char *end, struct parts *p)
{
    const char *close = memchr(at, ']', (size_t)(end - at));
    if (close == NULL)
        return NULL;
    p->host = at + 1;
    p->host_len = (size_t)(close - p->host);
    return close + 1;
}

// penstock://HOST[:PORT]/PATH; the last slash is not needed when no path follows.
static int split_agent(const char *text, struct parts *p, struct err *err)
{
    const char *at = text + sizeof(agent_scheme) - 1;
    const char *end = at + strcspn(at, "/");
    const char *after = at + strcspn(at, ":/");
    p->host = at;
    p->host_len = (size_t)(after - at);
    if (*at == '[')
        after = take_brackets(at, end, p);
    p->kind = PLACE_AGENT;
    p->port = PENSTOCK_PORT;
    if (after == NULL || (after != end && *after != ':'))
        return refuse(err, text, "is not penstock://HOST[:PORT]/PATH");
    if (after != end && !port_parse(after + 1, (size_t)(end - after - 1), &p->port))
        return refuse(err, text,
                      "needs a port from 1 to 65535 after the ':' (IPv6: penstock://[ADDRESS]:PORT/PATH)");
    if (p->host_len == 0)
        return refuse(err, text, "has no host");
    if (memchr(p->host, '@', p->host_len) != NULL)
        return refuse(err, text, "takes no user: an agent acts as the account that started it");
    p->path = end + strspn(end, "/");
    return 0;
}

// [USER@]HOST:PATH or [USER@][V6]:PATH, or a local path.
static int split_plain(const char *text, struct parts *p, struct err *err)
{
    const char *colon = text + strcspn(text, ":/");
    p->path = text;
    if (*colon != ':')
        return 0; // no colon, or a slash before the first
    p->kind = PLACE_SSH;
    const char *user_end = memrchr(text, '@', (size_t)(colon - text));
    p->user = text;
    p->user_len = user_end != NULL ? (size_t)(user_end - text) + 1 : 0;
    p->host = text + p->user_len;
    p->host_len = (size_t)(colon - p->host);
    if (*p->host == '[')
        colon = take_brackets(p->host, text + strcspn(text, "/"), p);
    if (colon == NULL || *colon != ':')
        return refuse(err, text, "is not [ADDRESS]:PATH");
    p->path = colon + 1;
    return 0;
}

static int split(const char *text, struct parts *p, struct err *err)
{
    if (*text == '\0')
        return refuse(err, text, "SRC and DST must not be empty");
    size_t scheme = scheme_bytes(text);
    if (scheme == 0)
        return split_plain(text, p, err);
    if (strncasecmp(text, agent_scheme, sizeof(agent_scheme) - 1) != 0)
        return refuse(err, text, "has an unknown scheme: PATH, HOST:PATH or penstock://HOST[:PORT]/PATH");
    return split_agent(text, p, err);
}

int place_parse(const char *text, struct place *out, struct err *err)
{
    struct parts p = {.kind = PLACE_LOCAL};
    int rc = split(text, &p, err);
    if (rc == 0 && p.kind != PLACE_LOCAL)
        rc = check_names(&p, text, err);
    if (rc == 0 && strlen(p.path) > PATH_BYTES_MAX)
        rc = refuse(err, text, "has a path that is too long");
    if (rc < 0)
        return rc;
    struct place place = {.kind = p.kind, .port = p.port};
    if (p.user_len > 0)
        memcpy(place.host, p.user, p.user_len);
    if (p.host_len > 0)
        memcpy(place.host + p.user_len, p.host, p.host_len);
    place.path = strdup(*p.path != '\0' ? p.path : ".");
    place.text = strdup(text);
    if (place.path == NULL || place.text == NULL) {
        place_free(&place);
        err_set(err, ERR_START, ENOMEM, NULL, NULL, 0, NULL);
        return -ENOMEM;
    }
    *out = place;
    return 0;
}

void place_free(struct place *p)
{
    if (p == NULL)
        return;
    free(p->path);
    free(p->text);
    p->path = p->text = NULL;
}

char *place_words(const struct place *p, const char *path)
{
    char *words = NULL, port[8] = "";
    const char *at = strrchr(p->host, '@');
    const char *host = at != NULL ? at + 1 : p->host;
    bool v6 = strchr(host, ':') != NULL;
    if (p->kind == PLACE_LOCAL)
        return strdup(path);
    if (p->kind == PLACE_AGENT && p->port != PENSTOCK_PORT)
        snprintf(port, sizeof(port), ":%u", p->port);
    int len = asprintf(&words, "%s%.*s%s%s%s%s%s%s", p->kind == PLACE_AGENT ? agent_scheme : "",
                       (int)(host - p->host), p->host, v6 ? "[" : "", host, v6 ? "]" : "", port,
                       p->kind == PLACE_AGENT ? "/" : ":", path);
    return len < 0 ? NULL : words;
}

bool place_same_agent(const struct place *a, const struct place *b)
{
    if (a->kind != b->kind)
        return false;
    if (a->kind == PLACE_AGENT)
        return strcasecmp(a->host, b->host) == 0 && a->port == b->port;
    return a->kind == PLACE_LOCAL || strcmp(a->host, b->host) == 0;
}
