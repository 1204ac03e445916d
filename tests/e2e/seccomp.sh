#!/bin/bash
# tier: check
# sets: none
# Kernels and containers that lack system calls: the copy is the same, and it is told which engine drives it and why.
source "$(dirname "$0")/../lib/job.sh"

ENOSYS=38 EPERM=1
IO_URING=425 OPENAT2=437 COPY_FILE_RANGE=326
case $(uname -m) in
x86_64) IO_SETUP=206 FIRST_AFTER_4_18=335 ;; # the numbers below 424 differ between machines
aarch64) IO_SETUP=0 COPY_FILE_RANGE=285 FIRST_AFTER_4_18=294 ;;
*) IO_SETUP='' ;;
esac

# NAME ERRNO ENGINE AIO CALLS...: which engine is chosen, and the exit status of a copy that asks for aio.
LACKS=(
    "nothing_new       $ENOSYS threads 0 $IO_URING $OPENAT2 444 445 446 $COPY_FILE_RANGE"
    "kernel_4_18       $ENOSYS threads 0 $FIRST_AFTER_4_18+"
    "container         $EPERM  threads 0 $IO_URING"
    "old_container     $EPERM  threads 0 $IO_URING $OPENAT2 444 445 446"
    "no_async          $ENOSYS threads 3 $IO_URING $IO_SETUP"
    "no_async_allowed  $EPERM  threads 3 $IO_URING $IO_SETUP"
    "only_openat2      $ENOSYS uring   0 $OPENAT2"
    "only_landlock     $ENOSYS uring   0 444 445 446"
)

lacking() {
    local name error engine aio calls
    fresh
    read -r name error engine aio calls <<<"$ROW"
    # shellcheck disable=SC2086 # words
    printf '#!/bin/sh\nexec "%s" %s %s -- "%s" "$@"\n' "$WORK/nosys" "$error" "$calls" "$REAL" >penstock
    chmod +x penstock
    PENSTOCK=$PWD/penstock
    if [[ $engine == uring ]] && ! "$REAL" copy --engine uring --state "$STATE" "$WORK/source/script" probe >/dev/null; then
        skip 'this kernel has no io_uring for us'
    fi
    copy 0 "$WORK/source/" here
    same_copy "$WORK/source" here
    told ".engine | (.source | startswith(\"$engine\")) and (.destination | startswith(\"$engine\"))"
    copy 0 "$WORK/source/" here
    told '.entries.moved == 0'
    # As an agent too, where paths are held beneath a root.
    "$REAL" key key
    mkdir root
    ln -s /etc root/out
    start_agent a --root "$PWD/root" --key key
    copy 0 --key key here/ "penstock://127.0.0.1:${PORT[a]}/new"
    same_copy "$WORK/source" root/new
    copy 3 --key key "penstock://127.0.0.1:${PORT[a]}/out/hostname" there
    copy 3 --key key here/script "penstock://127.0.0.1:${PORT[a]}/new/../../there"
    if [[ $engine != uring ]]; then
        copy 3 --engine uring "$WORK/source/" there
        says io_uring
    fi
    [[ ! -e there ]] || fail 'a copy that did not start made something'
    copy "$aio" --engine aio "$WORK/source/" by_aio
    [[ $aio -ne 0 ]] || same_copy "$WORK/source" by_aio
}

REAL=$PENSTOCK
if [[ -z $IO_SETUP ]]; then
    echo "skip seccomp.all the numbers of system calls on $(uname -m) are not known here"
    exit
fi
gcc -O2 -Wall -Wextra -D_GNU_SOURCE -o "$WORK/nosys" "$(dirname "$0")/nosys.c"
make_tree "$WORK/source"
for ROW in "${LACKS[@]}"; do case_run "${ROW%% *}" lacking; done
