#!/bin/bash
# tier: check
# Streams inside a real ssh: two network namespaces joined by a wire on which only the port of sshd is let through.
# The script runs in namespaces of its own (network and mounts), which go with it.
if [[ -z ${OWN_NAMESPACES:-} ]]; then
    if ! why=$(unshare --net --mount ip rule add pref 10 ipproto tcp dport 22 lookup main 2>&1); then
        echo "skip root_inside_ssh.all no namespaces, or no rules for ports: $why"
        exit 0
    fi
    OWN_NAMESPACES=1 exec unshare --net --mount /bin/bash "$0"
fi
source "$(dirname "$0")/../lib/job.sh"

MIB=$((1 << 20))
PORT_SSH=2222
RSH=(-e "ssh -F $WORK/ssh_config" --remote-path "$PENSTOCK")
INSIDE='streams run inside ssh'
ALL='.event == "snapshot" and .stream_count == 3 and .bytes.moved > 0' # three streams have told of themselves

# only_ssh RUN...: with RUN in front a command works on one end of the wire. What the rules do not name is refused to
# the one who sends it.
only_ssh() {
    "$@" ip rule add pref 10 ipproto tcp dport "$PORT_SSH" lookup main
    "$@" ip rule add pref 11 ipproto tcp sport "$PORT_SSH" lookup main
    "$@" ip rule add pref 20 to 10.99.0.0/24 unreachable
}

wire() {
    start_process far unshare --net sh -c 'echo ready && exec sleep 1000'
    wait_line far ready >/dev/null
    FAR_PID=${PID[far]}
    FAR=(nsenter --target "$FAR_PID" --net)
    ip link add near0 type veth peer name far0 netns "$FAR_PID"
    ip address add 10.99.0.1/24 dev near0
    ip link set near0 up
    ip link set lo up
    "${FAR[@]}" ip address add 10.99.0.2/24 dev far0
    "${FAR[@]}" ip link set far0 up
    "${FAR[@]}" ip link set lo up
    only_ssh
    only_ssh "${FAR[@]}"
}

# One login at a time that is not finished: more are turned away.
start_sshd() {
    mount -t tmpfs tmpfs /run
    mkdir /run/sshd
    ssh-keygen -q -t ed25519 -N '' -f "$WORK/host_key"
    ssh-keygen -q -t ed25519 -N '' -f "$WORK/user_key"
    cat >"$WORK/sshd_config" <<END
Port $PORT_SSH
HostKey $WORK/host_key
AuthorizedKeysFile $WORK/user_key.pub
PermitRootLogin yes
StrictModes no
UsePAM no
PrintMotd no
MaxStartups 1
END
    cat >"$WORK/ssh_config" <<END
Host far
    HostName 10.99.0.2
    Port $PORT_SSH
    User root
    IdentityFile $WORK/user_key
    IdentitiesOnly yes
    StrictHostKeyChecking no
    UserKnownHostsFile /dev/null
    GlobalKnownHostsFile /dev/null
    BatchMode yes
    LogLevel ERROR
END
    start_process sshd "${FAR[@]}" /usr/sbin/sshd -D -e -f "$WORK/sshd_config"
    wait_line sshd 'Server listening on 0.0.0.0' >/dev/null || fail "sshd: $(cat "${LOG[sshd]}")"
}

# processes_far [OPTION]: everything of ours that runs at the far end, in no order; OPTION is one of pgrep.
processes_far() {
    pgrep "$@" --ns "$FAR_PID" --nslist net -f 'serve --stdio' || true
}

nobody_far() {
    local pids
    mapfile -t pids < <(processes_far)
    wait_gone 10 "${pids[@]}" || fail "at the far end there still is: $(processes_far | xargs -r ps -o pid=,args= -p)"
}

# ssh_of COPY [OPTION]: the ssh processes of a started copy, each a connection: the peer connection is the oldest.
ssh_of() {
    pgrep "${@:2}" -P "$(pgrep -P "${PID[$1]}" -f -- 'serve --stdio.* -- ')"
}

# The way that the tests are about, and that there is no other to whoever listens at the far end.
network() {
    local connect=(timeout 5 bash -c ': </dev/tcp/10.99.0.2/7420')
    ssh -F "$WORK/ssh_config" far true
    start_process listener "${FAR[@]}" /usr/bin/python3 -c '
import socket
listener = socket.create_server(("10.99.0.2", 7420))
print("ready", flush=True)
while True:
    listener.accept()'
    wait_line listener ready
    "${FAR[@]}" "${connect[@]}"
    if "${connect[@]}"; then
        fail 'the wire lets everything through'
    fi
}

source_tree() {
    make_tree "$WORK/source"
    head -c $((60 * MIB)) /dev/urandom >"$WORK/source/large"
}

push() {
    fresh
    copy 0 "${RSH[@]}" --rate 80M --streams 4 "$WORK/source/" "far:$PWD/copied"
    grep -F "no direct path between localhost and far; $INSIDE, 4 of them" "$OUT"
    told '.streams | length == 4'
    same_copy "$WORK/source" copied
    is '' "$(cat "$ERR")" 'messages of a copy without a problem'
    nobody_far
}

pull() {
    fresh
    copy 0 "${RSH[@]}" --rate 80M --streams 4 "far:$WORK/source/" copied
    grep -F "no direct path between far and localhost; $INSIDE, 4 of them" "$OUT"
    told '.streams | length == 4'
    same_copy "$WORK/source" copied
    is '' "$(cat "$ERR")" 'messages of a copy without a problem'
    nobody_far
}

# lose VICTIM: ssh of a stream, or what it runs at the far end, is killed; the stream is dialled again. The newest is
# a stream; the highest number need not be the newest, for numbers begin again.
lose() {
    local victim
    start_copy job "${RSH[@]}" --rate 80M --streams 3 "$2" "$3"
    wait_event job "$ALL" >/dev/null
    case $1 in
    near) victim=$(ssh_of job --newest) ;;
    far) victim=$(processes_far --newest) ;;
    esac
    kill -KILL "$victim"
    wait_event job '.event == "notice" and (.text | test("stream [0-9] lost .*dialling again"))'
    end_copy job 0
    same_copy "$WORK/source" copied
    nobody_far
}

lost_near() {
    fresh
    lose near "$WORK/source/" "far:$PWD/copied"
}

lost_far() {
    fresh
    lose far "far:$WORK/source/" copied
}

# All logins end at once: the job is lost, and nothing stays.
cut() {
    local pids
    fresh
    start_copy job "${RSH[@]}" --rate 80M --streams 3 "$WORK/source/" "far:$PWD/copied"
    wait_event job "$ALL" >/dev/null
    mapfile -t pids < <(ssh_of job)
    is 4 "${#pids[@]}" 'logins of an agent with three streams'
    pkill -KILL --ns "$FAR_PID" --nslist net -f 'sshd: root'
    end_copy job 6
    wait_gone 10 "${pids[@]}" || fail "one of ${pids[*]} outlives its job"
    nobody_far
    copy 0 "${RSH[@]}" "$WORK/source/" "far:$PWD/copied"
    same_copy "$WORK/source" copied
    nobody_far
}

set -e
wire
start_sshd
source_tree
set +e
case_run network network
case_run push push
case_run pull pull
case_run lost_near lost_near
case_run lost_far lost_far
case_run cut cut
