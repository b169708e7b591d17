"""The recorder's work: a reading a second for the links and for the rings, while somebody wants it or a job is at work."""

import sys
import time
from collections.abc import Callable
from pathlib import Path

from msgspec.structs import replace

from remote.agents.harness import JobContext, main
from remote.jobs import locks
from remote.jobs.store import JobStore
from remote.protocol.jobs import JobResult
from remote.protocol.specs import RecorderSpec
from remote.protocol.telemetry import GpuTopology, TelemetrySample
from remote.recorder.jobs import JobReader, JobsReading
from remote.recorder.notifying import Notifier
from remote.recorder.place import live_readings, ring_directory, singleton_lock
from remote.telemetry.diagnosis import Diagnostician
from remote.telemetry.gpu_watch import GpuWatch
from remote.telemetry.live import LiveReadings
from remote.telemetry.ring import Ring
from remote.telemetry.sampler import Sampler

_PERIOD_S = 1.0
_FIRST_INTERVAL_S = 0.25
_FIRST_DEVICES_S = 3.0
_COMPLAIN_EVERY_S = 600.0


def work(spec: RecorderSpec, job: JobContext) -> JobResult:
    """Record until nobody needs it; a second recorder of the same root ends at once."""
    store = JobStore(job.root, Path(__file__).resolve().parents[2], sys.executable)
    path = singleton_lock(store.root)
    try:
        lock = locks.take(path, 0.0)
    except locks.LockTimeout:
        return JobResult(summary={"reason": "another recorder is at work", "samples": 0})
    try:
        return _record(spec, job, store)
    finally:
        locks.give_back(path, lock)


def _record(spec: RecorderSpec, job: JobContext, store: JobStore) -> JobResult:
    live = live_readings(store.root)
    live.open()
    before = live.newer()
    gpus = GpuWatch(known=() if before is None else before.gpus)
    notifier = Notifier(store, _say)
    recorder = Recorder(JobReader(store), Sampler(store.root, gpus), live, Ring(ring_directory(store.root)), notifier)
    try:
        recorder.run(job.stop_requested.wait, store.root.is_dir, idle_exit_s=spec.idle_exit_s)
    finally:
        recorder.close()
    return JobResult(summary={"samples": recorder.samples, "unrecorded": recorder.unrecorded})


class Recorder:
    """Takes the readings and hands them on; `unrecorded` counts those that the disk had no room for."""

    def __init__(self, jobs: JobReader, sampler: Sampler, live: LiveReadings, ring: Ring, notifier: Notifier) -> None:
        self.samples = 0
        self.unrecorded = 0
        self._jobs = jobs
        self._sampler = sampler
        self._live = live
        self._ring = ring
        self._notifier = notifier
        self._diagnostician = Diagnostician()
        self._topology: GpuTopology | None = None
        self._complained_at = float("-inf")

    def run(self, wait: Callable[[float], bool], goes_on: Callable[[], bool], *, idle_exit_s: float) -> None:
        """Take a reading a second until `wait` (for so many seconds) says stop, `goes_on` ends, or it was idle for too long."""
        self._sampler.sample([])  # rates are differences: nothing without them is told
        if self._wait_for_devices(wait):
            return
        due = wanted_at = time.monotonic()
        while goes_on():
            reading = self.step()
            now = time.monotonic()
            wanted_age = self._live.wanted_age_s()
            if (
                not reading.is_idle
                or self._notifier.has_work()
                or (wanted_age is not None and wanted_age < idle_exit_s)
            ):
                wanted_at = now
            if now - wanted_at > idle_exit_s:
                return
            due = max(due + _PERIOD_S, now)
            if wait(due - now):
                return

    def _wait_for_devices(self, wait: Callable[[float], bool]) -> bool:
        """The first reading is worth a moment: whether `wait` said stop meanwhile."""
        until = time.monotonic() + _FIRST_DEVICES_S
        while not wait(_FIRST_INTERVAL_S):
            if self._sampler.has_asked_devices() or time.monotonic() > until:
                return False
        return True

    def step(self) -> JobsReading:
        """One reading, published and recorded; what was read of the jobs."""
        began = time.time()
        jobs = self._jobs.read(began)
        sample = self._complete(self._sampler.sample(jobs.endpoints, jobs.paths), jobs, began)
        diagnoses = self._diagnostician.advance(sample)
        notifications = self._notifier.advance(jobs.ended, diagnoses, began)
        sample = replace(sample, diagnoses=diagnoses, notifications=notifications)
        self._live.publish(sample)
        if (topology := self._sampler.topology()) is not self._topology and topology is not None:
            self._topology = topology
            self._live.publish_topology(topology)
        try:
            self._ring.append(sample)
        except OSError as error:
            self.unrecorded += 1
            self._complain(f"a reading was not recorded: {error}")
        self.samples += 1
        return jobs

    def close(self) -> None:
        """Write what is gathered."""
        self._notifier.close()
        self._sampler.close()
        self._ring.close()

    def _complete(self, sample: TelemetrySample, jobs: JobsReading, began: float) -> TelemetrySample:
        """A device belongs to the job that it was given to; the driver's pids may be those of another namespace."""
        gpus = [replace(gpu, owner_job_id=jobs.owners.get(gpu.gpu_index)) for gpu in sample.gpus]
        return replace(sample, sampled_at=began, gpus=gpus, jobs=jobs.samples)

    def _complain(self, text: str) -> None:
        now = time.monotonic()
        if now - self._complained_at > _COMPLAIN_EVERY_S:
            self._complained_at = now
            _say(text)


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")


if __name__ == "__main__":
    main(RecorderSpec, work)
