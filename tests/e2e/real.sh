#!/bin/bash
# tier: check
# cap: 900
# Real data: /usr/share as an ordinary user, less what that user cannot read, and the largest file of /usr.
source "$(dirname "$0")/../lib/job.sh"

COPY_SECONDS=300

shape() {
    (cd "$1" && find . \( -type d -printf 'd %m %T@ %P\0' \) -o -printf '%y %m %T@ %s %l %P\0' | sort -z)
}

# What may be read is there as it is; each of the rest is told. The second copy has nothing to do.
usr_share() {
    fresh
    local expected=0 unread path excluded=()
    unread=$(find /usr/share \( ! -readable -o -type d ! -executable \) -printf '%P\n' -prune)
    while IFS= read -r path; do
        [[ -n $path ]] || continue
        expected=1
        excluded+=(--exclude "/$path")
    done <<<"$unread"
    copy "$expected" /usr/share/ copied
    is "$unread" "$(jq -r '.problems[].path' "$REPORT")" 'what is told as unread'
    is '' "$(rsync -nac --no-owner --no-group --delete "${excluded[@]}" --itemize-changes /usr/share/ copied/)" \
        'what rsync would still do'
    if [[ $expected -eq 0 ]]; then
        diff -r --no-dereference /usr/share copied
        cmp <(shape /usr/share) <(shape copied)
        told ".entries.moved + .entries.skipped == $(find /usr/share -printf x | wc -c)"
    fi
    no_leftovers copied
    copy "$expected" /usr/share/ copied
    told '.entries.moved == 0 and .bytes.moved == 0'
}

# Its documentation once more to an agent: many small files, and a receipt that holds.
through_agent() {
    cd "$WORK/case"
    "$PENSTOCK" key key
    mkdir root
    start_agent a --root "$PWD/root" --key key
    copy 0 --key key copied/doc "penstock://127.0.0.1:${PORT[a]}/"
    is '' "$(rsync -nac --delete --itemize-changes copied/doc/ root/doc/)" 'what rsync would still do'
    [[ $(jq .resident_bytes.destination "$REPORT") -lt $((256 << 20)) ]] || fail 'the agent takes much memory'
    timeout 300 "$PENSTOCK" verify "$(jq -r .receipt "$REPORT")" "$PWD/root"
}

largest() {
    fresh
    local file
    file=$(find /usr -xdev -type f -readable -printf '%s %p\n' | sort -n | tail -n 1)
    file=${file#* }
    copy 0 "$file" copied
    is "$(sha256sum <"$file")" "$(sha256sum <copied)" 'the copy'
    is "$(stat -c '%s %a %y' "$file")" "$(stat -c '%s %a %y' copied)" 'the copy'
}

case_run largest largest
case_run usr_share usr_share
case_run through_agent through_agent
