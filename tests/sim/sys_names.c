// storage/sys.h on the simulated file system: names.
#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "storage/sys.h"
#include "tests/sim/sys_inner.h"
#include "tests/sim/watch.h"
#include "tests/sim/world.h"

enum { LINKS_MAX = 40 };

// ---- finding ----

struct inode *dir_of(int dir_fd)
{
    if (dir_fd == AT_FDCWD)
        return fs_root(process_host(process_current())->fs);
    return file_of(dir_fd)->inode;
}

bool may(const struct inode *i, int what)
{
    uid_t uid = sys_euid();
    if (uid == 0)
        return true;
    unsigned shift = uid == i->seen.uid ? 6 : 0;
    return ((i->seen.mode >> shift) & (unsigned)what) == (unsigned)what;
}

static int step(struct inode **at, const char *name, struct inode **found)
{
    if (!S_ISDIR((*at)->seen.mode))
        return -ENOTDIR;
    if (!may(*at, MAY_SEARCH))
        return -EACCES;
    if (strcmp(name, ".") == 0)
        *found = *at;
    else if (strcmp(name, "..") == 0)
        *found = (*at)->parent;
    else
        *found = fs_find(*at, name);
    return 0;
}

static int walk_on(struct inode *start, const char *path, int follow, unsigned links, struct inode **dir,
                   char *name, struct inode **out)
{
    struct inode *at = path[0] == '/' ? fs_root(start->fs) : start;
    path += strspn(path, "/");
    *dir = *out = at;
    name[0] = '\0';
    while (*path != '\0') {
        size_t len = strcspn(path, "/");
        if (len > NAME_BYTES_MAX)
            return -ENAMETOOLONG;
        memcpy(name, path, len);
        name[len] = '\0';
        path += len;
        path += strspn(path, "/");
        struct inode *found;
        int rc = step(&at, name, &found);
        if (rc < 0)
            return rc;
        *dir = at;
        *out = found;
        bool last = *path == '\0';
        if (found == NULL)
            return last ? 0 : -ENOENT;
        if (S_ISLNK(found->seen.mode) && (!last || follow != 0)) {
            if ((follow & FOLLOW_NONE) || ++links > LINKS_MAX)
                return -ELOOP;
            struct inode *way;
            char text[NAME_BYTES_MAX + 1];
            rc = walk_on(at, found->target, FOLLOW_LAST, links, &way, text, &found);
            if (rc < 0)
                return rc;
            *out = found;
            if (found == NULL)
                return -ENOENT;
        }
        at = found;
    }
    return 0;
}

int walk_path(struct inode *start, const char *path, int follow, struct inode **dir, char *name,
              struct inode **out)
{
    if (strlen(path) >= PATH_MAX)
        return -ENAMETOOLONG;
    if (path[0] == '\0')
        return -ENOENT;
    return walk_on(start, path, follow, 0, dir, name, out);
}

// ---- opening ----

static int make(struct inode *dir, const char *name, mode_t mode, struct inode **out)
{
    if (!may(dir, MAY_WRITE | MAY_SEARCH))
        return -EACCES;
    int rc = fs_create(dir, name, mode, out);
    if (rc == 0)
        (*out)->seen.uid = (*out)->kept.uid = (*out)->seen.gid = (*out)->kept.gid = sys_euid();
    return rc;
}

// Whether this open of what is there is allowed.
static int check_open(const struct inode *i, int flags)
{
    int way = flags & O_ACCMODE;
    if ((flags & O_NOFOLLOW) && S_ISLNK(i->seen.mode))
        return flags & O_DIRECTORY ? -ENOTDIR : -ELOOP;
    if ((flags & O_DIRECTORY) && !S_ISDIR(i->seen.mode))
        return -ENOTDIR;
    if (flags & O_PATH)
        return 0;
    if (S_ISDIR(i->seen.mode) && (way != O_RDONLY || (flags & O_CREAT)))
        return -EISDIR;
    if (way != O_WRONLY && !may(i, MAY_READ))
        return -EACCES;
    if (way != O_RDONLY && !may(i, MAY_WRITE))
        return -EACCES;
    if ((flags & O_NOATIME) && sys_euid() != 0 && sys_euid() != i->seen.uid)
        return -EPERM;
    if ((flags & O_DIRECT) && process_host(process_current())->direct_align == 0)
        return -EINVAL;
    return 0;
}

