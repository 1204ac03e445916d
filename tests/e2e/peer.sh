#!/bin/bash
# tier: check
# cap: 300
# A second implementation of the wire sends to the agents and receives from them, and a hostile one gets nowhere.
source "$(dirname "$0")/../lib/e2e.sh"

cd "$(dirname "$0")/../.."
SOURCE=$WORK/source
ROOT=$WORK/root
KEY=$WORK/site.key

peer() {
    tests/peer.py "$@"
}

# same A B: the trees hold the same by tools of others: names, kinds, contents, link texts, modes, times.
same() {
    local left
    diff -r --no-dereference "$1" "$2" || fail "$1 and $2 differ"
    left=$(rsync -nac --delete --itemize-changes "$1/" "$2/")
    [[ -z $left ]] || fail "rsync would still do from $1 to $2: $left"
}

# What make_tree has, and more small files than a packed stripe takes.
source_tree() {
    make_tree "$SOURCE"
    mkdir "$SOURCE/packed"
    (cd "$SOURCE/packed" && seq 1100 | split -l 1 -a 3)
}

# sends NAME OPTION...: to the listening agent.
sends() {
    peer coordinate-and-send --key "$KEY" "${@:2}" "$SOURCE" "penstock://127.0.0.1:${PORT[agent]}/$1"
    same "$SOURCE" "$ROOT/$1"
    [[ ! -e $ROOT/$1/.penstock ]] || fail "leftovers of the job in $1"
}

receives() {
    peer receive --key "$KEY" "${@:2}" "penstock://127.0.0.1:${PORT[agent]}/tree" "$WORK/received/$1"
    same "$SOURCE" "$WORK/received/$1"
}

send() {
    sends tls
    sends agent-dials --agent-dials --streams 3
    sends plain --plain --stripe 4
    sends whole --segment-entries 4096 --stripe 16
    sends changed --changed size5255225 --changed names/plain
    sends bad --bad 5
}

# What is there already is skipped; the agent reads it again and finds it right, and what is not.
again() {
    sends tls | grep -F ' 0 moved' || fail 'what is there is moved once more'
    peer verify --key "$KEY" "penstock://127.0.0.1:${PORT[agent]}/tls" "$SOURCE" | grep -F '0 unproved, 0 wrong, 0 missing, 0 unreadable'
    printf X | dd of="$ROOT/bad/size65536" bs=1 seek=1000 conv=notrunc status=none
    peer verify --key "$KEY" "penstock://127.0.0.1:${PORT[agent]}/bad" "$SOURCE" >"$WORK/verified"
    grep -Fx 'wrong content size65536' "$WORK/verified" || fail "not found wrong: $(cat "$WORK/verified")"
}

receive() {
    receives tls
    receives agent-dials --agent-dials --streams 3
    receives plain --plain --stripe 16
    receives changed --changed size5255225 --changed names/plain
    receives bad --bad 5
    receives lost --breaks-at 3 --bad 1
    receives lost-dialled --breaks-at 3 --agent-dials
}

# An agent that is a child: the same conversation over its standard input and output.
child() {
    peer coordinate-and-send "$SOURCE" "$WORK/child"
    same "$SOURCE" "$WORK/child"
    peer receive "$WORK/child" "$WORK/child-back"
    same "$SOURCE" "$WORK/child-back"
}

# Nothing outside of the root is touched, and nothing is published but what was sent as it must be.
hostile() {
    local file name
    peer hostile --prepare "$WORK/hostile/root"
    cp -a "$WORK/hostile/outside" "$WORK/hostile/root/good" "$WORK"
    start_agent besieged --root "$WORK/hostile/root" --key "$KEY"
    peer hostile --key "$KEY" --log "${LOG[besieged]}" "penstock://127.0.0.1:${PORT[besieged]}" >"$WORK/hostile.out" ||
        fail "$(grep -c '^refused' "$WORK/hostile.out") cases refused, not these: $(grep -v '^refused' "$WORK/hostile.out")"
    same "$WORK/outside" "$WORK/hostile/outside"
    same "$WORK/good" "$WORK/hostile/root/good"
    [[ $(ls "$WORK/hostile") == $'outside\nroot' && ! -e /tmp/penstock-escaped ]] || fail 'something was made outside of the root'
    while IFS= read -r -d '' file; do
        name=${file#"$WORK"/hostile/root/hostile/*/}
        cmp "$file" "$WORK/good/$name"
    done < <(find "$WORK/hostile/root/hostile" -name .penstock -prune -o -type f -print0)
    mkdir "$WORK/hostile/root/after"
    peer coordinate-and-send --key "$KEY" "$SOURCE" "penstock://127.0.0.1:${PORT[besieged]}/after"
    same "$SOURCE" "$WORK/hostile/root/after"
}

source_tree
mkdir "$ROOT" "$WORK/received"
cp -a "$SOURCE" "$ROOT/tree"
"$PENSTOCK" key "$KEY"
start_agent agent --root "$ROOT" --key "$KEY"
case_run send send
case_run again again
case_run receive receive
case_run child child
case_run hostile hostile
