// The paths of a job, as users write them, at an agent: found, and for a destination made, by rsync's rules.
// With a root (penstock serve) every path is beneath it, without following links; without one (--stdio) it is
// whatever the user could name in a shell.
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mover/agent_inner.h"
#include "storage/path.h"
#include "storage/sys.h"

// A path of the job, split: the directory to open, and the last component; "" when the path names a
// directory's contents ("a/", ".", "..", "/").
struct split {
    char *dir;
    char *name;
    bool slash; // it ended with a slash, or can only be a directory
};

static void split_free(struct split *s)
{
    free(s->dir);
    free(s->name);
}

static bool is_dots(const char *name)
{
    return strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
}

static int split_path(const struct blob *path, struct split *out)
{
    if (path->len > PATH_BYTES_MAX || memchr(path->bytes, '\0', path->len) != NULL)
        return -EINVAL;
    char *text = blob_copy(path);
    if (text == NULL)
        return -ENOMEM;
    size_t len = strlen(text);
    bool slash = len > 0 && text[len - 1] == '/';
    while (len > 1 && text[len - 1] == '/')
        text[--len] = '\0';
    char *last = strrchr(text, '/');
    const char *name = last != NULL ? last + 1 : text;
    *out = (struct split){.slash = slash || *name == '\0' || is_dots(name)};
    if (out->slash && (*name == '\0' || is_dots(name))) { // the whole path is the directory
        out->dir = strdup(len > 0 ? text : ".");
        out->name = strdup("");
    } else {
        out->name = strdup(name);
        out->dir = last == NULL ? strdup(".") : strndup(text, last == text ? 1 : (size_t)(last - text));
    }
    free(text);
    return out->dir != NULL && out->name != NULL ? 0 : -ENOMEM;
}

// Beneath an agent's root: leading slashes and "." components go, ".." is refused. "" is the root.
static int beneath_root(const char *dir, char **out)
{
    char *clean = malloc(strlen(dir) + 1);
    if (clean == NULL)
        return -ENOMEM;
    size_t at = 0;
    for (const char *p = dir; *p != '\0';) {
        size_t len = strcspn(p, "/");
        if (len == 2 && p[0] == '.' && p[1] == '.') {
            free(clean);
            return -EACCES;
        }
        if (len > 0 && !(len == 1 && p[0] == '.')) {
            if (at > 0)
                clean[at++] = '/';
            memcpy(clean + at, p, len);
            at += len;
        }
        p += len;
        p += *p == '/';
    }
    clean[at] = '\0';
    *out = clean;
    return 0;
}

static int open_dir(const struct agent_config *cfg, const char *dir)
{
    const int flags = O_RDONLY | O_DIRECTORY;
    if (cfg->root == NULL)
        return sys_openat(AT_FDCWD, dir, flags, 0);
    char *clean;
    int rc = beneath_root(dir, &clean);
    if (rc < 0)
        return rc;
    int root = sys_openat(AT_FDCWD, cfg->root, flags, 0);
    rc = root < 0 ? root : path_open(root, clean, strlen(clean), flags, 0);
    if (root >= 0)
        (void)sys_close(root); // a directory: a close tells nothing
    free(clean);
    return rc;
}

// The directory itself: open_dir of "dir/name".
static int open_named(const struct agent_config *cfg, const struct split *s)
{
    if (s->name[0] == '\0')
        return open_dir(cfg, s->dir);
    size_t len = strlen(s->dir) + 1 + strlen(s->name) + 1;
    char *whole = malloc(len);
    if (whole == NULL)
        return -ENOMEM;
    memcpy(whole, s->dir, strlen(s->dir));
    whole[strlen(s->dir)] = '/';
    memcpy(whole + strlen(s->dir) + 1, s->name, strlen(s->name) + 1);
    int fd = open_dir(cfg, whole);
    free(whole);
    return fd;
}

static int source_err(struct err *err, int rc, const struct blob *path)
{
    err_set(err, ERR_START, -rc, "open", path->bytes, path->len, "%s", "");
    return rc;
}

static int describe(int fd, const char *from, struct source_found *found)
{
    struct stat st;
    int rc = from[0] != '\0' ? sys_fstatat(fd, from, &st, AT_SYMLINK_NOFOLLOW) : sys_fstat(fd, &st);
    if (rc < 0)
        return rc;
    found->type = S_ISDIR(st.st_mode) ? ENTRY_DIR : S_ISLNK(st.st_mode) ? ENTRY_SYMLINK : ENTRY_FILE;
    found->dev = st.st_dev;
    found->inode = st.st_ino;
    return 0;
}

