#!/bin/bash
# tier: check
# cap: 300
# A finished copy is read again wherever it lies, beneath the place that its receipt names or another; what is not as the
# receipt says is named, and nothing is written there.
source "$(dirname "$0")/../lib/job.sh"

MIB=$((1 << 20))
RSH="$LIB/fake_rsh $WORK/hosts" # no files in there: every host is this one

# verify EXIT ARGS...
verify() {
    local expected=$1 status=0
    shift
    timeout 120 "$PENSTOCK" verify "$@" >"$OUT" 2>"$ERR" </dev/null || status=$?
    echo "penstock verify $*: exit $status"
    head -n 40 "$OUT" "$ERR"
    is "$expected" "$status" "exit status of verify $*"
}

# As verify, with what the places of these tests need.
verify_any() {
    verify "$1" --key key -e "$RSH" --remote-path "$PENSTOCK" "${@:2}"
}

copy_any() {
    copy "$1" --key key -e "$RSH" --remote-path "$PENSTOCK" "${@:2}"
    RECEIPT=$(jq -r .receipt "$REPORT")
}

# Tells how many entries were what.
tally() {
    tail -n 1 "$OUT" | sed -E 's/ \(.* read again\)//; s/^[a-z, ]*: //; s/ entries//'
}

# All of them right, none left out.
all_right() {
    is "$1 right, 0 unproved, 0 wrong, 0 missing, 0 unreadable" "$(tally)" "what verify says of $2"
}

# An agent that copies can write to, and one at the same root that only gives out.
two_agents() {
    fresh
    mkdir root hosts
    "$PENSTOCK" key key >/dev/null
    start_agent a --root "$PWD/root" --key key
    start_agent r --root "$PWD/root" --key key --read-only
    A=penstock://127.0.0.1:${PORT[a]}
    R=penstock://127.0.0.1:${PORT[r]}
}

source_dir() {
    mkdir -p src/dir/inner
    head -c $((5 * MIB + 77)) /dev/urandom >src/dir/large
    echo small >src/dir/small
    ln -s small src/dir/link
    chmod 0750 src/dir/inner
    echo file >src/file
    echo "with a colon" >src/a:b
    echo "with a blank" >"src/a b"
}

# ---- the receipt names the directory that the entries are in, by every rule of rsync ----

# SOURCES | DESTINATION | ENTRIES; DESTINATION beneath the place, which has the directory `have`.
RULES=(
    'dir         |new          |5'
    'dir/        |new          |5'
    'dir/        |.            |5'
    'dir         |have         |5'
    'dir         |deep/        |5'
    'file        |renamed      |1'
    'file        |have         |1'
    'file        |have/renamed |1'
    'file        |new/         |1'
    'dir/link    |renamed      |1'
    'dir/link    |have/        |1'
    'dir file    |new          |6'
    './a:b       |c:d          |1'
    'dir/        |x@y:[z]      |5'
    'dir/inner   |have/../have |1'
)

rules_at() {
    local where=$1 place sources destination entries
    for row in "${RULES[@]}"; do
        IFS='|' read -r sources destination entries <<<"$row"
        sources=${sources%% } destination=${destination%% }
        [[ $destination != *..* || $where != agent ]] || continue # refused there
        two_agents
        source_dir
        mkdir -p root/have
        case $where in
        here) place=$PWD/root ;;
        ssh) place=user@host:$PWD/root ;;
        agent) place=$A ;;
        esac
        cd src
        # shellcheck disable=SC2086 # words
        copy 0 --key ../key -e "$RSH" --remote-path "$PENSTOCK" $sources "$place/${destination// /}"
        RECEIPT=$(jq -r .receipt "$REPORT")
        cd ../hosts # from anywhere else
        verify 0 --key ../key -e "$RSH" --remote-path "$PENSTOCK" "$RECEIPT"
        all_right "$((entries))" "$row at $where"
        cd ..
        stop_agents
    done
}

rules_here() { rules_at here; }
rules_ssh() { rules_at ssh; }
rules_agent() { rules_at agent; }

# Names that are only right without another word about them.
odd_names() {
    two_agents
    source_dir
    local name
    for name in 'a b' $'tab\tand\nline' '-e' 'k:[l]' $'\xff\xfe' '~'; do
        mkdir "root/$name"
        copy_any 0 src/dir "./root/$name"
        verify_any 0 "$RECEIPT"
        copy_any 0 src/dir "$A/$name"
        verify_any 0 "$RECEIPT"
    done
}

# ---- the same copy, and the source, seen through every form of place ----

