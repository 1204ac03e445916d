#!/bin/bash
# tier: check
# cap: 400
# sets: none
# HOST:PATH, over a real ssh server on the loopback that this user runs.
source "$(dirname "$0")/../lib/job.sh"

# A server that lets this user in with one key, into a home of its own; `far` and `further` are names that only the client's settings know.
ssh_server() {
    local port
    mkdir -m 700 "$WORK/ssh"
    cd "$WORK/ssh"
    port=$(free_port)
    ssh-keygen -q -t ed25519 -N '' -f host
    ssh-keygen -q -t ed25519 -N '' -f user
    cp user.pub authorized_keys
    cat >sshd_config <<END
ListenAddress 127.0.0.1:$port
HostKey $PWD/host
AuthorizedKeysFile $PWD/authorized_keys
PidFile none
UsePAM no
StrictModes no
PasswordAuthentication no
MaxStartups 100
ForceCommand cd $PWD/home && exec bash -c "\$SSH_ORIGINAL_COMMAND"
END
    mkdir home
    cat >ssh_config <<END
Host far further 127.0.0.1
    HostName 127.0.0.1
    Port $port
    User $(id -un)
    IdentityFile $PWD/user
    IdentitiesOnly yes
    IdentityAgent none
    UserKnownHostsFile $PWD/known_hosts
    BatchMode yes
    LogLevel ERROR
END
    echo "[127.0.0.1]:$port $(cut -d ' ' -f 1,2 host.pub)" >known_hosts
    sed -e "s|$PWD/known_hosts|$PWD/no_hosts|" -e 's/BatchMode yes/&\n    StrictHostKeyChecking yes/' ssh_config >strange_config
    sed "s|$PWD/user|$PWD/host|" ssh_config >stranger_config
    start_process sshd /usr/sbin/sshd -D -e -f sshd_config
    wait_line sshd "Server listening on" || fail 'the ssh server does not start'
    SSH=(-e "ssh -F $PWD/ssh_config" --remote-path "$PENSTOCK")
}

# A way to reach a host that does something of its own first.
rsh_that() {
    printf '#!/bin/bash\n%s\nexec ssh -F %s "$@"\n' "$1" "$WORK/ssh/ssh_config" >rsh
    chmod +x rsh
    SSH[1]=$PWD/rsh
}

somewhere() {
    fresh
    make_tree source
    mkdir "$WORK/case/remote"
    R=$WORK/case/remote
}

# FROM TO EXPECTED MADE: beneath $R, or in the home at the far end.
PLACES=(
    'source          far:R/              source  R/source'
    'source/         far:R/new           source  R/new'
    'source/script   far:R/new           source/script R/new'
    'source/         far:beneath_home    source  HOME/beneath_home'
    'source          far:                source  HOME/source'
    'far:R/source    here                R/source here/source'
    'far:R/source/   here                R/source here'
    'USER@far:R/source/ here             R/source here'
    '[127.0.0.1]:R/source/ here          R/source here'
    'far:R/source/   further:R/copied    R/source R/copied'
    'far:R/source/   far:R/copied        R/source R/copied'
)

places() {
    local from to expected made
    for ROW in "${PLACES[@]}"; do
        somewhere
        cp -a source remote/source
        [[ $ROW != *'far:R/ '* ]] || rm -r remote/source
        read -r from to expected made <<<"${ROW//R\//$R/}"
        made=${made/HOME/$WORK/ssh/home}
        copy 0 "${SSH[@]}" "${from/USER/$(id -un)}" "$to"
        if [[ -d $expected ]]; then
            same_copy "$expected" "$made"
        else
            cmp "$expected" "$made"
        fi
        no_leftovers "$(dirname "$made")"
        copy 0 "${SSH[@]}" "${from/USER/$(id -un)}" "$to"
        told '.entries.moved == 0 and .bytes.moved == 0'
        rm -rf "$WORK/ssh/home"
        mkdir "$WORK/ssh/home"
    done
}

# What a shell at the far end would take for more than a name is a name.
names() {
    somewhere
    local name
    for name in 'with space' '$(touch pwned)' '; touch pwned' "quote'\"" $'new\nline' '`touch pwned`' '*' '~' 'a:b'; do
        copy 0 "${SSH[@]}" source/ "far:$R/$name"
        same_copy source "remote/$name"
        copy 0 "${SSH[@]}" "far:$R/$name/" here
        same_copy source here
        rm -r here
    done
    is '' "$(find "$WORK" -name pwned)" 'what a name made'
}

