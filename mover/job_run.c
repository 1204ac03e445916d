// The coordinator thread: moves messages between the agents' channels and the machine (plan/coord.h), and
// what the machine says to events, counters and the receipt.
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "mover/job_inner.h"
#include "mover/reach.h"
#include "proto/version.h"
#include "storage/sys.h"

#define HEARTBEAT_NS    (UINT64_C(1000000) * HEARTBEAT_MS)
#define SILENCE_NS      (UINT64_C(1000000) * SILENCE_MS)
#define STREAMS_DEFAULT 4

static void sink_send(void *arg, unsigned node, const struct message *m)
{
    struct job *j = arg;
    struct job_end *end = &j->ends[node];
    // A channel that does not take it is broken or stuck: the next turn sees that and says so.
    if (end->channel != NULL && channel_send(end->channel, m) < 0)
        end->hung_up = true;
}

// The receipt begins when it is known where the job goes.
static int receipt_begin(struct job *j, const struct blob *place, struct err *err)
{
    if (j->cfg.state_dir == NULL)
        return 0;
    const struct place *dst = job_place(j, COORD_DEST);
    uint8_t sources[SRC_BYTES_MAX];
    struct wire_writer w;
    wire_writer_init(&w, sources, sizeof sources);
    for (uint32_t i = 0; i < j->cfg.source_count; i++)
        wire_put_blob(&w, j->places[i].text, strlen(j->places[i].text));
    int64_t len = wire_written(&w);
    // Where the root can be found again, in a form that copy takes.
    char *path = blob_copy(place);
    char *words = path != NULL && *path != '\0' ? place_words(dst, path) : path;
    struct receipt_job about = {.started_s = j->started_s,
                                .program = blob_text("penstock " PENSTOCK_VERSION),
                                .sources = blob_of(sources, (size_t)len),
                                .destination = blob_text(dst->text)};
    int rc = len < 0 ? -EMSGSIZE : -ENOMEM; // job_check has seen to that
    if (len >= 0 && words != NULL) {
        about.place = blob_text(words);
        rc = receipt_writer_new(j->cfg.state_dir, &j->id, &about, &j->receipt, err);
    } else {
        err_set(err, ERR_START, -rc, "", NULL, 0, "%s", "");
    }
    if (words != path)
        free(words);
    free(path);
    return rc;
}

static void sink_resolved(void *arg, const char *root, const struct blob *place)
{
    struct job *j = arg;
    const struct place *dst = job_place(j, COORD_DEST);
    char text[1024], shown[700], from[200];
    err_escape(shown, sizeof shown, root, strlen(root));
    err_escape(from, sizeof from, j->places[0].text, strlen(j->places[0].text));
    snprintf(text, sizeof text, "%s%s -> %.60s%s%s", from, j->cfg.source_count > 1 ? " and others" : "",
             dst->kind == PLACE_LOCAL ? "" : dst->host, dst->kind == PLACE_LOCAL ? "" : ":", shown);
    job_emit(j, JOB_RESOLVED, text, NULL);
    struct err err = {.class = ERR_NONE};
    if (receipt_begin(j, place, &err) < 0)
        coord_fail(j->coord, &err, sys_clock_ns());
}

static void sink_notice(void *arg, const char *text)
{
    job_emit(arg, JOB_NOTICE, text, NULL);
}

static void sink_problem(void *arg, const struct err *err)
{
    job_emit(arg, JOB_PROBLEM, "", err);
}

static void sink_records(void *arg, const struct blob *records)
{
    struct job *j = arg;
    struct wire_reader r;
    wire_reader_init(&r, records->bytes, records->len);
    int rc = 0;
    while (j->receipt != NULL && wire_left(&r) > 0 && rc == 0) {
        size_t len;
        const uint8_t *bytes = wire_get_blob(&r, records->len, &len);
        struct receipt_entry e;
        rc = bytes != NULL ? receipt_entry_decode(bytes, len, &e) : -EPROTO;
        if (rc == 0)
            rc = receipt_writer_add(j->receipt, &e);
    }
    if (rc == 0)
        return;
    struct err err;
    err_set(&err, ERR_START, -rc, "write the receipt", j->cfg.state_dir, strlen(j->cfg.state_dir), "%s", "");
    receipt_writer_free(j->receipt);
    j->receipt = NULL;
    coord_fail(j->coord, &err, sys_clock_ns());
}

// What a stream has sent since it told last, into the counters. Under the lock.
static void count_sent(struct job *j, const struct msg_stream_stats *m)
{
    struct stream_bytes *before = &j->sent[m->stream];
    j->snapshot.counters.bytes_resent += m->resent_bytes - before->resent;
    j->snapshot.counters.bytes_sent += (m->bytes - before->all) - (m->resent_bytes - before->resent);
    *before = (struct stream_bytes){.all = m->bytes, .resent = m->resent_bytes};
}

