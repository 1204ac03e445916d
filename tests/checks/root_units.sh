#!/bin/bash
# tier: check
# cap: 120
# The unit tests that mount: as root, which the others do not run as. None may be skipped.
source "$(dirname "$0")/../lib/case.sh"

suite() {
    local said
    said=$(timeout 60 "$BUILD/tests/unit" "$SUITE") || fail "$said"
    grep -q '^ok ' <<<"$said" || fail "nothing was tested: $said"
    if grep -E '^(not ok|skip) ' <<<"$said"; then
        fail "not all of $SUITE passed"
    fi
}

for SUITE in dest dest_mount dest_small dest_left; do
    case_run "$SUITE" suite
done
