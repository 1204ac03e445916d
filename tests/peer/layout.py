"""The stripes of a segment: PROTOCOL.md, "Layout"."""
from dataclasses import dataclass

from . import digest
from .manifest import FILE
from .need import ALL, leaf_ranges
from .wire import u32, u64

MAGIC = 0x4C4B5350
PACKED_MAX = 1024


@dataclass
class Stripe:
    packed: bool
    extents: list  # [(entry index, offset, length)]
    leaves: list  # [(entry index, leaf, logical length)]
    k: int = 0  # of a large file

    def body_bytes(self):
        return sum(length for _, _, length in self.extents)


def needed_data(entry, need):
    """What lies both in a needed leaf and in a data range, as the longest runs."""
    runs = []
    for first, count in leaf_ranges(need, entry):
        begin, end = first * digest.LEAF, min((first + count) * digest.LEAF, entry.size)
        for at, length in entry.data():
            start, stop = max(at, begin), min(at + length, end)
            if start < stop:
                if runs and runs[-1][1] == start:
                    runs[-1] = (runs[-1][0], stop)
                else:
                    runs.append((start, stop))
    return runs


def cut_large(index, entry, need, stripe_bytes):
    """The stripes of a large file."""
    by_k = {}
    for start, stop in needed_data(entry, need):
        while start < stop:
            k = start // stripe_bytes
            piece = min(stop, (k + 1) * stripe_bytes)
            by_k.setdefault(k, []).append((index, start, piece - start))
            start = piece
    for k in sorted(by_k):
        touched = sorted({leaf for _, at, length in by_k[k]
                          for leaf in range(at // digest.LEAF, (at + length - 1) // digest.LEAF + 1)})
        leaves = [(index, leaf, digest.leaf_length(leaf, entry.size)) for leaf in touched]
        yield Stripe(False, by_k[k], leaves, k)


class Layout:
    def __init__(self, segment, needs, stripe_bytes):
        self.segment, self.needs, self.stripe_bytes = segment, needs, stripe_bytes
        self.stripes, self.large, self.packed = [], [], []
        packed = None
        for index, entry in enumerate(segment.entries):
            if entry.type != FILE or needs[index] == 0:
                continue
            if not entry.is_packed():
                stripes = list(cut_large(index, entry, needs[index], stripe_bytes))
                if stripes:
                    self.large.append((index, stripes))
                self.stripes += stripes
        for index, entry in enumerate(segment.entries):
            if entry.type != FILE or needs[index] != ALL or not entry.is_packed():
                continue
            if packed is None or len(packed.extents) == PACKED_MAX or packed.body_bytes() + entry.size > stripe_bytes:
                packed = Stripe(True, [], [])
                self.stripes.append(packed)
            packed.extents.append((index, 0, entry.size))
            packed.leaves.append((index, 0, entry.size))
            self.packed.append((index, sum(stripe.packed for stripe in self.stripes) - 1))

    def count(self):
        return len(self.stripes)

    def bytes(self):
        return sum(stripe.body_bytes() for stripe in self.stripes)

    def digest(self):
        content = (u32(MAGIC) + u32(self.stripe_bytes) + self.segment.digest() + u64(self.segment.number)
                   + u64(self.count()) + u64(self.bytes()) + u32(len(self.large)) + u32(len(self.packed)))
        for index, stripes in self.large:
            runs, leaves = [], leaf_ranges(self.needs[index], self.segment.entries[index])
            for stripe in stripes:
                if runs and sum(runs[-1]) == stripe.k:
                    runs[-1] = (runs[-1][0], runs[-1][1] + 1)
                else:
                    runs.append((stripe.k, 1))
            content += u32(index) + u32(len(runs)) + u32(len(leaves))
            content += b"".join(u64(first) + u64(count) for first, count in runs + leaves)
        content += b"".join(u32(index) + u32(stripe) for index, stripe in self.packed)
        return digest.xxh128(content)


def leaf_digests(stripe, body):
    """The digests of a stripe's leaves from its body; what no extent holds is zeros."""
    if stripe.packed:
        digests, at = [], 0
        for _, _, length in stripe.extents:
            digests.append(digest.xxh128(body[at:at + length]))
            at += length
        return digests
    leaves = {leaf: bytearray(length) for _, leaf, length in stripe.leaves}
    at = 0
    for _, offset, length in stripe.extents:
        for leaf in range(offset // digest.LEAF, (offset + length - 1) // digest.LEAF + 1):
            start = max(offset, leaf * digest.LEAF)
            stop = min(offset + length, (leaf + 1) * digest.LEAF)
            where = start - leaf * digest.LEAF
            leaves[leaf][where:where + stop - start] = body[at + start - offset:at + stop - offset]
        at += length
    return [digest.xxh128(bytes(leaves[leaf])) for _, leaf, _ in stripe.leaves]
