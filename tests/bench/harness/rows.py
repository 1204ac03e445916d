"""The rows: which job, to which place, by which columns. Rows that use the same data stand together."""
from fnmatch import fnmatchcase
from typing import NamedTuple, Optional

from .columns import (Cp, GridFtp, Iperf, Limit, Penstock, PenstockMemory, PenstockToAgent, Rclone, Rsync, Xrdcp)

PLACES = ("ext4", "tmpfs")
CLEAR = ("--encrypt", "off")
ENGINES = ("uring", "aio", "threads")
STRIPES = ("1M", "2M", "4M", "8M", "16M")
# Ways to run the yardstick: which is the fastest on this machine?
WAYS = {
    "": "", "-s1": "--streams 1", "-s4": "--streams 4", "-unit1": "--unit 1M", "-unit16": "--unit 16M",
    "-piece256": "--piece 256K", "-piece2": "--piece 2M", "-piece4": "--piece 4M", "-slots4": "--slots 4",
    "-slots32": "--slots 32", "-lowat0": "--lowat 0", "-lowat1": "--lowat 1M", "-socket1": "--socket 1M",
    "-map": "--map", "-pin": "--pin",
}


class Row(NamedTuple):
    """`kind` says how a run is made and what it measures (see measure.py)."""

    name: str
    kind: str            # copy, memory, tiny or start
    data: Optional[str]  # of data.py
    place: Optional[str]
    columns: list
    streams: int = 1

    @property
    def job(self):
        return self.name.split(".")[0]


class Tools(NamedTuple):
    """The programs under measurement, and how the yardstick is run."""

    penstock: str
    limit: str
    limit_options: list  # the fastest way on this machine
    streams: list        # of the sweep


def copy_columns(tools):
    return [
        Penstock("penstock-clear", tools.penstock, *CLEAR), Penstock("penstock", tools.penstock),
        Limit("limit", tools.limit, *tools.limit_options),
        Limit("limit-sealed", tools.limit, *tools.limit_options, "--sealed"),
        Rsync("rsync", 1), Rsync("rsync4", 4), Cp(), GridFtp(), Xrdcp(), Rclone(),
    ]


def engine_columns(tools):
    return [Penstock("penstock-clear", tools.penstock, *CLEAR)] + [
        Penstock(f"penstock-clear-{engine}", tools.penstock, *CLEAR, "--engine", engine) for engine in ENGINES]


def stream_columns(tools):
    """limit beside it shows what of a fall lies in the machine."""
    return [column for n in map(str, tools.streams) for column in (
        Penstock(f"penstock-clear-s{n}", tools.penstock, *CLEAR, "--streams", n),
        Limit(f"limit-s{n}", tools.limit, *tools.limit_options, "--streams", n))]


def stripe_columns(tools):
    return [Penstock(f"penstock-clear-{stripe}", tools.penstock, *CLEAR, "--stripe", stripe) for stripe in STRIPES]


def yardstick_columns(tools, sealed):
    return [Limit(f"limit{way}", tools.limit, *sealed, *options.split()) for way, options in WAYS.items()]


def memory_columns(tools, streams):
    count = ("--streams", str(streams))
    return [PenstockMemory("penstock-clear", tools.penstock, *CLEAR), PenstockMemory("penstock", tools.penstock),
            Limit("limit", tools.limit, *tools.limit_options, *count),
            Limit("limit-sealed", tools.limit, *tools.limit_options, *count, "--sealed"), Iperf()]


def tiny_columns(tools):
    return [PenstockToAgent("penstock-clear", tools.penstock, *CLEAR), PenstockToAgent("penstock", tools.penstock),
            Rsync("rsync", 1)]


def start_columns(tools):
    return [Penstock("penstock-clear", tools.penstock, *CLEAR), Penstock("penstock", tools.penstock)]


def all_rows(tools):
    rows = [Row(f"memory.s{n}", "memory", None, None, memory_columns(tools, n), n) for n in (1, 2, 4)]
    rows += [Row(f"tiny.{place}", "tiny", "tiny", place, tiny_columns(tools)) for place in PLACES]
    for data in ("large", "many", "small"):
        for place in PLACES:
            rows.append(Row(f"{data}.{place}", "copy", data, place, copy_columns(tools)))
            rows.append(Row(f"engines-{data}.{place}", "copy", data, place, engine_columns(tools)))
            if data == "large":
                rows.append(Row(f"streams-{data}.{place}", "copy", data, place, stream_columns(tools)))
                rows.append(Row(f"stripes-{data}.{place}", "copy", data, place, stripe_columns(tools)))
                rows.append(Row(f"yardstick-clear.{place}", "copy", data, place, yardstick_columns(tools, ())))
                rows.append(Row(f"yardstick-sealed.{place}", "copy", data, place,
                                yardstick_columns(tools, ("--sealed",))))
    rows.append(Row("start.tmpfs", "start", "million", "tmpfs", start_columns(tools)))
    return rows


def chosen(rows, patterns):
    """Those that a pattern names, whole (`large.ext4`, `*.tmpfs`) or by their job (`large`), and the patterns that
    name none."""
    def named(row, pattern):
        return fnmatchcase(row.name, pattern) or fnmatchcase(row.job, pattern)

    idle = [pattern for pattern in patterns if not any(named(row, pattern) for row in rows)]
    return [row for row in rows if any(named(row, pattern) for pattern in patterns)], idle
