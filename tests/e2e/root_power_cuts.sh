#!/bin/bash
# tier: full
# cap: 1500
# A power cut at many moments of a copy, on ext4 and on XFS, with and without direct I/O: everything is there that had
# been promised, and the copy goes on. tests/lib/power.sh says what is a cut here.
source "$(dirname "$0")/../lib/power.sh"

POWER_RATE=120M # more commit groups
POWER_KINDS=(told_bytes leaves records old)

# FS then options of the copy.
JOBS=(
    "ext4 --direct off"
    "ext4 --direct on --stripe 1M"
    "xfs --direct off --engine threads --streams 1"
    "xfs --direct on --stripe 2M"
)

many() {
    local fs options
    read -r fs options <<<"$ROW"
    # shellcheck disable=SC2086 # words
    power_cuts "$fs" '--trace synced' $options
}

power_source 4500 >&2
for ROW in "${JOBS[@]}"; do
    NAME=${ROW//--/}
    case_run "${NAME// /_}" many
done
