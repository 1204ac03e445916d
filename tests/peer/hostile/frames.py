"""Frames that must not be taken."""
import os
import socket
import time

from .. import digest, frame, layout, manifest, message
from ..channel import Closed, Failed
from ..receipt import FAILED, MOVED
from ..wire import Refused, u64
from . import DIGEST, PROTOCOL, TIMES, destination, good_entries

MIB = 1 << 20


def refused_head(**words):
    def refuse(attack):
        work = attack.leased()
        attack.push(attack.frame_of(work, work.first))
        attack.push(attack.frame_of(work, work.first + 1, **words))
        return attack.stream_ends(frames=1)
    return refuse


def heads():
    """Name: what is wrong with the head of a second frame. The checksum is right: see below for one that is not."""
    return {
        "magic": {"magic": 0x464B5351}, "version": {"version": 2}, "kind": {"kind": 3}, "flags": {"flags": 3},
        "unsealed": {"flags": 0}, "session": {"session": 1}, "segment": {"segment": 1},
        "no-segment": {"segment": 2**64 - 1},
        "sequence-again": {"sequence": 0}, "sequence-jump": {"sequence": 2}, "sequence-end": {"sequence": 2**64 - 1},
        "stripe-beyond": {"stripe": 4}, "stripe-last": {"stripe": 2**64 - 1},
        "body-short": {"body": MIB - 1}, "body-long": {"body": MIB + 1}, "body-over-stripe": {"body": 2 * MIB},
        "body-largest": {"body": 16 * MIB}, "body-over": {"body": 16 * MIB + 1}, "body-huge": {"body": 2**32 - 1},
        "body-none": {"body": 0}, "trailer": {"trailer": 45}, "trailer-huge": {"trailer": 2**32 - 1},
        "extents": {"extents": 2, "trailer": 48}, "extents-most": {"extents": 2049, "trailer": 24 + 4 * 2049 + 16},
        "extents-over": {"extents": 2050, "trailer": 24 + 4 * 2050 + 16}, "extents-none": {"extents": 0, "trailer": 40},
        "leaves": {"leaves": 2, "trailer": 60}, "leaves-over": {"leaves": 1025, "trailer": 28 + 16 * 1025},
        "leaves-none": {"leaves": 0, "trailer": 28},
    }


for key, words_of_head in heads().items():
    case = refused_head(**words_of_head)
    case.__name__ = f"head-{key}"
    destination(case)


@destination
def head_checksum(attack):
    work = attack.leased()
    attack.push(flip(attack.frame_of(work, work.first), 63))
    return attack.stream_ends(frames=0)


@destination
def head_reserved(attack):
    work = attack.leased()
    front = attack.frame_of(work, work.first)[:52] + b"\1\0\0\0"
    attack.push(front + u64(digest.check64(front)))
    return attack.stream_ends(frames=0)


@destination
def head_sealed_on_plain(attack):
    attack.settings.sealed = False
    work = attack.leased()
    attack.push(attack.frame_of(work, work.first, flags=frame.SEALED))
    return attack.stream_ends(frames=0)


@destination
def head_garbage(attack):
    attack.leased()
    attack.push(os.urandom(4096))
    return attack.stream_ends(frames=0)


def stray_frame(attack, segment, number):
    """A frame of nothing that was ever laid out."""
    stripe = layout.Stripe(False, [(0, 0, 10)], [(0, 0, 10)])
    trailer = frame.trailer([(0, 0)], [digest.xxh128(bytes(10))])
    attack.push(frame.encode(attack.streams[0].head(segment, number, stripe), bytes(10), trailer, attack.streams[0].seal))


@destination
def head_of_nothing(attack):
    """A frame before there is any segment."""
    attack.begin()
    stray_frame(attack, 0, 0)
    return attack.stream_ends(frames=0)


def strays(attack, segment, first, then=()):
    """A lease, what is said behind it, and a frame that it allows."""
    attack.control.send("LEASE", segment=segment, first=first, count=1)
    try:
        for name, fields in then:
            attack.control.send(name, **fields)
        attack.control.wait("LEASE", seconds=2)
        stray_frame(attack, segment, first)
    except (Closed, TimeoutError, OSError):
        pass
    return attack.job_ends()


def laid_out(attack):
    """The good segment, which has no place yet."""
    attack.begin()
    attack.peer.send(message.PEER_SEGMENT, manifest.Segment(0, list(good_entries()), True).encode())
    attack.peer.receive()
    attack.control.wait("SEGMENT_COMPARED")


@destination
def lease_of_nothing(attack):
    """A lease of a segment that nobody has sent, and a frame that it allows."""
    attack.begin()
    return strays(attack, 7, 0)


@destination
def lease_beyond(attack):
    """A lease that goes beyond the segment, and a frame that it allows."""
    attack.begin()
    work = attack.segment()
    return strays(attack, 0, work.first + work.layout.count())


@destination
def lease_before_place(attack):
    """A lease of a segment that has no place yet, and a frame that it allows."""
    laid_out(attack)
    return strays(attack, 0, 50)