every_form() {
    two_agents
    source_dir
    copy_any 0 src/dir root/new
    local place receipt=$RECEIPT before after
    before=$(find src root -printf '%p %i %m %s %C@ %T@\n' | sort)
    for place in root/new "$PWD/root/new/" "host:$PWD/root/new" "$A/new" "$R/new" src "host:$PWD/src"; do
        verify_any 0 "$receipt" "$place"
        all_right 5 "$place"
        grep -qF "comparing $place" "$OUT" || fail 'the place is not told'
    done
    after=$(find src root -printf '%p %i %m %s %C@ %T@\n' | sort)
    is "$before" "$after" 'what is there after all that reading'
    verify_any 0 -q "$receipt" "$R/new"
    is '' "$(cat "$OUT" "$ERR")" 'output of a quiet verify'
    grep -q 'verify, for' "${LOG[r]}" || fail 'the agent does not log it'
}

# ---- what is wrong ----

# damage WORDS: does it to the copy in the working directory and prints TEXT|PATH, which the message is to have.
damage() {
    case $1 in
    deep)
        printf X | dd of=large bs=1 seek=$((4 * MIB + 4097)) conv=notrunc status=none
        echo 'other content|large'
        ;;
    flip)
        sed -i s/small/smalL/ small # another inode and time
        echo 'other content|small'
        ;;
    cut)
        truncate -s -1 large
        echo "has $((5 * MIB + 76)) bytes|large"
        ;;
    grown)
        echo >>small
        echo 'has 7 bytes|small'
        ;;
    gone)
        rm small
        echo 'is missing|small'
        ;;
    mode)
        chmod o+w small
        echo 'has mode 0646|small'
        ;;
    folder-mode)
        chmod 0755 inner
        echo 'has mode 0755|inner'
        ;;
    link)
        ln -sfn large link
        echo 'points elsewhere|link'
        ;;
    link-to-file)
        ln -sf large small
        echo 'is a link, not a file|small'
        ;;
    folder)
        rm small
        mkdir small
        echo 'is a directory, not a file|small'
        ;;
    fifo)
        rm large
        mkfifo large
        echo 'is something else|large'
        ;;
    file)
        rmdir inner
        echo >inner
        echo 'is a file, not a directory|inner'
        ;;
    esac
}

DAMAGES=(deep flip cut grown gone mode folder-mode link link-to-file folder fifo file)

damages() {
    two_agents
    source_dir
    chmod 0644 src/dir/small
    copy_any 0 src/dir root/new
    local kind place said right wrong missing
    mv root/new good
    for kind in "${DAMAGES[@]}"; do
        rm -rf root/new
        cp -a good root/new
        said=$(cd root/new/dir && damage "$kind")
        right=4 wrong=1 missing=0
        [[ $kind != gone ]] || wrong=0 missing=1
        for place in root/new "host:$PWD/root/new" "$R/new"; do
            verify_any 7 "$RECEIPT" "$place"
            says "dir/${said#*|}" "${said%|*}"
            is 1 "$(wc -l <"$ERR")" "lines about $kind at $place"
            is "$right right, 0 unproved, $wrong wrong, $missing missing, 0 unreadable" "$(tally)" "$kind at $place"
        done
    done
}

