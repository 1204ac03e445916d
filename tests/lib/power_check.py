#!/usr/bin/python3
"""Whether a destination after a power cut keeps every promise that was made before it.

    power_check.py SOURCE OLD DESTINATION NOTE

SOURCE is what was being copied, OLD what lay at the destination before, NOTE.json and NOTE.part what the coordinator
had been told before the cut (power_take.py). Prints one JSON object: what was told and what is there. Every broken
promise is a line on the standard error and makes the exit status 1.
"""
import json
import os
import stat
import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(TESTS))

from peer import digest, journal, receipt  # noqa: E402 (found by the line above)

OWN = b".penstock"


def content(path):
    with open(path, "rb") as file:
        return file.read()


def digest_of(path):
    whole = content(path)
    leaves = [digest.xxh128(whole[at:at + digest.LEAF]) for at in range(0, len(whole), digest.LEAF)]
    return digest.of_file(leaves, len(whole))


def difference(one, other):
    """What tells two files or links apart; empty when nothing does."""
    a, b = os.lstat(one), os.lstat(other)
    if stat.S_IFMT(a.st_mode) != stat.S_IFMT(b.st_mode):
        return "kind"
    if stat.S_ISLNK(a.st_mode):
        return "" if os.readlink(one) == os.readlink(other) else "target"
    if a.st_size != b.st_size:
        return f"size {a.st_size} instead of {b.st_size}"
    if content(one) != content(other):
        return "content"
    if a.st_mode != b.st_mode:
        return "mode"
    return "" if a.st_mtime_ns == b.st_mtime_ns else "mtime"


def data_bytes(path, begin, end):
    """How many of these bytes are no hole."""
    total = 0
    with open(path, "rb") as file:
        end = min(end, os.fstat(file.fileno()).st_size)
        while begin < end:
            try:
                begin = os.lseek(file.fileno(), begin, os.SEEK_DATA)
            except OSError:
                break
            hole = min(os.lseek(file.fileno(), begin, os.SEEK_HOLE), end)
            total += max(0, hole - begin)
            begin = hole
    return total


class Check:
    def __init__(self, source, old, destination, note):
        self.source, self.old, self.destination = map(os.fsencode, (source, old, destination))
        self.told = json.loads(Path(note + ".json").read_text() or "{}")
        self.part = Path(note + ".part").read_bytes()
        self.wrong = 0
        self.new = set()  # paths at the destination that are the source's
        self.records = self.leaves = self.bytes = self.old_left = 0

    def fail(self, text):
        self.wrong += 1
        print(text, file=sys.stderr)

    def check_names(self):
        """What has its final name is the source's version, or what was there before."""
        for folder, folders, files in os.walk(self.destination):
            below = os.path.relpath(folder, self.destination)
            if below == b".":
                folders[:] = [name for name in folders if name != OWN]
            for name in folders + files:
                self.check_name(os.path.normpath(os.path.join(below, name)))

    def check_name(self, path):
        here, source, old = (os.path.join(root, path) for root in (self.destination, self.source, self.old))
        if not os.path.lexists(source):
            self.fail(f"{path!r} is not in the source")
        elif os.path.isdir(here) and not os.path.islink(here):
            if not os.path.isdir(old):
                self.new.add(path)
        elif os.path.lexists(old) and not difference(here, old):
            self.old_left += 1
        elif what := difference(here, source):
            self.fail(f"{path!r} has its name and is not the source's: {what}")
        else:
            self.new.add(path)
            if not os.path.islink(source):
                self.bytes += data_bytes(source, 0, os.path.getsize(source))

    def check_records(self):
        """What the receipt calls moved is there, with the digest and the metadata of the record."""
        if not self.part:
            return
        _, _, records, _ = receipt.read_records_before_damage(self.part, receipt.RECEIPT)
        for record in [r for kind, payload in records if kind == receipt.ENTRIES for r in receipt.read_records(payload)]:
            if record.outcome == receipt.MOVED:
                self.records += 1
                self.check_record(record)

    def check_record(self, record):
        path = os.path.join(self.destination, record.path)
        if record.path not in self.new:
            self.fail(f"{record.path!r} was told to be there, and is not")
            return
        found = os.lstat(path)
        if stat.S_ISREG(found.st_mode) and (
                (found.st_size, found.st_mode & 0o7777, divmod(found.st_mtime_ns, 10**9))
                != (record.size, record.mode, record.mtime) or digest_of(path) != record.digest):
            self.fail(f"{record.path!r} is not what its record says")

    def check_journal(self):
        """What the journal promises lies in the temporary files, or the whole file has its name already."""
        path = os.path.join(self.destination, OWN, b"journal")
        files, reason = journal.read(content(path)) if os.path.exists(path) else ([], "no journal")
        print(f"the journal ends: {reason or 'with its last record'}", file=sys.stderr)
        for file in files:
            temp = os.path.join(self.destination, OWN, b"temp", file.temp_name().encode())
            if os.path.exists(temp):
                self.check_leaves(file, temp)
            elif file.leaves and file.path not in self.new:
                self.fail(f"the journal holds leaves of {file.path!r}, which is neither there nor under its temporary name")

    def check_leaves(self, file, temp):
        source = os.path.join(self.source, file.path)
        held, right = content(temp), content(source)
        bad = []
        for leaf, promised in sorted(file.leaves.items()):
            at = slice(leaf * digest.LEAF, leaf * digest.LEAF + digest.leaf_length(leaf, file.size))
            if held[at] != right[at] or digest.xxh128(held[at]) != promised:
                bad.append(leaf)
            self.bytes += data_bytes(source, at.start, at.stop)
        self.leaves += len(file.leaves)
        if bad:
            self.fail(f"{len(bad)} of {len(file.leaves)} leaves of {file.path!r} that the journal promises are wrong,"
                      f" from {bad[0]} on")

    def check_counters(self):
        """No less is there than the coordinator had been told. (Small files that are sparse travel as a whole.)"""
        moved, entries = (self.told.get(kind, {}).get("moved", 0) for kind in ("bytes", "entries"))
        if self.bytes < moved:
            self.fail(f"{moved} bytes were told to be durable, {self.bytes} are")
        if len(self.new) < entries:
            self.fail(f"{entries} entries were told to be moved, {len(self.new)} are there")
        return {"told_bytes": moved, "told_entries": entries, "bytes": self.bytes, "entries": len(self.new),
                "records": self.records, "leaves": self.leaves, "old": self.old_left}

    def run(self):
        self.check_names()
        self.check_records()
        self.check_journal()
        print(json.dumps(self.check_counters()))
        return 1 if self.wrong else 0


if __name__ == "__main__":
    sys.exit(Check(*sys.argv[1:]).run())
