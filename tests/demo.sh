#!/bin/bash
# `make demo`: two agents on this machine, a data set replicated over four streams, the receiving agent killed half way, the same
# command run again, the copy verified against its receipt. Leaves nothing running and nothing behind.
set -euo pipefail

penstock=${PENSTOCK:-$(dirname "$0")/../build/penstock}
penstock=$(realpath "$penstock")
work=$(mktemp -d "${TMPDIR:-/tmp}/penstock-demo.XXXXXX")
agents=()

clean_up() {
    for pid in "${agents[@]}"; do
        kill "$pid" 2>/dev/null || true
    done
    wait
    rm -rf "$work"
}
trap clean_up EXIT

step() {
    printf '\n\033[1m== %s\033[0m\n' "$*"
}

show() {
    printf '$ %s\n' "penstock $*"
    "$penstock" "$@"
}

# Starts an agent for the directory $1 on a port of the kernel's choice; sets `port`.
start_agent() {
    mkfifo "$work/$1.out"
    "$penstock" serve --root "$work/$1" --listen 127.0.0.1:0 --key "$work/key" 2>"$work/$1.out" &
    agents+=($!)
    exec {agent_out}<"$work/$1.out"
    local line
    while read -r -t 10 line <&"$agent_out"; do
        if [[ $line == *"listening on "* ]]; then
            port=${line##*:}
            return
        fi
    done
    echo "the agent for $1 did not start" >&2
    exit 1
}

# The newest child of a listening agent: the job that it serves.
job_of() {
    pgrep -n -P "$1"
}

step "A data set: two large files, 2,000 small ones, links and a sparse file"
mkdir -p "$work/tokyo/run7/small" "$work/amsterdam"
for i in 1 2; do
    head -c 160M /dev/urandom >"$work/tokyo/run7/large$i"
done
head -c 8M /dev/urandom | split -b 4K -a 3 - "$work/tokyo/run7/small/part-"
truncate -s 64M "$work/tokyo/run7/sparse"
ln -s large1 "$work/tokyo/run7/latest"
du -sh --apparent-size "$work/tokyo/run7"

step "Two agents, one key"
show key "$work/key"
start_agent tokyo
tokyo=penstock://127.0.0.1:$port
start_agent amsterdam
amsterdam=penstock://127.0.0.1:$port
receiver=${agents[1]}
echo "tokyo: $tokyo   amsterdam: $amsterdam"

step "The copy, paced at 400 Mbit/s; the receiving agent of the job is killed when half of it is durable"
copy=(copy --key "$work/key" --state "$work/state" --streams 4 "$tokyo/run7" "$amsterdam/")
printf '$ penstock %s\n' "${copy[*]:0:1} --rate 400M ${copy[*]:1}"
mkfifo "$work/events"
"$penstock" "${copy[@]}" --rate 400M --json-events >"$work/events" 2>"$work/first.err" &
first=$!
while read -r event; do
    moved=$(sed -n 's/.*"moved":\([0-9]*\),"sent".*/\1/p' <<<"$event")
    [[ -n $moved ]] || continue
    printf '%s MiB durable\n' $((moved / 1048576))
    if [[ $moved -gt 167772160 && ! -e $work/killed ]]; then
        touch "$work/killed"
        echo "killing the receiving agent's process"
        kill -9 "$(job_of "$receiver")"
    fi
done <"$work/events"
status=0
wait "$first" || status=$?
cat "$work/first.err"
echo "exit $status"
[[ -e $work/killed ]] || { echo "the copy was over before it could be killed" >&2; exit 1; }

step "The same command again: only what was not durable moves"
show "${copy[@]}" --progress -v --json "$work/report.json"

step "Verify: the copy is read again and compared with the receipt"
receipt=$(ls "$work"/state/receipts/*.receipt)
show verify "$receipt" "$work/amsterdam"
diff -r --no-dereference "$work/tokyo/run7" "$work/amsterdam/run7"
echo "diff -r finds no difference"

step "The report"
cat "$work/report.json"