// `.penstock` is no data, neither to be copied nor to be copied into.
static int refuse_own(const struct blob *path, struct err *err)
{
    err_set(err, ERR_START, 0, "open", path->bytes, path->len, "the name .penstock is reserved");
    return -EINVAL;
}

static bool has_own(const struct blob *path)
{
    const char *bytes = (const char *)path->bytes;
    for (size_t at = 0; at < path->len;) {
        const char *slash = memchr(bytes + at, '/', path->len - at);
        size_t len = slash != NULL ? (size_t)(slash - (bytes + at)) : path->len - at;
        if (manifest_is_own(bytes + at, len))
            return true;
        at += len + 1;
    }
    return false;
}

int agent_open_source(const struct agent_config *cfg, const struct blob *path, struct walk_source *out,
                      struct source_found *found, struct err *err)
{
    struct split s = {0};
    int rc = split_path(path, &s);
    *found = (struct source_found){.contents = s.slash};
    *out = (struct walk_source){.fd = -1};
    if (rc == 0)
        rc = s.slash ? open_named(cfg, &s) : open_dir(cfg, s.dir);
    if (rc >= 0) {
        out->fd = rc;
        out->from = strdup(s.slash ? "" : s.name);
        rc = out->from != NULL ? describe(out->fd, out->from, found) : -ENOMEM;
    }
    bool own = rc == 0 && !s.slash && manifest_is_own(s.name, strlen(s.name));
    if (own)
        rc = refuse_own(path, err);
    if (rc == 0 && !s.slash) {
        rc = strlen(s.name) <= NAME_BYTES_MAX ? 0 : -ENAMETOOLONG;
        if (rc == 0)
            memcpy(found->name, s.name, strlen(s.name) + 1);
    }
    split_free(&s);
    if (rc == 0)
        return 0;
    if (out->fd >= 0)
        (void)sys_close(out->fd);
    free(out->from);
    *out = (struct walk_source){.fd = -1};
    return own ? rc : source_err(err, rc, path);
}

// Whether the directory is, or lies beneath, one of the sources. Goes up by "..", so it works beneath any
// root.
static bool inside(int fd, const struct source_found *sources, uint32_t count, uint32_t *which)
{
    int at = sys_openat(fd, ".", O_PATH | O_DIRECTORY, 0);
    struct stat st, up;
    bool found = false;
    while (at >= 0 && sys_fstat(at, &st) == 0 && !found) {
        for (uint32_t i = 0; i < count && !found; i++) {
            found =
                sources[i].type == ENTRY_DIR && sources[i].dev == st.st_dev && sources[i].inode == st.st_ino;
            *which = i;
        }
        int parent = sys_openat(at, "..", O_PATH | O_DIRECTORY, 0);
        (void)sys_close(at);
        at = parent;
        if (at < 0 || sys_fstat(at, &up) < 0 || (up.st_dev == st.st_dev && up.st_ino == st.st_ino))
            break;
    }
    if (at >= 0)
        (void)sys_close(at);
    return found;
}

static int refuse_inside(const struct source_found *source, const struct blob *path, struct err *err)
{
    err_set(err, ERR_USAGE, 0, "", path->bytes, path->len, "the destination lies inside the source %s",
            source->name[0] != '\0' ? source->name : "directory");
    return -EINVAL;
}

// Opens DST as a directory, and makes its last component when it is missing: but not inside a source.
static int open_or_make(const struct agent_config *cfg, const struct split *s, const struct blob *path,
                        const struct source_found *sources, uint32_t count, struct err *err)
{
    int fd = open_named(cfg, s);
    if (fd != -ENOENT || s->name[0] == '\0')
        return fd;
    int parent = open_dir(cfg, s->dir);
    if (parent < 0)
        return parent;
    uint32_t which = 0;
    int rc = inside(parent, sources, count, &which) ? refuse_inside(&sources[which], path, err)
                                                    : sys_mkdirat(parent, s->name, 0777);
    if (rc == 0)
        rc = sys_fsync(parent);
    (void)sys_close(parent); // a directory: a close tells nothing
    return rc < 0 && rc != -EEXIST ? rc : open_named(cfg, s);
}

// Whether DST, without a slash, is there as a directory (a link to one counts, as for the shell).
static bool is_directory(const struct agent_config *cfg, const struct split *s)
{
    int fd = open_named(cfg, s);
    if (fd >= 0)
        (void)sys_close(fd);
    return fd >= 0;
}

