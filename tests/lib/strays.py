#!/usr/bin/python3
"""strays.py PORT KIND [COUNT]: strangers at an agent's port of 127.0.0.1, all at once.

Prints `connected` when all of them are there, and then waits until the agent has closed each. Fails when one is
still open after CLOSED_S seconds, or was told anything but what every stranger may know.
"""
import os
import resource
import select
import socket
import ssl
import struct
import sys
import threading
import time

import xxhash

CLOSED_S = 25


def preamble(kind, version=1):
    """What a connection of a job opens with (proto/PROTOCOL.md, "Preamble"), for a job that nobody knows."""
    head = b"PENSTOCK" + bytes([version, kind]) + bytes(6) + os.urandom(16)
    return head + struct.pack("<Q", xxhash.xxh3_64_intdigest(head))


def trickle(sock, words):
    """One byte after the other, never coming to an end."""
    for byte in words + bytes(1000):
        sock.sendall(bytes([byte]))
        time.sleep(0.1)


def hello_of_old_tls(sock):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    words = ssl.MemoryBIO()
    try:
        context.wrap_bio(ssl.MemoryBIO(), words).do_handshake()
    except ssl.SSLWantReadError:
        sock.sendall(words.read())


def reset(sock):
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


KINDS = {
    "silent": lambda sock: None,
    "random": lambda sock: sock.sendall(os.urandom(1 << 20)),
    "zeros": lambda sock: sock.sendall(bytes(1 << 20)),
    "http": lambda sock: sock.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"),
    "ssh": lambda sock: sock.sendall(b"SSH-2.0-OpenSSH_9.2\r\n"),
    "tls": hello_of_old_tls,
    "trickle": lambda sock: trickle(sock, preamble(1)[:39]),
    "half": lambda sock: sock.sendall(preamble(1)[:20]),
    "end": lambda sock: (sock.sendall(preamble(1)[:20]), sock.shutdown(socket.SHUT_WR)),
    "reset": reset,
    "damaged": lambda sock: sock.sendall(preamble(1)[:39] + b"\0"),
    "newer": lambda sock: sock.sendall(preamble(1, version=9)),
    "data": lambda sock: sock.sendall(preamble(3) + os.urandom(100)),
    "peer": lambda sock: sock.sendall(preamble(2) + os.urandom(100)),
    "control": lambda sock: sock.sendall(preamble(1)),
    "control_random": lambda sock: sock.sendall(preamble(1) + b"\x16\x03\x01\x02\x00" + os.urandom(1 << 16)),
    "control_trickle": lambda sock: trickle(sock, preamble(1) + b"\x16\x03\x01"),
}
# The only words for a stranger: the version that the agent speaks, and an alert of TLS.
ALERT = b"\x15\x03"
MAY_HEAR = {"newer": b"PENSTOCK", "control": ALERT, "control_random": ALERT, "control_trickle": ALERT}


def speak(sock, kind):
    try:
        KINDS[kind](sock)
    except OSError:
        pass  # closed while we spoke


def wait_closed(socks, kind):
    deadline = time.monotonic() + CLOSED_S
    poll = select.poll()
    left = {sock.fileno(): sock for sock in socks if sock.fileno() >= 0}
    for number in left:
        poll.register(number, select.POLLIN)
    while left:
        ready = poll.poll(max(0, 1000 * (deadline - time.monotonic())))
        if not ready:
            sys.exit(f"{len(left)} connections of kind {kind} are still open after {CLOSED_S} s")
        for number, _ in ready:
            try:
                words = left[number].recv(4096)
            except OSError:
                words = b""
            if not words:
                poll.unregister(number)
                left.pop(number)
            elif kind not in MAY_HEAR or not words.startswith(MAY_HEAR[kind]):
                sys.exit(f"a stranger of kind {kind} was told {words!r}")


def main():
    port, kind = int(sys.argv[1]), sys.argv[2]
    count = int(sys.argv[3]) if len(sys.argv) > 3 else 1
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    socks = [socket.create_connection(("127.0.0.1", port), timeout=30) for _ in range(count)]
    print("connected", flush=True)
    for sock in socks:
        threading.Thread(target=speak, args=(sock, kind), daemon=True).start()
    wait_closed(socks, kind)


main()
