"""Directory trees as entries of a manifest, and back."""
import os
import stat
import errno

from .manifest import BLOCK, DIRECTORY, FILE, LINK, Entry


def times(status):
    return divmod(status.st_mtime_ns, 10**9), divmod(status.st_ctime_ns, 10**9)


def data_ranges(path, size):
    """Where data lies, in whole blocks; None when there is no hole."""
    ranges, at = [], 0
    with open(path, "rb") as file:
        while at < size:
            try:
                start = os.lseek(file.fileno(), at, os.SEEK_DATA)
            except OSError as error:
                if error.errno != errno.ENXIO:
                    raise
                break
            stop = os.lseek(file.fileno(), start, os.SEEK_HOLE)
            start, stop = start // BLOCK * BLOCK, min(-(-stop // BLOCK) * BLOCK, size)
            if ranges and ranges[-1][1] >= start:
                start = ranges.pop()[0]
            ranges.append((start, stop))
            at = stop
    return None if ranges == [(0, size)] else [(start, stop - start) for start, stop in ranges]


def entry_of(path, name):
    status = os.lstat(path)
    mtime, ctime = times(status)
    entry = Entry(DIRECTORY, name, status.st_mode & 0o7777, 0, mtime, ctime, status.st_ino, status.st_uid, status.st_gid)
    if stat.S_ISLNK(status.st_mode):
        entry.type, entry.target = LINK, os.readlink(path)
    elif stat.S_ISREG(status.st_mode):
        entry.type, entry.size = FILE, status.st_size
        if status.st_size:
            entry.ranges = data_ranges(path, status.st_size)
    return entry


def walk(top, name=b""):
    """The entries of a tree, a directory before what it holds."""
    path = os.path.join(top, name) if name else top
    entry = entry_of(path, name)
    yield entry
    if entry.type == DIRECTORY:
        for child in sorted(os.listdir(path)):
            yield from walk(top, os.path.join(name, child))


def read_range(path, offset, length):
    with open(path, "rb") as file:
        file.seek(offset)
        return file.read(length).ljust(length, b"\0")


def write_range(path, offset, content):
    with open(path, "r+b") as file:
        file.seek(offset)
        file.write(content)


def make(top, entry):
    """An entry without its data: files get their size, holes everywhere."""
    path = os.path.join(top, entry.path) if entry.path else top
    if entry.type == DIRECTORY:
        os.makedirs(path, exist_ok=True)
    elif entry.type == LINK:
        os.symlink(entry.target, path)
    else:
        with open(path, "wb") as file:
            file.truncate(entry.size)


def finish(top, entry):
    """Mode and time; of directories last, deepest first."""
    path = os.path.join(top, entry.path) if entry.path else top
    if entry.type != LINK:
        os.chmod(path, entry.mode)
    when = entry.mtime[0] * 10**9 + entry.mtime[1]
    os.utime(path, ns=(when, when), follow_symlinks=False)
