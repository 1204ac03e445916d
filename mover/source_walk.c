// The walk: closes segment after segment, sends each to its home agent, takes the need answers and lays the
// segments out. At most SEGMENTS_OPEN_MAX segments are under way, so memory stays flat however large the tree
// is. In the peer stream's thread.
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "mover/path_set.h"
#include "mover/peer.h"
#include "mover/source_agent.h"
#include "storage/sys.h"

#define SEGMENT_WAIT_NS \
    UINT64_C(500000000) // a slow walk closes what it has, so that the first byte leaves soon

// The first segments are short, each twice as long as the one before: nothing moves before one is closed and
// compared.
enum { FIRST_SEGMENT_ENTRIES = 256 };

enum walk_state { WALK_WAITING, WALK_RUNNING, WALK_DONE, WALK_RETRYING, WALK_OVER };

struct walker {
    struct source_agent *s;
    struct peer peer;
    struct segment_builder *builder;
    struct walk *walk;
    enum walk_state state;
    uint64_t number;        // of the segment being built
    uint64_t files, bytes;  // in it
    struct path_set *paths; // in it
    struct retry retry;
};

// How many entries the segment that is being built may have.
static uint32_t entries_most(const struct walker *w)
{
    return w->number < 4 ? (uint32_t)FIRST_SEGMENT_ENTRIES << w->number : SEGMENT_ENTRIES_MAX;
}

static void segment_begin(struct walker *w)
{
    segment_builder_begin(w->builder, w->number);
    w->files = w->bytes = 0;
    path_set_clear(w->paths);
}

static void say_closed(struct walker *w, const struct digest *digest, uint32_t entries, bool last, bool retry)
{
    struct message m = {.type = MESSAGE_SEGMENT_CLOSED,
                        .segment_closed = {.segment = w->number,
                                           .last = last,
                                           .retry = retry,
                                           .entries = entries,
                                           .files = w->files,
                                           .bytes = w->bytes,
                                           .digest = *digest}};
    mailbox_post(w->s->agent->mailbox, &m);
}

// Sends the segment and keeps it until it is done. An empty one is only said, not sent.
static int segment_close(struct walker *w, bool last)
{
    struct source_agent *s = w->s;
    bool retry = w->state == WALK_RETRYING;
    uint32_t entries = segment_builder_count(w->builder);
    if (entries == 0) {
        struct digest none = {{0}};
        say_closed(w, &none, 0, last, retry);
        return 0;
    }
    size_t len;
    const uint8_t *bytes = segment_builder_end(w->builder, last, &len);
    struct work *work = calloc(1, sizeof *work);
    int rc = work != NULL ? segment_decode(bytes, len, &work->segment) : -ENOMEM;
    if (rc < 0) {
        work_free(work);
        return rc;
    }
    work->number = w->number;
    struct digest digest = work->segment->digest;
    worktab_add(s->works, work); // before it is sent: words about it may come at once
    pthread_mutex_lock(&s->lock);
    s->open_segments++;
    pthread_mutex_unlock(&s->lock);
    rc = channel_send_bytes(w->peer.channel, retry ? PEER_RETRY : PEER_SEGMENT, bytes, len);
    if (rc < 0)
        return rc; // and the job is over
    say_closed(w, &digest, entries, last, retry);
    w->number++;
    segment_begin(w);
    return 0;
}

// A directory that changes while it is listed may name an entry twice: the first word counts, and whether it
// still holds is seen when the file is read.
static int add_entry(struct walker *w, const struct entry *e)
{
    if (path_set_has(w->paths, e->path, e->path_len))
        return 0;
    int rc = segment_builder_add(w->builder, e);
    if (rc == -ENOSPC) {
        rc = segment_close(w, false);
        if (rc == 0)
            rc = segment_builder_add(w->builder, e);
    }
    if (rc == 0)
        path_set_add(w->paths, e->path, e->path_len);
    if (rc == 0 && e->type == ENTRY_FILE) {
        w->files++;
        w->bytes += e->size;
    }
    return rc;
}

static void walk_problem(struct walker *w, const struct err *problem)
{
    if (w->state != WALK_RETRYING) {
        agent_problem(w->s->agent, UINT64_MAX, 0, PROBLEM_UNLISTED, problem);
        return;
    }
    struct err err = *problem;
    if (err.os == ENOENT)
        err.class = ERR_VANISHED;
    retry_settle(w->s, &w->retry, walk_source_at(w->walk), &err);
}

// A file is listed once more. What has become a directory is none any more, and what it holds nobody asked
// for; one that its directory named twice may have changed twice.
static int add_again(struct walker *w, struct entry *e)
{
    uint32_t i = walk_source_at(w->walk);
    struct retry_file *f = &w->retry.files[i];
    struct err err;
    if (f->told)
        return 0;
    if (e->type == ENTRY_DIR || path_set_has(w->paths, e->path, e->path_len)) {
        err_set(&err, ERR_CHANGED, 0, "", e->path, e->path_len, "%s",
                e->type == ENTRY_DIR ? "it has become a directory"
                                     : "its directory changed while it was listed");
        retry_settle(w->s, &w->retry, i, &err);
        return 0;
    }
    f->told = true;
    e->root = f->root; // by which the senders open it
    return add_entry(w, e);
}

// Whether the coordinator takes the problems more slowly than they are found.
static bool is_crowded(const struct walker *w)
{
    return mailbox_bytes(w->s->agent->mailbox) >= MAILBOX_CROWDED_BYTES;
}