static void show_stream(struct job *j, const struct msg_stream_stats *m)
{
    struct job_stream *s = &j->snapshot.streams[m->stream];
    s->session = m->session;
    s->stream = m->stream;
    snprintf(s->source, sizeof s->source, "%s", job_end_name(j, COORD_SOURCE));
    snprintf(s->destination, sizeof s->destination, "%s", job_end_name(j, COORD_DEST));
    s->bytes = m->bytes;
    s->resent_bytes = m->resent_bytes;
    s->retransmits = m->retransmits;
    s->seconds = (double)m->elapsed_us / 1e6;
    s->rtt_us = m->rtt_us;
    if (m->stream >= j->snapshot.stream_count)
        j->snapshot.stream_count = m->stream + 1;
}

static void sink_stats(void *arg, const struct msg_stream_stats *m)
{
    struct job *j = arg;
    pthread_mutex_lock(&j->lock);
    if (m->stream < STREAMS_MAX)
        count_sent(j, m);
    if (m->stream < ARRAY_LEN(j->snapshot.streams))
        show_stream(j, m);
    pthread_mutex_unlock(&j->lock);
}

static void sink_closed(void *arg, unsigned node, const struct msg_closed *m)
{
    struct job *j = arg;
    j->ends[node].closed = true;
    pthread_mutex_lock(&j->lock);
    if (node == COORD_SOURCE)
        j->result.source_resident_bytes = m->resident_bytes;
    else
        j->result.destination_resident_bytes = m->resident_bytes;
    pthread_mutex_unlock(&j->lock);
}

static void refresh(struct job *j)
{
    struct coord_counters n;
    coord_counters(j->coord, &n);
    pthread_mutex_lock(&j->lock);
    struct job_counters *c = &j->snapshot.counters;
    c->entries_total = n.total;
    c->entries_moved = n.moved;
    c->entries_skipped = n.skipped;
    c->entries_changed = n.changed;
    c->entries_vanished = n.vanished;
    c->entries_failed = n.failed;
    c->entries_pending = n.total - n.moved - n.skipped - n.changed - n.vanished - n.failed;
    c->files_total = n.files_total;
    c->files_moved = n.files_moved;
    c->bytes_total = n.bytes_total;
    c->bytes_needed = n.bytes_needed;
    c->bytes_moved = n.bytes_moved;
    c->walked = n.walked;
    snprintf(j->snapshot.engine_source, sizeof j->snapshot.engine_source, "%s",
             coord_engine(j->coord, COORD_SOURCE));
    snprintf(j->snapshot.engine_destination, sizeof j->snapshot.engine_destination, "%s",
             coord_engine(j->coord, COORD_DEST));
    pthread_mutex_unlock(&j->lock);
}

// The receipt is written last, and only of a job that came to its end: whatever its exit status, all that it
// says of entries is settled then.
static int receipt_finish(struct job *j, int exit_status, bool finished)
{
    if (j->receipt == NULL)
        return exit_status;
    struct coord_counters n;
    coord_counters(j->coord, &n);
    struct receipt_end end = {.ended_s = sys_wall_s(),
                              .exit_status = (uint32_t)exit_status,
                              .total = n.total,
                              .moved = n.moved,
                              .skipped = n.skipped,
                              .changed = n.changed,
                              .vanished = n.vanished,
                              .failed = n.failed,
                              .bytes = n.bytes_moved};
    char path[sizeof j->result.receipt] = "";
    int rc = finished ? receipt_writer_end(j->receipt, &end, path, sizeof path) : 0;
    receipt_writer_free(j->receipt);
    j->receipt = NULL;
    if (rc < 0) {
        struct err err;
        err_set(&err, ERR_START, -rc, "write the receipt", j->cfg.state_dir, strlen(j->cfg.state_dir), "%s",
                "");
        job_emit(j, JOB_PROBLEM, "", &err);
        return err_exit_worse(exit_status, err_class_exit(ERR_START));
    }
    pthread_mutex_lock(&j->lock);
    memcpy(j->result.receipt, path, sizeof path);
    pthread_mutex_unlock(&j->lock);
    return exit_status;
}

static void sink_ended(void *arg, int exit_status, bool finished)
{
    struct job *j = arg;
    exit_status = receipt_finish(j, exit_status, finished);
    pthread_mutex_lock(&j->lock);
    j->result.exit_status = exit_status;
    j->result.retryable = exit_status == 1 || (exit_status >= 3 && exit_status <= 9);
    pthread_mutex_unlock(&j->lock);
    j->over = true;
}

