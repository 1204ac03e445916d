"""Servers of the peers, and agents: on loopback addresses and free ports, ended by their own process id."""
import os
import pwd
import re
import signal
import socket
import subprocess
import time
from pathlib import Path

START_S = 15
STOP_S = 5
POLL_S = 0.02
ACCOUNT = "nobody"  # what servers that refuse root run as
LISTENING = re.compile(r"listening on \S*:(\d+)")


class ServerError(Exception):
    """A server that does not start; the text says why."""


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def as_root():
    return os.geteuid() == 0


def hidden_from(account, path):
    """The folder on the way to `path` that this account may not pass, or None."""
    owner = pwd.getpwnam(account)
    for folder in [*reversed(Path(path).resolve().parents), Path(path).resolve()]:
        entry = folder.stat()
        mine = entry.st_mode & (0o100 if entry.st_uid == owner.pw_uid else 0o010 if entry.st_gid == owner.pw_gid
                                else 0o001)
        if not mine:
            return folder
    return None


class Server:
    """A process that serves until it is stopped. `port` is where."""

    def __init__(self, meter, argv, folder, port=None):
        self.meter = meter
        self.log = Path(folder, "server.log")
        self.port = port
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/",
                                            start_new_session=True)
        meter.servers.add(self.process.pid)

    def await_(self, ready, what):
        """Waits until `ready()` is true."""
        deadline = time.monotonic() + START_S
        while not ready():
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                raise ServerError(f"{what} does not start: {' '.join(self.said().split())[-300:]}")
            time.sleep(POLL_S)
        return self

    def said(self):
        return self.log.read_text(errors="replace")

    def accepts(self):
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
        except OSError:
            return False
        return True

    def told_port(self):
        """For servers that choose a port themselves and say so."""
        found = LISTENING.search(self.said())
        self.port = int(found[1]) if found else None
        return bool(found)

    def stop(self):
        """Ends the server and the processes of its session."""
        self.meter.servers.discard(self.process.pid)
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGTERM)
            try:
                self.process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait()


def rsync_daemon(meter, folder, target):
    port = free_port()
    config = Path(folder, "rsyncd.conf")
    account = "uid = root\ngid = root\n" if as_root() else ""
    config.write_text(f"use chroot = no\nreverse lookup = no\n{account}[target]\npath = {target}\nread only = no\n")
    argv = ["rsync", "--daemon", "--no-detach", "--address=127.0.0.1", f"--port={port}", f"--config={config}",
            f"--log-file={folder}/rsyncd.log"]
    server = Server(meter, argv, folder, port)
    return server.await_(server.accepts, "rsync --daemon")


def gridftp_server(meter, folder, _target):
    port = free_port()
    account = ["-anonymous-user", ACCOUNT] if as_root() else []
    argv = ["globus-gridftp-server", "-aa", *account, "-control-interface", "127.0.0.1", "-data-interface",
            "127.0.0.1", "-p", str(port), "-l", f"{folder}/gridftp.log", "-no-chdir"]
    server = Server(meter, argv, folder, port)
    return server.await_(server.accepts, "globus-gridftp-server")


def xrootd_server(meter, folder, target):
    """xrootd listens on all addresses and cannot be told otherwise: it gets a network of its own, with nothing but
    loopback, which only root can make. The client enters it: see `network_of`."""
    own = Path(folder, "xrootd")
    own.mkdir(exist_ok=True)
    owner = pwd.getpwnam(ACCOUNT)
    os.chown(own, owner.pw_uid, owner.pw_gid)
    port = free_port()
    config = own / "xrootd.cf"
    config.write_text(f"all.export {target}\nall.adminpath {own}\nall.pidpath {own}\nxrd.port {port}\n")
    argv = ["unshare", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh", "xrootd", "-R", ACCOUNT, "-c",
            str(config), "-l", f"{own}/log", "-I", "v4"]
    server = Server(meter, argv, folder, port)
    inside = [*network_of(server), "sh", "-c", f"ss -Hltn | grep -q ':{port} '"]
    return server.await_(lambda: subprocess.run(inside, check=False).returncode == 0, "xrootd")


def network_of(server):
    """The words before a command that is to run in the server's network."""
    return ["nsenter", f"--net=/proc/{server.process.pid}/ns/net"]


def iperf_server(meter, folder, _target):
    port = free_port()
    argv = ["iperf3", "--server", "--bind", "127.0.0.1", "--port", str(port), "--forceflush"]
    server = Server(meter, argv, folder, port)  # a connection to see whether it listens would be a test to it
    return server.await_(lambda: "listening" in server.said(), "iperf3 --server")


def penstock_agent(penstock):
    def start(meter, folder, target):
        key = Path(folder, "key")
        if not key.exists():
            subprocess.run([penstock, "key", key], check=True, stdout=subprocess.DEVNULL)
        argv = [penstock, "serve", "--root", str(target), "--listen", "127.0.0.1:0", "--key", str(key)]
        server = Server(meter, argv, folder)
        return server.await_(server.told_port, "penstock serve")
    return start
