"""The machine: what it is, its counters, its caches, and the group that the CPU time of all ends is counted in."""
import ctypes
import os
import resource
import subprocess
import time
from pathlib import Path

TICK_S = 1 / os.sysconf("SC_CLK_TCK")
LIBC = ctypes.CDLL(None, use_errno=True)


def describe():
    """Processors, memory, kernel in a line."""
    model = next((line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines()
                  if line.startswith("model name")), os.uname().machine)
    memory_gib = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
    return f"{os.cpu_count()} x {model}, {memory_gib:.0f} GiB, Linux {os.uname().release}"


def commit(root):
    """The commit of the tree, with `-dirty` when it has changes."""
    told = subprocess.run(["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"], cwd=root,
                          capture_output=True, text=True, check=False)
    return told.stdout.strip() or "unknown"


def busy_s():
    """CPU seconds of the whole machine so far: all but idle, waiting and stolen time."""
    fields = Path("/proc/stat").read_text().splitlines()[0].split()[1:]
    user, nice, system, _idle, _iowait, irq, softirq = map(int, fields[:7])
    return (user + nice + system + irq + softirq) * TICK_S


def sync_file_system(path):
    """syncfs: what was written to the file system of `path` is on stable storage."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        if LIBC.syncfs(descriptor) != 0:
            raise OSError(ctypes.get_errno(), "syncfs", str(path))
    finally:
        os.close(descriptor)


def drop_caches():
    """Forgets clean pages, names and inodes: after many files were deleted on ext4, making new ones is several
    times slower until this is done. Only root may; says whether it was done."""
    try:
        Path("/proc/sys/vm/drop_caches").write_text("3")
    except OSError:
        return False
    return True


def file_system(path):
    """The type of the file system that holds `path`, as in /proc/mounts."""
    device = os.stat(path).st_dev
    wanted = f"{os.major(device)}:{os.minor(device)}"
    kind = "unknown"
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        fields = line.split()
        if fields[2] == wanted:
            kind = fields[fields.index("-") + 1]
    return kind


def unified_mount():
    for line in Path("/proc/mounts").read_text().splitlines():
        if line.split()[2] == "cgroup2":
            return Path(line.split()[1])
    return None


class CpuMeter:
    """CPU seconds of everything that the harness starts, servers included.

    A control group (version 2) of our own counts them exactly, whoever waits for whom. A user who may not make one
    gets the CPU time of processes that have ended and were waited for, and of the servers by /proc in ticks: a
    server's child that nobody waited for is lost. `exact` says which.
    """

    def __init__(self):
        self.servers = set()  # process ids, for the second way
        self.group = self.home = None
        mount = unified_mount()
        own = next((line.split(":", 2)[2] for line in Path("/proc/self/cgroup").read_text().splitlines()
                    if line.startswith("0::")), None)
        if mount is None or own is None:
            return
        self.home = Path(f"{mount}{own}")
        group = self.home / f"penstock-bench.{os.getpid()}"
        try:
            group.mkdir()
        except OSError:
            return
        try:
            (group / "cgroup.procs").write_text("0")
        except OSError:
            group.rmdir()
            return
        self.group = group

    @property
    def exact(self):
        return self.group is not None

    def used_s(self):
        """CPU seconds so far, without the harness itself."""
        if self.group:
            usage = dict(line.split() for line in (self.group / "cpu.stat").read_text().splitlines())
            return int(usage["usage_usec"]) / 1e6 - time.process_time()
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        return children.ru_utime + children.ru_stime + sum(tree_cpu_s(pid) for pid in self.servers)

    def close(self):
        """Leaves the group; what still runs in it must have been ended."""
        if not self.group:
            return
        (self.home / "cgroup.procs").write_text("0")
        for _ in range(100):  # a process that was killed stays in the group until it is gone
            try:
                self.group.rmdir()
                break
            except OSError:
                time.sleep(0.02)
        self.group = None


def tree_cpu_s(root):
    """CPU seconds of a process, its living descendants, and of those of them that were waited for."""
    parents, used = {}, {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            fields = Path("/proc", entry, "stat").read_text(errors="replace").rpartition(")")[2].split()
        except OSError:
            continue
        parents[int(entry)] = int(fields[1])
        used[int(entry)] = sum(map(int, fields[11:15])) * TICK_S
    total, level = 0.0, {root}
    while level:
        total += sum(used.get(pid, 0.0) for pid in level)
        level = {pid for pid, parent in parents.items() if parent in level}
    return total
