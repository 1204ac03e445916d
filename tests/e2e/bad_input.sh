#!/bin/bash
# tier: check
# Sources that cannot be read and destinations that are in the way: the rest is moved, each entry is told, nothing
# outside is touched.
source "$(dirname "$0")/../lib/job.sh"

MIB=$((1 << 20))

# told_problem PATH CLASS ERRNO: the report has this problem.
told_problem() {
    told "any(.problems[]; .path == \"$1\" and .class == \"$2\" and .errno == $3)"
    says "$1"
}

# What is beneath `source` less the paths given is at the destination, as rsync would have put it.
rest_moved() {
    local path skip=()
    for path in "$@"; do
        skip+=(--exclude "/$path")
    done
    is '' "$(rsync -nac --itemize-changes "${skip[@]}" source/ copied/source/)" 'what rsync would still do'
    no_leftovers copied
}

small_tree() {
    fresh
    mkdir -p source/dir/inner copied
    echo one >source/file
    echo two >source/dir/file
    echo three >source/dir/inner/file
    head -c $((3 * MIB)) /dev/urandom >source/large
    ln -s file source/link
    touch -d '2021-03-04 05:06:07.089' source/dir source/dir/inner source/file
}

# ---- what cannot be moved: NAME PREPARATION EXIT PATH CLASS ERRNO (EACCES 13, ENOENT 2, ENOTDIR 20, EISDIR 21) ----

