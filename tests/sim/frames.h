// Follows the frames on one direction of a data connection, by PROTOCOL.md and not by the product's code,
// counts them and chooses where trouble strikes.
#ifndef PENSTOCK_TESTS_SIM_FRAMES_H
#define PENSTOCK_TESTS_SIM_FRAMES_H

#include "proto/base.h"
#include "proto/limits.h"
#include "tests/sim/net.h"

enum frames_stage { FRAMES_GREETING, FRAMES_HEAD, FRAMES_REST };

struct frames {
    enum frames_stage stage;
    uint64_t left; // bytes of the stage to come
    uint8_t head[FRAME_HEAD_BYTES];
    size_t have;              // of the head
    uint64_t flip_in, cut_in; // bytes of the rest until then; UINT64_MAX: not in this frame
};

enum { FRAMES_FLIPS_MAX = 8 };

struct frames_found {
    size_t pass; // bytes that go on their way; fewer than given: the connection is cut behind them
    uint64_t stall_ns;
    unsigned flips;
    size_t flip_at[FRAMES_FLIPS_MAX]; // offsets of bytes that get a wrong bit
};

void frames_init(struct frames *f, size_t greeting_bytes);
void frames_pass(struct frames *f, struct net_trouble *trouble, const uint8_t *bytes, size_t len,
                 struct frames_found *out);

#endif
