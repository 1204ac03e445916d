"""Records of a receipt and record files: PROTOCOL.md, "Receipt" and "Record files"."""
from dataclasses import dataclass

from . import digest, manifest
from .wire import Reader, Refused, blob, blob_list, i64, read_blob_list, u16, u32, u64, u8

JOURNAL, RECEIPT = 1, 2
JOB, ENTRIES, END = 1, 2, 3
MOVED, SKIPPED, CHANGED, VANISHED, FAILED = 1, 2, 3, 4, 5
NONE, WIRE, DISK, CARRIED = 0, 1, 2, 3
HEADER, PAYLOAD_MAX = 64, 256 << 10


@dataclass
class Record:
    """What became of one entry."""
    type: int
    outcome: int
    proof: int
    mode: int
    size: int
    mtime: tuple
    digest: bytes
    path: bytes

    def encode(self):
        return (u8(self.type) + u8(self.outcome) + u8(self.proof) + u8(0) + u32(self.mode) + u64(self.size)
                + i64(self.mtime[0]) + u32(self.mtime[1]) + self.digest + blob(self.path))


def read_record(content):
    reader = Reader(content)
    kind, outcome, proof = reader.u8(), reader.u8(), reader.u8()
    reader.zeros(1)
    mode, size, seconds, nanoseconds = reader.u32(), reader.u64(), reader.i64(), reader.u32()
    record = Record(kind, outcome, proof, mode, size, (seconds, nanoseconds), reader.raw(16),
                    reader.blob(manifest.PATH_MAX))
    reader.end()
    if not MOVED <= outcome <= FAILED or proof > CARRIED:
        raise Refused("an outcome or a proof that is unknown")
    manifest.check_entry(manifest.Entry(kind, record.path, mode, size, record.mtime, target=b"-"))
    return record


def read_records(content):
    """The records of ENTRIES_DONE."""
    return [read_record(item) for item in read_blob_list(content)]


def job_payload(started, program, sources, destination, place):
    return i64(started) + blob(program) + blob(blob_list(sources)) + blob(destination) + blob(place)


def end_payload(ended, exit_status, counts):
    """`counts`: total, moved, skipped, changed, vanished, failed, bytes."""
    return i64(ended) + u32(exit_status) + u32(0) + b"".join(u64(count) for count in counts)


def record_file(kind, version, job, salt, records):
    """A whole file of records [(type, payload)]."""
    front = b"PENSTOCK" + u32(kind) + u32(version) + job + salt + u64(0)
    before = digest.check64(front)
    content = front + u64(before)
    for number, (record_type, payload) in enumerate(records):
        record = u32(len(payload)) + u16(record_type) + u16(0) + u64(number) + payload
        before = digest.check64(u64(before) + record)
        content += record + u64(before)
    return content


def read_framed(reader, number, before):
    """(type, payload, checksum) of the record that begins here."""
    begin = reader.at
    length, record_type = reader.u32(), reader.u16()
    reader.zeros(2)
    if length > PAYLOAD_MAX or reader.u64() != number:
        raise Refused("a record out of order")
    payload = reader.raw(length)
    checksum = digest.check64(u64(before) + reader.content[begin:reader.at])
    if reader.u64() != checksum:
        raise Refused("a damaged record")
    return record_type, payload, checksum


def read_records_before_damage(content, kind):
    """(version, job, [(type, payload)], reason): the records before the first that is torn or does not fit; the
    reason is empty when there is none."""
    reader = Reader(content)
    if reader.raw(8) != b"PENSTOCK" or reader.u32() != kind:
        raise Refused("no file of this kind")
    version, job = reader.u32(), reader.raw(16)
    reader.raw(16)  # the salt
    reader.zeros(8)
    before = reader.u64()
    if before != digest.check64(content[:56]):
        raise Refused("the header is damaged")
    records = []
    try:
        while reader.left():
            record_type, payload, before = read_framed(reader, len(records), before)
            records.append((record_type, payload))
    except Refused as refused:
        return version, job, records, str(refused)
    return version, job, records, ""


def read_record_file(content, kind):
    """(version, job, [(type, payload)]) of a file without damage."""
    version, job, records, damage = read_records_before_damage(content, kind)
    if damage:
        raise Refused(damage)
    return version, job, records