unreadable_file() { chmod 0000 source/dir/file; }
unreadable_large() { chmod 0200 source/large; }
unreadable_folder() { chmod 0000 source/dir/inner; }
no_search() { chmod 0600 source/dir/inner; }
fifo() { mkfifo source/dir/fifo; }
socket() { (cd source && /usr/bin/python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind("socket")'); }
own_name() { echo mine >source/.penstock; }
folder_for_file() { mkdir -p copied/source/file/full && echo keep >copied/source/file/full/kept; }
folder_for_large() { mkdir -p copied/source/large/full; }
folder_for_link() { mkdir -p copied/source/link/full; }

PROBLEMS=(
    'unreadable_file    1 source/dir/file        entry       13'
    'unreadable_large   1 source/large           entry       13'
    'unreadable_folder  1 source/dir/inner       entry       13'
    'no_search          1 source/dir/inner/file  entry       13'
    'fifo               1 source/dir/fifo        unsupported 0'
    'socket             1 source/socket          unsupported 0'
    'folder_for_file    1 source/file            entry       21'
    'folder_for_large   1 source/large           entry       21'
    'folder_for_link    1 source/link            entry       21'
)

problem() {
    local prepare exit path class error found
    small_tree
    read -r prepare exit path class error <<<"$ROW"
    "$prepare"
    find copied -type f -printf '%P %s %i\n' | sort >before
    copy "$exit" source copied
    told_problem "$path" "$class" "$error"
    told '(.problems | length) == 1 and .status == "incomplete" and .retryable and .entries.failed == 1'
    rest_moved "${path#source/}"
    found=$(comm -23 before <(find copied -type f -printf '%P %s %i\n' | sort))
    is '' "$found" 'files of the destination that are gone'
    # Run again, nothing but that is missing; put right, it is moved.
    copy "$exit" source copied
    told '.entries.moved == 0 and .bytes.moved == 0'
    chmod -R u+rwX source
    find source \( -type p -o -type s \) -delete
    rm -rf copied/source/file copied/source/large copied/source/link
    copy 0 source copied
    same_copy source copied/source
}

# Several at once: each is listed.
many_problems() {
    small_tree
    unreadable_file
    unreadable_large
    unreadable_folder
    fifo
    folder_for_file
    copy 1 source copied
    told '(.problems | length) == 5 and (.problems | map(.path) | unique | length) == 5 and .problems_left_out == 0'
    rest_moved dir/file large dir/inner dir/fifo file
}

# ---- what cannot start: NAME PREPARATION EXIT WORDS; the words follow `copy` ----

nothing() { :; }
readonly_root() { mkdir locked && chmod 0555 locked; }
own_link() { mkdir outside && ln -s "$PWD/outside" copied/.penstock; }
own_file() { echo mine >copied/.penstock; }

REFUSALS=(
    'nothing       3 No_such_file      missing copied'
    'nothing       3 No_such_file      source missing copied'
    'nothing       3 No_such_file      source copied/missing/deeper'
    'nothing       3 Not_a_directory   source source/file/x'
    'nothing       3 Not_a_directory   source/file/ copied'
    'readonly_root 3 Permission_denied source/file locked/'
    'own_link      3 copied            source copied'
    'own_file      3 copied            source copied'
)

refused() {
    local prepare exit words places
    small_tree
    read -r prepare exit words places <<<"$ROW"
    "$prepare"
    listing . >"$WORK/before"
    # shellcheck disable=SC2086 # words
    copy "$exit" $places
    says "${words//_/ }"
    cmp "$WORK/before" <(listing .)
}

# ---- what is in the way and gives way; nothing outside is written ----

file_for_folder() { mkdir copied/source && echo old >copied/source/dir; }
link_for_file() { mkdir copied/source && ln -s "$PWD/outside/victim" copied/source/file; }
link_for_large() { mkdir copied/source && ln -s "$PWD/outside/victim" copied/source/large; }
link_for_folder() { mkdir copied/source && ln -s "$PWD/outside" copied/source/dir; }
dangling_for_file() { mkdir copied/source && ln -s "$PWD/outside/born" copied/source/file; }
two_names_for_file() { mkdir copied/source && ln outside/victim copied/source/file; }
fifo_for_file() { mkdir copied/source && mkfifo copied/source/file copied/source/large; }
readonly_folder() { mkdir -p copied/source/dir && chmod 0555 copied/source/dir copied/source; }
own_folder() { mkdir -p source/.penstock/temp && echo left >source/.penstock/journal; }

YIELDING=(file_for_folder link_for_file link_for_large link_for_folder dangling_for_file two_names_for_file
    fifo_for_file readonly_folder)

yields() {
    small_tree
    mkdir outside
    echo 'do not touch' >outside/victim
    touch -d '2001-01-01' outside/victim outside
    listing outside >before
    "$ROW"
    copy 0 source copied
    same_copy source copied/source
    cmp before <(listing outside)
    is 'do not touch' "$(cat outside/victim)" 'what lies outside'
    no_leftovers copied
}

# A source that is itself the destination of an unfinished job: its `.penstock` is not data.
own_name_in_source() {
    small_tree
    own_folder
    copy 0 source/ copied
    [[ ! -e copied/.penstock ]] || fail 'the .penstock of the source was copied, or ours left'
    rm -r source/.penstock
    own_name
    copy 1 source/ copied
    told_problem .penstock entry 0
}

# What another copy keeps within the source or at the destination is neither copied nor written over nor removed.
own_name_elsewhere() {
    small_tree
    mkdir -p source/dir/.penstock/temp copied/theirs/.penstock empty
    echo journal >source/dir/.penstock/journal
    copy 0 source/ copied
    [[ ! -e copied/dir/.penstock ]] || fail 'the .penstock within the source was copied'
    echo precious >copied/theirs/.penstock/precious
    copy 3 source/ copied/theirs
    says 'holds what is not'
    is precious "$(cat copied/theirs/.penstock/precious)" 'what is not ours'
    copy 3 source/dir/.penstock empty
    says 'the name .penstock is reserved'
    copy 3 source/file empty/.penstock/
    says 'the name .penstock is reserved'
    [[ ! -e empty/.penstock ]] || fail 'it was made'
}

# Nothing is copied, and the job ends at once.
no_entries() {
    fresh
    mkfifo fifo
    mkdir copied
    for _ in {1..20}; do
        COPY_SECONDS=4 copy 1 fifo copied
    done
}

long_paths() {
    small_tree
    local level name
    name=$(printf 'n%.0s' {1..250})
    (
        cd source
        for level in {1..24}; do
            mkdir "$name" && cd -P "$name" 2>/dev/null || break
            echo "$level" >file
        done
    )
    copy 0 source copied
    is "$(cd source && find . -printf '%y %m %s %T@\n' | sort | sha256sum)" \
        "$(cd copied/source && find . -printf '%y %m %s %T@\n' | sort | sha256sum)" 'the deep tree'
}

for ROW in "${PROBLEMS[@]}"; do case_run "${ROW%% *}" problem; done
case_run many_problems many_problems
number=0
for ROW in "${REFUSALS[@]}"; do case_run "refused_$((++number))" refused; done
for ROW in "${YIELDING[@]}"; do case_run "$ROW" yields; done
case_run own_name_in_source own_name_in_source
case_run own_name_elsewhere own_name_elsewhere
case_run no_entries no_entries
case_run long_paths long_paths
