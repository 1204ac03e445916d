#!/usr/bin/python3
"""proxy.py TARGET_PORT [RULE...]: a path to 127.0.0.1:TARGET_PORT on which things go wrong.

Prints `listening on PORT`, then a line for every connection and everything that it does to one:
    KIND NUMBER begins        KIND NUMBER RULE at BYTE        KIND NUMBER ends UP DOWN
KIND is what the connection's preamble says: control, peer, data or other; NUMBER counts from 1 for each kind.

A rule is ACTION:KIND:NUMBER:DIRECTION:BYTE[:EVERY]. NUMBER may be `*`; DIRECTION is `up` (away from who dialled) or
`down`; BYTE counts from 0; with EVERY the rule holds again every so many bytes. ACTION:
    cut    both sides see a reset       end    both sides see an orderly end
    flip   one bit is another           stall  nothing more passes in that direction
    wait   nothing passes for 3 seconds
"""
import socket
import struct
import sys
import threading
import time

KINDS = {1: "control", 2: "peer", 3: "data"}
WAIT_S = 3
say_lock = threading.Lock()


def say(*words):
    with say_lock:
        print(*words, flush=True)


class Rule:
    def __init__(self, text):
        self.action, self.kind, self.number, self.direction, *at = text.split(":")
        self.byte, self.every = int(at[0]), int(at[1]) if len(at) > 1 else 0

    def fits(self, kind, number, direction):
        return self.kind == kind and self.number in ("*", str(number)) and self.direction == direction

    def next_in(self, start, end):
        """The first byte of [start, end) at which it holds, or None."""
        at = self.byte
        if self.every and start > at:
            at += -(-(start - at) // self.every) * self.every
        return at if start <= at < end else None


class Connection:
    def __init__(self, near, target):
        self.near = near
        self.far = socket.create_connection(("127.0.0.1", target))
        self.passed = {"up": 0, "down": 0}
        self.stopped = threading.Event()

    def run(self, rules, counts):
        first = self.near.recv(40, socket.MSG_WAITALL)
        kind = KINDS.get(first[9], "other") if first[:8] == b"PENSTOCK" and len(first) == 40 else "other"
        with say_lock:
            counts[kind] = counts.get(kind, 0) + 1
            number = counts[kind]
        self.name = (kind, number)
        say(*self.name, "begins")
        down = threading.Thread(target=self.pump, args=(self.far, self.near, "down", rules, b""))
        down.start()
        self.pump(self.near, self.far, "up", rules, first)
        down.join()
        for sock in (self.near, self.far):
            sock.close()
        say(*self.name, "ends", self.passed["up"], self.passed["down"])

    def pump(self, source, sink, direction, rules, piece):
        rules = [rule for rule in rules if rule.fits(*self.name, direction)]
        try:
            piece = piece or source.recv(1 << 16)
            while piece and not self.stopped.is_set():
                self.pass_on(sink, bytearray(piece), direction, rules)
                piece = source.recv(1 << 16)
            if not self.stopped.is_set():
                sink.shutdown(socket.SHUT_WR)
        except OSError:
            if not self.stopped.is_set():
                self.shut(socket.SHUT_RDWR)

    def pass_on(self, sink, piece, direction, rules):
        start = self.passed[direction]
        events = sorted((at, rule.action) for rule in rules
                        if (at := rule.next_in(start, start + len(piece))) is not None)
        done = 0
        for at, action in events:
            if action == "flip":
                piece[at - start] ^= 0x10
            else:
                sink.sendall(piece[done:at - start])
                done = at - start
            say(*self.name, action, "at", at)
            self.act(action)
        sink.sendall(piece[done:])
        self.passed[direction] += len(piece)

    def act(self, action):
        if action == "wait":
            time.sleep(WAIT_S)
        elif action == "stall":
            self.stopped.wait()
        elif action == "cut":
            for sock in (self.near, self.far):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.shut(socket.SHUT_RD)  # the close that follows is a reset
            raise ConnectionAbortedError
        elif action == "end":
            self.shut(socket.SHUT_RDWR)
            raise ConnectionAbortedError

    def shut(self, how):
        """Ends both directions, also where they wait for bytes."""
        self.stopped.set()
        for sock in (self.near, self.far):
            try:
                sock.shutdown(how)
            except OSError:
                pass  # it is gone already


def main():
    target = int(sys.argv[1])
    rules = [Rule(text) for text in sys.argv[2:]]
    counts = {}
    with socket.create_server(("127.0.0.1", 0), backlog=100) as listener:
        say("listening on", listener.getsockname()[1])
        while True:
            near, _ = listener.accept()
            connection = Connection(near, target)
            threading.Thread(target=connection.run, args=(rules, counts), daemon=True).start()


main()