static int open_at(struct inode *start, const char *path, int flags, int follow, mode_t mode)
{
    struct inode *dir, *found;
    char name[NAME_BYTES_MAX + 1];
    int rc = walk_path(start, path, follow, &dir, name, &found);
    if (rc < 0)
        return rc;
    if (found == NULL && !(flags & O_CREAT))
        return -ENOENT;
    if (found != NULL && (flags & O_CREAT) && (flags & O_EXCL))
        return -EEXIST;
    bool fresh = found == NULL;
    if (fresh)
        watch_create(dir, name);
    rc = fresh ? make(dir, name, S_IFREG | (mode & 0777), &found) : check_open(found, flags);
    if (rc < 0)
        return rc;
    if (!fresh && (flags & O_TRUNC))
        (void)fs_truncate(found, 0);
    return file_open(found, flags);
}

int sys_openat(int dir_fd, const char *path, int flags, mode_t mode)
{
    int rc = sys_begin("open");
    int follow = (flags & O_NOFOLLOW) || (flags & O_EXCL) ? 0 : FOLLOW_LAST;
    rc = rc < 0 ? rc : open_at(dir_of(dir_fd), path, flags, follow, mode);
    world_trace("open %s = %d", path, rc);
    return rc;
}

int sys_open_beneath(int dir_fd, const char *path, int flags, mode_t mode)
{
    int rc = sys_begin("open");
    if (rc == 0 && !process_host(process_current())->knows_openat2)
        return -ENOSYS;
    bool link_itself = (flags & O_PATH) && (flags & O_NOFOLLOW);
    rc = rc < 0 ? rc : open_at(dir_of(dir_fd), path, flags, link_itself ? 0 : FOLLOW_NONE, mode);
    world_trace("open beneath %s = %d", path, rc);
    return rc;
}

// ---- looking ----

static void fill_stat(const struct inode *i, struct stat *st)
{
    *st = (struct stat){.st_dev = fs_device(i->fs),
                        .st_ino = i->number,
                        .st_mode = i->seen.mode,
                        .st_nlink = i->links,
                        .st_uid = i->seen.uid,
                        .st_gid = i->seen.gid,
                        .st_size = (off_t)i->seen.size,
                        .st_blksize = BLOCK_BYTES,
                        .st_blocks = (blkcnt_t)(fs_used_blocks(i) * (BLOCK_BYTES / 512)),
                        .st_mtim = i->seen.mtime,
                        .st_ctim = i->ctime};
}

int sys_fstat(int fd, struct stat *st)
{
    const struct open_file *f = file_of(fd);
    int rc = sys_begin("fstat");
    if (rc == 0)
        fill_stat(f->inode, st);
    return rc;
}

// What the name beneath dir_fd stands for, not followed.
static int named(int dir_fd, const char *path, struct inode **dir, char *name, struct inode **out)
{
    int rc = walk_path(dir_of(dir_fd), path, 0, dir, name, out);
    return rc == 0 && *out == NULL ? -ENOENT : rc;
}

int sys_fstatat(int dir_fd, const char *path, struct stat *st, int flags)
{
    struct inode *dir, *i;
    char name[NAME_BYTES_MAX + 1];
    assert(flags == AT_SYMLINK_NOFOLLOW);
    int rc = sys_begin("stat");
    rc = rc < 0 ? rc : named(dir_fd, path, &dir, name, &i);
    if (rc == 0)
        fill_stat(i, st);
    return rc;
}

