"""What a destination needs of a segment: PROTOCOL.md, "Need"."""
from . import digest
from .manifest import check_ranges
from .wire import Reader, Refused, u32, u64, u8

MAGIC = 0x4E4B5350
NOTHING, ALL, LEAVES = 0, 1, 2
NEED_MAX = 1 << 20


def encode(number, needs):
    """`needs`: for each entry NOTHING, ALL, or a list of leaf ranges (first, count)."""
    content = u32(MAGIC) + u32(len(needs)) + u64(number)
    for need in needs:
        if isinstance(need, int):
            content += u8(need)
        else:
            content += u8(LEAVES) + u32(len(need)) + b"".join(u64(first) + u64(count) for first, count in need)
    return content


def of_all(segment):
    """Everything that has data."""
    return [ALL if entry.data_bytes() else NOTHING for entry in segment.entries]


def leaf_ranges(need, entry):
    """The needed leaves of an entry as ranges."""
    if need == NOTHING:
        return []
    return [(0, digest.leaf_count(entry.size))] if need == ALL else need


def read(content, segment):
    reader = Reader(content)
    if len(content) > NEED_MAX or reader.u32() != MAGIC:
        raise Refused("no need")
    if reader.u32() != len(segment.entries) or reader.u64() != segment.number:
        raise Refused("the need of another segment")
    needs = []
    for entry in segment.entries:
        verdict = reader.u8()
        if verdict > LEAVES or (verdict and not entry.data_bytes()):
            raise Refused("a verdict that this entry cannot have")
        needs.append(verdict)
        if verdict == LEAVES:
            count = reader.u32()
            needs[-1] = [(reader.u64(), reader.u64()) for _ in range(count)]
            if count == 0 or entry.is_packed():
                raise Refused("leaves of no file that has them")
            check_ranges(needs[-1], digest.leaf_count(entry.size))
    reader.end()
    return needs
