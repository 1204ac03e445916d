"""The columns: each a tool and the way in which it is run. A column knows its command line, its server, and
whether it has its data on stable storage when it ends."""
import json
import shutil
from pathlib import Path

from . import servers

PARALLEL = 4


class Column:
    """A tool. `data` limits the data sets that it can be measured with (None: all)."""

    syncs = False
    data = None
    server = None  # a function of servers.py

    def __init__(self, name, program):
        self.name = name
        self.program = str(program)

    def lacks(self, _job):
        """Why the column cannot be run here, or None."""
        return None if shutil.which(self.program) else f"{self.program} is not installed"

    def commands(self, job):
        """Command lines that together are one run; `job` has source, target, data, server, folder."""
        raise NotImplementedError

    def more(self, _job, _run):
        """Further measures of a run: {measure: (value, unit)}."""
        return {}


class Penstock(Column):
    """`penstock copy` from folder to folder: two agents of its own and streams over loopback."""

    syncs = True

    def __init__(self, name, program, *options):
        super().__init__(name, program)
        self.options = options

    def target(self, job):
        return [f"{job.target}/"]

    def commands(self, job):
        return [[self.program, "copy", "--quiet", "--state", f"{job.folder}/state", "--json", self.report(job),
                 *self.options, f"{job.source}/", *self.target(job)]]

    def report(self, job):
        return f"{job.folder}/report.json"

    def more(self, job, _run):
        shutil.rmtree(f"{job.folder}/state", ignore_errors=True)
        resident = json.loads(Path(self.report(job)).read_text(encoding="utf-8"))["resident_bytes"]
        return {"resident": (max(resident.values()) / 2**20, "MiB")}


class PenstockToAgent(Penstock):
    """The same to a running agent."""

    def __init__(self, name, program, *options):
        super().__init__(name, program, *options)
        self.server = servers.penstock_agent(self.program)

    def target(self, job):
        return ["--key", f"{job.folder}/key", f"penstock://127.0.0.1:{job.server.port}/"]


class PenstockMemory(Penstock):
    """`penstock bench` from memory to memory, digests and stamps looked at."""

    def commands(self, job):
        return [[self.program, "bench", "--quiet", "--json", "-", "--streams", str(job.streams), *self.options,
                 f"memory:{job.memory_bytes}", "memory:"]]


class Limit(Column):
    """The yardstick."""

    syncs = True

    def __init__(self, name, program, *options):
        super().__init__(name, program)
        self.options = options

    def commands(self, job):
        ends = [str(job.source), str(job.target)] if job.data else ["--memory", str(job.memory_bytes)]
        return [[self.program, *self.options, *ends]]


class Rsync(Column):
    """Whole files over loopback to a daemon, one process or several with a part of the names each."""

    def __init__(self, name, processes):
        super().__init__(name, "rsync")
        self.processes = processes
        self.server = servers.rsync_daemon
        self.data = None if processes == 1 else ("many", "small")

    def commands(self, job):
        whole = ["rsync", "-a", "-W", "--inplace"]
        ends = [f"{job.source}/", f"rsync://127.0.0.1:{job.server.port}/target/"]
        if self.processes == 1:
            return [[*whole, *ends]]
        lists = []
        for i, names in enumerate(job.data.lists(job.source, self.processes)):
            lists.append(Path(job.folder, f"names.{i}"))
            lists[-1].write_text("".join(f"{name}\n" for name in names), encoding="utf-8")
        return [[*whole, f"--files-from={names}", *ends] for names in lists]


class Cp(Column):
    """`cp -r`: no network, no digests."""

    def __init__(self):
        super().__init__("cp", "cp")

    def commands(self, job):
        return [["cp", "-r", f"{job.source}/.", str(job.target)]]


class GridFtp(Column):
    """GridFTP in clear: four TCP streams on one file, four files at a time with pipelining on many."""

    def __init__(self):
        super().__init__("gridftp", "globus-url-copy")
        self.server = servers.gridftp_server

    def lacks(self, job):
        return super().lacks(job) or closed_to_servers(job)

    def commands(self, job):
        where = f"ftp://127.0.0.1:{job.server.port}{job.target}/"
        if job.data.files == 1:
            (name,) = job.data.lists(job.source, 1)[0]
            return [["globus-url-copy", "-fast", "-p", str(PARALLEL), f"file://{job.source}/{name}", f"{where}{name}"]]
        return [["globus-url-copy", "-fast", "-cc", str(PARALLEL), "-pp", "-r", "-cd", f"file://{job.source}/", where]]


class Xrdcp(Column):
    """xrootd: four TCP streams on one file, four files at a time."""

    def __init__(self):
        super().__init__("xrdcp", "xrdcp")
        self.server = servers.xrootd_server

    def lacks(self, job):
        if not servers.as_root():
            return "only root can give xrootd a network of its own; it would listen on all addresses"
        return super().lacks(job) or closed_to_servers(job)

    def commands(self, job):
        many = ["--parallel", str(PARALLEL)] if job.data.files > 1 else ["--streams", str(PARALLEL)]
        sources = sorted(str(entry) for entry in Path(job.source).iterdir())
        recursive = ["--recursive"] if job.data.folders else []
        return [[*servers.network_of(job.server), "xrdcp", "--nopbar", "--silent", *many, *recursive, *sources,
                 f"root://127.0.0.1:{job.server.port}/{job.target}/"]]


class Rclone(Column):
    """rclone from folder to folder, with its checks."""

    def __init__(self):
        super().__init__("rclone", "rclone")

    def commands(self, job):
        return [["rclone", "copy", "--config", "/dev/null", "--transfers", str(PARALLEL), str(job.source),
                 str(job.target)]]


class Iperf(Column):
    """iperf3: bytes from memory over loopback, nothing is done with them."""

    def __init__(self):
        super().__init__("iperf3", "iperf3")
        self.server = servers.iperf_server

    def commands(self, job):
        return [["iperf3", "--client", "127.0.0.1", "--port", str(job.server.port), "--parallel", str(job.streams),
                 "--bytes", str(job.memory_bytes), "--length", "1M", "--json"]]


def closed_to_servers(job):
    """Servers of the grid do not run as root: the target must be in reach of the account that they get."""
    hidden = servers.hidden_from(servers.ACCOUNT, job.target) if servers.as_root() else None
    return f"{servers.ACCOUNT} cannot pass {hidden}; choose another DEST" if hidden else None
