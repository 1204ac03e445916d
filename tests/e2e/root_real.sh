#!/bin/bash
# tier: check
# cap: 900
# Real data as root: /usr/share and /etc whole, with their owners.
source "$(dirname "$0")/../lib/job.sh"

COPY_SECONDS=300

owners() {
    (cd "$1" && find . ! -type s ! -type p -printf '%U:%G %y %m %T@ %P\0' | sort -z)
}

# $ROW: a folder of the system.
whole() {
    fresh
    copy 0 "$ROW/" copied
    diff -r --no-dereference "$ROW" copied
    is '' "$(rsync -nac --delete --itemize-changes "$ROW/" copied/)" 'what rsync would still do'
    cmp <(owners "$ROW") <(owners copied)
    told ".entries.total == $(find "$ROW" -printf x | wc -c) and .entries.failed == 0"
    no_leftovers copied
    copy 0 "$ROW/" copied
    told '.entries.moved == 0 and .bytes.moved == 0'
}

for ROW in /etc /usr/share; do case_run "${ROW//\//_}" whole; done
