#!/bin/bash
# tier: full
# cap: 300
# A data connection on which nothing passes any more, though nobody closes it: it is given up in the middle of a frame,
# and dialled again. Beside it the others go on.
source "$(dirname "$0")/../lib/job.sh"

MIB=$((1 << 20))
COPY_SECONDS=200

stalls() {
    fresh
    local began=$SECONDS
    # shellcheck disable=SC2086 # words
    start_process proxy /usr/bin/python3 -u "$LIB/proxy.py" "${PORT[agent]}" $1
    local port
    port=$(wait_line proxy 'listening on')
    copy 0 --key "$WORK/key" "$WORK/large/" "penstock://127.0.0.1:${port##* }/$2"
    wait_line proxy 'stall at' 1
    grep -F 'lost at the' "$OUT" || fail 'nobody was told' # by the end that is heard first
    [[ $((SECONDS - began)) -ge 25 && $((SECONDS - began)) -lt 100 ]] || fail "it took $((SECONDS - began)) s"
    same_copy "$WORK/large" "$WORK/root/$2"
}

one() {
    stalls 'stall:data:2:up:100000' one
}

all() {
    stalls 'stall:data:1:up:200000 stall:data:2:up:5000000 stall:data:3:up:1000 stall:data:4:up:4194500' all
}

mkdir -p "$WORK/large" "$WORK/root"
head -c $((60 * MIB)) /dev/urandom >"$WORK/large/a"
"$PENSTOCK" key "$WORK/key" >&2
start_agent agent --root "$WORK/root" --key "$WORK/key" >&2
case_run one one
case_run all all
