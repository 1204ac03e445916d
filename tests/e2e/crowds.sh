#!/bin/bash
# tier: check
# What comes in crowds: problems, entries while nobody listens, files that all want a descriptor.
source "$(dirname "$0")/../lib/job.sh"

# make_many DIR KIND COUNT: names of some length, so that what is said of them fills channels.
make_many() {
    /usr/bin/python3 - "$@" <<'END'
import os
import sys

folder, kind, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
for number in range(count):
    beneath = f"{folder}/{number // 1000}"
    os.makedirs(beneath, exist_ok=True)
    name = f"{beneath}/{number:06}-{'x' * 200}"
    if kind == "fifo":
        os.mkfifo(name)
        continue
    with open(name, "wb") as file:
        file.truncate(2 << 20 if kind == "hole" else 0)
END
}

# copy_resting EXIT: copies while the coordinator rests for a while (a stopped terminal, a laptop that sleeps): it is
# waited for.
copy_resting() {
    rm -f "$REPORT"
    start_copy rest --json "$REPORT" source/ copied
    wait_line rest 'dials: ' >/dev/null || fail 'the agents were not linked'
    kill -STOP "${PID[rest]}"
    sleep 2
    kill -CONT "${PID[rest]}"
    end_copy rest "$1"
    sound_report "$1"
}

# More problems than the control channel takes at a time are all told, and do not end the job.
problems() {
    fresh
    make_many source fifo 30000
    copy_resting 1
    told '.entries.failed == 30000 and .entries.pending == 0'
}

entries() {
    fresh
    make_many source file 30000
    copy 0 source/ copied
    copy_resting 0
    told '.entries.skipped == .entries.total'
    same_copy source copied
}

# Files without data need no descriptor each: an account may have few.
descriptors() {
    fresh
    make_many source hole 700
    (
        ulimit -n 256
        copy 0 --streams 1 source/ copied
    )
    told '.entries.moved == 701 and .entries.pending == 0' # and the directory
    is 700 "$(find copied -type f -size 2048k | wc -l)" 'files'
    no_leftovers copied
}

case_run problems problems
case_run entries entries
case_run descriptors descriptors
