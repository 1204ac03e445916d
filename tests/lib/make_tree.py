#!/usr/bin/python3
"""make_tree.py DIR [SEED]: a sample tree with every kind of entry that a copy must carry, the same for a seed."""
import os
import random
import sys

LEAF = 1 << 20
SIZES = [0, 1, 511, 512, 513, 4095, 4096, 4097, 65536, LEAF - 1, LEAF, LEAF + 1, 5 * LEAF + 12345]
NAMES = [b"plain", b"with space", b" lead and trail ", b"new\nline", "\u00fcml\u00e4ut".encode(), b"not\xffutf8",
         b"back\\slash", b"quote'\"", b"-dash", b"*?[glob]", b"x" * 255]


def write(path, data, mode=0o644):
    with open(path, "wb") as file:
        file.write(data)
    os.chmod(path, mode)


def write_sparse(path, rng):
    with open(path, "wb") as file:
        file.seek(LEAF)
        file.write(rng.randbytes(4096))
        file.seek(3 * LEAF + 4096)
        file.write(rng.randbytes(LEAF))
        file.truncate(8 * LEAF + 7)


def populate(top, rng):
    for size in SIZES:
        write(os.path.join(top, b"size%d" % size), rng.randbytes(size))
    names = os.path.join(top, b"names")
    os.mkdir(names)
    for name in NAMES:
        write(os.path.join(names, name), rng.randbytes(rng.randrange(5000)))
    deep = os.path.join(top, *[b"deep%d" % level for level in range(12)])
    os.makedirs(deep)
    write(os.path.join(deep, b"bottom"), rng.randbytes(1000))
    many = os.path.join(top, b"many")
    os.mkdir(many)
    for number in range(200):
        write(os.path.join(many, b"file%03d" % number), rng.randbytes(rng.randrange(3000)))
    os.mkdir(os.path.join(top, b"empty"))
    write_sparse(os.path.join(top, b"sparse"), rng)
    write(os.path.join(top, b"script"), b"#!/bin/sh\n", 0o755)
    write(os.path.join(top, b"private"), rng.randbytes(100), 0o600)
    write(os.path.join(top, b"readonly"), rng.randbytes(100), 0o444)
    os.link(os.path.join(top, b"size4096"), os.path.join(deep, b"hardlink"))
    os.symlink(b"size512", os.path.join(top, b"link"))
    os.symlink(b"/nowhere/at/all", os.path.join(top, b"dangling"))
    os.symlink(b"many", os.path.join(top, b"link to folder"))


def set_times(top, rng):
    """Bottom up, so that no later change of an entry touches a folder's time."""
    for folder, folders, files in os.walk(top, topdown=False):
        for name in sorted(files) + sorted(folders) + ([b""] if folder == top else []):
            when = 1_000_000_000_000_000_000 + rng.randrange(500_000_000) * 1_000_000_000 + rng.randrange(10**9)
            os.utime(os.path.join(folder, name), ns=(when, when), follow_symlinks=False)


def main():
    top = os.fsencode(sys.argv[1])
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    os.makedirs(top)
    populate(top, random.Random(seed))
    set_times(top, random.Random(seed))


main()
