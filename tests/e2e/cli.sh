#!/bin/bash
# tier: test
# sets: none
# The command line: what is refused and how, what people see, what programs read.
source "$(dirname "$0")/../lib/job.sh"

# run WORDS...: runs the program; STATUS, $OUT and $ERR tell how it went.
run() {
    STATUS=0
    timeout 60 "$PENSTOCK" "$@" >"$OUT" 2>"$ERR" </dev/null || STATUS=$?
}

small() {
    fresh
    mkdir source
    echo one >source/file
    echo two >source/other
}

# ---- what is refused: exit 2, told by name on standard error, nothing made; the rest of the line is `source there` ----

UNKNOWN=(--nonsense --delete --dry-run -n --include=x --exclude=x --files-from=x --checksum
    --stream=4 --enc=on -z -X)
VALUES=(
    --streams=0 --streams=-1 --streams=1e3 --streams=1025 --streams=4x --streams=1.5 '--streams= 4' --streams=0x4
    --streams=99999999999999999999 --stripe=0 --stripe=3M --stripe=512K --stripe=32M --stripe=4MB --stripe=-4M
    --stripe=18446744073709551616 --rate=0 --rate=10X --rate=-5M '--rate=1,5G' --rate=5Gbps --rate=99999999999G
    --engine=fast --verify=disk --verify=none --engine=URING --direct=yes --encrypt=maybe --dial=both --ports=0 --ports=65536 --ports=9-3 --ports=1-
    --ports=x --quiet=1 --json-events=1 --io-timeout=0 --io-timeout=1d --io-timeout=-1 --io-timeout=721h --io-timeout=5x
)
MISSING=(--key --streams --rate --stripe --engine --direct --verify --encrypt --bind --ports --dial --rsh --remote-path --state
    --json --io-timeout)

refused() {
    local word wrong=''
    small
    for word in "${UNKNOWN[@]}" "${VALUES[@]}"; do
        run copy "$word" source there
        [[ $STATUS -eq 2 && ! -s $OUT ]] && grep -qF -- "${word%%=*}" "$ERR" || wrong+="$word: exit $STATUS $(cat "$ERR")"$'\n'
    done
    for word in "${MISSING[@]}"; do
        run copy source there "$word"
        [[ $STATUS -eq 2 ]] && grep -qF -- "$word" "$ERR" || wrong+="$word: exit $STATUS $(cat "$ERR")"$'\n'
        run copy "$word=" source there
        [[ $STATUS -eq 2 ]] || wrong+="$word=: exit $STATUS $(cat "$ERR")"$'\n'
    done
    is '' "$wrong" 'what is not refused as it should be'
    is 'source' "$(ls)" 'what refused commands leave'
}

# WORDS of other commands that are wrong.
WRONG=('' nonsense --nonsense bench wan doctor status 'copy' 'copy source' 'copy --json - --json-events source there'
    'serve --nonsense' 'serve extra' 'key' 'key a b' 'key --nonsense a' 'verify' 'verify --nonsense x' 'help nonsense')

wrong_words() {
    local wrong=''
    small
    for ROW in "${WRONG[@]}"; do
        # shellcheck disable=SC2086 # words
        run $ROW
        [[ $STATUS -eq 2 && ! -s $OUT && -s $ERR ]] || wrong+="'$ROW': exit $STATUS $(cat "$OUT" "$ERR")"$'\n'
    done
    is '' "$wrong" 'what is not refused'
    is 'source' "$(ls)" 'what refused commands leave'
}

