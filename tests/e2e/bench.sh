#!/bin/bash
# tier: check
# sets: builds
# penstock bench: data sets that are nowhere, at one end or both, move as any other and leave nothing.
source "$(dirname "$0")/../lib/job.sh"

MIB=$((1 << 20))
SHM=/dev/shm

bench() {
    local expected=$1 status=0
    shift
    timeout 120 "$PENSTOCK" bench --state "$STATE" --json "$REPORT" "$@" >"$OUT" 2>"$ERR" </dev/null || status=$?
    echo "penstock bench $*: exit $status"
    head -n 40 "$OUT" "$ERR"
    is "$expected" "$status" "exit status of bench $*"
    [[ $expected -eq 2 ]] || sound_report "$expected"
}

# Folders of data sets in memory: of this user.
left() {
    find "$SHM" -maxdepth 1 -name 'penstock-memory-*' -user "$(id -u)"
}

nothing_left() {
    is '' "$(left)" 'what is left in memory'
    [[ ! -e $STATE/receipts ]] || is '' "$(ls "$STATE/receipts")" 'receipts of what cannot be proved'
}

memory_to_memory() {
    local encrypt engine
    fresh
    for encrypt in on off; do
        for engine in auto threads; do
            bench 0 --encrypt "$encrypt" --engine "$engine" --streams 3 memory:200Mx3 memory:
            told ".bytes.moved == $((600 * MIB)) and .entries.moved == 3 and (.streams | length == 3)"
            grep -qxF "memory:200Mx3 -> memory" "$OUT"
            nothing_left
        done
    done
    bench 0 --stripe 1M memory:1048577 memory:
    told '.bytes.moved == 1048577'
}

# Every block says where it belongs.
memory_to_disk() {
    fresh
    mkdir -m 0751 there
    bench 0 memory:6300001x2 there
    is 751 "$(stat -c %a there)" 'mode of a directory that was there'
    is '00000000 00000001' "$(find there -type f -printf '%f\n' | sort | xargs)" 'names'
    python3 - there/00000000 there/00000001 <<'END'
import struct, sys
seen = set()
for path in sys.argv[1:]:
    data = open(path, "rb").read()
    assert len(data) == 6300001
    stamps = [struct.unpack_from("<QQ", data, at) for at in range(0, len(data) - 15, 4096)]
    assert [at for at, _ in stamps] == list(range(0, len(data) - 15, 4096))
    assert len({number for _, number in stamps}) == 1
    seen |= {data[at:at + 4096] for at in range(0, len(data), 4096)}
assert len(seen) == 2 * -(-6300001 // 4096), "blocks are alike"
END
    no_leftovers there
    nothing_left
}

disk_to_memory() {
    fresh
    make_tree source
    head -c $((30 * MIB + 5)) /dev/urandom >source/large
    mkdir source/closed
    cp source/large source/closed/large
    chmod 0555 source/closed source
    bench 0 source/ memory:
    told '.entries.moved + .entries.skipped == .entries.total and .bytes.moved == .bytes.needed'
    nothing_left
}

# What is forgotten takes no room, also of small files.
forgotten() {
    fresh
    mkdir source
    split -a 4 -b 200000 --numeric-suffixes <(head -c 80000000 /dev/urandom) source/f
    start_process job "$PENSTOCK" bench --json-events --rate 160M source/ memory:
    wait_event job '.event == "snapshot" and .bytes.sent > 30000000' >/dev/null
    [[ $(du -sk "$(left)" | cut -f 1) -lt 8000 ]] || fail "in memory there is $(du -sk "$(left)")"
    end_copy job 0
    nothing_left
}

# At running agents, whose roots have nothing to do with it.
agents() {
    fresh
    mkdir root
    "$PENSTOCK" key key >/dev/null
    start_agent a --root "$PWD/root" --key key
    bench 0 --key key "penstock://127.0.0.1:${PORT[a]}/memory:100M" memory:
    told ".bytes.moved == $((100 * MIB))"
    bench 0 --key key memory:100M "penstock://127.0.0.1:${PORT[a]}/memory:"
    told ".bytes.moved == $((100 * MIB))"
    stop_process a
    is '' "$(ls -A root)" 'what is left at the root'
    nothing_left
}

interrupted() {
    fresh
    start_process job "$PENSTOCK" bench --json-events --rate 200M memory:2G memory:
    wait_event job '.event == "snapshot" and .bytes.moved > 0' >/dev/null
    kill -INT "${PID[job]}"
    end_copy job 5
    nothing_left
}

# What agents that were killed leave goes with the next job; what lives stays.
killed() {
    fresh
    start_process job "$PENSTOCK" bench --json-events --rate 200M memory:2G memory:
    start_process other "$PENSTOCK" bench --json-events --rate 200M memory:2G memory:
    wait_event job '.event == "snapshot" and .bytes.moved > 0' >/dev/null
    wait_event other '.event == "snapshot" and .bytes.moved > 0' >/dev/null
    pkill -KILL -P "${PID[job]}"
    end_copy job 6
    is 4 "$(left | wc -l)" 'folders of two jobs'
    bench 0 memory:2M memory:
    is 2 "$(left | wc -l)" 'folders of the job that lives'
    kill -INT "${PID[other]}"
    end_copy other 5
    nothing_left
}

wrong() {
    local row
    fresh
    while IFS='|' read -r row words; do
        # shellcheck disable=SC2086 # operands
        bench 2 $row
        says "$words"
    done <<END
memory: memory:|has no size
memory:1M memory:|not more than 1 MiB
memory:2Mx0 memory:|is not memory:SIZE
memory:2M memory:4M|the size of what comes
memory:2M source memory:|the only source
memory:2Mx100001 memory:|more than 100000 files
memory:2M|SRC and DST are needed
END
    nothing_left
}

# A copy knows no such word: it is a host.
not_copied() {
    fresh
    mkdir here
    run_wrong=0
    timeout 60 "$PENSTOCK" copy -e false memory:2M here >"$OUT" 2>"$ERR" </dev/null || run_wrong=$?
    is 3 "$run_wrong" 'exit status of a copy from a host named memory'
}

for ROW in memory_to_memory memory_to_disk disk_to_memory forgotten agents interrupted killed wrong not_copied; do
    case_run "$ROW" "$ROW"
done
