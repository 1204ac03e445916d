#include "tests/unit/coord_kit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <CUnit/CUnit.h>

// ---- what the machine says ----

static struct kit_lease *lease_find(struct coord_kit *k, uint64_t id)
{
    for (uint32_t i = 0; i < k->lease_count; i++)
        if (k->leases[i].words.lease == id)
            return &k->leases[i];
    return NULL;
}

// Stripes that were laid out, and none of them twice.
static void check_lease(struct coord_kit *k, const struct msg_lease *m)
{
    CU_ASSERT(m->count > 0 && m->count <= LEASE_STRIPES_MAX && m->first + m->count <= k->stripe_count);
    CU_ASSERT_PTR_NULL(lease_find(k, m->lease));
    for (uint32_t i = 0; i < k->lease_count; i++) {
        const struct msg_lease *l = &k->leases[i].words;
        CU_ASSERT(m->first >= l->first + l->count || l->first >= m->first + m->count);
    }
}

static void sent_lease(struct coord_kit *k, unsigned node, const struct msg_lease *m)
{
    if (node == COORD_DEST) {
        check_lease(k, m);
        CU_ASSERT_FATAL(k->lease_count < KIT_LEASES_MAX);
        k->leases[k->lease_count++].words = *m;
        k->leased_stripes += m->count;
        k->leased_most = u64_max(k->leased_most, k->leased_stripes);
        return;
    }
    struct kit_lease *l = lease_find(k, m->lease);
    CU_ASSERT_PTR_NOT_NULL_FATAL(l);
    CU_ASSERT_EQUAL(memcmp(&l->words, m, sizeof *m), 0);
    CU_ASSERT_FALSE(l->with_source || l->done[COORD_DEST]);
    l->with_source = true;
}

static void sent_lease_done(struct coord_kit *k, unsigned node, uint64_t id)
{
    struct kit_lease *l = lease_find(k, id);
    CU_ASSERT_PTR_NOT_NULL_FATAL(l);
    CU_ASSERT_FALSE(l->done[node]);
    CU_ASSERT(node == COORD_DEST || l->with_source);
    l->done[node] = true;
    if (node == COORD_DEST)
        k->leased_stripes -= l->words.count;
}

static void check_sent(struct coord_kit *k, unsigned node, const struct message *m)
{
    CU_ASSERT_EQUAL(k->ends, 0);
    CU_ASSERT_FALSE(k->gone[node]);
    // Once the job closes there is nothing to be done any more.
    if (k->closing)
        CU_ASSERT(m->type == MESSAGE_PONG || m->type == MESSAGE_STREAM_ENDED || m->type == MESSAGE_CLOSE);
    if (m->type == MESSAGE_LEASE) {
        sent_lease(k, node, &m->lease);
    } else if (m->type == MESSAGE_LEASE_DONE) {
        sent_lease_done(k, node, m->lease_done.lease);
    } else if (m->type == MESSAGE_CLOSE) {
        k->closing = true;
        k->finished = m->close.finished != 0;
    }
}

// Kept as it goes over the wire: so that it can be said at all is checked too.
static void on_send(void *arg, unsigned node, const struct message *m)
{
    struct coord_kit *k = arg;
    check_sent(k, node, m);
    struct kit_sent *s = malloc(sizeof *s); // not by calloc, which is the machine's to lack (starve.h)
    *s = (struct kit_sent){.next = NULL};
    s->bytes = malloc(MESSAGE_HEAD_BYTES + MESSAGE_BYTES_MAX);
    int64_t len = message_encode(m, s->bytes, MESSAGE_HEAD_BYTES + MESSAGE_BYTES_MAX);
    CU_ASSERT_FATAL(len > 0);
    CU_ASSERT_EQUAL_FATAL(message_decode((uint16_t)m->type, s->bytes + MESSAGE_HEAD_BYTES,
                                         (size_t)len - MESSAGE_HEAD_BYTES, &s->m),
                          0);
    *k->end[node] = s;
    k->end[node] = &s->next;
    if (k->unread[node] == NULL)
        k->unread[node] = s;
}

static void on_resolved(void *arg, const char *root, const struct blob *place)
{
    struct coord_kit *k = arg;
    snprintf(k->root, sizeof k->root, "%s", root);
    blob_string(place, k->place, sizeof k->place);
    struct err err;
    err_set(&err, ERR_START, 0, "", NULL, 0, "there is no room for the receipt");
    if (k->refuse_root)
        coord_fail(k->c, &err, k->now_ns);
}

