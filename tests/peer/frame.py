"""Data frames: PROTOCOL.md, "Data frame"."""
from dataclasses import dataclass

from . import digest
from .seal import TAG
from .wire import Reader, Refused, u16, u32, u64, u8

MAGIC = 0x464B5350
HEAD = 64
STRIPE, END = 1, 2
SEALED = 1
OK, CHANGED, VANISHED, UNREADABLE = 0, 1, 2, 3
BODY_MAX, EXTENTS_MAX, LEAVES_MAX = 16 << 20, 2049, 1024


def trailer_length(extents, leaves):
    return 24 + 4 * extents + 16 * leaves


@dataclass
class Head:
    kind: int
    session: int = 0
    segment: int = 0
    stripe: int = 0
    sequence: int = 0
    body: int = 0
    trailer: int = 0
    extents: int = 0
    leaves: int = 0
    flags: int = SEALED
    version: int = 1
    magic: int = MAGIC

    def encode(self):
        front = (u32(self.magic) + u8(self.version) + u8(self.kind) + u16(self.flags) + u32(self.session)
                 + u32(self.extents) + u64(self.segment) + u64(self.stripe) + u64(self.sequence) + u32(self.body)
                 + u32(self.trailer) + u32(self.leaves) + u32(0))
        return front + u64(digest.check64(front))

    def length(self):
        """Of the whole frame."""
        return HEAD + (self.body + self.trailer + TAG if self.kind == STRIPE else 0)


def read_head(content):
    reader = Reader(content)
    magic, version, kind, flags = reader.u32(), reader.u8(), reader.u8(), reader.u16()
    if magic != MAGIC or digest.check64(content[:56]) != int.from_bytes(content[56:64], "little"):
        raise Refused("no frame head")
    head = Head(kind, session=reader.u32(), extents=reader.u32(), segment=reader.u64(), stripe=reader.u64(),
                sequence=reader.u64(), body=reader.u32(), trailer=reader.u32(), leaves=reader.u32(), flags=flags)
    reader.zeros(4)
    if version != 1 or kind not in (STRIPE, END) or flags & ~SEALED:
        raise Refused("a frame head of an unknown kind")
    if kind == END:
        if head.segment or head.stripe or head.body or head.trailer or head.extents or head.leaves:
            raise Refused("an end that says more than that")
    elif (not 1 <= head.extents <= EXTENTS_MAX or not head.extents <= head.body <= BODY_MAX
          or not 1 <= head.leaves <= LEAVES_MAX or head.trailer != trailer_length(head.extents, head.leaves)):
        raise Refused("a frame head that cannot be")
    return head


def trailer(states, leaves):
    """`states` is a list of (state, errno), `leaves` one of digests."""
    front = digest.xxh128(b"".join(leaves))
    front += b"".join(u8(state) + u8(0) + u16(errno) for state, errno in states) + b"".join(leaves)
    return front + u64(digest.check64(front))


def read_trailer(content, extents, leaves):
    """(states, leaf digests)."""
    reader = Reader(content)
    whole = reader.raw(16)
    states = []
    for _ in range(extents):
        state, zero, errno = reader.u8(), reader.u8(), reader.u16()
        if state > UNREADABLE or zero or (errno != 0 and state != UNREADABLE):
            raise Refused("an extent in no known state")
        states.append((state, errno))
    digests = [reader.raw(16) for _ in range(leaves)]
    if reader.u64() != digest.check64(content[:-8]) or whole != digest.xxh128(b"".join(digests)):
        raise Refused("the trailer's checksum or digest does not fit")
    reader.end()
    return states, digests


def encode(head, body, end, seal):
    """A whole frame of a stripe; `end` is its trailer, `seal` None on a stream that is not sealed."""
    front = head.encode()
    if seal is None:
        return front + body + end + bytes(TAG)
    return front + seal.close(head.sequence, front, body + end)


def opened(head, front, rest, seal):
    """(body, trailer) of what came behind a head."""
    text = rest[:-TAG] if seal is None else seal.open(head.sequence, front, rest)
    return text[:head.body], text[head.body:]
