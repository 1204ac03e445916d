#include "storage/memory.h"

#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>

#include "proto/digest.h"
#include "proto/limits.h"
#include "storage/dir_reader.h"
#include "storage/journal.h"
#include "storage/path.h"
#include "storage/sys.h"

#define SHARED "/dev/shm"
#define PREFIX "penstock-memory-"

struct stamp {
    uint64_t offset; // little-endian
    uint64_t file;   // bytes as memory_file has them
};

const char *memory_wrong(uint32_t files, uint64_t file_bytes)
{
    return files == 0                            ? "has no size"
           : files > MEMORY_FILES_MAX            ? "has more than 100000 files"
           : file_bytes <= PACKED_FILE_BYTES_MAX ? "has files of not more than 1 MiB"
           : file_bytes > DIGESTED_BYTES_MAX     ? "has files of more than 1024 TiB"
           : file_bytes > FILE_BYTES_MAX / files ? "has more than 8 EiB"
                                                 : NULL;
}

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

static int is_memory(int fd)
{
    uint64_t magic, free_bytes;
    int rc = sys_fs_magic(fd, &magic, &free_bytes);
    return rc < 0 ? rc : magic == TMPFS_MAGIC ? 0 : -ENOTSUP;
}

// The folder, locked: its descriptor. -EWOULDBLOCK: its job is alive; -ENOENT: it is gone.
static int open_locked(int shared_fd, const char *name)
{
    int fd = sys_openat(shared_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0);
    if (fd < 0)
        return fd;
    struct stat st;
    int rc = sys_flock(fd, LOCK_EX | LOCK_NB);
    if (rc == 0)
        rc = sys_fstat(fd, &st);
    if (rc == 0 && (st.st_nlink == 0 || st.st_uid != sys_euid()))
        rc = -ENOENT;
    if (rc == 0)
        return fd;
    (void)sys_close(fd); // a directory: a close tells nothing
    return rc;
}

static void remove_folder(int shared_fd, const char *name)
{
    int rc = path_remove_tree(shared_fd, name);
    (void)rc; // see the header
}

// What agents that were killed have left.
static void sweep(int shared_fd)
{
    struct dir_reader r;
    const char *name;
    size_t len;
    int fd = sys_openat(shared_fd, ".", O_RDONLY | O_DIRECTORY, 0);
    if (fd < 0 || dir_reader_init(&r, fd, DIR_READER_BYTES_MIN, 0) < 0)
        return;
    while (dir_reader_next(&r, &name, &len) > 0) {
        if (strncmp(name, PREFIX, strlen(PREFIX)) != 0 || (fd = open_locked(shared_fd, name)) < 0)
            continue;
        remove_folder(shared_fd, name);
        (void)sys_close(fd); // a directory: a close tells nothing
    }
    dir_reader_fini(&r);
}

// A new folder. Between its birth and its lock another agent may sweep it away: then one more.
static int make_folder(int shared_fd, struct memory_tree *t)
{
    enum { TRIES = 8 };
    int fd = -ENOENT;
    for (int i = 0; i < TRIES && (fd == -ENOENT || fd == -EWOULDBLOCK); i++) {
        uint64_t number;
        int rc = sys_random(&number, sizeof number);
        snprintf(t->path, sizeof t->path, SHARED "/" PREFIX "%016llx", (unsigned long long)number);
        if (rc == 0)
            rc = sys_mkdirat(shared_fd, t->path + sizeof SHARED, 0700);
        fd = rc < 0 ? rc : open_locked(shared_fd, t->path + sizeof SHARED);
    }
    return fd;
}

int memory_tree_make(uint32_t files, uint64_t file_bytes, struct memory_tree *out)
{
    *out = (struct memory_tree){.path = ""};
    int shared_fd = sys_openat(AT_FDCWD, SHARED, O_RDONLY | O_DIRECTORY, 0);
    if (shared_fd < 0)
        return shared_fd;
    int rc = is_memory(shared_fd);
    if (rc == 0) {
        sweep(shared_fd);
        rc = out->lock_fd = make_folder(shared_fd, out);
    }
    (void)sys_close(shared_fd); // a directory: a close tells nothing
    if (rc < 0) {
        out->path[0] = '\0';
        return rc;
    }
    rc = 0;
    for (uint32_t i = 0; i < files && rc == 0; i++)
        rc = make_file(out->lock_fd, i, file_bytes);
    if (rc < 0)
        memory_tree_remove(out);
    return rc;
}

void memory_tree_remove(struct memory_tree *t)
{
    if (t->path[0] == '\0')
        return;
    int shared_fd = sys_openat(AT_FDCWD, SHARED, O_RDONLY | O_DIRECTORY, 0);
    if (shared_fd >= 0) {
        remove_folder(shared_fd, t->path + sizeof SHARED);
        (void)sys_close(shared_fd); // a directory: a close tells nothing
    }
    (void)sys_close(t->lock_fd);
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
        struct stamp stamp = {.offset = htole64(offset + at), .file = file};
        memcpy(to + at, &stamp, sizeof stamp);
    }
}

int memory_check(const void *buf, size_t len, uint64_t file, uint64_t offset)
{
    const uint8_t *from = buf;
    for (size_t at = 0; at + sizeof(struct stamp) <= len; at += BLOCK_BYTES) {
        struct stamp stamp;
        memcpy(&stamp, from + at, sizeof stamp);
        if (stamp.offset != htole64(offset + at) || stamp.file != file)
            return -EBADMSG;
    }
    return 0;
}
