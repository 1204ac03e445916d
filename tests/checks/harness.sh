#!/bin/bash
# tier: check
# cap: 120
# The runner itself: what it must count, refuse and clean up.
source "$(dirname "$0")/../lib/case.sh"

# program NAME: writes a test program from standard input.
program() {
    cat >"$WORK/$1"
}

# runs EXIT SUMMARY PROGRAM...: the runner must end with that status and that last line; its output is in $OUTPUT.
runs() {
    local expected=$1 summary=$2 status=0
    shift 2
    OUTPUT=$(CI=${CASE_CI:-} tests/run "${@/#/$WORK/}" 2>&1) || status=$?
    echo "$OUTPUT"
    [[ $(tail -n 1 <<<"$OUTPUT") == "$summary" ]] || fail "last line is not '$summary'"
    [[ $(grep -cE '^[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$' <<<"$OUTPUT") -eq 1 ]] || fail "two summaries"
    [[ $status -eq $expected ]] || fail "exit status $status, not $expected"
}

says() {
    grep -qF -- "$1" <<<"$OUTPUT" || fail "does not say '$1'"
}

counts() {
    program a.sh <<<'echo ok a.one 0.5; echo ok a.two; echo noise'
    program b.sh <<<'echo ok b.one; echo not ok b.two broken on purpose; echo to the log >&2'
    runs 0 '2 passed, 0 failed, 0 skipped' a.sh
    says '0.50 s  a.one'
    ! grep -q noise <<<"$OUTPUT" || fail 'shows the log of a success'
    runs 1 '3 passed, 1 failed, 0 skipped' a.sh b.sh
    says 'not ok b.two: broken on purpose'
    says 'to the log'
}

bad_ends() {
    program exit.sh <<<'echo ok e; exit 3'
    program signal.sh <<<'echo ok s; kill -SEGV $$'
    program silent.sh <<<'exit 0'
    program told.sh <<<'echo not ok t reason; exit 1'
    runs 1 '1 passed, 1 failed, 0 skipped' exit.sh
    says 'exit 3'
    runs 1 '1 passed, 1 failed, 0 skipped' signal.sh
    says 'signal 11'
    runs 1 '0 passed, 1 failed, 0 skipped' silent.sh
    says 'printed no result'
    runs 1 '0 passed, 1 failed, 0 skipped' told.sh
}

cap() {
    program slow.sh <<<$'# cap: 3\necho ok before\nsleep 60\necho ok after'
    program stubborn.sh <<<$'# cap: 3\ntrap "" TERM\necho ok before\nsleep 60\nsleep 60'
    runs 1 '1 passed, 1 failed, 0 skipped' slow.sh
    says 'over its cap of 3 s'
    runs 1 '1 passed, 1 failed, 0 skipped' stubborn.sh
}

leftovers() {
    program child.sh <<<$'sleep 60 &\necho ok c'
    program daemon.sh <<<$'setsid --fork sleep 61\necho ok d'
    runs 1 '1 passed, 1 failed, 0 skipped' child.sh
    says '(sleep 60)'
    runs 1 '1 passed, 1 failed, 0 skipped' daemon.sh
    says '(sleep 61)'
    local pid
    pid=$(sed -n 's/.*left process \([0-9]*\) .*/\1/p' <<<"$OUTPUT")
    [[ ! -e /proc/$pid ]] || fail "process $pid still lives"
}

skips() {
    program s.sh <<<'echo ok a; echo skip allowed.one no reason; echo skip other.one not here'
    echo 'allowed.one because' >"$WORK/allowed"
    runs 0 '1 passed, 0 failed, 2 skipped' s.sh
    CASE_CI=true runs 1 '1 passed, 2 failed, 0 skipped' s.sh
    OUTPUT=$(CI=true tests/run --skips "$WORK/allowed" "$WORK/s.sh") && fail 'accepts a skip that is not listed'
    says '1 passed, 1 failed, 1 skipped'
    says 'not ok other.one'
}

# A runner that is told to end takes its programs with it.
interrupted() {
    program long.sh <<<"echo \$\$ >'$WORK/pid'; exec sleep 64"
    mkfifo "$WORK/pid"
    start_process runner tests/run "$WORK/long.sh"
    local pid
    read -r pid <"$WORK/pid"
    stop_process runner
    [[ $STATUS -eq 143 ]] || fail "exit status $STATUS"
    [[ ! -e /proc/$pid ]] || fail "process $pid still lives"
}

zero() {
    program none.sh <<<'echo skip all.of nothing to do'
    runs 1 '0 passed, 0 failed, 1 skipped' none.sh
}

work_folder() {
    # shellcheck disable=SC2016 # the program expands it
    program w.sh <<<'chmod 0 "$(mktemp -d)"; test "$TMPDIR" = "$WORK" && test -d "$HOME" && echo ok w'
    runs 0 '1 passed, 0 failed, 0 skipped' w.sh
    [[ -z $(find "$WORK" -name 'penstock-test.*') ]] || fail 'a folder of the runner remains'
}

# The case helpers of the scripts: a failing command ends a case, and what it started ends with it.
case_helpers() {
    program c.sh <<END
source "$PWD/tests/lib/case.sh"
breaks() { start_process sleeper sleep 62; false; echo never; }
refuses() { fail 'on purpose'; }
passes() { start_process talker bash -c 'echo I am ready; exec sleep 63'; wait_line talker ready; stop_process talker; }
leaves() { skip 'not today'; }
dies() { start_process short echo gone; ! wait_line short never 5; }
case_run breaks breaks
case_run refuses refuses
case_run passes passes
case_run leaves leaves
case_run dies dies
END
    runs 1 '2 passed, 2 failed, 1 skipped' c.sh
    says 'not ok c.breaks: failed at c.sh:2: false'
    says 'not ok c.refuses: on purpose'
    says 'skip c.leaves: not today'
    ! grep -q never <<<"$OUTPUT" || fail 'goes on after a failed command'
}

case_run counts counts
case_run bad_ends bad_ends
case_run cap cap
case_run leftovers leftovers
case_run skips skips
case_run interrupted interrupted
case_run zero zero
case_run work_folder work_folder
case_run case_helpers case_helpers
