"""What the rules look at: the present sample and short running summaries of those before; pure."""

import math
from collections import deque
from collections.abc import Mapping
from typing import NamedTuple

from remote.protocol.telemetry import EngineSample, GpuSample, JobSample, TelemetrySample

GAP_S = 15.0
"""Without a reading for longer than this, or three of the sample's own periods, nothing is known of the time between."""

QUIET = frozenset({"load", "checkpoint", "measurement", "export", "stop", "paused", "copy", "remove"})
"""Activities in which devices may rest, one rank may work alone, and no step is due."""

BUSY, IDLE = 0.5, 0.02
"""A device that works, and one that does nothing: utilisations."""

_SMOOTHING_S = 8.0
_AGE_TOLERANCE_S = 1.5


class Smoothed:
    """An exponential mean over some seconds; None until it was told a value, and after one that is not known."""

    def __init__(self, span_s: float = _SMOOTHING_S) -> None:
        self._span_s = span_s
        self.value: float | None = None

    def advance(self, value: float | None, elapsed_s: float) -> None:
        """Take the value of now."""
        if value is None or self.value is None:
            self.value = value
        else:
            self.value += (value - self.value) * -math.expm1(-elapsed_s / self._span_s)


class Growth:
    """How much a cumulative counter grew within the last `span_s`; a counter that fell began anew."""

    def __init__(self, span_s: float) -> None:
        self._span_s = span_s
        self._points: deque[tuple[float, int]] = deque()

    def advance(self, clock_s: float, value: int | None) -> None:
        """Take a reading; one that says what the last one said costs nothing."""
        points = self._points
        if value is not None and (not points or value != points[-1][1]):
            if points and value < points[-1][1]:
                points.clear()
            points.append((clock_s, value))
        while len(points) > 1 and clock_s - points[1][0] > self._span_s:
            points.popleft()

    def amount(self) -> int:
        """Units within the span."""
        return self._points[-1][1] - self._points[0][1] if self._points else 0


class GpuWindow:
    """A device: the present sample and the means of the last seconds."""

    def __init__(self) -> None:
        self.sample: GpuSample
        self.ecc_corrected = Growth(600.0)
        self.ecc_uncorrected = Growth(3600.0)
        self.pcie_replays = Growth(60.0)
        self.forget_means()

    def forget_means(self) -> None:
        """Begin the means anew; what counters grew meanwhile still counts."""
        self.utilization = Smoothed()
        self.memory_utilization = Smoothed()
        self.power = Smoothed()
        self.clock = Smoothed()

    def advance(self, sample: GpuSample, clock_s: float, elapsed_s: float) -> None:
        """Take the device's sample of now."""
        self.sample = sample
        self.utilization.advance(sample.gpu_utilization, elapsed_s)
        self.memory_utilization.advance(sample.memory_utilization, elapsed_s)
        self.power.advance(sample.power_watts, elapsed_s)
        self.clock.advance(sample.sm_clock_hz, elapsed_s)
        health = sample.health
        if health is not None:
            self.ecc_corrected.advance(clock_s, health.ecc_corrected)
            self.ecc_uncorrected.advance(clock_s, health.ecc_uncorrected)
            self.pcie_replays.advance(clock_s, health.pcie_replays)

    @property
    def subject(self) -> str:
        """What a person calls it."""
        return f"GPU {self.sample.gpu_index}"


class JobWindow:
    """A job: the present sample and how long it has been without progress, whatever the clock was set to meanwhile."""

    def __init__(self) -> None:
        self.sample: JobSample
        self.stuck_s = 0.0
        self._age_s: float | None = None

    def advance(self, sample: JobSample, passed_s: float, elapsed_s: float) -> None:
        """Take the job's sample of now; `passed_s` is since the one before by the host's clock, `elapsed_s` without leaps."""
        self.sample = sample
        age, before, self._age_s = sample.progress_age_s, self._age_s, sample.progress_age_s
        if self.is_quiet:
            self.stuck_s = 0.0
        elif age is None or before is None or age < before + passed_s - _AGE_TOLERANCE_S:
            self.stuck_s = age or 0.0
        else:
            self.stuck_s = min(age, self.stuck_s + elapsed_s)

    @property
    def is_quiet(self) -> bool:
        """Whether it loads, saves, measures or exports, so that rest means nothing."""
        return self.sample.activity in QUIET

    @property
    def is_due(self) -> bool:
        """Whether its next sign of progress can be expected: it has a pace, is at work, and did not just do its last piece."""
        sample = self.sample
        return sample.progress_period_s is not None and not self.is_quiet and sample.seconds_left != 0.0

    @property
    def name(self) -> str:
        """What a person calls it."""
        return self.sample.agent or self.sample.job_id


