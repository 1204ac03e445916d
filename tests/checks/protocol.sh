#!/bin/bash
# tier: check
# cap: 60
# PROTOCOL.md says what the headers say; the program that makes its tables reads them strictly; the vectors are current.
source "$(dirname "$0")/../lib/case.sh"

FILES=(proto/messages.h proto/err.h proto/limits.h proto/PROTOCOL.md)

# The files that the tables come from and go to, in a tree of their own.
copy_tree() {
    rm -rf "$WORK/tree"
    mkdir -p "$WORK/tree/proto"
    cp "${FILES[@]}" "$WORK/tree/proto"
}

tables() {
    tests/protocol/tables.py --root "$WORK/tree" "$@"
}

current() {
    tests/protocol/tables.py --check
}

# differs FILE SED: what was changed in the tree must be seen, and --write must put it right.
differs() {
    copy_tree
    sed -i "$2" "$WORK/tree/$1"
    ! cmp -s "$1" "$WORK/tree/$1" || fail "sed '$2' changes nothing in $1"
    ! tables --check || fail "does not see the change of $1: $2"
    tables --write
    tables --check
}

seen() {
    differs proto/messages.h 's/F(u64, cookie)/F(u32, cookie)/'
    differs proto/messages.h 's/B(op, 31)/B(op, 32)/'
    differs proto/err.h 's/"locked", ERR_REFUSE, 9/"locked", ERR_REFUSE, 8/'
    differs proto/limits.h 's/MESSAGE_BYTES_MAX = 144/MESSAGE_BYTES_MAX = 64/'
    differs proto/PROTOCOL.md 's/^| 18 | LEASE |.*/| 18 | LEASE | u64 lease |/'
    cmp proto/PROTOCOL.md "$WORK/tree/proto/PROTOCOL.md"
}

# refused FILE SED: a header (or a document) like this is an error.
refused() {
    copy_tree
    sed -i "$2" "$WORK/tree/$1"
    ! cmp -s "$1" "$WORK/tree/$1" || fail "sed '$2' changes nothing in $1"
    ! tables --check || fail "accepts $1 after $2"
    ! tables --write || fail "writes from $1 after $2"
}

strict() {
    refused proto/messages.h 's/F(u64, cookie)/F(u48, cookie)/'
    refused proto/messages.h 's/F(u64, cookie)/G(u64, cookie)/'
    refused proto/messages.h 's/F(u8, role)/F(u8, role) F(u8, role)/'
    refused proto/messages.h 's/B(op, 31)/B(op, OP_BYTES_MAX)/'
    refused proto/messages.h 's/M(18, LEASE, lease)/M(17, LEASE, lease)/'
    refused proto/messages.h 's/M(18, LEASE, lease)/M(18, LEASE, leased)/'
    refused proto/messages.h 's/#define MSG_PONG(F, B)/#define MSG_PUNG(F, B)/'
    refused proto/err.h 's/"locked", ERR_REFUSE/"locked", ERR_SHRUG/'
    refused proto/err.h 's/X(ERR_LOCKED, "locked"/X(ERR_LOCKED, "looked"/'
    refused proto/limits.h 's/MESSAGE_BYTES_MAX = 144/MESSAGE_BYTES_MAX = 2 ^ 7/'
    refused proto/PROTOCOL.md 's/^<!-- end of limits -->$//'
}

# A message or a field that only the table has.
spoken() {
    copy_tree
    sed -i 's/`wait_ms`/it/' "$WORK/tree/proto/PROTOCOL.md"
    tables --check >"$WORK/said" && fail 'does not see that wait_ms is not explained'
    grep -F 'wait_ms of LEASE' "$WORK/said"
    copy_tree
    sed -i 's/\bREDIAL\b/it/; s/^| 12 | it /| 12 | REDIAL /' "$WORK/tree/proto/PROTOCOL.md"
    tables --check >"$WORK/said" && fail 'does not see that REDIAL is not explained'
    grep -F 'no words about REDIAL' "$WORK/said"
}

# The vectors are those that the second implementation makes.
vectors() {
    tests/peer.py vectors --check
}

case_run current current
case_run seen seen
case_run strict strict
case_run spoken spoken
case_run vectors vectors
