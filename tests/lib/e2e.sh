# Helpers of the end-to-end scripts, on top of case.sh:
#   free_port                        prints a TCP port of 127.0.0.1 that nobody uses
#   start_agent NAME ARGS...         starts `penstock serve ARGS...` and waits until it listens, at ${PORT[NAME]};
#                                    `--listen 127.0.0.1:PORT` is added when ARGS have no --listen
#   stop_agents                      stops every running agent
#   make_tree DIR [SEED]             makes a sample tree of all kinds of entries, the same for the same seed
#   same_tree A B [RSYNC OPTION...]  fails and lists the differences when the trees differ: names, kinds, contents,
#                                    modes, owners, times, hard links
# shellcheck shell=bash

LIB=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=tests/lib/case.sh
source "$LIB/case.sh"

declare -A PORT=()

free_port() {
    /usr/bin/python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

start_agent() {
    local name=$1 listen=() line
    shift
    if [[ " $* " != *" --listen "* ]]; then
        listen=(--listen "127.0.0.1:$(free_port)")
    fi
    start_process "$name" "$PENSTOCK" serve "$@" "${listen[@]}"
    line=$(wait_line "$name" 'listening on ') || fail "agent $name does not listen: $(tail -n 1 "${LOG[$name]}")"
    line=${line##*listening on }
    line=${line%% *}
    PORT[$name]=${line##*:}
}

stop_agents() {
    local name
    for name in "${!PORT[@]}"; do
        if [[ -n ${PID[$name]:-} ]]; then
            stop_process "$name"
        fi
    done
}

make_tree() {
    /usr/bin/python3 "$LIB/make_tree.py" "$@"
}

same_tree() {
    local differences
    differences=$(rsync -aHAXnic --delete "${@:3}" "$1/" "$2/")
    if [[ -n $differences ]]; then
        echo "$differences"
        fail "$1 and $2 differ: $(wc -l <<<"$differences") entries"
    fi
}
