"""A real link process at the other end of two pipes, and jobs of trivial work for it to show."""

import array
import fcntl
import os
import queue
import shutil
import signal
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from remote.jobs import process
from remote.jobs.launch import LaunchPlan
from remote.jobs.store import JobStore
from remote.protocol.codec import READY_MARKER, decode_host_frame
from remote.protocol.frames import Answer, Call, Failure, Heartbeat, HostFrame
from remote.protocol.jobs import Job
from remote.protocol.requests import Hello, Request
from remote.protocol.specs import MappingCopySpec, Spec
from tests.nvml_standin.gpu_shop import gpu_shop
from tests.nvml_standin.nvml_standin import nvml_library, nvml_standin

__all__ = ["gpu_shop", "nvml_library", "nvml_standin"]

RELEASE = Path(__file__).resolve().parents[2]
PATIENCE_S = 30.0


class Console:
    """Speaks the protocol over the pipes of `python -m remote link`."""

    def __init__(self, root: Path) -> None:
        command = [sys.executable, "-m", "remote", "link", "--root", str(root), "--actor", "nobody"]
        self.process = subprocess.Popen(
            command, cwd=RELEASE, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        self.frames: queue.Queue[HostFrame | None] = queue.Queue()
        self.lines_taken = threading.Event()
        self.lines_taken.set()
        self._numbers = 0
        assert self.process.stdout.readline() == READY_MARKER + b"\n"
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for line in self.process.stdout:
            if not line.endswith(b"\n"):
                break
            self.frames.put(decode_host_frame(line))
            self.lines_taken.wait()
        self.frames.put(None)

    def say(self, request: Request) -> int:
        self._numbers += 1
        self.say_raw(msgspec.json.encode(Call(call_id=self._numbers, request=request)) + b"\n")
        return self._numbers

    def say_raw(self, data: bytes) -> None:
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def hear(self, wanted: Callable[[HostFrame], bool]) -> Any:
        """The next frame that is wanted; the others before it are dropped."""
        while True:
            frame = self.frames.get(timeout=PATIENCE_S)
            assert frame is not None, f"the link hung up: {self.process.stderr.read().decode()}"
            if wanted(frame):
                return frame

    def ask(self, request: Request) -> Any:
        number = self.say(request)
        frame = self.hear(lambda frame: isinstance(frame, Answer | Failure) and frame.call_id == number)
        return frame.reply if isinstance(frame, Answer) else frame.error

    def greet(self, actor: str = "ann") -> Any:
        return self.ask(Hello(protocol=1, actor=actor))

    def wait_until_the_pipe_is_full(self) -> None:
        """Bytes that wait in the pipe; a pipe of this system holds 64 KiB, and the last line may not fit."""
        waiting = array.array("i", [0])
        deadline = time.monotonic() + PATIENCE_S
        while waiting[0] < 60 << 10:
            assert time.monotonic() < deadline, f"only {waiting[0]} bytes wait in the pipe"
            fcntl.ioctl(self.process.stdout.fileno(), termios.FIONREAD, waiting)

    def rest(self) -> list[HostFrame]:
        """What still comes until the link hangs up, heartbeats aside."""
        frames = list(iter(lambda: self.frames.get(timeout=PATIENCE_S), None))
        return [frame for frame in frames if not isinstance(frame, Heartbeat)]

    def close(self) -> None:
        self.lines_taken.set()
        if not self.process.stdin.closed:
            self.process.stdin.close()
        try:
            self.process.wait(PATIENCE_S)
        finally:
            self.process.kill()
            self.process.wait()
            self.process.stderr.close()


def plan_program(spec: Spec) -> LaunchPlan:
    assert isinstance(spec, MappingCopySpec)
    return LaunchPlan(
        agent=Path(spec.destination).name, argv=[sys.executable, "-S", "-c", spec.source], stop_grace_s=5.0
    )


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "root"


@pytest.fixture
def store(root: Path) -> Iterator[JobStore]:
    store = JobStore(root, RELEASE, sys.executable, plan=plan_program)
    yield store
    mark = os.fsencode(root)
    for found in process.every_process():
        try:
            environment = Path(f"/proc/{found.pid}/environ").read_bytes()
            command = Path(f"/proc/{found.pid}/cmdline").read_bytes()
        except OSError:
            continue
        if mark in environment + command:
            process.send_signal(found, signal.SIGKILL)
    shutil.rmtree(store._locks)


@pytest.fixture
def start(store: JobStore) -> Callable[..., Job]:
    def start(job_id: str, program: str, agent: str = "mapping_copy") -> Job:
        spec = MappingCopySpec(source=program, destination=f"/nowhere/{agent}")
        return store.start(job_id, spec, actor="ann", op_id=f"start-{job_id}")

    return start


@pytest.fixture
def open_console(root: Path, store: JobStore) -> Iterator[Callable[[], Console]]:
    consoles: list[Console] = []

    def open_one() -> Console:
        consoles.append(Console(root))
        return consoles[-1]

    yield open_one
    for console in consoles:
        console.close()


@pytest.fixture
def console(open_console: Callable[[], Console]) -> Console:
    console = open_console()
    console.greet()
    return console
