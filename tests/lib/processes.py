"""Everything below the calling process: waiting for it without polling, and ending all of it."""
import ctypes
import os
import select
import signal
import time
from pathlib import Path

GRACE_S = 2


def become_subreaper():
    """Orphans of a test program become children of the runner, so none escapes by starting its own session."""
    pr_set_child_subreaper = 36
    if ctypes.CDLL(None, use_errno=True).prctl(pr_set_child_subreaper, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def descendants():
    """Every living process below the runner."""
    parents = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                fields = Path("/proc", entry, "stat").read_text(errors="replace").rpartition(")")[2].split()
            except OSError:
                continue
            if fields[0] != "Z":
                parents[int(entry)] = int(fields[1])
    found = {os.getpid()}
    grown = True
    while grown:
        more = {pid for pid, parent in parents.items() if parent in found} - found
        found |= more
        grown = bool(more)
    return found - {os.getpid()}


def reap():
    try:
        while os.waitpid(-1, os.WNOHANG)[0] != 0:
            pass
    except ChildProcessError:
        pass


def wait_gone(pids, seconds):
    """Waits until all of these processes have ended, at most so long; says whether they have."""
    deadline = time.monotonic() + seconds
    for pid in pids:
        try:
            descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        left_s = max(0, deadline - time.monotonic())
        ended = select.select([descriptor], [], [], left_s)[0]
        os.close(descriptor)
        if not ended:
            return False
    return True


def kill_all(pids):
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


def end_everything():
    """Kills whatever lives below the runner, and what that starts meanwhile."""
    for _ in range(20):
        left = descendants()
        if not left:
            return
        kill_all(left)
        wait_gone(left, GRACE_S)
        reap()


def end_leftovers():
    """Kills what still lives below the runner after a moment; returns what that was, by name."""
    wait_gone(descendants(), GRACE_S)
    reap()
    names = [f"{pid} ({process_name(pid)})" for pid in sorted(descendants())]
    end_everything()
    return names


def process_name(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return "ended"