// The path of an open directory, as /proc tells it.
static ssize_t own_path(int fd, void *buf, size_t len)
{
    const struct inode *i = file_of(fd)->inode;
    char path[PATH_MAX] = "";
    while (i->parent != i) {
        const struct names *n = &i->parent->names;
        char longer[PATH_MAX];
        size_t k = 0;
        while (k < n->count && n->list[k].inode != i)
            k++;
        snprintf(longer, sizeof longer, "/%.255s%.3000s", k < n->count ? n->list[k].text : "?", path);
        memcpy(path, longer, sizeof path);
        i = i->parent;
    }
    size_t n = u64_min(strlen(path), len);
    memcpy(buf, path, n);
    return (ssize_t)n;
}

ssize_t sys_readlinkat(int dir_fd, const char *path, void *buf, size_t len)
{
    struct inode *dir, *i;
    char name[NAME_BYTES_MAX + 1];
    int fd;
    int rc = sys_begin("readlink");
    if (rc < 0)
        return rc;
    if (sscanf(path, "/proc/self/fd/%d", &fd) == 1)
        return own_path(fd, buf, len);
    rc = named(dir_fd, path, &dir, name, &i);
    if (rc < 0)
        return rc;
    if (!S_ISLNK(i->seen.mode))
        return -EINVAL;
    size_t n = u64_min(strlen(i->target), len);
    memcpy(buf, i->target, n);
    return (ssize_t)n;
}

static size_t put_dirent(uint8_t *at, size_t room, const char *name, const struct inode *i, uint64_t cookie)
{
    size_t len = u64_align_up(offsetof(struct dirent64, d_name) + strlen(name) + 1, 8);
    if (len > room)
        return 0;
    struct dirent64 d = {
        .d_ino = i->number, .d_off = (off64_t)cookie, .d_reclen = (unsigned short)len, .d_type = DT_UNKNOWN};
    memset(at, 0, len);
    memcpy(at, &d, offsetof(struct dirent64, d_name));
    memcpy(at + offsetof(struct dirent64, d_name), name, strlen(name) + 1);
    return len;
}

ssize_t sys_getdents(int fd, void *buf, size_t len)
{
    struct open_file *f = file_of(fd);
    const struct inode *dir = f->inode;
    int rc = sys_begin("getdents");
    if (rc < 0)
        return rc;
    if (dir->links == 0)
        return -ENOENT;
    size_t done = 0;
    for (uint64_t dots = f->position; dots < 2; dots++, f->position++)
        done += put_dirent((uint8_t *)buf + done, len - done, dots == 0 ? "." : "..", dir, dots + 1);
    for (size_t i = 0; i < dir->names.count; i++) {
        const struct name *n = &dir->names.list[i];
        if (n->cookie < f->position)
            continue;
        size_t put = put_dirent((uint8_t *)buf + done, len - done, n->text, n->inode, n->cookie + 1);
        if (put == 0)
            return done > 0 ? (ssize_t)done : -EINVAL;
        done += put;
        f->position = n->cookie + 1;
    }
    return (ssize_t)done;
}

// ---- changing ----

int sys_mkdirat(int dir_fd, const char *path, mode_t mode)
{
    struct inode *dir, *i;
    char name[NAME_BYTES_MAX + 1];
    int rc = sys_begin("mkdir");
    if (rc == 0)
        rc = walk_path(dir_of(dir_fd), path, 0, &dir, name, &i);
    return rc < 0 ? rc : i != NULL ? -EEXIST : make(dir, name, S_IFDIR | (mode & 0777), &i);
}

int sys_unlinkat(int dir_fd, const char *path, int flags)
{
    struct inode *dir, *i;
    char name[NAME_BYTES_MAX + 1];
    int rc = sys_begin("unlink");
    if (rc == 0)
        rc = named(dir_fd, path, &dir, name, &i);
    if (rc == 0 && !may(dir, MAY_WRITE | MAY_SEARCH))
        rc = -EACCES;
    rc = rc < 0 ? rc : fs_remove(dir, name, flags == AT_REMOVEDIR);
    world_trace("unlink %s = %d", path, rc);
    return rc;
}

