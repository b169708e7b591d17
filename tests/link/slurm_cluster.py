"""A real Slurm of one node on loopback: munged, slurmctld and slurmd with a configuration of the test's own."""

import getpass
import os
import secrets
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

_PATH = "/usr/sbin:/usr/bin:/usr/local/sbin:/usr/local/bin"
_PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "squeue")
_START_TIMEOUT_S = 60.0


class SlurmCluster:
    """The daemons, and the queue as an administrator sees it. `environment` is what the login host's shells need to find it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.node = socket.gethostname().partition(".")[0]
        self.environment = {"SLURM_CONF": str(directory / "slurm.conf")}
        self._daemons: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        """Start the daemons and wait until the node takes jobs."""
        directory = self.directory
        for name in ("munge", "state", "spool"):
            (directory / name).mkdir(mode=0o700)
        key = directory / "munge.key"
        key.touch(mode=0o600)
        key.write_bytes(secrets.token_bytes(128))
        (directory / "slurm.conf").write_text(self._configuration())
        munge = ["munged", "--foreground", "--force", f"--socket={directory}/munge/s", f"--key-file={key}"]
        self._run([*munge, *(f"--{kind}-file={directory}/munge/{kind}" for kind in ("pid", "log", "seed"))])
        self.until((directory / "munge/s").exists)
        self._run(["slurmctld", "-D", "-c"])
        self._run(["slurmd", "-D"])
        self.until(lambda: self.ask("sinfo", "--noheader", "--format=%T").strip() in ("idle", "allocated", "mixed"))

    def stop(self) -> None:
        """Take every job out of the queue and end the daemons."""
        self.ask("scancel", f"--user={getpass.getuser()}")
        self.until(lambda: not self.ask("squeue", "--noheader").strip())
        for daemon in reversed(self._daemons):
            daemon.terminate()
            daemon.wait()

    def ask(self, *command: str) -> str:
        """What a command of Slurm prints."""
        done = subprocess.run(
            command, env={**os.environ, **self.environment}, capture_output=True, text=True, check=False
        )
        return done.stdout

    def hold(self) -> None:
        """Let nothing start on the node until `release`."""
        self.ask("scontrol", "update", f"NodeName={self.node}", "State=DRAIN", "Reason=held")

    def release(self) -> None:
        """Let the queue go on."""
        self.ask("scontrol", "update", f"NodeName={self.node}", "State=RESUME")

    def _run(self, command: list[str]) -> None:
        log = (self.directory / f"{command[0]}.log").open("ab")
        environment = {**os.environ, **self.environment}
        self._daemons.append(subprocess.Popen(command, stdout=log, stderr=log, env=environment))

    def until(self, holds: Callable[[], bool]) -> None:
        """Wait for it; fails with the daemons' logs when one has ended or a minute is over."""
        deadline = time.monotonic() + _START_TIMEOUT_S
        while not holds():
            ended = [daemon.args for daemon in self._daemons if daemon.poll() is not None]
            if ended or time.monotonic() > deadline:
                logs = "\n".join(path.read_text()[-2000:] for path in self.directory.glob("*.log"))
                raise AssertionError(f"Slurm does not run ({ended}): {logs}")
            time.sleep(0.1)

    def _configuration(self) -> str:
        directory = self.directory
        settings = {
            "ClusterName": "test",
            "SlurmctldHost": f"{self.node}(127.0.0.1)",
            "SlurmctldPort": _free_port(),
            "SlurmdPort": _free_port(),
            "SlurmUser": getpass.getuser(),
            "SlurmdUser": getpass.getuser(),
            "AuthType": "auth/munge",
            "AuthInfo": f"socket={directory}/munge/s",
            "StateSaveLocation": directory / "state",
            "SlurmdSpoolDir": directory / "spool",
            "SlurmctldPidFile": directory / "slurmctld.pid",
            "SlurmdPidFile": directory / "slurmd.pid",
            "ProctrackType": "proctrack/linuxproc",
            "TaskPlugin": "task/none",
            "SelectType": "select/cons_tres",
            "MpiDefault": "none",
            "ReturnToService": 2,
            "KillWait": 10,
        }
        lines = [f"{name}={value}" for name, value in settings.items()]
        lines += [f"NodeName={self.node} NodeAddr=127.0.0.1 CPUs={os.cpu_count()} State=UNKNOWN"]
        lines += [f"PartitionName=main Nodes={self.node} Default=YES MaxTime=INFINITE State=UP"]
        return "\n".join(lines) + "\n"


@pytest.fixture
def slurm(tmp_path: Path) -> Iterator[SlurmCluster]:
    """A running cluster."""
    missing = [name for name in _PROGRAMS if shutil.which(name, path=_PATH) is None]
    if missing or os.getuid() != 0:
        pytest.skip("a Slurm of one's own needs root and Debian's slurm-wlm and munge")
    directory = tmp_path / "slurm"
    directory.mkdir()
    cluster = SlurmCluster(directory)
    cluster.start()
    yield cluster
    cluster.stop()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
