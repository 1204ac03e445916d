"""Segments of the manifest: PROTOCOL.md, "Manifest"."""
from dataclasses import dataclass, field

from . import digest
from .wire import Reader, Refused, blob, i64, u16, u32, u64, u8

MAGIC = 0x4D4B5350
DIRECTORY, FILE, LINK = 1, 2, 3
SPARSE = 1
BLOCK = 4096
PATH_MAX, TARGET_MAX, NAME_MAX, RANGES_MAX = 32768, 4096, 255, 16384
ENTRIES_MAX, SEGMENT_MAX, SOURCES_MAX, DATA_MAX = 4096, 1 << 20, 256, 1 << 34
SIZE_MAX = 2**63 - 1


@dataclass
class Entry:
    type: int
    path: bytes
    mode: int = 0o644
    size: int = 0
    mtime: tuple = (0, 0)  # seconds, nanoseconds
    ctime: tuple = (0, 0)
    inode: int = 0
    uid: int = 0
    gid: int = 0
    root: int = 0
    target: bytes = b""
    ranges: list = None  # of a sparse file: [(offset, length)]

    def encode(self):
        content = (u8(self.type) + u8(0 if self.ranges is None else SPARSE) + u16(self.root) + u32(self.mode)
                   + u32(self.uid) + u32(self.gid) + u64(self.size) + i64(self.mtime[0]) + u32(self.mtime[1])
                   + u32(self.ctime[1]) + i64(self.ctime[0]) + u64(self.inode) + blob(self.path))
        if self.type == LINK:
            content += blob(self.target)
        if self.ranges is not None:
            content += u32(len(self.ranges)) + b"".join(u64(at) + u64(length) for at, length in self.ranges)
        return content

    def data(self):
        """The ranges of its data."""
        if self.type != FILE or self.size == 0:
            return []
        return [(0, self.size)] if self.ranges is None else self.ranges

    def data_bytes(self):
        return sum(length for _, length in self.data())

    def is_packed(self):
        return self.size <= digest.LEAF


@dataclass
class Segment:
    number: int
    entries: list = field(default_factory=list)
    last: bool = False

    def encode(self):
        head = u32(MAGIC) + u32(len(self.entries)) + u64(self.number) + u8(self.last) + bytes(7)
        return head + b"".join(entry.encode() for entry in self.entries)

    def digest(self):
        return digest.xxh128(self.encode())


def safe_path(path):
    parts = path.split(b"/")
    return (len(path) <= PATH_MAX and b"\0" not in path and b".penstock" not in parts
            and all(0 < len(part) <= NAME_MAX and part not in (b".", b"..") for part in parts))


def check_ranges(ranges, end):
    """Ascending, not empty, not touching, within [0, end)."""
    behind = -1
    for at, length in ranges:
        if length == 0 or at <= behind or at + length > end:
            raise Refused("ranges that overlap, touch or leave their bounds")
        behind = at + length


def check_entry(entry):
    if not (safe_path(entry.path) or (entry.path == b"" and entry.type == DIRECTORY)):
        raise Refused(f"the path {entry.path!r}")
    if entry.mode > 0o7777 or entry.mtime[1] >= 10**9 or entry.ctime[1] >= 10**9 or entry.root >= SOURCES_MAX:
        raise Refused("mode, time or root out of range")
    if entry.type != FILE and (entry.size or entry.ranges is not None):
        raise Refused("a size of what is no file")
    if entry.size > SIZE_MAX:
        raise Refused("a size that no file has")
    if entry.type == LINK and (not 1 <= len(entry.target) <= TARGET_MAX or b"\0" in entry.target):
        raise Refused("a link to nothing")
    if entry.ranges is not None:
        check_ranges(entry.ranges, entry.size)
        for at, length in entry.ranges:
            if at % BLOCK or (length % BLOCK and at + length != entry.size):
                raise Refused("a data range that is no whole blocks")


def read_entry(reader):
    kind, flags, root = reader.u8(), reader.u8(), reader.u16()
    if kind not in (DIRECTORY, FILE, LINK) or flags & ~SPARSE:
        raise Refused("an entry of an unknown kind")
    mode, uid, gid, size = reader.u32(), reader.u32(), reader.u32(), reader.u64()
    mtime_s, mtime_ns, ctime_ns, ctime_s = reader.i64(), reader.u32(), reader.u32(), reader.i64()
    entry = Entry(kind, b"", mode, size, (mtime_s, mtime_ns), (ctime_s, ctime_ns), reader.u64(), uid, gid, root)
    entry.path = reader.blob(PATH_MAX)
    if kind == LINK:
        entry.target = reader.blob(TARGET_MAX)
    if flags & SPARSE:
        count = reader.u32()
        if count > RANGES_MAX:
            raise Refused("too many data ranges")
        entry.ranges = [(reader.u64(), reader.u64()) for _ in range(count)]
    check_entry(entry)
    return entry


def read_segment(content):
    reader = Reader(content)
    magic, count, number, last = reader.u32(), reader.u32(), reader.u64(), reader.u8()
    reader.zeros(7)
    if len(content) > SEGMENT_MAX or magic != MAGIC or count > ENTRIES_MAX or last > 1:
        raise Refused("no segment")
    segment = Segment(number, [read_entry(reader) for _ in range(count)], bool(last))
    reader.end()
    if len({entry.path for entry in segment.entries}) != count:
        raise Refused("two entries of one path")
    if count > 1 and sum(entry.data_bytes() for entry in segment.entries) > DATA_MAX:
        raise Refused("too much data for one segment")
    return segment
