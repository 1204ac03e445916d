#include "mover/stall.h"

#define NS_PER_S  UINT64_C(1000000000)
#define NS_PER_MS UINT64_C(1000000)

// A capped stream has this many times what STALL_BYTES take at its rate: it may wait for its turn.
enum { RATE_PATIENCE = 4, PROBES_DEAD = 2 };

void stall_path_begin(struct stall_path *p, uint64_t now_ns)
{
    p->since_ns = now_ns;
}

bool stall_path_dead(struct stall_path *p, const struct tcp_figures *tcp, uint64_t now_ns)
{
    uint64_t quiet_ns = u64_min(tcp->ack_age_ms * NS_PER_MS, now_ns);
    bool outstanding = tcp->unacked > 0 || tcp->probes >= PROBES_DEAD;
    p->since_ns = outstanding ? u64_max(p->since_ns, now_ns - quiet_ns) : now_ns;
    return now_ns - p->since_ns >= STALL_DEAD_NS;
}

void stall_trickle_begin(struct stall_trickle *t, const struct tcp_figures *tcp, uint64_t rate_bytes_s,
                         uint64_t now_ns)
{
    uint64_t paced_ns = rate_bytes_s > 0 ? RATE_PATIENCE * STALL_BYTES * NS_PER_S / rate_bytes_s : 0;
    *t = (struct stall_trickle){
        .window_ns = u64_max(STALL_WINDOW_NS, paced_ns), .since_ns = now_ns, .bytes = tcp->received};
}

bool stall_trickles(struct stall_trickle *t, const struct tcp_figures *tcp, uint64_t now_ns)
{
    if (tcp->received - t->bytes >= STALL_BYTES) {
        t->since_ns = now_ns;
        t->bytes = tcp->received;
    }
    return now_ns - t->since_ns >= t->window_ns;
}
