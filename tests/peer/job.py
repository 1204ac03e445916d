"""A job with one real agent: this end plays the coordinator, and whoever uses this plays the other agent."""
import os
import re
import socket
from dataclasses import dataclass, field

from . import greet, message
from .channel import WAIT_S, Child, Control, Peer, Tls, read_key
from .wire import Refused, blob_list, read_blob_list, u64, u8

SOURCE, DESTINATION, VERIFY = 0, 1, 2
NODES = ("SOURCE", "DEST")
MIB = 1 << 20


@dataclass
class Settings:
    program: str = "penstock"  # for a place without a listening agent
    key: str = ""  # file
    streams: int = 2
    stripe_bytes: int = MIB
    segment_entries: int = 100  # so that a small tree has some segments
    sealed: bool = True
    agent_dials: bool = False
    user: str = "peer"
    cases: dict = field(default_factory=dict)


def id_at(job, node):
    """What a job goes by at one of its agents."""
    return job[:15] + u8(node + 1)


class Job:
    def __init__(self, place, role, settings):
        self.role, self.settings = role, settings
        self.id = os.urandom(15) + b"\0"
        node = DESTINATION if role == DESTINATION else SOURCE
        self.agent_id, self.own_id = id_at(self.id, node), id_at(self.id, 1 - node)
        self.secret = os.urandom(32)
        self.listener = None
        self.left = False
        self.accepted = {}
        self.port = 0
        found = re.fullmatch(r"penstock://(127\.0\.0\.1|localhost)(?::(\d+))?/(.*)", place)
        self.path = found[3] if found else place
        self.address = ("127.0.0.1", int(found[2] or 7420)) if found else None
        self.control = Control(self.reach())

    def reach(self, key=None, gather_s=0):
        """A control connection; with another key than that of the settings when one is given."""
        if self.address is None:
            return Child([self.settings.program, "serve", "--stdio", "--loopback"])
        preamble = greet.preamble(greet.CONTROL, self.agent_id)
        return Tls(self.address, key or read_key(self.settings.key), preamble, gather_s)

    def hello(self):
        self.control.send("HELLO", version=1, version_min=1, features=1, required=1, software=b"peer.py", node=b"here")
        hello = self.control.wait("HELLO")
        if not hello.version_min <= 1 <= hello.version or hello.required & ~1 or not hello.features & 1:
            raise Refused("the agent has not what this end needs")

    def open_fields(self):
        return {"role": self.role, "job": self.id, "agent": self.agent_id, "secret": self.secret,
                "stripe_bytes": self.settings.stripe_bytes, "streams": self.settings.streams,
                "encrypt": int(self.settings.sealed), "io_timeout_s": 3600, "host": b"here",
                "user": self.settings.user.encode(), "paths": blob_list([os.fsencode(self.path or ".")])}

    def open(self, sources=b""):
        """Takes the agent through OPEN; returns its answer."""
        fields = self.open_fields()
        if self.role == DESTINATION:
            fields |= {"sources": sources, "boot": b"another host"}
        self.control.send("OPEN", **fields)
        opened = self.control.wait(f"{NODES[self.role]}_OPENED")
        self.port = opened.port
        for address in read_blob_list(opened.addresses):
            if not re.fullmatch(rb"(\[[0-9a-f:.%\w]+\]|[0-9.]+):" + b"%d" % opened.port, address):
                raise Refused(f"the address {address!r}")
        return opened

    def link(self):
        """Tells the agent who dials, and makes the peer connection and all streams."""
        fields = {"streams": self.settings.streams, "acceptor": self.agent_id}
        if self.settings.agent_dials:
            self.listener = socket.create_server(("127.0.0.1", 0))
            self.listener.settimeout(WAIT_S)
            address = b"127.0.0.1:%d" % self.listener.getsockname()[1]
            fields |= {"dial": 1, "acceptor": self.own_id, "addresses": blob_list([address])}
        self.control.send("LINK", **fields)
        peer = Peer(*self.connect(greet.PEER))
        self.control.wait("LINKED", fits=lambda came: came.kind == greet.PEER)
        streams = [self.connect(greet.DATA, index) for index in range(self.settings.streams)]
        for index in range(self.settings.streams):
            self.linked(index, 0)
        return peer, streams

    def linked(self, stream, attempt):
        self.control.wait("LINKED", fits=lambda came: (came.kind, came.stream, came.attempt) == (greet.DATA, stream,
                                                                                                 attempt))

    def dial_socket(self):
        sock = socket.create_connection(("127.0.0.1", self.port), WAIT_S)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return sock

    def connect(self, kind, stream=0, attempt=0):
        """A connection that is proved: (socket, key of what this end sends, key of what it receives)."""
        if not self.settings.agent_dials:
            sock = self.dial_socket()
            return sock, *greet.dial(sock, kind, self.agent_id, self.secret, stream, attempt)
        while (kind, stream, attempt) not in self.accepted:
            sock = self.listener.accept()[0]
            sock.settimeout(WAIT_S)
            said, sent, received = greet.accept(sock, self.own_id, self.secret)
            self.accepted[said.preamble[9], said.stream(), said.attempt()] = sock, sent, received
        return self.accepted.pop((kind, stream, attempt))

    def close(self, finished):
        """The end of the job for the agent: its last word, and the connection."""
        self.control.send("CLOSE", finished=int(finished))
        closed = self.control.wait("CLOSED")
        self.leave()
        return closed

    def leave(self):
        if not self.left:
            self.control.close()
        self.left = True
        if self.listener is not None:
            self.listener.close()


def source_description(kind, contents, name):
    """One element of the list `sources`."""
    return u8(kind) + u8(int(contents)) + u64(0) + u64(0) + message.blob(name)


def runs(content):
    """The list of STRIPES_DONE: [(first, count)]."""
    numbers = [int.from_bytes(content[at:at + 8], "little") for at in range(0, len(content), 8)]
    if len(content) % 16:
        raise Refused("half a run")
    return list(zip(numbers[::2], numbers[1::2]))
