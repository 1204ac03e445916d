#!/bin/bash
# tier: check
# As root: owner and group, set-id bits, devices, and destinations that other mounts or attributes make odd.
source "$(dirname "$0")/../lib/job.sh"

USER_ID=12345 GROUP_ID=23456

owned_tree() {
    fresh
    mkdir -p source/dir/inner source/shared
    echo one >source/file
    echo two >source/dir/inner/file
    head -c 3M /dev/urandom >source/large
    printf '#!/bin/true' >source/setuid
    cp source/setuid source/setgid
    cp source/setuid source/both
    ln -s file source/link
    ln -s nowhere source/dangling
    chown -h "$USER_ID:$GROUP_ID" source/file source/large source/link source/dir source/dir/inner/file
    chown -h 0:$GROUP_ID source/dangling source/setgid source/shared
    chown "$USER_ID:0" source/setuid source/both source
    chmod 4755 source/setuid
    chmod 2755 source/setgid
    chmod 6755 source/both
    chmod 2770 source/shared
    chmod 0 source/dir/inner/file
    find source -exec touch -h -d '2021-03-04 05:06:07.089' {} +
}

owners() {
    (cd "$1" && find . -printf '%U:%G %m %y %P\n' | sort)
}

same_owners() {
    cmp <(owners source) <(owners copied) || fail "$(diff <(owners source) <(owners copied))"
    is '' "$(rsync -nac --itemize-changes source/ copied/)" 'what rsync would still do'
    same_copy source copied
}

as_root() {
    owned_tree
    copy 0 source/ copied
    same_owners
    copy 0 source/ copied
    told '.entries.moved == 0 and .bytes.moved == 0'
    same_owners
}

# What differs in owner, group or mode alone is put right without moving a byte.
put_right() {
    owned_tree
    copy 0 source/ copied
    chown -h 1:1 copied/file copied/large copied/link copied/dir
    chmod 0644 copied/setuid copied/both
    chown 7:7 source/setgid
    chmod 2755 source/setgid
    touch -d '2021-03-04 05:06:07.089' source/setgid
    copy 0 source/ copied
    told '.bytes.moved == 0'
    same_owners
}

# Who is not root gets everything as his own, and no set-id bits of others.
as_user() {
    owned_tree
    chmod 0644 source/dir/inner/file
    chmod 0755 source/shared
    mkdir -m 777 his
    chmod 0755 "$WORK"
    local user=nobody status=0
    cp "$PENSTOCK" "$WORK/penstock"
    cd his
    setpriv --reuid "$user" --regid 65534 --clear-groups "$WORK/penstock" copy --state state ../source/ copied || status=$?
    is 0 "$status" 'exit status'
    is "$(id -u "$user")" "$(find copied -printf '%U\n' | sort -u)" 'owners'
    is '' "$(find copied -type f -perm /6000)" 'files with set-id bits'
    is '' "$(rsync -nac --no-owner --no-group --no-perms --itemize-changes ../source/ copied/)" 'what rsync would still do'
}

# Devices are told and left out.
devices() {
    owned_tree
    mknod source/null c 1 3
    mknod source/dir/block b 7 99
    copy 1 source/ copied
    told '[.problems[] | select(.class == "unsupported") | .path] | sort == ["dir/block", "null"]'
    [[ ! -e copied/null && ! -e copied/dir/block ]] || fail 'a device was made'
    rm source/null source/dir/block
    touch -r source/file source source/dir
    copy 0 source/ copied
    same_owners
}

immutable() {
    owned_tree
    copy 0 source/ copied
    echo changed >source/file
    echo changed >source/dir/inner/file
    chattr +i copied/file 2>/dev/null || skip 'this file system has no immutable files'
    copy 1 source/ copied
    chattr -i copied/file
    told '.problems | map([.path, .errno]) == [["file", 1]]'
    is one "$(cat copied/file)" 'the immutable file'
    cmp source/dir/inner/file copied/dir/inner/file
    copy 0 source/ copied
    same_copy source copied
}

# Another file system beneath the destination: files get their names there too.
mounts() {
    owned_tree
    mkdir -p copied/dir
    mount -t tmpfs none copied/dir
    into_mount copied/dir
}

# A mount of the same file system: no device number tells it from the rest.
bind_mounts() {
    owned_tree
    mkdir -p copied/dir elsewhere
    mount --bind elsewhere copied/dir
    into_mount copied/dir
}

into_mount() {
    local first=0 second=0
    echo three >source/dir/small
    head -c 3M /dev/urandom >source/dir/large
    (copy 0 source/ copied && no_leftovers copied) || first=1
    (diff -r --no-dereference source copied && copy 0 source/ copied && told '.entries.moved == 0') || second=1
    umount "$1"
    is '0 0' "$first $second" 'first and second copy'
}

# Mounts beneath the source are crossed, one that holds itself is not gone round for ever.
source_mounts() {
    owned_tree
    mkdir source/other source/dir/again
    mount -t tmpfs none source/other
    echo four >source/other/file
    mount --bind source source/dir/again
    local status=0
    (copy 1 source/ copied) || status=1
    umount source/dir/again
    is 0 "$status" 'the copy'
    told '(.problems | length) == 1 and .problems[0].path == "dir/again"'
    cmp source/other/file copied/other/file
    umount source/other
}

for ROW in as_root put_right as_user devices immutable mounts bind_mounts source_mounts; do
    case_run "$ROW" "$ROW"
done