static int coord_make(struct job *j)
{
    uint8_t paths[SRC_BYTES_MAX], dest[PATH_BYTES_MAX + 4];
    char host[256], user[64];
    struct wire_writer w;
    wire_writer_init(&w, paths, sizeof paths);
    for (uint32_t i = 0; i < j->cfg.source_count; i++)
        wire_put_blob(&w, j->places[i].path, strlen(j->places[i].path));
    int64_t len = wire_written(&w);
    struct wire_writer d;
    wire_writer_init(&d, dest, sizeof dest);
    wire_put_blob(&d, job_place(j, COORD_DEST)->path, strlen(job_place(j, COORD_DEST)->path));
    int64_t dest_len = wire_written(&d);
    if (len < 0 || dest_len < 0)
        return -ENAMETOOLONG;
    sys_host_name(host);
    snprintf(user, sizeof user, "%u", (unsigned)sys_euid());
    struct coord_config cfg = {.job = j->id,
                               .streams = j->cfg.streams != 0 ? j->cfg.streams : STREAMS_DEFAULT,
                               .stripe_bytes =
                                   j->cfg.stripe_bytes != 0 ? j->cfg.stripe_bytes : STRIPE_BYTES_DEFAULT,
                               .engine = (uint8_t)j->cfg.engine,
                               .direct = (uint8_t)j->cfg.direct,
                               .encrypt = j->cfg.encrypt,
                               .rate_bits = j->cfg.rate_bits,
                               .io_timeout_s = j->cfg.io_timeout_s,
                               .host = host,
                               .user = user,
                               .software = "penstock " PENSTOCK_VERSION,
                               .source_paths = blob_of(paths, (size_t)len),
                               .dest_path = blob_of(dest, (size_t)dest_len)};
    for (unsigned n = 0; n < COORD_NODES; n++) {
        cfg.names[n] = job_end_name(j, n);
        const struct place *p = job_place(j, n);
        cfg.memory[n] = p->memory ? OPEN_MEMORY : OPEN_STORAGE;
        // ssh's host may be an alias of its configuration and carries the user: the part behind the @ is
        // worth a try.
        const char *at = strrchr(p->host, '@');
        cfg.dial_host[n] = p->kind == PLACE_LOCAL ? "" : at != NULL ? at + 1 : p->host;
        if (p->kind == PLACE_AGENT)
            cfg.dial_port[n] = p->port != 0 ? p->port : PENSTOCK_PORT;
        cfg.dials_inside[n] = job_inside(j, n) != NULL;
    }
    const struct place *source = job_place(j, COORD_SOURCE);
    cfg.memory_files = source->memory_files;
    cfg.memory_bytes = source->memory_bytes;
    if (source->memory && job_place(j, COORD_DEST)->memory)
        cfg.memory[COORD_DEST] = OPEN_STAMPED;
    cfg.may_dial[COORD_SOURCE] = j->cfg.dial != JOB_DIAL_DST;
    cfg.may_dial[COORD_DEST] = j->cfg.dial != JOB_DIAL_SRC;
    int rc = sys_random(cfg.secret.bytes, sizeof cfg.secret.bytes);
    struct coord_sink sink = {.arg = j,
                              .send = sink_send,
                              .resolved = sink_resolved,
                              .notice = sink_notice,
                              .problem = sink_problem,
                              .records = sink_records,
                              .stats = sink_stats,
                              .closed = sink_closed,
                              .ended = sink_ended};
    if (rc == 0)
        j->coord = coord_new(&cfg, &sink);
    seal_wipe(&cfg.secret, sizeof cfg.secret);
    return rc < 0 ? rc : j->coord != NULL ? 0 : -ENOMEM;
}

static void hang_up(struct job *j, unsigned node, int error)
{
    struct job_end *end = &j->ends[node];
    struct err err;
    reach_lost(end->channel, &end->child, end->spoke, error, &err);
    snprintf(err.node, sizeof err.node, "%s", job_end_name(j, node));
    channel_free(end->channel);
    end->channel = NULL;
    coord_lost(j->coord, node, &err, sys_clock_ns());
}

static void take_messages(struct job *j, unsigned node)
{
    struct job_end *end = &j->ends[node];
    int rc = channel_pump(end->channel);
    int got = 1;
    while (got > 0) { // what came whole before the connection ended counts
        uint16_t type;
        const uint8_t *fields;
        size_t len;
        struct message m;
        got = channel_next(end->channel, &type, &fields, &len);
        if (got > 0)
            got = message_decode(type, fields, len, &m) == 0 ? 1 : -EPROTO;
        end->spoke = end->spoke || got > 0;
        if (got > 0)
            coord_message(j->coord, node, &m, sys_clock_ns());
    }
    if (end->closed) { // it waits for us to close, so that its last word is not lost
        channel_free(end->channel);
        end->channel = NULL;
        return;
    }
    if (got < 0)
        rc = got;
    if (rc == 0 && end->hung_up)
        rc = -ENOBUFS;
    // Who logs in through ssh may have to type something first: ssh has limits of its own.
    bool waits = end->child.pid > 0 && !end->spoke;
    if (rc == 0 && !waits && sys_clock_ns() - channel_heard_ns(end->channel) > SILENCE_NS)
        rc = -ETIMEDOUT;
    if (rc < 0)
        hang_up(j, node, rc);
}

