#include "tests/sim/descriptor.h"

#include <assert.h>
#include <stdlib.h>

#include "tests/sim/sched.h"
#include "tests/sim/world.h"

enum { NUMBER_FIRST = 1000 };

struct descriptor {
    struct process *owner; // NULL: closed
    const struct descriptor_ops *ops;
    void *object;
    bool nonblocking;
};

struct table {
    struct descriptor *list;
    size_t count, room;
};

static struct table the_table;

void descriptor_end(void)
{
    the_table.count = 0;
}

int descriptor_new(struct process *owner, const struct descriptor_ops *ops, void *object)
{
    struct table *t = &the_table;
    if (t->count == t->room) {
        t->room = t->room > 0 ? 2 * t->room : 256;
        t->list = reallocarray(t->list, t->room, sizeof *t->list);
        assert(t->list != NULL);
    }
    if (owner == NULL)
        owner = process_current();
    assert(owner != NULL);
    t->list[t->count] = (struct descriptor){.owner = owner, .ops = ops, .object = object};
    return (int)t->count++ + NUMBER_FIRST;
}

static struct descriptor *find(int fd)
{
    size_t at = (size_t)(fd - NUMBER_FIRST);
    if (fd < NUMBER_FIRST || at >= the_table.count || the_table.list[at].owner == NULL)
        world_fail("descriptor %d is not open", fd);
    struct descriptor *d = &the_table.list[at];
    const struct process *p = process_current();
    if (p != NULL && d->owner != p)
        world_fail("descriptor %d is of %s", fd, process_name(d->owner));
    return d;
}

void *descriptor_try(int fd, enum descriptor_kind kind)
{
    const struct descriptor *d = find(fd);
    return d->ops->kind == kind ? d->object : NULL;
}

void *descriptor_object(int fd, enum descriptor_kind kind)
{
    void *object = descriptor_try(fd, kind);
    if (object == NULL)
        world_fail("descriptor %d is not of kind %d", fd, kind);
    return object;
}

static void close_one(struct descriptor *d, bool silently)
{
    d->owner = NULL;
    d->ops->close(d->object, silently);
    d->object = NULL;
}

void descriptor_close(int fd, enum descriptor_kind kind)
{
    (void)descriptor_object(fd, kind);
    close_one(find(fd), false);
}

void descriptor_close_any(int fd)
{
    struct descriptor *d = find(fd);
    if (d->ops->kind == DESCRIPTOR_FILE)
        world_fail("close of the file %d behind the back of storage/sys.h", fd);
    close_one(d, false);
}

void descriptor_close_all(struct process *owner, bool silently)
{
    for (size_t i = 0; i < the_table.count; i++)
        if (the_table.list[i].owner == owner)
            close_one(&the_table.list[i], silently);
}

void descriptor_check_closed(const struct process *owner)
{
    for (size_t i = 0; i < the_table.count; i++)
        if (the_table.list[i].owner == owner)
            world_fail("%s leaves descriptor %zu (kind %d) open", process_name(owner), i + NUMBER_FIRST,
                       the_table.list[i].ops->kind);
}

int descriptor_poll(struct pollfd *fds, size_t count)
{
    int ready = 0;
    for (size_t i = 0; i < count; i++) {
        fds[i].revents = 0;
        if (fds[i].fd < 0)
            continue;
        const struct descriptor *d = &the_table.list[fds[i].fd - NUMBER_FIRST];
        if (fds[i].fd < NUMBER_FIRST || (size_t)(fds[i].fd - NUMBER_FIRST) >= the_table.count ||
            d->owner == NULL || d->ops->ready == NULL)
            world_fail("poll of descriptor %d, which is not open", fds[i].fd);
        fds[i].revents = d->ops->ready(d->object, fds[i].events);
        ready += fds[i].revents != 0;
    }
    return ready;
}

bool descriptor_blocks(int fd)
{
    return !find(fd)->nonblocking;
}

void descriptor_set_blocking(int fd, bool blocks)
{
    find(fd)->nonblocking = !blocks;
}
