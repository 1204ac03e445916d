#include "tests/sim/watch.h"

#include <string.h>

#include "proto/receipt.h"
#include "proto/wire.h"
#include "tests/sim/world.h"
#include "tests/sim/wraps.h"

enum { JOURNAL_ONCE_IN = 8, OUTCOME_MOVED = 1 };

struct watch {
    struct model *model;
    uint64_t acknowledged;
};

static struct watch the_watch;

void watch_begin(struct model *m)
{
    the_watch = (struct watch){.model = m};
}

uint64_t watch_acknowledged(void)
{
    return the_watch.acknowledged;
}

// One record, by the layout in proto/receipt.h.
static void look_at_record(const uint8_t *bytes, size_t len)
{
    struct wire_reader r;
    wire_reader_init(&r, bytes, len);
    (void)wire_get_u8(&r);
    uint8_t outcome = wire_get_u8(&r);
    (void)wire_get_u16(&r);
    (void)wire_get_u32(&r);
    uint64_t size = wire_get_u64(&r);
    struct timespec mtime = {.tv_sec = (time_t)wire_get_u64(&r)};
    mtime.tv_nsec = (long)wire_get_u32(&r);
    (void)wire_get_span(&r, 16);
    size_t path_len;
    const uint8_t *path = wire_get_blob(&r, PATH_BYTES_MAX, &path_len);
    char text[1024];
    if (path == NULL || path_len >= sizeof text)
        world_fail("a receipt record that cannot be read");
    memcpy(text, path, path_len);
    text[path_len] = '\0';
    if (outcome == OUTCOME_MOVED)
        check_durable(the_watch.model, text, size, mtime);
}

static void look_at(const struct message *m)
{
    if (m->type == MESSAGE_STRIPES_DONE && !m->stripes_done.settled) {
        the_watch.acknowledged += m->stripes_done.bytes;
        if (rng_once_in(world_rng(), JOURNAL_ONCE_IN))
            check_journal(the_watch.model, true, true);
    }
    if (m->type != MESSAGE_ENTRIES_DONE)
        return;
    struct wire_reader r;
    wire_reader_init(&r, m->entries_done.records.bytes, m->entries_done.records.len);
    while (wire_left(&r) > 0) {
        size_t len;
        const uint8_t *bytes = wire_get_blob(&r, wire_left(&r), &len);
        if (bytes == NULL)
            world_fail("receipt records that cannot be read");
        look_at_record(bytes, len);
    }
}

static bool is_state(const struct inode *dir)
{
    struct inode *store = fs_find(fs_root(world_host(HOST_DEST)->fs), "store");
    struct inode *state = store != NULL ? fs_find(store, ".penstock") : NULL;
    return state != NULL && (dir == state || dir->parent == state);
}

void watch_create(const struct inode *dir, const char *name)
{
    if (the_watch.model != NULL && dir->fs == world_host(HOST_DEST)->fs && is_state(dir))
        check_new_temp(the_watch.model, name);
}

// A crash may keep the new name and nothing else that is not durable yet.
void watch_rename(const struct inode *i, const struct inode *from, const struct inode *to)
{
    if (the_watch.model == NULL || i->fs != world_host(HOST_DEST)->fs || !S_ISREG(i->seen.mode) ||
        !is_state(from) || is_state(to))
        return;
    bool durable = i->kept.size == i->seen.size && i->kept.mode == i->seen.mode &&
                   i->kept.mtime.tv_sec == i->seen.mtime.tv_sec &&
                   i->kept.mtime.tv_nsec == i->seen.mtime.tv_nsec;
    for (size_t k = 0; k < i->room; k++)
        durable = durable && i->kept_blocks[k] == i->seen_blocks[k];
    if (!durable)
        world_fail("a file gets its final name before it is synced");
}

// The journal may lag the data, never lead it: a crash may keep of it what was just written.
void watch_write(const struct inode *f)
{
    if (the_watch.model == NULL || f->fs != world_host(HOST_DEST)->fs || !is_state(f->parent))
        return;
    if (f == fs_find(f->parent, "journal"))
        check_journal(the_watch.model, false, true);
}

void __wrap_mailbox_post(struct mailbox *m, const struct message *message)
{
    world_trace("says %s", message_name(message->type));
    if (the_watch.model != NULL && process_host(process_current()) == world_host(HOST_DEST))
        look_at(message);
    __real_mailbox_post(m, message);
}
