// Directories beneath the root that lie on another mount: which they are, what is synced for them, and the
// names of temporary files in them.
#include "storage/dest_inner.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MOUNT_SLOTS = 256,
    NOTED_SLOTS = 1024,
    PREFIX_BYTES = 19, // ".penstock-", the number, "-"
};
_Static_assert(PREFIX_BYTES + 33 <= TEMP_NAME_BYTES, "a name beside a target fits");

// Direct-mapped; a slot is the hash of a directory's path with the answer in bit 0, bit 1 set in every one
// that is used.
struct dest_mounts {
    _Atomic uint64_t slots[MOUNT_SLOTS];
    char prefix[PREFIX_BYTES + 1];
    bool numbered;        // the list has the number of the prefix
    pthread_mutex_t lock; // over all below
    // `.penstock/beside`: the number in the prefix, then paths of directories, each ended by a zero. -1: not
    // opened yet.
    int noted_fd;
    uint64_t noted_end;
    uint64_t noted[NOTED_SLOTS]; // keys of directories that are in it; lossy, what is not here is noted again
    // File systems beneath the root that are not the root's.
    struct other_fs {
        uint64_t dev;
        int fd; // a directory on it
    } * others;
    uint32_t other_count;
    // The kernel tells a lost write once for each open file, and several threads sync by the same ones:
    // whoever comes second must learn of it too.
    pthread_mutex_t sync_lock;
    int sync_failed;
};

struct dest_mounts *dest_mounts_new(void)
{
    struct dest_mounts *m = calloc(1, sizeof(*m));
    if (m == NULL)
        return NULL;
    pthread_mutex_init(&m->lock, NULL);
    pthread_mutex_init(&m->sync_lock, NULL);
    m->noted_fd = -1;
    return m;
}

void dest_mounts_free(struct dest_mounts *m)
{
    if (m == NULL)
        return;
    for (uint32_t i = 0; i < m->other_count; i++)
        sys_close(m->others[i].fd);
    if (m->noted_fd >= 0)
        sys_close(m->noted_fd); // what it says of a directory without leftovers is nothing
    free(m->others);
    pthread_mutex_destroy(&m->sync_lock);
    pthread_mutex_destroy(&m->lock);
    free(m);
}

static uint64_t parent_key(const struct entry *e)
{
    const uint8_t *slash = memrchr(e->path, '/', e->path_len);
    return (digest_check64(e->path, slash != NULL ? (size_t)(slash - e->path) : 0) & ~UINT64_C(1)) | 2;
}

static _Atomic uint64_t *parent_slot(const struct dest *d, uint64_t key)
{
    return &d->mounts->slots[(key >> 2) % MOUNT_SLOTS];
}

bool dest_mounts_ask(const struct dest *d, const struct entry *e, bool *beside)
{
    uint64_t key = parent_key(e);
    uint64_t slot = atomic_load_explicit(parent_slot(d, key), memory_order_relaxed);
    if ((slot & ~UINT64_C(1)) != key)
        return false;
    *beside = slot & 1;
    return true;
}

void dest_mounts_tell(const struct dest *d, const struct entry *e, bool beside)
{
    uint64_t key = parent_key(e);
    atomic_store_explicit(parent_slot(d, key), key | beside, memory_order_relaxed);
}

// ---- names beside targets ----

const char *dest_beside_prefix(const struct dest *d)
{
    return d->mounts->prefix;
}

void dest_beside_name(const struct dest *d, const struct entry *e, char out[TEMP_NAME_BYTES])
{
    char name[TEMP_NAME_BYTES];
    dest_temp_name(e, name);
    memcpy(out, d->mounts->prefix, PREFIX_BYTES);
    memcpy(out + PREFIX_BYTES, name, 33);
}

int dest_beside_begin(struct dest *d)
{
    struct dest_mounts *m = d->mounts;
    char number[BESIDE_NUMBER_BYTES + 1] = {0};
    struct stat st;
    int fd = path_open_own(d->state_fd, BESIDE_LIST, O_RDONLY, &st);
    if (fd >= 0) {
        ssize_t got = sys_pread_full(fd, number, sizeof(number), 0);
        sys_close(fd);
        m->numbered = got == sizeof(number) && strlen(number) == BESIDE_NUMBER_BYTES &&
                      strspn(number, "0123456789abcdef") == BESIDE_NUMBER_BYTES;
    }
    if (!m->numbered) {
        uint32_t drawn;
        int err = sys_random(&drawn, sizeof(drawn));
        if (err < 0)
            return err;
        snprintf(number, sizeof(number), "%08x", (unsigned)drawn);
    }
    snprintf(m->prefix, sizeof(m->prefix), ".penstock-%s-", number);
    return 0;
}