int sys_renameat(int old_dir, const char *old_path, int new_dir, const char *new_path)
{
    struct inode *from, *to, *i, *there;
    char old_name[NAME_BYTES_MAX + 1], new_name[NAME_BYTES_MAX + 1];
    int rc = sys_begin("rename");
    if (rc == 0)
        rc = named(old_dir, old_path, &from, old_name, &i);
    if (rc == 0)
        rc = walk_path(dir_of(new_dir), new_path, 0, &to, new_name, &there);
    if (rc == 0 && (!may(from, MAY_WRITE | MAY_SEARCH) || !may(to, MAY_WRITE | MAY_SEARCH)))
        rc = -EACCES;
    if (rc == 0)
        watch_rename(i, from, to);
    rc = rc < 0 ? rc : fs_rename(from, old_name, to, new_name);
    world_trace("rename %s -> %s = %d", old_path, new_path, rc);
    return rc;
}

int sys_symlinkat(const char *target, int dir_fd, const char *path)
{
    struct inode *dir, *i;
    char name[NAME_BYTES_MAX + 1];
    int rc = sys_begin("symlink");
    if (rc == 0)
        rc = walk_path(dir_of(dir_fd), path, 0, &dir, name, &i);
    if (rc == 0)
        rc = i != NULL ? -EEXIST : make(dir, name, S_IFLNK | 0777, &i);
    return rc < 0 ? rc : fs_set_target(i, target);
}

// ---- attributes ----

static int may_change(const struct inode *i)
{
    return sys_euid() == 0 || sys_euid() == i->seen.uid ? 0 : -EPERM;
}

static void set_owner(struct inode *i, uid_t uid, gid_t gid)
{
    i->seen.uid = uid;
    i->seen.gid = gid;
    if (S_ISREG(i->seen.mode))
        i->seen.mode &= ~(mode_t)(S_ISUID | S_ISGID);
    i->ctime = fs_now();
}

static void set_times(struct inode *i, const struct timespec times[2])
{
    if (times[1].tv_nsec != UTIME_OMIT)
        i->seen.mtime = times[1];
    i->ctime = fs_now();
}

int sys_fchmod(int fd, mode_t mode)
{
    struct open_file *f = file_of(fd);
    int rc = sys_begin("fchmod");
    rc = rc < 0 ? rc : f->flags & O_PATH ? -EBADF : may_change(f->inode);
    if (rc == 0) {
        f->inode->seen.mode = (f->inode->seen.mode & S_IFMT) | (mode & 07777);
        f->inode->ctime = fs_now();
    }
    return rc;
}

int sys_fchown(int fd, uid_t uid, gid_t gid)
{
    struct open_file *f = file_of(fd);
    int rc = sys_begin("fchown");
    rc = rc < 0 ? rc : may_change(f->inode);
    if (rc == 0)
        set_owner(f->inode, uid, gid);
    return rc;
}

int sys_fchownat(int dir_fd, const char *path, uid_t uid, gid_t gid)
{
    struct inode *dir, *i;
    char name[NAME_BYTES_MAX + 1];
    int rc = sys_begin("fchownat");
    rc = rc < 0 ? rc : named(dir_fd, path, &dir, name, &i);
    rc = rc < 0 ? rc : may_change(i);
    if (rc == 0)
        set_owner(i, uid, gid);
    return rc;
}

int sys_futimens(int fd, const struct timespec times[2])
{
    struct open_file *f = file_of(fd);
    int rc = sys_begin("futimens");
    rc = rc < 0 ? rc : may_change(f->inode);
    if (rc == 0)
        set_times(f->inode, times);
    return rc;
}

int sys_utimensat(int dir_fd, const char *path, const struct timespec times[2])
{
    struct inode *dir, *i;
    char name[NAME_BYTES_MAX + 1];
    int rc = sys_begin("utimensat");
    rc = rc < 0 ? rc : named(dir_fd, path, &dir, name, &i);
    rc = rc < 0 ? rc : may_change(i);
    if (rc == 0)
        set_times(i, times);
    return rc;
}
