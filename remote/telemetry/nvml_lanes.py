"""All devices read in turn by a thread: one that hangs is left behind with its thread, and the others go on without it."""

import threading
import time
from collections.abc import Sequence
from queue import Empty, SimpleQueue

from remote.protocol.telemetry import GpuSample
from remote.telemetry.gpu_reading import NOT_READ_YET, ReaderSettings, lost_gpu, not_answering
from remote.telemetry.nvml_device import DeviceReader

_MOST_STUCK_THREADS = 3
"""Of one device; there is no more to learn from another one."""

_PATIENCE = 0.9
"""The part of a period that is given to a slow driver before the figures of the period before are told again."""


class _Lane:
    """A thread that reads devices one after another; one that was left behind ends when its call returns."""

    def __init__(self) -> None:
        self.at: tuple[int, float] | None = None
        self.samples: list[GpuSample] = []
        self.is_busy = False
        self.has_returned = False
        self._is_left = False
        self._asked: SimpleQueue[Sequence[tuple[DeviceReader, bool]]] = SimpleQueue()
        self._answered: SimpleQueue[None] = SimpleQueue()
        threading.Thread(target=self._run, name="roost-nvml", daemon=True).start()

    def ask(self, readers: Sequence[tuple[DeviceReader, bool]]) -> None:
        """Begin to read these, each with or without its health."""
        self.samples, self.is_busy = [], True
        self._asked.put(readers)

    def wait(self, timeout_s: float) -> bool:
        """Whether all that was asked for has been read."""
        if self.is_busy:
            try:
                self._answered.get(timeout=max(0.0, timeout_s))
            except Empty:
                return False
            self.is_busy = False
        return True

    def leave(self) -> None:
        """Never ask it again: it ends, once a call that is under way returns."""
        self._is_left = True
        self._asked.put(())

    def _run(self) -> None:
        while not self._is_left:
            readers = self._asked.get()
            samples = self.samples
            for reader, with_health in readers:
                self.at = (reader.index, time.monotonic())
                sample = reader.read(with_health=with_health)
                if self._is_left:
                    break
                samples.append(sample)
            self.at = None
            self._answered.put(None)
        self.has_returned = True


class _Stuck:
    """A device with a call that did not return; `since` is when it began, `lanes` are the threads that it holds."""

    def __init__(self, since: float, lane: _Lane, retry_at: float) -> None:
        self.since = since
        self.lanes = [lane]
        self.retry_at = retry_at
        self.retry: tuple[_Lane, DeviceReader] | None = None


class Devices:
    """The devices 0 to `count` - 1; `samples` has the newest of each. Not for several threads."""

    def __init__(self, count: int, settings: ReaderSettings) -> None:
        self._settings = settings
        self._readers = [DeviceReader(index) for index in range(count)]
        self.samples = [lost_gpu(index, ("", ""), NOT_READ_YET) for index in range(count)]
        self._stuck: dict[int, _Stuck] = {}
        self._lane = _Lane()
        self._round = 0

    def read(self) -> list[GpuSample]:
        """A reading of now, in less than a period; of devices that do not answer, how long that has been."""
        self._retry()
        if not self._lane.is_busy:
            self._begin([index for index in range(len(self._readers)) if index not in self._stuck])
            self._round += 1
        self._finish(time.monotonic() + _PATIENCE * self._settings.period_s)
        now = time.monotonic()
        return [self._told(index, sample, now) for index, sample in enumerate(self.samples)]

    def broken_for_s(self) -> tuple[float, float]:
        """For how long the first device and for how long every one has answered with nothing but a fault."""
        now = time.monotonic()
        since = [now if reader.error_since is None else reader.error_since for reader in self._readers]
        return (now - min(since), now - max(since)) if since else (0.0, 0.0)

    def _begin(self, indices: list[int]) -> None:
        every = max(1, round(self._settings.health_every_s / self._settings.period_s))
        self._lane.ask([(self._readers[index], (self._round + index) % every == 0) for index in indices])

    def _finish(self, until: float) -> None:
        while not self._lane.wait(until - time.monotonic()):
            at = self._lane.at
            if at is None or time.monotonic() - at[1] < self._settings.stuck_after_s:
                self._take(list(self._lane.samples))
                return
            self._leave_behind(*at)
        self._take(self._lane.samples)

    def _leave_behind(self, index: int, since: float) -> None:
        lane, self._lane = self._lane, _Lane()
        lane.leave()
        done = list(lane.samples)
        self._take(done)
        self._stuck[index] = _Stuck(since, lane, time.monotonic() + self._settings.retry_every_s)
        seen = {sample.gpu_index for sample in done} | self._stuck.keys()
        self._begin([other for other in range(len(self._readers)) if other not in seen])

    def _take(self, samples: list[GpuSample]) -> None:
        for sample in samples:
            self.samples[sample.gpu_index] = sample

    def _retry(self) -> None:
        """Ask the devices that hang again, each in a thread of its own; those that answer join the others."""
        now = time.monotonic()
        for index, stuck in list(self._stuck.items()):
            if stuck.retry is not None:
                lane, reader = stuck.retry
                if lane.wait(0.0):
                    lane.leave()
                    self._readers[index] = reader
                    self._take(lane.samples)
                    del self._stuck[index]
                elif now >= stuck.retry_at:
                    lane.leave()
                    stuck.lanes.append(lane)
                    stuck.retry = None
            elif any(lane.has_returned for lane in stuck.lanes) or (
                now >= stuck.retry_at and len(stuck.lanes) < _MOST_STUCK_THREADS
            ):
                self._ask_again(index, stuck, now)

    def _ask_again(self, index: int, stuck: _Stuck, now: float) -> None:
        stuck.lanes = [lane for lane in stuck.lanes if not lane.has_returned]
        stuck.retry_at = now + self._settings.retry_every_s
        stuck.retry = (_Lane(), DeviceReader(index, self.samples[index]))
        stuck.retry[0].ask([(stuck.retry[1], True)])

    def _told(self, index: int, sample: GpuSample, now: float) -> GpuSample:
        stuck = self._stuck.get(index)
        if stuck is None:
            return sample
        return not_answering(
            sample, f"the NVIDIA driver has not answered for this device for {now - stuck.since:.0f} s"
        )
