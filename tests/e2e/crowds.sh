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

# More problems than the control channel takes at a time are all told, and do not end the job.
problems() {
    fresh
    make_many source fifo 20000
    copy 1 source/ copied
    told '.entries.failed == 20000 and .entries.pending == 0 and .entries.moved == 20'
}

# A coordinator that rests (a stopped terminal, a laptop that sleeps) is waited for.
resting() {
    fresh
    make_many source file 20000
    copy 0 source/ copied
    start_copy rest source/ copied
    wait_event rest '.event == "notice" and (.text | contains("streams"))' >/dev/null
    kill -STOP "${PID[rest]}"
    sleep 3
    kill -CONT "${PID[rest]}"
    end_copy rest 0
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
    told '.entries.moved == .entries.total'
    is 700 "$(find copied -type f -size 2048k | wc -l)" 'files'
    no_leftovers copied
}

case_run problems problems
case_run resting resting
case_run descriptors descriptors
