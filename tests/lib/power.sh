# Power cuts on real file systems, on top of job.sh; needs root and mkfs.xfs.
#   power_source COUNT       makes what is copied ($WORK/source), of it COUNT small files, and what lies at the destination
#                            before ($WORK/old)
#   power_cuts FS TAKE ARGS...  a case: copies onto a disk with file system FS (ext4, xfs), takes copies of the disk
#                            meanwhile (TAKE: words for power_take.py; `--trace synced` for moments between syncs), and
#                            holds each against what had been promised; ARGS are options of `penstock copy`
#   power_off                unmounts everything
#
# The disk is a loop device over an image file on an XFS, and a cut is a reflink of the image (the ioctl that is behind
# `cp --reflink=always`): XFS keeps writers out and waits for those under way, so that the copy is the image at one
# moment. The loop device does direct I/O: what the tested file system has written to its disk is in the image's
# extents, and there is no page cache of the image that could hold writes back. So a copy has
#   - everything that was flushed, and everything that the disk has finished writing, flushed or not;
#   - nothing that is only in memory: dirty pages, a running journal transaction, names not yet committed.
# That is a disk with a protected cache. A copy cannot show a write that was finished and is lost for want of a flush:
# fsync without a barrier would pass here. It shows what is told before the kernel has been asked to write it. One sync may
# hide that another is missing: on ext4 and XFS each commits every name that was given before it, and syncfs writes the data
# before the names; so most is seen of large files without direct I/O. The simulator's disk is stricter.
# A write that was not asked to be durable may be there or not: nothing depends on it.
# shellcheck shell=bash

# shellcheck source=tests/lib/job.sh
source "$(dirname "${BASH_SOURCE[0]}")/job.sh"

POWER_RATE=240M # 30 MB/s: a job is some commit groups long
POWER_KINDS=(told_bytes leaves) # of what some cut of a case must have met (power_check.py)
MIB=$((1 << 20))

power_source() {
    local count=$1 name
    name=$(printf 'n%.0s' {1..180}) # so long that the receipt fills records early
    mkdir -p "$WORK"/source/{few/deep,large,many,none} "$WORK"/old/{large,many}
    cd "$WORK/source"
    head -c $((60 * MIB + 12345)) /dev/urandom >large/a # under way for some commit groups
    head -c $((10 * MIB)) /dev/urandom >large/b
    head -c $((3 * MIB + 1)) /dev/urandom >few/deep/c
    head -c $((14 * MIB + 4097)) /dev/urandom >few/d
    truncate -s $((90 * MIB)) large/sparse
    dd if=large/a of=large/sparse bs=1M count=6 seek=10 conv=notrunc status=none
    dd if=large/b of=large/sparse bs=1M count=6 seek=70 conv=notrunc status=none
    split -a 4 -b $((30 * MIB / count)) --numeric-suffixes <(head -c $((30 * MIB)) /dev/urandom) "many/$name"
    touch many/none
    ln -s large/a link
    ln -s nowhere few/dangling
    chmod 640 large/b "many/${name}0007"
    find . -exec touch -h -d '2021-03-04 05:06:07.089' {} +
    cd "$WORK/old"
    head -c $((5 * MIB + 1)) /dev/urandom >large/a
    echo 'the old one' >"many/${name}0100"
    echo 'the old one' >"many/${name}1400"
    find . -exec touch -h -d '2020-02-03 04:05:06.078' {} +
}

# power_mount IMAGE DIR OPTION...: with direct I/O. The device goes with the last unmount.
power_mount() {
    local device status=0
    device=$(losetup --find --show --direct-io=on "$1")
    is 1 "$(losetup --list --noheadings --output DIO "$device" | tr -d ' ')" "direct I/O of $device"
    mkdir -p "$2"
    mount "${@:3}" "$device" "$2" || status=$?
    losetup --detach "$device"
    [[ $status -eq 0 ]] || fail "$1 cannot be mounted"
}

power_off() {
    local mounted
    while read -r mounted; do
        umount "$mounted" || umount --lazy "$mounted"
    done < <(findmnt --raw --noheadings --output TARGET | grep -F "$WORK/" | tac)
}

power_disk() {
    truncate -s 600M bed.img
    mkfs.xfs -q -m reflink=1 bed.img
    mkdir bed
    mount -o loop bed.img bed
    truncate -s 400M bed/disk.img
    # Blocks and sectors of 4096 bytes: a file with reflinks can have no direct I/O in smaller units.
    case $1 in
    ext4) mkfs.ext4 -q -b 4096 bed/disk.img ;;
    xfs) mkfs.xfs -q -s size=4096 bed/disk.img ;;
    esac
    power_mount bed/disk.img disk
    [[ ! -d disk/lost+found ]] || rmdir disk/lost+found
    cp -a "$WORK"/old/. disk
    sync -f disk
}

# Writes to `synced` what the destination's agent syncs, with its name.
power_trace() {
    wait_event job '.event == "notice"' >&2 # the agents have met
    touch synced
    start_process trace strace -f -qq -y -s 0 -e trace=fsync,fdatasync,syncfs -o synced -p "$(agent_pid job destination)"
}

power_tool() {
    /usr/bin/python3 -B "$LIB/$1.py" "${@:2}"
}

# power_cut_holds NUMBER MOUNT_OPTIONS ARGS...: mounts the copy of the disk, which replays the file system's journal, and
# goes on with the job there.
power_cut_holds() {
    local cut=bed/cut$1 held
    power_mount "$cut.img" cut "$2"
    power_tool power_check "$WORK/source" "$WORK/old" cut "$cut" >"$cut.found" || fail "cut $1 breaks promises"
    echo "cut $1: $(cat "$cut.found")"
    held=$(jq .bytes "$cut.found")
    copy 0 "${@:3}" "$WORK/source/" cut
    told ".bytes.moved == $NEEDED - $held"
    same_copy "$WORK/source" cut
    no_leftovers cut
    umount cut
    rm "$cut.img"
}

power_cuts() {
    local fs=$1 number cuts kind take=() options=-onoatime
    read -ra take <<<"$2"
    shift 2
    power_off
    fresh
    power_disk "$fs"
    start_copy job --rate "$POWER_RATE" "$@" "$WORK/source/" disk
    if [[ " ${take[*]} " == *" --trace "* ]]; then
        power_trace
    fi
    power_tool power_take "${LOG[job]}" "${PID[job]}" "$STATE" disk bed/disk.img bed "${take[@]}" | tee cuts
    end_copy job 0
    [[ -z ${PID[trace]:-} ]] || stop_process trace
    same_copy "$WORK/source" disk
    umount disk
    NEEDED=$(sed -n '/^{/p' "${LOG[job]}" | jq -n '[inputs | .bytes.needed // 0] | max')
    cuts=$(wc -l <cuts)
    [[ $fs != xfs ]] || options=-onouuid # one of the same UUID may still be about
    for ((number = 1; number <= cuts; number++)); do
        power_cut_holds "$number" "$options" "$@"
    done
    # A test that met nothing that had been promised would show nothing.
    for kind in "${POWER_KINDS[@]}"; do
        jq -es "any(.$kind > 0)" bed/cut*.found >/dev/null || fail "no cut met $kind: $(cat bed/cut*.found)"
    done
    umount bed
}

trap 'STATUS=$?; power_off; end_processes $STATUS' EXIT
