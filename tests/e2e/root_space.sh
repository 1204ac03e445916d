#!/bin/bash
# tier: check
# cap: 400
# A destination without room: the job says so and stops, what was there stays whole, and once there is room the same
# command goes on.
source "$(dirname "$0")/../lib/job.sh"

MIB=$((1 << 20))

# disk SIZE [MKFS OPTION...]: a small file system at `disk`.
disk() {
    local size=$1
    shift
    truncate -s "$size" image
    mkfs.ext4 -q -F -m 0 "$@" image
    mkdir -p disk
    mount_image
}

mount_image() {
    mount -o loop image disk
    rmdir disk/lost+found
}

# Not while it is mounted: that takes a right that a container's root may lack.
grow() {
    umount disk
    truncate -s "$1" image
    e2fsck -f -p image >/dev/null || is 1 $? 'exit status of e2fsck' # 1: it made lost+found again
    resize2fs image
    mount_image
}

begin() {
    local at
    for at in disk copied/mnt; do
        if mountpoint -q "$WORK/case/$at"; then
            umount --lazy "$WORK/case/$at"
        fi
    done
    fresh
    mkdir source
}

# The job stops for want of room, and says where.
full() {
    copy 4 "$@"
    says 'No space left on device' "${FULL_AT:-}"
    told '.status == "storage" and .retryable and .problems[0].class == "storage" and .problems[0].errno == 28'
    told '.problems[0].path | length > 0'
}

# Files at the destination are whole, or the old ones.
whole() {
    local file
    while IFS= read -r -d '' file; do
        cmp -s "source/$file" "disk/$file" || [[ $(head -c 7 "disk/$file") == 'the old' ]] || fail "$file is a mix"
    done < <(find disk -name .penstock -prune -o -type f ! -name filler -printf '%P\0')
}

# One file that has no room at all: nothing of it is moved for nothing.
one_large() {
    begin
    disk 64M
    head -c $((100 * MIB)) /dev/urandom >source/large
    echo 'the old one' >disk/large
    FULL_AT=large full source/ disk
    told '.bytes.moved == 0'
    is 'the old one' "$(cat disk/large)" 'the old file'
    [[ $(df --output=avail -B1M disk | tail -n 1) -gt 40 ]] || fail 'room is kept for what cannot come'
    full source/ disk
    grow 200M
    copy 0 source/ disk
    same_copy source disk
    no_leftovers disk
}

# Several: those that fit are there and stay.
some_large() {
    begin
    local number moved
    disk 64M
    for number in 1 2 3 4 5 6; do
        head -c $((15 * MIB)) /dev/urandom >"source/large$number"
        echo "the old $number" >"disk/large$number"
    done
    full source/ disk
    moved=$(jq .bytes.moved "$REPORT")
    whole
    grow 200M
    copy 0 source/ disk
    told ".bytes.moved + $moved <= $((90 * MIB))"
    same_copy source disk
    no_leftovers disk
}

packed() {
    begin
    local moved
    disk 64M
    split -a 4 -b 100000 --numeric-suffixes <(head -c $((100 * MIB)) /dev/urandom) source/f
    echo 'the old one' >disk/f0000
    echo 'the old one' >disk/f1000
    full source/ disk
    moved=$(jq .entries.moved "$REPORT")
    whole
    grow 200M
    copy 0 source/ disk
    told ".entries.moved + $moved <= $(find source -printf x | wc -c)"
    same_copy source disk
    no_leftovers disk
}

# Somebody else takes the room in the middle, and gives it back.
taken_meanwhile() {
    begin
    disk 300M
    local number
    for number in {1..8}; do
        head -c $((25 * MIB)) /dev/urandom >"source/large$number"
    done
    start_copy job --rate 400M source/ disk
    wait_event job '.event == "snapshot" and .bytes.moved > 0'
    head -c 400M /dev/zero >disk/filler 2>/dev/null || true
    end_copy job 0 4
    whole
    rm disk/filler
    copy 0 source/ disk
    same_copy source disk
    no_leftovers disk
}

# In memory nothing is reserved: the room ends while bytes are written.
in_memory() {
    begin
    mkdir disk
    mount -t tmpfs -o size=64M none disk
    head -c $((50 * MIB)) /dev/urandom >source/a
    head -c $((50 * MIB)) /dev/urandom >source/b
    split -a 4 -b 50000 --numeric-suffixes <(head -c $((20 * MIB)) /dev/urandom) source/f
    full source/ disk
    whole
    mount -o remount,size=200M disk
    copy 0 source/ disk
    same_copy source disk
    no_leftovers disk
}

# Bytes that a job has left in temporary files: whole leaves, without what the file system notes about them.
left_bytes() {
    find "$1" \( -path '*/.penstock/temp/*' -o -name '.penstock-*' \) -type f -printf "%b\n" | jq -s "(add // 0) * 512 / $MIB | floor | . * $MIB"
}

# Two files, for one of which there is room. What of the other is durable stays, is told, and is not moved again; all
# else is given back.
gives_back() {
    begin
    local free left moved
    disk 300M
    head -c $((200 * MIB)) /dev/urandom >source/a
    head -c $((200 * MIB)) /dev/urandom >source/b
    free=$(df --output=avail -B1 disk | tail -n 1)
    FULL_AT='' full --rate 800M source/ disk
    moved=$(jq .bytes.moved "$REPORT")
    left=$(left_bytes disk)
    told '.problems[0].text | test("are kept in .penstock for the next run, which needs [0-9.]+ MiB more; [0-9.]+ MiB are free")'
    [[ $moved -gt 0 && $moved -lt $((200 * MIB)) ]] || fail "$moved bytes were moved: no file half done"
    is "$moved" "$left" 'bytes that are kept'
    [[ $(df --output=avail -B1 disk | tail -n 1) -gt $((free - left - 8 * MIB)) ]] || fail 'room is kept for nothing'
    says "$((left / MIB))" 'MiB are kept' "needs $((400 - left / MIB))"
    grow 500M
    copy 0 source/ disk
    told ".bytes.moved == $((400 * MIB - left))"
    same_copy source disk
    no_leftovers disk
}

