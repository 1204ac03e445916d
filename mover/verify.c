// The asking side of the verify role: HELLO, OPEN, then CHECKs as long as the agent may have more of them and
// CHECKED for each in turn, then CLOSE.
#include "mover/verify.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/hello.h"
#include "proto/version.h"
#include "storage/sys.h"

#define SOFTWARE     "penstock " PENSTOCK_VERSION
#define HEARTBEAT_NS (UINT64_C(1000000) * HEARTBEAT_MS)
#define SILENCE_NS   (UINT64_C(1000000) * SILENCE_MS)
// A batch closes when it has so much content to be read, so that what is wrong is told soon.
#define BATCH_DATA_BYTES (UINT64_C(256) << 20)

enum { BATCH_BYTES_MAX = 64 * KIB, ENTRY_BYTES_MAX = PATH_BYTES_MAX + 64 };

enum phase { PHASE_HELLO, PHASE_OPEN, PHASE_COMPARE, PHASE_CLOSE, PHASE_OVER };

// Records that were sent and are not answered.
struct batch {
    uint8_t *records;
    size_t len;
};

struct verifier {
    const struct verify_config *cfg;
    const struct verify_end *end;
    struct receipt_reader *receipt;
    struct verify_tally *tally;
    struct err *err; // its class is ERR_NONE until somebody has said why it fails
    enum phase phase;
    bool spoke; // the agent
    uint64_t ping_ns;
    bool all_sent;
    struct batch batches[CHECKS_OPEN_MAX];
    size_t first, count; // of the batches, a ring
    // The entry that did not fit into the batch before, encoded; 0 bytes: none.
    size_t held_len;
    uint64_t held_size;
    uint8_t held[ENTRY_BYTES_MAX];
};

static int say(const struct verifier *v, const struct message *m)
{
    return channel_send(v->end->control, m);
}

static int say_hello(struct verifier *v)
{
    char host[ADDRESS_BYTES_MAX];
    struct message m;
    sys_host_name(host);
    hello_make(SOFTWARE, host, &m);
    return say(v, &m);
}

static int say_open(struct verifier *v)
{
    char host[ADDRESS_BYTES_MAX], user[64];
    uint8_t path[ENTRY_BYTES_MAX];
    struct wire_writer w;
    wire_writer_init(&w, path, sizeof path);
    wire_put_blob(&w, v->cfg->place->path, strlen(v->cfg->place->path));
    int64_t len = wire_written(&w);
    if (len < 0)
        return -ENAMETOOLONG;
    sys_host_name(host);
    snprintf(user, sizeof user, "%u", (unsigned)sys_euid());
    struct message m = {.type = MESSAGE_OPEN,
                        .open = {.role = OPEN_VERIFY,
                                 .job = v->end->id,
                                 .agent = job_id_at(&v->end->id, 0),
                                 .host = blob_text(host),
                                 .user = blob_text(user),
                                 .paths = blob_of(path, (size_t)len)}};
    return say(v, &m);
}

// Encodes the next entry that lies there by the words of the receipt into `held`. 1; 0: there are no more.
static int hold_next(struct verifier *v)
{
    struct receipt_entry e;
    int rc;
    while ((rc = receipt_reader_next(v->receipt, &e)) > 0) {
        if (e.outcome == RECEIPT_MOVED || e.outcome == RECEIPT_SKIPPED)
            break;
        v->tally->not_copied++;
    }
    int64_t len = rc > 0 ? receipt_entry_encode(&e, v->held, sizeof v->held) : rc;
    if (len < 0) {
        err_set(v->err, ERR_START, (int)-len, "read the receipt", NULL, 0, "not all entries were compared");
        return (int)len;
    }
    v->held_len = (size_t)len;
    v->held_size = rc > 0 ? e.size : 0;
    return rc;
}

// Fills a batch from the receipt. Its length, 0: there is nothing more.
static int batch_fill(struct verifier *v, uint8_t *records, size_t *len)
{
    struct wire_writer w;
    uint64_t data = 0;
    int rc = 1;
    wire_writer_init(&w, records, BATCH_BYTES_MAX);
    while (data < BATCH_DATA_BYTES) {
        if (v->held_len == 0 && (rc = hold_next(v)) <= 0)
            break;
        struct wire_writer before = w;
        wire_put_blob(&w, v->held, v->held_len);
        if (w.full) {
            w = before;
            break;
        }
        data += v->held_size;
        v->held_len = 0;
    }
    v->all_sent = rc == 0;
    *len = (size_t)(w.at - w.start);
    return rc < 0 ? rc : 0;
}

