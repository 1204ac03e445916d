"""Test vectors as text, for another implementation to be held against: tests/vectors/.

A file is comments (`#`), and cases: a line `case KIND NAME`, then lines `KEY VALUE...`. Numbers are decimal, bytes hex
and `-` when there are none. Cases whose KIND begins with `bad-` have bytes that a reader must refuse.
"""
import hashlib
from pathlib import Path

from . import digest, frame, greet, journal, layout, manifest, message, need, receipt, seal
from .wire import Refused, blob, blob_list, i64, u16, u32, u64

FOLDER = Path(__file__).resolve().parent.parent / "vectors"
MIB = 1 << 20
TIMES = {"mtime": (1700000000, 5), "ctime": (1700000001, 6), "inode": 42, "uid": 1000, "gid": 100}


class Numbers:
    """Numbers and bytes that look random and are the same everywhere."""

    def __init__(self, seed):
        self.seed, self.count = seed, 0

    def raw(self, length):
        content = b""
        while len(content) < length:
            content += hashlib.sha256(b"%s %d" % (self.seed.encode(), self.count)).digest()
            self.count += 1
        return content[:length]

    def below(self, limit):
        return int.from_bytes(self.raw(8), "little") % limit


def count_up(first, length):
    return bytes((first + at) & 255 for at in range(length))


