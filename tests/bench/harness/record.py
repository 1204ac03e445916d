"""One record per line (JSON), the same for all benches of the project.

    schema    penstock-bench-1
    commit    of the program that was measured; `-dirty` when the tree had changes
    machine   processors, memory, kernel
    date      UTC, when the row was finished
    row       JOB.PLACE/COLUMN/MEASURE, for example large.ext4/penstock-clear/speed
    unit      of the samples
    samples   a number a round, in order; null where the run failed
    median, min, max    of the samples; null without any
    against   the row that it is compared with, or null: samples of the same round were taken side by side
    ratio     the median of the ratios of the rounds (sample / sample of `against`), or null
    interval  [low, high], 95 %, of that ratio; without `against` of the median itself; null with fewer than 9
              (paired) rounds
"""
import json

from . import stats

SCHEMA = "penstock-bench-1"
FIELDS = ("schema", "commit", "machine", "date", "row", "unit", "samples", "median", "min", "max", "against",
          "ratio", "interval")


def make(origin, row, unit, samples, against=None, against_samples=None):
    """A record; `origin` has commit, machine and date."""
    taken = [s for s in samples if s is not None]
    ratios = stats.paired_ratios(samples, against_samples) if against else []
    counted = ratios if against else taken
    bounds = stats.interval(counted) if len(counted) >= stats.ROUNDS_MIN else None
    return {
        "schema": SCHEMA, **{name: origin[name] for name in ("commit", "machine", "date")},
        "row": row, "unit": unit, "samples": list(samples),
        "median": stats.median(taken) if taken else None,
        "min": min(taken, default=None), "max": max(taken, default=None),
        "against": against, "ratio": stats.median(ratios) if ratios else None,
        "interval": list(bounds) if bounds else None,
    }


def parts(row):
    """(job and place, column, measure)"""
    name, column, measure = row.split("/")
    return name, column, measure


def dump(record):
    return json.dumps(record, separators=(", ", ": "))


def load(line):
    """The record of a line; ValueError when it is none."""
    record = json.loads(line)
    if not isinstance(record, dict) or record.get("schema") != SCHEMA:
        raise ValueError(f"not a record of {SCHEMA}")
    missing = [name for name in FIELDS if name not in record]
    if missing:
        raise ValueError(f"a record without {', '.join(missing)}")
    parts(record["row"])
    return record


def read(path):
    records = []
    with open(path, encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            try:
                records.append(load(line))
            except ValueError as error:
                raise ValueError(f"{path}, line {number}: {error}") from error
    return records
