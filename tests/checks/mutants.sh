#!/bin/bash
# tier: full
# cap: 1800
# Every mutant of tests/mutants/ is caught; without them the same tests pass.
source "$(dirname "$0")/../lib/case.sh"
source "$(dirname "$0")/../lib/mutants.sh"

# A test that fails anyway would catch anything.
none() {
    local by
    while read -r by; do
        mutant_run "${by%%.*}" "${by#*.}"
        grep -q "^ok $by" <<<"$RESULTS" || fail "$by says nothing"
        ! grep -q '^not ok' <<<"$RESULTS" || fail "$by fails without a mutant"
    done < <(sed -n 's/^Caught-by: //p' tests/mutants/*.patch | sort -u)
}

mutants_begin
case_run none none
for patch in tests/mutants/*.patch; do
    caught() {
        mutant_caught "$patch"
    }
    case_run "$(basename "$patch" .patch)" caught
done
