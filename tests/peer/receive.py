"""Receives a directory from a real agent: plays the coordinator and the destination agent."""
import os
import queue
import threading

from . import frame, greet, layout, manifest, message, need, tree
from .channel import WAIT_S, shut
from .job import SOURCE, Job
from .seal import TAG, Seal
from .wire import Reader, Refused, blob_list

LEASE_STRIPES = 7


class Intake:
    """One attempt of a stream: a thread takes its frames and hands them on."""

    def __init__(self, index, attempt, connection, sealed, out):
        self.index, self.attempt, self.out = index, attempt, out
        self.sock, _, key = connection
        self.seal = Seal(key) if sealed else None
        self.frames = 0
        self.counted = None  # of a stream that was lost: so many of its frames count
        threading.Thread(target=self.take_all, daemon=True).start()

    def take_all(self):
        try:
            while front := greet.receive(self.sock, frame.HEAD):
                head = frame.read_head(front)
                if (head.session, head.sequence, head.flags) != (0, self.frames, frame.SEALED if self.seal else 0):
                    raise Refused(f"{head} as frame {self.frames}")
                if head.kind == frame.END:
                    if greet.receive(self.sock, 1):
                        raise Refused("bytes behind an end")
                    self.out.put((self, head, None, None))
                    return
                rest = greet.must_receive(self.sock, head.body + head.trailer + TAG)
                body, trailer = frame.opened(head, front, rest, self.seal)
                self.frames += 1
                self.out.put((self, head, body, trailer))
            raise Refused("the stream was closed without an end")
        except Exception as error:  # whoever waits must hear of it
            self.out.put((self, error, None, None))


