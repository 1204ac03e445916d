// In which way the two agents of a session come together: one dials the other, or inside ssh.
#include <stdio.h>
#include <string.h>

#include "mover/plan/coord_state.h"

// In the order in which they are tried: each end dials (COORD_SOURCE, COORD_DEST), then each end dials inside
// ssh.
enum { WAYS = 2 * COORD_NODES, WORDS_MAX = 120 };

static bool is_open(const struct coord *c, unsigned way)
{
    return way < COORD_NODES ? c->cfg.may_dial[way] : c->cfg.dials_inside[way - COORD_NODES];
}

// Where an acceptor can be reached: first by the name that the user has for it, then as it says itself; no
// more than a dialler takes. Returns the bytes of the list.
static size_t addresses_of(const struct coord *c, unsigned acceptor, uint8_t *out, size_t out_len)
{
    const struct coord_node *to = &c->nodes[acceptor];
    const char *host = c->cfg.dial_host[acceptor];
    struct wire_writer list;
    wire_writer_init(&list, out, out_len);
    uint32_t count = 0;
    if (host[0] != '\0') {
        char text[ADDRESS_BYTES_MAX + 16];
        uint16_t port = c->cfg.dial_port[acceptor] != 0 ? c->cfg.dial_port[acceptor] : to->port;
        int len = snprintf(text, sizeof text, strchr(host, ':') != NULL ? "[%s]:%u" : "%s:%u", host, port);
        wire_put_blob(&list, text, (size_t)len);
        count++;
    }
    struct wire_reader r;
    wire_reader_init(&r, to->addresses, to->addresses_len);
    for (; count < ADDRESSES_MAX && wire_left(&r) > 0; count++) {
        size_t len;
        const uint8_t *text = wire_get_blob(&r, ADDRESS_BYTES_MAX - 1, &len);
        if (text == NULL || len + sizeof(uint32_t) > (size_t)(list.end - list.at))
            break;
        wire_put_blob(&list, text, len);
    }
    return (size_t)(list.at - list.start);
}

// Tells both ends who dials; the dialler begins with the peer connection and then its streams.
static void link_send(struct coord *c)
{
    const struct coord_session *s = &c->session;
    unsigned acceptor = coord_other(s->dialler);
    uint8_t addresses[4 * KIB];
    struct message m = {.type = MESSAGE_LINK,
                        .link = {.dial = LINK_EXPECT,
                                 .streams = s->stream_count,
                                 .acceptor = job_id_at(&c->cfg.job, acceptor)}};
    coord_send(c, acceptor, &m);
    m.link.dial = s->inside ? LINK_INSIDE : LINK_DIAL;
    if (!s->inside)
        m.link.addresses = blob_of(addresses, addresses_of(c, acceptor, addresses, sizeof addresses));
    coord_send(c, s->dialler, &m);
}

// Tries the first open way from `way` on. false: there is none.
static bool try_from(struct coord *c, unsigned way, uint64_t now_ns)
{
    struct coord_session *s = &c->session;
    while (way < WAYS && !is_open(c, way))
        way++;
    if (way == WAYS)
        return false;
    s->way = way;
    s->dialler = way % COORD_NODES;
    s->inside = way >= COORD_NODES;
    s->alone_ns = now_ns;
    link_send(c);
    return true;
}

bool way_begin(struct coord *c, uint64_t now_ns)
{
    return try_from(c, 0, now_ns);
}

// Addresses as words: "a:1, b:2", and when they do not fit the rest as a number.
static void addresses_words(const struct blob *list, char *out, size_t out_len)
{
    struct wire_reader r;
    wire_reader_init(&r, list->bytes, list->len);
    size_t at = 0;
    unsigned left_out = 0;
    snprintf(out, out_len, "no address");
    while (wire_left(&r) > 0) {
        size_t len;
        const uint8_t *text = wire_get_blob(&r, ADDRESS_BYTES_MAX, &len);
        char one[ADDRESS_BYTES_MAX];
        if (text == NULL)
            break;
        err_escape(one, sizeof one, text, len);
        if (left_out > 0 || at + strlen(one) + sizeof ", and 99 more" > out_len)
            left_out++;
        else
            at += (size_t)snprintf(out + at, out_len - at, "%s%s", at > 0 ? ", " : "", one);
    }
    if (left_out > 0)
        snprintf(out + at, out_len - at, "%s%u more", at > 0 ? " and " : "", left_out);
}

// The way that failed joins those that were tried.
static void tried_add(struct coord *c, const char *why)
{
    struct coord_session *s = &c->session;
    uint8_t bytes[4 * KIB];
    char addresses[WORDS_MAX + 32];
    size_t at = strlen(s->tried);
    const char *gap = at > 0 ? "; " : "";
    unsigned acceptor = coord_other(s->dialler);
    struct blob list = blob_of(bytes, addresses_of(c, acceptor, bytes, sizeof bytes));
    addresses_words(&list, addresses, sizeof addresses);
    if (s->inside)
        snprintf(s->tried + at, sizeof s->tried - at, "%sinside ssh (%s)", gap, why);
    else
        snprintf(s->tried + at, sizeof s->tried - at, "%s%s tried %s (%.*s)", gap, c->cfg.names[s->dialler],
                 addresses, WORDS_MAX, why);
}

void way_failed(struct coord *c, const char *why, uint64_t now_ns)
{
    const struct coord_session *s = &c->session;
    unsigned from = s->dialler;
    tried_add(c, why);
    if (try_from(c, s->way + 1, now_ns))
        coord_notice(c, "%s cannot dial %s (%s); trying %s", c->cfg.names[from],
                     c->cfg.names[coord_other(from)], why, s->inside ? "inside ssh" : "the other way");
    else
        coord_stop_words(c, ERR_START, COORD_NODES, now_ns, "no path between %s and %s: %s",
                         c->cfg.names[COORD_SOURCE], c->cfg.names[COORD_DEST], s->tried);
}