static int send_batch(struct verifier *v)
{
    struct batch b = {.records = malloc(BATCH_BYTES_MAX)};
    if (b.records == NULL)
        return -ENOMEM;
    int rc = batch_fill(v, b.records, &b.len);
    if (rc < 0 || b.len == 0) {
        free(b.records);
        return rc;
    }
    v->batches[(v->first + v->count++) % CHECKS_OPEN_MAX] = b;
    struct message m = {.type = MESSAGE_CHECK, .check = {.records = blob_of(b.records, b.len)}};
    return say(v, &m);
}

// Gives the agent as much as it may have; when everything is answered that was all.
static int go_on(struct verifier *v)
{
    int rc = 0;
    while (rc == 0 && !v->all_sent && v->count < CHECKS_OPEN_MAX)
        rc = send_batch(v);
    if (rc < 0 || !v->all_sent || v->count > 0)
        return rc;
    struct message m = {.type = MESSAGE_CLOSE, .close = {.finished = 1}};
    v->phase = PHASE_CLOSE;
    return say(v, &m);
}

// What people call the agent's host; nothing when it is this one.
static void name_node(const struct verifier *v, struct err *err)
{
    if (v->cfg->place->kind != PLACE_LOCAL)
        snprintf(err->node, sizeof err->node, "%s", reach_name(v->cfg->place));
}

static int take_result(struct verifier *v, struct wire_reader *records, struct wire_reader *results)
{
    struct receipt_entry e;
    struct check_result result;
    struct err err;
    size_t len;
    const uint8_t *bytes = wire_get_blob(records, wire_left(records), &len);
    int rc = receipt_entry_decode(bytes, len, &e);
    if (rc == 0)
        rc = check_get(results, &result);
    if (rc < 0)
        return rc;
    v->tally->entries[result.verdict]++;
    if (result.verdict == CHECK_RIGHT || result.verdict == CHECK_UNPROVED)
        return 0;
    check_err(&result, &e, &err);
    name_node(v, &err);
    v->cfg->found(v->cfg->arg, &err);
    return 0;
}

static int on_checked(struct verifier *v, const struct msg_checked *m)
{
    struct wire_reader records, results;
    if (v->count == 0)
        return -EPROTO;
    struct batch b = v->batches[v->first];
    v->first = (v->first + 1) % CHECKS_OPEN_MAX;
    v->count--;
    wire_reader_init(&records, b.records, b.len);
    wire_reader_init(&results, m->results.bytes, m->results.len);
    int rc = 0;
    while (rc == 0 && wire_left(&records) > 0)
        rc = take_result(v, &records, &results);
    free(b.records);
    if (rc == 0)
        rc = wire_done(&results);
    v->tally->bytes += m->bytes;
    return rc < 0 ? rc : go_on(v);
}

static int on_hello(struct verifier *v, const struct msg_hello *m)
{
    int rc = hello_accept(m, SOFTWARE, v->err);
    if (rc < 0)
        name_node(v, v->err);
    return rc < 0 ? rc : say_open(v);
}

// The agent does not take the job, or cannot go on.
static int on_fail(struct verifier *v, const struct msg_fail *m)
{
    message_to_err(m, v->err);
    name_node(v, v->err);
    return -ECANCELED;
}

static int dispatch(struct verifier *v, const struct message *m)
{
    static const enum message_type awaited[] = {[PHASE_HELLO] = MESSAGE_HELLO,
                                                [PHASE_OPEN] = MESSAGE_VERIFY_OPENED,
                                                [PHASE_COMPARE] = MESSAGE_CHECKED,
                                                [PHASE_CLOSE] = MESSAGE_CLOSED};
    struct message pong = {.type = MESSAGE_PONG, .pong = {.cookie = m->ping.cookie}};
    if (m->type == MESSAGE_PING)
        return say(v, &pong);
    if (m->type == MESSAGE_PONG)
        return 0;
    if (m->type == MESSAGE_FAIL)
        return on_fail(v, &m->fail);
    if (m->type != awaited[v->phase])
        return -EPROTO;
    if (v->phase == PHASE_COMPARE)
        return on_checked(v, &m->checked);
    v->phase++;
    return v->phase == PHASE_OPEN ? on_hello(v, &m->hello) : v->phase == PHASE_COMPARE ? go_on(v) : 0;
}

