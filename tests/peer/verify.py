"""Has a real agent read a copy again: PROTOCOL.md, "Verifying"."""
import os
from collections import deque

from . import digest, manifest, receipt, tree
from .job import VERIFY, Job
from .wire import Reader, Refused, blob_list

RIGHT, UNPROVED, WRONG, MISSING, UNREADABLE = range(5)
VERDICTS = ("right", "unproved", "wrong", "missing", "unreadable")
DIFFERENCES = ("", "path", "type", "size", "time", "content", "mode")
BATCH = 20  # records
OPEN_MAX = 16  # batches that are not answered


def record_of(top, entry):
    """What a receipt says of an entry that was moved."""
    content, proof = bytes(16), receipt.NONE
    if entry.type == manifest.LINK:
        content = digest.xxh128(entry.target)
    elif entry.type == manifest.FILE:
        path, proof = os.path.join(top, entry.path), receipt.WIRE
        content = digest.of_file([digest.xxh128(tree.read_range(path, leaf * digest.LEAF,
                                                                digest.leaf_length(leaf, entry.size)))
                                  for leaf in range(digest.leaf_count(entry.size))], entry.size)
    return receipt.Record(entry.type, receipt.MOVED, proof, entry.mode, entry.size, entry.mtime, content, entry.path)


def read_results(content, count):
    """[(verdict, difference, errno, found)]."""
    reader, results = Reader(content), []
    for _ in range(count):
        verdict, difference, errno, found = reader.u8(), reader.u8(), reader.u16(), reader.u64()
        if (verdict > UNREADABLE or difference >= len(DIFFERENCES) or (verdict == WRONG) != (difference != 0)
                or (verdict == UNREADABLE) != (errno != 0)):
            raise Refused(f"a result that cannot be: {verdict}, {difference}, {errno}, {found}")
        results.append((verdict, difference, errno, found))
    reader.end()
    return results


class Verifier:
    def __init__(self, place, settings):
        self.job = Job(place, VERIFY, settings)

    def check(self, records):
        """The results for the records, in their order."""
        control, waiting, open_batches, results = self.job.control, deque(records), deque(), []
        while waiting or open_batches:
            while waiting and len(open_batches) < OPEN_MAX:
                batch = [waiting.popleft() for _ in range(min(BATCH, len(waiting)))]
                control.send("CHECK", records=blob_list(record.encode() for record in batch))
                open_batches.append(len(batch))
            results += read_results(control.wait("CHECKED").results, open_batches.popleft())
        return results

    def run(self, top):
        top = os.fsencode(top)
        records = [record_of(top, entry) for entry in tree.walk(top)]
        self.job.hello()
        self.job.control.send("OPEN", **self.job.open_fields())
        self.job.control.wait("VERIFY_OPENED")
        counts = [0] * len(VERDICTS)
        for record, (verdict, difference, errno, _) in zip(records, self.check(records)):
            counts[verdict] += 1
            if verdict > UNPROVED:
                path = record.path.decode(errors="backslashreplace")
                print(f"{VERDICTS[verdict]} {DIFFERENCES[difference] or errno} {path}")
        self.job.close(finished=True)
        print("verified:", ", ".join(f"{count} {verdict}" for count, verdict in zip(counts, VERDICTS)))
