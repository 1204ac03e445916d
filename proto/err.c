#include "proto/err.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

struct class_row {
    const char *name;
    enum err_action action;
    int exit;
};

static const struct class_row classes[] = {
#define X(class, name, action, exit) [class] = {name, action, exit},
    ERR_CLASSES(X)
#undef X
};

// Exit statuses by weight, the heaviest first.
static const int exits_by_weight[] = {2, 5, 4, 6, 7, 9, 3, 1, 8};

static const char cut_mark[] = "...";

// A class may come from a peer, as a number that this release does not know.
static const struct class_row *class_find(enum err_class class)
{
    return (unsigned)class < ARRAY_LEN(classes) ? &classes[class] : &classes[ERR_PROTOCOL];
}

const char *err_class_name(enum err_class class)
{
    return class_find(class)->name;
}

enum err_action err_class_action(enum err_class class)
{
    return class_find(class)->action;
}

int err_class_exit(enum err_class class)
{
    return class_find(class)->exit;
}

static size_t exit_rank(int status)
{
    size_t rank = 0;
    while (rank < ARRAY_LEN(exits_by_weight) && exits_by_weight[rank] != status)
        rank++;
    return rank + (status == 0); // an unknown status still says more than success
}

int err_exit_worse(int a, int b)
{
    return exit_rank(b) < exit_rank(a) ? b : a;
}

// Bytes of the UTF-8 character at the start of `in` when it is well-formed (Unicode 15, table 3-7: no
// overlong form, no surrogate, at most U+10FFFF) and not a control character, else 0. A backslash counts as
// any other.
static size_t printable_bytes(const uint8_t *in, size_t len)
{
    uint8_t first = in[0];
    if (first < 0x80)
        return first >= 0x20 && first != 0x7f ? 1 : 0;
    if (first < 0xc2 || first > 0xf4)
        return 0;
    size_t bytes = first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
    if (bytes > len)
        return 0;
    // The second byte's range is narrower after some first bytes; for 0xc2 it leaves out C1.
    uint8_t low = first == 0xc2 || first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
    uint8_t high = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
    if (in[1] < low || in[1] > high)
        return 0;
    for (size_t i = 2; i < bytes; i++) {
        if ((in[i] & 0xc0) != 0x80)
            return 0;
    }
    return bytes;
}

// The escaped form of what `in` starts with, into `out`; its length, and in *taken the bytes of `in` it
// stands for. Without `double_backslash` a backslash stays as it is, for text that is escaped already.
static size_t escape_one(const uint8_t *in, size_t len, bool double_backslash, char out[4], size_t *taken)
{
    static const char digits[] = "0123456789abcdef";
    *taken = printable_bytes(in, len);
    if (*taken == 0) {
        *taken = 1;
        out[0] = '\\';
        out[1] = 'x';
        out[2] = digits[in[0] >> 4];
        out[3] = digits[in[0] & 15];
        return 4;
    }
    memcpy(out, in, *taken);
    if (in[0] != '\\' || !double_backslash)
        return *taken;
    out[1] = '\\';
    return 2;
}

static size_t escape(char *out, size_t out_len, const void *bytes, size_t len, bool double_backslash)
{
    if (out_len == 0)
        return 0;
    const uint8_t *in = bytes;
    size_t at = 0, done = 0;
    while (done < len) {
        char one[4];
        size_t taken, got = escape_one(in + done, len - done, double_backslash, one, &taken);
        if (got >= out_len - at)
            break;
        memcpy(out + at, one, got);
        at += got;
        done += taken;
    }
    out[at] = '\0';
    return at;
}

size_t err_escape(char *out, size_t out_len, const void *bytes, size_t len)
{
    return escape(out, out_len, bytes, len, true);
}

// Escapes a path; of one that is too long the end is kept, which names the file.
static void escape_path(char *out, size_t out_len, const uint8_t *path, size_t len)
{
    char one[4];
    size_t total = 0, taken;
    for (size_t at = 0; at < len; at += taken)
        total += escape_one(path + at, len - at, true, one, &taken);
    size_t skip = 0;
    if (total >= out_len) {
        memcpy(out, cut_mark, sizeof(cut_mark));
        out += sizeof(cut_mark) - 1;
        out_len -= sizeof(cut_mark) - 1;
    }
    while (total >= out_len) {
        total -= escape_one(path + skip, len - skip, true, one, &taken);
        skip += taken;
    }
    size_t written = err_escape(out, out_len, path + skip, len - skip);
    assert(written == total);
}

void err_set(struct err *err, enum err_class class, int os, const char *op, const void *path, size_t path_len,
             const char *fmt, ...)
{
    *err = (struct err){.class = class, .os = os};
    err_escape(err->op, sizeof(err->op), op, op != NULL ? strlen(op) : 0);
    if (path != NULL)
        escape_path(err->path, sizeof(err->path), path, path_len);
    if (fmt == NULL)
        return;
    // As long as the field: what is cut off here could not have gone in, since no escape is shorter than its
    // bytes, and of a character cut in two (at most three bytes) not even one byte's escape fits.
    char raw[TEXT_BYTES_MAX];
    va_list args;
    va_start(args, fmt);
    int len = vsnprintf(raw, sizeof(raw), fmt, args);
    va_end(args);
    if (len > 0)
        err_escape(err->text, sizeof(err->text), raw, u64_min((uint64_t)len, sizeof(raw) - 1));
}

struct line {
    char *buf;
    size_t len, at;
};

// Appends `text` behind `gap`, which is left out at the start of the line. The fields are escaped already,
// but may come from a peer: what should not have been there is escaped here.
static void line_add(struct line *line, const char *gap, const char *text)
{
    if (text[0] == '\0')
        return;
    if (line->at > 0)
        line->at += escape(line->buf + line->at, line->len - line->at, gap, strlen(gap), false);
    line->at += escape(line->buf + line->at, line->len - line->at, text, strlen(text), false);
}

const char *err_line(const struct err *err, char *buf, size_t len)
{
    if (len == 0)
        return buf;
    struct line line = {.buf = buf, .len = len};
    buf[0] = '\0';
    line_add(&line, "", err->node);
    line_add(&line, ": ", err->op);
    line_add(&line, err->op[0] != '\0' ? " " : ": ", err->path);
    line_add(&line, ": ", err->text);
    if (err->os != 0) {
        const char *words = strerrordesc_np(err->os);
        char number[32];
        snprintf(number, sizeof(number), "error %d", err->os);
        line_add(&line, ": ", words != NULL ? words : number);
    }
    if (line.at == 0)
        line_add(&line, "", err_class_name(err->class));
    return buf;
}
