"""Conversations of messages: over pipes, under TLS through openssl, and sealed between agents."""
import os
import queue
import select
import socket
import subprocess
import tempfile
import threading
import time

from . import greet, message
from .seal import TAG, Seal
from .wire import Reader, Refused, u16, u32

WAIT_S = 30
SUITE = "TLS_AES_128_GCM_SHA256"


class Closed(Exception):
    """The other side has closed the connection."""


class Failed(Exception):
    """The other side said FAIL."""

    def __init__(self, fail):
        super().__init__(f"FAIL of class {fail.__dict__['class']}, errno {fail.os}: {fail.text.decode(errors='replace')}")
        self.fail = fail


def shut(sock):
    """Ends a connection for whoever reads or writes it. It is not closed: a thread that is about to read would find
    the number of its descriptor given to another connection."""
    try:
        sock.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass  # the other side was first


def readable(sock):
    return bool(select.select([sock], [], [], 0)[0])


class Child:
    """A program that speaks on its standard input and output."""

    def __init__(self, command):
        self.sock, theirs = socket.socketpair()
        self.process = subprocess.Popen(command, stdin=theirs, stdout=theirs)
        theirs.close()

    def read(self):
        return self.sock.recv(65536)

    def write(self, content):
        self.sock.sendall(content)

    def stop(self):
        shut(self.sock)

    def close(self):
        self.sock.close()
        self.process.wait(WAIT_S)


class Tls:
    """TLS 1.3 with a pre-shared key, by openssl, behind a preamble in clear. openssl connects to a socket of this
    process, which passes the bytes on; `gather_s`: it waits so long for more of them."""

    def __init__(self, address, key, preamble, gather_s=0):
        self.gather_s = gather_s
        self.sock = socket.create_connection(address, WAIT_S)
        self.sock.settimeout(None)
        self.sock.sendall(preamble)
        with tempfile.TemporaryDirectory(prefix="peer.") as folder:
            listener = socket.socket(socket.AF_UNIX)
            listener.bind(f"{folder}/tls")
            listener.listen(1)
            listener.settimeout(WAIT_S)
            name, secret = key
            self.process = subprocess.Popen(
                ["openssl", "s_client", "-unix", f"{folder}/tls", "-quiet", "-nocommands", "-tls1_3", "-ciphersuites",
                 SUITE, "-psk_identity", name, "-psk", secret],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, bufsize=0)
            self.inner = listener.accept()[0]
            listener.close()
        self.relays = [threading.Thread(target=self.relay, args=pair, daemon=True)
                       for pair in ((self.inner, self.sock), (self.sock, self.inner))]
        for relay in self.relays:
            relay.start()

    def relay(self, source, target):
        try:
            while content := source.recv(65536):
                if self.gather_s and source is self.inner:
                    time.sleep(self.gather_s)
                    content += source.recv(65536, socket.MSG_DONTWAIT) if readable(source) else b""
                target.sendall(content)
        except OSError:
            pass
        shut(source)
        shut(target)

    def read(self):
        return os.read(self.process.stdout.fileno(), 65536)

    def write(self, content):
        view = memoryview(content)
        while view:
            view = view[os.write(self.process.stdin.fileno(), view):]

    def stop(self):
        self.process.kill()
        shut(self.sock)
        shut(self.inner)

    def close(self):
        self.process.wait()
        for relay in self.relays:
            relay.join()
        for file in (self.process.stdin, self.process.stdout, self.sock, self.inner):
            file.close()


class Control:
    """The control connection to an agent. A thread reads it and answers PING."""

    def __init__(self, transport):
        self.transport = transport
        self.waiting = []  # came, and nobody has asked for it yet
        self.inbox = queue.Queue()
        self.lock = threading.Lock()
        self.ended = None
        self.pings = 0
        self.reader = threading.Thread(target=self.read_all, daemon=True)
        self.reader.start()

    def read_all(self):
        buffer = bytearray()
        try:
            while content := self.transport.read():
                buffer += content
                while len(buffer) >= message.HEAD:
                    reader = Reader(buffer[:message.HEAD])
                    length, number = reader.u32(), reader.u16()
                    if length > message.LONGEST:
                        raise Refused(f"a message of {length} bytes")
                    if len(buffer) < message.HEAD + length:
                        break
                    self.take(message.decode(number, bytes(buffer[message.HEAD:message.HEAD + length])))
                    del buffer[:message.HEAD + length]
            self.inbox.put(Closed("the control connection was closed"))
        except OSError as error:
            self.inbox.put(Closed(f"the control connection broke: {error}"))
        except Exception as error:  # whoever waits must hear of it
            self.inbox.put(error)

    def take(self, came):
        if came.name == "PING":
            try:
                self.send("PONG", cookie=came.cookie)
            except OSError:
                pass  # told by the reading end
        elif came.name != "NOTICE":
            self.inbox.put(came)

    def send(self, name, **fields):
        self.send_bytes(message.Message(name, **fields).encode())

    def send_bytes(self, content):
        with self.lock:
            self.transport.write(content)

    def fetch(self, deadline):
        """Moves one message from the inbox to those that wait."""
        if self.ended is not None:
            raise self.ended
        try:
            came = self.inbox.get(timeout=max(0, deadline - time.monotonic()))
        except queue.Empty:
            raise TimeoutError("the agent says nothing more") from None
        if isinstance(came, Exception):
            self.ended = came
            raise came
        self.waiting.append(came)

    def wait(self, *names, seconds=WAIT_S, fits=lambda came: True):
        """The first message of these names that fits and nobody has asked for."""
        deadline = time.monotonic() + seconds
        while True:
            for at, came in enumerate(self.waiting):
                if came.name in names and fits(came):
                    return self.waiting.pop(at)
                if came.name == "FAIL":
                    raise Failed(self.waiting.pop(at))
            self.fetch(deadline)

    def sync(self):
        """Waits until the other side has taken all that was said."""
        self.pings += 1
        self.send("PING", cookie=self.pings)
        self.wait("PONG", fits=lambda came: came.cookie == self.pings)

    def close(self):
        self.transport.stop()
        self.reader.join()
        self.transport.close()


class Peer:
    """The peer connection: PROTOCOL.md, "Peer connection"."""

    def __init__(self, sock, sent_key, received_key):
        self.sock = sock
        self.sent, self.received = Seal(sent_key), Seal(received_key)
        self.sent_count = self.received_count = 0

    def sealed(self, number, body):
        head = u32(2 + len(body))
        text = self.sent.close(self.sent_count, head, u16(number) + body)
        self.sent_count += 1
        return head + text

    def send(self, number, body):
        self.sock.sendall(self.sealed(number, body))

    def receive(self):
        """(type, body); Closed when the other side is gone."""
        head = greet.receive(self.sock, 4)
        if not head:
            raise Closed("the peer connection was closed")
        length = int.from_bytes(head, "little")
        if not 2 <= length <= 2 + message.PEER_LONGEST:
            raise Refused(f"a sealed message of {length} bytes")
        text = self.received.open(self.received_count, head, greet.must_receive(self.sock, length + TAG))
        self.received_count += 1
        return int.from_bytes(text[:2], "little"), text[2:]

    def close(self):
        shut(self.sock)
        self.sock.close()


def read_key(path):
    """(name, secret in hex) of the first line of a key file."""
    with open(path, encoding="ascii") as file:
        for line in file:
            words = line.split()
            if words and not words[0].startswith("#"):
                return words[0], words[1]
    raise Refused(f"{path} has no key")