def pattern(length):
    """Byte i is (7 i + 13 floor(i / 256)) mod 256."""
    period = bytes((7 * at + 13 * (at // 256)) & 255 for at in range(min(length, 1 << 16)))
    return (period * (length // (1 << 16) + 1))[:length]


def shown(value):
    if isinstance(value, bytes):
        return value.hex() or "-"
    return str(int(value))


def case(kind, name, *rows):
    """A case; a row is a key and its values."""
    lines = [f"case {kind} {name}"]
    for key, *values in rows:
        lines.append(" ".join([key, *(value if isinstance(value, str) else shown(value) for value in values)]))
    return "\n".join(lines) + "\n"


def must_refuse(read, *words):
    """The vector says that this is refused: so it must be here."""
    try:
        read(*words)
    except Refused:
        return
    raise AssertionError(f"{read.__name__} accepts {words}")


# ---- greeting ----


def greeting_cases():
    for kind, name in ((greet.DATA, "data"), (greet.PEER, "peer")):
        numbers = Numbers(f"greeting {name}")
        for session, stream, attempt in ((1, 2, 3), (0, 0, 0), (2**32 - 1, 1023, 2**32 - 1)):
            secret, job = numbers.raw(32), numbers.raw(16)
            said = greet.Greeting(greet.preamble(kind, job), greet.ask(session, stream, attempt, numbers.raw(32)),
                                  numbers.raw(32))
            dialler, acceptor = said.keys(secret)
            yield case("greeting", f"{name}-{stream}", ("kind", kind), ("job", job), ("secret", secret),
                       ("session", session), ("stream", stream), ("attempt", attempt), ("dialler_nonce", said.ask[16:]),
                       ("acceptor_nonce", said.acceptor_nonce), ("preamble", said.preamble), ("ask", said.ask),
                       ("acceptor_proof", said.proof(secret, greet.ACCEPT)),
                       ("dialler_proof", said.proof(secret, greet.DIAL)), ("dialler_key", dialler),
                       ("acceptor_key", acceptor))
    yield from bad_greetings()


def bad_greetings():
    good = greet.preamble(greet.DATA, count_up(0xA0, 16))
    for name, content in (("magic", b"penstock" + good[8:]), ("checksum", good[:-1] + bytes([good[-1] ^ 1])),
                          ("kind-0", greet.preamble(0, bytes(16))), ("kind-4", greet.preamble(4, bytes(16)))):
        must_refuse(greet.read_preamble, content)
        yield case("bad-preamble", name, ("preamble", content))
    front = good[:10] + b"\1" + good[11:32]
    yield case("bad-preamble", "reserved", ("preamble", front + u64(digest.check64(front))))
    yield case("bad-ask", "reserved", ("ask", u32(0) + u32(0) + u32(0) + u32(1) + bytes(32)))
    yield case("bad-ask", "stream-1024", ("ask", greet.ask(0, 1024, 0, bytes(32))))


# ---- frames ----

HEADS = {
    "first": {"session": 1, "segment": 3, "stripe": 9, "sequence": 0, "body": 7, "extents": 2, "leaves": 2},
    "large": {"segment": 2**63, "stripe": 2**64 - 2, "sequence": 2**40, "body": 16 * MIB, "extents": 2049, "leaves": 16},
    "packed": {"segment": 1, "stripe": 5, "sequence": 77, "body": 1024, "extents": 1024, "leaves": 1024},
    "one": {"body": 1, "extents": 1, "leaves": 1},
}


def stripe_head(**words):
    return frame.Head(frame.STRIPE, trailer=frame.trailer_length(words["extents"], words["leaves"]), **words)


def head_case(name, head):
    return case("head", name, ("kind", head.kind), ("session", head.session), ("segment", head.segment),
                ("stripe", head.stripe), ("sequence", head.sequence), ("body", head.body), ("trailer", head.trailer),
                ("extents", head.extents), ("leaves", head.leaves), ("sealed", head.flags), ("head", head.encode()))


def bad_heads():
    good = stripe_head(**HEADS["one"]).encode()
    yield "magic", b"pskf" + good[4:]
    yield "checksum", good[:-1] + bytes([good[-1] ^ 0x80])
    for name, change in (
            ("version", {"version": 2}), ("kind-0", {"kind": 0}), ("kind-3", {"kind": 3}), ("flags", {"flags": 3}),
            ("no-extents", {"extents": 0, "trailer": 40}),
            ("extents-2050", {"extents": 2050, "body": 2050, "trailer": 8240}),
            ("no-leaves", {"leaves": 0, "trailer": 28}), ("leaves-1025", {"leaves": 1025, "trailer": 16428}),
            ("body-over", {"body": 16 * MIB + 1}), ("body-empty", {"body": 0}),
            ("body-short", {"extents": 2, "trailer": 48}),
            ("trailer-long", {"trailer": 45}), ("trailer-short", {"trailer": 43}), ("body-huge", {"body": 2**32 - 1})):
        head = stripe_head(**HEADS["one"])
        head.__dict__.update(change)
        yield name, head.encode()
    for name, word in (("segment", {"segment": 1}), ("stripe", {"stripe": 1}), ("body", {"body": 1}),
                       ("extents", {"extents": 1}),
                       ("leaves", {"leaves": 1}), ("trailer", {"trailer": 24})):
        yield f"end-{name}", frame.Head(frame.END, **word).encode()
    front = good[:52] + u32(1)
    yield "reserved", front + u64(digest.check64(front))


TRAILERS = {
    "first": ([(0, 0), (3, 5)], [digest.xxh128(b"abc"), digest.xxh128(bytes(4))]),
    "states": ([(0, 0), (1, 0), (2, 0), (3, 65535), (3, 1)], [digest.xxh128(b"")]),
    "one": ([(0, 0)], [bytes(16)]),
}


def bad_trailers():
    good = frame.trailer(*TRAILERS["first"])
    yield "checksum", good[:-1] + bytes([good[-1] ^ 1]), 2, 2
    yield "stripe", resum(bytes([good[0] ^ 1]) + good[1:]), 2, 2
    yield "leaf", resum(good[:24] + bytes([good[24] ^ 1]) + good[25:]), 2, 2
    yield "state-4", frame.trailer([(4, 0)], [bytes(16)]), 1, 1
    yield "errno-of-ok", frame.trailer([(0, 5)], [bytes(16)]), 1, 1
    yield "errno-of-changed", frame.trailer([(1, 5)], [bytes(16)]), 1, 1
    yield "reserved", resum(good[:17] + b"\1" + good[18:]), 2, 2


def resum(content):
    return content[:-8] + u64(digest.check64(content[:-8]))


def frame_cases():
    for name, words in HEADS.items():
        yield head_case(name, stripe_head(**words))
        yield head_case(f"{name}-plain", stripe_head(**words, flags=0))
    yield head_case("end", frame.Head(frame.END, sequence=2**33, session=7))
    yield head_case("end-plain", frame.Head(frame.END, flags=0))
    for name, content in bad_heads():
        must_refuse(frame.read_head, content)
        yield case("bad-head", name, ("head", content))
    for name, (states, leaves) in TRAILERS.items():
        yield case("trailer", name, ("states", *(word for state in states for word in state)),
                   ("leaves", *leaves), ("trailer", frame.trailer(states, leaves)))
    for name, content, extents, leaves in bad_trailers():
        must_refuse(frame.read_trailer, content, extents, leaves)
        yield case("bad-trailer", name, ("extents", extents), ("leaf_count", leaves), ("trailer", content))
    yield from sealed_cases()


def sealed_cases():
    key = Numbers("seal").raw(32)
    for number in (0, 1, 16383, 16384, 16385, 2**40):
        head = frame.Head(frame.STRIPE, sequence=number, **{k: v for k, v in HEADS["first"].items() if k != "sequence"},
                          trailer=frame.trailer_length(2, 2))
        text = b"abc" + bytes(4) + frame.trailer(*TRAILERS["first"])
        yield case("sealed", str(number), ("key", key), ("number", number), ("head", head.encode()), ("text", text),
                   ("sealed", seal.Seal(key).close(number, head.encode(), text)))
    yield case("sealed", "peer", ("key", key), ("number", 2), ("head", u32(9)),
               ("text", u16(message.PEER_NEED) + b"message"),
               ("sealed", seal.Seal(key).close(2, u32(9), u16(message.PEER_NEED) + b"message")))
    good = seal.Seal(key).close(5, b"head", b"text")
    for name, number, head, content in (
            ("text", 5, b"head", b"\0" + good[1:]), ("tag", 5, b"head", good[:-1] + b"\0"), ("head", 5, b"hear", good),
            ("number", 6, b"head", good), ("generation", 5 + 16384, b"head", good)):
        must_refuse(seal.Seal(key).open, number, head, content)
        yield case("bad-sealed", name, ("key", key), ("number", number), ("head", head), ("sealed", content))


# ---- manifest, need, layout ----


def entries_small():
    return [manifest.Entry(1, b"d", 0o755, **TIMES),
            manifest.Entry(2, b"d/f", 0o644, 3 * MIB + 5, ranges=[(0, 4096), (2 * MIB, MIB + 5)], **TIMES),
            manifest.Entry(3, b"l", 0o777, target=b"d/f", **TIMES), manifest.Entry(2, b"s", 0o644, 10, **TIMES)]


def entries_edges():
    return [manifest.Entry(1, b"", 0o7777, mtime=(-1, 999999999), ctime=(-2**63, 0), inode=2**64 - 1, uid=2**32 - 1,
                           gid=2**32 - 1),
            manifest.Entry(2, b"x" * 255, 0, 0), manifest.Entry(2, b"hole", 0, 5 * MIB, ranges=[], root=255),
            manifest.Entry(2, b"one", 0, MIB), manifest.Entry(2, b"more", 0, MIB + 1),
            manifest.Entry(2, b"packed hole", 0, 800, ranges=[]),
            manifest.Entry(2, b"packed sparse", 0, 12288, ranges=[(4096, 4096)]),
            manifest.Entry(3, b"\xff\n/a", 0o777, target=b"\x80" * 4096),
            manifest.Entry(2, b".penstock2/penstock", 0, 1)]


def entries_many(seed, count):
    """Files of all sizes, sparse ones too."""
    numbers = Numbers(seed)
    for at in range(count):
        size = numbers.below((200, 300000, 3 * MIB, 40 * MIB)[numbers.below(4)]) + 1
        entry = manifest.Entry(2, b"%d/%d" % (numbers.below(9), at), numbers.below(0o10000), size,
                               (numbers.below(2**33), at),
                               (numbers.below(2**33), 7 * at), numbers.below(2**40), root=numbers.below(3))
        if numbers.below(3) == 0:
            entry.ranges, start = [], 4096 * numbers.below(4)
            while start < size and len(entry.ranges) < 50:
                length = min(4096 * (1 + numbers.below(700)), size - start)
                entry.ranges.append((start, length))
                start += (length + 4095) // 4096 * 4096 + 4096 * (1 + numbers.below(500))
        yield entry


def partial_need(seed, segment):
    """Some leaves of some files."""
    numbers, needs = Numbers(seed), []
    for entry in segment.entries:
        if not entry.data_bytes() or numbers.below(4) == 0:
            needs.append(need.NOTHING)
        elif entry.is_packed() or numbers.below(3) == 0:
            needs.append(need.ALL)
        else:
            ranges, at, end = [], numbers.below(2), digest.leaf_count(entry.size)
            while at < end:
                length = min(1 + numbers.below(5), end - at)
                ranges.append((at, length))
                at += length + 1 + numbers.below(3)
            needs.append(ranges or need.ALL)
    return needs


def ranges_text(ranges):
    if ranges is None:
        return "-"
    return ",".join(f"{at}+{length}" for at, length in ranges) or "none"


def entry_row(entry):
    return ("entry", entry.type, entry.root, entry.mode, entry.uid, entry.gid, entry.size, *map(str, entry.mtime),
            *map(str, entry.ctime), entry.inode, entry.path, entry.target, ranges_text(entry.ranges))


def triples(items):
    return ",".join(":".join(map(str, item)) for item in items)


def stripe_row(stripe):
    leaves = layout.leaf_digests(stripe, pattern(stripe.body_bytes()))
    return ("stripe", stripe.packed, stripe.k, triples(stripe.extents), triples(stripe.leaves),
            digest.xxh128(b"".join(leaves)))


def layout_case(name, segment, needs, stripe_bytes):
    laid = layout.Layout(segment, needs, stripe_bytes)
    assert manifest.read_segment(segment.encode()) == segment
    assert need.read(need.encode(segment.number, needs), segment) == needs
    return case("layout", name, ("number", segment.number), ("last", segment.last), *map(entry_row, segment.entries),
                ("segment", segment.encode()), ("digest", segment.digest()), ("need", need.encode(segment.number, needs)),
                ("stripe_bytes", stripe_bytes), ("stripes", laid.count()), ("bytes", laid.bytes()),
                *map(stripe_row, laid.stripes), ("layout", laid.digest()))


def manifest_cases():
    small = manifest.Segment(3, entries_small(), True)
    yield layout_case("document", small, [0, [(0, 1), (3, 1)], 0, 1], MIB)
    yield layout_case("nothing", small, [0, 0, 0, 0], MIB)
    yield layout_case("empty", manifest.Segment(2**64 - 1, []), [], MIB)
    edges = manifest.Segment(0, entries_edges())
    yield layout_case("edges", edges, need.of_all(edges), 16 * MIB)
    for at in range(4):
        segment = manifest.Segment(at, list(entries_many(f"many {at}", 20)), at == 3)
        yield layout_case(f"all-{at}", segment, need.of_all(segment), MIB << at)
        yield layout_case(f"partial-{at}", segment, partial_need(f"need {at}", segment), MIB << (3 - at))
    yield from bad_segments()
    yield from bad_needs(small)


def bad_segments():
    one = manifest.Segment(0, [manifest.Entry(2, b"a", size=10)]).encode()
    raw = {"magic": b"PSKm" + one[4:], "cut": one[:-1], "more": one + b"\0", "count": one[:4] + u32(2) + one[8:],
           "last-2": one[:16] + b"\2" + one[17:], "reserved": one[:17] + b"\1" + one[18:], "nothing": b"",
           "count-4097": one[:4] + u32(4097) + one[8:], "flags": one[:25] + b"\2" + one[26:]}
    entries = {
        "dotdot": {"path": b"../a"}, "dotdot-end": {"path": b"a/.."}, "dot": {"path": b"a/./b"},
        "absolute": {"path": b"/etc/x"},
        "doubled": {"path": b"a//b"}, "trailing": {"path": b"a/"}, "nul": {"path": b"a\0b"}, "empty-file": {"path": b""},
        "name-256": {"path": b"n" * 256}, "path-32769": {"path": b"/".join([b"n" * 127] * 257)[:32769]},
        "own": {"path": b".penstock/journal"}, "own-itself": {"path": b".penstock"}, "own-within": {"path": b"a/.penstock"}, "type-0": {"type": 0},
        "type-4": {"type": 4},
        "mode": {"mode": 0o10000}, "mtime": {"mtime": (0, 10**9)}, "ctime": {"ctime": (0, 10**9)},
        "root-256": {"root": 256},
        "size": {"size": 2**63}, "size-of-directory": {"type": 1, "size": 1},
        "sparse-directory": {"type": 1, "ranges": []},
        "link-empty": {"type": 3}, "link-nul": {"type": 3, "target": b"a\0"},
        "link-4097": {"type": 3, "target": b"t" * 4097},
        "range-empty": {"size": 8192, "ranges": [(0, 0)]}, "range-beyond": {"size": 8191, "ranges": [(4096, 4096)]},
        "range-unaligned": {"size": 9000, "ranges": [(1, 4096)]}, "range-length": {"size": 9000, "ranges": [(0, 4097)]},
        "range-touching": {"size": 9000, "ranges": [(0, 4096), (4096, 4096)]},
        "range-descending": {"size": 20000, "ranges": [(8192, 4096), (0, 4096)]},
        "range-overflow": {"size": 2**63 - 1, "ranges": [(2**64 - 4096, 8192)]},
    }
    for name, change in entries.items():
        words = {"type": 2, "path": b"a", **change}
        raw[name] = manifest.Segment(0, [manifest.Entry(**words)]).encode()
    twice = [manifest.Entry(2, b"a"), manifest.Entry(1, b"b"), manifest.Entry(3, b"a", target=b"b")]
    raw["twice"] = manifest.Segment(0, twice).encode()
    raw["data"] = manifest.Segment(0, [manifest.Entry(2, b"a", size=2**34), manifest.Entry(2, b"b", size=1)]).encode()
    for name, content in raw.items():
        must_refuse(manifest.read_segment, content)
        yield case("bad-segment", name, ("segment", content))


def bad_needs(segment):
    """Of the segment in the document: a directory, a sparse file of 4 leaves, a link, a packed file."""
    good = need.encode(3, [0, [(0, 1), (3, 1)], 0, 1])
    raw = {"magic": b"PSKn" + good[4:], "cut": good[:-1], "more": good + b"\0", "entries": good[:4] + u32(3) + good[8:],
           "number": good[:8] + u64(4) + good[16:], "verdict-3": good[:-1] + b"\3", "nothing": b""}
    for name, needs in {
            "directory": [1, 0, 0, 0], "link": [0, 0, 1, 0], "leaves-of-packed": [0, 0, 0, [(0, 1)]],
            "no-range": [0, [], 0, 0],
            "range-empty": [0, [(0, 0)], 0, 0], "range-beyond": [0, [(3, 2)], 0, 0],
            "range-touching": [0, [(0, 1), (1, 1)], 0, 0],
            "range-descending": [0, [(2, 1), (0, 1)], 0, 0], "range-overflow": [0, [(2**64 - 1, 2)], 0, 0]}.items():
        raw[name] = need.encode(3, needs)
    for name, content in raw.items():
        must_refuse(need.read, content, segment)
        yield case("bad-need", name, ("segment", segment.encode()), ("need", content))


# ---- messages ----


def message_cases():
    for name, (number, fields) in message.TABLE.items():
        numbers = Numbers(f"message {name}")
        for filled in (False, True):
            words = message.Message(name)
            for kind, field, longest in fields if filled else ():
                size = {"u8": 1, "u16": 2, "u32": 4, "u64": 8, "id": 16, "digest": 16, "secret": 32}.get(kind)
                value = numbers.raw(size or 1 + numbers.below(min(longest, 40)))
                setattr(words, field, int.from_bytes(value, "little") if kind in message.INTEGERS else value)
            assert message.decode(number, words.body()).fields() == words.fields()
            yield case("message", name, ("number", number), *words.fields().items(), ("wire", words.encode()))
    for name, number, body in (
            ("type-0", 0, b""), ("type-1000", 1000, b""), ("type-peer", message.PEER_SEGMENT, b""),
            ("cut", 18, bytes(43)),
            ("more", 3, bytes(9)), ("empty", 5, b""), ("blob-over", 2, bytes(5) + u32(32) + bytes(32 + 12)),
            ("blob-beyond", 13, bytes(16) + u32(1)), ("blob-huge", 13, bytes(16) + u32(2**32 - 1))):
        must_refuse(message.decode, number, body)
        yield case("bad-message", name, ("number", number), ("body", body))


# ---- receipts ----


def receipt_cases():
    records = [
        receipt.Record(2, 1, 1, 0o644, 2**63 - 1, (1700000000, 999999999), count_up(1, 16), b"a/b"),
        receipt.Record(1, 2, 0, 0o7777, 0, (-1, 0), bytes(16), b""),
        receipt.Record(3, 1, 0, 0o777, 0, (0, 0), digest.xxh128(b"target"), b"\xff\xfe"),
        receipt.Record(2, 5, 0, 0, 0, (0, 0), bytes(16), b"x/" * 100 + b"y"),
        receipt.Record(2, 3, 3, 0, 1, (0, 0), bytes(16), b"c"), receipt.Record(2, 4, 2, 0, 1, (0, 0), bytes(16), b"v")]
    for at, record in enumerate(records):
        assert receipt.read_record(record.encode()) == record
        yield case("record", str(at), ("type", record.type), ("outcome", record.outcome), ("proof", record.proof),
                   ("mode", record.mode), ("size", record.size), ("mtime_s", str(record.mtime[0])),
                   ("mtime_ns", record.mtime[1]),
                   ("digest", record.digest), ("path", record.path), ("bytes", record.encode()))
    good = records[0].encode()
    for name, content in (
            ("outcome-0", good[:1] + b"\0" + good[2:]), ("outcome-6", good[:1] + b"\6" + good[2:]),
            ("proof-4", good[:2] + b"\4" + good[3:]), ("reserved", good[:3] + b"\1" + good[4:]),
            ("type-4", b"\4" + good[1:]),
            ("cut", good[:-1]), ("more", good + b"\0"), ("path", good[:-3] + b"../"),
            ("nanoseconds", good[:24] + u32(10**9) + good[28:])):
        must_refuse(receipt.read_record, content)
        yield case("bad-record", name, ("bytes", content))
    job = (1700000000, b"penstock 1.2.3", [b"/data/run7", b"b"], b"penstock://a/x", b"penstock://a/x/run7")
    yield case("job", "1", ("started", job[0]), ("program", job[1]), ("sources", blob_list(job[2])),
               ("destination", job[3]),
               ("place", job[4]), ("bytes", receipt.job_payload(*job)))
    counts = (7, 1, 2, 3, 0, 1, 2**50)
    yield case("end", "1", ("ended", 1700000100), ("exit", 8), ("counts", *counts),
               ("bytes", receipt.end_payload(1700000100, 8, counts)))
    content = receipt.record_file(receipt.RECEIPT, 1, count_up(0xA0, 16), count_up(0xB0, 16), [
        (receipt.JOB, receipt.job_payload(*job)), (receipt.ENTRIES, blob_list(record.encode() for record in records[:3])),
        (receipt.ENTRIES, blob_list(record.encode() for record in records[3:])),
        (receipt.END, receipt.end_payload(1700000100, 8, counts))])
    assert len(receipt.read_record_file(content, receipt.RECEIPT)[2]) == 4
    yield case("file", "receipt", ("kind", receipt.RECEIPT), ("version", 1), ("job", count_up(0xA0, 16)), ("records", 4),
               ("bytes", content))
    yield journal_case(b"a/b", 2 * MIB + 1, (1700000000, 123456789), (1700000001, 999999999), 4711)


def journal_case(path, size, mtime, ctime, inode, boot=count_up(0xE0, 16)):
    """A file with two of its leaves, and another of the same path when the first is gone."""
    about = u64(size) + i64(mtime[0]) + u32(mtime[1]) + i64(ctime[0]) + u32(ctime[1]) + u64(inode) + boot + blob(path)
    leaves = [count_up(0xC0, 16), count_up(0xD0, 16)]
    records = [(journal.FILE, u64(0) + about), (journal.LEAVES, u64(0) + u64(1) + b"".join(leaves))]
    gone = [(journal.GONE, u64(0)), (journal.FILE, u64(1) + about)]

    def whole(more):
        return receipt.record_file(receipt.JOURNAL, 1, count_up(0xA0, 16), count_up(0xB0, 16), records + more)

    found = journal.File(path, size, mtime, ctime, inode, boot, {1: leaves[0], 2: leaves[1]})
    assert journal.read(whole([])) == ([found], "")
    assert journal.read(whole([])[:-1])[0][0].leaves == {}
    for broken in ((journal.LEAVES, u64(0) + u64(2) + b"".join(leaves)), (journal.LEAVES, u64(0) + u64(0)),
                   (journal.LEAVES, u64(1) + u64(0) + leaves[0]), (journal.FILE, u64(1) + about), (journal.GONE, u64(1)),
                   (4, b"")):
        files, reason = journal.read(whole([broken]))
        assert files == [found] and reason
    assert journal.read(whole(gone))[0][0].leaves == {}
    return case("file", "journal", ("kind", receipt.JOURNAL), ("version", 1), ("job", count_up(0xA0, 16)), ("records", 4),
                ("bytes", whole(gone)))


FILES = {"greeting": greeting_cases, "frames": frame_cases, "manifest": manifest_cases, "messages": message_cases,
         "receipts": receipt_cases}


def run(options):
    wrong = 0
    for name, cases in FILES.items():
        text = f"# Made by `tests/peer.py vectors`; tests/peer/vectors.py says what is in it.\n\n{chr(10).join(cases())}"
        path = FOLDER / f"{name}.txt"
        if options.check:
            if not path.exists() or path.read_text(encoding="ascii") != text:
                print(f"{path} is not what `tests/peer.py vectors` makes")
                wrong += 1
        else:
            FOLDER.mkdir(exist_ok=True)
            path.write_text(text, encoding="ascii")
    return 1 if wrong else 0
