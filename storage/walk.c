#include "storage/walk.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "storage/data_map.h"
#include "storage/dir_chain.h"
#include "storage/path.h"

enum {
    AVOIDED_MAX = 8,
    BLOCKS_UNIT_BYTES = 512, // of st_blocks
    NOTHING = -1,            // beside the walk_results: nothing to be said, the walk goes on
};

struct avoided {
    uint64_t dev, inode;
};

struct walk {
    const struct walk_source *sources;
    uint32_t source_count;
    uint32_t begun; // sources that were begun; the last of them is being walked while the chain is not empty
    struct dir_chain chain;
    struct data_map map;
    struct avoided avoided[AVOIDED_MAX];
    uint32_t avoided_count;
    size_t dir_len; // path[0..dir_len) is the directory being read
    uint8_t path[PATH_BYTES_MAX + 1 + NAME_BYTES_MAX];
    char target[TARGET_BYTES_MAX + 1];
};

// A name that was found and is being looked at.
struct found {
    int dir_fd;
    const char *name; // in dir_fd
    size_t name_len;
    size_t path_len; // its destination path is walk.path[0..path_len)
    bool top;        // it is what a source names
    struct stat st;
    struct entry *out;
    struct err *problem;
};

struct walk *walk_new(const struct walk_source *sources, uint32_t count)
{
    struct walk *w = calloc(1, sizeof(*w));
    if (w == NULL)
        return NULL;
    w->sources = sources;
    w->source_count = count;
    dir_chain_init(&w->chain, -1);
    return w;
}

void walk_free(struct walk *w)
{
    if (w == NULL)
        return;
    dir_chain_fini(&w->chain);
    data_map_fini(&w->map);
    free(w);
}

void walk_avoid(struct walk *w, uint64_t dev, uint64_t inode)
{
    assert(w->avoided_count < AVOIDED_MAX);
    w->avoided[w->avoided_count++] = (struct avoided){.dev = dev, .inode = inode};
}

static bool is_avoided(const struct walk *w, const struct stat *st)
{
    for (uint32_t i = 0; i < w->avoided_count; i++)
        if (w->avoided[i].dev == st->st_dev && w->avoided[i].inode == st->st_ino)
            return true;
    return false;
}

static int refuse(const struct walk *w, struct found *f, enum err_class class, int os, const char *op,
                  const char *text)
{
    err_set(f->problem, class, os, op, w->path, f->path_len, "%s", text);
    return WALK_PROBLEM;
}

// A call on the name failed: what vanished since it was listed is passed over, unless the user named it.
static int refuse_failed(const struct walk *w, struct found *f, int rc, const char *op)
{
    if (rc == -ENOENT && !f->top)
        return NOTHING;
    return refuse(w, f, ERR_ENTRY, -rc, op, "");
}

static int refuse_changed(const struct walk *w, struct found *f, int rc, const char *op)
{
    return refuse(w, f, ERR_CHANGED, -rc, op, "became something else while it was looked at");
}

static struct entry_time entry_time(const struct timespec *t)
{
    return (struct entry_time){.s = t->tv_sec, .ns = (uint32_t)t->tv_nsec};
}

static int tell(struct walk *w, struct found *f, enum entry_type type)
{
    *f->out = (struct entry){
        .type = type,
        .root = (uint16_t)(w->begun - 1),
        .mode = f->st.st_mode & 07777,
        .uid = f->st.st_uid,
        .gid = f->st.st_gid,
        .size = type == ENTRY_FILE ? (uint64_t)f->st.st_size : 0,
        .mtime = entry_time(&f->st.st_mtim),
        .ctime = entry_time(&f->st.st_ctim),
        .inode = f->st.st_ino,
        .path = w->path,
        .path_len = (uint32_t)f->path_len,
    };
    return WALK_ENTRY;
}

