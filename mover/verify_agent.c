// The verify role: reads what a receipt tells of again, beneath one directory, and writes nothing. Batches
// come in CHECK, a few at a time; the checker's threads answer each when it is done, through the mailbox.
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "mover/agent_inner.h"
#include "mover/checker.h"
#include "storage/sys.h"

enum {
    THREADS_MAX = 16,
    RESULTS_BYTES_MAX = 16 * KIB,
    // An entry record in a list: its length, the fixed fields, the length of the path.
    RECORD_BYTES_MIN = 4 + 44 + 4,
};
_Static_assert(64 * KIB / RECORD_BYTES_MIN * CHECK_RESULT_BYTES <= RESULTS_BYTES_MAX,
               "the results of the longest CHECK fit into CHECKED");

struct verify_agent {
    struct agent *agent;
    int root_fd;
    char *shown;
    struct checker *checker;
};

static void verify_free(struct verify_agent *v)
{
    checker_free(v->checker);
    if (v->root_fd >= 0)
        (void)sys_close(v->root_fd); // a directory: a close tells nothing
    free(v->shown);
    free(v);
}

static void on_done(void *arg, const struct checked *checked)
{
    struct verify_agent *v = arg;
    uint8_t buf[RESULTS_BYTES_MAX];
    struct wire_writer w;
    wire_writer_init(&w, buf, sizeof buf);
    for (uint32_t i = 0; i < checked->count; i++)
        check_put(&w, &checked->results[i]);
    int64_t len = wire_written(&w); // fits: see above
    struct message m = {.type = MESSAGE_CHECKED,
                        .checked = {.bytes = checked->bytes, .results = blob_of(buf, (size_t)len)}};
    mailbox_post(v->agent->mailbox, &m);
}

static unsigned thread_count(void)
{
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    return cpus < 1 ? 1 : cpus > THREADS_MAX ? THREADS_MAX : (unsigned)cpus;
}

static int verify_role_open(struct agent *a, const struct msg_open *m, struct message *opened, void **self,
                            struct err *err)
{
    struct verify_agent *v = calloc(1, sizeof *v);
    if (v == NULL)
        return -ENOMEM;
    struct wire_reader r;
    struct blob path = {0};
    wire_reader_init(&r, m->paths.bytes, m->paths.len);
    path.bytes = wire_get_blob(&r, PATH_BYTES_MAX, &path.len);
    v->agent = a;
    v->root_fd = wire_done(&r) == 0 ? agent_open_folder(a->cfg, &path, &v->shown, err) : -EPROTO;
    int rc = v->root_fd < 0 ? v->root_fd : checker_new(v->root_fd, thread_count(), on_done, v, &v->checker);
    if (rc < 0) {
        verify_free(v);
        return rc;
    }
    *opened =
        (struct message){.type = MESSAGE_VERIFY_OPENED,
                         .verify_opened = {.root = blob_of(v->shown, u64_min(strlen(v->shown), 2 * KIB))}};
    *self = v;
    return 0;
}

static int verify_role_message(void *self, const struct message *m)
{
    const struct verify_agent *v = self;
    return m->type == MESSAGE_CHECK ? checker_add(v->checker, &m->check.records) : -EPROTO;
}

static void verify_role_stop(void *self)
{
    (void)self; // close ends the threads: whoever waits for results waits before it says CLOSE
}

static void verify_role_close(void *self, bool finished)
{
    (void)finished;
    verify_free(self);
}

const struct role role_verify = {
    .open = verify_role_open,
    .message = verify_role_message,
    .stop = verify_role_stop,
    .close = verify_role_close,
};
