// Directories: their modes and times are set last, deepest first, since everything that is made in them
// changes them. They are spilled to a file in `.penstock/` as encoded segments, each followed by its length,
// and read backwards: the walk names a directory before what it holds.
#include <errno.h>
#include <stdlib.h>

#include "mover/dest_agent.h"
#include "storage/sys.h"

static int spill(struct dest_agent *d)
{
    if (segment_builder_count(d->dirs) == 0)
        return 0;
    size_t len;
    const uint8_t *bytes = segment_builder_end(d->dirs, false, &len);
    uint8_t tail[4];
    struct wire_writer w;
    wire_writer_init(&w, tail, sizeof tail);
    wire_put_u32(&w, (uint32_t)len);
    int rc = sys_pwrite_full(d->dirs_fd, bytes, len, d->dirs_end);
    if (rc == 0)
        rc = sys_pwrite_full(d->dirs_fd, tail, sizeof tail, d->dirs_end + len);
    if (rc < 0)
        return rc;
    d->dirs_end += len + sizeof tail;
    segment_builder_begin(d->dirs, 0);
    return 0;
}

int dest_dirs_add(struct dest_agent *d, const struct entry *e)
{
    d->dir_count++;
    int rc = segment_builder_add(d->dirs, e);
    if (rc != -ENOSPC)
        return rc;
    rc = spill(d);
    return rc < 0 ? rc : segment_builder_add(d->dirs, e);
}

// A directory that cannot be finished is a problem of its own; the entry was told already.
static int finish_one(struct dest_agent *d, const struct entry *e)
{
    if (e->path_len == 0) { // `.penstock` is still in it: dest_root_finish
        d->root = (struct entry){
            .type = ENTRY_DIR, .mode = e->mode, .uid = e->uid, .gid = e->gid, .mtime = e->mtime};
        d->root_listed = true;
        return 0;
    }
    storage_watch_begin(d->agent->watch, &d->comparing, "finish directories", NULL);
    int rc = dest_finish_dir(&d->dest, e);
    if (rc == 0)
        return 0;
    if (dest_is_fatal(rc))
        return rc;
    struct err err;
    err_set(&err, ERR_ENTRY, -rc, "set metadata", e->path, e->path_len, "%s", "");
    agent_problem(d->agent, 0, 0, PROBLEM_RECORDED, &err);
    return 0;
}

// The closing pass may take hours: the coordinator hears that it goes on.
static void tell_progress(struct dest_agent *d)
{
    uint64_t now_ns = sys_clock_ns();
    if (now_ns - d->told_ns < DEST_TELL_NS)
        return;
    d->told_ns = now_ns;
    struct message m = {.type = MESSAGE_FINISHED, .finished = {.directories = d->finished_dirs, .more = 1}};
    mailbox_post(d->agent->mailbox, &m);
}

// The spilled segment that ends at *end.
static int finish_chunk(struct dest_agent *d, uint64_t *end)
{
    uint8_t tail[4];
    ssize_t got = sys_pread_full(d->dirs_fd, tail, sizeof tail, *end - sizeof tail);
    struct wire_reader r;
    wire_reader_init(&r, tail, sizeof tail);
    uint32_t len = wire_get_u32(&r);
    if (got != (ssize_t)sizeof tail || len > SEGMENT_BYTES_MAX || len + sizeof tail > *end)
        return got < 0 ? (int)got : -EBADMSG;
    uint8_t *bytes = malloc(len);
    if (bytes == NULL)
        return -ENOMEM;
    got = sys_pread_full(d->dirs_fd, bytes, len, *end - sizeof tail - len);
    struct segment *segment = NULL;
    int rc = got != (ssize_t)len ? (got < 0 ? (int)got : -EBADMSG) : segment_decode(bytes, len, &segment);
    for (uint32_t i = rc == 0 ? segment->entry_count : 0; i > 0 && rc == 0; i--) {
        rc = finish_one(d, &segment->entries[i - 1]);
        d->finished_dirs++;
        tell_progress(d);
    }
    segment_free(segment);
    free(bytes);
    *end -= len + sizeof tail;
    return rc;
}

int dest_dirs_finish(struct dest_agent *d)
{
    storage_watch_begin(d->agent->watch, &d->comparing, "finish directories", NULL);
    int rc = spill(d);
    d->told_ns = sys_clock_ns();
    for (uint64_t end = d->dirs_end; end > 0 && rc == 0;)
        rc = finish_chunk(d, &end);
    if (rc == 0)
        rc = dest_sync(&d->dest);
    storage_watch_end(d->agent->watch, &d->comparing);
    return rc;
}

void dest_remove_temp(struct dest_agent *d)
{
    storage_watch_begin(d->agent->watch, &d->comparing, "remove temporary files", NULL);
    int left = dest_sweep(&d->dest, NULL, NULL);
    (void)left;
    storage_watch_end(d->agent->watch, &d->comparing);
}

int dest_root_finish(const struct dest_agent *d, int fd)
{
    struct dest root = {.fd = fd, .can_chown = d->dest.can_chown};
    int rc = dest_finish_dir(&root, &d->root);
    return rc == 0 ? sys_fsync(fd) : rc;
}
