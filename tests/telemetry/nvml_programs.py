"""The process that asks NVML, started as the recorder starts it, on the stand-in."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec

from remote.telemetry.gpu_reading import ReaderSettings

RELEASE = Path(__file__).resolve().parents[2]

QUICK = ReaderSettings(
    period_s=0.05,
    health_every_s=0.1,
    stuck_after_s=0.2,
    retry_every_s=0.3,
    initialize_every_s=0.2,
    kernel_log="/nonexistent/kmsg",
)
"""Everything sooner than in earnest."""


class ReaderProcess:
    """The reader; its reports as plain JSON."""

    def __init__(self, environment: dict[str, str], settings: ReaderSettings = QUICK) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "remote.telemetry.nvml_reader", msgspec.json.encode(settings).decode()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(RELEASE), **environment},
        )

    def report(self) -> dict[str, Any]:
        """The next report."""
        line = self.process.stdout.readline()
        assert line, f"it ended with {self.process.wait()}"
        return json.loads(line)

    def until(self, holds) -> dict[str, Any]:
        """The first report that is so."""
        while not holds(report := self.report()):
            pass
        return report

    def full(self) -> dict[str, Any]:
        """The first report in which every device has answered or is lost."""
        return self.until(lambda report: all("answered for this device yet" not in str(gpu) for gpu in report["gpus"]))

    def end(self) -> None:
        """End it in any case."""
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()
