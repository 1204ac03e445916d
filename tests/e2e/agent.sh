#!/bin/bash
# tier: check
# cap: 600
# sets: none
# Agents that listen: how they start, whom they let in, what they give and take, what strangers do to them, how they end.
source "$(dirname "$0")/../lib/job.sh"

# An agent `a` with the folder `root`, at $A; the right key in `key`.
an_agent() {
    fresh
    mkdir root
    make_tree root/tree
    "$PENSTOCK" key key
    start_agent a --root "$PWD/root" --key key "$@"
    A=penstock://127.0.0.1:${PORT[a]}
}

# refuses EXIT WORDS COMMAND...: ends so, saying that, and making nothing.
refuses() {
    local expected=$1 words=$2 status=0
    shift 2
    timeout 60 "$@" >"$OUT" 2>"$ERR" </dev/null || status=$?
    cat "$ERR"
    is "$expected" "$status" "exit status of $*"
    says "$words"
}

# ---- starting: EXIT WORDS ARGUMENTS; PORT is one that is taken ----

STARTS=(
    '2 --root          --key key'
    '2 --key           --root root'
    '3 No_such_file    --root missing --key key'
    '3 root/file       --root root/file --key key'
    '3 missing         --root root --key missing'
    '3 readable        --root root --key readable'
    '2 garbage         --root root --key garbage'
    '2 NAME_SECRET     --root root --key empty'
    '3 in_use          --root root --key key --listen 127.0.0.1:PORT'
    '3 192.0.2.1       --root root --key key --listen 192.0.2.1:7421'
    '3 nowhere.invalid --root root --key key --listen nowhere.invalid:7421'
    '2 --listen        --root root --key key --listen 127.0.0.1:65536'
    '2 --listen        --root root --key key --listen 127.0.0.1:x'
    '2 --jobs          --root root --key key --jobs 0'
    '2 arguments       --root root --key key root'
    '2 --nonsense      --root root --key key --nonsense'
)

starts() {
    fresh
    local expected words arguments port
    mkdir root
    echo x >root/file
    "$PENSTOCK" key key
    cp key readable
    chmod 0640 readable
    (umask 077 && echo 'not a key' >garbage && echo '# nothing' >empty)
    start_process holder /usr/bin/python3 -uc 'import socket
with socket.create_server(("127.0.0.1", 0)) as listener:
    print("port", listener.getsockname()[1])
    listener.accept()'
    port=$(wait_line holder port)
    for ROW in "${STARTS[@]}"; do
        read -r expected words arguments <<<"${ROW/PORT/${port#port }}"
        # shellcheck disable=SC2086 # words
        refuses "$expected" "${words//_/ }" "$PENSTOCK" serve $arguments
    done
}

keys() {
    fresh
    "$PENSTOCK" key one
    "$PENSTOCK" key two
    is 600 "$(stat -c %a one)" 'mode of a key file'
    is 1 "$(grep -cE '^[A-Za-z0-9._-]{1,64} [0-9a-f]{64}$' one)" 'lines of a key file'
    ! cmp -s one two || fail 'two keys are alike'
    cp one before
    refuses 3 one "$PENSTOCK" key one
    cmp one before
    refuses 3 missing "$PENSTOCK" key missing/one
    refuses 2 FILE "$PENSTOCK" key
}

# ---- whom it lets in: EXIT KEYFILE WORDS ----

COPIES=(
    '0 key'
    '0 commented'
    '0 several_one_named_like_the_host'
    '3 wrong_secret    key'
    '3 unknown_name    key'
    '2 none            --key'
    '2 several         key'
    '3 readable        readable'
    '3 missing         No_such_file'
    '2 garbage         line_1'
)

lets_in() {
    an_agent
    local expected file words name secret key
    read -r name secret <key
    cp key readable
    chmod 0604 readable
    umask 077
    echo "$name ${secret//[0-7]/f}" >wrong_secret
    echo "stranger $secret" >unknown_name
    printf '# ours\n\n%s %s # the line\n' "$name" "$secret" | sed 's/ # the line//' >commented
    "$PENSTOCK" key other
    cat key other >several
    cat other >several_one_named_like_the_host
    echo "localhost $secret" | tee -a several_one_named_like_the_host >more_keys
    cat key >>more_keys
    echo garbage >garbage
    start_agent b --root "$PWD/root" --key more_keys
    for ROW in "${COPIES[@]}"; do
        read -r expected file words <<<"$ROW"
        key=(--key "$file")
        [[ $file != none ]] || key=()
        copy "$expected" "${key[@]}" "penstock://localhost:${PORT[b]}/tree/" there
        if [[ $expected -eq 0 ]]; then
            same_copy root/tree there
            chmod -R u+rwX there && rm -r there
        else
            says "${words//_/ }"
            [[ ! -e there ]] || fail "$ROW: something was made"
        fi
    done
    # A stranger learns nothing of why.
    copy 3 --key wrong_secret "$A/tree" there
    told '.problems[0].class == "auth"'
    jq -r '.problems[0].text | sub("key [^:]*"; "")' "$REPORT" >wrong
    copy 3 --key unknown_name "$A/tree" there
    jq -r '.problems[0].text | sub("key [^:]*"; "")' "$REPORT" | cmp wrong
}

# ---- what it gives and takes ----

read_only() {
    an_agent --read-only
    copy 0 --key key "$A/tree/" there
    listing root >before
    copy 3 --key key there "$A/new"
    says 'read-only'
    copy 3 --key key "$A/tree" "$A/new"
    cmp before <(listing root)
}

