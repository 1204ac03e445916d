"""The hostile peer: what breaks PROTOCOL.md must be refused by a real agent, without harm.

A case is a function that takes an Attack, does what must not be done, and says with the last call what must come of it:
the job ends, the stream is closed, or all goes on well.
"""
import importlib
import os
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from .. import frame, greet, manifest, message
from ..channel import Closed, Failed
from ..job import DESTINATION, SOURCE
from ..receive import Receiver
from ..send import Sender, Stream
from ..vectors import pattern
from ..wire import Refused

WAIT_S = 20  # longer than the greeting may take
CASES = {}  # name: (function, role of the agent)
GOOD = {b"a": pattern(10), b"d/b": pattern(3000), b"big": pattern((2 << 20) + 5)}
START, VERSION, LOST, PROTOCOL, DIGEST = 4, 6, 9, 11, 13  # classes of errors
TIMES = {"mtime": (1700000000, 1), "ctime": (1700000000, 2)}


def against(role):
    """Marks a case; `source` cases attack a source agent, which is given a tree with GOOD in it."""
    def mark(function):
        CASES[function.__name__.replace("_", "-")] = function, role
        return function
    return mark


destination, source = against(DESTINATION), against(SOURCE)


def good_entries():
    yield manifest.Entry(manifest.DIRECTORY, b"d", 0o755, **TIMES)
    for path, content in GOOD.items():
        yield manifest.Entry(manifest.FILE, path, 0o644, len(content), **TIMES)


