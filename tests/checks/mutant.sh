#!/bin/bash
# tier: check
# cap: 300
# One mutant of tests/mutants/ (mutants.sh has them all): the simulator can fail.
source "$(dirname "$0")/../lib/case.sh"
source "$(dirname "$0")/../lib/mutants.sh"

journal_before_sync() {
    mutant_caught tests/mutants/journal-before-sync.patch
}

mutants_begin
case_run journal_before_sync journal_before_sync
