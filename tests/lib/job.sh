# Jobs and what they leave, for the end-to-end scripts, on top of e2e.sh:
#   fresh                    makes an empty folder for the case and goes there; REPORT, OUT, ERR lie elsewhere
#   copy EXIT ARGS...        runs `penstock copy ARGS...`; fails unless it ends with EXIT and a sound report
#   start_copy NAME ARGS...  starts it with --json-events in the background; its lines and messages in ${LOG[NAME]}
#   wait_event NAME EXPR [SECONDS]  waits for a JSON line for which the jq expression holds, prints it
#   end_copy NAME EXIT...    waits for the end of a started copy; fails unless it ends with one of these; sets STATUS
#   agent_pid NAME source|destination   the process that serves that end of a started copy
#   told EXPR                fails unless the jq expression holds for the report
#   says TEXT...             fails unless one line of the messages has every TEXT
#   same_copy A B            fails unless both trees hold the same, by tools of others: names, kinds, contents, link
#                            texts, modes, times to the ns
#   no_leftovers DIR         fails when a job's own files lie beneath DIR
#   listing DIR              prints what same_copy compares beside the contents
#   is EXPECTED ACTUAL WHAT  fails when they differ
# shellcheck shell=bash

# shellcheck source=tests/lib/e2e.sh
source "$(dirname "${BASH_SOURCE[0]}")/e2e.sh"

REPORT=$WORK/job.json
OUT=$WORK/job.out
ERR=$WORK/job.err
STATE=$WORK/state
COPY_SECONDS=${COPY_SECONDS:-120}

fresh() {
    cd "$WORK"
    if [[ -e case ]]; then
        chmod -R u+rwX case
        rm -rf case
    fi
    mkdir case
    cd case
}

is() {
    [[ $1 == "$2" ]] || fail "$3: '$2' instead of '$1'"
}

copy() {
    local expected=$1 status=0
    shift
    rm -f "$REPORT"
    timeout "$COPY_SECONDS" "$PENSTOCK" copy --state "$STATE" --json "$REPORT" "$@" >"$OUT" 2>"$ERR" </dev/null || status=$?
    echo "penstock copy $*: exit $status"
    head -n 40 "$OUT" "$ERR"
    is "$expected" "$status" "exit status of copy $*"
    if [[ $expected -ne 2 || -e $REPORT ]]; then
        sound_report "$expected"
    fi
}

# What holds for every report: valid, the counters add up, a success has no problem and leaves nothing open.
sound_report() {
    jq -e --argjson exit "$1" '
        (.schema == "penstock-job-1") and (.version | length > 0) and (.seconds >= 0)
        and (.exit == $exit) and (.retryable == ($exit == 1 or $exit >= 3))
        and (.entries | .moved + .skipped + .changed + .vanished + .failed + .pending == .total)
        and (.bytes | .moved <= .needed and .moved <= .total)
        and (all(.problems[]; (.class | length > 0) and (.text | length > 0)))
        and ($exit == 0 or (.problems | length > 0))
        and ($exit != 0 or (.status == "complete" and (.job | length == 32) and (.problems == [])
             and (.entries | .moved + .skipped == .total) and .bytes.moved == .bytes.needed))' "$REPORT" >/dev/null ||
        fail "the report is not sound: $(cat "$REPORT")"
}

told() {
    jq -e "$1" "$REPORT" >/dev/null || fail "the report does not hold $1: $(jq -c 'del(.streams)' "$REPORT")"
}

says() {
    local lines text
    lines=$(cat "$ERR")
    for text in "$@"; do
        lines=$(grep -F -- "$text" <<<"$lines") || fail "no message has: $*"
    done
}

start_copy() {
    local name=$1
    shift
    start_process "$name" "$PENSTOCK" copy --state "$STATE" --json-events "$@"
}

wait_event() {
    local name=$1 expression=$2 cap=${3:-60} began=$SECONDS left stream tail_pid line found=1
    exec {stream}< <(exec tail -n +1 -f --pid="${PID[$name]}" "${LOG[$name]}")
    tail_pid=$!
    while left=$((began + cap - SECONDS)) && [[ $left -gt 0 ]] && IFS= read -r -t "$left" line <&"$stream"; do
        if [[ $line == \{* ]] && jq -e "$expression" <<<"$line" >/dev/null; then
            echo "$line"
            found=0
            break
        fi
    done
    exec {stream}<&-
    kill "$tail_pid" 2>/dev/null || true
    wait "$tail_pid" 2>/dev/null || true
    [[ $found -eq 0 ]] || fail "$name never came to $expression, but to $(tail -n 3 "${LOG[$name]}")"
}

end_copy() {
    local name=$1 pid=${PID[$1]}
    shift
    wait_gone "$COPY_SECONDS" "$pid" || fail "$name still ran after $COPY_SECONDS s"
    unset "PID[$name]"
    STATUS=0
    wait "$pid" || STATUS=$?
    tail -n 8 "${LOG[$name]}"
    [[ " $* " == *" $STATUS "* ]] || fail "exit status of $name: $STATUS instead of $*"
}

# The destination's process is the one that has the lock open.
agent_pid() {
    local pid locked
    while read -r pid; do
        locked=source
        if find "/proc/$pid/fd" -lname '*/.penstock/lock' -print -quit | grep -q .; then
            locked=destination
        fi
        if [[ $locked == "$2" ]]; then
            echo "$pid"
            return
        fi
    done < <(pgrep -P "${PID[$1]}")
    fail "$1 has no $2 process"
}

listing() {
    find "$1" \( -type d -printf 'd %m %T@ - - %P\0' \) -o -printf '%y %m %T@ %s %l %P\0' | sort -z
}

same_copy() {
    local differences
    diff -r --no-dereference "$1" "$2" || fail "$1 and $2 differ"
    differences=$(rsync -nac --delete --itemize-changes "$1/" "$2/")
    is '' "$differences" "what rsync would still do from $1 to $2"
    cmp <(listing "$1") <(listing "$2") ||
        fail "$1 and $2 differ: $(diff <(listing "$1" | tr '\0\n' '\n?') <(listing "$2" | tr '\0\n' '\n?') | head -n 6)"
}

no_leftovers() {
    is '' "$(find "$1" -name '.penstock*')" "leftovers of a job in $1"
}
