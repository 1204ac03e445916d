"""Checksums and digests: PROTOCOL.md, "Conventions" and "Digests"."""
import xxhash

from .wire import u64

LEAF = 1 << 20


def check64(content):
    return xxhash.xxh3_64_intdigest(content)


def xxh128(content):
    return xxhash.xxh3_128_digest(content)


def of_file(leaves, size):
    return xxh128(b"".join(leaves) + u64(size))


def leaf_count(size):
    return -(-size // LEAF)


def leaf_length(index, size):
    return min(LEAF, size - index * LEAF)
