// An agent that is there, answers pings, and does not do what it was asked. The waits of a job and what ends
// them:
//
//   opening                  storage: an answer within PATIENCE
//   links                    coord_link.c: 30 s without a stream, inside ssh 150 s before the first
//   a lease, to be repeated  ANSWER_NS
//   a segment that the destination speaks of and the source has not closed, or that the source has laid out
//   and the destination does not call compared: the other's words are on their way: ANSWER_NS
//   anything else of walk, segments, retry and closing pass: news of whatever kind within PATIENCE
//   the closing              coord_end.c: 30 s
//
// PATIENCE is what storage may take for one answer, and a minute; with a cap on the rate also the time that
// one stripe of each stream takes. News is what rules in coord.c says, and bytes that were sent; pings are
// none. Before the first word, where somebody may have to type a password, the owner's own limits hold.
#include "mover/plan/coord_state.h"

#define SECOND_NS UINT64_C(1000000000)
// Longer than anybody waits, and far from what would not fit.
#define PATIENCE_S_MAX UINT64_C(315360000)

static uint64_t patience_ns(const struct coord *c)
{
    const struct coord_config *cfg = &c->cfg;
    uint64_t wait_s = cfg->io_timeout_s != 0 ? cfg->io_timeout_s : IO_TIMEOUT_S_DEFAULT;
    if (cfg->rate_bits != 0)
        wait_s += UINT64_C(8) * cfg->stripe_bytes * cfg->streams / cfg->rate_bits;
    return u64_min(wait_s, PATIENCE_S_MAX) * SECOND_NS + IO_MARGIN_NS;
}

// Whom the next news must come from (COORD_NODES: from either), and what it would be.
static unsigned awaited(const struct coord *c, const char **what)
{
    const struct coord_segment *s = c->segments;
    if (c->phase == PHASE_OPEN_SOURCE || c->phase == PHASE_OPEN_DEST) {
        *what = "open its paths";
        return c->phase == PHASE_OPEN_SOURCE ? COORD_SOURCE : COORD_DEST;
    }
    if (c->phase == PHASE_FINISH) {
        *what = "finish directories";
        return COORD_DEST;
    }
    if (s == NULL || !s->closed) {
        *what = "list its files";
        return COORD_SOURCE;
    }
    if (!s->compared) {
        *what = "compare its files";
        return COORD_DEST;
    }
    if (!s->laid) {
        *what = "lay out what is needed";
        return COORD_SOURCE;
    }
    *what = c->leases != NULL ? "move data" : "publish files";
    return c->leases != NULL ? COORD_NODES : COORD_DEST;
}

static void stop_late(struct coord *c, unsigned node, const char *what, uint64_t wait_ns, uint64_t now_ns)
{
    unsigned wait_s = (unsigned)(wait_ns / SECOND_NS);
    if (node < COORD_NODES)
        coord_stop_words(c, ERR_LOST, node, now_ns, "it was to %s, and nothing came of it for %u s", what,
                         wait_s);
    else
        coord_stop_words(c, ERR_LOST, node, now_ns, "%s and %s were to %s, and nothing came of it for %u s",
                         c->cfg.names[COORD_SOURCE], c->cfg.names[COORD_DEST], what, wait_s);
}

// The oldest answer that is missing and needs no storage: since when, or UINT64_MAX.
static uint64_t oldest_question(const struct coord *c, unsigned *node, const char **what)
{
    uint64_t since_ns = UINT64_MAX;
    for (const struct coord_segment *s = c->segments; s != NULL; s = s->after) {
        bool missing = !s->closed || (s->laid && !s->compared);
        if (!missing || s->told_ns >= since_ns)
            continue;
        since_ns = s->told_ns;
        *node = s->closed ? COORD_DEST : COORD_SOURCE;
        *what = s->closed ? "say that a segment is compared" : "say that a segment is closed";
    }
    for (const struct coord_lease *l = c->leases; l != NULL; l = l->after) {
        if (l->with_source || l->given_ns >= since_ns)
            continue;
        since_ns = l->given_ns;
        *node = COORD_DEST;
        *what = "answer a lease";
    }
    return since_ns;
}

uint64_t wait_tick(struct coord *c, uint64_t now_ns)
{
    if (c->phase < PHASE_OPEN_SOURCE || c->phase == PHASE_LINK || c->phase >= PHASE_CLOSE)
        return UINT64_MAX;
    const char *what = "";
    unsigned node = COORD_NODES;
    uint64_t since_ns = oldest_question(c, &node, &what);
    uint64_t answer_ns = since_ns == UINT64_MAX ? UINT64_MAX : since_ns + ANSWER_NS;
    uint64_t news_ns = c->progress_ns + patience_ns(c);
    if (now_ns >= answer_ns) {
        stop_late(c, node, what, ANSWER_NS, now_ns);
    } else if (now_ns >= news_ns) {
        node = awaited(c, &what);
        stop_late(c, node, what, patience_ns(c), now_ns);
    } else {
        return u64_min(answer_ns, news_ns);
    }
    return UINT64_MAX;
}
