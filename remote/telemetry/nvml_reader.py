"""The process that asks NVML: `python -m remote.telemetry.nvml_reader [SETTINGS]` writes a `ReaderReport` a second, as JSON lines.

It runs in a process of its own because a lost driver may block any call and kill whoever makes it, and ends when its
standard input does. `remote.telemetry.gpu_watch` starts it, reads it and replaces it.
"""

import contextlib
import os
import signal
import sys
import threading
import time
from pathlib import Path

import msgspec

from remote.protocol.telemetry import GpuTopology
from remote.telemetry.gpu_reading import GpuSource, ReaderReport, ReaderSettings
from remote.telemetry.kernel_log import KernelLog
from remote.telemetry.nvml import NO_LIBRARY, NO_PACKAGE, error_code, pynvml, why_unreachable
from remote.telemetry.nvml_events import EventWatch
from remote.telemetry.nvml_lanes import Devices

_SIMULATED = "simulated"
_PLAYED = "NVML_STANDIN_SCENARIO"
"""Set where a stand-in plays the driver; one that refuses everything cannot say so by its version."""

_ALL_BROKEN_PERIODS = 30
"""After so many with nothing but faults of every device a new process asks whether the driver is another one."""

_TOPOLOGY_S = 15.0


class Reader:
    """Reads all devices, once a period, until it has to be replaced."""

    def __init__(self, settings: ReaderSettings) -> None:
        self._settings = settings
        self._encoder = msgspec.json.Encoder()
        self._due = time.monotonic()

    def run(self) -> None:
        """Tell a report a period; returns when NVML has to be loaded anew, which takes a new process."""
        count = self._initialize()
        source: GpuSource = "simulated" if _SIMULATED in _driver_version() else "nvml"
        log = KernelLog(Path(self._settings.kernel_log), self._settings.kernel_log_after)
        watch = EventWatch(count, log.denied)
        devices = Devices(count, self._settings)
        detail = "" if count else "NVML answers and knows no device"
        topology: GpuTopology | None = None
        known_until = time.monotonic() + _TOPOLOGY_S
        while not self._is_worn_out(devices):
            gpus = devices.read()
            # The addresses of the devices come with the topology: until then the log keeps its records, but not for ever.
            is_known = watch.topology is not None or time.monotonic() > known_until
            events = [*watch.take(), *(map(watch.of_kernel, log.read()) if is_known else ())]
            known, topology = topology, watch.topology
            self._tell(
                ReaderReport(
                    source=source,
                    detail=detail,
                    gpus=gpus,
                    events=events,
                    topology=topology if known is None else None,
                    kernel_log_after=log.last_sequence,
                )
            )
            self._sleep()

    def _initialize(self) -> int:
        """The number of devices, once NVML answers; until then it is asked again and again."""
        asked_at = float("-inf")
        report = ReaderReport(source="none")
        while True:
            now = time.monotonic()
            if now - asked_at >= self._settings.initialize_every_s:
                asked_at = now
                outcome = _ask_count()
                if isinstance(outcome, int):
                    return outcome
                report = outcome
            self._tell(report)
            self._sleep()

    def _is_worn_out(self, devices: Devices) -> bool:
        """A device or a driver that came back is seen by a process that begins anew, and by no other."""
        first, every = devices.broken_for_s()
        return first > self._settings.renew_after_s or every > _ALL_BROKEN_PERIODS * self._settings.period_s

    def _tell(self, report: ReaderReport) -> None:
        line = self._encoder.encode(report) + b"\n"
        while line:
            line = line[os.write(1, line) :]

    def _sleep(self) -> None:
        now = time.monotonic()
        self._due += self._settings.period_s
        self._due = max(self._due, now)
        time.sleep(self._due - now)


def _ask_count() -> int | ReaderReport:
    if pynvml is None:
        return ReaderReport(source="none", detail=NO_PACKAGE)
    try:
        pynvml.nvmlInit()
        return pynvml.nvmlDeviceGetCount()
    except pynvml.NVMLError as error:
        source: GpuSource = "none" if error_code(error) == NO_LIBRARY else "error"
        played = "SIMULATED: " if _PLAYED in os.environ else ""
        return ReaderReport(source=source, detail=played + why_unreachable(error))


def _driver_version() -> str:
    try:
        return str(pynvml.nvmlSystemGetDriverVersion())
    except pynvml.NVMLError:
        return ""


def _end_with_parent() -> None:
    """Whoever started this holds the other end of the standard input; it closes however he ends."""
    while os.read(0, 1):
        pass
    os._exit(0)


def main(arguments: list[str]) -> None:
    """Read until the end of the standard input."""
    settings = msgspec.json.decode(arguments[0], type=ReaderSettings) if arguments else ReaderSettings()
    # Who stops the recorder signals all that it started; this ends with its standard input, and not as if the driver killed it.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, name="roost-parent", daemon=True).start()
    with contextlib.suppress(BrokenPipeError):
        Reader(settings).run()
    os._exit(0)  # a thread that is stuck in the driver would hold an ordinary end up


if __name__ == "__main__":
    main(sys.argv[1:])
