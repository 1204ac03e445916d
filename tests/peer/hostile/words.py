"""Control messages that an agent must not take, whoever says them."""
import os
import time

from .. import message
from ..channel import Closed, Control, Failed, read_key
from ..job import source_description
from ..manifest import DIRECTORY
from ..wire import Refused, blob, blob_list, u16, u32
from . import START, VERSION, destination, source


def named(name, mark, attacks):
    attacks.__name__ = name
    mark(attacks)


# ---- before the job is open ----


def first_words(*messages):
    """These are the first messages that the agent gets: (name, fields)."""
    def attacks(attack):
        for name, fields in messages:
            attack.control.send(name, **fields)
        return attack.job_ends()
    return attacks


HELLO = ("HELLO", {"version": 1, "version_min": 1, "features": 1, "required": 1})
for name_of_first in ("OPEN", "LINK", "WALK", "LEASE", "FINISH", "FAIL", "CLOSED", "DEST_OPENED"):
    named(f"before-hello-{name_of_first.lower().replace('_', '-')}", destination, first_words((name_of_first, {})))
    if name_of_first != "OPEN":
        named(f"before-open-{name_of_first.lower().replace('_', '-')}", destination,
              first_words(HELLO, (name_of_first, {})))
named("second-hello", destination, first_words(HELLO, HELLO))


def wrong_hello(**fields):
    """The agent says who it is, and then that this will not do."""
    def attacks(attack):
        attack.control.send("HELLO", **{**HELLO[1], **fields})
        attack.control.wait("HELLO")
        return attack.job_ends(fails_as=VERSION)
    return attacks


named("hello-version-99", destination, wrong_hello(version=99, version_min=99))
named("hello-version-0", destination, wrong_hello(version=0, version_min=0))
named("hello-feature", destination, wrong_hello(required=1 | 1 << 63, features=1 | 1 << 63))


@destination
def hello_newer(attack):
    """A newer release that still speaks version 1 is welcome, whatever features it has beside."""
    attack.control.send("HELLO", version=99, version_min=1, features=2**64 - 1, required=1)
    attack.control.wait("HELLO")
    attack.control.send("OPEN", **attack.job.open_fields(), sources=source_description(DIRECTORY, True, b""))
    attack.control.wait("DEST_OPENED")
    attack.stop()
    return "the job went on"


@destination
def hello_with_finished(attack):
    """HELLO in one piece with the end of the TLS handshake, behind which nothing comes: it is answered at once."""
    attack.job.leave()
    waits = []
    for _ in range(3):
        attack.job.id = attack.job.agent_id = os.urandom(15) + b"\2"
        control = Control(attack.job.reach(gather_s=0.3))
        began = time.monotonic()
        control.send("HELLO", **HELLO[1])
        control.wait("HELLO")
        waits.append(time.monotonic() - began)
        control.close()
    if min(waits) > 4:
        raise Refused(f"the agent answers after {min(waits):.1f} s")
    return f"answered after {min(waits):.1f} s"


def opens(**fields):
    """An OPEN that cannot be: the connection is closed."""
    def attacks(attack):
        attack.job.hello()
        attack.control.send("OPEN", **{**attack.job.open_fields(), "sources": source_description(DIRECTORY, True, b""),
                                       **fields})
        return attack.job_ends()
    return attacks


OPENS = {"role": {"role": 3}, "no-streams": {"streams": 0}, "streams-1025": {"streams": 1025}, "engine": {"engine": 4},
         "direct": {"direct": 3}, "stripe-small": {"stripe_bytes": 1 << 19}, "stripe-large": {"stripe_bytes": 1 << 25},
         "stripe-odd": {"stripe_bytes": 3 << 20}, "no-sources": {"sources": b""},
         "sources-cut": {"sources": source_description(DIRECTORY, True, b"")[:-1]},
         "source-of-type-4": {"sources": source_description(4, False, b"a")},
         "source-dotdot": {"sources": source_description(DIRECTORY, False, b"..")},
         "source-slash": {"sources": source_description(DIRECTORY, False, b"a/b")},
         "source-own": {"sources": source_description(DIRECTORY, False, b".penstock")},
         "no-path": {"paths": b""}, "paths-cut": {"paths": u32(5) + b"abcd"}}
for key, fields_of_open in OPENS.items():
    named(f"open-{key}", destination, opens(**fields_of_open))
for key in ("no-path", "paths-cut"):
    named(f"source-open-{key}", source, opens(**OPENS[key]))


def opens_path(path):
    """A path that leaves the agent's root: FAIL, and nothing there is made or read."""
    def attacks(attack):
        attack.job.hello()
        fields = {**attack.job.open_fields(), "paths": blob_list([path])}
        if attack.job.role:
            fields["sources"] = source_description(DIRECTORY, True, b"")
        attack.control.send("OPEN", **fields)
        return attack.job_ends(fails_as=START)
    return attacks


