// The source agent's side of a job, as a pure machine: which leased stripes are still to be sent, which went
// out on which stream, and what goes back to the pool when a stream ends. Events are function calls, the
// answer is their result; no thread, clock or socket inside. The owner keeps it under one lock: workers take
// stripes from this one cursor.
//
// A leased stripe is FREE, TAKEN by a stream attempt, SENT as the n-th frame of it, or SETTLED (not to be
// sent any more). The receiver counts the frames that came whole; those with a higher number are FREE again.
// That, and a stripe that arrived with a wrong digest, are the only ways back.
#ifndef PENSTOCK_MOVER_PLAN_SOURCE_H
#define PENSTOCK_MOVER_PLAN_SOURCE_H

#include "proto/base.h"
#include "proto/limits.h"

struct source_plan;
MUST_CHECK struct source_plan *source_plan_new(void);
void source_plan_free(struct source_plan *p);

// The coordinator leased stripes first..first+count-1. -EPROTO: no stripes, too many, or stripes of another
// open lease; -ENOMEM.
MUST_CHECK int source_plan_lease(struct source_plan *p, uint64_t lease, uint64_t segment, uint64_t first,
                                 uint32_t count);
// All of the lease is durable or settled: forget it. Unknown: -EPROTO.
MUST_CHECK int source_plan_lease_done(struct source_plan *p, uint64_t lease);

// Whether a lease of the segment is open.
bool source_plan_leased(const struct source_plan *p, uint64_t segment);

// The next stripe to send, the lowest first, for a stream attempt that is not over; *again: it was on a
// stream before. false: none now.
bool source_plan_take(struct source_plan *p, uint32_t stream, uint32_t attempt, uint64_t *segment,
                      uint64_t *stripe, bool *again);
// It was put on the stream as frame number `frame` (from 0).
void source_plan_sent(struct source_plan *p, uint64_t stripe, uint32_t stream, uint32_t attempt,
                      uint64_t frame);
// The receiver's word: of this attempt `frames` frames came whole. Everything else that the attempt had taken
// is FREE again. The attempt, and every earlier one of the stream, gets no stripe from now on. Returns how
// many went back.
uint64_t source_plan_stream_ended(struct source_plan *p, uint32_t stream, uint32_t attempt, uint64_t frames);
// The stripe arrived damaged: FREE again. false: it was not sent (a late word about a stripe that is done).
bool source_plan_bad(struct source_plan *p, uint64_t stripe);
// These need not be sent (any more).
void source_plan_settle(struct source_plan *p, uint64_t first, uint64_t count);
// Whether the stripe is still to be sent by this attempt: asked before a frame is queued, so that a settled
// one is dropped.
bool source_plan_wanted(const struct source_plan *p, uint64_t stripe, uint32_t stream, uint32_t attempt);

#endif