# All at once, each by name, among more entries than one batch holds.
many_damages() {
    fresh
    mkdir -p src/{1..20}
    local d i
    for d in src/*; do
        for i in {1..60}; do
            echo "$d $i" >"$d/$i"
        done
    done
    copy 0 src/ copied
    for d in {1..20}; do
        echo X >"copied/$d/$d"
        rm "copied/$d/50"
    done
    verify 7 "$(jq -r .receipt "$REPORT")"
    for d in {1..20}; do
        says " $d/$d:" 'bytes, not'
        says " $d/50:" 'is missing'
    done
    is "$((1 + 20 + 20 * 58)) right, 0 unproved, 20 wrong, 20 missing, 0 unreadable" "$(tally)" 'all of it'
}

# A folder that became a link to the very same folder: what lies in it is not beneath the root any more.
through_link() {
    fresh
    mkdir -p src/dir
    echo one >src/dir/file
    copy 0 src/ copied
    mv copied/dir moved
    ln -s ../moved copied/dir
    verify 7 "$(jq -r .receipt "$REPORT")"
    says ' dir:' 'is a link, not a directory'
    says ' dir/file:' 'no directory any more'
}

unreadable() {
    [[ $(id -u) -ne 0 ]] || skip 'root reads everything'
    fresh
    mkdir -p src/dir
    echo one >src/dir/file
    echo two >src/file
    copy 0 src/ copied
    chmod 0 copied/dir/file
    verify 3 "$(jq -r .receipt "$REPORT")"
    says ' dir/file:' 'Permission denied'
    echo TWO >copied/file # what is wrong says more than what nobody knows
    verify 7 "$(jq -r .receipt "$REPORT")"
}

# ---- receipts of jobs that did not move everything ----

unproved() {
    two_agents
    source_dir
    copy_any 0 src/dir root/new
    echo more >src/dir/more
    copy_any 0 src/dir root/new
    verify_any 0 "$RECEIPT" "$R/new"
    grep -qF '3 entries were skipped by size and time and carry no digest: nothing more is known of them' "$OUT" ||
        fail 'it is not told what is unproved'
    is '3 right, 3 unproved, 0 wrong, 0 missing, 0 unreadable' "$(tally)" 'what verify says'
    printf X | dd of=root/new/dir/small bs=1 conv=notrunc status=none
    verify_any 7 "$RECEIPT"
    says dir/small 'another modification time'
    rm root/new/dir/link
    verify_any 7 "$RECEIPT" "$A/new"
    says dir/link 'is missing'
}

not_copied() {
    [[ $(id -u) -ne 0 ]] || skip 'root reads everything'
    fresh
    mkdir src
    echo one >src/one
    echo two >src/two
    chmod 0 src/two
    copy 1 src/ copied
    verify 0 "$(jq -r .receipt "$REPORT")"
    grep -qF '1 entries were not copied by the job' "$OUT" || fail 'it is not told what was not copied'
    all_right 2 'the rest'
}

# ---- places that are not there, or not open ----

not_there() {
    two_agents
    source_dir
    copy_any 0 src/dir root/new
    local receipt=$RECEIPT
    verify_any 3 "$receipt" nowhere
    says 'No such file or directory' nowhere
    verify_any 3 "$receipt" root/new/dir/small
    says 'Not a directory'
    verify_any 3 "$receipt" host:/nowhere
    says 'host:' 'No such file or directory'
    verify_any 3 "$receipt" "$A/nowhere"
    says '127.0.0.1:' 'No such file or directory'
    verify_any 3 "$receipt" "$A/../root/new"
    verify_any 3 "$receipt" "penstock://127.0.0.1:$(free_port)/new"
    says 'Connection refused'
    verify 3 -e "$RSH" --remote-path "$PWD/none" "$receipt" "host:$PWD/root/new"
    says 'host:' 'no agent answered'
    "$PENSTOCK" key other >/dev/null
    verify 3 --key other "$receipt" "$A/new"
    verify 2 "$receipt" "$A/new"
    says 'needs --key'
    verify 2 "$receipt" ftp://host/new
    verify 2 "$receipt" root/new another
    verify 2
    verify 3 "$REPORT"
    says 'is no receipt'
}

# The directory that the receipt names is gone.
moved_away() {
    fresh
    mkdir src
    echo one >src/one
    copy 0 src copied
    mv copied moved
    verify 3 "$(jq -r .receipt "$REPORT")"
    says "$PWD/copied" 'No such file or directory'
    verify 0 "$(jq -r .receipt "$REPORT")" moved
}

# ---- when one of the two goes away in the middle ----

# Starts to verify a file that is long to read.
begin_long() {
    two_agents
    mkdir src
    truncate -s 1T src/huge
    copy_any 0 src root/new
    start_process verify "$PENSTOCK" verify --key key "$RECEIPT" "$R/new"
    wait_line r 'verify, for'
    CHILD=$(pgrep -P "${PID[r]}")
}

asker_goes() {
    begin_long
    kill -TERM "${PID[verify]}"
    wait_gone 10 "${PID[verify]}" "$CHILD" || fail 'the agent goes on reading for nobody'
    unset "PID[verify]"
}

agent_goes() {
    begin_long
    local status=0
    kill -KILL "$CHILD"
    wait_gone 20 "${PID[verify]}"
    wait "${PID[verify]}" || status=$?
    is 6 "$status" 'exit status of verify'
    grep -q '127.0.0.1: .*control connection' "${LOG[verify]}" || fail "no word about it: $(cat "${LOG[verify]}")"
    unset "PID[verify]"
}

case_run rules_here rules_here
case_run rules_ssh rules_ssh
case_run rules_agent rules_agent
case_run odd_names odd_names
case_run every_form every_form
case_run damages damages
case_run many_damages many_damages
case_run through_link through_link
case_run unreadable unreadable
case_run unproved unproved
case_run not_copied not_copied
case_run not_there not_there
case_run moved_away moved_away
case_run asker_goes asker_goes
case_run agent_goes agent_goes
