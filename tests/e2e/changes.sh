#!/bin/bash
# tier: check
# cap: 600
# A source that changes while it is copied, and two jobs on one destination: nothing becomes a mix.
source "$(dirname "$0")/../lib/job.sh"

MIB=$((1 << 20))
SLOW=400M # 50 MB/s: a copy lasts long enough to meddle with its source

# What happens to a file.

append() { echo appended >>"$1"; }
shrink() { truncate -s "$(($(stat -c %s "$1") / 2))" "$1"; }
rewrite() { dd if=/dev/urandom of="$1" bs=4096 count=1 seek=$(($(stat -c %s "$1") / 8192)) conv=notrunc status=none; }
vanish() { rm "$1"; }
replace() { head -c "$(stat -c %s "$1")" /dev/urandom >../new && mv ../new "$1"; }

CHANGES=(append shrink rewrite replace vanish)

# Every file at the destination is an old or a new version, whole.
old_or_new() {
    local file
    while IFS= read -r -d '' file; do
        cmp -s "copied/$file" "old/$file" || cmp -s "copied/$file" "source/$file" || fail "$file is a mix"
    done < <(find copied -name .penstock -prune -o -type f -printf '%P\0')
    no_leftovers copied
}

# Starts a copy of what is in `source`, and does $ROW to all its files when the first bytes are on their way: the last
# one first, which is read last.
change_all() {
    local files i
    cp -a source old
    start_copy job --rate "$SLOW" source/ copied
    wait_event job '.event == "snapshot" and .bytes.sent > 0'
    files=(source/*)
    for ((i = ${#files[@]} - 1; i >= 0; i--)); do
        "$ROW" "${files[i]}"
    done
    end_copy job 0 8
    old_or_new
    if [[ $STATUS -eq 8 ]]; then
        is vanish "$ROW" 'what makes a copy incomplete'
        grep -q 'penstock: .*vanished' "${LOG[job]}" || fail 'the vanished file is not told'
    fi
}

# The next copy finds what the first one could not see.
found_later() {
    [[ $ROW != vanish ]] || return 0
    copy 0 source/ copied
    same_copy source copied
}

# Who has a file open reads it to its end, whatever becomes of its name.
change_large() {
    fresh
    mkdir source
    head -c $((200 * MIB)) /dev/urandom >source/large
    change_all
    case $ROW in
    append | shrink | rewrite) cmp copied/large source/large ;;
    vanish) [[ $STATUS -eq 8 ]] || cmp copied/large old/large ;;
    esac
    found_later
}

# Packed files change while some of them are still to be read.
change_packed() {
    fresh
    local file new=0
    mkdir source
    split -a 4 -b 500000 --numeric-suffixes <(head -c $((200 * MIB)) /dev/urandom) source/f
    change_all
    for file in copied/f*; do
        ! cmp -s "$file" "source/${file#copied/}" || new=$((new + 1))
    done
    case $ROW in
    vanish) is 8 "$STATUS" 'exit status' ;;
    *) [[ $new -gt 0 ]] || fail 'no file was read after it had changed' ;;
    esac
    found_later
}

# A file that never stands still is not moved; the old one stays.
never_still() {
    fresh
    mkdir source copied
    head -c $((100 * MIB)) /dev/urandom >source/large
    echo 'the old one' >copied/large
    echo other >source/small
    start_process writer bash -c 'while :; do echo more >>source/large; done'
    copy 8 --rate "$SLOW" source/ copied
    stop_process writer
    told '.problems | map([.path, .class]) == [["large", "changed"]]'
    says large 'changed while it was read'
    told '.status == "changed" and .retryable and .entries.changed == 1 and .entries.failed == 0'
    is 'the old one' "$(cat copied/large)" 'the destination'
    cmp source/small copied/small
    no_leftovers copied
    copy 0 source/ copied
    same_copy source copied
}

# The second job is told who is there, and the first one is not disturbed.
second_job() {
    fresh
    local first
    mkdir source
    head -c $((400 * MIB)) /dev/urandom >source/large
    start_copy job --rate "$SLOW" source/ copied
    wait_event job '.event == "snapshot" and .bytes.moved > 0'
    copy 9 source/ copied
    told '.status == "locked" and .retryable and .problems[0].class == "locked" and .bytes.moved == 0'
    first=$(cut -d ' ' -f 1 copied/.penstock/lock)
    is 32 "${#first}" 'length of the job in the lock'
    says "$first" "$(uname -n)" "$(id -u)" ' s'
    end_copy job 0
    same_copy source copied
    copy 0 source/ copied
    told '.entries.moved == 0'
}

for ROW in "${CHANGES[@]}"; do
    case_run "large_$ROW" change_large
    case_run "packed_$ROW" change_packed
done
case_run never_still never_still
case_run second_job second_job
