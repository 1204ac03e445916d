"""Tables and CSV from records, and from nothing else."""
import csv

from . import record as records
from . import targets

# Measures in the order of the table's columns, with a head.
SHOWN = [("wall", "wall s"), ("speed", "GB/s"), ("files", "files/s"), ("cpu", "CPU s/GB"), ("machine", "machine s/GB"),
         ("resident", "agent MiB"), ("rss", "max RSS MiB"), ("first-byte", "first byte s")]
NOISE = 0.12  # differences below this mean nothing


def number(value):
    if value is None:
        return "-"
    digits = 0 if abs(value) >= 1000 else 1 if abs(value) >= 100 else 2 if abs(value) >= 1 else 3
    return f"{value:.{digits}f}"


def lines_of(rows):
    """Aligned lines: the first column to the left, the others to the right."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) if i == 0 else cell.rjust(width)
                      for i, (cell, width) in enumerate(zip(row, widths))).rstrip() for row in rows]


def medians(found):
    """The table of one job and place: a line a column, medians; smallest and largest speed or wall time."""
    values = {}
    for record in found:
        _, column, measure = records.parts(record["row"])
        values.setdefault(column, {}).setdefault(measure, record)
    shown = [(measure, head) for measure, head in SHOWN if any(measure in v for v in values.values())]
    rows = [["", *(head for _, head in shown), "wall min-max"]]
    for column, measured in values.items():
        wall = measured.get("wall") or measured.get("first-byte")
        rows.append([column, *(number(measured[m]["median"]) if m in measured else "" for m, _ in shown),
                     f"{number(wall['min'])}-{number(wall['max'])}" if wall else ""])
    return lines_of(rows)


def judgement(record):
    """(bound, verdict) of a record in words."""
    target = targets.judged(record["row"], record["against"])
    if target:
        return (f"{target.operator} {target.bound:g}",
                records.stats.verdict(record["interval"], target.operator, target.bound))
    if record["ratio"] is not None and abs(record["ratio"] - 1) < NOISE:
        return "", "no difference"
    return "", ""


def comparisons(found):
    """A line for each ratio, and for each bound on a figure itself."""
    rows = [["", "measure", "against", "ratio", "95 %", "bound", ""]]
    for record in found:
        job, column, measure = records.parts(record["row"])
        bound, verdict = judgement(record)
        if record["against"] is None and not bound:
            continue
        other = records.parts(record["against"])[1] if record["against"] else "(itself)"
        value = record["ratio"] if record["against"] else record["median"]
        low_high = f"{number(record['interval'][0])}-{number(record['interval'][1])}" if record["interval"] else "-"
        rows.append([column, measure, other, number(value), low_high, bound, verdict])
    return lines_of(rows) if len(rows) > 1 else []


def grouped(found):
    groups = {}
    for record in found:
        groups.setdefault(records.parts(record["row"])[0], []).append(record)
    return groups


def text(found):
    """Everything as text."""
    out = []
    for job, group in grouped(found).items():
        first = group[0]
        rounds = max(len(record["samples"]) for record in group)
        out += [f"== {job}   {rounds} rounds, commit {first['commit']}, {first['date']}, {first['machine']}", ""]
        out += [*medians(group), ""]
        ratios = comparisons(group)
        out += [*ratios, ""] if ratios else []
    return "\n".join(out)


def write_csv(found, file):
    """A line a record; samples and interval parted by blanks."""
    writer = csv.writer(file)
    writer.writerow([*records.FIELDS, "bound", "verdict"])
    for record in found:
        flat = {**record, "samples": " ".join("" if s is None else repr(s) for s in record["samples"]),
                "interval": " ".join(map(repr, record["interval"] or []))}
        writer.writerow([*(flat[name] for name in records.FIELDS), *judgement(record)])
