#!/usr/bin/python3
"""other_boot.py STATE [LEAF...]: as if the machine had been started anew since the journal in STATE (`.penstock`) was
written, and its disk had not kept what it called synced: of the one temporary file one byte is flipped in each LEAF,
the n-th of the leaves that are held (0: the first). Prints how many bytes the journal holds.
"""
import struct
import sys
from pathlib import Path

import xxhash

HEADER, FRAME, FILE, LEAVES, BOOT, MIB = 64, 24, 1, 2, 48, 1 << 20


def main():
    state, flips = Path(sys.argv[1]), [int(text) for text in sys.argv[2:]]
    old = (state / "journal").read_bytes()
    new, at, held = bytearray(old[:HEADER]), HEADER, {}
    total, = struct.unpack_from("<Q", old, HEADER - 8)
    while at + FRAME <= len(old):
        length, kind = struct.unpack_from("<IH", old, at)
        record = bytearray(old[at:at + FRAME - 8 + length])
        if kind == FILE:
            size, = struct.unpack_from("<Q", record, 16 + 8)
            for byte in range(16 + BOOT, 16 + BOOT + 16):
                record[byte] ^= 0x5a
        if kind == LEAVES:
            first, = struct.unpack_from("<Q", record, 16 + 8)
            for leaf in range(first, first + (length - 16) // 16):
                held[leaf] = min(MIB, size - leaf * MIB)
        total = xxhash.xxh3_64_intdigest(struct.pack("<Q", total) + record)
        new += record + struct.pack("<Q", total)
        at += FRAME + length
    (state / "journal").write_bytes(new)
    temporary, = (state / "temp").iterdir()
    with open(temporary, "r+b") as file:
        for flip in flips:
            at = sorted(held)[flip] * MIB + 4711
            file.seek(at)
            byte = file.read(1)
            file.seek(at)
            file.write(bytes([byte[0] ^ 1]))
    print(sum(held.values()))


main()
