"""What must be reached, in one place; and what else is put side by side.

A target compares a row with another row in the same round, or, without `against`, with the bound itself. Rows are
patterns (fnmatch); `{}` in `against` is the job and place of the row, and a pattern there stands for the one of those
rows with the best median.
"""
from fnmatch import fnmatchcase
from typing import NamedTuple, Optional


class Target(NamedTuple):
    row: str
    against: Optional[str]
    operator: Optional[str]  # None: the ratio is only reported
    bound: Optional[float]


TARGETS = [
    # Large and many large files, in clear, durable.
    Target("large.ext4/penstock-clear/speed", "{}/limit/speed", ">=", 0.9),
    Target("many.ext4/penstock-clear/speed", "{}/limit/speed", ">=", 0.9),
    Target("large.ext4/penstock-clear/machine", "{}/limit/machine", "<=", 1.2),
    Target("many.ext4/penstock-clear/machine", "{}/limit/machine", "<=", 1.2),
    Target("large.ext4/penstock-clear/speed", "{}/gridftp/speed", ">=", 2.0),
    Target("many.ext4/penstock-clear/speed", "{}/gridftp/speed", ">=", 1.0),
    Target("large.ext4/penstock-clear/speed", "{}/rsync/speed", ">=", 3.0),
    Target("many.ext4/penstock-clear/speed", "{}/rsync/speed", ">=", 3.0),
    # Sealed, as it is unless told otherwise.
    Target("large.ext4/penstock/speed", "{}/limit-sealed/speed", ">=", 0.85),
    Target("many.ext4/penstock/speed", "{}/limit-sealed/speed", ">=", 0.85),
    # Small files; the peers seal nothing, so neither does Penstock here.
    Target("small.tmpfs/penstock-clear/files", "{}/rsync4/files", ">=", 2.0),
    Target("small.tmpfs/penstock-clear/files", "{}/cp/files", ">=", 1.0),
    Target("small.tmpfs/penstock-clear/files", "{}/gridftp/files", ">=", 3.0),
    Target("small.ext4/penstock-clear/files", "{}/rsync4/files", ">=", 1.2),
    Target("small.ext4/penstock-clear/files", "{}/cp/files", ">=", 1.0),
    Target("small.ext4/penstock-clear/files", "{}/gridftp/files", ">=", 3.0),
    # From memory to memory, with digests.
    Target("memory.s*/penstock-clear/speed", "{}/limit/speed", ">=", 0.9),
    Target("memory.s*/penstock-clear/speed", "{}/iperf3/speed", None, None),
    Target("memory.s*/penstock/speed", "{}/limit-sealed/speed", None, None),
    # The number of streams, and the choice of the engine.
    Target("streams-*/penstock-clear-s*/speed", "{}/penstock-clear-s*/speed", ">=", 0.88),
    Target("engines-*/penstock-clear/speed", "{}/penstock-clear-*/speed", ">=", 0.88),
    # One tiny file to a running agent or daemon, from connect to exit.
    Target("tiny.*/penstock/wall", "{}/rsync/wall", "<=", 1.0),
    Target("tiny.*/penstock-clear/wall", "{}/rsync/wall", "<=", 1.0),
    # Memory of the larger agent (MiB), four streams unless told otherwise; time to the first byte (s).
    Target("*/penstock/resident", None, "<=", 96.0),
    Target("*/penstock-clear/resident", None, "<=", 96.0),
    Target("*/penstock*-s4/resident", None, "<=", 96.0),
    Target("*/penstock*-s16/resident", None, "<=", 256.0),
    Target("start.*/penstock*/first-byte", None, "<=", 2.0),
    # Which stripe, and which way to run the yardstick?
    Target("stripes-*/penstock-clear-*/speed", "{}/penstock-clear-4M/speed", None, None),
    Target("yardstick-*/limit-*/speed", "{}/limit/speed", None, None),
    Target("yardstick-*/limit-*/cpu", "{}/limit/cpu", None, None),
    # No target, but good to see.
    Target("*/penstock-clear/speed", "{}/limit/speed", None, None),
    Target("*/penstock-clear/cpu", "{}/limit/cpu", None, None),
    Target("*/penstock-clear/machine", "{}/limit/machine", None, None),
    Target("*/penstock/speed", "{}/limit-sealed/speed", None, None),
    Target("*/penstock/machine", "{}/limit-sealed/machine", None, None),
    Target("*/penstock/speed", "{}/penstock-clear/speed", None, None),
    Target("small.*/penstock/files", "{}/rsync4/files", None, None),
    Target("large.*/penstock-clear/speed", "{}/cp/speed", None, None),
    Target("many.*/penstock-clear/speed", "{}/rsync4/speed", None, None),
    Target("memory.s*/limit/speed", "{}/iperf3/speed", None, None),
]

# Before the names of rows of small data, where everything is tried and nothing is measured: no target is meant.
QUICK = "quick-"
# Of these more is better, of all other measures less.
MORE_IS_BETTER = ("speed", "files")


def wanted(target, row):
    """What a row is compared with, perhaps a pattern; None: with the bound itself."""
    return target.against.format(row.split("/")[0]) if target.against else None


def compared_with(row, medians):
    """The rows that a row is compared with; `medians` are those of all rows that were measured."""
    plain = row.removeprefix(QUICK)
    prefix = QUICK if plain != row else ""
    found = []
    for target in TARGETS:
        if target.against is None or not fnmatchcase(plain, target.row):
            continue
        rivals = [other for other in medians if fnmatchcase(other, prefix + wanted(target, plain))]
        choose = max if row.rsplit("/", 1)[1] in MORE_IS_BETTER else min
        best = choose(rivals, key=medians.get, default=None)
        if best not in (None, row, *found):
            found.append(best)
    return found


def judged(row, against):
    """The target with a bound that a record was taken for, or None."""
    for target in TARGETS:
        if target.operator is None or row.startswith(QUICK) or not fnmatchcase(row, target.row):
            continue
        other = wanted(target, row)
        if against is None and other is None or against and other and fnmatchcase(against, other):
            return target
    return None