# EXIT FROM TO: nothing but what lies beneath the root.
PATHS=(
    '3 A/../outside/secret there'
    '3 A/tree/../../outside/secret there'
    '3 A/tree/.. there'
    '3 A/out/secret there'
    '3 A/out/ there'
    '3 A/missing there'
    '3 A/tree/missing/x there'
    '3 outside/secret A/../new'
    '3 outside/secret A/out/new'
    '3 outside/secret A/out/'
    '3 outside A/tree/../../new'
    '3 outside/ A/out/new'
    '3 outside/secret A/missing/new'
)

paths() {
    an_agent
    local expected from to
    mkdir outside
    echo secret >outside/secret
    ln -s ../outside root/out
    listing root >before
    listing outside >>before
    for ROW in "${PATHS[@]}"; do
        read -r expected from to <<<"$ROW"
        copy "$expected" --key key "${from/#A/$A}" "${to/#A/$A}"
        [[ ! -e there && ! -e new ]] || fail "$ROW: something was made"
    done
    # The link itself is data.
    copy 0 --key key "$A/out" there
    is ../outside "$(readlink there)" 'the copied link'
    cmp before <(listing root && listing outside)
}

# Somebody else is there, or nobody.
unreachable() {
    fresh
    local port
    "$PENSTOCK" key key
    port=$(free_port)
    copy 3 --key key "penstock://127.0.0.1:$port/x" there
    says "127.0.0.1:$port" refused
    copy 3 --key key "penstock://nowhere.invalid:$port/x" there
    says nowhere.invalid
    mkdir page
    start_process web /usr/bin/python3 -um http.server --bind 127.0.0.1 --directory page "$port"
    wait_line web 'Serving HTTP'
    copy 3 --key key "penstock://127.0.0.1:$port/x" there
    says "127.0.0.1"
    stop_process web
    start_process silent /usr/bin/python3 -uc 'import socket, sys
with socket.create_server(("127.0.0.1", int(sys.argv[1]))) as listener:
    print("ready")
    held = [listener.accept() for _ in range(100)]' "$port"
    wait_line silent ready
    COPY_SECONDS=45 copy 3 --key key "penstock://127.0.0.1:$port/x" there
    [[ ! -e there ]] || fail 'something was made'
}

# ---- strangers, beside a job ----

STRANGERS=(silent random zeros http ssh tls trickle half end reset damaged newer data peer control control_random
    control_trickle)

strangers() {
    an_agent
    local kind
    head -c 300M /dev/urandom >root/large
    start_copy job --key key --rate 200M "$A/large" there
    wait_event job '.event == "snapshot" and .bytes.moved > 0'
    for kind in "${STRANGERS[@]}"; do
        start_process "$kind" /usr/bin/python3 "$LIB/strays.py" "${PORT[a]}" "$kind" 5
    done
    start_process crowd /usr/bin/python3 "$LIB/strays.py" "${PORT[a]}" silent 1000
    wait_line crowd connected 60
    # A new job gets through the crowd.
    copy 0 --key key "$A/tree/" tree
    same_copy root/tree tree
    for kind in "${STRANGERS[@]}" crowd; do
        end_copy "$kind" 0
    done
    end_copy job 0
    cmp root/large there
    [[ $(wc -l <"${LOG[a]}") -lt 60 ]] || fail 'strangers fill the log'
    [[ $(awk '$1 == "VmHWM:" { print $2 }' "/proc/${PID[a]}/status") -lt 65536 ]] || fail 'the listener grew'
    is '' "$(pgrep -P "${PID[a]}")" 'processes that strangers left'
    stop_process a
    is 0 "$STATUS" 'exit status of an agent that is asked to end'
}

# ---- its end ----

# SIGNAL: the job ends with its listener, and goes on at the next one.
ends_with() {
    an_agent
    local children signal=$ROW
    head -c 300M /dev/urandom >source
    start_copy job --key key --rate 400M source "$A/there"
    wait_event job '.event == "snapshot" and .bytes.moved > 0'
    children=$(pgrep -P "${PID[a]}")
    is 1 "$(wc -w <<<"$children")" 'processes of one job'
    kill "-$signal" "${PID[a]}"
    # shellcheck disable=SC2086 # words
    wait_gone 10 $children || fail 'a process of the job outlives the listener'
    end_copy job 6
    end_copy a 0 137
    [[ ! -e root/there ]] || fail 'an unfinished file has its name'
    start_agent a --root "$PWD/root" --key key --listen "127.0.0.1:${PORT[a]}"
    copy 0 --key key source "$A/there"
    told '.bytes.moved < .bytes.total'
    cmp source root/there
    no_leftovers root
}

# One job's process dies: the others and the listener go on.
one_dies() {
    an_agent
    local first
    head -c 200M /dev/urandom >root/large
    start_copy one --key key --rate 200M "$A/large" one/
    wait_event one '.event == "snapshot" and .bytes.moved > 0'
    first=$(pgrep -P "${PID[a]}")
    start_copy two --key key --rate 400M "$A/large" two/
    wait_event two '.event == "snapshot" and .bytes.moved > 0'
    kill -KILL "$first"
    end_copy one 6
    end_copy two 0
    cmp root/large two/large
    copy 0 --key key "$A/large" one/
    cmp root/large one/large
}

busy() {
    an_agent --jobs 1
    head -c 100M /dev/urandom >root/large
    start_copy job --key key --rate 200M "$A/large" there
    wait_event job '.event == "snapshot" and .bytes.moved > 0'
    copy 3 --key key "$A/tree" elsewhere/
    says 'as many jobs as it may'
    end_copy job 0
    copy 0 --key key "$A/tree" elsewhere/
}

case_run starts starts
case_run keys keys
case_run lets_in lets_in
case_run read_only read_only
case_run paths paths
case_run unreachable unreachable
case_run strangers strangers
for ROW in TERM KILL; do case_run "ends_with_$ROW" ends_with; done
case_run one_dies one_dies
case_run busy busy
