"""Sends a directory to a real agent: plays the coordinator and the source agent."""
import os
import socket
from collections import deque

from . import digest, frame, layout, manifest, message, need, receipt, tree
from .job import DESTINATION, Job, runs, source_description
from .seal import Seal
from .wire import Refused

LEASE_STRIPES = 5
OPEN_MAX = 4


class Stream:
    """One attempt of a stream, as its sender."""

    def __init__(self, connection, sealed, attempt=0):
        self.sock, key, _ = connection
        self.attempt = attempt
        self.seal = Seal(key) if sealed else None
        self.sequence = 0

    def head(self, segment, number, stripe):
        extents, leaves = len(stripe.extents), len(stripe.leaves)
        return frame.Head(frame.STRIPE, segment=segment, stripe=number, sequence=self.sequence, body=stripe.body_bytes(),
                          trailer=frame.trailer_length(extents, leaves), extents=extents, leaves=leaves,
                          flags=frame.SEALED if self.seal else 0)

    def send(self, head, body, trailer):
        self.sock.sendall(frame.encode(head, body, trailer, self.seal))
        self.sequence += 1

    def end(self):
        flags = frame.SEALED if self.seal else 0
        self.sock.sendall(frame.Head(frame.END, sequence=self.sequence, flags=flags).encode())
        self.sock.shutdown(socket.SHUT_WR)


class Work:
    """A segment under way."""

    def __init__(self, segment, retry):
        self.segment, self.retry = segment, retry
        self.layout = None
        self.first = 0
        self.left = set()  # stripes that are not acknowledged


