// OPEN: an agent takes a role in a job: its settings, engine, listening, role, threads.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mover/agent_inner.h"
#include "mover/inside.h"
#include "mover/slot.h"
#include "storage/sys.h"

// Memory of a stream's slots, whatever the stripe size: two slots at least, so that one is on the wire while
// the other is filled.
enum { STREAM_BYTES = 16 * MIB, SLOTS_MIN = 2, FILE_THREADS = 4, ENGINE_DEPTH_SPARE = 4 };

static uint32_t slots_for(uint32_t stripe_bytes)
{
    return (uint32_t)u64_max(STREAM_BYTES / stripe_bytes, SLOTS_MIN);
}

static void take_names(struct agent *a, const struct msg_open *m)
{
    blob_string(&m->host, a->job.host, sizeof a->job.host);
    blob_string(&m->user, a->job.user, sizeof a->job.user);
}

static void notice(void *arg, const struct err *err)
{
    agent_notice_err(arg, err);
}

// A destination that does not answer is a failing one; a source that does not is out of reach, as if its node
// were lost.
static int watch_storage(struct agent *a)
{
    struct storage_watch_config cfg = {
        .timeout_ns = a->job.io_timeout_s > 0 ? a->job.io_timeout_s * UINT64_C(1000000000) : UINT64_MAX,
        .class = a->role == &role_source ? ERR_LOST : ERR_STORAGE,
        .notice = notice,
        .arg = a};
    a->watch = storage_watch_new(&cfg);
    return a->watch != NULL ? 0 : -ENOMEM;
}

static bool memory_good(const struct msg_open *m)
{
    if (m->role == OPEN_DEST || m->memory == OPEN_STORAGE)
        return m->memory <= OPEN_STAMPED;
    return m->memory == OPEN_MEMORY && memory_wrong(m->memory_files, m->memory_bytes) == NULL;
}

static int take_job(struct agent *a, const struct msg_open *m)
{
    if (m->role == OPEN_VERIFY) { // nothing is transferred
        a->job = (struct agent_job){.id = m->job};
        a->role = &role_verify;
        take_names(a, m);
        return 0;
    }
    if (m->role > OPEN_DEST || m->streams == 0 || m->streams > STREAMS_MAX || m->engine >= ENGINE_KINDS ||
        m->direct > DIRECT_OFF || m->stripe_bytes < STRIPE_BYTES_MIN || m->stripe_bytes > STRIPE_BYTES_MAX ||
        (m->stripe_bytes & (m->stripe_bytes - 1)) != 0 || !memory_good(m))
        return -EPROTO;
    a->job = (struct agent_job){.id = m->job,
                                .agent = m->agent,
                                .secret = m->secret,
                                .stripe_bytes = m->stripe_bytes,
                                .streams = m->streams,
                                .slots = slots_for(m->stripe_bytes),
                                .engine = {.kind = (enum engine_kind)m->engine, .file_threads = FILE_THREADS},
                                .direct = (enum direct_mode)m->direct,
                                .encrypt = m->encrypt != 0,
                                .rate_bits = m->rate_bits,
                                .io_timeout_s = m->io_timeout_s,
                                .memory = (enum open_memory)m->memory,
                                .memory_files = m->memory_files,
                                .memory_bytes = m->memory_bytes};
    a->job.engine.depth = a->job.slots * SLOT_IO + ENGINE_DEPTH_SPARE;
    take_names(a, m);
    a->role = m->role == OPEN_SOURCE ? &role_source : &role_dest;
    return watch_storage(a);
}

// The engine that the streams will have, tried once here so that its name and reason can be told, and a wish
// that cannot be met is refused.
static int probe_engine(const struct agent *a, char why[160], struct err *err)
{
    struct engine *e;
    int rc = engine_new(&a->job.engine, &e, why);
    if (rc < 0) {
        err_set(err, ERR_START, -rc, "start the engine", NULL, 0, "%s", why);
        return rc;
    }
    engine_free(e);
    return 0;
}

static int listen_self(struct agent *a, struct err *err)
{
    const struct agent_config *cfg = a->cfg;
    if (cfg->handoff_fd >= 0) {
        a->port = cfg->port;
        return 0;
    }
    const char *host = cfg->bind_to != NULL ? cfg->bind_to : cfg->loopback_only ? NULL : "";
    int rc = net_listen(host, cfg->port, cfg->port_hi, cfg->family, a->listen_fds, &a->port, err);
    if (rc < 0)
        return rc;
    a->listen_count = rc;
    if (!cfg->takes_inside)
        return 0;
    rc = inside_listen(&a->job.agent);
    if (rc < 0) {
        err_set(err, ERR_START, -rc, "listen for connections of this host", NULL, 0, NULL);
        return rc;
    }
    a->listen_fds[a->listen_count++] = rc;
    return 0;
}

