// The opening of a job: versions, roles, and where the entries will go.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mover/plan/coord_state.h"
#include "proto/hello.h"

static void send_open(struct coord *c, unsigned node)
{
    const struct coord_config *cfg = &c->cfg;
    bool dest = node == COORD_DEST;
    struct message m = {.type = MESSAGE_OPEN,
                        .open = {.role = dest ? OPEN_DEST : OPEN_SOURCE,
                                 .job = cfg->job,
                                 .agent = job_id_at(&cfg->job, node),
                                 .secret = cfg->secret,
                                 .stripe_bytes = cfg->stripe_bytes,
                                 .streams = cfg->streams,
                                 .engine = cfg->engine,
                                 .direct = cfg->direct,
                                 .encrypt = cfg->encrypt,
                                 .rate_bits = cfg->rate_bits,
                                 .io_timeout_s = cfg->io_timeout_s,
                                 .memory = cfg->memory[node],
                                 .memory_files = dest ? 0 : cfg->memory_files,
                                 .memory_bytes = dest ? 0 : cfg->memory_bytes,
                                 .host = blob_text(cfg->host),
                                 .user = blob_text(cfg->user),
                                 .paths = dest ? cfg->dest_path : cfg->source_paths}};
    if (dest) {
        m.open.boot = blob_text(c->nodes[COORD_SOURCE].boot);
        m.open.sources = blob_of(c->sources, c->sources_len);
    }
    coord_send(c, node, &m);
    seal_wipe(&m.open.secret, sizeof m.open.secret);
}

void coord_start(struct coord *c, uint64_t now_ns)
{
    (void)now_ns;
    struct message m;
    hello_make(c->cfg.software, c->cfg.host, &m);
    for (unsigned n = 0; n < COORD_NODES; n++)
        coord_send(c, n, &m);
}

void open_on_hello(struct coord *c, unsigned node, const struct message *message, uint64_t now_ns)
{
    struct err err;
    if (hello_accept(&message->hello, c->cfg.software, &err) < 0) {
        snprintf(err.node, sizeof err.node, "%s", c->cfg.names[node]);
        coord_stop(c, &err, now_ns);
        return;
    }
    c->nodes[node].hello = true;
    if (c->nodes[COORD_SOURCE].hello && c->nodes[COORD_DEST].hello) {
        c->phase = PHASE_OPEN_SOURCE;
        send_open(c, COORD_SOURCE);
    }
}

static bool keep(uint8_t **bytes, size_t *len, const struct blob *b)
{
    *bytes = malloc(b->len + 1);
    if (*bytes == NULL)
        return false;
    if (b->len > 0)
        memcpy(*bytes, b->bytes, b->len);
    *len = b->len;
    return true;
}

void open_on_source_opened(struct coord *c, unsigned node, const struct message *message, uint64_t now_ns)
{
    const struct msg_source_opened *m = &message->source_opened;
    struct coord_node *n = &c->nodes[node];
    n->port = m->port;
    blob_string(&m->boot, n->boot, sizeof n->boot);
    blob_string(&m->engine, n->engine, sizeof n->engine);
    if (!keep(&n->addresses, &n->addresses_len, &m->addresses) ||
        !keep(&c->sources, &c->sources_len, &m->sources)) {
        coord_stop_words(c, ERR_LOST, COORD_NODES, now_ns, "out of memory");
        return;
    }
    c->phase = PHASE_OPEN_DEST;
    send_open(c, COORD_DEST);
}

void open_on_dest_opened(struct coord *c, unsigned node, const struct message *message, uint64_t now_ns)
{
    const struct msg_dest_opened *m = &message->dest_opened;
    struct coord_node *n = &c->nodes[node];
    n->port = m->port;
    c->avoid_dev = m->dev;
    c->avoid_inode = m->inode;
    blob_string(&m->boot, n->boot, sizeof n->boot);
    blob_string(&m->engine, n->engine, sizeof n->engine);
    if (!keep(&n->addresses, &n->addresses_len, &m->addresses) ||
        !keep(&c->dest_names, &c->dest_names_len, &m->names)) {
        coord_stop_words(c, ERR_LOST, COORD_NODES, now_ns, "out of memory");
        return;
    }
    char root[2 * KIB + 1];
    blob_string(&m->root, root, sizeof root);
    c->sink.resolved(c->sink.arg, root, &m->place);
    if (c->phase != PHASE_OPEN_DEST) // the owner has stopped the job meanwhile
        return;
    coord_notice(c, "engines: source %s, destination %s", c->nodes[COORD_SOURCE].engine, n->engine);
    c->phase = PHASE_LINK;
    link_begin(c, now_ns);
}