// Stands in the list, on stable storage, before a file has a name with it.
static int write_number(const struct dest *d)
{
    struct dest_mounts *m = d->mounts;
    char number[BESIDE_NUMBER_BYTES + 1] = {0};
    memcpy(number, m->prefix + strlen(".penstock-"), BESIDE_NUMBER_BYTES);
    int err = sys_ftruncate(m->noted_fd, 0);
    if (err == 0)
        err = sys_pwrite_full(m->noted_fd, number, sizeof(number), 0);
    if (err == 0)
        err = sys_fsync(m->noted_fd);
    if (err == 0)
        err = sys_fsync(d->state_fd);
    m->noted_end = sizeof(number);
    m->numbered = err == 0;
    return err;
}

static int open_noted(const struct dest *d)
{
    struct dest_mounts *m = d->mounts;
    struct stat st;
    int fd = path_open_own(d->state_fd, BESIDE_LIST, O_WRONLY | O_CREAT, &st);
    if (fd < 0)
        return fd;
    m->noted_fd = fd;
    m->noted_end = (uint64_t)st.st_size;
    int err = m->numbered ? 0 : write_number(d);
    if (err == 0)
        return 0;
    sys_close(fd);
    m->noted_fd = -1;
    return err;
}

// Behind what an earlier run may have left cut off stands a zero of its own.
static int append_noted(struct dest_mounts *m, const struct entry *e, size_t len)
{
    uint8_t line[PATH_BYTES_MAX + 2] = {0};
    if (len > PATH_BYTES_MAX)
        return -ENAMETOOLONG;
    memcpy(line + 1, e->path, len);
    int err = sys_pwrite_full(m->noted_fd, line, len + 2, m->noted_end);
    if (err == 0)
        m->noted_end += len + 2;
    return err;
}

int dest_beside_note(const struct dest *d, const struct entry *e)
{
    struct dest_mounts *m = d->mounts;
    uint64_t key = parent_key(e);
    const uint8_t *slash = memrchr(e->path, '/', e->path_len);
    pthread_mutex_lock(&m->lock);
    uint64_t *slot = &m->noted[(key >> 2) % NOTED_SLOTS];
    int err = *slot != key && m->noted_fd < 0 ? open_noted(d) : 0;
    if (err == 0 && *slot != key)
        err = append_noted(m, e, slash != NULL ? (size_t)(slash - e->path) : 0);
    if (err == 0)
        *slot = key;
    pthread_mutex_unlock(&m->lock);
    return err;
}

static bool is_noted(const struct dest_mounts *m, uint64_t dev)
{
    for (uint32_t i = 0; i < m->other_count; i++)
        if (m->others[i].dev == dev)
            return true;
    return false;
}

static int add_other(struct dest_mounts *m, uint64_t dev, int dir_fd)
{
    struct other_fs *others = reallocarray(m->others, m->other_count + 1, sizeof(*others));
    if (others == NULL)
        return -ENOMEM;
    m->others = others;
    int fd = sys_openat(dir_fd, ".", O_RDONLY | O_DIRECTORY, 0);
    if (fd < 0)
        return fd;
    others[m->other_count++] = (struct other_fs){.dev = dev, .fd = fd};
    return 0;
}

int dest_mounts_note(const struct dest *d, uint64_t dev, int dir_fd)
{
    struct dest_mounts *m = d->mounts;
    if (dev == d->dev)
        return 0;
    pthread_mutex_lock(&m->lock);
    int err = is_noted(m, dev) ? 0 : add_other(m, dev, dir_fd);
    pthread_mutex_unlock(&m->lock);
    return err;
}

// The i-th of the others, or -1. Once noted it stays open.
int dest_mounts_find(const struct dest *d, int dir_fd, bool *beside)
{
    struct stat st;
    uint64_t mount;
    int err = sys_fstat(dir_fd, &st);
    if (err == 0)
        err = dest_mounts_note(d, st.st_dev, dir_fd);
    if (err == 0)
        err = sys_mount_id(dir_fd, &mount);
    if (err == 0)
        *beside = mount != d->mount;
    return err;
}

static int other_at(struct dest_mounts *m, uint32_t i)
{
    pthread_mutex_lock(&m->lock);
    int fd = i < m->other_count ? m->others[i].fd : -1;
    pthread_mutex_unlock(&m->lock);
    return fd;
}

int dest_sync(const struct dest *d)
{
    struct dest_mounts *m = d->mounts;
    pthread_mutex_lock(&m->sync_lock);
    int err = m->sync_failed, fd;
    if (err == 0)
        err = sys_syncfs(d->fd);
    for (uint32_t i = 0; err == 0 && (fd = other_at(m, i)) >= 0; i++)
        err = sys_syncfs(fd);
    m->sync_failed = err;
    pthread_mutex_unlock(&m->sync_lock);
    return err;
}
