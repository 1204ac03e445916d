"""A session: rows one after the other, in each all columns in every round, in an order that turns."""
import os
import shutil
import tempfile
from datetime import datetime, timezone
from pathlib import Path

from . import data as data_sets
from . import machine, measure, servers, targets
from . import record as records
from .runs import say


class Session:
    """What all rows share. `options` are those of the command line; records go to `out` as rows finish."""

    def __init__(self, options, root, out):
        self.options = options
        self.out = out
        self.sets = data_sets.QUICK if options.quick else data_sets.FULL
        self.origin = {"commit": machine.commit(root), "machine": machine.describe()}
        self.work = Path(tempfile.mkdtemp(prefix=f"penstock-bench.{os.getpid()}.", dir="/dev/shm"))
        self.work.chmod(0o755)  # servers of other accounts pass through it
        self.disk = Path(options.dest).resolve() / self.work.name
        self.made = None  # the data set that is there: (name, folder)
        self.meter = machine.CpuMeter()
        self.records = []

    def close(self):
        """Leaves nothing behind."""
        self.meter.close()
        shutil.rmtree(self.work, ignore_errors=True)
        shutil.rmtree(self.disk, ignore_errors=True)

    # ---- data ----

    def source(self, name):
        """The folder of a data set; the one before it is removed."""
        if name is None:
            return None
        if self.made and self.made[0] != name:
            shutil.rmtree(self.made[1])
            self.made = None
        if not self.made:
            say(f"making the data of {name}: {self.sets[name].files} files, {self.sets[name].bytes / 2**20:.0f} MiB")
            self.made = (name, self.sets[name].make(self.work))
        return self.made[1]

    def target(self, place):
        if place is None:
            return None
        folder = self.disk / "target" if place == "ext4" else self.work / "target"
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    # ---- rows ----

    def row(self, row):
        """All rounds of a row; the first is not counted."""
        job = measure.Job(self.source(row.data), self.target(row.place), self.sets.get(row.data), self.work, None,
                          row.streams, data_sets.MEMORY_BYTES[self.options.quick])
        columns = self.open_columns(row, job)
        samples = {column.name: [] for column, _ in columns}
        broken = set()
        try:
            for number in range(self.options.rounds + 1):
                turn = number % len(columns) if columns else 0
                for column, its_job in columns[turn:] + columns[:turn]:
                    measured = None
                    if column.name not in broken:
                        measured = self.run(row, column, its_job, number)
                    if number == 0 and measured is None:
                        broken.add(column.name)
                    elif number > 0:
                        samples[column.name].append(measured)
        finally:
            for _, its_job in columns:
                if its_job.server:
                    its_job.server.stop()
            measure.clean(job)
        self.emit(row, {name: taken for name, taken in samples.items() if name not in broken})

    def open_columns(self, row, job):
        """(column, job) of the columns that can run, their servers started."""
        columns = []
        for column in row.columns:
            wanted = self.options.tools is None or column.name in self.options.tools
            if not wanted or (column.data and row.data not in column.data):
                continue
            reason = column.lacks(job)
            try:
                server = column.server(self.meter, self.work, job.target) if column.server and not reason else None
            except servers.ServerError as error:
                reason = error
            if reason:
                say(f"{row.name}: no {column.name}: {reason}")
                continue
            columns.append((column, job._replace(server=server)))
        return columns

    def run(self, row, column, job, number):
        """The measures of one run, or None when it failed."""
        measure.clean(job)
        measure.warm(column)
        try:
            measured = measure.KINDS[row.kind](self.meter, column, job)
            if number == 0 and row.kind == "copy":
                wrong = measure.same(job.source, job.target)
                if wrong:
                    raise measure.RunError(wrong)
        except measure.RunError as error:
            say(f"{row.name}: {column.name} failed: {error}")
            return None
        words = ", ".join(f"{name} {value:.3g} {unit}" for name, (value, unit) in measured.items())
        say(f"{row.name} {f'round {number}' if number else 'uncounted'} {column.name}: {words}")
        return measured

    def emit(self, row, samples):
        """Writes the records of a row: each measure by itself, then beside what it is compared with."""
        name = targets.QUICK + row.name if self.options.quick else row.name
        origin = {**self.origin, "date": datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")}
        series = {}
        for column, taken in samples.items():
            units = {m: unit for measured in taken if measured for m, (_, unit) in measured.items()}
            for m, unit in units.items():
                series[f"{name}/{column}/{m}"] = (unit, [t[m][0] if t else None for t in taken])
        medians = {key: records.stats.median(taken) for key, (_, values) in series.items()
                   if (taken := [v for v in values if v is not None])}
        found = []
        for key, (unit, values) in series.items():
            found.append(records.make(origin, key, unit, values))
            for against in targets.compared_with(key, medians):
                found.append(records.make(origin, key, unit, values, against, series[against][1]))
        for record in found:
            self.out.write(records.dump(record) + "\n")
        self.out.flush()
        self.records += found
