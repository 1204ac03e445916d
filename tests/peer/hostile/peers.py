"""What a peer connection must not bring: segments at a destination, needs at a source."""
from .. import digest, manifest, message, need
from ..channel import Closed, Failed
from ..wire import Refused, u16, u32
from . import LOST, PROTOCOL, destination, good_entries, source


def named(name, mark, attacks):
    attacks.__name__ = name
    mark(attacks)


# ---- at a destination ----


def sends(number, body):
    def attacks(attack):
        attack.begin()
        attack.peer.send(number, body)
        return attack.job_ends(fails_as=PROTOCOL)
    return attacks


GOOD = manifest.Segment(0, list(good_entries()), True).encode()
SEGMENTS = {
    "empty": (message.PEER_SEGMENT, b""), "cut": (message.PEER_SEGMENT, GOOD[:-1]),
    "more": (message.PEER_SEGMENT, GOOD + b"\0"),
    "count": (message.PEER_SEGMENT, GOOD[:4] + u32(5) + GOOD[8:]),
    "count-huge": (message.PEER_SEGMENT, GOOD[:4] + u32(2**32 - 1) + GOOD[8:]),
    "magic": (message.PEER_SEGMENT, b"P" + GOOD[:-1]), "oversize": (message.PEER_SEGMENT, GOOD + bytes(1 << 20)),
    "need": (message.PEER_NEED, need.encode(0, [1])), "type": (0x1FF, b""), "control": (3, bytes(8)),
}
for key, (number_of_message, body_of_message) in SEGMENTS.items():
    named(f"peer-{key}", destination, sends(number_of_message, body_of_message))


@destination
def peer_twice(attack):
    """A segment of a number that is under way."""
    attack.begin()
    attack.segment()
    attack.peer.send(message.PEER_SEGMENT, manifest.Segment(0, [manifest.Entry(manifest.DIRECTORY, b"e", 0o755)],
                                                            True).encode())
    return attack.job_ends(fails_as=PROTOCOL)


@destination
def peer_jump(attack):
    """The first segment has the number 5."""
    attack.begin()
    attack.peer.send(message.PEER_SEGMENT, manifest.Segment(5, list(good_entries()), True).encode())
    return attack.job_ends(fails_as=PROTOCOL)


@destination
def peer_flood(attack):
    """More segments than may be under way."""
    attack.begin()
    try:
        for number in range(6):
            entry = manifest.Entry(manifest.FILE, b"flood%d" % number, 0o644, 10)
            attack.peer.send(message.PEER_SEGMENT, manifest.Segment(number, [entry], False).encode())
            attack.peer.receive()
    except (Closed, Failed, ConnectionError):
        pass
    return attack.job_ends(fails_as=PROTOCOL)


def raw(content):
    """Bytes on the sealed connection."""
    def attacks(attack):
        attack.begin()
        attack.peer.sock.sendall(content(attack.peer))
        return attack.job_ends(fails_as=PROTOCOL)
    return attacks


def flip_last(content):
    return content[:-1] + bytes([content[-1] ^ 1])


RAW = {
    "tag": lambda peer: flip_last(peer.sealed(message.PEER_SEGMENT, GOOD)),
    "length-1": lambda peer: u32(1) + bytes(17), "length-0": lambda peer: u32(0) + bytes(16),
    "length-over": lambda peer: u32(2 + (2 << 20) + 1) + bytes(16), "length-huge": lambda peer: u32(2**32 - 1),
    "in-clear": lambda peer: u32(2 + len(GOOD)) + u16(message.PEER_SEGMENT) + GOOD + bytes(16),
    "garbage": lambda peer: digest.xxh128(b"") * 300,
}
for key, content_of_case in RAW.items():
    named(f"peer-{key}", destination, raw(content_of_case))


@destination
def peer_replay(attack):
    """The bytes of a message once more."""
    attack.begin()
    content = attack.peer.sealed(message.PEER_SEGMENT, manifest.Segment(0, list(good_entries()), False).encode())
    attack.peer.sock.sendall(content + content)
    return attack.job_ends(fails_as=PROTOCOL)


