"""What watching eight GPUs once a second costs: Roost's recorder beside nvitop's API, on the stand-in for NVML, in one run.

Ours: the process that reads the devices, which is what nvitop is to be compared with, and the recorder as it runs on a host: a job with
its supervisor, the worker (host, mounts, jobs, diagnoses, rings on the disk) and that process. Peer: nvitop 1.7.2, installed for the run into a scratch environment, in the two ways in which its
manual lets a program watch devices: `Device.as_snapshot()` of every device each second, and `ResourceMetricCollector` (devices, host
and its own process, averaged). all-smi has no Python package and is not measured. Everything runs at the same time, so that
a neighbour's load meets all of them, for `python bench/telemetry.py [SECONDS]` (default 60) after a settling time. CPU is user and
system time of the processes from /proc, memory their unique set size. The stand-in answers at once: a real driver adds its own time
to each call, and whoever calls less gains more.
"""

import os
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path
from typing import NamedTuple

import psutil

from console.embedded import nvml_standin
from remote.jobs.store import JobStore
from remote.protocol.jobs import Running
from remote.protocol.specs import RecorderSpec

REPOSITORY = Path(__file__).resolve().parents[1]
PEER = "nvitop==1.7.2"
SETTLE_S = 15.0

SNAPSHOTS = """
import time
from nvitop import Device
devices = Device.all()
assert len(devices) == 8, devices
due = time.monotonic()
while True:
    for device in devices:
        device.as_snapshot()
    due = max(due + 1.0, time.monotonic())
    time.sleep(due - time.monotonic())
"""

COLLECTOR = """
import time
from nvitop import Device, ResourceMetricCollector
devices = Device.all()
assert len(devices) == 8, devices
collector = ResourceMetricCollector(devices, interval=1.0)
collector.activate("watch")
due = time.monotonic()
while True:
    collector.collect()
    due = max(due + 1.0, time.monotonic())
    time.sleep(due - time.monotonic())
"""


class Cost(NamedTuple):
    """CPU seconds so far and unique memory in bytes of a few processes."""

    cpu_s: float
    memory_bytes: int


def cost(processes: list[psutil.Process]) -> Cost:
    """What `processes` have used."""
    times = [process.cpu_times() for process in processes]
    return Cost(
        sum(one.user + one.system for one in times),
        sum(process.memory_full_info().uss for process in processes),
    )


def start_peer(python: Path, program: str, environment: dict[str, str]) -> subprocess.Popen[bytes]:
    """One of nvitop's ways, in a process of its own."""
    return subprocess.Popen([str(python), "-c", program], env={**os.environ, **environment})


def install_peer(directory: Path) -> Path:
    """The Python of a new environment with nvitop."""
    venv.create(directory, with_pip=True)
    python = directory / "bin/python"
    subprocess.run([str(python), "-m", "pip", "install", "--quiet", PEER], check=True)
    return python


def recorder_processes(store: JobStore) -> list[psutil.Process]:
    """The recorder with everything that it started, and its supervisor."""
    deadline = time.monotonic() + 30
    while True:
        state = store.get("recorder").state
        if isinstance(state, Running):
            worker = psutil.Process(state.pid)
            found = [worker, *worker.children(recursive=True)]
            if len(found) > 1:
                supervisor = worker.parent()
                return [*([] if supervisor is None else [supervisor]), *found]
        if time.monotonic() > deadline:
            raise SystemExit(f"the recorder does not run: {state}")
        time.sleep(0.1)


def reader_of(recorder: list[psutil.Process]) -> psutil.Process:
    """The process that asks the driver."""
    return next(process for process in recorder if "remote.telemetry.nvml_reader" in process.cmdline())


def main(seconds: float) -> None:
    """Print the cost of each and the ratios."""
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch)
        python = install_peer(place / "peer")
        scenario = place / "scenario.txt"
        scenario.write_text(nvml_standin.scenario_text("healthy"), encoding="utf-8")
        library = nvml_standin.build(place / "nvml")
        environment = nvml_standin.environment(library, scenario)
        os.environ |= environment
        store = JobStore(place / "root", REPOSITORY, sys.executable)
        store.start("recorder", RecorderSpec(idle_exit_s=seconds + 600), actor="bench", op_id="recorder")
        recorder = recorder_processes(store)
        peers = [start_peer(python, program, environment) for program in (SNAPSHOTS, COLLECTOR)]
        try:
            measured = [[reader_of(recorder)], recorder, *([psutil.Process(peer.pid)] for peer in peers)]
            time.sleep(SETTLE_S)
            began, before = time.monotonic(), [cost(processes) for processes in measured]
            time.sleep(seconds)
            took, after = time.monotonic() - began, [cost(processes) for processes in measured]
        finally:
            for peer in peers:
                peer.kill()
            store.stop("recorder", actor="bench", op_id="measured", reason="measured")
            psutil.wait_procs(recorder)
    report(took, [(now.cpu_s - then.cpu_s) / took for now, then in zip(after, before, strict=True)], after)


def report(seconds: float, shares: list[float], costs: list[Cost]) -> None:
    """One line for each, with its multiple of what our reading of the devices takes."""
    names = (
        "Roost, reading the devices",
        "Roost, the whole recorder",
        f"{PEER}, as_snapshot",
        f"{PEER}, ResourceMetricCollector",
    )
    print(f"8 devices at 1 Hz for {seconds:.0f} s, on the stand-in for NVML")
    print(f"{'':38}{'of a core':>10}{'ratio':>8}{'memory':>10}{'ratio':>8}")
    for name, share, used in zip(names, shares, costs, strict=True):
        times, larger = share / shares[0], used.memory_bytes / costs[0].memory_bytes
        print(f"{name:38}{share:>10.2%}{times:>7.1f}x{used.memory_bytes / 2**20:>6.0f} MiB{larger:>7.1f}x")


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 60.0)
