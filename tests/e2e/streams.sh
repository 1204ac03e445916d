#!/bin/bash
# tier: check
# cap: 600
# sets: engines builds
# Data connections: every way to drive them carries the same, and what goes wrong on the path is repaired or told.
source "$(dirname "$0")/../lib/job.sh"

MIB=$((1 << 20))
GREETING=120                          # bytes before the first frame: preamble, ask, proof
BODY=$((4 * MIB))                     # of a frame of a large file
FRAME=$((64 + BODY + 16 + 4 + 64 + 8 + 16)) # head, body, trailer of 1 extent and 4 leaves, tag

# ---- one tree, every way: OPTIONS; AGENT: through a listening agent ----

WAYS=(
    '--streams 1' '--streams 2' '--streams 8' '--streams 64' '--streams auto'
    '--encrypt off' '--encrypt off --streams 1 --stripe 1M'
    '--engine uring' '--engine aio' '--engine threads'
    '--direct on' '--direct off' '--engine aio --direct on' '--engine threads --direct on --encrypt off'
    '--rate 100M' '--rate 1G --streams 3' '--stripe 16M --streams 8'
    '--dial src' '--dial dst' '-4' '--bind 127.0.0.1' '--ports PORT-PORT2'
)

way() {
    fresh
    local options=$ROW port
    port=$(free_port)
    options=${options/PORT-PORT2/$port-$((port + 1))}
    if [[ $options == '--engine uring' && -z $URING ]]; then # forced all the same, it is no copy
        copy 3 --engine uring "$WORK/source/" here
        says 'start the engine: io_uring:'
        return
    fi
    # shellcheck disable=SC2086 # words
    copy 0 $options "$WORK/source/" here
    same_copy "$WORK/source" here
    no_leftovers here
    engine_is "$options"
    # shellcheck disable=SC2086 # words
    copy 0 --encrypt on --verify wire --key "$WORK/key" $options here/ "$AGENT/copied.$((++COUNT))"
    same_copy "$WORK/source" "$WORK/root/copied.$COUNT"
}
COUNT=0

