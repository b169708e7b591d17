"""What is wrong on the host, found in the samples alone: rules over short windows, told when they last; pure."""

from collections.abc import Callable, Iterable, Iterator

from remote.protocol.telemetry import Diagnosis, DiagnosisCode, TelemetrySample
from remote.telemetry.diagnosis_engines import engine_silent, low_acceptance, queue_growing, server_restarted
from remote.telemetry.diagnosis_gpus import gpu_idle, slow_device, stale_telemetry, throttled
from remote.telemetry.diagnosis_hardware import EventMemory, hardware
from remote.telemetry.diagnosis_holding import Finding, Holding
from remote.telemetry.diagnosis_host import inodes_short, runway_short
from remote.telemetry.diagnosis_jobs import LossMemory, busy_not_working, no_progress, silent_rank, suspended
from remote.telemetry.diagnosis_window import Window, WindowKeeper

RULES: tuple[Callable[[Window], Iterator[Finding]], ...] = (
    suspended,
    silent_rank,
    slow_device,
    busy_not_working,
    no_progress,
    gpu_idle,
    throttled,
    stale_telemetry,
    engine_silent,
    server_restarted,
    low_acceptance,
    queue_growing,
    runway_short,
    inodes_short,
)

_GRAVITY: tuple[DiagnosisCode, ...] = (
    "hardware",
    "straggler",
    "busy_not_working",
    "runway_short",
    "inodes_short",
    "loss_not_finite",
    "engine_silent",
    "server_restarted",
    "no_progress",
    "throttled",
    "gpu_idle",
    "low_acceptance",
    "queue_growing",
    "stale_telemetry",
)
"""What comes first of two that are equally severe: what stops a run before what slows it."""

_CONSEQUENCES: dict[DiagnosisCode, frozenset[DiagnosisCode]] = {
    "straggler": frozenset({"busy_not_working", "no_progress", "gpu_idle", "engine_silent"}),
    "busy_not_working": frozenset({"no_progress"}),
}
"""What a grave cause brings about in the same job and is not told beside it."""


class Diagnostician:
    """Takes every sample of a host in its order; samples may be missing, and the clock may be set."""

    def __init__(self) -> None:
        self._keeper = WindowKeeper()
        self._holding = Holding()
        self._events = EventMemory()
        self._losses = LossMemory()

    def advance(self, sample: TelemetrySample) -> list[Diagnosis]:
        """Everything that holds now, the gravest first; `since` does not change while it is told, but for a clock set back."""
        window, is_gap = self._keeper.advance(sample)
        self._events.advance(sample, window.clock_s)
        self._losses.advance(sample, window.clock_s)
        told = self._holding.advance(self._find(window), clock_s=window.clock_s, at=sample.sampled_at, is_gap=is_gap)
        return sorted(_causes(told), key=_gravity)

    def _find(self, window: Window) -> Iterator[Finding]:
        yield from hardware(window, self._events)
        for rule in RULES:
            yield from rule(window)
        yield from self._losses.findings()


def _gravity(told: Diagnosis) -> tuple[bool, int, float, str]:
    return told.severity != "error", _GRAVITY.index(told.code), told.since, told.subject


def _causes(told: Iterable[Diagnosis]) -> list[Diagnosis]:
    """What is told, without what another one of the same job explains."""
    every = list(told)
    explained = {
        (code, cause.job_id)
        for cause in every
        if cause.severity == "error" and cause.job_id is not None
        for code in _CONSEQUENCES.get(cause.code, ())
    }
    return [one for one in every if (one.code, one.job_id) not in explained]