# `out` in the place of a case is a link to a directory outside of the root.
LEAVING = {"dotdot": b"../outside", "dotdot-inside": b"%s/../../outside", "through-link": b"%s/out/made", "nul": b"a\0b"}
for key, leaving in LEAVING.items():
    for mark_of_role, prefix in ((destination, "open"), (source, "source-open")):
        def attacks_path(attack, leaving=leaving):
            path = leaving.replace(b"%s", os.fsencode(attack.job.path.rstrip("/")))
            return opens_path(path)(attack)
        named(f"{prefix}-{key}", mark_of_role, attacks_path)


# ---- behind a good opening ----


def says(name, **fields):
    return lambda attack: attack.say(name, **fields)


WRONG = {
    # for another role or direction, or out of their phase
    "open": ("OPEN", {}), "hello": ("HELLO", {}), "walk": ("WALK", {}), "retry": ("RETRY", {}),
    "stripe-bad": ("STRIPE_BAD", {}),
    "stripes-done": ("STRIPES_DONE", {}), "stream-ended": ("STREAM_ENDED", {}), "segment-closed": ("SEGMENT_CLOSED", {}),
    "dest-opened": ("DEST_OPENED", {}), "source-opened": ("SOURCE_OPENED", {}), "linked": ("LINKED", {}),
    "closed": ("CLOSED", {}),
    "entries-done": ("ENTRIES_DONE", {}), "finished": ("FINISHED", {}), "problem": ("PROBLEM", {}), "fail": ("FAIL", {}),
    # of things that are not
    "place-of-nothing": ("SEGMENT_PLACE", {"segment": 7}), "lease-done-of-nothing": ("LEASE_DONE", {"lease": 7}),
    "redial": ("REDIAL", {"stream": 0, "attempt": 1}), "link": ("LINK", {"dial": 3}),
    "link-inside": ("LINK", {"dial": 2}),
    "check": ("CHECK", {}), "lease-empty": ("LEASE", {"count": 0}), "lease-of-1025": ("LEASE", {"count": 1025}),
    "lease-overflow": ("LEASE", {"first": 2**64 - 1, "count": 2}),
    "segment-done-of-nothing": ("SEGMENT_DONE", {"segment": 7}),
}
for key, (name_of_message, fields_of_message) in WRONG.items():
    named(f"wrong-{key}", destination, says(name_of_message, **fields_of_message))

WRONG_FOR_SOURCE = {
    "hello": ("HELLO", {}), "open": ("OPEN", {}), "walk-again": ("WALK", {"names": blob(b"")}),
    "walk-names": ("WALK", {"names": b""}),
    "finish": ("FINISH", {}), "segment-closed": ("SEGMENT_CLOSED", {}),
    "place-of-nothing": ("SEGMENT_PLACE", {"segment": 7}),
    "lease-done-of-nothing": ("LEASE_DONE", {"lease": 7}), "problem-of-nothing": ("PROBLEM", {"segment": 7, "count": 1}),
    "stream-1024": ("STREAM_ENDED", {"stream": 1024}),
    "stream-beyond": ("STREAM_ENDED", {"stream": 2}), "lease-empty": ("LEASE", {"count": 0}),
    "lease-of-1025": ("LEASE", {"count": 1025}),
    "lease-of-nothing": ("LEASE", {"segment": 7, "count": 1}),
    "runs-cut": ("STRIPES_DONE", {"settled": 1, "runs": bytes(17)}),
    "redial": ("REDIAL", {"stream": 0, "attempt": 1}), "compared": ("SEGMENT_COMPARED", {}),
}
for key, (name_of_message, fields_of_message) in WRONG_FOR_SOURCE.items():
    def says_to_source(siege, name=name_of_message, fields=fields_of_message):
        siege.begin()
        siege.control.send(name, **fields)
        return siege.job_ends()
    named(f"source-wrong-{key}", source, says_to_source)


@source
def source_segment_done_of_nothing(siege):
    siege.walked()
    siege.control.send("SEGMENT_DONE", segment=7)
    return siege.job_ends()


@source
def source_lease_then_place(siege):
    """A lease of a segment that has no place yet, which then gets another one."""
    siege.lay_out(siege.walked(), place=False)
    siege.control.send("LEASE", first=0, count=1)
    siege.control.send("SEGMENT_PLACE", first=100)
    return siege.job_ends()


@source
def source_lease_before_layout(siege):
    """A lease of a segment whose need has not come."""
    segment = siege.walked()
    siege.control.send("LEASE", segment=segment.number, count=1)
    return siege.job_ends()


@source
def source_lease_beyond(siege):
    """A lease that goes beyond the segment."""
    laid = siege.lay_out(siege.walked())
    siege.control.send("LEASE", first=laid.count(), count=1)
    return siege.job_ends()