@destination
def lease_then_place(attack):
    """The same with the stripes that it would have, were it the first; then it gets another place."""
    laid_out(attack)
    return strays(attack, 0, 0, [("SEGMENT_PLACE", {"segment": 0, "first": 100})])


@destination
def not_leased(attack):
    """A stripe that has its place but no lease is received and forgotten."""
    attack.begin()
    work = attack.segment()
    attack.control.sync()
    for number in range(work.first, work.first + work.layout.count()):
        attack.send_stripe(work, number)
    time.sleep(1)  # it would be durable by then
    attack.lease(0, work.first, work.layout.count())
    return attack.goes_on(work)


@destination
def other_segment(attack):
    """A leased stripe under the number of another segment that is under way."""
    attack.begin()
    first = attack.close_segment([manifest.Entry(manifest.FILE, b"a", 0o644, 10, **TIMES)], last=False)
    second = attack.close_segment([manifest.Entry(manifest.FILE, b"d2", 0o644, 10, **TIMES)], last=True)
    attack.lease(0, first.first, 1)
    attack.lease(1, second.first, 1)
    attack.push(attack.frame_of(first, first.first, segment=1))
    return attack.stream_ends(frames=0)


@destination
def replay(attack):
    """The bytes of a frame once more."""
    work = attack.leased()
    attack.push(attack.frame_of(work, work.first) * 2)
    return attack.stream_ends(frames=1)


@destination
def replay_elsewhere(attack):
    """The bytes of a frame as the first on another stream: its key is another one, so the tag does not fit."""
    work = attack.leased()
    number = work.first
    attack.push(attack.frame_of(work, number, stream=0), stream=1)
    attack.damaged.add(number)
    return attack.goes_on(work, range(number + 1, number + work.layout.count()))


@destination
def stripe_twice(attack):
    """A stripe that has come already, in a good frame: received and forgotten."""
    work = attack.leased()
    for number in list(range(work.first, work.first + work.layout.count())) * 2:
        attack.send_stripe(work, number)
    return attack.goes_on(work, [])


def costs_the_stripe(spoil):
    """A frame that is spoilt behind its head: STRIPE_BAD, and it may be sent again."""
    def attacks(attack):
        work = attack.leased()
        number = work.first + 1
        stripe, body, trailer = attack.parts_of(work, number)
        stream = attack.streams[0]
        head = stream.head(0, number, stripe)
        attack.push(spoil(stream, head, body, trailer))
        attack.damaged.add(number)
        return attack.goes_on(work,
                              [other for other in range(work.first, work.first + work.layout.count()) if other != number])
    return attacks


def resum(trailer):
    return trailer[:-8] + u64(digest.check64(trailer[:-8]))


def flip(content, at):
    content = bytearray(content)
    content[at] ^= 1
    return bytes(content)


SPOILT = {
    "tag": lambda stream, head, body, trailer: flip(frame.encode(head, body, trailer, stream.seal), -1),
    "body": lambda stream, head, body, trailer: flip(frame.encode(head, body, trailer, stream.seal), 100),
    # Under a good tag:
    "digest-of-leaf": lambda stream, head, body, trailer: frame.encode(head, flip(body, 5), trailer, stream.seal),
    "digest-of-stripe": lambda stream, head, body,
    trailer: frame.encode(head, body, resum(flip(trailer, 0)), stream.seal),
    "checksum": lambda stream, head, body, trailer: frame.encode(head, body, flip(trailer, -1), stream.seal),
    "state": lambda stream, head, body, trailer: frame.encode(head, body, resum(trailer[:16] + b"\4" + trailer[17:]),
                                                              stream.seal),
    "errno": lambda stream, head, body, trailer: frame.encode(head, body, resum(trailer[:18] + b"\5" + trailer[19:]),
                                                              stream.seal),
}

for key, spoil_frame in SPOILT.items():
    case = costs_the_stripe(spoil_frame)
    case.__name__ = f"spoilt-{key}"
    destination(case)


@destination
def spoilt_thrice(attack):
    """A stripe that comes damaged again and again fails its file, the rest is moved."""
    work = attack.leased()
    for _ in range(3):
        attack.push(flip(attack.frame_of(work, work.first), -1))
        told = attack.control.wait("STRIPE_BAD", "PROBLEM")
    if told.name != "PROBLEM" or (told.__dict__["class"], told.count, told.entry) != (DIGEST, 0, 3):
        raise Refused(f"{told}")
    for number in range(work.first + 1, work.first + work.layout.count()):
        attack.send_stripe(work, number)
    attack.drain(lambda: not attack.works)
    became = {path: record.outcome for path, record in attack.records.items()}
    if became != {b"big": FAILED, b"a": MOVED, b"d/b": MOVED, b"d": MOVED}:
        raise Refused(f"{became}")
    attack.stop()
    return "the file failed, the rest was moved"


@destination
def end_count(attack):
    """An end that counts frames that were not sent."""
    work = attack.leased()
    attack.push(attack.frame_of(work, work.first))
    attack.push(frame.Head(frame.END, sequence=2).encode())
    return attack.stream_ends(frames=1)


