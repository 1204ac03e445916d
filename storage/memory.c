#include "storage/memory.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "proto/digest.h"
#include "proto/limits.h"
#include "storage/path.h"
#include "storage/sys.h"

#define SHARED "/dev/shm"

struct stamp {
    uint64_t offset, file;
};

static int make_file(int dir_fd, uint32_t number, uint64_t bytes)
{
    char name[16];
    snprintf(name, sizeof name, "%08u", number);
    int fd = sys_openat(dir_fd, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0600);
    if (fd < 0)
        return fd;
    int rc = sys_ftruncate(fd, bytes);
    int closed = sys_close(fd);
    return rc < 0 ? rc : closed;
}

static int make_files(const char *path, uint32_t files, uint64_t file_bytes)
{
    int fd = sys_openat(AT_FDCWD, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0);
    if (fd < 0)
        return fd;
    int rc = 0;
    for (uint32_t i = 0; i < files && rc == 0; i++)
        rc = make_file(fd, i, file_bytes);
    (void)sys_close(fd); // a directory: a close tells nothing
    return rc;
}

static int is_memory(int fd)
{
    uint64_t magic, free_bytes;
    int rc = sys_fs_magic(fd, &magic, &free_bytes);
    return rc < 0 ? rc : magic == TMPFS_MAGIC ? 0 : -ENOTSUP;
}

int memory_tree_make(uint32_t files, uint64_t file_bytes, struct memory_tree *out)
{
    *out = (struct memory_tree){.path = ""};
    uint64_t number;
    int rc = sys_random(&number, sizeof number);
    int shared = rc == 0 ? sys_openat(AT_FDCWD, SHARED, O_RDONLY | O_DIRECTORY, 0) : rc;
    if (shared < 0)
        return shared;
    char name[32];
    snprintf(name, sizeof name, "penstock-memory-%012llx", (unsigned long long)number & 0xffffffffffff);
    rc = is_memory(shared);
    if (rc == 0)
        rc = sys_mkdirat(shared, name, 0700);
    (void)sys_close(shared);
    if (rc < 0)
        return rc;
    snprintf(out->path, sizeof out->path, SHARED "/%s", name);
    rc = make_files(out->path, files, file_bytes);
    if (rc < 0)
        memory_tree_remove(out);
    return rc;
}

void memory_tree_remove(struct memory_tree *t)
{
    if (t->path[0] == '\0')
        return;
    int shared = sys_openat(AT_FDCWD, SHARED, O_RDONLY | O_DIRECTORY, 0);
    int rc = shared < 0 ? shared : path_remove_tree(shared, t->path + sizeof SHARED);
    if (shared >= 0)
        rc = sys_close(shared);
    (void)rc; // see the header
    t->path[0] = '\0';
}

void memory_noise(void *buf, size_t len, uint64_t seed)
{
    // xorshift64* (Vigna 2016, "An experimental exploration of Marsaglia's xorshift generators"): plenty to
    // be incompressible.
    uint64_t x = seed | 1;
    uint8_t *to = buf;
    for (size_t at = 0; at < len; at += sizeof x) {
        x ^= x >> 12;
        x ^= x << 25;
        x ^= x >> 27;
        uint64_t word = x * UINT64_C(0x2545f4914f6cdd1d);
        memcpy(to + at, &word, u64_min(sizeof word, len - at));
    }
}

uint64_t memory_file(const void *path, size_t len)
{
    struct digest d = digest_of(path, len);
    uint64_t number;
    memcpy(&number, d.bytes, sizeof number);
    return number;
}

void memory_fill(void *buf, size_t len, uint64_t file, uint64_t offset)
{
    uint8_t *to = buf;
    for (size_t at = 0; at + sizeof(struct stamp) <= len; at += BLOCK_BYTES) {
        struct stamp stamp = {.offset = offset + at, .file = file};
        memcpy(to + at, &stamp, sizeof stamp);
    }
}

int memory_check(const void *buf, size_t len, uint64_t file, uint64_t offset)
{
    const uint8_t *from = buf;
    for (size_t at = 0; at + sizeof(struct stamp) <= len; at += BLOCK_BYTES) {
        struct stamp stamp;
        memcpy(&stamp, from + at, sizeof stamp);
        if (stamp.offset != offset + at || stamp.file != file)
            return -EBADMSG;
    }
    return 0;
}