@source
def source_place_twice(siege):
    laid = siege.lay_out(siege.walked())
    siege.control.send("SEGMENT_PLACE", segment=0, first=laid.count())
    return siege.job_ends()


@source
def source_place_before_layout(siege):
    """A place for a segment whose need has not come."""
    siege.walked()
    siege.control.send("SEGMENT_PLACE", segment=0, first=0)
    return siege.job_ends()


@source
def source_segment_done_early(siege):
    """The end of a segment that has an open lease."""
    laid = siege.lay_out(siege.walked())
    siege.control.send("SEGMENT_DONE", segment=0)
    siege.control.send("LEASE", first=0, count=laid.count())
    return siege.job_ends()


@source
def source_problem_beyond(siege):
    segment = siege.walked()
    siege.control.send("PROBLEM", segment=segment.number, entry=len(segment.entries), count=1)
    return siege.job_ends()


@destination
def lease_twice(attack):
    work = attack.leased()
    attack.control.send("LEASE", lease=77, epoch=1, first=work.first + 1, count=1)
    return attack.job_ends()


@destination
def place_twice(attack):
    attack.begin()
    work = attack.segment()
    attack.control.send("SEGMENT_PLACE", segment=work.segment.number, first=100)
    return attack.job_ends()


@destination
def place_overflow(attack):
    """Stripes beyond the last number."""
    attack.begin()
    attack.next_stripe = 2**64 - 2
    try:
        attack.segment()
    except (Closed, Failed):
        pass
    return attack.job_ends()


# ---- bytes ----

GOOD_PING = message.Message("PING", cookie=1).encode()
BYTES = {
    "type-0": message.encode(0, b""), "type-1000": message.encode(1000, b""),
    "type-of-peer": message.encode(message.PEER_SEGMENT, b""),
    "type-65535": message.encode(65535, bytes(100)), "oversize": u32((144 << 10) + 1) + u16(3),
    "huge": u32(2**32 - 1) + u16(3),
    "too-long": message.encode(3, bytes(9)), "too-short": message.encode(3, bytes(7)), "empty": message.encode(28, b""),
    "blob-over": message.encode(2, bytes(5) + u32(32) + bytes(44)), "blob-beyond": message.encode(13, bytes(16) + u32(1)),
    "blob-huge": message.encode(13, bytes(16) + u32(2**32 - 1)), "garbage": bytes(range(256)) * 8,
    "text": b"GET / HTTP/1.1\r\n\r\n",
    "largest": message.encode(13, bytes(144 << 10)),
}


def first_bytes(content):
    def attacks(attack):
        attack.control.send_bytes(content)
        return attack.job_ends()
    return attacks


for key in ("garbage", "huge", "text", "type-0"):
    named(f"first-bytes-{key}", destination, first_bytes(BYTES[key]))
for key, content_of_case in BYTES.items():
    named(f"bytes-{key}", destination, lambda attack, content=content_of_case: attack.say_bytes(GOOD_PING + content))


@destination
def truncated(attack):
    """Half a message, and the connection ends: the job ends and lets the destination go."""
    attack.begin()
    attack.control.send_bytes(message.Message("FINISH").encode()[:-1])
    attack.job.leave()
    again = type(attack)(f"penstock://127.0.0.1:{attack.job.address[1]}/{attack.job.path}", attack.settings)
    again.job.hello()
    again.job.open(sources=source_description(DIRECTORY, True, b""))
    again.stop()
    return "the next job has the destination"


@destination
def same_job_again(attack):
    """A second control connection of a job that runs gets nothing."""
    attack.begin()
    second = Control(attack.job.reach())
    try:
        second.send("HELLO", **HELLO[1])
        second.wait("HELLO", seconds=12)
    except (Closed, OSError):
        second.close()
        attack.stop()
        return "the second connection was closed"
    raise Refused("the second connection was answered")


@destination
def job_zero(attack):
    """A control connection for no job."""
    attack.job.leave()
    attack.job.agent_id = bytes(16)
    second = Control(attack.job.reach())
    try:
        second.send("HELLO", **HELLO[1])
        second.wait("HELLO", seconds=12)
    except (Closed, OSError):
        second.close()
        return "the connection was closed"
    raise Refused("the connection was answered")


@destination
def without_key(attack):
    """Who has another secret or another name gets nothing."""
    attack.job.leave()
    name, secret = read_key(attack.settings.key)
    for wrong in ((name, "00" * 32), (name + "x", secret), (name + "x", "00" * 32)):
        second = Control(attack.job.reach(wrong))
        try:
            second.send("HELLO", **HELLO[1])
            second.wait("HELLO", seconds=12)
        except (Closed, OSError):
            second.close()
            continue
        raise Refused("the connection was answered")
    return "each connection was closed"
