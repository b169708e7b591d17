"""What other processes of the host do while something is measured."""

import os
import time
from typing import NamedTuple

import psutil

from remote.telemetry.host import core_times


class _Reading(NamedTuple):
    """A moment, and the seconds of cores that all processes and those that are part of the measurement have used until then."""

    at: float
    busy_s: float
    own_s: float


class LoadByOthers:
    """The load by all processes but this one, and `server_pid` with those below it, from now on."""

    def __init__(self, server_pid: int | None) -> None:
        self._server_pid = server_pid
        self._began = self._read()

    def cores(self) -> float | None:
        """How many cores others have kept busy on the average; None where the server's own share is not known."""
        began, now = self._began, self._read()
        if began is None or now is None or now.at <= began.at:
            return None
        others = (now.busy_s - began.busy_s) - (now.own_s - began.own_s)
        return round(max(0.0, others / (now.at - began.at)), 3)

    def _read(self) -> _Reading | None:
        if self._server_pid is None:
            return None
        try:
            server = psutil.Process(self._server_pid)
            own = [psutil.Process(os.getpid()), server, *server.children(recursive=True)]
            used = sum(map(_used_s, own))
        except psutil.Error:
            return None
        return _Reading(time.monotonic(), sum(core.busy for core in core_times()), used)


def _used_s(process: psutil.Process) -> float:
    """By the process and by those of its children that have ended; by one that is gone, nothing."""
    try:
        return sum(process.cpu_times()[:4])
    except psutil.NoSuchProcess:
        return 0.0
