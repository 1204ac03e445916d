# Cases of a test script, for bash. Source it, write functions, run them:
#   case_run NAME FUNCTION           runs FUNCTION in a subshell under `set -e`; prints `ok`, `not ok` or `skip`;
#                                    with ONLY set nothing but the case of that name
#   fail MESSAGE                     ends the running case as failed
#   skip REASON                      ends the running case as skipped
#   start_process NAME COMMAND...    starts a background process: ${PID[NAME]}, its output goes to ${LOG[NAME]}
#   wait_line NAME TEXT [SECONDS]    waits until that output has a line with TEXT and prints the line
#   wait_gone SECONDS PID...         waits until these processes have ended, whoever their parent is; fails when they
#                                    do not in that time
#   stop_process NAME                sends SIGTERM and waits; STATUS is the exit status of the process
# Never call case_run behind `if`, `&&` or `||`: bash would ignore `set -e` inside. Processes started in a case end
# with it, the others with the script. NAME is printed as SCRIPT.NAME.
# shellcheck shell=bash

set -u
shopt -s inherit_errexit

declare -A PID=() LOG=()
STATUS=0
CASE_FOLDER=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
SCRIPT_NAME=$(basename "$0" .sh)
STOP_SECONDS=10
SKIP_STATUS=77

case_run() {
    [[ -z ${ONLY:-} || $ONLY == "$1" ]] || return 0
    local name=$SCRIPT_NAME.$1 log=$WORK/case.log began=$EPOCHREALTIME status reason
    set +e
    (
        set -eE
        PID=()
        trap 'echo "failed at ${BASH_SOURCE[0]##*/}:$LINENO: $BASH_COMMAND" >&2' ERR
        trap 'end_processes $?' EXIT
        "$2"
    ) >"$log" 2>&1
    status=$?
    reason=$(grep -v '^  | ' "$log" | tail -n 1)
    case $status in
    0) echo "ok $name $(seconds_since "$began")" ;;
    "$SKIP_STATUS") echo "skip $name $reason" ;;
    *)
        echo "not ok $name $reason"
        sed "s/^/$name: /" "$log" >&2
        ;;
    esac
}

fail() {
    echo "$*" >&2
    exit 1
}

skip() {
    echo "$*" >&2
    exit "$SKIP_STATUS"
}

seconds_since() {
    local us=$((${EPOCHREALTIME/./} - ${1/./}))
    printf '%d.%02d' $((us / 1000000)) $((us % 1000000 / 10000))
}

start_process() {
    local name=$1
    shift
    LOG[$name]=$WORK/$name.log
    : >"${LOG[$name]}" # whoever waits for a line must not find one of an earlier process
    "$@" >"${LOG[$name]}" 2>&1 &
    PID[$name]=$!
}

wait_line() {
    local name=$1 text=$2 cap=${3:-20} began=$SECONDS left stream tail_pid line found=1
    exec {stream}< <(exec tail -n +1 -f --pid="${PID[$name]}" "${LOG[$name]}")
    tail_pid=$!
    while left=$((began + cap - SECONDS)) && [[ $left -gt 0 ]] && IFS= read -r -t "$left" line <&"$stream"; do
        if [[ $line == *"$text"* ]]; then
            echo "$line"
            found=0
            break
        fi
    done
    exec {stream}<&-
    kill "$tail_pid" 2>/dev/null || true
    wait "$tail_pid" 2>/dev/null || true
    return "$found"
}

stop_process() {
    end_process "$1" || fail "$1 still ran $STOP_SECONDS s after SIGTERM"
}

# Not bash's `wait -n`, which passes over a process that ended just before.
wait_gone() {
    PYTHONPATH=$CASE_FOLDER /usr/bin/python3 -Bc 'import sys, processes
sys.exit(not processes.wait_gone([int(pid) for pid in sys.argv[2:]], float(sys.argv[1])))' "$@"
}

# Ends one process and sets STATUS, which the callers read; fails when it took SIGKILL.
# shellcheck disable=SC2034
end_process() {
    local pid=${PID[$1]} in_time=0
    unset "PID[$1]"
    kill -TERM "$pid" 2>/dev/null || true
    wait_gone "$STOP_SECONDS" "$pid" || in_time=1
    if [[ $in_time -ne 0 ]]; then
        kill -KILL "$pid" 2>/dev/null || true
    fi
    STATUS=0
    wait "$pid" 2>/dev/null || STATUS=$?
    return "$in_time"
}

# The end of a case or script: shows the output of what still runs when the case failed, and stops it.
end_processes() {
    local status=$1 name
    trap - ERR EXIT
    set +e
    for name in "${!PID[@]}"; do
        if [[ $status -ne 0 && $status -ne $SKIP_STATUS ]]; then
            tail -n 40 "${LOG[$name]}" | sed "s/^/  | $name: /" >&2
        fi
        if ! end_process "$name"; then
            echo "$name still ran $STOP_SECONDS s after SIGTERM" >&2
            status=1
        fi
    done
    exit "$status"
}

trap 'end_processes $?' EXIT
