"""The hostile peer: what breaks PROTOCOL.md must be refused by a real agent, without harm.

A case is a function that takes an Attack, does what must not be done, and says with the last call what must come of it:
the job ends, the stream is closed, or all goes on well.
"""
import importlib
import os

from .. import greet, manifest, message
from ..channel import Closed, Failed
from ..job import DESTINATION, SOURCE
from ..receive import Receiver
from ..send import Sender, Stream
from ..vectors import pattern
from ..wire import Refused

WAIT_S = 20  # longer than the greeting may take
CASES = {}  # name: (function, role of the agent)
GOOD = {b"a": pattern(10), b"d/b": pattern(3000), b"big": pattern((2 << 20) + 5)}
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
        self.streams[stream] = Stream(self.job.connect(greet.DATA, stream, attempt), self.settings.sealed)
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
    for name in ("doors", "words", "peers", "frames"):
        importlib.import_module(f".{name}", __name__)


def run(options, settings):
    load()
    if options.case == "list":
        for name, (_, role) in CASES.items():
            print(name, "source" if role == SOURCE else "destination")
        return 0
    if options.case == "good":
        write_good(options.place)
        return 0
    function, role = CASES[options.case]
    try:
        print(f"{options.case}: {function(Siege(options.place, settings) if role == SOURCE else Attack(options.place, settings))}")
    except (Refused, Failed, Closed, TimeoutError, OSError) as error:
        print(f"{options.case}: NOT AS IT MUST BE: {type(error).__name__}: {error}")
        return 1
    return 0