static int start_streams(struct agent *a)
{
    struct stream_config cfg = {
        .kind = GREET_PEER,
        .mailbox = a->mailbox,
        .run = a->role->run_peer,
        .arg = a->self,
        .inside = a->cfg->dials_inside,
        .target = {.family = a->cfg->family, .bind_to = a->cfg->bind_to, .secret = a->job.secret}};
    int rc = stream_new(&cfg, &a->peer);
    cfg.kind = GREET_DATA;
    cfg.run = a->role->run_data;
    cfg.begin = a->role->begin_data;
    cfg.end = a->role->end_data;
    a->streams = calloc(a->job.streams, sizeof(struct stream *));
    if (rc == 0 && a->streams == NULL)
        rc = -ENOMEM;
    for (uint32_t i = 0; i < a->job.streams && rc == 0; i++) {
        cfg.index = i;
        rc = stream_new(&cfg, &a->streams[i]);
    }
    return rc;
}

void agent_audit(struct agent *a, const char *what)
{
    char id[33], line[1024], host[400], user[200];
    struct digest d;
    memcpy(d.bytes, a->job.id.bytes, sizeof d.bytes);
    digest_hex(&d, id);
    err_escape(host, sizeof host, a->job.host, strlen(a->job.host));
    err_escape(user, sizeof user, a->job.user, strlen(a->job.user));
    snprintf(line, sizeof line, "job %s: %s, for %s at %s%s%s", id, what, user, host,
             channel_peer_name(a->control)[0] != '\0' ? ", key " : "", channel_peer_name(a->control));
    a->cfg->say(a->cfg->arg, line);
}

// What is of use only where data moves: an engine, and somewhere to listen.
static int open_transfer(struct agent *a, char engine[160], struct err *err)
{
    if (a->job.streams == 0)
        return 0;
    int rc = probe_engine(a, engine, err);
    return rc == 0 ? listen_self(a, err) : rc;
}

// Where the other agent may dial this one: as net_addresses.
static int64_t own_addresses(const struct agent *a, uint8_t *out, size_t len)
{
    const char *bound = a->cfg->bind_to;
    if (bound == NULL)
        return net_addresses(a->port, out, len);
    char text[ADDRESS_BYTES_MAX];
    bool v6 = strchr(bound, ':') != NULL;
    snprintf(text, sizeof text, "%s%s%s:%u", v6 ? "[" : "", bound, v6 ? "]" : "", a->port);
    struct wire_writer w;
    wire_writer_init(&w, out, len);
    wire_put_blob(&w, text, strlen(text));
    return wire_written(&w);
}

// Completes the role's answer.
static void fill_opened(const struct agent *a, const char *boot, const char *engine, struct blob addresses,
                        struct message *opened)
{
    if (opened->type == MESSAGE_SOURCE_OPENED) {
        opened->source_opened.port = a->port;
        opened->source_opened.boot = blob_text(boot);
        opened->source_opened.engine = blob_text(engine);
        opened->source_opened.addresses = addresses;
    } else if (opened->type == MESSAGE_DEST_OPENED) {
        opened->dest_opened.port = a->port;
        opened->dest_opened.boot = blob_text(boot);
        opened->dest_opened.engine = blob_text(engine);
        opened->dest_opened.addresses = addresses;
    }
}

int agent_open(struct agent *a, const struct msg_open *m)
{
    static const char *const roles[] = {
        [OPEN_SOURCE] = "source", [OPEN_DEST] = "destination", [OPEN_VERIFY] = "verify"};
    struct err err = {.class = ERR_NONE};
    char boot[64], engine[160] = "";
    uint8_t addresses[4 * KIB];
    struct message opened;
    int64_t len = 0;
    int rc = take_job(a, m);
    if (rc < 0)
        return rc;
    rc = open_transfer(a, engine, &err);
    if (rc == 0)
        rc = a->role->open(a, m, &opened, &a->self, &err);
    if (rc == 0) {
        a->opened = true;
        rc = a->job.streams > 0 ? start_streams(a) : 0;
    }
    if (rc == 0 && a->job.streams > 0)
        len = own_addresses(a, addresses, sizeof addresses);
    if (len < 0)
        rc = (int)len;
    if (rc < 0) {
        if (err.class == ERR_NONE)
            err_set(&err, ERR_START, -rc, "start the job", NULL, 0, "%s", "");
        return agent_refuse(a, &err);
    }
    if (a->job.streams > 0)
        door_know(a->door, &a->job.agent, &a->job.secret);
    sys_boot_id(boot);
    fill_opened(a, boot, engine, blob_of(addresses, (size_t)len), &opened);
    agent_audit(a, roles[m->role]);
    return channel_send(a->control, &opened);
}
