#!/bin/bash
# tier: full
# cap: 500
# A path that drops what is sent and resets nothing: the stream is given up within half a minute or so, and dialled
# again. A disk that takes nothing for longer than that is another matter: its streams stand still, and stand. The script
# runs in a network namespace of its own, in which rules for ports drop packets on their way.
if [[ -z ${OWN_NAMESPACES:-} ]]; then
    if ! why=$(unshare --net ip rule add pref 10 ipproto tcp dport 22 lookup main 2>&1); then
        echo "skip root_still.all no namespaces, or no rules for ports: $why"
        exit 0
    fi
    OWN_NAMESPACES=1 exec unshare --net --mount /bin/bash "$0"
fi
source "$(dirname "$0")/../lib/job.sh"

MIB=$((1 << 20))
COPY_SECONDS=200

begin() {
    if mountpoint -q "$WORK/case/disk"; then
        umount --lazy "$WORK/case/disk"
    fi
    fresh
    mkdir source
    head -c $((90 * MIB)) /dev/urandom >source/a
    while ip rule del pref 5 2>/dev/null; do :; done
}

# The port from which the source dialled the stream that has carried the most.
busiest() {
    ss -tniHO state established "( dport = :${PORT[agent]} )" |
        sed -nE 's/.*127\.0\.0\.1:([0-9]+) +127\.0\.0\.1:.* bytes_sent:([0-9]+).*/\2 \1/p' | sort -n | tail -n 1 | cut -d ' ' -f 2
}

# dies NAME WORDS...: packets of one stream to which such rules apply are dropped.
dies() {
    begin
    local port words began
    start_copy job --rate 20M --key "$WORK/key" source/ "penstock://127.0.0.1:${PORT[agent]}/$1"
    wait_event job '.event == "snapshot" and .bytes.moved > 0' >/dev/null
    port=$(busiest)
    began=$SECONDS
    for words in "${@:2}"; do
        # shellcheck disable=SC2086 # words
        ip rule add pref 5 ipproto tcp ${words/PORT/$port} blackhole
    done
    wait_line job 'lost at the' 70 >lost || fail 'nobody noticed'
    [[ $((SECONDS - began)) -ge 20 ]] || fail "it was given up after $((SECONDS - began)) s"
    [[ -z ${BY:-} ]] || grep -F "$BY" lost || fail "told was $(cat lost)"
    end_copy job 0
    is 1 "$(grep '^{' "${LOG[job]}" | grep -c 'lost at the')" 'streams that were lost'
    same_copy source "$WORK/root/$1"
}

# Neither way.
silence() {
    dies silence 'sport PORT' 'dport PORT'
}

# What is sent arrives, and no acknowledgement comes back: only the sender can know.
unacknowledged() {
    BY='lost at the source (send: Connection timed out)' dies unacknowledged 'dport PORT'
}

# Nothing is read from the streams for longer than a path may be silent.
slow_disk() {
    begin
    mkdir disk
    truncate -s 400M image
    mkfs.ext4 -q -F -m 0 image
    mount -o loop image disk
    rmdir disk/lost+found
    start_copy job --rate 300M source/ disk
    wait_event job '.event == "snapshot" and .bytes.moved > 0' >/dev/null
    fsfreeze -f disk
    trap 'fsfreeze -u "$WORK/case/disk"; end_processes 1' ERR
    wait_line job 'no answer for 6' 80 >told || fail 'nobody was told after a minute'
    sleep 30
    fsfreeze -u disk
    wait_line job 'answered after' 20
    end_copy job 0
    is 0 "$(grep -c 'lost at the' "${LOG[job]}")" 'streams that were lost'
    same_copy source disk
}

ip link set lo up
ip rule add pref 10 lookup local # behind the rules that drop
ip rule del pref 0
mkdir -p "$WORK/root"
"$PENSTOCK" key "$WORK/key" >&2
start_agent agent --root "$WORK/root" --key "$WORK/key" >&2
case_run silence silence
case_run unacknowledged unacknowledged
case_run slow_disk slow_disk
umount --lazy "$WORK/case/disk"