static void heartbeat(struct job *j)
{
    uint64_t now_ns = sys_clock_ns();
    if (now_ns - j->ping_ns < HEARTBEAT_NS)
        return;
    j->ping_ns = now_ns;
    struct message m = {.type = MESSAGE_PING, .ping = {.cookie = now_ns}};
    for (unsigned n = 0; n < COORD_NODES; n++)
        if (j->ends[n].channel != NULL && channel_ready(j->ends[n].channel))
            sink_send(j, n, &m);
}

// A second call for an end does not wait for the agents: they see the connection close and stop.
static void check_cancel(struct job *j, unsigned *seen)
{
    unsigned cancels = atomic_load(&j->cancels);
    if (cancels > *seen && *seen == 0)
        coord_cancel(j->coord, sys_clock_ns());
    *seen = cancels;
    for (unsigned n = 0; cancels > 1 && n < COORD_NODES; n++)
        if (j->ends[n].channel != NULL)
            hang_up(j, n, -ECANCELED);
}

static int wait_ms(uint64_t wake_ns)
{
    uint64_t now_ns = sys_clock_ns();
    if (wake_ns <= now_ns)
        return 0;
    return (int)u64_min((wake_ns - now_ns) / 1000000 + 1, HEARTBEAT_MS);
}

// Until the job is over; -errno when nothing can be waited for any more.
static int run(struct job *j, struct err *err)
{
    unsigned seen = 0;
    coord_start(j->coord, sys_clock_ns());
    while (!j->over) {
        struct pollfd fds[COORD_NODES * 2 + 1] = {{.fd = j->bell_fd, .events = POLLIN}};
        for (unsigned n = 0; n < COORD_NODES; n++) {
            const struct channel *c = j->ends[n].channel;
            short events = c != NULL ? channel_events(c) : 0;
            fds[1 + 2 * n] =
                (struct pollfd){.fd = c != NULL ? channel_fd_in(c) : -1, .events = events & POLLIN};
            fds[2 + 2 * n] = (struct pollfd){
                .fd = c != NULL && (events & POLLOUT) != 0 ? channel_fd_out(c) : -1, .events = POLLOUT};
        }
        uint64_t wake_ns = coord_tick(j->coord, sys_clock_ns());
        if (j->over)
            break;
        if (poll(fds, ARRAY_LEN(fds), wait_ms(wake_ns)) < 0 && errno != EINTR) {
            int rc = -errno;
            err_set(err, ERR_LOST, -rc, "wait for the agents", NULL, 0, "%s", "");
            return rc;
        }
        uint64_t rung;
        ssize_t got = read(j->bell_fd, &rung, sizeof rung); // empty unless cancel was called
        (void)got;
        check_cancel(j, &seen);
        for (unsigned n = 0; n < COORD_NODES; n++)
            if (j->ends[n].channel != NULL)
                take_messages(j, n);
        heartbeat(j);
        refresh(j);
    }
    return 0;
}

void *job_main(void *arg)
{
    struct job *j = arg;
    struct err err = {.class = ERR_NONE};
    int rc = job_check(&j->cfg, &err);
    if (rc == 0)
        rc = coord_make(j);
    if (rc < 0 && err.class == ERR_NONE)
        err_set(&err, ERR_START, -rc, "start the job", NULL, 0, "%s", "");
    for (unsigned n = 0; n < COORD_NODES && rc == 0; n++)
        rc = job_reach(j, n, &err);
    if (rc == 0) {
        rc = run(j, &err);
        refresh(j);
    }
    if (rc < 0) {
        if (rc == -ECANCELED && atomic_load(&j->cancels) > 0)
            err_set(&err, ERR_INTERRUPTED, 0, "", NULL, 0, "interrupted");
        job_emit(j, JOB_PROBLEM, "", &err);
        pthread_mutex_lock(&j->lock);
        j->result.exit_status = err_class_exit(err.class);
        j->result.retryable = j->result.exit_status >= 3;
        pthread_mutex_unlock(&j->lock);
    }
    for (unsigned n = 0; n < COORD_NODES; n++)
        job_leave(j, n);
    receipt_writer_free(j->receipt);
    j->receipt = NULL;
    coord_free(j->coord);
    j->coord = NULL;
    pthread_mutex_lock(&j->lock);
    j->ended_ns = sys_clock_ns();
    pthread_mutex_unlock(&j->lock);
    job_emit(j, JOB_ENDED, "", NULL);
    return NULL;
}
