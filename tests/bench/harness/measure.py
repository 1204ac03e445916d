"""How a run of each kind of row is made, and what is measured: {measure: (value, unit)}."""
import json
import os
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import NamedTuple, Optional

from . import data as data_sets
from . import machine, runs, stats

GB = 1e9
TINY_JOBS = 10  # one sample is the median of so many
SNAPSHOT_S = 60  # a job that sends nothing for so long has failed


class RunError(Exception):
    """A run whose figures mean nothing; the text says why."""


class Job(NamedTuple):
    """What a column needs to know of the row."""

    source: Optional[Path]
    target: Optional[Path]
    data: Optional[data_sets.Data]
    folder: Path  # for files of the run's own
    server: object
    streams: int
    memory_bytes: int


def timed(meter, column, job):
    """One run with its data on stable storage at the end."""
    sync = job.target if job.target and not column.syncs else None
    run = runs.run(meter, column.commands(job), sync)
    if run.error:
        raise RunError(run.error)
    return run


def costs(run, size):
    return {
        "wall": (run.wall_s, "s"),
        "speed": (size / GB / run.wall_s, "GB/s"),
        "cpu": (run.cpu_s / (size / GB), "CPU s/GB"),
        "machine": (run.machine_s / (size / GB), "CPU s/GB"),
    }


def copy(meter, column, job):
    run = timed(meter, column, job)
    wrong = data_sets.complete(job.target, job.data)
    if wrong:
        raise RunError(wrong)
    measures = {**costs(run, job.data.bytes), "rss": (run.rss_mib, "MiB"), **column.more(job, run)}
    if job.data.folders:
        measures["files"] = (job.data.files / run.wall_s, "files/s")
    return measures


def memory(meter, column, job):
    run = timed(meter, column, job)
    told = json.loads(run.output)
    size = told["end"]["sum_received"]["bytes"] if "end" in told else told["bytes"]
    if isinstance(size, dict):
        size = size["moved"]
    return costs(run, size)


def tiny(meter, column, job):
    """From start to exit of a job of one file, on a target that is empty each time."""
    walls = []
    for _ in range(TINY_JOBS):
        data_sets.empty(job.target)
        machine.sync_file_system(job.target)
        walls.append(timed(meter, column, job).wall_s)
        wrong = data_sets.complete(job.target, job.data)
        if wrong:
            raise RunError(wrong)
    column.more(job, None)
    return {"wall": (stats.median(walls), "s")}


def start(_meter, column, job):
    """Until the job says that bytes are on their way; then it is interrupted. It says so once a second, so the figure
    is up to a second too high."""
    (argv,) = column.commands(job)
    argv = [word for word in argv if word != "--quiet"] + ["--json-events"]
    with tempfile.TemporaryFile() as words:
        began = time.monotonic()
        process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=words, text=True)
        try:
            seconds = first_byte(process.stdout, began)
            process.send_signal(signal.SIGINT)
            process.stdout.read()
        finally:
            process.stdout.close()
            if process.poll() is None and not ended(process):
                process.kill()
            process.wait()
    if seconds is None:
        raise RunError("the job ended before it sent a byte")
    return {"first-byte": (seconds, "s")}


def ended(process):
    try:
        process.wait(SNAPSHOT_S)
    except subprocess.TimeoutExpired:
        return False
    return True


def first_byte(lines, began):
    for line in lines:
        event = json.loads(line)
        if event.get("bytes", {}).get("sent", 0) > 0:
            return time.monotonic() - began
        if time.monotonic() - began > SNAPSHOT_S:
            break
    return None


KINDS = {"copy": copy, "memory": memory, "tiny": tiny, "start": start}


def same(source, target):
    """Reads both and compares: of every column once, in the uncounted round."""
    told = subprocess.run(["diff", "-rq", source, target], capture_output=True, text=True, check=False)
    return None if told.returncode == 0 else f"differs: {' '.join(told.stdout.split())[:200]}"


def clean(job):
    """Empties the target, and makes the file system forget what was there."""
    if job.target:
        data_sets.empty(job.target)
        job.target.chmod(0o777)  # tools give it the mode of the source; servers of other accounts write there
        machine.sync_file_system(job.target)
        machine.drop_caches()


def warm(column):
    """Reads the program into memory again after the caches were dropped."""
    path = column.program if os.sep in column.program else f"/usr/bin/{column.program}"
    subprocess.run([path, "--version"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                   stderr=subprocess.DEVNULL, check=False)
