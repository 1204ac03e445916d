"""Control messages: PROTOCOL.md, "Control messages". Their fields are those of its table."""
import re
from pathlib import Path

from .wire import Reader, Refused, blob, u16, u32, u64, u8

DOCUMENT = Path(__file__).resolve().parent.parent.parent / "proto/PROTOCOL.md"
HEAD = 6
LONGEST = 128 << 10
PEER_LONGEST = 2 << 20
PEER_SEGMENT, PEER_NEED, PEER_RETRY = 0x100, 0x101, 0x102
INTEGERS = {"u8": u8, "u16": u16, "u32": u32, "u64": u64}
RAW = {"id": 16, "digest": 16, "secret": 32}


def read_table():
    """({number: name}, {name: (number, [(type, field, longest)])}) as the document has them."""
    names, table = {}, {}
    section = DOCUMENT.read_text(encoding="utf-8").split("<!-- messages:")[1].split("<!-- end of messages -->")[0]
    for number, name, fields in re.findall(r"^\| (\d+) \| ([A-Z_]+) \| (.+) \|$", section, re.MULTILINE):
        rows = []
        for text in fields.split(", "):
            found = re.fullmatch(r"(blob) (\w+) ≤ (\d+)|(\w+) (\w+)", text)
            kind, field, longest = (found[1], found[2], int(found[3])) if found[1] else (found[4], found[5], 0)
            if kind != "blob" and kind not in INTEGERS and kind not in RAW:
                raise ValueError(f"{name}: {text}")
            rows.append((kind, field, longest))
        names[int(number)], table[name] = name, (int(number), rows)
    return names, table


NAMES, TABLE = read_table()


class Message:
    """A message by name, its fields as attributes. Fields that are not given are zero or empty."""

    def __init__(self, name, **fields):
        self.name = name
        for kind, field, _ in TABLE[name][1]:
            empty = 0 if kind in INTEGERS else bytes(RAW.get(kind, 0))
            setattr(self, field, fields.pop(field, empty))
        if fields:
            raise ValueError(f"{name} has no {', '.join(fields)}")

    def fields(self):
        return {field: getattr(self, field) for _, field, _ in TABLE[self.name][1]}

    def body(self):
        content = b""
        for kind, field, longest in TABLE[self.name][1]:
            value = getattr(self, field)
            if kind in INTEGERS:
                content += INTEGERS[kind](value)
            elif kind == "blob":
                if len(value) > longest:
                    raise ValueError(f"{self.name}: {field} has {len(value)} bytes, at most {longest}")
                content += blob(value)
            else:
                if len(value) != RAW[kind]:
                    raise ValueError(f"{self.name}: {field} has {len(value)} bytes, not {RAW[kind]}")
                content += value
        return content

    def encode(self):
        return encode(TABLE[self.name][0], self.body())

    def __repr__(self):
        shown = {field: value for field, value in self.fields().items() if field != "secret"}
        return f"{self.name} {shown}"


def encode(number, body):
    """The form of a message with any number and bytes."""
    return u32(len(body)) + u16(number) + body


def decode(number, body):
    if number not in NAMES:
        raise Refused(f"a message of the unknown type {number}")
    message, reader = Message(NAMES[number]), Reader(body)
    for kind, field, longest in TABLE[message.name][1]:
        if kind in INTEGERS:
            value = getattr(reader, kind)()
        else:
            value = reader.blob(longest) if kind == "blob" else reader.raw(RAW[kind])
        setattr(message, field, value)
    reader.end()
    return message
