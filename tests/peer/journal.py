"""The journal of a destination root: PROTOCOL.md, "Journal"."""
from dataclasses import dataclass, field

from . import digest, manifest
from .receipt import JOURNAL, read_records_before_damage
from .wire import Reader, Refused, i64, u32, u64

VERSION = 1
FILE, LEAVES, GONE = 1, 2, 3
DIGEST = BOOT = 16


@dataclass
class File:
    """A version of a source file, and the digests of its leaves that are durable."""
    path: bytes
    size: int
    mtime: tuple
    ctime: tuple
    inode: int
    boot: bytes  # digest of what tells boots apart
    leaves: dict = field(default_factory=dict)

    def temp_name(self):
        version = (u64(self.size) + i64(self.mtime[0]) + u32(self.mtime[1]) + i64(self.ctime[0]) + u32(self.ctime[1])
                   + u64(self.inode))
        return digest.xxh128(self.path + version).hex()


def read_file(reader, files):
    if reader.u64() != len(files):
        raise Refused("file numbers count from 0")
    size = reader.u64()
    mtime, ctime = (reader.i64(), reader.u32()), (reader.i64(), reader.u32())
    found = File(b"", size, mtime, ctime, reader.u64(), reader.raw(BOOT))
    found.path = reader.blob(manifest.PATH_MAX)
    manifest.check_entry(manifest.Entry(2, found.path, 0, size, mtime, ctime=ctime))
    if size == 0 or any(f is not None and f.path == found.path for f in files):
        raise Refused("an empty file, or one that is there already")
    files.append(found)


def known(reader, files):
    number = reader.u64()
    if number >= len(files) or files[number] is None:
        raise Refused("a file that is unknown or gone")
    return number


def read_leaves(reader, files):
    found, first = files[known(reader, files)], reader.u64()
    count, odd = divmod(reader.left(), DIGEST)
    if count == 0 or odd or first + count > digest.leaf_count(found.size):
        raise Refused("leaves that are not in the file")
    for leaf in range(first, first + count):
        found.leaves[leaf] = reader.raw(DIGEST)


def read_gone(reader, files):
    files[known(reader, files)] = None


def read(content):
    """(files that are not gone, why the reading ended): all that is before the first record that is torn, damaged
    or against the rules counts; the reason is empty when nothing is."""
    version, _, records, reason = read_records_before_damage(content, JOURNAL)
    if version != VERSION:
        raise Refused(f"a journal of version {version}")
    files = []
    readers = {FILE: read_file, LEAVES: read_leaves, GONE: read_gone}
    try:
        for record_type, payload in records:
            if record_type not in readers:
                raise Refused(f"a record of type {record_type}")
            reader = Reader(payload)
            readers[record_type](reader, files)
            reader.end()
    except Refused as refused:
        reason = str(refused)
    return [f for f in files if f is not None], reason