class Receiver:
    def __init__(self, top, place, settings):
        self.top, self.settings = os.fsencode(top), settings
        self.job = Job(place.rstrip("/") + "/", SOURCE, settings)
        self.control = self.job.control
        self.peer, self.streams, self.frames = None, [], queue.Queue()
        self.next_segment = self.next_stripe = self.next_lease = 0
        self.directories, self.files, self.bytes = [], 0, 0
        self.bad = settings.cases.get("bad", 0)  # so many stripes are said to be damaged
        self.breaks_at = settings.cases.get("breaks_at")  # stream 0 is lost behind so many frames
        self.again = {os.fsencode(name) for name in settings.cases.get("changed", ())}  # to be listed once more
        self.listed_again = set()

    # ---- opening ----

    def begin(self):
        self.job.hello()
        opened = self.job.open()
        described = Reader(opened.sources)
        kind, contents, device, inode, name = (described.u8(), described.u8(), described.u64(), described.u64(),
                                             described.blob(manifest.NAME_MAX))
        described.end()
        if (kind, contents, name) != (manifest.DIRECTORY, 1, b"") or device == 0 or inode == 0:
            raise Refused(f"the source is {opened.sources!r}")
        self.peer, connections = self.job.link()
        self.streams = [Intake(index, 0, connection, self.settings.sealed, self.frames)
                        for index, connection in enumerate(connections)]
        self.control.send("WALK", names=blob_list([b""]))

    # ---- segments ----

    def take_segment(self, retry):
        """(segment, whether it is the last); None in its place when it is empty: then it is only told."""
        closed = self.control.wait("SEGMENT_CLOSED")
        if closed.retry != int(retry):
            raise Refused(f"{closed} out of its phase")
        if closed.entries == 0:
            return None, closed.last
        number, body = self.peer.receive()
        if number != (message.PEER_RETRY if retry else message.PEER_SEGMENT):
            raise Refused(f"message {number} in place of a segment")
        segment = manifest.read_segment(body)
        files = [entry for entry in segment.entries if entry.type == manifest.FILE]
        told = (closed.segment, closed.last, closed.entries, closed.files, closed.bytes, closed.digest)
        if told != (segment.number, segment.last, len(segment.entries), len(files), sum(entry.size for entry in files),
                    segment.digest()) or segment.number != self.next_segment:
            raise Refused(f"{closed} of {segment}")
        self.next_segment += 1
        self.files, self.bytes = self.files + len(files), self.bytes + closed.bytes
        return segment, closed.last

    def needs_of(self, segment):
        """All of everything, of large files said as a range of leaves."""
        return [verdict if verdict == need.NOTHING or entry.is_packed() else need.leaf_ranges(verdict, entry)
                for entry, verdict in zip(segment.entries, need.of_all(segment))]

    def lay_out(self, segment, place=True):
        needs = self.needs_of(segment)
        self.peer.send(message.PEER_NEED, need.encode(segment.number, needs))
        laid = layout.Layout(segment, needs, self.settings.stripe_bytes)
        told = self.control.wait("SEGMENT_LAID")
        if (told.segment, told.stripes, told.bytes, told.layout) != (segment.number, laid.count(), laid.bytes(),
                                                                     laid.digest()):
            raise Refused(f"another layout: {told}")
        if place:
            self.control.send("SEGMENT_PLACE", segment=segment.number, first=self.next_stripe)
        return laid

    def receive_segment(self, segment):
        for entry in segment.entries:
            tree.make(self.top, entry)
        laid = self.lay_out(segment)
        first, self.next_stripe = self.next_stripe, self.next_stripe + laid.count()
        for at in range(first, self.next_stripe, LEASE_STRIPES):
            count = min(LEASE_STRIPES, self.next_stripe - at)
            lease, self.next_lease = self.next_lease, self.next_lease + 1
            self.control.send("LEASE", lease=lease, epoch=1, segment=segment.number, first=at, count=count,
                              wait_ms=0xFFFFFFFF)
            self.receive_stripes(laid, first, set(range(at, at + count)))
            self.control.send("LEASE_DONE", lease=lease)
        for at, entry in enumerate(segment.entries):
            self.finish_entry(segment, at, entry)
        self.control.send("SEGMENT_DONE", segment=segment.number)

    def finish_entry(self, segment, at, entry):
        if entry.type == manifest.DIRECTORY:
            self.directories.append(entry)
        elif entry.path in self.again:
            self.again.discard(entry.path)
            self.listed_again.add(entry.path)
            os.unlink(os.path.join(self.top, entry.path))
            self.control.send("PROBLEM", segment=segment.number, entry=at, count=1, text=b"changed")
        else:
            tree.finish(self.top, entry)

    def receive_stripes(self, laid, first, left):
        while left:
            stream, head, body, trailer = self.next_frame()
            if head.kind == frame.END:
                raise Refused(f"an end of stream {stream.index} in the middle of the job")
            if head.segment != laid.segment.number or head.stripe not in left:
                raise Refused(f"{head}, which is not leased")
            stripe = laid.stripes[head.stripe - first]
            if (head.body, head.extents, head.leaves) != (stripe.body_bytes(), len(stripe.extents), len(stripe.leaves)):
                raise Refused(f"{head} of {stripe}")
            states, leaves = frame.read_trailer(trailer, head.extents, head.leaves)
            if any(state for state, _ in states) or leaves != layout.leaf_digests(stripe, body):
                raise Refused(f"stripe {head.stripe}: {states}")
            if stream.index == 0 and stream.attempt == 0 and head.sequence + 1 == self.breaks_at:
                self.break_stream(stream)
            if self.bad > 0:
                self.bad -= 1
                self.control.send("STRIPE_BAD", stripe=head.stripe)
                continue
            self.write(laid, stripe, body)
            left.discard(head.stripe)

    def next_frame(self):
        """What comes next on any stream; of one that was lost only what counts."""
        while True:
            try:
                stream, head, body, trailer = self.frames.get(timeout=WAIT_S)
            except queue.Empty:
                raise TimeoutError("no frame comes") from None
            lost = stream.counted is not None
            if lost and (isinstance(head, Exception) or head.sequence >= stream.counted):
                continue
            if isinstance(head, Exception):
                raise head
            return stream, head, body, trailer

    def write(self, laid, stripe, body):
        at = 0
        for index, offset, length in stripe.extents:
            path = os.path.join(self.top, laid.segment.entries[index].path)
            tree.write_range(path, offset, body[at:at + length])
            at += length

    def break_stream(self, stream):
        """Loses stream 0: what came on it behind the frames that are counted has to come again."""
        stream.counted, self.breaks_at = self.breaks_at, None
        shut(stream.sock)
        self.control.send("STREAM_ENDED", stream=0, frames=stream.counted)
        self.control.wait("STREAM_ENDED", fits=lambda came: came.stream == 0 and came.attempt == 0)
        if self.settings.agent_dials:
            self.control.send("REDIAL", stream=0, attempt=1)
        self.streams[0] = Intake(0, 1, self.job.connect(greet.DATA, 0, 1), self.settings.sealed, self.frames)
        self.job.linked(0, 1)

    # ---- the whole ----

    def receive_all(self, retry):
        last = False
        while not last:
            segment, last = self.take_segment(retry)
            if segment is not None:
                self.receive_segment(segment)
                if retry and {entry.path for entry in segment.entries} - self.listed_again:
                    raise Refused("the retry lists what was good")

    def finish(self):
        for entry in reversed(self.directories):
            tree.finish(self.top, entry)
        self.control.send("CLOSE", finished=1)
        for _ in self.streams:
            stream, head, _, _ = self.next_frame()
            if head.kind != frame.END or head.sequence != stream.frames:
                raise Refused(f"{head} in place of the end of stream {stream.index}")
            ended = self.control.wait("STREAM_ENDED", fits=lambda came, stream=stream: came.stream == stream.index)
            if not ended.clean or ended.frames != stream.frames or ended.attempt != stream.attempt:
                raise Refused(f"{ended}, received were {stream.frames} frames")
        self.control.wait("CLOSED")
        self.job.leave()

    def run(self):
        os.makedirs(self.top, exist_ok=True)
        self.begin()
        self.receive_all(retry=False)
        self.control.send("RETRY")
        self.receive_all(retry=True)
        if self.again:
            raise Refused(f"never listed: {self.again}")
        self.finish()
        print(f"received: {self.files} files with {self.bytes} bytes, {self.next_stripe} stripes in "
              f"{self.next_segment} segments")