// Checks the open directory and goes down into it; takes the descriptor over.
static int enter_dir(struct walk *w, struct found *f, int fd)
{
    int rc = sys_fstat(fd, &f->st);
    if (rc < 0) {
        sys_close(fd);
        return refuse_failed(w, f, rc, "stat");
    }
    if (is_avoided(w, &f->st)) {
        sys_close(fd);
        return refuse(w, f, ERR_ENTRY, 0, "walk", "the destination lies here: it is not copied into itself");
    }
    if (dir_chain_holds(&w->chain, f->st.st_dev, f->st.st_ino)) {
        sys_close(fd);
        return refuse(w, f, ERR_ENTRY, ELOOP, "walk", "a directory that lies in itself");
    }
    const char *name = f->top ? w->sources[w->begun - 1].from : f->name;
    rc = dir_chain_push(&w->chain, name, strlen(name), fd, &f->st);
    if (rc < 0)
        return refuse_failed(w, f, rc, "walk");
    w->dir_len = f->path_len;
    return tell(w, f, ENTRY_DIR);
}

static int take_dir(struct walk *w, struct found *f)
{
    int fd = sys_openat(f->dir_fd, f->name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK, 0);
    if (fd == -ENOTDIR || fd == -ELOOP)
        return refuse_changed(w, f, fd, "open");
    if (fd < 0)
        return refuse_failed(w, f, fd, "open");
    return enter_dir(w, f, fd);
}

// Finds where the data of the open file lies.
static int map_file(struct walk *w, struct found *f, int fd)
{
    int rc = sys_fstat(fd, &f->st); // another file may have taken the name
    if (rc < 0)
        return refuse_failed(w, f, rc, "stat");
    if (!S_ISREG(f->st.st_mode))
        return refuse_changed(w, f, 0, "open");
    bool sparse;
    rc = data_map_find(&w->map, fd, (uint64_t)f->st.st_size, &sparse);
    if (rc < 0)
        return refuse_failed(w, f, rc, "seek");
    tell(w, f, ENTRY_FILE);
    f->out->sparse = sparse;
    f->out->data = sparse ? w->map.data : NULL;
    f->out->data_count = sparse ? w->map.count : 0;
    return WALK_ENTRY;
}

static int take_file(struct walk *w, struct found *f)
{
    if (f->st.st_blocks >= f->st.st_size / BLOCKS_UNIT_BYTES + (f->st.st_size % BLOCKS_UNIT_BYTES != 0))
        return tell(w, f, ENTRY_FILE);
    int fd = sys_openat(f->dir_fd, f->name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK, 0);
    if (fd == -ELOOP || fd == -ENXIO)
        return refuse_changed(w, f, fd, "open");
    if (fd < 0)
        return refuse_failed(w, f, fd, "open");
    int said = map_file(w, f, fd);
    sys_close(fd);
    return said;
}

static int take_link(struct walk *w, struct found *f)
{
    ssize_t n = sys_readlinkat(f->dir_fd, f->name, w->target, sizeof(w->target));
    if (n == -EINVAL)
        return refuse_changed(w, f, -EINVAL, "readlink");
    if (n == 0 || n > TARGET_BYTES_MAX)
        n = n == 0 ? -EINVAL : -ENAMETOOLONG;
    if (n < 0)
        return refuse_failed(w, f, (int)n, "readlink");
    tell(w, f, ENTRY_SYMLINK);
    f->out->target = (const uint8_t *)w->target;
    f->out->target_len = (uint32_t)n;
    return WALK_ENTRY;
}

// Whether it has the name of what every destination root keeps for itself, which is never walked into:
// copied, it could come to lie over what another job keeps.
static bool is_reserved(const uint8_t *path, size_t len)
{
    const uint8_t *slash = memrchr(path, '/', len);
    size_t at = slash != NULL ? (size_t)(slash - path) + 1 : 0;
    return manifest_is_own(path + at, len - at);
}

static const char *odd_kind(mode_t mode)
{
    switch (mode & S_IFMT) {
    case S_IFIFO:
        return "a fifo is not copied";
    case S_IFSOCK:
        return "a socket is not copied";
    case S_IFCHR:
    case S_IFBLK:
        return "a device is not copied";
    default:
        return "this kind of file is not copied";
    }
}

