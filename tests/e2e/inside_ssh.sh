#!/bin/bash
# tier: check
# Streams run inside ssh when no TCP connection can be made between the two ends, either way, and are dialled again when
# they are lost. The far ends live in network namespaces of their own, without a single interface that is up.
source "$(dirname "$0")/../lib/job.sh"

MIB=$((1 << 20))
FAR=127.0.0.9
FARTHER=127.0.0.8
RSH=(-e "$LIB/fake_rsh $WORK/far" --remote-path "$PENSTOCK")
INSIDE='streams run inside ssh'
FIRST='.event == "snapshot" and .bytes.moved > 0'

# host HOST: from now on HOST is somewhere else.
host() {
    start_process "$1" unshare --user --map-current-user --net sh -c 'echo ready && exec sleep 1000'
    wait_line "$1" ready >/dev/null || skip "an ordinary user can make no namespaces: $(tail -n 1 "${LOG[$1]}")"
    mkdir -p "$WORK/far"
    echo "${PID[$1]}" >"$WORK/far/$1"
}

begin() {
    rm -rf "$WORK/far"
    fresh
}

# Everything that runs at HOST beside what keeps its namespace.
processes_at() {
    pgrep --ns "${PID[$1]}" --nslist net | grep -vx "${PID[$1]}" || true
}

# Nothing runs at HOST any more, or soon.
nobody_at() {
    local pids
    mapfile -t pids < <(processes_at "$1")
    wait_gone 10 "${pids[@]}" || fail "at $1 there still is: $(processes_at "$1" | xargs -r ps -o pid=,args= -p)"
}

# The agent on this side of a started copy, which runs one program for each connection.
agent_here() {
    pgrep -P "${PID[$1]}" -f -- 'serve --stdio.* -- '
}

source_tree() {
    make_tree "$WORK/source"
    head -c $((60 * MIB)) /dev/urandom >"$WORK/source/large"
}

# All streams carry something, and together not more than they may. Four times a frame of 4 MiB goes at once.
three_streams() {
    told '[.streams[] | select(.bytes > 0 and .retransmits == 0)] | length == 3'
    told ".seconds >= ($((44 * MIB)) / 25000000)"
}

push() {
    begin
    host "$FAR"
    copy 0 "${RSH[@]}" --rate 200M --streams 3 "$WORK/source/" "$FAR:$PWD/copied"
    grep -F "no direct path between localhost and $FAR; $INSIDE" "$OUT"
    three_streams
    same_copy "$WORK/source" copied
    is '' "$(cat "$ERR")" 'messages of a copy without a problem'
    no_leftovers .
    nobody_at "$FAR"
}

pull() {
    begin
    host "$FAR"
    copy 0 "${RSH[@]}" --rate 200M --streams 3 "$FAR:$WORK/source/" copied
    grep -F "no direct path between $FAR and localhost; $INSIDE" "$OUT"
    three_streams
    same_copy "$WORK/source" copied
    is '' "$(cat "$ERR")" 'messages of a copy without a problem'
    no_leftovers .
    nobody_at "$FAR"
}

# lose FROM TO: a stream loses its program, and so what is at the far end of it, in the middle of a frame. What has
# ended is reaped, and another one takes its place.
lose() {
    local victim seconds
    start_copy job "${RSH[@]}" --rate 100M --streams 3 "$1" "$2"
    seconds=$(wait_event job "$FIRST" | jq .seconds)
    victim=$(pgrep -n -P "$(agent_here job)")
    kill -KILL "$victim"
    wait_event job '.event == "notice" and (.text | test("stream [0-9] lost .*dialling again"))'
    wait_event job ".event == \"snapshot\" and .seconds > $seconds + 1.5" >/dev/null
    is 4 "$(pgrep -c -P "$(agent_here job)")" 'programs of an agent with three streams'
    [[ ! -e /proc/$victim ]] || fail 'what ended was not reaped'
    end_copy job 0
    same_copy "$WORK/source" copied
    no_leftovers .
    nobody_at "$FAR"
}

lost_push() {
    begin
    host "$FAR"
    lose "$WORK/source/" "$FAR:$PWD/copied"
}

lost_pull() {
    begin
    host "$FAR"
    lose "$FAR:$WORK/source/" copied
}

# stop SIGNAL EXIT: nothing stays behind at either end, and the same command goes on.
stop() {
    local pids
    begin
    host "$FAR"
    start_copy job "${RSH[@]}" --rate 100M --streams 3 "$WORK/source/" "$FAR:$PWD/copied"
    wait_event job "$FIRST" >/dev/null
    mapfile -t pids < <(agent_here job && pgrep -P "$(agent_here job)")
    is 5 "${#pids[@]}" 'processes of an agent with three streams'
    kill -"$1" "${PID[job]}"
    end_copy job "$2"
    wait_gone 10 "${pids[@]}" || fail "one of ${pids[*]} outlives its job"
    nobody_at "$FAR"
    copy 0 "${RSH[@]}" "$WORK/source/" "$FAR:$PWD/copied"
    same_copy "$WORK/source" copied
    no_leftovers .
    nobody_at "$FAR"
}

interrupted() {
    stop INT 5
}

killed() {
    stop KILL 137
}

# Where TCP works nothing runs inside ssh.
direct() {
    begin
    copy 0 "${RSH[@]}" "$WORK/source/" "$FAR:$PWD/copied"
    grep -F 'the source dials' "$OUT"
    if grep -F "$INSIDE" "$OUT"; then
        fail 'streams ran inside ssh where they could be dialled'
    fi
    copy 0 "${RSH[@]}" --dial dst "$WORK/source/" "$FAR:$PWD/again"
    grep -F 'the destination dials' "$OUT"
}

# Two ends over ssh that cannot dial each other: the data must not pass here.
two_hosts() {
    begin
    host "$FAR"
    host "$FARTHER"
    copy 3 "${RSH[@]}" "$FAR:$WORK/source/" "$FARTHER:$PWD/copied"
    says "no path between $FAR and $FARTHER" "$FAR tried $FARTHER:" "$FARTHER tried $FAR:"
    told '.entries.moved == 0 and (.problems | map(select(.class == "start")) | length == 1)'
    nobody_at "$FAR"
    nobody_at "$FARTHER"
}

# The far end is not there for the second login, as behind a name that stands for several hosts.
other_host() {
    begin
    host "$FAR"
    cat >second <<END
#!/bin/sh
if mkdir "$PWD/called" 2>/dev/null; then
    exec "$LIB/fake_rsh" "$WORK/far" "\$@"
fi
exec "$LIB/fake_rsh" /nowhere "\$@"
END
    chmod +x second
    copy 3 -e ./second --remote-path "$PENSTOCK" "$WORK/source/" "$FAR:$PWD/copied"
    says "$FAR" 'inside ssh' 'that is not the host of the agent'
    nobody_at "$FAR"
}

# Who may name a program is who starts the agent, and then the agent is kept beneath no root.
programs() {
    begin
    local status=0
    "$PENSTOCK" serve --stdio --root / -- touch touched </dev/null || status=$?
    is 2 "$status" 'exit status with --root and a program'
    status=0
    "$PENSTOCK" serve --root / --key key -- touch touched </dev/null || status=$?
    is 2 "$status" 'exit status of a listener with a program'
    [[ ! -e touched ]]
}

source_tree
case_run push push
case_run pull pull
case_run lost_push lost_push
case_run lost_pull lost_pull
case_run interrupted interrupted
case_run killed killed
case_run direct direct
case_run two_hosts two_hosts
case_run other_host other_host
case_run programs programs
