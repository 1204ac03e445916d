#!/bin/bash
# tier: test
# sets: engines builds
# A copy on one machine carries every kind of entry, and the second one finds everything there.
source "$(dirname "$0")/../lib/job.sh"

MIB=$((1 << 20))

# What make_tree leaves out: sizes around leaf and stripe, modes, and times that only ns tell apart.
fill_more() {
    local size mode
    mkdir sizes modes times
    for size in 0 1 $((MIB - 1)) $MIB $((MIB + 1)) $((4 * MIB - 1)) $((4 * MIB)) $((4 * MIB + 1)) $((13 * MIB)); do
        head -c "$size" /dev/urandom >"sizes/$size"
    done
    for mode in 0000 0400 0444 0600 0644 0664 0666 0711 0755 0777 1644 2755 4755 6711; do
        echo "$mode" >"modes/$mode"
        chmod "$mode" "modes/$mode"
    done
    chmod 0600 modes/0000 # its owner could not read it
    for mode in 0500 0700 0750 1777 2770; do
        mkdir -m "$mode" "modes/dir$mode"
    done
    touch times/file
    mkdir times/dir
    ln -s file times/link
    touch -h -d '2001-02-03 04:05:06.123456789' times/file
    touch -h -d '2001-02-03 04:05:06.123456788' times/dir
    touch -h -d '2001-02-03 04:05:06.000000001' times/link
    touch -h -d '1969-12-31 23:59:59.999999999' modes/0444
    touch -h -d '2110-01-01 00:00:00.5' modes/0400
}

fill_holes() {
    truncate -s $((9 * MIB)) all-hole
    truncate -s 4096 small-hole
    truncate -s $((20 * MIB + 77)) islands
    printf data | dd of=islands bs=1 seek=$((5 * MIB + 100)) conv=notrunc status=none
    printf data | dd of=islands bs=1 seek=$((20 * MIB)) conv=notrunc status=none
    truncate -s $((800 << 10)) packed-holes
    printf data | dd of=packed-holes bs=1 seek=$((300 << 10)) conv=notrunc status=none
}

# The tree of all cases, made once.
source_tree() {
    make_tree "$WORK/source"
    cd "$WORK/source"
    fill_more
    mkdir holes
    (cd holes && fill_holes)
    mkdir '.hidden' '  ' 'many empty' 'many empty'/{1..50}
    touch -- '-rf' $'tab\tand\e[31m' '.hidden/.file' '#' '%41' '~'
    touch -d '2020-02-02 02:02:02.000000002' .
}

entries() {
    find "$1" -mindepth "${2:-0}" -printf x | wc -c
}

data_bytes() {
    find "$1" -type f -printf '%s\n' | awk '{ sum += $1 } END { print sum }'
}

first() {
    fresh
    copy 0 "$WORK/source" copied
    same_copy "$WORK/source" copied/source
    no_leftovers .
    told ".entries.total == $(entries "$WORK/source") and .entries.moved == .entries.total"
    told ".bytes.total == $(data_bytes "$WORK/source") and .bytes.moved == .bytes.needed and .bytes.resent == 0"
    told '.bytes.moved == .bytes.sent and (.streams | map(.bytes) | add) == .bytes.sent'
    told '(.engine | .source != "" and .destination != "") and .problems_left_out == 0'
    is '' "$(cat "$ERR")" 'messages of a copy without a problem'
}

# Nothing is written again: no file has another inode or change time, no directory another time.
second() {
    cd "$WORK/case"
    find copied \( -type d -printf '%i %T@ %P\0' \) -o -printf '%i %C@ %P\0' | sort -z >before
    copy 0 "$WORK/source" copied
    told '.entries.moved == 0 and .entries.skipped == .entries.total'
    told '.bytes.moved == 0 and .bytes.needed == 0 and .bytes.sent == 0'
    told ".bytes.total == $(data_bytes "$WORK/source")"
    find copied \( -type d -printf '%i %T@ %P\0' \) -o -printf '%i %C@ %P\0' | sort -z >after
    cmp before after
    same_copy "$WORK/source" copied/source
    no_leftovers .
}

holes() {
    truncate -s $((9 * MIB)) all-hole
    truncate -s 4096 small-hole
    truncate -s $((20 * MIB + 77)) islands
    printf data | dd of=islands bs=1 seek=$((5 * MIB + 100)) conv=notrunc status=none
    printf data | dd of=islands bs=1 seek=$((20 * MIB)) conv=notrunc status=none
    truncate -s $((800 << 10)) packed-holes
    printf data | dd of=packed-holes bs=1 seek=$((300 << 10)) conv=notrunc status=none
}

# The tree of all cases, made once.
source_tree() {
    make_tree "$WORK/source"
    cd "$WORK/source"
    fill_more
    mkdir holes
    (cd holes && fill_holes)
    mkdir '.hidden' '  ' 'many empty' 'many empty'/{1..50}
    touch -- '-rf' $'tab\tand\e[31m' '.hidden/.file' '#' '%41' '~'
    touch -d '2020-02-02 02:02:02.000000002' .
}