@destination
def end_then_frame(attack):
    """What comes behind an end is not read."""
    work = attack.leased()
    attack.push(frame.Head(frame.END).encode() + attack.frame_of(work, work.first))
    ended = attack.control.wait("STREAM_ENDED", fits=lambda came: came.stream == 0)
    if ended.frames:
        raise Refused(f"{ended}")
    attack.redial(0, 1)
    return attack.goes_on(work)


@destination
def cut_in_head(attack):
    return cut(attack, 40)


@destination
def cut_in_body(attack):
    return cut(attack, 5000)


@destination
def cut_in_tag(attack):
    return cut(attack, -1)


def cut(attack, length):
    """A frame that breaks off does not count; the stripe is sent on the next attempt."""
    work = attack.leased()
    attack.push(attack.frame_of(work, work.first))
    attack.push(attack.frame_of(work, work.first + 1)[:length])
    attack.streams[0].sock.shutdown(socket.SHUT_WR)
    ended = attack.control.wait("STREAM_ENDED", fits=lambda came: came.stream == 0)
    if ended.clean or ended.frames != 1:
        raise Refused(f"{ended}")
    attack.redial(0, 1)
    return attack.goes_on(work, range(work.first + 1, work.first + work.layout.count()), stream=0)


# ---- entries ----


def bad_path(path):
    def attacks(attack):
        attack.begin()
        try:
            attack.segment([manifest.Entry(manifest.FILE, b"good", 0o644, 0, **TIMES),
                            manifest.Entry(manifest.FILE, path, 0o644, 10, **TIMES)])
        except (Closed, Failed, ConnectionError):
            return attack.job_ends(fails_as=PROTOCOL)
        raise Refused("the segment was taken")
    return attacks


PATHS = {"dotdot": b"../escaped", "dotdot-inside": b"d/../../escaped", "dotdot-end": b"d/..", "dot": b"./a",
         "absolute": b"/tmp/penstock-escaped",
         "nul": b"a\0b", "doubled": b"d//b", "trailing": b"d/", "empty": b"", "own": b".penstock/lock",
         "own-itself": b".penstock", "own-within": b"d/.penstock", "own-beneath": b"d/.penstock/lock",
         "long-name": b"n" * 256, "long": b"/".join([b"n" * 127] * 257)}

for key, path_of_entry in PATHS.items():
    case = bad_path(path_of_entry)
    case.__name__ = f"path-{key}"
    destination(case)


def outcomes(attack, entries):
    """Sends a segment; what became of each of its entries."""
    work = attack.close_segment(entries, last=True)
    if work.layout.count():
        attack.lease(work.segment.number, work.first, work.layout.count())
    for number in range(work.first, work.first + work.layout.count()):
        attack.send_stripe(work, number)
    while attack.works:
        came = attack.control.wait("STRIPES_DONE", "ENTRIES_DONE", "SEGMENT_DONE", "PROBLEM", "STREAM_STATS")
        if came.name != "PROBLEM":
            attack.on(came)
    return {path: record.outcome for path, record in attack.records.items()}


@destination
def through_link(attack):
    """`out` at the destination is a link to a directory outside: nothing goes through it."""
    attack.begin()
    entries = [manifest.Entry(manifest.FILE, b"out/packed", 0o644, 10, **TIMES),
               manifest.Entry(manifest.FILE, b"out/large", 0o644, 2 * MIB, **TIMES),
               manifest.Entry(manifest.FILE, b"out/empty", 0o644, 0, **TIMES),
               manifest.Entry(manifest.DIRECTORY, b"out/directory", 0o755, **TIMES),
               manifest.Entry(manifest.LINK, b"out/link", 0o777, target=b"anything", **TIMES)]
    became = outcomes(attack, entries)
    if became != {entry.path: FAILED for entry in entries}:
        raise Refused(f"{became}")
    attack.stop()
    return "each entry failed by itself"


@destination
def through_own_link(attack):
    """A link that the same job makes, and entries through it."""
    attack.begin()
    first = [manifest.Entry(manifest.LINK, b"evil", 0o777, target=b"../../outside", **TIMES)]
    if outcomes(attack, first) != {b"evil": MOVED}:
        raise Refused("the link was not made")
    second = [manifest.Entry(manifest.FILE, b"evil/packed", 0o644, 10, **TIMES),
              manifest.Entry(manifest.FILE, b"evil/large", 0o644, 2 * MIB, **TIMES)]
    became = outcomes(attack, second)
    if any(became[entry.path] != FAILED for entry in second):
        raise Refused(f"{became}")
    attack.stop()
    return "each entry failed by itself"


# ---- words of the coordinator that come too early ----


@destination
def segment_done_early(attack):
    """The end of a segment whose stripes are still to come."""
    attack.leased()
    attack.control.send("SEGMENT_DONE", segment=0)
    return attack.job_ends()


@destination
def lease_done_early(attack):
    """The end of a lease whose stripes are still to come: they are received and forgotten."""
    work = attack.leased()
    attack.lease_done(0)
    attack.control.sync()
    for number in range(work.first, work.first + work.layout.count()):
        attack.send_stripe(work, number)
    time.sleep(1)
    attack.lease(0, work.first, work.layout.count())
    return attack.goes_on(work)
