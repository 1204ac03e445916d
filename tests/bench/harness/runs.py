"""One timed run: commands side by side, and what they took."""
import os
import select
import subprocess
import sys
import tempfile
import time
from typing import NamedTuple

from . import machine

RUN_S = 900  # a run that takes longer has failed
WORDS = 300  # of what a failed command said


class Run(NamedTuple):
    wall_s: float
    cpu_s: float      # both ends, servers included
    machine_s: float  # all processors
    rss_mib: float    # of the largest process that the commands waited for
    output: str
    error: str        # "" when all went well


class Started:
    """A command under way; its output goes to a file, so that no pipe slows it down."""

    def __init__(self, argv, stdout=None):
        self.words = tempfile.TemporaryFile()
        self.out = stdout or tempfile.TemporaryFile()
        self.argv = argv
        self.process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=self.out, stderr=self.words,
                                        start_new_session=True)

    def wait(self, deadline):
        """Its exit status and resident set; killed when it is late."""
        descriptor = os.pidfd_open(self.process.pid)
        try:
            if not select.select([descriptor], [], [], max(0, deadline - time.monotonic()))[0]:
                self.process.kill()
        finally:
            os.close(descriptor)
        _, status, usage = os.wait4(self.process.pid, 0)
        self.process.returncode = os.waitstatus_to_exitcode(status)
        return self.process.returncode, usage.ru_maxrss / 1024

    def said(self, file):
        file.seek(0)
        return file.read().decode(errors="replace")

    def error(self, code):
        if code == 0:
            return ""
        words = " ".join((self.said(self.words) or self.said(self.out)).split())
        return f"{os.path.basename(self.argv[0])} ended with {code}: {words[-WORDS:]}"


def run(meter, argvs, sync=None):
    """Runs commands at the same time, then syncs the file system that holds `sync`, inside the timed part."""
    busy, used, began = machine.busy_s(), meter.used_s(), time.monotonic()
    started = [Started(argv) for argv in argvs]
    ends = [each.wait(began + RUN_S) for each in started]
    if sync:
        machine.sync_file_system(sync)
    wall = time.monotonic() - began
    return Run(wall, meter.used_s() - used, machine.busy_s() - busy, max(rss for _, rss in ends),
               "".join(each.said(each.out) for each in started),
               "; ".join(filter(None, (each.error(code) for each, (code, _) in zip(started, ends)))))


def say(text):
    print(text, file=sys.stderr, flush=True)