class EngineWindow:
    """A server: the present sample, how long it has generated with few drafts accepted, and its queue over two minutes."""

    def __init__(self) -> None:
        self.sample: EngineSample
        self.low_acceptance_s = 0.0
        self.quiet_s = math.inf
        self.stalled_s = 0.0
        self.queue: deque[tuple[float, int, float | None]] = deque()
        self.acceptance = Smoothed()
        self.decode = Smoothed(30.0)

    def advance(self, sample: EngineSample, clock_s: float, elapsed_s: float) -> None:
        """Take the server's sample of now."""
        self.sample = sample
        decodes = (sample.decode_tokens_per_s or 0.0) > 0
        works = decodes or (sample.prefill_tokens_per_s or 0.0) > 0
        self.quiet_s = 0.0 if decodes else self.quiet_s + elapsed_s
        self.stalled_s = self.stalled_s + elapsed_s if sample.running_requests and not works else 0.0
        self._judge_acceptance(sample.acceptance_length, elapsed_s if decodes else 0.0)
        self.decode.advance(sample.decode_tokens_per_s, elapsed_s)
        self._follow_queue(clock_s, sample.queued_requests)

    def _judge_acceptance(self, length: float | None, elapsed_s: float) -> None:
        """A request or two say little: the length is smoothed over the seconds in which tokens were generated."""
        self.acceptance.advance(length, elapsed_s)
        mean = self.acceptance.value
        self.low_acceptance_s = 0.0 if mean is None or mean >= LOW_ACCEPTANCE else self.low_acceptance_s + elapsed_s

    def _follow_queue(self, clock_s: float, queued: int | None) -> None:
        if queued is None:
            self.queue.clear()
        elif not self.queue or clock_s - self.queue[-1][0] >= QUEUE_STEP_S:
            self.queue.append((clock_s, queued, self.decode.value))
            while self.queue[-1][0] - self.queue[0][0] > QUEUE_SPAN_S:
                self.queue.popleft()


LOW_ACCEPTANCE = 1.2
"""Tokens a verification, the bonus token included: below it drafting costs more than it gives."""

QUEUE_STEP_S, QUEUE_SPAN_S = 10.0, 120.0


class Window(NamedTuple):
    """Everything that a rule may look at; `clock_s` is the time that passed, `elapsed_s` that since the sample before."""

    sample: TelemetrySample
    clock_s: float
    elapsed_s: float
    gpus: Mapping[int, GpuWindow]
    jobs: Mapping[str, JobWindow]
    engines: Mapping[str, EngineWindow]

    def devices_of(self, job_id: str) -> list[GpuWindow]:
        """The devices that the job was given and that answer."""
        return [gpu for gpu in self.gpus.values() if gpu.sample.owner_job_id == job_id and gpu.sample.error is None]

    def of_run(self, job: JobWindow) -> list[JobWindow]:
        """The jobs of the same run, the job itself included."""
        run_id = job.sample.run_id
        if run_id is None:
            return [job]
        return [other for other in self.jobs.values() if other.sample.run_id == run_id]


class WindowKeeper:
    """Folds samples into windows; what is no longer in a sample is forgotten."""

    def __init__(self) -> None:
        self._at: float | None = None
        self._clock_s = 0.0
        self._gpus: dict[int, GpuWindow] = {}
        self._jobs: dict[str, JobWindow] = {}
        self._engines: dict[str, EngineWindow] = {}

    def advance(self, sample: TelemetrySample) -> tuple[Window, bool]:
        """Take the sample of now; the window, and whether a gap lies before it. A clock set back counts as no time."""
        passed_s = 0.0 if self._at is None else max(0.0, sample.sampled_at - self._at)
        is_gap = passed_s > max(GAP_S, 3 * sample.period_s)
        elapsed_s = 0.0 if is_gap else passed_s
        self._at = sample.sampled_at
        self._clock_s += passed_s
        if is_gap:
            self._engines = {}
            for gpu in self._gpus.values():
                gpu.forget_means()
        self._gpus = self._advance_gpus(sample, elapsed_s)
        self._engines = self._advance_engines(sample, elapsed_s)
        self._jobs = self._advance_jobs(sample, passed_s, elapsed_s)
        return Window(sample, self._clock_s, elapsed_s, self._gpus, self._jobs, self._engines), is_gap

    def _advance_gpus(self, sample: TelemetrySample, elapsed_s: float) -> dict[int, GpuWindow]:
        found: dict[int, GpuWindow] = {}
        for gpu in sample.gpus:
            window = self._gpus.get(gpu.gpu_index)
            if window is None or window.sample.uuid != gpu.uuid:
                window = GpuWindow()
            window.advance(gpu, self._clock_s, elapsed_s)
            found[gpu.gpu_index] = window
        return found

    def _advance_jobs(self, sample: TelemetrySample, passed_s: float, elapsed_s: float) -> dict[str, JobWindow]:
        found = {job.job_id: self._jobs.get(job.job_id) or JobWindow() for job in sample.jobs}
        for job in sample.jobs:
            found[job.job_id].advance(job, passed_s, elapsed_s)
        return found

    def _advance_engines(self, sample: TelemetrySample, elapsed_s: float) -> dict[str, EngineWindow]:
        found = {engine.job_id: self._engines.get(engine.job_id) or EngineWindow() for engine in sample.engines}
        for engine in sample.engines:
            found[engine.job_id].advance(engine, self._clock_s, elapsed_s)
        return found
