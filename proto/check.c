#include "proto/check.h"

#include <errno.h>

enum { OS_MAX = 4095, MODE_BITS = 07777 };

void check_put(struct wire_writer *w, const struct check_result *r)
{
    wire_put_u8(w, (uint8_t)r->verdict);
    wire_put_u8(w, (uint8_t)r->difference);
    wire_put_u16(w, (uint16_t)r->os);
    wire_put_u64(w, r->found);
}

// Whether there can be a difference with this `found`.
static bool difference_possible(const struct check_result *r)
{
    switch (r->difference) {
    case DIFFERS_TYPE:
        return r->found <= ENTRY_SYMLINK;
    case DIFFERS_SIZE:
        return r->found <= FILE_BYTES_MAX;
    case DIFFERS_MODE:
        return r->found <= MODE_BITS;
    default:
        return r->difference > DIFFERS_NOT && r->difference < CHECK_DIFFERENCES && r->found == 0;
    }
}

static bool result_possible(const struct check_result *r)
{
    if (r->verdict == CHECK_WRONG)
        return r->os == 0 && difference_possible(r);
    if (r->verdict >= CHECK_VERDICTS || r->difference != DIFFERS_NOT || r->found != 0)
        return false;
    return r->verdict == CHECK_UNREADABLE ? r->os > 0 && r->os <= OS_MAX : r->os == 0;
}

int check_get(struct wire_reader *r, struct check_result *out)
{
    struct check_result got;
    got.verdict = (enum check_verdict)wire_get_u8(r);
    got.difference = (enum check_difference)wire_get_u8(r);
    got.os = wire_get_u16(r);
    got.found = wire_get_u64(r);
    if (r->bad || !result_possible(&got))
        return -EPROTO;
    *out = got;
    return 0;
}

static const char *type_name(uint64_t type)
{
    static const char *const names[] = {
        "something else", [ENTRY_DIR] = "a directory", [ENTRY_FILE] = "a file", [ENTRY_SYMLINK] = "a link"};
    return type < ARRAY_LEN(names) ? names[type] : names[0];
}

static void wrong(const struct check_result *r, const struct receipt_entry *e, struct err *err)
{
    const char *words = "is not as the receipt says";
    switch (r->difference) {
    case DIFFERS_TYPE:
        err_set(err, ERR_DIGEST, 0, NULL, e->path.bytes, e->path.len, "is %s, not %s", type_name(r->found),
                type_name(e->type));
        return;
    case DIFFERS_SIZE:
        err_set(err, ERR_DIGEST, 0, NULL, e->path.bytes, e->path.len, "has %llu bytes, not %llu",
                (unsigned long long)r->found, (unsigned long long)e->size);
        return;
    case DIFFERS_MODE:
        err_set(err, ERR_DIGEST, 0, NULL, e->path.bytes, e->path.len, "has mode %04o, not %04o",
                (unsigned)r->found & CHECK_MODE_BITS, (unsigned)e->mode & CHECK_MODE_BITS);
        return;
    case DIFFERS_PATH:
        words = "a part of its path is a link, or no directory any more";
        break;
    case DIFFERS_TIME:
        words = "has another modification time, and no digest to tell more";
        break;
    case DIFFERS_CONTENT:
        words = e->type == ENTRY_SYMLINK ? "points elsewhere: its digest differs"
                                         : "has other content: its digest differs";
        break;
    default:
        break;
    }
    err_set(err, ERR_DIGEST, 0, NULL, e->path.bytes, e->path.len, "%s", words);
}

void check_err(const struct check_result *r, const struct receipt_entry *e, struct err *err)
{
    if (r->verdict == CHECK_WRONG)
        wrong(r, e, err);
    else if (r->verdict == CHECK_MISSING)
        err_set(err, ERR_DIGEST, 0, NULL, e->path.bytes, e->path.len, "is missing");
    else
        err_set(err, ERR_ENTRY, r->os, "read", e->path.bytes, e->path.len, NULL);
}
