"""Connections that must not be let in."""
import os
import socket
import time

from .. import greet
from ..job import id_at, source_description
from ..manifest import DIRECTORY
from ..wire import Refused, u32
from . import WAIT_S, destination, source

NONCE = bytes(range(32))


def dialled(attack):
    sock = attack.job.dial_socket()
    sock.settimeout(WAIT_S)
    return sock


def with_good_job(attack, function):
    """Does something at the door of a job that stands, which must not notice."""
    attack.begin()
    outcome = function(attack)
    work = attack.segment()
    attack.lease(0, work.first, work.layout.count())
    attack.goes_on(work)
    return outcome


def door(function):
    def attacks(attack):
        return with_good_job(attack, function)
    attacks.__name__ = function.__name__
    return destination(attacks)


def first_bytes(content):
    def knock(attack):
        sock = dialled(attack)
        sock.sendall(content(attack))
        attack.socket_is_closed(sock)
        return "the connection was closed"
    return knock


def preamble(attack, kind=greet.DATA, **words):
    return greet.preamble(kind, attack.job.agent_id, **words)


OPENINGS = {
    "garbage": lambda attack: os.urandom(400), "http": lambda attack: b"GET / HTTP/1.1\r\nHost: a\r\n\r\n" + bytes(40),
    "magic": lambda attack: b"penstock" + preamble(attack)[8:], "checksum": lambda attack: preamble(attack)[:-1] + b"\0",
    "kind-0": lambda attack: preamble(attack, 0), "kind-4": lambda attack: preamble(attack, 4),
    "other-job": lambda attack: greet.preamble(greet.DATA, os.urandom(16)) + greet.ask(0, 0, 0, NONCE),
    "job-of-coordinator": lambda attack: greet.preamble(greet.DATA, attack.job.id) + greet.ask(0, 0, 0, NONCE),
    "job-of-other-agent": lambda attack: greet.preamble(greet.DATA, id_at(attack.job.id, 0)) + greet.ask(0, 0, 0, NONCE),
    "job-zero": lambda attack: greet.preamble(greet.DATA, bytes(16)) + greet.ask(0, 0, 0, NONCE),
    "ask-reserved": lambda attack: preamble(attack) + bytes(12) + u32(1) + NONCE,
    "stream-1024": lambda attack: preamble(attack) + greet.ask(0, 1024, 0, NONCE),
}
for key, content_of_case in OPENINGS.items():
    knocks = first_bytes(content_of_case)
    knocks.__name__ = f"door-{key}"
    door(knocks)


@door
def door_version_99(attack):
    """Another version of the wire: the answer says which one this agent speaks."""
    sock = dialled(attack)
    sock.sendall(preamble(attack, version=99))
    kind, _ = greet.read_preamble(greet.must_receive(sock, greet.PREAMBLE))
    if kind != greet.DATA:
        raise Refused(f"kind {kind}")
    attack.socket_is_closed(sock)
    return "the agent told its version and closed the connection"


def asked(attack, kind=greet.DATA, stream=0, session=0, attempt=7):
    """A greeting up to the acceptor's answer."""
    sock = dialled(attack)
    said = greet.Greeting(preamble(attack, kind), greet.ask(session, stream, attempt, os.urandom(32)))
    sock.sendall(said.preamble + said.ask)
    answer = greet.must_receive(sock, 64)
    said.acceptor_nonce = answer[:32]
    if answer[32:] != said.proof(attack.job.secret, greet.ACCEPT):
        raise Refused("the agent does not know the job")
    return sock, said, answer


def wrong_proof(make, kind=greet.DATA):
    def knock(attack):
        sock, said, answer = asked(attack, kind)
        sock.sendall(make(attack, said, answer))
        attack.socket_is_closed(sock)
        return "the connection was closed"
    return knock


PROOFS = {
    "wrong": lambda attack, said, answer: bytes(32),
    "of-other-secret": lambda attack, said, answer: said.proof(bytes(32), greet.DIAL),
    "reflected": lambda attack, said, answer: answer[32:],
    "of-acceptor": lambda attack, said, answer: said.proof(attack.job.secret, greet.ACCEPT),
    "flipped": lambda attack, said, answer: flip(said.proof(attack.job.secret, greet.DIAL)),
}


def flip(proof):
    return proof[:-1] + bytes([proof[-1] ^ 1])


for key, make_proof in PROOFS.items():
    for kind_of_case, prefix in ((greet.DATA, "data"), (greet.PEER, "peer")):
        knocks = wrong_proof(make_proof, kind_of_case)
        knocks.__name__ = f"{prefix}-proof-{key}"
        door(knocks)