@destination
def peer_reflected(attack):
    """The agent's own answer, sent back to it."""
    attack.begin()
    attack.peer.send(message.PEER_SEGMENT, manifest.Segment(0, list(good_entries()), False).encode())
    attack.peer.sock.settimeout(20)
    attack.peer.sock.sendall(attack.peer.sock.recv(65536))
    return attack.job_ends(fails_as=PROTOCOL)


@destination
def peer_closed(attack):
    attack.begin()
    attack.peer.close()
    return attack.job_ends(fails_as=LOST)


# ---- at a source ----


def answers(make):
    """A need that is no answer to the segment."""
    def attacks(siege):
        segment = siege.walked()
        siege.peer.send(message.PEER_NEED, make(segment))
        return siege.job_ends(fails_as=PROTOCOL)
    return attacks


def changed_needs(change):
    def make(segment):
        needs = need.of_all(segment)
        for at, entry in enumerate(segment.entries):
            needs[at] = change(entry, needs[at])
        return need.encode(segment.number, needs)
    return make


def of_large(ranges):
    """These leaves of the large file."""
    return changed_needs(lambda entry, verdict: ranges if entry.path == b"big" else verdict)


def whole(segment):
    return need.encode(segment.number, need.of_all(segment))


NEEDS = {
    "number": lambda segment: need.encode(segment.number + 1, need.of_all(segment)),
    "count": lambda segment: need.encode(segment.number, need.of_all(segment)[:-1]),
    "count-more": lambda segment: need.encode(segment.number, need.of_all(segment) + [0]),
    "empty": lambda segment: b"", "cut": lambda segment: whole(segment)[:-1],
    "more": lambda segment: whole(segment) + b"\0",
    "magic": lambda segment: b"Q" + whole(segment)[1:], "verdict": lambda segment: whole(segment)[:-1] + b"\3",
    "oversize": lambda segment: whole(segment) + bytes(1 << 20),
    "directory": changed_needs(lambda entry, verdict: 1 if entry.type == manifest.DIRECTORY else verdict),
    "leaves-of-packed": changed_needs(lambda entry, verdict: [(0, 1)] if entry.path == b"a" else verdict),
    "no-leaves": of_large([]), "leaf-beyond": of_large([(3, 1)]), "leaves-beyond": of_large([(0, 4)]),
    "leaf-empty": of_large([(0, 0)]),
    "leaves-touch": of_large([(0, 1), (1, 1)]), "leaves-twice": of_large([(0, 2), (1, 1)]),
    "leaf-overflow": of_large([(2**64 - 1, 2)]),
}
for key, make_need in NEEDS.items():
    named(f"need-{key}", source, answers(make_need))


@source
def need_twice(siege):
    segment = siege.walked()
    siege.lay_out(segment)
    siege.peer.send(message.PEER_NEED, whole(segment))
    return siege.job_ends(fails_as=PROTOCOL)


@source
def need_early(siege):
    """An answer to a segment that has not come."""
    siege.begin()
    siege.peer.send(message.PEER_NEED, need.encode(3, [1]))
    return siege.job_ends(fails_as=PROTOCOL)


@source
def need_as_segment(siege):
    siege.walked()
    siege.peer.send(message.PEER_SEGMENT, GOOD)
    return siege.job_ends(fails_as=PROTOCOL)


@source
def source_peer_tag(siege):
    segment = siege.walked()
    siege.peer.sock.sendall(flip_last(siege.peer.sealed(message.PEER_NEED, whole(segment))))
    return siege.job_ends(fails_as=PROTOCOL)


@source
def source_stream_backwards(siege):
    """Bytes towards the sender on a stream: it does not read them, and the job goes on without harm."""
    laid = siege.lay_out(siege.walked())
    siege.streams[0].sock.sendall(bytes(1000))
    siege.control.send("LEASE", epoch=1, count=laid.count())
    frames = [siege.next_frame()[1].stripe for _ in range(laid.count())]
    if sorted(frames) != list(range(laid.count())):
        raise Refused(f"{frames}")
    siege.stop()
    return "the frames came all the same"
