#include "storage/dir_reader.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

int dir_reader_init(struct dir_reader *r, int fd, uint32_t cap, uint64_t offset)
{
    assert(cap >= DIR_READER_BYTES_MIN);
    *r = (struct dir_reader){.fd = fd, .buf = malloc(cap), .cap = cap, .offset = offset};
    int64_t rc = r->buf == NULL ? -ENOMEM : 0;
    if (rc == 0 && offset != 0)
        rc = sys_lseek(fd, offset, SEEK_SET);
    if (rc >= 0)
        return 0;
    dir_reader_fini(r);
    return (int)rc;
}

void dir_reader_fini(struct dir_reader *r)
{
    if (r->fd >= 0)
        sys_close(r->fd); // a directory: nothing was written
    r->fd = -1;
    free(r->buf);
    r->buf = NULL;
    r->len = r->at = 0;
}

// Takes the record at r->at. 0: it is "." or "..".
static int take(struct dir_reader *r, const char **name, size_t *len)
{
    const size_t head = offsetof(struct dirent64, d_name);
    const uint8_t *record = r->buf + r->at;
    size_t room = r->len - r->at;
    uint16_t record_len = 0;
    if (room > head)
        memcpy(&record_len, record + offsetof(struct dirent64, d_reclen), sizeof(record_len));
    if (record_len <= head || record_len > room)
        return -EIO;
    const char *text = (const char *)record + head;
    size_t text_len = strnlen(text, record_len - head);
    if (text_len == 0 || text_len == record_len - head || memchr(text, '/', text_len) != NULL)
        return -EIO;
    int64_t offset;
    memcpy(&offset, record + offsetof(struct dirent64, d_off), sizeof(offset));
    r->offset = (uint64_t)offset;
    r->at += record_len;
    if (strcmp(text, ".") == 0 || strcmp(text, "..") == 0)
        return 0;
    *name = text;
    *len = text_len;
    return 1;
}

int dir_reader_next(struct dir_reader *r, const char **name, size_t *len)
{
    for (;;) {
        while (r->at < r->len) {
            int n = take(r, name, len);
            if (n != 0)
                return n;
        }
        ssize_t n = sys_getdents(r->fd, r->buf, r->cap);
        if (n == -ENOENT) // removed while it was open
            n = 0;
        if (n <= 0)
            return (int)n;
        r->at = 0;
        r->len = (uint32_t)n;
    }
}

int dir_reader_rewind(struct dir_reader *r)
{
    int64_t rc = sys_lseek(r->fd, 0, SEEK_SET);
    if (rc < 0)
        return (int)rc;
    r->at = r->len = 0;
    r->offset = 0;
    return 0;
}
