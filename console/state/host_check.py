"""What a look at a host found, and what it means for Roost; pure."""

from typing import Literal

import msgspec

from console.state.units import format_bytes

REQUIRED = ("msgspec", "psutil", "numpy", "nvidia-ml-py", "prometheus-client")
"""The distributions that the host side imports."""

USEFUL = ("torch", "transformers", "sglang", "vllm")
"""What training and serving need; it may live in an environment of its own."""

OLDEST_PYTHON = (3, 10)
_ROOM_BYTES = 10 << 30
_ROOM_INODES = 100_000
_OPEN_FILES = 4096
_SHM_BYTES = 1 << 30
_CLOCK_S = 5.0

_ABILITIES = {
    "durable_writes": "fsync does not work there: what is finished could be gone after a crash",
    "locks": "files cannot be locked there",
    "write_once": "hard links do not work there, and a job's records are made with them",
    "rename_without_replacing": "renaming cannot refuse to replace there; Roost looks first instead, which is less safe",
    "holes": "the file system cannot punch holes: logs grow without a bound",
}
_VITAL = ("durable_writes", "write_once")


class Interpreter(msgspec.Struct, frozen=True, kw_only=True):
    """A Python on the host; `packages` maps each distribution to its version or None."""

    path: str
    version: str | None
    packages: dict[str, str | None]
    error: str | None

    def lacks(self) -> list[str]:
        """What keeps it from running the host side; empty when nothing does."""
        if self.version is None:
            return ["it does not run"]
        old = tuple(int(part) for part in self.version.split(".")[:2]) < OLDEST_PYTHON
        missing = [name for name in REQUIRED if self.packages.get(name) is None]
        return [*(["Python 3.10 or newer"] if old else []), *missing]


class RootFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The directory where Roost lives and its file system; `abilities` as tried with small files."""

    path: str
    exists: bool
    file_system: str
    free_bytes: int
    free_inodes: int | None
    noexec: bool
    error: str | None
    abilities: dict[str, bool]


class MachineFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The machine; `clock` in seconds since the epoch by its own clock."""

    system: str
    cores: int
    memory_bytes: int
    shm_bytes: int | None
    gpus: int
    gpu_driver: str | None
    open_files_limit: int
    container: bool
    clock: float


class ProbeReport(msgspec.Struct, frozen=True, kw_only=True):
    """What the probe says on the host."""

    machine: MachineFacts
    root: RootFacts
    pythons: list[Interpreter]
    python_here: str


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing to know: `error` keeps Roost from running there."""

    level: Literal["error", "warning"]
    text: str
    hint: str | None = None


class HostCheck(msgspec.Struct, frozen=True, kw_only=True):
    """The whole answer of `roost hosts check`; `python` is the interpreter that Roost takes, None when there is none."""

    host: str
    login: str
    latency_s: float
    clock_offset_s: float
    probe: ProbeReport
    python: str | None
    findings: list[Finding]

    @property
    def usable(self) -> bool:
        """Whether Roost can run there as it is."""
        return not any(finding.level == "error" for finding in self.findings)


def judge(host: str, login: str, latency_s: float, clock_offset_s: float, probe: ProbeReport) -> HostCheck:
    """The check with what it means, errors first."""
    chosen = next((python.path for python in probe.pythons if not python.lacks()), None)
    findings = [*_python_findings(host, chosen), *_root_findings(probe.root), *_machine_findings(probe.machine)]
    if abs(clock_offset_s) > _CLOCK_S:
        text = f"its clock differs from this computer's by {clock_offset_s:+.0f} s"
        findings.append(Finding(level="warning", text=text, hint="times of jobs are the host's"))
    return HostCheck(
        host=host,
        login=login,
        latency_s=latency_s,
        clock_offset_s=clock_offset_s,
        probe=probe,
        python=chosen,
        findings=sorted(findings, key=lambda finding: finding.level != "error"),
    )


def _python_findings(host: str, chosen: str | None) -> list[Finding]:
    if chosen is not None:
        return []
    hint = f"roost hosts prepare {host} makes an environment of its own for Roost"
    return [Finding(level="error", text="no Python there has what the host side needs", hint=hint)]


def _root_findings(root: RootFacts) -> list[Finding]:
    if root.error is not None:
        hint = "name another `root` of the host in roost.toml"
        return [Finding(level="error", text=f"nothing can be written below {root.path}: {root.error}", hint=hint)]
    found = [
        Finding(level="error" if name in _VITAL else "warning", text=f"{root.path}: {_ABILITIES[name]}")
        for name, works in root.abilities.items()
        if not works
    ]
    if root.free_bytes < _ROOM_BYTES:
        text = f"{root.path}: only {format_bytes(root.free_bytes)} are free"
        found.append(Finding(level="warning", text=text, hint="hidden states need hundreds of GiB"))
    if root.free_inodes is not None and root.free_inodes < _ROOM_INODES:
        found.append(Finding(level="warning", text=f"{root.path}: only {root.free_inodes} inodes are free"))
    return found


def _machine_findings(machine: MachineFacts) -> list[Finding]:
    found: list[Finding] = []
    if machine.gpus and machine.gpu_driver is None:
        found.append(Finding(level="warning", text="there are NVIDIA devices but the driver does not say its version"))
    if machine.open_files_limit < _OPEN_FILES:
        text = f"a process may open only {machine.open_files_limit} files"
        found.append(Finding(level="warning", text=text, hint="raise `ulimit -n` to 65536"))
    if machine.shm_bytes is not None and machine.gpus > 1 and machine.shm_bytes < _SHM_BYTES:
        text = f"shared memory is only {format_bytes(machine.shm_bytes)}, and NCCL needs it between devices"
        found.append(Finding(level="warning", text=text, hint="start the container with --shm-size=16g or --ipc=host"))
    return found
