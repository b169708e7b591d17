"""The devices as a process of their own reads them: started, heard, and replaced when it dies or falls silent."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec
from msgspec.structs import replace

from remote.protocol.telemetry import GpuEvent, GpuSample, GpuTopology
from remote.telemetry.gpu_reading import GpuReading, ReaderReport, ReaderSettings, not_answering

_RELEASE = Path(__file__).resolve().parents[2]
_SILENT_S = 5.0
_FIRST_WORD_S = 60.0
"""A driver that no process keeps loaded takes seconds for each device to wake."""

_LONGEST_PAUSE_S = 60.0
_STEADY_S = 60.0
_MOST_LEFT = 3
"""Processes that do not die of SIGKILL, for they are stuck in the driver."""

_SAME_EVENT_S = 2.0
_BLOCK_BYTES = 1 << 16


class _Child:
    """One process that asks NVML."""

    def __init__(self, command: list[str], settings: ReaderSettings, started_at: float) -> None:
        self.started_at = started_at
        self.heard_at: float | None = None
        self._rest = b""
        self._process = subprocess.Popen(
            [*command, msgspec.json.encode(settings).decode()],
            env={**os.environ, "PYTHONPATH": str(_RELEASE)},
            cwd="/",
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self._process.stdout is not None, "it is a pipe"
        self._out = self._process.stdout.fileno()
        os.set_blocking(self._out, False)

    @property
    def pid(self) -> int:
        return self._process.pid

    def lines(self, now: float) -> list[bytes]:
        """The whole lines that it has written since the last call."""
        blocks = [self._rest]
        with contextlib.suppress(BlockingIOError):
            while block := os.read(self._out, _BLOCK_BYTES):
                blocks.append(block)
        *lines, self._rest = b"".join(blocks).split(b"\n")
        if lines:
            self.heard_at = now
        return lines

    def exit_code(self) -> int | None:
        """What it ended with; None while it lives."""
        return self._process.poll()

    def kill(self) -> None:
        """End it; one that is stuck in the driver goes on."""
        self._process.kill()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()


class GpuWatch:
    """Keeps one process at reading the devices; not for several threads. Nothing here waits for the driver.

    `known` are devices of an earlier reading: one that is lost does not tell its name any more.
    """

    def __init__(
        self,
        settings: ReaderSettings | None = None,
        *,
        command: tuple[str, ...] = (sys.executable, "-m", "remote.telemetry.nvml_reader"),
        known: Iterable[GpuSample] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings or ReaderSettings()
        self._command = list(command)
        self._clock = clock
        self._decoder = msgspec.json.Decoder(ReaderReport)
        self._child: _Child | None = None
        self._left: list[_Child] = []
        self._report: ReaderReport | None = None
        self._topology: GpuTopology | None = None
        self._known = {gpu.gpu_index: gpu for gpu in known if gpu.uuid}
        self._events: list[GpuEvent] = []
        self._told: dict[tuple[int | None, int | str], float] = {}
        self._started_at = self._heard_at = clock()
        self._pause_s = 1.0
        self._next_start_at = float("-inf")
        self._death: tuple[float, str] | None = None

    def start(self) -> None:
        """Begin to read; the first reading comes within a second, where the driver answers at once."""
        if self._child is None and not self._left:
            self._started_at = self._heard_at = self._clock()
            self._begin()

    def reading(self) -> GpuReading:
        """The newest reading and the events since the last call; never blocks."""
        self._hear()
        self._tend()
        events, self._events = self._events, []
        now = self._clock()
        silent_s = now - self._heard_at
        if silent_s > _SILENT_S:
            sentence = f"the NVIDIA driver has not answered for {silent_s:.0f} s"
            gpus = [] if self._report is None else [not_answering(gpu, sentence) for gpu in self._report.gpus]
            return GpuReading("error", self._with_death(sentence, now), gpus, events)
        if self._report is None:
            return GpuReading("none", self._with_death("no reading yet", now), [], events)
        return GpuReading(self._report.source, self._with_death(self._report.detail, now), self._report.gpus, events)

    def has_answered(self) -> bool:
        """Whether there has been a reading."""
        self._hear()
        return self._report is not None

    def topology(self) -> GpuTopology | None:
        """How the devices are connected, None until it is known."""
        return self._topology

    @property
    def pid(self) -> int | None:
        """The process that reads now."""
        return None if self._child is None else self._child.pid

    def close(self) -> None:
        """End the process."""
        if self._child is not None:
            self._child.kill()
            self._left.append(self._child)
            self._child = None
        self._next_start_at = float("inf")
        for child in self._left:
            child.exit_code()

    def _begin(self) -> None:
        try:
            self._child = _Child(self._command, self._settings, self._clock())
        except OSError as error:
            self._mourn(f"the process that reads NVML could not be started: {error}")

    def _hear(self) -> None:
        if self._child is None:
            return
        for line in self._child.lines(self._clock()):
            try:
                report = self._decoder.decode(line)
            except msgspec.DecodeError:  # the driver's library writes to the standard output as well
                continue
            self._heard_at = self._clock()
            self._take(report)

    def _take(self, report: ReaderReport) -> None:
        if report.topology is not None:
            self._topology = report.topology
        for event in report.events:
            if self._is_new(event):
                self._events.append(event)
        if report.kernel_log_after > self._settings.kernel_log_after:
            self._settings = replace(self._settings, kernel_log_after=report.kernel_log_after)
        self._report = replace(report, gpus=[self._identified(gpu) for gpu in report.gpus])

    def _identified(self, gpu: GpuSample) -> GpuSample:
        """The device with the name that it had when it last told one."""
        if gpu.uuid:
            self._known[gpu.gpu_index] = gpu
            return gpu
        known = self._known.get(gpu.gpu_index)
        if known is None:
            return gpu
        return replace(gpu, name=known.name, uuid=known.uuid, sampled_at=gpu.sampled_at or known.sampled_at)

    def _is_new(self, event: GpuEvent) -> bool:
        """NVML and the kernel's log tell the same event; a sentence without a number belongs to the number before it."""
        what = 79 if event.xid is None and "fallen off the bus" in event.text else event.xid
        key = (event.gpu_index, event.text if what is None else what)
        told_at = self._told.get(key)
        if told_at is not None and abs(event.at - told_at) <= _SAME_EVENT_S:
            return False
        if event.xid is not None or what is None:
            self._told[key] = event.at
        return True

    def _tend(self) -> None:
        """Replace a process that ended or is silent, after a pause that grows."""
        now = self._clock()
        child = self._child
        if child is not None:
            code = child.exit_code()
            if code is not None:
                child.kill()
                self._child = None
                self._mourn(_death_text(code) if code else "")
            elif self._is_silent(child, now):
                child.kill()
                self._left.append(child)
                self._child = None
                self._mourn("the process that reads NVML fell silent")
            elif child.heard_at is not None and now - child.started_at > _STEADY_S:
                self._pause_s = 1.0
        self._left = [one for one in self._left if one.exit_code() is None]
        if self._child is None and now >= self._next_start_at and len(self._left) < _MOST_LEFT:
            self._begin()

    @staticmethod
    def _is_silent(child: _Child, now: float) -> bool:
        if child.heard_at is None:
            return now - child.started_at > _FIRST_WORD_S
        return now - child.heard_at > _SILENT_S

    def _mourn(self, text: str) -> None:
        """Note what happened to the process; one that ended well, to begin anew, is followed at once."""
        now = self._clock()
        if not text:
            self._next_start_at = now
            return
        self._death = (now, text)
        self._next_start_at = now + self._pause_s
        self._pause_s = min(2 * self._pause_s, _LONGEST_PAUSE_S)

    def _with_death(self, detail: str, now: float) -> str:
        is_over = self._child is not None and self._child.heard_at is not None
        if self._death is None or (is_over and now - self._death[0] > _STEADY_S):
            return detail
        death = f"{self._death[1]}; it {'was' if self._child is not None else 'will be'} started again"
        return f"{detail}; {death}" if detail else death


def _death_text(code: int) -> str:
    """How the process ended, in words."""
    if code < 0:
        with contextlib.suppress(ValueError):
            return f"the process that reads NVML died of {signal.Signals(-code).name} within the driver"
    return f"the process that reads NVML ended with exit code {code}"
