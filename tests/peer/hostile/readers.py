"""What an agent that only reads a copy again must not do."""
import os

from .. import greet, verify
from ..job import VERIFY
from ..receipt import MOVED, WIRE, Record
from ..wire import Refused, blob, blob_list
from . import START, destination


def opened(attack):
    """The agent of the case, in the role that verifies."""
    attack.job.role = VERIFY
    attack.job.hello()
    attack.control.send("OPEN", **attack.job.open_fields())
    attack.control.wait("VERIFY_OPENED")


def record(path, **words):
    return Record(**{"type": 2, "outcome": MOVED, "proof": WIRE, "mode": 0o644, "size": 7, "mtime": (0, 0),
                     "digest": bytes(16),
                     "path": path, **words}).encode()


def says(name, **fields):
    def attacks(attack):
        opened(attack)
        attack.control.send(name, **fields)
        return attack.job_ends()
    return attacks


WRONG = {
    "check-empty": ("CHECK", {}), "check-cut": ("CHECK", {"records": blob(record(b"a"))[:-1]}),
    "check-more": ("CHECK", {"records": blob(record(b"a") + b"\0")}),
    "check-dotdot": ("CHECK", {"records": blob(record(b"../outside/secret"))}),
    "check-absolute": ("CHECK", {"records": blob(record(b"/etc/passwd"))}),
    "check-type": ("CHECK", {"records": blob(record(b"a", type=4))}),
    "link": ("LINK", {"dial": 1, "streams": 1}), "lease": ("LEASE", {"count": 1}), "finish": ("FINISH", {}),
    "walk": ("WALK", {}),
    "open": ("OPEN", {"role": 2}), "checked": ("CHECKED", {}),
}
for key, (name_of_message, fields_of_message) in WRONG.items():
    case = says(name_of_message, **fields_of_message)
    case.__name__ = f"verify-{key}"
    destination(case)


def opens(path):
    def attacks(attack):
        attack.job.role = VERIFY
        attack.job.hello()
        leaving = path.replace(b"%s", os.fsencode(attack.job.path))
        attack.control.send("OPEN", **{**attack.job.open_fields(), "paths": blob_list([leaving])})
        return attack.job_ends(fails_as=START)
    return attacks


for key, path_of_case in {"dotdot": b"../outside", "through-link": b"%s/out", "missing": b"%s/nothing"}.items():
    case = opens(path_of_case)
    case.__name__ = f"verify-open-{key}"
    destination(case)


@destination
def verify_through_link(attack):
    """`out` leads outside: what lies there is not looked at."""
    opened(attack)
    attack.control.send("CHECK", records=blob(record(b"out/secret")))
    results = verify.read_results(attack.control.wait("CHECKED").results, 1)
    if results != [(verify.WRONG, 1, 0, 0)]:
        raise Refused(f"{results}")
    attack.stop()
    return "the path is told to be wrong"


@destination
def verify_has_no_streams(attack):
    """No connection belongs to a job that only reads."""
    opened(attack)
    attack.job.port = attack.job.address[1]
    sock = attack.job.dial_socket()
    sock.sendall(greet.preamble(greet.DATA, attack.job.agent_id) + greet.ask(0, 0, 0, bytes(32)))
    attack.socket_is_closed(sock)
    attack.stop()
    return "the connection was closed"

