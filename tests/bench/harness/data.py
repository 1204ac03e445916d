"""The data that is moved: incompressible, on tmpfs, made when a row first wants it, removed after the last."""
import os
import shutil
from pathlib import Path

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
BLOCK = 16 * MIB


class Data:
    """`folders` folders of `files` files of `size` bytes each; `folders` 0: files at the top."""

    def __init__(self, name, files, size, folders=0):
        self.name = name
        self.folders = folders
        self.size = size
        self.files = files * max(folders, 1)
        self.bytes = self.files * size

    def make(self, root):
        """Makes it beneath `root`; returns its folder."""
        top = Path(root, self.name)
        top.mkdir()
        per_folder = self.files // max(self.folders, 1)
        for folder in [top / f"d{i:03}" for i in range(self.folders)] or [top]:
            folder.mkdir(exist_ok=True)
            for i in range(per_folder):
                write_random(folder / f"f{i:05}", self.size)
        return top

    def lists(self, top, parts):
        """The names of the files in so many lists of equal length, for tools that take a list each."""
        names = sorted(os.path.relpath(os.path.join(folder, name), top)
                       for folder, _, found in os.walk(top) for name in found)
        return [names[i * len(names) // parts:(i + 1) * len(names) // parts] for i in range(parts)]


def write_random(path, size):
    """The kernel's generator: a GiB takes some two seconds."""
    with open(path, "wb", buffering=0) as file:
        left = size
        while left > 0:
            left -= file.write(os.urandom(min(left, BLOCK)))


# What the targets speak of, and a hundredth of it to see that everything works.
FULL = {
    "large": Data("large", 1, 4 * GIB),
    "many": Data("many", 64, 64 * MIB),
    "small": Data("small", 100, 16 * KIB, folders=200),
    "tiny": Data("tiny", 1, KIB),
    "million": Data("million", 1000, 16, folders=1000),
}
QUICK = {
    "large": Data("large", 1, 256 * MIB),
    "many": Data("many", 16, 16 * MIB),
    "small": Data("small", 100, 16 * KIB, folders=20),
    "tiny": Data("tiny", 1, KIB),
    "million": Data("million", 1000, 16, folders=20),
}
MEMORY_BYTES = {False: 8 * GIB, True: 256 * MIB}


def complete(top, data):
    """What is wrong with a copy, counted; None when all is there."""
    files = size = 0
    for folder, folders, names in os.walk(top):
        if ".penstock" in folders:
            return "left .penstock"
        files += len(names)
        size += sum(os.lstat(os.path.join(folder, name)).st_size for name in names)
    if (files, size) != (data.files, data.bytes):
        return f"{files} files and {size} bytes arrived of {data.files} and {data.bytes}"
    return None


def empty(folder):
    """Removes what is in a folder."""
    for entry in os.scandir(folder):
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path)
        else:
            os.unlink(entry.path)