static void on_notice(void *arg, const char *text)
{
    struct coord_kit *k = arg;
    k->notices++;
    snprintf(k->notice, sizeof k->notice, "%s", text);
}

static void on_problem(void *arg, const struct err *err)
{
    struct coord_kit *k = arg;
    k->problems++;
    k->problem = *err;
}

static void on_records(void *arg, const struct blob *records)
{
    struct coord_kit *k = arg;
    struct wire_reader r;
    wire_reader_init(&r, records->bytes, records->len);
    size_t len;
    while (wire_left(&r) > 0 && wire_get_blob(&r, records->len, &len) != NULL)
        k->records++;
}

static void on_stats(void *arg, const struct msg_stream_stats *stats)
{
    struct coord_kit *k = arg;
    (void)stats;
    k->stats++;
}

static void on_closed(void *arg, unsigned node, const struct msg_closed *closed)
{
    struct coord_kit *k = arg;
    (void)closed;
    k->closed[node]++;
    CU_ASSERT_EQUAL(k->closed[node], 1);
}

static void on_ended(void *arg, int exit_status, bool finished)
{
    struct coord_kit *k = arg;
    k->ends++;
    CU_ASSERT_EQUAL(finished, k->finished);
    k->exit_status = exit_status;
    CU_ASSERT_EQUAL(k->ends, 1);
}

// ---- the course ----

static uint64_t settled_of(const struct coord_counters *n)
{
    return n->moved + n->skipped + n->changed + n->vanished + n->failed;
}

// After each event: the counters add up, and nothing that failed ends with success.
static void check(struct coord_kit *k)
{
    struct coord_counters n = kit_counters(k);
    CU_ASSERT(settled_of(&n) <= n.total);
    CU_ASSERT(n.files_moved <= n.moved);
    if (k->ends == 0)
        return;
    CU_ASSERT(k->closing || (k->gone[COORD_SOURCE] && k->gone[COORD_DEST]));
    if (k->exit_status == 0) {
        CU_ASSERT(k->finished);
        CU_ASSERT_EQUAL(n.moved + n.skipped, n.total);
    }
}

struct coord_counters kit_counters(const struct coord_kit *k)
{
    struct coord_counters n;
    coord_counters(k->c, &n);
    return n;
}

void kit_begin(struct coord_kit *k, const struct kit_setup *setup)
{
    static const struct kit_setup usual = {.streams = 2};
    const struct kit_setup *s = setup != NULL ? setup : &usual;
    memset(k, 0, sizeof *k);
    k->now_ns = 1000 * KIT_S;
    k->streams = s->streams != 0 ? s->streams : 2;
    struct coord_config cfg = {.streams = k->streams,
                               .stripe_bytes = s->stripe_bytes != 0 ? s->stripe_bytes : 4 * MIB,
                               .encrypt = 1,
                               .io_timeout_s = s->io_timeout_s,
                               .rate_bits = s->rate_bits,
                               .host = "desk",
                               .user = "1000",
                               .software = "penstock test",
                               .source_paths = blob_text("paths of the sources"),
                               .dest_path = blob_text("path of the destination"),
                               .names = {"there", "here"}};
    memset(cfg.job.bytes, 7, sizeof cfg.job.bytes);
    for (unsigned n = 0; n < COORD_NODES; n++) {
        cfg.dial_host[n] = s->dial_host[n] != NULL ? s->dial_host[n] : "";
        cfg.dial_port[n] = s->dial_port[n];
        cfg.may_dial[n] = !s->no_dial[n];
        cfg.dials_inside[n] = s->inside[n];
        k->end[n] = &k->first[n];
    }
    struct coord_sink sink = {.arg = k,
                              .send = on_send,
                              .resolved = on_resolved,
                              .notice = on_notice,
                              .problem = on_problem,
                              .records = on_records,
                              .stats = on_stats,
                              .closed = on_closed,
                              .ended = on_ended};
    k->c = coord_new(&cfg, &sink);
    CU_ASSERT_PTR_NOT_NULL_FATAL(k->c);
    coord_start(k->c, k->now_ns);
    check(k);
}

void kit_end(struct coord_kit *k)
{
    for (unsigned n = 0; n < COORD_NODES; n++) {
        while (k->first[n] != NULL) {
            struct kit_sent *s = k->first[n];
            k->first[n] = s->next;
            free(s->bytes);
            free(s);
        }
    }
    coord_free(k->c);
    k->c = NULL;
}

