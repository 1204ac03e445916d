"""How connections begin: PROTOCOL.md, "Preamble" and "Greeting: proofs and keys"."""
import hmac
import os
from dataclasses import dataclass

from .digest import check64
from .seal import derive, mac
from .wire import Reader, Refused, u16, u32, u64, u8

MAGIC = b"PENSTOCK"
VERSION = 1
CONTROL, PEER, DATA = 1, 2, 3
PREAMBLE, ASK, NONCE, PROOF = 40, 48, 32, 32
STREAMS_MAX = 1024
DIAL, ACCEPT = b"dial\0\0", b"accept"


def preamble(kind, job, version=VERSION):
    front = MAGIC + u8(version) + u8(kind) + u16(0) + u32(0) + job
    return front + u64(check64(front))


def read_preamble(content):
    """(kind, job)."""
    reader = Reader(content)
    if reader.raw(8) != MAGIC or check64(content[:32]) != int.from_bytes(content[32:40], "little"):
        raise Refused("no preamble")
    if (version := reader.u8()) != VERSION:
        raise Refused(f"wire version {version}")
    kind = reader.u8()
    reader.zeros(6)
    if kind not in (CONTROL, PEER, DATA):
        raise Refused(f"a connection of kind {kind}")
    return kind, reader.raw(16)


def ask(session, stream, attempt, nonce):
    return u32(session) + u32(stream) + u32(attempt) + u32(0) + nonce


@dataclass
class Greeting:
    """What was said on a connection, and who it is for."""
    preamble: bytes
    ask: bytes
    acceptor_nonce: bytes = b""

    def stream(self):
        return int.from_bytes(self.ask[4:8], "little")

    def attempt(self):
        return int.from_bytes(self.ask[8:12], "little")

    def proof(self, secret, role):
        key = derive(secret, b"", b"penstock proof")
        return mac(key, role + self.preamble + self.ask + self.acceptor_nonce)

    def keys(self, secret):
        """The keys of what the dialler and of what the acceptor sends."""
        salt, kind = self.ask[16:] + self.acceptor_nonce, self.preamble[9:10]
        return (derive(secret, salt, b"penstock key dial" + kind),
                derive(secret, salt, b"penstock key accept" + kind))


def receive(sock, length):
    """Exactly so many bytes; fewer when the connection ends before."""
    got = bytearray()
    while len(got) < length and (more := sock.recv(length - len(got))):
        got += more
    return bytes(got)


def must_receive(sock, length):
    got = receive(sock, length)
    if len(got) < length:
        raise Refused(f"the connection ended {length - len(got)} bytes early")
    return got


def dial(sock, kind, job, secret, stream=0, attempt=0, session=0):
    """The dialler's side. Returns the keys of what it sends and of what it receives."""
    said = Greeting(preamble(kind, job), ask(session, stream, attempt, os.urandom(NONCE)))
    sock.sendall(said.preamble + said.ask)
    answer = must_receive(sock, NONCE + PROOF)
    said.acceptor_nonce = answer[:NONCE]
    if not hmac.compare_digest(answer[NONCE:], said.proof(secret, ACCEPT)):
        raise Refused("who answers does not know the job")
    sock.sendall(said.proof(secret, DIAL))
    return said.keys(secret)


def accept(sock, job, secret):
    """The acceptor's side. Returns the greeting and the keys of what it sends and of what it receives."""
    said = Greeting(must_receive(sock, PREAMBLE), must_receive(sock, ASK), os.urandom(NONCE))
    kind, named = read_preamble(said.preamble)
    if kind == CONTROL or named != job or said.stream() >= STREAMS_MAX or any(said.ask[12:16]):
        raise Refused("a greeting that is not for this job")
    sock.sendall(said.acceptor_nonce + said.proof(secret, ACCEPT))
    if not hmac.compare_digest(must_receive(sock, PROOF), said.proof(secret, DIAL)):
        raise Refused("who dials does not know the job")
    received, sent = said.keys(secret)
    return said, sent, received
