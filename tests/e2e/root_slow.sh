#!/bin/bash
# tier: check
# cap: 300
# A disk that does not answer: the job says which, waits, and ends when --io-timeout is over; no process of it is in the
# way of the next run. The disk is a file system that is frozen: who writes waits in the kernel, not to be killed.
source "$(dirname "$0")/../lib/job.sh"

MIB=$((1 << 20))

disk() {
    if mountpoint -q "$WORK/case/disk"; then
        thaw
        umount --lazy "$WORK/case/disk"
    fi
    fresh
    mkdir source disk
    head -c $((80 * MIB)) /dev/urandom >source/a
    head -c $((60 * MIB)) /dev/urandom >source/b
    split -a 4 -b 20000 --numeric-suffixes <(head -c $((4 * MIB)) /dev/urandom) source/f
    truncate -s 400M image
    mkfs.ext4 -q -F -m 0 image
    mount -o loop image disk
    rmdir disk/lost+found
}

freeze() {
    fsfreeze -f "$WORK/case/disk"
}

# The processes that hung are let go by the kernel then.
thaw() {
    local at=$WORK/case/disk
    fsfreeze -u "$at" 2>/dev/null || true
}

# Whoever still has the lock of the destination open has gone.
let_go() {
    local pid pids=()
    for pid in /proc/[0-9]*; do
        if find "$pid/fd" -lname '*/.penstock/lock' -print -quit 2>/dev/null | grep -q .; then
            pids+=("${pid#/proc/}")
        fi
    done
    wait_gone 20 "${pids[@]}"
}

begin() {
    disk
    trap 'thaw; end_processes 1' ERR
    start_copy job --rate 300M --io-timeout "$1" "${@:2}"
    wait_event job '.event == "snapshot" and .bytes.moved > 0' >/dev/null
    freeze
}

# It is told, and comes to nothing.
for_a_while() {
    begin 20s source/ disk
    wait_line job 'no answer for' 40
    grep -F "$WORK/case/disk (ext4)" "${LOG[job]}" >/dev/null || fail 'the mount is not named'
    thaw
    wait_line job 'answered after' 20
    end_copy job 0
    same_copy source disk
    no_leftovers disk
}

# The job ends in time, and names operation and mount; the same command goes on once the disk is back.
for_good() {
    local began=$SECONDS
    begin 6s "${@:-source/}" "${TO:-disk}"
    end_copy job 4
    [[ $((SECONDS - began)) -lt 40 ]] || fail "it took $((SECONDS - began)) s"
    grep -F 'no answer for' "${LOG[job]}" | grep -qF "$WORK/case/disk (ext4)" || fail 'the mount is not named'
    grep '^{' "${LOG[job]}" | jq -es 'any(.event == "problem" and .class == "storage")' >/dev/null ||
        fail 'no problem of class storage'
    thaw
    let_go
    copy 0 ${KEY:+--key "$KEY"} source/ "${TO:-disk}"
    same_copy source disk
    no_leftovers disk
}

# The child of a listener hangs; the listener serves on.
for_good_at_an_agent() {
    "$PENSTOCK" key "$WORK/key"
    mkdir -p "$WORK/case/disk"
    start_agent agent --root "$WORK" --key "$WORK/key"
    KEY=$WORK/key
    TO=penstock://127.0.0.1:${PORT[agent]}/case/disk
    for_good --key "$KEY" source/
    stop_process agent
}

case_run for_a_while for_a_while
case_run for_good for_good
case_run for_good_at_an_agent for_good_at_an_agent
thaw
umount --lazy "$WORK/case/disk"