engine_is() {
    local engine
    if [[ $1 == *--engine* ]]; then
        engine=${1#*--engine }
        engine=${engine%% *}
        told ".engine | (.source | startswith(\"$engine\")) and (.destination | startswith(\"$engine\"))"
    fi
}

# One port for data is enough when the other end has a listener.
one_port() {
    fresh
    copy 0 --key "$WORK/key" --ports "$(free_port)" "$WORK/source/" "$AGENT/through.one.port"
    same_copy "$WORK/source" "$WORK/root/through.one.port"
}

# Every connection of this host comes from the address that the user names, or none is made.
bound() {
    fresh
    copy 0 --key "$WORK/key" --bind 127.0.0.9 "$WORK/source/" "$AGENT/bound"
    grep -qF 'the source dials: 127.0.0.9:' "$OUT" || fail 'another address was used'
    copy 0 --bind 127.0.0.9 "$WORK/source/" here
    grep -qE 'the source dials: 127.0.0.9:[0-9]+ -> 127.0.0.9:' "$OUT" || fail 'another address was used here'
    copy 3 --bind 192.0.2.99 "$WORK/source/" there
    says 192.0.2.99
}

REFUSED=('3 assign --bind 192.0.2.99' '3 in_use --ports PORT')

refused() {
    fresh
    local expected words options
    for ROW in "${REFUSED[@]}"; do
        read -r expected words options <<<"${ROW/PORT/${PORT[agent]}}"
        # shellcheck disable=SC2086 # words
        copy "$expected" --key "$WORK/key" $options "$WORK/source/" "$AGENT/refused"
        says "${words//_/ }"
    done
}

# Both ends in memory, where files cannot be read or written directly.
in_memory() {
    local top
    [[ $(stat -f -c %T /dev/shm) == tmpfs && -w /dev/shm ]] || skip 'there is no /dev/shm'
    fresh
    top=$(mktemp -d /dev/shm/penstock-test.XXXXXX)
    ln -s "$top" top
    trap 'rm -rf "$(readlink "$WORK/case/top")"; end_processes 1' ERR
    cp -a "$WORK/source" top/source
    for ROW in '' '--engine aio' '--engine threads' '--direct on' '--streams 8 --encrypt off'; do
        # shellcheck disable=SC2086 # words
        copy 0 $ROW top/source/ top/copied
        same_copy "$WORK/source" top/copied
        # shellcheck disable=SC2086 # words
        copy 0 $ROW top/copied/ disk
        same_copy "$WORK/source" disk
        rm -r top/copied disk
    done
    rm -rf "$top"
}

# ---- faults on the path ----
# NAME RULES EXIT MOST; MOST: bytes that may go again, in stripes. A fault that a job does not survive is gone when the
# job is run again, and only what was not durable moves.

IN_BODY=$((GREETING + 64 + 100000))
FAULTS=(
    "cut_in_body      cut:data:1:up:$IN_BODY                             0 8"
    "end_in_body      end:data:1:up:$IN_BODY                             0 8"
    "cut_in_head      cut:data:2:up:$((GREETING + FRAME + 10))           0 8"
    "end_in_head      end:data:2:up:$((GREETING + FRAME + 10))           0 8"
    "end_between      end:data:1:up:$((GREETING + FRAME))                0 8"
    "cut_in_trailer   cut:data:1:up:$((GREETING + 64 + BODY + 20))       0 8"
    "cut_in_greeting  cut:data:3:up:60                                   0 0"
    "cut_all          cut:data:*:up:$((GREETING + 5 * FRAME / 2))        0 64"
    "flip_in_body     flip:data:1:up:$IN_BODY                            0 1"
    "flip_in_trailer  flip:data:1:up:$((GREETING + 64 + BODY + 20))      0 1"
    "flip_in_head     flip:data:1:up:$((GREETING + FRAME + 8))           0 8"
    "flip_in_head_0   flip:data:2:up:$((GREETING + 8))                   0 8"
    "flip_in_length   flip:data:1:up:$((GREETING + 40))                  0 8"
    "flip_in_preamble flip:data:2:up:20                                  0 0"
    "flip_in_proof    flip:data:2:up:100                                 0 0"
    "flip_in_answer   flip:data:2:down:40                                0 0"
    "flip_some        flip:data:*:up:$IN_BODY:$((9 * FRAME))             0 12"
    "wait             wait:data:1:up:$IN_BODY                            0 0"
    "flip_hello       flip:control:1:up:100                              3 0"
    "flip_control     flip:control:1:up:1000                             6 8"
    "cut_control      cut:control:1:down:900                             6 8"
    "flip_peer        flip:peer:1:up:150                                 6 8"
    "cut_peer         cut:peer:1:up:150                                  6 8"
)

# The path from the agent's port leads through the proxy.
path_with() {
    # shellcheck disable=SC2086 # words
    start_process proxy /usr/bin/python3 -u "$LIB/proxy.py" "${PORT[agent]}" $1
    PATH_PORT=$(wait_line proxy 'listening on')
    PATH_PORT=${PATH_PORT##* }
}

fault() {
    fresh
    local name rules expected most
    read -r name rules expected most <<<"$ROW"
    path_with "$rules"
    rm -rf "$WORK/root/large"
    # shellcheck disable=SC2086 # words
    copy "$expected" $OPTIONS --key "$WORK/key" "$WORK/large/" "penstock://127.0.0.1:$PATH_PORT/large"
    grep -qF " ${rules%%:*} at " "${LOG[proxy]}" || fail 'the fault did not happen'
    if [[ $expected -ne 0 ]]; then
        copy 0 --key "$WORK/key" "$WORK/large/" "$AGENT/large"
    fi
    told ".bytes.resent <= $((most * BODY))"
    [[ $name != flip_in_body && $name != flip_in_trailer ]] || told ".bytes.resent == $BODY"
    same_copy "$WORK/large" "$WORK/root/large"
    no_leftovers "$WORK/root/large"
}

# The agent is the source: the destination dials it, and the frames come down.
fault_down() {
    fresh
    path_with "cut:data:1:down:$((64 + 64 + 100000)) flip:data:2:down:$((64 + 64 + 100000))"
    copy 0 --dial dst --key "$WORK/key" "penstock://127.0.0.1:$PATH_PORT/source_of_large/" here
    grep -qF 'cut at' "${LOG[proxy]}"
    grep -qF 'flip at' "${LOG[proxy]}"
    told ".bytes.resent <= $((9 * BODY)) and .bytes.resent >= $BODY"
    same_copy "$WORK/large" here
}

# Every frame comes damaged: the file is given up by name, and what was there stays.
hopeless() {
    fresh
    mkdir -p "$WORK/root/hopeless"
    echo 'the old one' >"$WORK/root/hopeless/a"
    path_with "flip:data:*:up:$IN_BODY:$MIB"
    copy 7 --key "$WORK/key" "$WORK/large/a" "penstock://127.0.0.1:$PATH_PORT/hopeless/"
    told '.status == "wrong" and .problems[0].path == "a"'
    is 'the old one' "$(cat "$WORK/root/hopeless/a")" 'the old file'
    copy 0 --key "$WORK/key" "$WORK/large/a" "$AGENT/hopeless/"
    cmp "$WORK/large/a" "$WORK/root/hopeless/a"
}

# Where the address that the user has lets only the control connection through, the agent's own one may do.
other_address() {
    fresh
    path_with 'cut:peer:*:up:60 cut:data:*:up:60'
    copy 0 --dial src --key "$WORK/key" "$WORK/large/" "penstock://127.0.0.1:$PATH_PORT/around"
    grep -qF 'cut at' "${LOG[proxy]}"
    same_copy "$WORK/large" "$WORK/root/around"
}

make_tree "$WORK/source" 7 >&2
mkdir -p "$WORK/large" "$WORK/root"
head -c $((60 * MIB)) /dev/urandom >"$WORK/large/a"
head -c $((40 * MIB + 12345)) /dev/urandom >"$WORK/large/b"
cp -a "$WORK/large" "$WORK/root/source_of_large"
"$PENSTOCK" key "$WORK/key" >&2
start_agent agent --root "$WORK/root" --key "$WORK/key" >&2
AGENT=penstock://127.0.0.1:${PORT[agent]}
# Whether there is io_uring here, as no engine was asked for.
URING=$("$PENSTOCK" bench -q --json - memory:2M memory: | jq -r '.engine.source | select(startswith("uring"))')
for ROW in "${WAYS[@]}"; do case_run "with_${ROW//[^a-zA-Z0-9-]/_}" way; done
case_run one_port one_port
case_run bound bound
case_run refused refused
case_run in_memory in_memory
for ROW in "${FAULTS[@]}"; do OPTIONS='' case_run "${ROW%% *}" fault; done
for ROW in "${FAULTS[@]}"; do
    [[ $ROW != flip_in_* && $ROW != cut_in_* ]] || OPTIONS='--encrypt off' case_run "clear_${ROW%% *}" fault
done
case_run fault_down fault_down
case_run hopeless hopeless
case_run other_address other_address