# Nor does an interrupted job keep more than what it made durable.
interrupted() {
    begin
    local free left
    disk 300M
    head -c $((200 * MIB)) /dev/urandom >source/a
    free=$(df --output=avail -B1 disk | tail -n 1)
    start_copy job --rate 400M source/ disk
    wait_event job '.event == "snapshot" and .bytes.moved > 0'
    kill -INT "${PID[job]}"
    end_copy job 5
    left=$(left_bytes disk)
    [[ $left -gt 0 && $left -lt $((200 * MIB)) ]] || fail "$left bytes are kept"
    [[ $(df --output=avail -B1 disk | tail -n 1) -gt $((free - left - 8 * MIB)) ]] || fail 'room is kept for nothing'
    copy 0 source/ disk
    told ".bytes.moved == $((200 * MIB - left))"
    same_copy source disk
    no_leftovers disk
}

# Where a mount lies in the destination, temporary files lie beside their targets: of a job that was killed too, they are
# found by the next one, whatever has become of the source.
beside() {
    begin
    local file left
    mkdir copied
    disk 300M
    mkdir copied/mnt source/mnt source/mnt/deep
    umount disk
    mount -o loop image copied/mnt
    for file in source/mnt/{one,deep/two,three}; do
        head -c $((30 * MIB)) /dev/urandom >"$file"
    done
    start_copy job --rate 200M --streams 1 source/ copied
    wait_event job '.event == "snapshot" and .bytes.moved > 0'
    kill -KILL "$(agent_pid job destination)"
    end_copy job 6
    [[ $(find copied/mnt -name '.penstock-*' | wc -l) -gt 0 ]] || fail 'the case does not try what it should'
    left=$(basename "$(find copied/mnt -name '.penstock-*' -print -quit)")
    rm source/mnt/one
    mv source/mnt/deep/two source/mnt/deep/four
    copy 0 source/ copied
    no_leftovers copied
    is "$(stat -c %y source/mnt source/mnt/deep)" "$(stat -c %y copied/mnt copied/mnt/deep)" 'times of directories'
    cmp source/mnt/deep/four copied/mnt/deep/four
    cmp source/mnt/three copied/mnt/three
    # A file that is called as another run's is the user's own.
    echo precious >"source/mnt/$left"
    copy 0 source/ copied
    copy 0 source/ copied
    told '.entries.moved == 0'
    is precious "$(cat "copied/mnt/$left")" 'what is not ours'
    umount copied/mnt
}

# What cannot be removed at the end is told.
stays() {
    begin
    disk 64M
    head -c $((20 * MIB)) /dev/urandom >source/a
    start_copy job --rate 100M --json "$REPORT" source/ disk
    wait_event job '.event == "snapshot" and .bytes.moved > 0'
    mkdir disk/.penstock/folder
    touch disk/.penstock/folder/file
    chattr +i disk/.penstock/folder/file
    end_copy job 1
    told '.problems | length == 1 and .[0].path == ".penstock" and .[0].operation == "remove" and .[0].errno == 1'
    chattr -i disk/.penstock/folder/file
    copy 3 source/ disk # it is not ours
    says 'holds what is not' disk
    rm -r disk/.penstock/folder
    copy 0 source/ disk
    same_copy source disk
    no_leftovers disk
}

# Room in bytes, but not for another file.
inodes() {
    begin
    disk 64M -N 128
    mkdir source/{1..20}
    touch source/{1..20}/{1..20}
    full source/ disk
    mkfs.ext4 -q -F -m 0 second 64M
    mkdir other
    mount -o loop second other
    rmdir other/lost+found
    copy 0 source/ other
    same_copy source other
    umount other
}

# The room ends where directories or the journal are made.
no_room_at_all() {
    begin
    disk 8M
    echo one >source/file
    head -c 20M /dev/zero >disk/filler 2>/dev/null || true
    head -c $((3 * MIB)) /dev/urandom >source/large
    copy 4 source/ disk
    says 'No space left on device'
    rm disk/filler
    copy 0 source/ disk
    same_copy source disk
}

read_only() {
    begin
    disk 64M
    echo one >source/file
    mount -o remount,ro disk
    copy 4 source/ disk
    says 'Read-only file system' disk
    copy 4 source/ disk/new
    says 'Read-only file system' disk/new
    mount -o remount,rw disk
    copy 0 source/ disk
}

# The folder of receipts is full: the copy does not pretend to have written one.
no_room_for_receipts() {
    begin
    mkdir disk
    mount -t tmpfs -o size=100k none disk
    touch source/{1..9000}
    STATE=disk copy 3 source/ copied
    says receipt 'No space left on device'
    copy 0 source/ copied
    same_copy source copied
}

for ROW in one_large some_large packed taken_meanwhile in_memory gives_back interrupted beside stays inodes no_room_at_all read_only no_room_for_receipts; do
    case_run "$ROW" "$ROW"
done
umount --lazy "$WORK/case/disk"
