#!/bin/bash
# tier: check
# cap: 600
# sets: engines builds
# A job that is killed at any point goes on where it was, and what was at the destination stays whole until then.
source "$(dirname "$0")/../lib/job.sh"

MIB=$((1 << 20))
RATE=800M # 100 MB/s: a job takes long enough to be met half way
FIRST='.event == "snapshot" and .bytes.moved > 0'
# Of more than a third of all, so that it is not half of the first segment that was compared.
HALF='.event == "snapshot" and .walked and .bytes.needed * 3 > .bytes.total and .bytes.moved * 2 >= .bytes.needed'

# The data set of all cases: large files, one of them sparse, and packed ones.
source_tree() {
    mkdir -p "$WORK/source/large" "$WORK/source/small" "$WORK/source/empty"
    cd "$WORK/source"
    head -c $((220 * MIB + 12345)) /dev/urandom >large/a
    head -c $((150 * MIB)) /dev/urandom >large/b
    head -c $((3 * MIB + 1)) /dev/urandom >large/c
    truncate -s $((900 * MIB)) large/sparse
    dd if=large/a of=large/sparse bs=1M count=60 seek=20 conv=notrunc status=none
    dd if=large/b of=large/sparse bs=1M count=40 seek=700 conv=notrunc status=none
    split -a 4 -b 100000 --numeric-suffixes <(head -c $((120 * MIB)) /dev/urandom) small/f
    ln -s large/a link
    find . -exec touch -h -d '2021-03-04 05:06:07.089' {} +
    copy 0 "$WORK/source/" "$WORK/whole"
    NEEDED=$(jq .bytes.needed "$REPORT")
    rm -r "$WORK/whole"
}

# What the stopped job had been told to be durable.
durable() {
    sed -n '/^{/p' "${LOG[$1]}" | jq -n '[inputs | .bytes.moved // 0] | max'
}

# kill_at VICTIM EVENT OPTION...: starts a copy, kills VICTIM with SIGKILL at EVENT and waits for its end.
kill_at() {
    local victim=$1 event=$2 source destination
    shift 2
    start_copy job --rate "$RATE" "$@" "$WORK/source/" copied
    wait_event job "$event"
    source=$(agent_pid job source)
    destination=$(agent_pid job destination)
    case $victim in
    source) kill -KILL "$source" ;;
    destination) kill -KILL "$destination" ;;
    coordinator) kill -KILL "${PID[job]}" ;;
    all) kill -KILL "$source" "$destination" "${PID[job]}" ;;
    esac
    if [[ $victim == coordinator || $victim == all ]]; then
        end_copy job 137
    else
        end_copy job 6
        grep -q '^penstock: ' "${LOG[job]}" || fail 'nobody says why the job ended'
    fi
    wait_gone 20 "$source" "$destination" || fail 'an agent outlives its job'
}

# Runs the job again, which must move no byte that was durable, and the rest less what became durable after it was
# told last: a commit group, and what a second moves.
resume() {
    local before
    before=$(durable job)
    [[ -d copied/.penstock ]] || fail 'the killed job left nothing to go on from'
    [[ $before -gt 0 ]] || fail 'nothing was durable at the kill'
    copy 0 "$@" "$WORK/source/" copied
    told ".bytes.moved + $before <= $NEEDED"
    told ".bytes.moved + $before >= $NEEDED - $((256 * MIB + 100000000)) and .bytes.moved > 0"
    same_copy "$WORK/source" copied
    no_leftovers copied
}

# VICTIM EVENT then the options of the second run.
KILLS=(
    "destination FIRST"
    "destination HALF --stripe 1M"
    "source      FIRST --stripe 16M --streams 1"
    "source      HALF"
    "coordinator FIRST --streams 7"
    "coordinator HALF --encrypt off"
    "all         HALF --engine threads"
)

killed() {
    fresh
    local victim event options
    read -r victim event options <<<"$ROW"
    kill_at "$victim" "${!event}"
    # shellcheck disable=SC2086 # words
    resume $options
}

# A second and a third kill: what earlier runs made durable is not lost.
killed_again() {
    fresh
    local held=0 now round
    for round in destination source coordinator; do
        kill_at "$round" "$FIRST"
        now=$(durable job)
        held=$((held + now))
    done
    copy 0 "$WORK/source/" copied
    told ".bytes.moved + $held <= $NEEDED"
    same_copy "$WORK/source" copied
    no_leftovers copied
}

# Files that were there are the old ones, whole, after the kill; who holds them open keeps the old ones for ever.
old_files() {
    fresh
    local file old
    mkdir -p copied/large copied/small
    for file in large/a large/b small/f0000 small/f0700; do
        echo "the old $file" >"copied/$file"
    done
    exec 7<copied/large/a 8<copied/small/f0700
    kill_at destination "$FIRST"
    for file in large/a large/b small/f0000 small/f0700; do
        old=$(head -c 100 "copied/$file" | tr -d '\0')
        if [[ $old != "the old $file" ]]; then
            cmp "copied/$file" "$WORK/source/$file" || fail "$file is neither the old one nor the new one"
        fi
    done
    resume
    is 'the old large/a' "$(cat <&7)" 'what a reader of the replaced large file sees'
    is 'the old small/f0700' "$(cat <&8)" 'what a reader of the replaced small file sees'
}