static int look(struct walk *w, struct found *f)
{
    int rc = sys_fstatat(f->dir_fd, f->name, &f->st, AT_SYMLINK_NOFOLLOW);
    if (rc < 0)
        return refuse_failed(w, f, rc, "stat");
    bool is_dir = S_ISDIR(f->st.st_mode);
    if (is_reserved(w->path, f->path_len))
        return is_dir && !f->top ? NOTHING : refuse(w, f, ERR_ENTRY, 0, "walk", "the name is reserved");
    if (f->path_len == 0 && !is_dir)
        return refuse(w, f, ERR_ENTRY, ENOTDIR, "walk", "");
    if (is_dir)
        return take_dir(w, f);
    if (S_ISREG(f->st.st_mode))
        return take_file(w, f);
    if (S_ISLNK(f->st.st_mode))
        return take_link(w, f);
    return refuse(w, f, ERR_UNSUPPORTED, 0, "walk", odd_kind(f->st.st_mode));
}

// Appends the name to the path of the directory and looks at it.
static int look_in(struct walk *w, struct found *f)
{
    size_t at = w->dir_len;
    if (at > 0)
        w->path[at++] = '/';
    size_t kept = u64_min(f->name_len, NAME_BYTES_MAX);
    memcpy(w->path + at, f->name, kept);
    f->path_len = at + kept;
    if (f->name_len > NAME_BYTES_MAX || f->path_len > PATH_BYTES_MAX)
        return refuse(w, f, ERR_ENTRY, ENAMETOOLONG, "walk", "");
    return look(w, f);
}

static void leave_dir(struct walk *w)
{
    dir_chain_pop(&w->chain);
    const uint8_t *slash = memrchr(w->path, '/', w->dir_len);
    w->dir_len = slash == NULL ? 0 : (size_t)(slash - w->path);
}

static enum err_class class_of_dir_error(int rc)
{
    switch (-rc) {
    case ENOENT:
        return ERR_VANISHED;
    case ESTALE: // another directory has its name now
    case ENOTDIR:
    case ELOOP:
        return ERR_CHANGED;
    default:
        return ERR_ENTRY;
    }
}

// The directory cannot be read to its end.
static int give_up_dir(struct walk *w, struct found *f, int rc, const char *op)
{
    f->path_len = w->dir_len;
    int said = refuse(w, f, class_of_dir_error(rc), -rc, op, "not all of the directory was seen");
    leave_dir(w);
    return said;
}

// The next name of the directory being read.
static int read_on(struct walk *w, struct found *f)
{
    struct dir_level *level;
    int rc = dir_chain_last(&w->chain, &level);
    if (rc < 0)
        return give_up_dir(w, f, rc, "open");
    rc = dir_reader_next(&level->reader, &f->name, &f->name_len);
    if (rc < 0)
        return give_up_dir(w, f, rc, "read directory");
    if (rc > 0) {
        f->dir_fd = level->reader.fd;
        return look_in(w, f);
    }
    leave_dir(w);
    return NOTHING;
}

// Looks at what the next source names.
static int begin_source(struct walk *w, struct found *f)
{
    const struct walk_source *source = &w->sources[w->begun++];
    char name[NAME_BYTES_MAX + 1] = ".";
    size_t to_len = strlen(source->to);
    f->top = true;
    f->path_len = u64_min(to_len, PATH_BYTES_MAX);
    memcpy(w->path, source->to, f->path_len);
    if (to_len > PATH_BYTES_MAX)
        return refuse(w, f, ERR_ENTRY, ENAMETOOLONG, "walk", "");
    size_t from_len = strlen(source->from);
    int parent_fd = source->fd;
    if (from_len > 0)
        parent_fd = path_open_parent(source->fd, source->from, from_len, name);
    if (parent_fd < 0)
        return refuse_failed(w, f, parent_fd, "open");
    w->chain.base_fd = source->fd;
    f->dir_fd = parent_fd;
    f->name = name;
    int said = look(w, f);
    if (parent_fd != source->fd)
        sys_close(parent_fd);
    return said;
}

uint32_t walk_source_at(const struct walk *w)
{
    return w->begun - 1;
}

enum walk_result walk_next(struct walk *w, struct entry *out, struct err *problem)
{
    for (;;) {
        struct found f = {.out = out, .problem = problem};
        int said;
        if (w->chain.count > 0)
            said = read_on(w, &f);
        else if (w->begun < w->source_count)
            said = begin_source(w, &f);
        else
            return WALK_END;
        if (said != NOTHING)
            return (enum walk_result)said;
    }
}
