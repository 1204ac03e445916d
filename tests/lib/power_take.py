#!/usr/bin/python3
"""Follows a copy and takes copies of the disk beneath its destination, each as a power cut would leave it.

    power_take.py LOG PID STATE DESTINATION IMAGE INTO [--moments NAME,...] [--trace FILE] [--most N]

LOG is the output of process PID, `penstock copy --json-events`; IMAGE lies on a file system with reflinks. At each
moment it notes first what the coordinator has been told and then clones the image, so that the clone is never older
than the note: INTO/cutN.json (the last snapshot line), INTO/cutN.part (the unfinished receipt), INTO/cutN.img.
Moments, of which each is taken once between two snapshots that tell of more:
    told      a snapshot tells of more bytes that are durable
    journal   the journal has grown
    kept      the journal was synced
    synced    something else was
    name      a file in the destination's first two levels has got its final name
For `kept` and `synced` FILE is what `strace -y` writes of the agent's calls that sync. It ends with the job or after N cuts.
"""
import argparse
import ctypes
import fcntl
import json
import os
import select
import struct
import sys
from pathlib import Path

FICLONE = 0x40049409
IN_MODIFY, IN_MOVED_TO, IN_CREATE = 0x2, 0x80, 0x100
EVENT = struct.Struct("iIII")
MOMENTS = ("told", "journal", "kept", "synced", "name")


class Watcher:
    """inotify: what happens in folders, by name."""

    def __init__(self):
        self.libc = ctypes.CDLL(None, use_errno=True)
        self.fd = self.libc.inotify_init1(os.O_CLOEXEC)
        self.paths = {}

    def add(self, path):
        number = self.libc.inotify_add_watch(self.fd, os.fsencode(path), IN_MODIFY | IN_MOVED_TO | IN_CREATE)
        if number < 0:
            raise OSError(ctypes.get_errno(), f"watch {path}")
        self.paths[number] = Path(path)

    def read(self):
        """[(path, what happened)]"""
        content, at, events = os.read(self.fd, 1 << 16), 0, []
        while at < len(content):
            number, mask, _, length = EVENT.unpack_from(content, at)
            name = content[at + EVENT.size:at + EVENT.size + length].rstrip(b"\0")
            at += EVENT.size + length
            if number in self.paths:
                events.append((self.paths[number] / os.fsdecode(name), mask))
        return events


class Tail:
    """What is appended to a file, line by line."""

    def __init__(self, path):
        self.file = path.open("rb")
        self.rest = b""

    def lines(self):
        *whole, self.rest = (self.rest + self.file.read()).split(b"\n")
        return whole


class Taker:
    def __init__(self, options):
        self.options = options
        self.state = options.destination / ".penstock"
        self.log = Tail(options.log)
        self.trace = Tail(options.trace) if options.trace else None
        self.last = {}
        self.told_bytes = 0
        self.taken = set()
        self.cuts = 0
        self.watcher = Watcher()
        folders = [entry for entry in options.destination.iterdir() if entry.is_dir()]  # .penstock too, if it is there
        for folder in {options.log.parent, options.destination, *folders, *([options.trace.parent] if self.trace else [])}:
            self.watcher.add(folder)

    def read_log(self):
        """Whether new lines tell of more."""
        for line in self.log.lines():
            if line.startswith(b'{"event":"snapshot"'):
                self.last = json.loads(line)
        told = self.last.get("bytes", {}).get("moved", 0)
        grown, self.told_bytes = told > self.told_bytes, told
        return grown

    def read_trace(self):
        """What was synced: a line is written when the call has returned, and before its thread goes on."""
        ended = [line for line in self.trace.lines() if line.endswith(b" = 0")] if self.trace else []
        return {"kept" if b"/.penstock/journal" in line else "synced" for line in ended}

    def read_names(self):
        found = set()
        for path, mask in self.watcher.read():
            if path == self.state and mask & IN_CREATE:
                self.watcher.add(self.state)
            elif path.parent == self.state:
                found |= {"journal"} if path.name == "journal" and mask & IN_MODIFY else set()
            elif mask & IN_MOVED_TO:
                found.add("name")
        return found

    def moments(self):
        found = self.read_names() | self.read_trace()
        if self.read_log():
            self.taken.clear()
            found.add("told")
        return found & set(self.options.moments) - self.taken

    def cut(self, moments):
        self.cuts += 1
        into = self.options.into / f"cut{self.cuts}"
        into.with_suffix(".json").write_text(json.dumps(self.last))
        parts = list(self.options.state.glob("receipts/*.part"))
        into.with_suffix(".part").write_bytes(parts[0].read_bytes() if parts else b"")
        with self.options.image.open("rb") as image, into.with_suffix(".img").open("xb") as clone:
            fcntl.ioctl(clone, FICLONE, image.fileno())
        print(f"cut {self.cuts} at {'+'.join(sorted(moments))}: {self.told_bytes} bytes were told", flush=True)

    def run(self):
        poll = select.poll()
        pidfd = os.pidfd_open(self.options.pid)
        for fd in (self.watcher.fd, pidfd):
            poll.register(fd, select.POLLIN)
        while self.cuts < self.options.most:
            ready = {fd for fd, _ in poll.poll()}
            if pidfd in ready:
                return
            if moments := self.moments():
                self.taken |= moments
                self.cut(moments)


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("log", type=Path)
    parser.add_argument("pid", type=int)
    for name in ("state", "destination", "image", "into"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--moments", type=lambda names: names.split(","), default=MOMENTS)
    parser.add_argument("--trace", type=Path)
    parser.add_argument("--most", type=int, default=1000)
    options = parser.parse_args()
    if unknown := set(options.moments) - set(MOMENTS):
        parser.error(f"unknown moments: {unknown}")
    return options


if __name__ == "__main__":
    sys.exit(Taker(parse()).run())