# No file has its final name before it is whole, whenever one looks.
names_last() {
    fresh
    kill_at all "$HALF"
    local file
    while IFS= read -r -d '' file; do
        cmp "copied/$file" "$WORK/source/$file"
    done < <(find copied -name .penstock -prune -o -type f -printf '%P\0')
}

# The source is another one at the second run: what is held of a changed file is of no use, and nothing of it stays.
source_changes() {
    fresh
    cp -a --reflink=auto "$WORK/source" source
    start_copy job --rate "$RATE" source/ copied
    wait_event job "$HALF"
    kill -KILL "${PID[job]}"
    end_copy job 137
    echo grown >>source/large/a
    dd if=/dev/urandom of=source/large/b bs=1M count=1 seek=70 conv=notrunc status=none
    rm source/large/c
    rm source/small/f00*
    echo changed >source/small/f0100
    head -c $((5 * MIB)) /dev/urandom >source/large/new
    echo new >source/small/new
    mkdir source/another
    truncate -s $((30 * MIB)) source/large/sparse
    copy 0 source/ copied
    rsync -nac --itemize-changes source/ copied/ >left
    is '' "$(cat left)" 'what rsync would still do'
    no_leftovers copied
    copy 0 source/ copied
    told '.entries.moved == 0'
}

# A large file that is another one of the same size and time, but not the same inode, is read anew.
replaced_alike() {
    fresh
    mkdir source
    head -c $((300 * MIB)) /dev/urandom >source/file
    touch -d '2022-02-02' source/file
    start_copy job --rate "$RATE" source/ copied
    wait_event job "$HALF"
    kill -KILL "${PID[job]}"
    end_copy job 137
    tac -s $'\n' source/file >source/other || true
    truncate -s $((300 * MIB)) source/other
    touch -r source/file source/other
    mv source/other source/file
    copy 0 source/ copied
    told ".bytes.moved == $((300 * MIB))"
    same_copy source copied
}

# The machine of the destination was started anew meanwhile: what was promised before is read again, and what its disk
# has lost (LEAF...) is moved once more. No byte is trusted that nobody read.
another_boot() {
    fresh
    local held lost
    read -ra lost <<<"$ROW"
    mkdir source
    head -c $((300 * MIB - 17)) /dev/urandom >source/file
    start_copy job --rate "$RATE" source/ copied
    wait_event job "$HALF"
    kill -KILL "$(agent_pid job destination)"
    end_copy job 6
    held=$(/usr/bin/python3 "$LIB/other_boot.py" copied/.penstock "${lost[@]}")
    [[ $held -gt $((100 * MIB)) ]] || fail "only $held bytes were held"
    copy 0 source/ copied
    told ".bytes.moved == $((300 * MIB - 17 - held + ${#lost[@]} * MIB))"
    grep -F 'started anew' "$OUT" | grep -F 'read again' | grep -qF " $((held / MIB)) MiB" || fail 'nobody says what is read again'
    same_copy source copied
    no_leftovers copied
}

# SIGNAL COUNT: asked to end, as a terminal does it for the whole group.
SIGNALS=("INT 1" "TERM 1" "HUP 1" "INT 2")

interrupted() {
    fresh
    local signal count
    read -r signal count <<<"$ROW"
    start_process job setsid env --default-signal=INT,HUP "$PENSTOCK" copy --state "$STATE" --json-events \
        --json job.json --rate "$RATE" "$WORK/source/" copied
    wait_event job "$FIRST"
    kill "-$signal" -- "-${PID[job]}"
    if [[ $count -eq 2 ]]; then
        wait_line job stopping
        kill "-$signal" -- "-${PID[job]}" || true
    fi
    end_copy job 5
    cp job.json "$REPORT"
    sound_report 5
    told '.status == "interrupted" and .retryable and any(.problems[]; .class == "interrupted")'
    resume
}

source_tree >&2
for ROW in "${KILLS[@]}"; do
    # shellcheck disable=SC2086 # words
    set -- $ROW
    case_run "kill_$1_${2,,}" killed
done
case_run killed_again killed_again
case_run old_files old_files
case_run names_last names_last
case_run source_changes source_changes
case_run replaced_alike replaced_alike
for ROW in '' 0 '3 9 -1'; do
    case_run "another_boot_lost_${ROW// /_}" another_boot
done
for ROW in "${SIGNALS[@]}"; do
    # shellcheck disable=SC2086 # words
    set -- $ROW
    case_run "signal_$1_$2" interrupted
done