# EXIT|WORDS|COMMAND|PROGRAM: of `copy -e COMMAND --remote-path PROGRAM source far:R/new`; CONFIG is in the server's folder.
REFUSED=(
    "3|--remote-path|ssh -F CONFIG/ssh_config|/nowhere/penstock"
    "3|No such file|/nowhere/ssh|$PENSTOCK"
    "3|far|./refusing|$PENSTOCK"
    "3|does not speak|./talking|$PENSTOCK"
    "3|far|ssh -F CONFIG/strange_config|$PENSTOCK"
    "3|far|ssh -F CONFIG/stranger_config|$PENSTOCK"
    "3|far|ssh -p 1 -F CONFIG/ssh_config|$PENSTOCK"
)

refused() {
    somewhere
    local expected words command program
    rsh_that 'exit 1'
    mv rsh refusing
    rsh_that 'echo "Welcome to this machine"'
    mv rsh talking
    for ROW in "${REFUSED[@]}"; do
        IFS='|' read -r expected words command program <<<"${ROW/CONFIG/$WORK/ssh}"
        copy "$expected" -e "$command" --remote-path "$program" source "far:$R/new"
        says "$words"
        [[ ! -e remote/new ]] || fail "$ROW: something was made"
    done
}

# A host is never an option of ssh.
options_as_hosts() {
    somewhere
    copy 2 "${SSH[@]}" source -- '-oProxyCommand=touch pwned:x'
    copy 2 "${SSH[@]}" -- '-oProxyCommand=touch${IFS}pwned:x' there
    copy 2 "${SSH[@]}" -- 'far;touch pwned:x' there
    [[ ! -e pwned ]] || fail 'a host name was obeyed'
}

# Words of the remote shell on standard error reach the user and harm nothing.
banner() {
    somewhere
    rsh_that 'echo "Authorised users only" >&2'
    copy 0 "${SSH[@]}" source/ "far:$R/new"
    says 'Authorised users only'
    same_copy source remote/new
}

ways() {
    somewhere
    local port
    port=$(free_port)
    copy 0 "${SSH[@]}" --ports "$port-$((port + 1))" source/ "far:$R/new"
    same_copy source remote/new
    copy 0 "${SSH[@]}" --ports "$port-$((port + 1))" --dial dst "far:$R/new/" here
    same_copy source here
    copy 0 "${SSH[@]}" --dial src --encrypt off --streams 2 "far:$R/new/" there
    same_copy source there
}

# Someone who types a password needs a while.
slow_login() {
    somewhere
    rsh_that 'sleep 40'
    copy 0 "${SSH[@]}" source/ "far:$R/new"
    same_copy source remote/new
}

# VICTIM EXIT: what dies in the middle of a job.
dies() {
    somewhere
    local victim exit pids ssh
    read -r victim exit <<<"$ROW"
    head -c 200M /dev/urandom >source/large
    start_process job setsid env --default-signal=INT "$PENSTOCK" copy --state "$STATE" --json-events --rate 400M \
        "${SSH[@]}" source/ "far:$R/new"
    wait_event job '.event == "snapshot" and .bytes.moved > 0'
    ssh=$(pgrep -P "${PID[job]}" -x ssh)
    pids=$(pgrep -f "^$PENSTOCK serve --stdio")
    is 2 "$(wc -w <<<"$pids")" 'agents of the job'
    case $victim in
    ssh) kill -KILL "$ssh" ;;
    coordinator) kill -KILL "${PID[job]}" ;;
    interrupt) kill -INT -- "-${PID[job]}" ;;
    esac
    end_copy job "$exit"
    # shellcheck disable=SC2086 # words
    wait_gone 20 $pids $ssh || fail 'something of the job still runs'
    [[ ! -e remote/new/large ]] || fail 'an unfinished file has its name'
    copy 0 "${SSH[@]}" source/ "far:$R/new"
    told '.bytes.moved < .bytes.total'
    same_copy source remote/new
    no_leftovers remote
}

ssh_server >&2
case_run places places
case_run names names
case_run refused refused
case_run options_as_hosts options_as_hosts
case_run banner banner
case_run ways ways
case_run slow_login slow_login
for ROW in 'ssh 6' 'coordinator 137' 'interrupt 5'; do case_run "dies_${ROW% *}" dies; done