# As many sources as can be, with names as long as can be: taken, or refused before anything is made.
long_names() {
    local i name
    fresh
    mkdir s
    for ((i = 0; i < 256; i++)); do
        printf -v name '%0250d' "$i"
        echo "$i" >"s/$name"
    done
    copy 0 s/* there
    told '.entries.total == 256 and .entries.moved == 256'
    diff -r s there >/dev/null || fail 'the copy differs'
    mv "s/$name" "s/${name}x"
    run copy s/* new
    [[ $STATUS -eq 2 && ! -e new ]] || fail "exit $STATUS $(cat "$ERR")"
    grep -q '65537 bytes together, the most is 65536' "$ERR" || fail "$(cat "$ERR")"
}

# A command of more words than are passed on.
long_rsh() {
    local words
    small
    printf -v words 'word%.0s ' {1..33}
    for ROW in "$words:33 words, the most is 32" ' :names no program'; do
        run copy -e "${ROW%%:*}" source host:there
        [[ $STATUS -eq 2 && ! -s $OUT ]] || fail "exit $STATUS $(cat "$OUT" "$ERR")"
        grep -q "${ROW#*:}" "$ERR" || fail "$(cat "$ERR")"
    done
}

# ---- help ----

helps() {
    local command option
    fresh
    for command in copy serve key verify; do
        run "$command" --help
        is '0 ' "$STATUS $(cat "$ERR")" "$command --help"
        is '' "$(awk 'length > 120' "$OUT")" "long lines of $command --help"
        cp "$OUT" help
        run help "$command"
        cmp help "$OUT"
        run "$command" --man
        is 0 "$STATUS" "$command --man"
        grep -q '^\.TH PENSTOCK' "$OUT" || fail 'this is no manual page'
        while read -r option; do
            grep -qF -- "${option//-/\\-}" "$OUT" || fail "the manual page of $command lacks $option"
        done < <(grep -oE '^ +(-., )?--[a-z0-9-]+' help | grep -oE -- '--[a-z0-9-]+' | { grep -vx -- --help || true; })
    done
    run --help
    is 0 "$STATUS" --help
    for command in copy serve key verify; do
        grep -q "^  $command " "$OUT" || fail "--help does not tell of $command"
    done
    run --version
    is "0 penstock $(sed -n 's/.*PENSTOCK_VERSION "\(.*\)"/\1/p' "$LIB/../../proto/version.h")" "$STATUS $(cat "$OUT")" \
        --version
}

# Options where people put them.
order() {
    small
    copy 0 source/ -q --streams=2 there --stripe 1M
    copy 0 -qv -e ssh source/ there
    copy 0 --streams 3 --streams 1 source/ there
    told '(.streams | length) == 1'
    mkdir -- -dash
    echo x >-dash/file
    copy 0 -- -dash -there
    cmp -- -dash/file -there/-dash/file
}

# ---- what people see ----

quiet() {
    small
    run copy --quiet --state "$STATE" source there
    is '0 ' "$STATUS $(cat "$OUT" "$ERR")" 'what a quiet copy says'
    chmod 0 source/file
    run copy -q --state "$STATE" source elsewhere
    is "1 $(grep -c file "$ERR")" "$STATUS 1" 'a quiet copy tells of a problem'
    is '' "$(cat "$OUT")" 'standard output'
}

# Where nobody looks on, lines are lines, whatever names hold.
plain() {
    small
    local name=$'bad\e[31m\r\nname\xff'
    echo x >"source/$name"
    chmod 0 "source/$name"
    run copy --state "$STATE" --progress -v "source" there
    is 1 "$STATUS" 'exit status'
    ! LC_ALL=C grep -q $'[\x01-\x08\x0b-\x1f\x7f]' "$OUT" "$ERR" || fail 'control characters'
    ! LC_ALL=C grep -q $'\xff' "$ERR" || fail 'a byte that is no text'
    grep -qF 'bad\x1b[31m\x0d\x0aname\xff' "$ERR" || fail 'the name is not told'
    grep -q '^incomplete: ' "$OUT" || fail 'no summary'
    grep -q 'receipt: ' "$OUT" || fail 'no receipt is told'
    grep -q '%' "$ERR" || fail '--progress shows none'
    run copy --state "$STATE" "source/file" there
    ! grep -q '%' "$OUT" "$ERR" || fail 'progress without a terminal'
}

# A terminal has one line that is drawn over, and it is gone at the end.
terminal() {
    small
    head -c 10M /dev/urandom >source/large
    script -qec "$PENSTOCK copy --state $STATE --streams 1 --rate 100M source there" typescript </dev/null >/dev/null
    grep -qE $'\r *[0-9]+%.*MiB' typescript || fail 'no progress on the terminal'
    grep -q 'complete: ' typescript || fail 'no summary'
    [[ $(grep -c '%' typescript) -le 2 ]] || fail 'progress is more than one line'
    script -qec "$PENSTOCK copy -q --state $STATE --streams 1 --rate 100M source elsewhere" typescript </dev/null >screen
    is '' "$(tr -d '\r\n' <screen)" 'what a quiet copy shows'
}

encryption_off() {
    small
    copy 0 --encrypt off source there
    grep -q 'without encryption' "$OUT" || fail 'nobody says that data is not encrypted'
}

# ---- what programs read ----

json_to_stdout() {
    small
    run copy --state "$STATE" --json - source there
    is 0 "$STATUS" 'exit status'
    cp "$OUT" "$REPORT"
    sound_report 0
    is 1 "$(jq -s length "$OUT")" 'documents'
    grep -q '^complete: ' "$ERR" || fail 'people are told nothing'
}

# The document takes its name when it is whole, a device is written to, and what cannot be written is not passed over.
json_to_files() {
    small
    echo old >report
    ln -s report link
    copy 0 source there
    run copy --state "$STATE" --json link source there
    is 0 "$STATUS" 'exit status'
    jq -e '.exit == 0' report
    [[ -L link ]] || fail 'the link is none any more'
    is 'link report source there' "$(echo *)" 'what lies about'
    run copy --state "$STATE" --json missing/report source there
    is 3 "$STATUS" 'exit status where no report can be made'
    says missing/report
    run copy --state "$STATE" --json /dev/full source there
    is 1 "$STATUS" 'exit status where the report cannot be written'
    says 'No space left'
    run copy --state "$STATE" --json /dev/null source there
    is 0 "$STATUS" 'exit status'
}

json_names() {
    small
    local name=$'back\\slash \xff \u00fc\n'
    echo x >"source/$name"
    chmod 0 "source/$name"
    copy 1 source there
    told '.problems[0].path == "source/back\\\\slash \\xff \u00fc\\x0a"'
}

# Every line is an object; the counters add up at any time and never go back.
events() {
    small
    head -c 30M /dev/urandom >source/large
    chmod 0 source/file
    run copy --state "$STATE" --json-events --streams 1 --rate 100M source there
    is 1 "$STATUS" 'exit status'
    jq -s -e '(.[0].event == "resolved") and (.[-1].event == "ended") and (.[-1].exit == 1)
        and all(.[]; .event | IN("resolved", "notice", "snapshot", "problem", "ended"))
        and ([.[] | select(.event == "problem")] | length == 1 and .[0].path == "source/file")
        and ([.[] | select(.entries)] | length >= 3)
        and all(.[] | select(.entries) | .entries;
                .moved + .skipped + .changed + .vanished + .failed + .pending == .total)
        and ([.[] | select(.entries) | .bytes.moved] | . == sort)' "$OUT" >/dev/null || fail "$(cat "$OUT")"
    is "$(wc -l <"$OUT")" "$(jq -c . "$OUT" | wc -l)" 'lines'
    grep -q '^incomplete: ' "$ERR" || fail 'people are told nothing'
}

# Nobody reads on, or nobody reads at all: the data is moved all the same, and the exit status tells.
no_reader() {
    small
    head -c 10M /dev/urandom >source/large
    local status=0
    { "$PENSTOCK" copy --state "$STATE" --json-events --streams 1 --rate 100M source there 2>/dev/null || echo $? >status; } | head -n 1
    is 1 "$(cat status)" 'exit status where the events cannot be written'
    same_copy source there/source
    (exec >&- 2>&- && exec "$PENSTOCK" copy --state "$STATE" source closed) || status=$?
    is 0 "$status" 'exit status without standard output and error'
    same_copy source closed/source
    "$PENSTOCK" copy --state "$STATE" source full >/dev/full 2>"$ERR" || status=$?
    is 1 "$status" 'exit status where standard output is full'
    same_copy source full/source
}

# ---- where receipts go ----

receipts() {
    small
    HOME=$PWD/home run copy source there
    is 1 "$(find home/.local/state/penstock/receipts -name '*.receipt' | wc -l)" 'receipts in the home'
    XDG_STATE_HOME=$PWD/xdg run copy source there
    is 1 "$(find xdg/penstock/receipts -name '*.receipt' | wc -l)" 'receipts in $XDG_STATE_HOME'
    is 700 "$(stat -c %a xdg/penstock)" 'mode'
    echo no folder >file
    run copy --state file source there
    is 3 "$STATUS" 'exit status where receipts were asked for and cannot be kept'
    HOME=$PWD/file XDG_STATE_HOME='' run copy source nevertheless
    is 0 "$STATUS" 'exit status where receipts cannot be kept'
    grep -q 'no receipt' "$OUT" || fail 'it is not told that there is no receipt'
    same_copy source nevertheless/source
}

for ROW in refused wrong_words long_names long_rsh helps order quiet plain terminal encryption_off json_to_stdout json_to_files \
    json_names events no_reader receipts; do
    case_run "$ROW" "$ROW"
done
