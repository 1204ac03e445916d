"""Integers, blobs and lists as PROTOCOL.md, "Conventions", has them."""


class Refused(Exception):
    """Bytes that are not as PROTOCOL.md says."""


def u8(value):
    return value.to_bytes(1, "little")


def u16(value):
    return value.to_bytes(2, "little")


def u32(value):
    return value.to_bytes(4, "little")


def u64(value):
    return value.to_bytes(8, "little")


def i64(value):
    return value.to_bytes(8, "little", signed=True)


def blob(content):
    return u32(len(content)) + content


def blob_list(items):
    return b"".join(blob(item) for item in items)


class Reader:
    """Takes fields from the front of bytes; running over the end is refused."""

    def __init__(self, content):
        self.content = content
        self.at = 0

    def left(self):
        return len(self.content) - self.at

    def raw(self, length):
        if length > self.left():
            raise Refused(f"{length} bytes wanted, {self.left()} there")
        self.at += length
        return bytes(self.content[self.at - length:self.at])

    def u8(self):
        return int.from_bytes(self.raw(1), "little")

    def u16(self):
        return int.from_bytes(self.raw(2), "little")

    def u32(self):
        return int.from_bytes(self.raw(4), "little")

    def u64(self):
        return int.from_bytes(self.raw(8), "little")

    def i64(self):
        return int.from_bytes(self.raw(8), "little", signed=True)

    def blob(self, longest):
        length = self.u32()
        if length > longest:
            raise Refused(f"a blob of {length} bytes, at most {longest}")
        return self.raw(length)

    def zeros(self, length):
        if any(self.raw(length)):
            raise Refused("reserved bytes are not zero")

    def end(self):
        if self.left():
            raise Refused(f"{self.left()} bytes too many")


def read_blob_list(content):
    reader, items = Reader(content), []
    while reader.left():
        items.append(reader.blob(len(content)))
    return items
