#include "mover/key.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "storage/sys.h"

// A key file is small: these bounds keep a wrong file (a device image, a log) out of memory.
enum { KEY_FILE_BYTES_MAX = 4 * MIB, KEYS_MAX = 4096 };
enum { NAME_BYTES = sizeof(((struct key *)0)->name) - 1, SECRET_DIGITS = 2 * SECRET_BYTES };

static const char digits[] = "0123456789abcdef";

struct text {
    const char *at, *end;
};

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

// The next run of bytes without blanks; empty at the end of the line.
static struct text word_take(struct text *line)
{
    while (line->at < line->end && is_blank(*line->at))
        line->at++;
    struct text word = {line->at, line->at};
    while (word.end < line->end && !is_blank(*word.end))
        word.end++;
    line->at = word.end;
    return word;
}

static bool name_take(struct text word, char out[NAME_BYTES + 1])
{
    size_t len = (size_t)(word.end - word.at);
    if (len < 1 || len > NAME_BYTES)
        return false;
    for (size_t i = 0; i < len; i++) {
        char c = word.at[i];
        bool ok = (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.' ||
                  c == '_' || c == '-';
        if (!ok)
            return false;
    }
    memcpy(out, word.at, len);
    out[len] = '\0';
    return true;
}

static int digit_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

static bool secret_take(struct text word, struct secret *out)
{
    if (word.end - word.at != SECRET_DIGITS)
        return false;
    for (size_t i = 0; i < SECRET_BYTES; i++) {
        int high = digit_value(word.at[2 * i]), low = digit_value(word.at[2 * i + 1]);
        if (high < 0 || low < 0)
            return false;
        out->bytes[i] = (uint8_t)(high << 4 | low);
    }
    return true;
}

// One line. True: a key, or nothing (*has = false: blank or a comment). False: malformed, *words say how.
static bool line_take(struct text line, struct key *key, bool *has, const char **words)
{
    if (line.at < line.end && line.end[-1] == '\r')
        line.end--;
    struct text name = word_take(&line);
    *has = name.at < name.end && *name.at != '#';
    if (!*has)
        return true;
    struct text secret = word_take(&line), more = word_take(&line);
    *words = NULL;
    if (!name_take(name, key->name))
        *words = "the name is not 1 to 64 of A-Z a-z 0-9 . _ -";
    else if (!secret_take(secret, &key->secret))
        *words = "the secret is not 64 hexadecimal digits";
    else if (more.at < more.end && *more.at != '#')
        *words = "there is more than NAME SECRET";
    return *words == NULL;
}

// Appends a key. No realloc: it would leave a copy of the secrets behind.
static int ring_add(struct key_ring *r, const struct key *key, uint32_t *room)
{
    if (r->count == *room) {
        uint32_t more = *room == 0 ? 4 : *room * 2;
        struct key *keys = malloc(more * sizeof(*keys));
        if (keys == NULL)
            return -ENOMEM;
        if (r->count > 0)
            memcpy(keys, r->keys, r->count * sizeof(*keys));
        struct key_ring old = *r;
        key_ring_free(&old);
        r->keys = keys;
        *room = more;
    }
    r->keys[r->count++] = *key;
    return 0;
}

static int refuse_line(struct err *err, const char *path, unsigned line, const char *words)
{
    err_set(err, ERR_USAGE, 0, "key file", path, strlen(path), "line %u: %s", line, words);
    return -EINVAL;
}

static int refuse_file(struct err *err, enum err_class class, int rc, const char *path, const char *words)
{
    err_set(err, class, words == NULL ? -rc : 0, "key file", path, strlen(path), words == NULL ? NULL : "%s",
            words);
    return rc;
}

static int ring_parse(const char *path, struct text file, struct key_ring *ring, struct err *err)
{
    uint32_t room = 0;
    unsigned number = 0;
    struct key key = {0};
    int rc = 0;
    while (rc == 0 && file.at < file.end) {
        const char *stop = memchr(file.at, '\n', (size_t)(file.end - file.at));
        struct text line = {file.at, stop != NULL ? stop : file.end};
        file.at = stop != NULL ? stop + 1 : file.end;
        number++;
        bool has;
        const char *words;
        if (!line_take(line, &key, &has, &words))
            rc = refuse_line(err, path, number, words);
        else if (has && key_ring_find(ring, key.name, strlen(key.name)) != NULL)
            rc = refuse_line(err, path, number, "the name stands in an earlier line");
        else if (has && ring->count == KEYS_MAX)
            rc = refuse_line(err, path, number, "there are too many keys");
        else if (has && ring_add(ring, &key, &room) < 0)
            rc = refuse_file(err, ERR_START, -ENOMEM, path, NULL);
    }
    seal_wipe(&key, sizeof(key));
    if (rc == 0 && ring->count == 0)
        rc = refuse_file(err, ERR_USAGE, -EINVAL, path, "it has no line NAME SECRET");
    return rc;
}

// Whether the file may be believed; *words say why not.
static bool stat_fits(const struct stat *st, const char **words)
{
    *words = NULL;
    if (!S_ISREG(st->st_mode))
        *words = "it is not a regular file";
    else if (st->st_uid != sys_euid() && st->st_uid != 0)
        *words = "it belongs to another user";
    else if ((st->st_mode & (S_IRWXG | S_IRWXO)) != 0)
        *words = "group or others have access to it: chmod 600";
    else if (st->st_size > KEY_FILE_BYTES_MAX)
        *words = "it is too large for a key file";
    return *words == NULL;
}

static int ring_read(int fd, const char *path, struct key_ring *ring, struct err *err)
{
    struct stat st;
    const char *words;
    int rc = sys_fstat(fd, &st);
    if (rc < 0)
        return refuse_file(err, ERR_START, rc, path, NULL);
    if (!stat_fits(&st, &words))
        return refuse_file(err, ERR_START, -EACCES, path, words);
    size_t size = (size_t)st.st_size;
    char *bytes = malloc(size + 1);
    if (bytes == NULL)
        return refuse_file(err, ERR_START, -ENOMEM, path, NULL);
    ssize_t got = sys_pread_full(fd, bytes, size, 0);
    if (got < 0)
        rc = refuse_file(err, ERR_START, (int)got, path, NULL);
    else
        rc = ring_parse(path, (struct text){bytes, bytes + got}, ring, err);
    seal_wipe(bytes, size + 1);
    free(bytes);
    return rc;
}

int key_ring_load(const char *path, struct key_ring *out, struct err *err)
{
    // Non-blocking, so that a fifo does not hold us before it is refused.
    int fd = sys_openat(AT_FDCWD, path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, 0);
    if (fd == -ELOOP)
        return refuse_file(err, ERR_START, fd, path, "it is a symbolic link");
    if (fd < 0)
        return refuse_file(err, ERR_START, fd, path, NULL);
    struct key_ring ring = {0};
    int rc = ring_read(fd, path, &ring, err);
    int closed = sys_close(fd);
    if (rc == 0 && closed < 0)
        rc = refuse_file(err, ERR_START, closed, path, NULL);
    if (rc < 0) {
        key_ring_free(&ring);
        return rc;
    }
    *out = ring;
    return 0;
}

void key_ring_free(struct key_ring *r)
{
    if (r == NULL)
        return;
    if (r->keys != NULL)
        seal_wipe(r->keys, r->count * sizeof(*r->keys));
    free(r->keys);
    *r = (struct key_ring){0};
}

const struct key *key_ring_find(const struct key_ring *r, const char *name, size_t len)
{
    for (uint32_t i = 0; i < r->count; i++) {
        const struct key *key = &r->keys[i];
        if (strlen(key->name) == len && memcmp(key->name, name, len) == 0)
            return key;
    }
    return NULL;
}

const struct key *key_ring_for_host(const struct key_ring *r, const char *host)
{
    const struct key *key = key_ring_find(r, host, strlen(host));
    return key == NULL && r->count == 1 ? &r->keys[0] : key;
}

static char *put_hex(char *out, const uint8_t *bytes, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        *out++ = digits[bytes[i] >> 4];
        *out++ = digits[bytes[i] & 15];
    }
    return out;
}