static int take_messages(struct verifier *v)
{
    int rc = channel_pump(v->end->control), got = 1;
    while (got > 0 && v->phase != PHASE_OVER) { // what came whole before the connection ended counts
        uint16_t type;
        const uint8_t *fields;
        size_t len;
        struct message m;
        got = channel_next(v->end->control, &type, &fields, &len);
        if (got <= 0)
            break;
        got = message_decode(type, fields, len, &m) == 0 ? 1 : -EPROTO;
        v->spoke = v->spoke || got > 0;
        int done = got > 0 ? dispatch(v, &m) : 0;
        if (done < 0)
            got = done;
    }
    return got < 0 ? got : v->phase == PHASE_OVER ? 0 : rc;
}

static int heartbeat(struct verifier *v)
{
    uint64_t now_ns = sys_clock_ns();
    bool waits = v->end->child.pid > 0 && !v->spoke; // for somebody who logs in through ssh
    if (!waits && now_ns - channel_heard_ns(v->end->control) > SILENCE_NS)
        return -ETIMEDOUT;
    if (now_ns - v->ping_ns < HEARTBEAT_NS || !channel_ready(v->end->control))
        return 0;
    v->ping_ns = now_ns;
    struct message m = {.type = MESSAGE_PING, .ping = {.cookie = now_ns}};
    return say(v, &m);
}

static int converse(struct verifier *v)
{
    const struct channel *c = v->end->control;
    int rc = say_hello(v);
    while (rc == 0 && v->phase != PHASE_OVER) {
        short events = channel_events(c);
        struct pollfd fds[2] = {{.fd = channel_fd_in(c), .events = events & POLLIN},
                                {.fd = (events & POLLOUT) != 0 ? channel_fd_out(c) : -1, .events = POLLOUT}};
        if (poll(fds, 2, HEARTBEAT_MS) < 0 && errno != EINTR)
            return -errno;
        rc = take_messages(v);
        if (rc == 0)
            rc = heartbeat(v);
    }
    return rc;
}

int verify_over(const struct verify_config *cfg, const struct verify_end *end, struct receipt_reader *receipt,
                struct verify_tally *tally, struct err *err)
{
    struct verifier *v = malloc(sizeof *v);
    *tally = (struct verify_tally){.bytes = 0};
    err->class = ERR_NONE;
    if (v == NULL) {
        err_set(err, ERR_START, ENOMEM, "", NULL, 0, "%s", "");
        return -ENOMEM;
    }
    *v = (struct verifier){
        .cfg = cfg, .end = end, .receipt = receipt, .tally = tally, .err = err, .ping_ns = sys_clock_ns()};
    int rc = converse(v);
    if (rc < 0 && err->class == ERR_NONE) {
        reach_lost(end->control, &end->child, v->spoke, rc, err);
        name_node(v, err);
    }
    for (; v->count > 0; v->count--, v->first = (v->first + 1) % CHECKS_OPEN_MAX)
        free(v->batches[v->first].records);
    free(v);
    return rc;
}

int verify_run(const struct verify_config *cfg, struct receipt_reader *receipt, struct verify_tally *tally,
               struct err *err)
{
    struct verify_end end = {.child = {.fd = -1}};
    *tally = (struct verify_tally){.bytes = 0};
    int rc = sys_random(end.id.bytes, sizeof end.id.bytes - 1); // the last byte is for job_id_at
    struct job_id at = job_id_at(&end.id, 0);
    if (rc < 0)
        err_set(err, ERR_START, -rc, "start", NULL, 0, "%s", "");
    else
        rc = reach_agent(&cfg->reach, cfg->place, &at, -1, &end.control, &end.child, err);
    if (rc == 0)
        rc = verify_over(cfg, &end, receipt, tally, err);
    reach_leave(end.control, &end.child);
    return rc;
}