def write_good(folder):
    for path, content in GOOD.items():
        path = os.path.join(os.fsencode(folder), path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(content)


class Outcomes:
    """What may come of an attack. For whoever has a job and its control connection."""

    def job_ends(self, fails_as=None):
        """FAIL (of this class, when it must be told), or the control connection is closed."""
        try:
            self.control.wait("nothing", seconds=WAIT_S)
        except Failed as failed:
            if fails_as is not None and failed.fail.__dict__["class"] != fails_as:
                raise Refused(f"{failed}, not of class {fails_as}") from failed
            self.stop()
            return f"the job ended: {failed}"
        except Closed:
            if fails_as is not None:
                raise Refused("the control connection was closed without a word") from None
            self.job.leave()
            return "the control connection was closed"
        except TimeoutError:
            raise Refused("the agent goes on as if nothing had happened") from None

    def stop(self):
        """The agent still takes an end in order."""
        self.job.close(finished=False)

    def socket_is_closed(self, sock):
        """Nothing comes on this connection any more but its end."""
        sock.settimeout(WAIT_S)
        try:
            came = sock.recv(1)
        except ConnectionError:
            came = b""
        except TimeoutError:
            raise Refused("the connection stays open") from None
        if came:
            raise Refused(f"an answer: {came}")


class Attack(Sender, Outcomes):
    """Plays the coordinator and the source agent."""

    def __init__(self, place, settings):
        super().__init__(".", place, settings)

    def read(self, entry, offset, length):
        return GOOD.get(entry.path, pattern(entry.size))[offset:offset + length].ljust(length, b"\0")

    def segment(self, entries=None):
        """A segment that has got its place: the good one unless others are given."""
        return self.close_segment(list(good_entries()) if entries is None else entries, last=True)

    def leased(self, entries=None):
        """The same, and all of it leased."""
        self.begin()
        work = self.segment(entries)
        self.lease(work.segment.number, work.first, work.layout.count())
        return work

    def push(self, content, stream=0):
        """Bytes on a stream, which the agent may have closed by now."""
        try:
            self.streams[stream].sock.sendall(content)
        except ConnectionError:
            pass
        self.streams[stream].sequence += 1

    def frame_of(self, work, number, stream=0, **words):
        """The bytes of a stripe as the next frame of a stream, the head changed; everything else is right."""
        stripe, body, trailer = self.parts_of(work, number)
        head = self.streams[stream].head(work.segment.number, number, stripe)
        head.__dict__.update(words)
        return frame.encode(head, body, trailer, self.streams[stream].seal)

    def stream_ends(self, frames, stream=0):
        """The agent closes the stream, of which so many frames came, and the job could go on."""
        ended = self.control.wait("STREAM_ENDED", fits=lambda came: came.stream == stream)
        if ended.clean or ended.frames != frames:
            raise Refused(f"{ended}, not {frames} frames and an end that is not clean")
        self.socket_is_closed(self.streams[stream].sock)
        text = ended.text.decode()
        self.stop()
        return f"the stream was closed: {text}"

    def goes_on(self, work, numbers=None, stream=None):
        """Sends the stripes of the segment and ends the job well."""
        for number in range(work.first, work.first + work.layout.count()) if numbers is None else numbers:
            if stream is not None:
                self.next_stream = stream
            self.send_stripe(work, number)
        self.drain(lambda: not self.works)
        self.finish(work.segment.entries)
        self.check_records(work.segment.entries)
        return "the job went on and ended well"

    def redial(self, stream, attempt):
        """A new attempt of a stream."""
        self.streams[stream] = Stream(self.job.connect(greet.DATA, stream, attempt), self.settings.sealed, attempt)
        self.job.linked(stream, attempt)

    def say(self, name, **fields):
        """A message behind a good opening."""
        self.begin()
        self.control.send(name, **fields)
        return self.job_ends()

    def say_bytes(self, content):
        self.begin()
        self.control.send_bytes(content)
        return self.job_ends()


class Siege(Receiver, Outcomes):
    """Plays the coordinator and the destination agent."""

    def __init__(self, place, settings):
        super().__init__(".", place, settings)

    def walked(self):
        """The first segment of the agent, which has data and waits for its need."""
        self.begin()
        number, body = self.peer.receive()
        if number != message.PEER_SEGMENT:
            raise Refused(f"message {number} in place of a segment")
        return manifest.read_segment(body)


def load():
    for name in ("doors", "words", "peers", "readers", "frames"):
        importlib.import_module(f".{name}", __name__)


def prepare(root):
    """What the cases need beneath the root of the agent: a tree to send, and for each case a destination in which
    `out` is a link to a directory outside of the root."""
    write_good(os.path.join(root, "good"))
    os.makedirs(os.path.join(root, "../outside"))
    with open(os.path.join(root, "../outside/secret"), "wb") as file:
        file.write(b"secret\n")
    for name in CASES:
        os.makedirs(os.path.join(root, "hostile", name))
        os.symlink("../../../outside", os.path.join(root, "hostile", name, "out"))
    return 0


def attempt(name, place, settings):
    """Runs a case against the agent at `place`. Returns its job, whether it went as it must, and words."""
    function, role = CASES[name]
    attacker = None
    try:
        if role == SOURCE:
            attacker = Siege(f"{place}/good", settings)
        else:
            attacker = Attack(f"{place}/hostile/{name}", settings)
        words = function(attacker)
        return attacker.job.agent_id.hex(), True, words
    except (Refused, Failed, Closed, TimeoutError, OSError) as error:
        if attacker is None:
            return "", False, f"not begun: {error}"
        attacker.job.leave()
        return attacker.job.agent_id.hex(), False, f"{type(error).__name__}: {error}"


def deaths(log, began):
    """{job: words} of the processes that ended by a signal, as the listener tells since the log was so long."""
    with open(log, encoding="utf-8", errors="replace") as file:
        file.seek(began)
        return dict(re.findall(r"job ([0-9a-f]{32}): (process \d+ ended by signal .*)", file.read()))


def run(options, settings):
    load()
    if options.list:
        print("\n".join(CASES))
        return 0
    if options.prepare:
        return prepare(options.place)
    names = options.cases or list(CASES)
    began = os.path.getsize(options.log) if options.log else 0
    with ThreadPoolExecutor(options.jobs) as pool:
        results = list(pool.map(lambda name: attempt(name, options.place.rstrip("/"), replace(settings)), names))
    died = deaths(options.log, began) if options.log else {}
    bad = 0
    for name, (job, good, words) in zip(names, results):
        verdict = "CRASHED" if job in died else "refused" if good else "NOT REFUSED"
        bad += verdict != "refused"
        print(f"{verdict} {name}: {died.get(job, words)}")
    return 1 if bad else 0