@door
def data_proof_of_other_connection(attack):
    """The proof of one connection on another."""
    first, said, _ = asked(attack)
    second, _, _ = asked(attack)
    second.sendall(said.proof(attack.job.secret, greet.DIAL))
    attack.socket_is_closed(second)
    first.close()
    return "the connection was closed"


@door
def data_reflected_connection(attack):
    """Two connections, each shown what the agent says on the other: the words of an acceptor are no dialler's."""
    first, said, _ = asked(attack)
    second = dialled(attack)
    second.sendall(said.preamble + said.ask[:16] + said.acceptor_nonce)
    answer = greet.must_receive(second, 64)
    first.sendall(answer[32:])
    attack.socket_is_closed(first)
    second.close()
    return "the connection was closed"


def proved(**words):
    """A proof that is right, for a stream that is not."""
    def knock(attack):
        sock, said, _ = asked(attack, **words)
        sock.sendall(said.proof(attack.job.secret, greet.DIAL))
        attack.socket_is_closed(sock)
        return "the connection was closed"
    return knock


for key, words_of_ask in {"data-session": {"session": 1}, "data-stream-beyond": {"stream": 2},
                          "data-stream-1023": {"stream": 1023},
                          "peer-session": {"kind": greet.PEER, "session": 1}}.items():
    knocks = proved(**words_of_ask)
    knocks.__name__ = key
    door(knocks)


@destination
def data_older_attempt(attack):
    """An attempt that is older than the one that stands does not take its place."""
    attack.begin()
    attack.redial(0, 5)
    sock, said, _ = asked(attack, attempt=3)
    sock.sendall(said.proof(attack.job.secret, greet.DIAL))
    attack.socket_is_closed(sock)
    work = attack.segment()
    attack.lease(0, work.first, work.layout.count())
    return attack.goes_on(work, stream=0)


@destination
def data_before_open(attack):
    """A connection for a job that is not open yet."""
    attack.job.hello()
    attack.job.port = attack.job.address[1]
    sock = dialled(attack)
    sock.sendall(preamble(attack) + greet.ask(0, 0, 0, NONCE))
    attack.socket_is_closed(sock)
    attack.stop()
    return "the connection was closed"


@door
def door_silent(attack):
    """Who says nothing is sent away, the job standing."""
    sock = dialled(attack)
    began = time.monotonic()
    attack.socket_is_closed(sock)
    return f"the connection was closed after {time.monotonic() - began:.0f} s"


@door
def door_slow(attack):
    """A byte now and then does not keep the door open."""
    sock = dialled(attack)
    content = preamble(attack)
    began = time.monotonic()
    try:
        for at in range(len(content)):
            sock.sendall(content[at:at + 1])
            time.sleep(0.5)
    except ConnectionError:
        pass
    attack.socket_is_closed(sock)
    waited = time.monotonic() - began
    if waited > 15:
        raise Refused(f"the door stood open for {waited:.0f} s")
    return f"the connection was closed after {waited:.0f} s"


@door
def door_crowd(attack):
    """More strangers than there is room for: who belongs to the job still comes in."""
    crowd = []
    for _ in range(300):
        crowd.append(dialled(attack))
    attack.redial(0, 1)
    for sock in crowd:
        sock.close()
    return "the next attempt came in"


@destination
def door_imposter(attack):
    """Who takes the agent's dial without knowing the secret gets no proof out of it."""
    attack.job.hello()
    attack.job.open(sources=source_description(DIRECTORY, True, b""))
    return imposter(attack)


@source
def source_door_imposter(siege):
    siege.job.hello()
    siege.job.open()
    return imposter(siege)


def imposter(attack):
    listener = socket.create_server(("127.0.0.1", 0))
    listener.settimeout(WAIT_S)
    address = b"127.0.0.1:%d" % listener.getsockname()[1]
    attack.control.send("LINK", dial=1, streams=2, acceptor=attack.job.own_id, addresses=u32(len(address)) + address)
    sock = listener.accept()[0]
    sock.settimeout(WAIT_S)
    greet.must_receive(sock, greet.PREAMBLE + greet.ASK)
    sock.sendall(os.urandom(64))
    attack.socket_is_closed(sock)
    listener.close()
    failed = attack.control.wait("LINK_FAILED")
    if failed.kind != greet.PEER:
        raise Refused(f"{failed}")
    attack.stop()
    return f"the agent hung up: {failed.text.decode()}"