// Two sources must not become the same entry. -EEXIST and which.
static int names_apart(char *const *names, uint32_t count, uint32_t *which)
{
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t k = 0; k < i; k++)
            if (strcmp(names[i], names[k]) == 0 || names[i][0] == '\0' || names[k][0] == '\0') {
                *which = i;
                return -EEXIST;
            }
    return 0;
}

static int name_sources(const struct source_found *sources, uint32_t count, const char *rename, char **names)
{
    for (uint32_t i = 0; i < count; i++) {
        names[i] = strdup(rename != NULL ? rename : sources[i].contents ? "" : sources[i].name);
        if (names[i] == NULL)
            return -ENOMEM;
    }
    return 0;
}

// The path of an open directory, as the kernel knows it; NULL when it cannot say.
static char *kernel_path(int fd)
{
    char link[64], path[PATH_MAX + 1];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t len = sys_readlinkat(AT_FDCWD, link, path, PATH_MAX);
    if (len <= 0 || len == PATH_MAX || path[0] != '/')
        return NULL;
    path[len] = '\0';
    return strdup(path);
}

static char *shown_path(int fd)
{
    char *path = kernel_path(fd);
    return path != NULL ? path : strdup("?");
}

// What OPEN takes for the directory that was opened as `dir`, or as `name` in it. Beneath a root the words of
// the user, tidied up: no link was followed. Else the absolute path.
static char *place_path(const struct agent_config *cfg, int fd, const char *dir, const char *name)
{
    char *whole, *clean = NULL;
    if (cfg->root == NULL) {
        char *path = kernel_path(fd);
        return path != NULL ? path : strdup("");
    }
    if (asprintf(&whole, "%s/%s", dir, name) < 0)
        return NULL;
    int rc = beneath_root(whole, &clean);
    free(whole);
    if (rc < 0 || clean[0] != '\0')
        return rc < 0 ? NULL : clean;
    free(clean);
    return strdup(".");
}

int agent_open_dest(const struct agent_config *cfg, const struct blob *path,
                    const struct source_found *sources, uint32_t count, bool same_host, char **names,
                    char **shown, char **place, struct err *err)
{
    struct split s = {0};
    int fd = -1;
    int rc = path->bytes != NULL ? split_path(path, &s) : -EINVAL;
    // One file (or link) goes to a new name unless DST is a directory; everything else goes into DST.
    bool single = rc == 0 && count == 1 && sources[0].type != ENTRY_DIR && !s.slash && !is_directory(cfg, &s);
    uint32_t apart = same_host ? count : 0; // sources that DST must not lie in
    uint32_t which = 0;
    if (rc == 0 && has_own(path))
        rc = refuse_own(path, err);
    if (rc == 0)
        rc = name_sources(sources, count, single ? s.name : NULL, names);
    if (rc == 0 && names_apart(names, count, &which) < 0) {
        rc = -EEXIST;
        err_set(err, ERR_USAGE, 0, "", names[which], strlen(names[which]), "%s",
                names[which][0] != '\0'
                    ? "two sources would become the same entry"
                    : "contents (a trailing slash) can be copied from one source at a time");
    }
    if (rc == 0)
        rc = fd = single ? open_dir(cfg, s.dir) : open_or_make(cfg, &s, path, sources, apart, err);
    if (rc >= 0 && inside(fd, sources, apart, &which))
        rc = refuse_inside(&sources[which], path, err);
    *shown = rc >= 0 ? shown_path(fd) : NULL;
    *place = rc >= 0 ? place_path(cfg, fd, s.dir, single ? "" : s.name) : NULL;
    if (rc >= 0 && (*shown == NULL || *place == NULL))
        rc = -ENOMEM;
    split_free(&s);
    if (rc >= 0)
        return fd;
    if (fd >= 0)
        (void)sys_close(fd);
    if (err->class == ERR_NONE)
        err_set(err, ERR_START, -rc, "open the destination", path->bytes, path->len, "%s", "");
    return rc;
}

int agent_open_folder(const struct agent_config *cfg, const struct blob *path, char **shown, struct err *err)
{
    struct split s = {0};
    int rc = split_path(path, &s);
    if (rc == 0)
        rc = open_named(cfg, &s);
    split_free(&s);
    if (rc < 0)
        return source_err(err, rc, path);
    *shown = shown_path(rc);
    if (*shown != NULL)
        return rc;
    (void)sys_close(rc); // a directory: a close tells nothing
    return source_err(err, -ENOMEM, path);
}
