"""What an open screen costs: Roost's on a host with eight devices, beside nvitop's on the same devices, in one run.

`python bench/screen.py [SECONDS]` (default 30 for each of three states). The real screen in a terminal of 120 x 35 cells, over SSH to
a host of its own whose devices the stand-in for NVML plays: nothing there, a job on all devices at 1 Hz, and 1,000 lines a second in
that job's log. CPU is user and system time of the screen's process, and what it writes to the terminal is counted as it comes out.
The host's side (link, recorder) is measured in `bench/telemetry.py`. Peer: nvitop 1.7.2's own screen at 1 Hz, in a terminal of the
same size beside it; it shows devices and processes of its own machine, no jobs and no logs.
"""

import asyncio
import contextlib
import fcntl
import os
import pty
import subprocess
import sys
import tempfile
import termios
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from struct import pack
from typing import NamedTuple

import psutil

from bench.telemetry import PEER, install_peer
from console import operations
from console.embedded import lifecycle, nvml_standin
from console.embedded.locations import EmbeddedHome
from console.link.client import HostLink
from console.ui.app import RoostApp
from console.ui.session import ACTOR, LiveSession
from remote.protocol.ids import new_job_id, new_op_id
from remote.protocol.requests import StartJob
from remote.protocol.specs import ExerciseSpec

ROWS, COLUMNS = 35, 120
SETTLE_S = 10.0
LINES_PER_S = 1000
_BATCHES_PER_S = 20
SCREEN = "--screen"


class Terminal:
    """A program in a terminal of its own; everything that it draws is read, and counted."""

    def __init__(self, command: list[str], environment: dict[str, str]) -> None:
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, pack("HHHH", ROWS, COLUMNS, 0, 0))
        named = {**os.environ, **environment, "TERM": "xterm-256color", "COLORTERM": "truecolor"}
        self.program = subprocess.Popen(
            command, stdin=theirs, stdout=theirs, stderr=theirs, env=named, start_new_session=True
        )
        os.close(theirs)
        self.drawn_bytes = 0
        self._terminal = ours
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        with contextlib.suppress(OSError):  # the terminal goes with its program
            while block := os.read(self._terminal, 1 << 16):
                self.drawn_bytes += len(block)

    def used(self) -> "Use":
        """What it has used so far; raises SystemExit for one that has ended."""
        if self.program.poll() is not None:
            raise SystemExit(f"{self.program.args} ended with {self.program.returncode}")
        times = psutil.Process(self.program.pid).cpu_times()
        return Use(times.user + times.system, self.drawn_bytes, time.monotonic())


class Use(NamedTuple):
    """CPU seconds and bytes drawn, at a moment."""

    cpu_s: float
    drawn_bytes: int
    at: float

    def since(self, before: "Use") -> str:
        """Means over the time between."""
        took = self.at - before.at
        share, rate = (self.cpu_s - before.cpu_s) / took, (self.drawn_bytes - before.drawn_bytes) / took
        return f"{share:>10.2%}{rate / 1000:>9.1f} kB/s"


def embedded(directory: Path) -> EmbeddedHome:
    """A host that runs under this interpreter."""
    return EmbeddedHome(directory=directory, engine_python=Path(sys.executable), environment=played(directory))


def played(directory: Path) -> dict[str, str]:
    """The environment in which the stand-in plays the host's scenario."""
    return nvml_standin.environment(directory.parent / "nvml" / nvml_standin.LIBRARY, directory / "scenario.txt")


def play(directory: Path, scenario: str) -> None:
    """Let the host's devices be those of a scenario from now on."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "new.txt").write_text(nvml_standin.scenario_text(scenario), encoding="utf-8")
    (directory / "new.txt").replace(directory / "scenario.txt")


def show(directory: Path) -> None:
    """The screen itself, in the process that is measured."""

    @asynccontextmanager
    async def connect() -> AsyncIterator[LiveSession]:
        async with HostLink(await lifecycle.ensure_running(embedded(directory)), actor=ACTOR) as session:
            yield LiveSession(session)

    RoostApp(operations.EMBEDDED, connect).run()


async def start_work(home: EmbeddedHome) -> Path:
    """A job on all devices; the file of its log."""
    job_id = new_job_id("exercise")
    async with HostLink(await lifecycle.ensure_running(home), actor=ACTOR) as link:
        spec = ExerciseSpec(gpus=8, steps=100_000, step_s=1.0)
        await link.call(StartJob(job_id=job_id, spec=spec, op_id=new_op_id()), timeout_s=60.0)
    return home.root / "jobs" / job_id / "out.log"


@contextmanager
def writing(log: Path) -> Iterator[None]:
    """Append to a job's log as its work would, `LINES_PER_S` lines a second."""
    over = threading.Event()

    def write() -> None:
        number = 0
        with log.open("ab", buffering=0) as file:
            while not over.wait(1 / _BATCHES_PER_S):
                lines = range(number, number + LINES_PER_S // _BATCHES_PER_S)
                file.write(b"".join(b"INFO step %d of a long job: loss 2.345, 41200 tok/s\n" % line for line in lines))
                number = lines.stop

    writer = threading.Thread(target=write)
    writer.start()
    try:
        yield
    finally:
        over.set()
        writer.join()


def measure(terminal: Terminal, seconds: float) -> str:
    """CPU and bytes a second, after a settling time."""
    time.sleep(SETTLE_S)
    before = terminal.used()
    time.sleep(seconds)
    return terminal.used().since(before)


def main(seconds: float) -> None:
    """Print the cost of each state."""
    with tempfile.TemporaryDirectory() as scratch:
        os.environ |= dict.fromkeys(("XDG_DATA_HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME"), scratch)
        place = Path(scratch)
        python = install_peer(place / "peer")
        nvml_standin.build(place / "nvml")
        home = embedded(place / "host")
        play(home.directory, "healthy")
        asyncio.run(lifecycle.ensure_running(home))
        ours = Terminal([sys.executable, "-m", "bench.screen", SCREEN, str(home.directory)], {})
        peer: Terminal | None = None
        try:
            print(f"{COLUMNS} x {ROWS} cells, {seconds:.0f} s each{'':24}of a core   to the terminal")
            print(f"{'Roost, 8 idle devices at 1 Hz':50}{measure(ours, seconds)}")
            log = asyncio.run(start_work(home))
            play(home.directory, "training")
            peer = Terminal([str(python), "-m", "nvitop", "-m", "full", "--interval", "1"], played(home.directory))
            print(f"{'Roost, 8 devices at work and their job':50}{measure(ours, seconds)}")
            before = peer.used()
            with writing(log):
                print(f"{f'Roost, the same with {LINES_PER_S} log lines a second':50}{measure(ours, seconds)}")
            print(f"{f'{PEER}, the same 8 devices at 1 Hz':50}{peer.used().since(before)}")
        finally:
            for terminal in (ours, peer):
                if terminal is not None:
                    terminal.program.kill()
            asyncio.run(lifecycle.stop(home))
            for process in psutil.process_iter(["cmdline"]):
                if any(scratch in word for word in process.info["cmdline"] or ()):
                    process.kill()


if __name__ == "__main__":
    if sys.argv[1:2] == [SCREEN]:
        show(Path(sys.argv[2]))
    else:
        main(float(sys.argv[1]) if len(sys.argv) > 1 else 30.0)
