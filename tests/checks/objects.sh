#!/bin/bash
# tier: check
# cap: 60
# What the compiled objects must not hold, and how the release program must be linked.
source "$(dirname "$0")/../lib/case.sh"

# Objects keep no state of their own: their data is constant.
no_globals() {
    local found
    mapfile -t objects < <(find "$BUILD"/obj/{proto,storage,mover,tools} -name '*.o')
    [[ ${#objects[@]} -gt 0 ]] || fail 'there are no objects'
    found=$(nm --print-file-name --format=sysv "${objects[@]}" | tr -d ' ' |
        awk -F'|' '$4 == "OBJECT" && $7 ~ /^(\.data|\.bss|\.tbss|\.tdata|\*COM\*)/ && $7 !~ /^\.data\.rel\.ro/ {
            print $1 " is a variable in " $7 }')
    [[ -z $found ]] || fail "$found"
}

# Nothing below tools/ ends the program, prints to a terminal or handles signals.
quiet_below_tools() {
    local found
    mapfile -t objects < <(find "$BUILD"/obj/{proto,storage,mover} -name '*.o')
    [[ ${#objects[@]} -gt 0 ]] || fail 'there are no objects'
    found=$(nm --print-file-name --undefined-only "${objects[@]}" |
        grep -E ' U (exit|(__)?v?printf(_chk)?|puts|putchar|perror|stdout|stderr|signal|sigaction)$' || true)
    [[ -z $found ]] || fail "$found"
}

hardened() {
    [[ -e $PENSTOCK ]] || fail 'there is no program'
    readelf --file-header "$PENSTOCK" | grep -q 'Type: *DYN' || fail 'not position independent'
    readelf --program-headers --wide "$PENSTOCK" | grep -q GNU_RELRO || fail 'no RELRO segment'
    readelf --dynamic "$PENSTOCK" | grep -qE 'BIND_NOW|FLAGS_1.*NOW' || fail 'binds lazily'
    readelf --program-headers --wide "$PENSTOCK" | grep GNU_STACK | grep -qv RWE || fail 'executable stack'
    nm "$PENSTOCK" | grep -q '__stack_chk_fail' || fail 'no stack protector'
}

case_run no_globals no_globals
case_run quiet_below_tools quiet_below_tools
case_run hardened hardened