static void to_run(struct coord_kit *k)
{
    kit_peer(k, COORD_SOURCE);
    kit_peer(k, COORD_DEST);
    for (uint32_t i = 0; i < k->streams; i++) {
        kit_linked(k, COORD_SOURCE, i, 0);
        kit_linked(k, COORD_DEST, i, 0);
    }
}

void kit_to(struct coord_kit *k, enum kit_phase phase)
{
    for (enum kit_phase at = KIT_HELLO; at < phase; at++) {
        switch (at) {
        case KIT_HELLO:
            kit_hello(k, COORD_SOURCE);
            kit_hello(k, COORD_DEST);
            break;
        case KIT_OPEN_SOURCE:
            kit_source_opened(k);
            break;
        case KIT_OPEN_DEST:
            kit_dest_opened(k);
            break;
        case KIT_LINK:
            to_run(k);
            break;
        case KIT_RUN:
            kit_closed_segment(k, 0, 0, true);
            break;
        case KIT_RETRY:
            kit_retry_segment(k, 0, 0, true);
            break;
        default:
            kit_finished(k);
        }
    }
    CU_ASSERT_EQUAL_FATAL(k->problems, 0);
    kit_read_all(k);
}

void kit_begin_in(struct coord_kit *k, enum kit_phase phase)
{
    kit_begin(k, NULL);
    kit_to(k, phase);
}

void kit_say(struct coord_kit *k, unsigned node, const struct message *m)
{
    coord_message(k->c, node, m, k->now_ns);
    check(k);
}

uint64_t kit_tick(struct coord_kit *k, uint64_t pass_ns)
{
    k->now_ns += pass_ns;
    k->wake_ns = coord_tick(k->c, k->now_ns);
    check(k);
    return k->wake_ns;
}

void kit_lose(struct coord_kit *k, unsigned node)
{
    struct err err;
    err_set(&err, ERR_LOST, 0, "", NULL, 0, "the agent is gone");
    k->gone[node] = true;
    coord_lost(k->c, node, &err, k->now_ns);
    check(k);
}

void kit_cancel(struct coord_kit *k)
{
    coord_cancel(k->c, k->now_ns);
    check(k);
}

const struct message *kit_take(struct coord_kit *k, unsigned node)
{
    struct kit_sent *s = k->unread[node];
    if (s == NULL)
        return NULL;
    k->unread[node] = s->next;
    return &s->m;
}

const struct message *kit_expect(struct coord_kit *k, unsigned node, enum message_type type)
{
    const struct message *m = kit_take(k, node);
    CU_ASSERT_PTR_NOT_NULL_FATAL(m);
    if (m->type != type)
        fprintf(stderr, "  %s where %s was expected\n", message_name(m->type), message_name(type));
    CU_ASSERT_EQUAL_FATAL(m->type, type);
    return m;
}

void kit_expect_none(struct coord_kit *k)
{
    for (unsigned n = 0; n < COORD_NODES; n++) {
        const struct message *m = kit_take(k, n);
        if (m != NULL)
            fprintf(stderr, "  %s to node %u\n", message_name(m->type), n);
        CU_ASSERT_PTR_NULL(m);
    }
}

void kit_read_all(struct coord_kit *k)
{
    k->unread[COORD_SOURCE] = k->unread[COORD_DEST] = NULL;
}

void kit_expect_stopped(struct coord_kit *k, enum err_class class)
{
    CU_ASSERT_EQUAL(k->problems, 1);
    CU_ASSERT_EQUAL(k->problem.class, class);
    if (k->problem.class != class)
        fprintf(stderr, "  %s: %s\n", err_class_name(k->problem.class), k->problem.text);
    CU_ASSERT(k->closing || (k->gone[COORD_SOURCE] && k->gone[COORD_DEST]));
    CU_ASSERT_FALSE(k->finished);
    for (unsigned n = 0; n < COORD_NODES; n++) {
        const struct message *m, *last = NULL;
        while ((m = kit_take(k, n)) != NULL)
            last = m;
        if (!k->gone[n]) {
            CU_ASSERT_PTR_NOT_NULL_FATAL(last);
            CU_ASSERT_EQUAL(last->type, MESSAGE_CLOSE);
        }
    }
}

void kit_expect_running(struct coord_kit *k)
{
    if (k->closing)
        fprintf(stderr, "  %s: %s\n", err_class_name(k->problem.class), k->problem.text);
    CU_ASSERT_FALSE(k->closing);
    CU_ASSERT_EQUAL(k->ends, 0);
}