static int line_write(int fd)
{
    static const char prefix[] = "penstock-";
    uint8_t name[8];
    struct secret secret;
    char line[sizeof(prefix) - 1 + 2 * sizeof(name) + 1 + SECRET_DIGITS + 1];
    int rc = sys_random(name, sizeof(name));
    if (rc == 0)
        rc = sys_random(secret.bytes, sizeof(secret.bytes));
    if (rc < 0)
        return rc;
    memcpy(line, prefix, sizeof(prefix) - 1);
    char *at = put_hex(line + sizeof(prefix) - 1, name, sizeof(name));
    *at++ = ' ';
    at = put_hex(at, secret.bytes, sizeof(secret.bytes));
    *at++ = '\n';
    rc = sys_pwrite_full(fd, line, (size_t)(at - line), 0);
    seal_wipe(&secret, sizeof(secret));
    seal_wipe(line, sizeof(line));
    return rc;
}

// Syncs the directory that holds `path`, so that the new name outlives a crash.
static int parent_sync(const char *path)
{
    const char *slash = strrchr(path, '/');
    char *parent = slash == NULL ? strdup(".") : strndup(path, slash == path ? 1 : (size_t)(slash - path));
    if (parent == NULL)
        return -ENOMEM;
    int fd = sys_openat(AT_FDCWD, parent, O_RDONLY | O_DIRECTORY, 0);
    free(parent);
    if (fd < 0)
        return fd;
    int rc = sys_fsync(fd);
    int closed = sys_close(fd);
    return rc < 0 ? rc : closed;
}

int key_file_make(const char *path, struct err *err)
{
    int fd = sys_openat(AT_FDCWD, path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, S_IRUSR | S_IWUSR);
    if (fd == -EEXIST)
        return refuse_file(err, ERR_START, fd, path, "it exists already, and a key is never overwritten");
    if (fd < 0)
        return refuse_file(err, ERR_START, fd, path, NULL);
    int rc = sys_fchmod(fd, S_IRUSR | S_IWUSR); // whatever the umask says
    if (rc == 0)
        rc = line_write(fd);
    if (rc == 0)
        rc = sys_fsync(fd);
    int closed = sys_close(fd);
    if (rc == 0)
        rc = closed;
    if (rc == 0)
        rc = parent_sync(path);
    if (rc == 0)
        return 0;
    int removed = sys_unlinkat(AT_FDCWD, path, 0);
    err_set(err, ERR_START, -rc, "key file", path, strlen(path),
            removed < 0 ? "what is left of it is no key" : NULL);
    return rc;
}
