#!/bin/bash
# tier: check
# cap: 300
# sets: engines builds
# Where a copy goes: what rsync does with the same words is what is right. Ends on this machine and at agents.
source "$(dirname "$0")/../lib/job.sh"

# Two folders alike, `ours` and `theirs`: sources, and what a destination may be.
playground() {
    fresh
    mkdir -p ours/dir/inner ours/have/dir ours/deep/er
    cd ours
    echo in >dir/inner/file
    echo "with a colon" >'a:b'
    echo one >file
    echo "the file in dir" >dir/file
    echo old >old
    echo "was there" >have/own
    echo "was there too" >have/dir/own
    ln -s file link
    ln -s dir dirlink
    ln -s have havelink
    ln -s nowhere dangling
    chmod 0750 dir
    find . -exec touch -h -d '2021-03-04 05:06:07.089' {} +
    cd ..
    cp -a ours theirs
}

# Kinds, modes, sizes, texts of links, and the times of what was not made or changed just now.
shape() {
    (cd "$1" && find . -printf '%y %m %T@ %l %P\n' | awk '$3 > 1700000000 { $3 = "now" } { print }' | sort)
}

# A destination gets the time at which something was made in it, and a job makes something in it always; but one that
# takes contents gets the time of its source.
same_time() {
    local root
    root=$(realpath -m "theirs/$1/$2")
    [[ -d $root ]] || root=${root%/*}
    touch "$root" "${root/theirs/ours}"
}

# try FOLDER WORDS...: the same words for both; prints what is wrong, if anything.
try() {
    local folder=$1 words ours=0 theirs=0
    shift
    words="$* in $folder"
    shape ours >before
    (cd "theirs/$folder" && rsync -a "$@") >theirs.log 2>&1 || theirs=$?
    (cd "ours/$folder" && timeout 60 "$PENSTOCK" copy --state "$STATE" "$@") >ours.log 2>&1 </dev/null || ours=$?
    if (((ours == 0) != (theirs == 0))); then
        echo "$words: exit $ours, rsync's is $theirs"
        cat ours.log theirs.log
        return
    fi
    if [[ $ours -ne 0 ]]; then
        diff before <(shape ours) >differ.log || echo "$words: fails and leaves something: $(cat differ.log)"
        return
    fi
    [[ " ${*:1:$#-1} " == *[/.]' '* ]] || same_time "$folder" "${*: -1}"
    if ! diff -r --no-dereference theirs ours >differ.log 2>&1 || ! diff <(shape theirs) <(shape ours) >>differ.log; then
        echo "$words: rsync makes something else"
        cat differ.log
    fi
}

# SOURCE...: each with every destination.
DESTINATIONS=(new new/ have have/ old old/ havelink havelink/ deep/new deep/er/../new missing/new .)

every_destination() {
    local destination wrong=''
    for destination in "${DESTINATIONS[@]}"; do
        playground
        # shellcheck disable=SC2086 # words
        wrong+=$(try . $ROW "$destination")
    done
    is '' "$wrong" 'what is not as with rsync'
}

SOURCES=(dir dir/ dir/. file link dangling dirlink dirlink/ ./dir dir//inner/../inner/
    'dir file' 'dir file link' './a:b' missing)

# FOLDER WORDS: started elsewhere, and names that a shell user writes.
OTHER_WORDS=('dir . ../new' 'dir ./ ../new' 'deep/er .. ../../new' 'dir/inner ../file ../../new' 'dir file ../file'
    'have ../dir .' '. ./a:b ./c:d' '. ./a:b have' '. dir/file dir/inner' '. dir/inner have/dir')

elsewhere() {
    local words wrong=''
    for words in "${OTHER_WORDS[@]}"; do
        playground
        # shellcheck disable=SC2086 # words
        wrong+=$(try $words)
    done
    is '' "$wrong" 'what is not as with rsync'
}

absolute() {
    playground
    copy 0 "$PWD/ours/dir" "$PWD/ours/file" "$PWD/ours/new"
    rsync -a "$PWD/theirs/dir" "$PWD/theirs/file" "$PWD/theirs/new"
    diff <(shape theirs) <(shape ours)
    copy 0 "$PWD/ours/dir/" "$PWD/deeper"
    same_copy ours/dir deeper
    grep -qF "$PWD/ours/dir/ -> $PWD/deeper" "$OUT" || fail 'it is not told where the copy goes'
}

# Nothing is made by a command that is refused as wrong. (Where rsync merges sources of one name, penstock asks to be
# told more clearly.)
REFUSED=('dir dir' 'dir dir/inner' 'dir/ dir/new' 'dir dir/inner/new' '. new' 'dir/ dirlink/new' 'file dir dir/new'
    'dir' 'dir have/ new' 'dir/ have/ new' 'dir have/dir new' 'dir ftp://host/x' 'dir penstock://host' 'dir penstock://host:0/x' 'dir -x:y' 'dir :y'
    'penstock://a/x ./b new')

refused() {
    local words status wrong=''
    for words in "${REFUSED[@]}"; do
        playground
        shape ours >before
        status=0
        # shellcheck disable=SC2086 # words
        (cd ours && timeout 60 "$PENSTOCK" copy --state "$STATE" $words) >ours.log 2>&1 </dev/null || status=$?
        if [[ $status -ne 2 || ! -s ours.log ]]; then
            wrong+="$words: exit $status $(cat ours.log)"$'\n'
        elif ! diff before <(shape ours) >differ.log; then
            wrong+="$words: wrote something: $(cat differ.log)"$'\n'
        fi
    done
    is '' "$wrong" 'what is not refused'
}

# ---- agents: a has the playground's `ours`, b an empty root ----

two_agents() {
    playground
    mkdir roots
    "$PENSTOCK" key key
    start_agent a --root "$PWD/ours" --key key "${LISTEN_A[@]}"
    start_agent b --root "$PWD/roots" --key key
    A=penstock://${HOST_A:-127.0.0.1}:${PORT[a]}
    B=penstock://127.0.0.1:${PORT[b]}
    LISTEN_A=()
}
LISTEN_A=()

# FROM TO EXPECTED: what is to be at EXPECTED afterwards is what lies at the source.
AGENT_PLACES=(
    'A/dir      here             ours/dir  here/dir'
    'A/dir/     here             ours/dir  here'
    'A/         here             ours      here'
    'A          here             ours      here'
    'A/file     here             ours/file here'
    'A/link     here/            ours/link here/link'
    'ours/dir   B/               ours/dir  roots/dir'
    'ours/dir   B/new            ours/dir  roots/new/dir'
    'ours/dir/  B/new/           ours/dir  roots/new'
    'ours/file  B/new            ours/file roots/new'
    'A/dir      B/               ours/dir  roots/dir'
    'A/dir/     B/new            ours/dir  roots/new'
    'A/deep/../file B/new        -'
    'A/dir      A/new            ours/dir  ours/new/dir'
    'A/dir/     A/deep/er        ours/dir  ours/deep/er'
    'A/file     A/copied         ours/file ours/copied'
)

agent_places() {
    local from to expected made
    for ROW in "${AGENT_PLACES[@]}"; do
        two_agents
        read -r from to expected made <<<"$ROW"
        from=${from/#A/$A} to=${to/#A/$A} to=${to/#B/$B}
        if [[ $expected == - ]]; then
            copy 3 --key key "$from" "$to"
            is '' "$(ls -A roots)" 'what a refused copy leaves'
        elif [[ -d $expected && ! -L $expected ]]; then
            copy 0 --key key "$from" "$to"
            same_copy "$expected" "$made"
        else
            copy 0 --key key "$from" "$to"
            is "$(stat -c '%F %a %s %y' "$expected")" "$(stat -c '%F %a %s %y' "$made")" "$made"
            [[ -L $expected ]] || cmp "$expected" "$made"
        fi
        no_leftovers .
        stop_agents
    done
}

# A tree of every kind over two agents, and back, with several sources of one agent.
third_party() {
    two_agents
    make_tree ours/tree
    copy 0 --key key "$A/tree" "$A/dir" "$B/"
    same_copy ours/tree roots/tree
    same_copy ours/dir roots/dir
    told "all(.streams[]; .source == \"127.0.0.1\" and .destination == \"127.0.0.1\")"
    copy 0 --key key "$A/tree" "$A/dir" "$B/"
    told '.entries.moved == 0 and .bytes.moved == 0'
    copy 0 --key key "$B/tree/" back
    same_copy ours/tree back
    copy 2 --key key "$A/dir" "$B/tree" here
}

inside_agent() {
    two_agents
    shape ours >before
    copy 2 --key key "$A/dir" "$A/dir/inner/new"
    copy 2 --key key "$A/" "$A/new"
    diff before <(shape ours)
}

# The program finds out as well that an agent's folder and one here are the same.
inside_across() {
    two_agents
    shape ours >before
    copy 2 --key key "$A/dir" ours/dir/new
    copy 2 --key key ours/dir "$A/dir/new"
    diff before <(shape ours)
}

ipv6() {
    if ! /usr/bin/python3 -c 'import socket; socket.socket(socket.AF_INET6).bind(("::1", 0))' 2>/dev/null; then
        skip 'this machine has no IPv6'
    fi
    LISTEN_A=(--listen "[::1]:$(free_port)") HOST_A='[::1]'
    two_agents
    copy 0 --key key "$A/dir" here
    same_copy ours/dir here/dir
    copy 0 --key key -6 ours/have "$A/new"
    same_copy ours/have ours/new/have
    copy 3 --key key -4 "$A/dir" nowhere
    copy 2 --key key "penstock://::1:${PORT[a]}/dir" nowhere
    [[ ! -e nowhere ]] || fail 'a copy that did not start made something'
}

for ROW in "${SOURCES[@]}"; do
    case_run "from_${ROW//[^a-z.]/_}" every_destination
done
case_run elsewhere elsewhere
case_run absolute absolute
case_run refused refused
case_run agent_places agent_places
case_run third_party third_party
case_run inside_agent inside_agent
case_run inside_across inside_across
case_run ipv6 ipv6