// Walks until a segment was closed, the walk is over, or SEGMENT_WAIT_NS have passed.
static int walk_some(struct walker *w)
{
    uint64_t closed = w->number, until_ns = sys_clock_ns() + SEGMENT_WAIT_NS;
    while (w->number == closed) {
        struct entry e;
        struct err problem;
        storage_watch_begin(w->s->agent->watch, &w->s->walking, "list the source", NULL);
        enum walk_result got = walk_next(w->walk, &e, &problem);
        if (got == WALK_ENTRY && w->s->agent->job.memory != OPEN_STORAGE) {
            if (e.path_len == 0) // the folder: its mode and owner are nothing to copy
                continue;
            e.sparse = false; // no hole: all is made
            e.data_count = 0;
        }
        storage_watch_end(w->s->agent->watch, &w->s->walking);
        if (got == WALK_END) {
            int rc = segment_close(w, true);
            walk_free(w->walk);
            w->walk = NULL;
            w->state = w->state == WALK_RUNNING ? WALK_DONE : WALK_OVER;
            return rc;
        }
        if (got == WALK_PROBLEM) {
            walk_problem(w, &problem);
            if (is_crowded(w))
                return 0;
        } else {
            int rc = w->state == WALK_RETRYING ? add_again(w, &e) : add_entry(w, &e);
            if (rc < 0)
                return rc;
        }
        uint32_t count = segment_builder_count(w->builder);
        if (w->number == closed && (count >= entries_most(w) || sys_clock_ns() >= until_ns))
            return count > 0 ? segment_close(w, false) : 0;
    }
    return 0;
}

static int walk_begin(struct walker *w)
{
    struct source_agent *s = w->s;
    pthread_mutex_lock(&s->lock);
    uint64_t dev = s->avoid_dev, inode = s->avoid_inode;
    pthread_mutex_unlock(&s->lock);
    w->walk = walk_new(s->roots, s->root_count);
    if (w->walk == NULL)
        return -ENOMEM;
    if (dev != 0 || inode != 0)
        walk_avoid(w->walk, dev, inode);
    w->state = WALK_RUNNING;
    segment_begin(w);
    return 0;
}

static int retry_begin(struct walker *w)
{
    int rc = retry_take(w->s, &w->retry);
    if (rc < 0)
        return rc;
    w->state = WALK_RETRYING;
    segment_begin(w);
    w->walk = walk_new(w->retry.roots, w->retry.count);
    return w->walk != NULL ? 0 : -ENOMEM;
}

static int on_need(struct source_agent *s, const uint8_t *bytes, size_t len)
{
    uint64_t number;
    struct wire_reader r;
    wire_reader_init(&r, bytes, len);
    (void)wire_get_u32(&r); // magic and count: need_decode looks at them
    (void)wire_get_u32(&r);
    number = wire_get_u64(&r);
    struct work *w = worktab_get(s->works, number);
    if (w == NULL || w->need != NULL) {
        worktab_put(s->works, w);
        return -EPROTO;
    }
    int rc = need_decode(bytes, len, w->segment, &w->need);
    if (rc == 0)
        rc = layout_new(w->segment, w->need, s->agent->job.stripe_bytes, &w->layout);
    if (rc == 0) {
        struct message m = {.type = MESSAGE_SEGMENT_LAID,
                            .segment_laid = {.segment = number,
                                             .stripes = layout_count(w->layout),
                                             .bytes = layout_bytes(w->layout),
                                             .layout = layout_digest(w->layout)}};
        mailbox_post(s->agent->mailbox, &m);
    }
    worktab_put(s->works, w);
    return rc;
}

static int take_messages(struct walker *w)
{
    uint16_t type;
    const uint8_t *fields;
    size_t len;
    int rc;
    while ((rc = channel_next(w->peer.channel, &type, &fields, &len)) > 0) {
        rc = type == PEER_NEED ? on_need(w->s, fields, len) : -EPROTO;
        if (rc < 0)
            return rc;
    }
    return rc;
}

// One turn of the walk. *idle: there is nothing to do but to wait.
static int turn(struct walker *w, bool *idle)
{
    struct source_agent *s = w->s;
    pthread_mutex_lock(&s->lock);
    bool walk_asked = s->walk_asked, retry_asked = s->retry_asked;
    bool room = s->open_segments < SEGMENTS_OPEN_MAX;
    pthread_mutex_unlock(&s->lock);
    *idle = false;
    if (w->state == WALK_WAITING && walk_asked)
        return walk_begin(w);
    if (w->state == WALK_DONE && retry_asked)
        return retry_begin(w);
    if ((w->state == WALK_RUNNING || w->state == WALK_RETRYING) && room && !is_crowded(w))
        return walk_some(w);
    *idle = true;
    return 0;
}

void source_run_peer(void *self, struct stream *stream, const struct conn *conn, struct conn_end *end)
{
    struct source_agent *s = self;
    struct walker w = {.s = s, .builder = segment_builder_new(), .paths = path_set_new()};
    int rc = w.builder != NULL && w.paths != NULL ? peer_open(stream, conn, &w.peer) : -ENOMEM;
    bool idle = false;
    while (rc == 0 && !stream_stopping(stream)) {
        rc = peer_turn(&w.peer, idle);
        int taken = rc == 0 || rc == -ENODATA ? take_messages(&w) : 0;
        if (taken == 0 && rc == 0)
            taken = turn(&w, &idle);
        if (taken < 0)
            rc = taken;
    }
    peer_close(&w.peer);
    walk_free(w.walk);
    segment_builder_free(w.builder);
    path_set_free(w.paths);
    retry_free(&w.retry);
    end->clean = stream_stopping(stream);
    if (!end->clean)
        agent_peer_lost(s->agent, rc);
}