entries() {
    find "$1" -mindepth "${2:-0}" -printf x | wc -c
}

data_bytes() {
    find "$1" -type f -printf '%s\n' | awk '{ sum += $1 } END { print sum }'
}

first() {
    fresh
    copy 0 "$WORK/source" copied
    same_copy "$WORK/source" copied/source
    no_leftovers .
    told ".entries.total == $(entries "$WORK/source") and .entries.moved == .entries.total"
    told ".bytes.total == $(data_bytes "$WORK/source") and .bytes.moved == .bytes.needed and .bytes.resent == 0"
    told '.bytes.moved == .bytes.sent and (.streams | map(.bytes) | add) == .bytes.sent'
    told '(.engine | .source != "" and .destination != "") and .problems_left_out == 0'
    is '' "$(cat "$ERR" | grep -v '^ *[0-9]' || true)" 'messages of a copy without a problem'
}

# Also the times of what holds unchanged entries stay.
second() {
    cd "$WORK/case"
    local before
    before=$(find copied -printf '%i %C@ %P\n' | sort)
    copy 0 "$WORK/source" copied
    told '.entries.moved == 0 and .entries.skipped == .entries.total'
    told '.bytes.moved == 0 and .bytes.needed == 0 and .bytes.sent == 0'
    told ".bytes.total == $(data_bytes "$WORK/source")"
    same_copy "$WORK/source" copied/source
    is "$(grep '^[0-9]* [0-9.]* .*/.*[^0-9]$' <<<"$before" | grep -c .)" \
        "$(find copied -printf '%i %C@ %P\n' | sort | grep '^[0-9]* [0-9.]* .*/.*[^0-9]$' | grep -c .)" 'entries'
    no_leftovers .
}

holes() {
    cd "$WORK/case"
    local file
    for file in sparse holes/all-hole holes/small-hole holes/islands holes/packed-holes; do
        [[ $(stat -c %b "copied/source/$file") -le $(($(stat -c %b "$WORK/source/$file") + 8)) ]] ||
            fail "$file takes $(stat -c %b "copied/source/$file") blocks, its source $(stat -c %b "$WORK/source/$file")"
    done
}

# Only what differs moves: a file with another time, a link with another text, what is missing; modes and times of the
# rest are put right.
differences() {
    fresh
    make_tree source
    copy 0 source/ copied
    echo new >source/new
    echo changed >>source/names/plain
    chmod 0751 source/script
    ln -sfn elsewhere source/link
    rm copied/many/file007
    mkdir source/another
    touch -d '2002-02-02 02:02:02.2' source/another source source/names
    copy 0 source/ copied
    same_copy source copied
    told '.entries.moved == 5' # new, plain, link, file007, another
    told ".bytes.moved == $(stat -c %s source/new source/names/plain source/many/file007 | awk '{ sum += $1 } END { print sum }')"
    no_leftovers copied
}

# A time that differs in nanoseconds alone is another version.
nanoseconds() {
    fresh
    mkdir source
    echo one >source/file
    touch -d '2020-01-01 00:00:00.000000001' source/file
    copy 0 source/ copied
    echo two >source/file
    touch -d '2020-01-01 00:00:00.000000002' source/file
    copy 0 source/ copied
    told '.entries.moved == 1'
    same_copy source copied
}

# Folders that nobody may write into, the destination root too, are made, filled and found again.
readonly_folders() {
    fresh
    mkdir -p source/inner/deep
    echo one >source/file
    echo two >source/inner/deep/file
    chmod 0555 source/inner/deep source/inner source
    copy 0 source/ copied
    same_copy source copied
    no_leftovers copied
    copy 0 source/ copied
    told '.entries.moved == 0'
    same_copy source copied
    chmod 0755 source source/inner/deep
    echo three >source/another
    echo four >source/inner/deep/another
    chmod 0555 source source/inner/deep
    copy 0 source/ copied
    same_copy source copied
    no_leftovers copied
}

stripes() {
    fresh
    local size
    for size in 1M 2M 16M; do
        copy 0 --stripe "$size" "$WORK/source" "by$size"
        same_copy "$WORK/source" "by$size/source"
    done
}

receipt() {
    fresh
    make_tree source
    copy 0 -v source copied
    local receipt
    receipt=$(jq -r .receipt "$REPORT")
    grep -qF "receipt: $receipt" "$OUT" || fail 'the place of the receipt is not told'
    "$PENSTOCK" verify "$receipt"
    printf X | dd of=copied/source/size65536 bs=1 seek=100 conv=notrunc status=none
    local status=0
    "$PENSTOCK" verify "$receipt" >"$OUT" 2>&1 || status=$?
    cat "$OUT"
    is 7 "$status" 'exit status of verify'
    grep -q size65536 "$OUT" || fail 'verify does not name the wrong file'
}

source_tree
case_run first first
case_run second second
case_run holes holes
case_run differences differences
case_run nanoseconds nanoseconds
case_run readonly_folders readonly_folders
case_run stripes stripes
case_run receipt receipt
