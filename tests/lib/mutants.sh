# Mutants: a patch in tests/mutants/ puts one defect into a copy of the tree, and the test that its head names must
# notice. Source it after case.sh.
#   mutants_begin         makes the copy, with the objects of this build, so that only what a patch touches is
#                         compiled again
#   mutant_caught PATCH   a case: applies the patch, builds, runs `Caught-by: sim.SCENARIO | unit.SUITE`, takes it out
# shellcheck shell=bash

MUTANT_SEEDS=50

mutants_begin() {
    MUTANTS=$WORK/mutants
    VARIANT=$(basename "$BUILD")
    mkdir -p "$MUTANTS/build"
    tar -cf - --exclude=./build --exclude=./.git --exclude=__pycache__ . | tar -xf - -C "$MUTANTS"
    cp -a "$BUILD" "$MUTANTS/build/$VARIANT"
}

# Builds the program that tests for $1 (sim or unit) and runs its part $2; the result lines go to $RESULTS.
mutant_run() {
    local program=build/$VARIANT/tests/$1
    make -C "$MUTANTS" --no-print-directory BUILD=build VARIANT="$VARIANT" "$program" || fail "$1 does not build"
    case $1 in
    sim) RESULTS=$("$MUTANTS/$program" --seeds "$MUTANT_SEEDS" "$2" 2>/dev/null) || true ;;
    unit) RESULTS=$("$MUTANTS/$program" "$2" 2>/dev/null) || true ;;
    *) fail "there is no test program $1" ;;
    esac
    echo "$RESULTS"
}

mutant_caught() {
    local by file
    by=$(sed -n 's/^Caught-by: //p' "$1")
    [[ $by == *.* ]] || fail 'its head does not say what catches it'
    # What is kept is put back: a patch taken out may find the wrong one of two like places.
    file=$MUTANTS/$(sed -n 's|^+++ b/||p' "$1")
    cp "$file" "$MUTANTS/whole"
    patch -d "$MUTANTS" -p1 --fuzz=0 --forward --force --quiet --no-backup-if-mismatch <"$1" || fail 'it no longer applies'
    mutant_run "${by%%.*}" "${by#*.}"
    cp "$MUTANTS/whole" "$file"
    grep -q "^not ok $by" <<<"$RESULTS" || fail "$by does not notice"
}