class Sender:
    def __init__(self, top, place, settings):
        self.top, self.settings = os.fsencode(top), settings
        self.job = Job(place, DESTINATION, settings)
        self.control = self.job.control
        self.peer, self.streams = None, []
        self.next_segment = self.next_stripe = self.next_lease = self.next_stream = 0
        self.open_leases = {}  # number: segment
        self.works = {}
        self.again = []  # entries to be tried once more
        self.changed = {os.fsencode(name) for name in settings.cases.get("changed", ())}
        self.bad = settings.cases.get("bad", 0)  # so many stripes are damaged when they are sent first
        self.damaged = set()  # not told yet
        self.spoilt = set()  # ever
        self.records = {}

    # ---- opening ----

    def begin(self):
        self.job.hello()
        opened = self.job.open(sources=source_description(manifest.DIRECTORY, True, b""))
        if opened.names != message.blob(b"") or opened.dev or opened.inode:
            raise Refused(f"the contents of a directory go to {opened.names!r}")
        self.peer, connections = self.job.link()
        self.streams = [Stream(connection, self.settings.sealed) for connection in connections]

    # ---- segments ----

    def close_segment(self, entries, last, retry=False):
        """Sends a segment, takes the need, lays it out and gives it its place."""
        work = Work(manifest.Segment(self.next_segment, entries, last), retry)
        self.next_segment += 1
        self.peer.send(message.PEER_RETRY if retry else message.PEER_SEGMENT, work.segment.encode())
        number, body = self.peer.receive()
        if number != message.PEER_NEED:
            raise Refused(f"message {number} in place of a need")
        work.layout = layout.Layout(work.segment, need.read(body, work.segment), self.settings.stripe_bytes)
        compared = self.control.wait("SEGMENT_COMPARED", fits=lambda came: came.segment == work.segment.number)
        if (compared.stripes, compared.bytes, compared.layout) != (work.layout.count(), work.layout.bytes(),
                                                                    work.layout.digest()):
            raise Refused(f"another layout: {compared}")
        work.first = self.next_stripe
        self.next_stripe += work.layout.count()
        work.left = set(range(work.first, self.next_stripe))
        self.works[work.segment.number] = work
        self.control.send("SEGMENT_PLACE", segment=work.segment.number, first=work.first)
        return work

    def read(self, entry, offset, length):
        return tree.read_range(os.path.join(self.top, entry.path), offset, length)

    def body_of(self, work, stripe):
        """(body, states) of a stripe."""
        parts, states = [], []
        for index, offset, length in stripe.extents:
            entry = work.segment.entries[index]
            state = frame.CHANGED if entry.path in self.changed and not work.retry else frame.OK
            states.append((state, 0))
            parts.append(bytes(length) if state else self.read(entry, offset, length))
        return b"".join(parts), states

    def parts_of(self, work, number):
        """(stripe, body, trailer)."""
        stripe = work.layout.stripes[number - work.first]
        body, states = self.body_of(work, stripe)
        return stripe, body, frame.trailer(states, layout.leaf_digests(stripe, body))

    def send_stripe(self, work, number):
        stripe, body, trailer = self.parts_of(work, number)
        stream = self.streams[self.next_stream % len(self.streams)]
        self.next_stream += 1
        if number not in self.spoilt and len(self.spoilt) < self.bad:
            self.spoilt.add(number)
            self.damaged.add(number)
            body = bytes([body[0] ^ 1]) + body[1:]  # under a good tag
        stream.send(stream.head(work.segment.number, number, stripe), body, trailer)

    def lease(self, segment, first, count):
        """Gives a lease, which is answered before the first frame of it leaves. Returns its number."""
        words = {"lease": self.next_lease, "epoch": 1, "segment": segment, "first": first, "count": count,
                 "wait_ms": 0xFFFFFFFF}
        self.next_lease += 1
        self.control.send("LEASE", **words)
        answer = self.control.wait("LEASE")
        if {**words, "session": 0} != answer.fields():
            raise Refused(f"another lease: {answer}")
        self.open_leases[words["lease"]] = segment
        return words["lease"]

    def lease_done(self, lease):
        """Ends a lease, unless the end of its segment did."""
        if self.open_leases.pop(lease, None) is not None:
            self.control.send("LEASE_DONE", lease=lease)

    def send_segment(self, work):
        """All stripes of a segment, a lease at a time."""
        for at in range(work.first, work.first + work.layout.count(), LEASE_STRIPES):
            count = min(LEASE_STRIPES, work.first + work.layout.count() - at)
            lease = self.lease(work.segment.number, at, count)
            for number in range(at, at + count):
                if number in work.left:  # settled meanwhile
                    self.send_stripe(work, number)
            self.drain(lambda: not any(number in work.left for number in range(at, at + count)))
            self.lease_done(lease)

    def drain(self, done):
        """Takes what the agent says about stripes and entries until `done`."""
        while not done():
            self.on(self.control.wait("STRIPES_DONE", "STRIPE_BAD", "PROBLEM", "ENTRIES_DONE", "SEGMENT_DONE",
                                      "STREAM_STATS"))

    def on(self, came):
        if came.name == "STRIPES_DONE":
            for first, count in runs(came.runs):
                for work in self.works.values():
                    work.left -= set(range(first, first + count))
        elif came.name == "STRIPE_BAD":
            if came.stripe not in self.damaged:
                raise Refused(f"{came}, which is good")
            self.damaged.discard(came.stripe)
            work = next(work for work in self.works.values() if came.stripe in work.left)
            self.send_stripe(work, came.stripe)
        elif came.name == "PROBLEM":
            entry = self.works[came.segment].segment.entries[came.entry]
            if came.count != 1 or entry.path not in self.changed:
                raise Refused(f"{came}")
            self.again.append(entry)
        elif came.name == "ENTRIES_DONE":
            for record in receipt.read_records(came.records):
                if record.path in self.records:
                    raise Refused(f"two records of {record.path!r}")
                self.records[record.path] = record
        elif came.name == "SEGMENT_DONE":
            work = self.works.pop(came.segment)
            if work.left - self.changed_stripes(work):
                raise Refused(f"{came} with stripes {sorted(work.left)} open")
            # No lease of it may be open any more.
            for lease in [lease for lease, segment in self.open_leases.items() if segment == came.segment]:
                self.lease_done(lease)
            self.control.send("SEGMENT_DONE", segment=came.segment)

    def changed_stripes(self, work):
        """Stripes that only carried what is left to the retry: nobody says that they are done."""
        return {work.first + at for at, stripe in enumerate(work.layout.stripes)
                if all(work.segment.entries[index].path in self.changed for index, _, _ in stripe.extents)}

    def send_segments(self, entries, retry=False):
        waiting = deque(entries)
        while waiting:
            cut = [waiting.popleft() for _ in range(min(self.settings.segment_entries, len(waiting)))]
            work = self.close_segment(cut, last=not waiting, retry=retry)
            self.send_segment(work)
            self.drain(lambda: len(self.works) < OPEN_MAX)
        self.drain(lambda: not self.works)

    # ---- the end ----

    def finish(self, entries):
        directories = sum(entry.type == manifest.DIRECTORY for entry in entries)
        self.control.send("FINISH")
        while (finished := self.control.wait("FINISHED")).more:
            pass
        if finished.directories != directories:
            raise Refused(f"{finished}, sent were {directories}")
        for index, stream in enumerate(self.streams):
            stream.end()
            ended = self.control.wait("STREAM_ENDED", fits=lambda came,
                                      at=(index, stream.attempt): (came.stream, came.attempt) == at)
            if not ended.clean or ended.frames != stream.sequence:
                raise Refused(f"{ended}, sent were {stream.sequence}")
        self.job.close(finished=True)

    def digest_of(self, entry):
        if entry.type == manifest.DIRECTORY:
            return bytes(16)
        if entry.type == manifest.LINK:
            return digest.xxh128(entry.target)
        leaves = [digest.xxh128(self.read(entry, leaf * digest.LEAF, digest.leaf_length(leaf, entry.size)))
                  for leaf in range(digest.leaf_count(entry.size))]
        return digest.of_file(leaves, entry.size)

    def check_records(self, entries):
        """Every entry has one record, and the digest in it is that of the file here."""
        if set(self.records) != {entry.path for entry in entries}:
            raise Refused(f"records of {sorted(self.records)}")
        for entry in entries:
            record = self.records[entry.path]
            moved = record.outcome == receipt.MOVED
            wanted = self.digest_of(entry) if moved else bytes(16)
            proof = receipt.WIRE if moved and entry.type == manifest.FILE else receipt.NONE
            if record.outcome not in (receipt.MOVED, receipt.SKIPPED) or record.proof != proof:
                raise Refused(f"{record}")
            if record.digest != wanted or (record.type, record.mode, record.size, record.mtime) != (
                    entry.type, entry.mode, entry.size, entry.mtime):
                raise Refused(f"{record} of {entry}")

    def run(self):
        entries = list(tree.walk(self.top))
        self.begin()
        self.send_segments(entries)
        if self.again:
            self.send_segments(self.again, retry=True)
        self.finish(entries)
        self.check_records(entries)
        outcomes = [record.outcome for record in self.records.values()]
        print(f"sent: {outcomes.count(receipt.MOVED)} moved, {outcomes.count(receipt.SKIPPED)} skipped, "
              f"{self.next_stripe} stripes in {self.next_segment} segments")
