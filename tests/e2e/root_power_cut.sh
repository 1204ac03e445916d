#!/bin/bash
# tier: check
# cap: 120
# After a power cut in the middle of a copy everything is there that had been promised, and the copy goes on.
# root_power_cuts.sh has many more; tests/lib/power.sh says what is a cut here.
source "$(dirname "$0")/../lib/power.sh"

# All in one segment: the large files come first, by themselves, so that each of their syncs is on its own. Without direct
# I/O nothing of them is on the disk before it is asked for.
promises() {
    power_cuts ext4 '--moments told' --direct off
}

power_source 1500 >&2
case_run promises promises
