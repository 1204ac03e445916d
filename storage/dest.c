#include "storage/dest_inner.h"

#include <errno.h>
#include <string.h>

#include "storage/dir_reader.h"

// Openings that may begin anew because an ending job removed `.penstock/` in between. More often it is a file
// system that does not keep inode numbers.
enum { OPEN_TRIES = 100 };

static const char state_name[] = ".penstock";
static const char lock_name[] = "lock";

static void close_if_open(int *fd)
{
    if (*fd >= 0)
        sys_close(*fd);
    *fd = -1;
}

// Makes the directory beneath dir_fd unless it is there and opens it; a link or a file in its place is
// refused.
static int open_own_dir(int dir_fd, const char *name)
{
    int err = sys_mkdirat(dir_fd, name, 0700);
    if (err < 0 && err != -EEXIST)
        return err;
    return path_open(dir_fd, name, strlen(name), O_RDONLY | O_DIRECTORY, 0);
}

static bool same_inode(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

// Whether `name` beneath dir_fd is the open file `fd`: 1, 0 or a negative errno.
static int names_open_file(int dir_fd, const char *name, int fd)
{
    struct stat named, open;
    int err = sys_fstatat(dir_fd, name, &named, AT_SYMLINK_NOFOLLOW);
    if (err == -ENOENT)
        return 0;
    if (err == 0)
        err = sys_fstat(fd, &open);
    return err < 0 ? err : same_inode(&named, &open);
}

static int open_lock_file(int state_fd)
{
    struct stat st;
    return path_open_own(state_fd, lock_name, O_RDWR | O_CREAT, &st);
}

static int read_state(int state_fd, struct dir_reader *out)
{
    int fd = path_open(state_fd, "", 0, O_RDONLY | O_DIRECTORY, 0); // a reading position of its own
    return fd < 0 ? fd : dir_reader_init(out, fd, DIR_READER_BYTES_MIN, 0);
}

// What lies in `.penstock/` goes when a job has ended: a directory of that name with anything else in it is
// somebody else's. -ENOTUNIQ.
static int check_ours(int state_fd)
{
    static const char *const ours[] = {"lock", "temp", "journal", "journal.new", "directories", BESIDE_LIST};
    struct dir_reader reader;
    int err = read_state(state_fd, &reader);
    if (err < 0)
        return err;
    const char *name;
    size_t len;
    while ((err = dir_reader_next(&reader, &name, &len)) > 0) {
        size_t i = 0;
        while (i < ARRAY_LEN(ours) && strcmp(name, ours[i]) != 0)
            i++;
        if (i == ARRAY_LEN(ours)) {
            err = -ENOTUNIQ;
            break;
        }
    }
    dir_reader_fini(&reader);
    return err;
}

// Opens `.penstock/` and takes the lock in it. 1: locked; 0: what was locked is no longer what the path
// names, to be tried again: a job that ended has removed it while we came.
static int lock_once(struct dest *d, uint64_t deadline_ns, struct dest_lock_info *holder)
{
    d->state_fd = open_own_dir(d->fd, state_name);
    if (d->state_fd < 0)
        return d->state_fd == -ENOENT ? 0 : d->state_fd;
    int ours = check_ours(d->state_fd);
    if (ours < 0)
        return ours == -ENOENT ? 0 : ours;
    d->lock_fd = open_lock_file(d->state_fd);
    if (d->lock_fd < 0)
        return d->lock_fd == -ENOENT ? 0 : d->lock_fd;
    int err = dest_lock_take(&d->lock_fd, deadline_ns, holder);
    if (err < 0)
        return err;
    int same = names_open_file(d->fd, state_name, d->state_fd);
    return same <= 0 ? same : names_open_file(d->state_fd, lock_name, d->lock_fd);
}

static int lock_root(struct dest *d, uint32_t wait_ms, struct dest_lock_info *holder)
{
    uint64_t deadline_ns = wait_ms > 0 ? sys_clock_ns() + (uint64_t)wait_ms * 1000000 : 0;
    for (int tries = 0; tries < OPEN_TRIES; tries++) {
        int locked = lock_once(d, deadline_ns, holder);
        if (locked != 0)
            return locked < 0 ? locked : 0;
        close_if_open(&d->lock_fd);
        close_if_open(&d->state_fd);
    }
    return -ESTALE;
}

static int examine_root(struct dest *d)
{
    struct stat st;
    int err = sys_fstat(d->fd, &st);
    if (err < 0)
        return err;
    d->dev = st.st_dev;
    err = sys_mount_id(d->fd, &d->mount);
    if (err < 0)
        return err;
    d->can_chown = sys_euid() == 0;
    d->mounts = dest_mounts_new();
    return d->mounts != NULL ? 0 : -ENOMEM;
}

// What only the holder of the lock may do: an ending job removes everything but the lock, so nothing else is
// made or opened before. Adopted directories are synced too: the run that made them may have been cut off
// before it came to that.
static int settle(struct dest *d, const struct dest_lock_info *mine)
{
    int err = dest_lock_write(d->lock_fd, mine);
    if (err < 0)
        return err;
    d->temp_fd = open_own_dir(d->state_fd, "temp");
    if (d->temp_fd < 0)
        return d->temp_fd;
    err = dest_beside_begin(d);
    if (err < 0)
        return err;
    uint64_t mount;
    err = sys_mount_id(d->temp_fd, &mount);
    if (err == 0 && mount != d->mount)
        err = -EXDEV; // nothing could be published from there
    if (err == 0)
        err = sys_fsync(d->state_fd);
    return err < 0 ? err : sys_fsync(d->fd);
}

// Closes all but the root and gives the lock free.
static void close_state(struct dest *d)
{
    close_if_open(&d->temp_fd);
    if (d->lock_fd >= 0)
        dest_lock_release(d->lock_fd);
    d->lock_fd = -1;
    close_if_open(&d->state_fd);
    dest_mounts_free(d->mounts);
    d->mounts = NULL;
}

int dest_open(int root_fd, const struct dest_lock_info *mine, uint32_t wait_ms, struct dest *out,
              struct dest_lock_info *holder)
{
    struct dest d = {.fd = root_fd, .state_fd = -1, .temp_fd = -1, .lock_fd = -1};
    struct dest_lock_info other = {0};
    int err = examine_root(&d);
    if (err == 0)
        err = lock_root(&d, wait_ms, &other);
    if (err == -EWOULDBLOCK)
        *holder = other;
    if (err == 0)
        err = settle(&d, mine);
    if (err < 0) {
        close_state(&d);
        sys_close(root_fd);
        return err;
    }
    *out = d;
    return 0;
}

// Removes what lies in `.penstock/`, the lock apart; goes on after an error and returns the first. A reading
// that removed something is repeated: some file systems pass over names while others are removed.
static int remove_contents(struct dir_reader *r)
{
    int first_error = 0;
    bool removed = false;
    for (;;) {
        const char *name;
        size_t len;
        int more = dir_reader_next(r, &name, &len);
        if (more == 0 && removed && first_error == 0) {
            removed = false;
            more = dir_reader_rewind(r);
            if (more == 0)
                continue;
        }
        if (more <= 0)
            return first_error < 0 ? first_error : more;
        if (strcmp(name, lock_name) == 0)
            continue;
        int err = path_remove_tree(r->fd, name);
        removed |= err == 0;
        if (first_error == 0)
            first_error = err;
    }
}

// Removes everything in `.penstock/` under the lock, the lock file last.
static int empty_state(const struct dest *d)
{
    struct dir_reader reader;
    int err = read_state(d->state_fd, &reader);
    if (err < 0)
        return err;
    err = remove_contents(&reader);
    dir_reader_fini(&reader);
    return err < 0 ? err : sys_unlinkat(d->state_fd, lock_name, 0);
}

int dest_close(struct dest *d, bool finished)
{
    int swept = finished ? dest_sweep(d, NULL, NULL) : 0;
    int err = finished ? empty_state(d) : 0;
    close_state(d);
    if (finished && err == 0) {
        // Only an empty directory goes: whoever came since the lock file was removed has made another in it,
        // keeps the directory and the lock; whoever opened the directory but made none yet finds it gone and
        // begins anew.
        err = sys_unlinkat(d->fd, state_name, AT_REMOVEDIR);
        if (err == -ENOTEMPTY || err == -EEXIST || err == -ENOENT)
            err = 0;
    }
    close_if_open(&d->fd);
    return err < 0 ? err : swept;
}
