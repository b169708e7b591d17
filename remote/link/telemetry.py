"""Readings of the host for one link: those of the recorder, which is started when there is none."""

import contextlib
import logging
import math
import threading
import time

import msgspec

from remote.errors import NotFound, RoostError, UsageError, WorkFailed
from remote.jobs import records
from remote.jobs.store import JobStore
from remote.protocol.codec import MAX_LINE_BYTES
from remote.protocol.ids import new_job_id, new_op_id
from remote.protocol.jobs import Finished, Job, Queued, Running, Starting, is_over
from remote.protocol.specs import RecorderSpec
from remote.protocol.telemetry import GpuTopology, TelemetryHistory, TelemetrySample
from remote.recorder.jobs import RECORDER
from remote.recorder.place import live_readings, ring_directory
from remote.telemetry.ring import oldest_sample_at, read_ring

_FRESH_S = 3.0
_FIRST_READING_S = 30.0
_SILENT_S = 30.0
_LOOK_EVERY_S = 5.0
_AFTER_FAILURE_S, _AT_ONCE_S = 60.0, 10.0
_POLL_S = 0.05
_WANT_EVERY_S = 5.0
_KEPT_RECORDERS = 2
_PAGE_BYTES = MAX_LINE_BYTES * 3 // 4
_LEAST_STEP_S = 1.0
_log = logging.getLogger(__name__)


class TelemetrySource:
    """Hands the recorder's readings on and sees to it that there is one."""

    def __init__(self, store: JobStore) -> None:
        self._store = store
        self._live = live_readings(store.root)
        self._turn = threading.Lock()
        self._looked_at = float("-inf")
        self._is_release_known = False
        self._wanted_at = float("-inf")

    def want(self) -> None:
        """Have readings taken from now on; a recorder that cannot be started is told when one of its readings is asked for."""
        now = time.monotonic()
        if now - self._wanted_at > _WANT_EVERY_S:
            self._live.want()
            self._wanted_at = now
        try:
            self._see_to_recorder()
        except RoostError as error:
            _log.warning("no recorder: %s", error)

    def newer(self) -> TelemetrySample | None:
        """The newest reading unless this link has had it."""
        self.want()
        age = self._live.age_s()
        return self._live.newer() if age is not None and age < _FRESH_S else None

    def read(self) -> TelemetrySample:
        """The next reading, so that it knows of all that was done before; raises WorkFailed when none comes."""
        source = live_readings(self._store.root)
        asked_at = time.time()
        deadline = time.monotonic() + _FIRST_READING_S
        while time.monotonic() < deadline:
            self.want()
            sample = source.newer()
            if sample is not None and sample.sampled_at >= asked_at:
                return sample
            self._raise_if_broken()
            time.sleep(_POLL_S)
        raise WorkFailed(
            f"the host's recorder has told nothing for {_FIRST_READING_S:.0f} s",
            hint="Its log says why.",
            next_command=self._command_for_log(),
        )

    def history(self, since: float, until: float | None, step_s: float) -> TelemetryHistory:
        """Recorded samples from `since` on, as many as go into a line; raises UsageError for a time that is none."""
        end = time.time() + 1.0 if until is None else until
        if not all(map(math.isfinite, (since, end, step_s))) or step_s < _LEAST_STEP_S:
            raise UsageError(f"since {since}, until {until}, step {step_s}: no span of time (the least step is 1 s)")
        directory = ring_directory(self._store.root)
        encoder = msgspec.json.Encoder()
        room, samples = _PAGE_BYTES, []
        following: float | None = None
        for sample in read_ring(directory, since, end, step_s):
            room -= len(encoder.encode(sample)) + 1
            if room < 0 and samples:
                following = math.nextafter(samples[-1].sampled_at, math.inf)
                break
            samples.append(sample)
        return TelemetryHistory(samples=samples, next_since=following, oldest_at=oldest_sample_at(directory))

    def topology(self) -> GpuTopology:
        """How the devices are connected; of a host without devices that nothing is, and why. Raises NotFound before it is known."""
        sample = self.read()
        if not sample.gpus:
            return GpuTopology(
                driver_version="", cuda_version="", paths=[], events_from=f"nowhere: {sample.gpu_detail}"
            )
        topology = self._live.topology()
        if topology is None:
            raise NotFound("the devices have not told yet how they are connected", hint="Ask again in a moment.")
        return topology

    def _see_to_recorder(self) -> None:
        """Start a recorder when none is at work, and replace one that fell silent; looks at the jobs only now and then."""
        age = self._live.age_s()
        with self._turn:
            now = time.monotonic()
            is_fresh = age is not None and age < _FRESH_S
            if now - self._looked_at < _LOOK_EVERY_S or (is_fresh and self._is_release_known):
                return
            self._looked_at, self._is_release_known = now, True
            recorders = [job for job in self._store.list() if job.agent == RECORDER]
            live = [job for job in recorders if not is_over(job.state)]
            for job in live:
                self._end_if_unfit(job, age)
            if not live and not _failed_just_now(recorders):
                self._discard_old(recorders)
                job_id = new_job_id(RECORDER)
                self._store.start(job_id, RecorderSpec(), actor="link", op_id=new_op_id())

    def _end_if_unfit(self, job: Job, age: float | None) -> None:
        """A recorder that fell silent makes place for another, and so does one of another release, once a link."""
        silent_s = min(age if age is not None else math.inf, time.time() - job.created_at)
        launched = records.read_launch(self._store.directory(job.job_id))
        if silent_s > _SILENT_S:
            reason = f"it has told nothing for {silent_s:.0f} s; another one takes its place"
        elif launched is not None and launched.release != str(self._store.release):
            reason = "it is of another release than the console; another one takes its place"
        else:
            return
        if isinstance(job.state, Running | Queued | Starting):
            self._store.stop(job.job_id, actor="link", op_id=new_op_id(), reason=reason)

    def _discard_old(self, recorders: list[Job]) -> None:
        """Their readings are in the rings; of how they ended the last ones are enough."""
        over = [job for job in recorders if isinstance(job.state, Finished)]
        for job in over[_KEPT_RECORDERS:]:
            with contextlib.suppress(RoostError, OSError):  # another link was faster
                self._store.discard(job.job_id)

    def _raise_if_broken(self) -> None:
        newest = self._newest()
        if newest is not None and isinstance(newest.state, Finished) and newest.state.outcome == "failed":
            raise WorkFailed(
                f"the host's recorder failed: {newest.state.reason}",
                hint="Its log says more.",
                next_command=f"roost logs {newest.job_id}",
            )

    def _command_for_log(self) -> str | None:
        newest = self._newest()
        return None if newest is None else f"roost logs {newest.job_id}"

    def _newest(self) -> Job | None:
        return next((job for job in self._store.list() if job.agent == RECORDER), None)


def _failed_just_now(recorders: list[Job]) -> bool:
    """A recorder that cannot work on this host is not started again and again; one that worked and was killed is replaced."""
    newest = recorders[0].state if recorders else None
    return (
        isinstance(newest, Finished)
        and newest.outcome == "failed"
        and newest.ended_at - newest.started_at < _AT_ONCE_S
        and time.time() - newest.ended_at < _AFTER_FAILURE_S
    )
