"""How fast a job goes and what it does, from its own progress; pure."""

from collections import deque
from statistics import median
from typing import NamedTuple

from remote.protocol.progress import (
    ArmAdvanced,
    BenchmarkAdvanced,
    ExtractionAdvanced,
    FilesCopied,
    FilesRemoved,
    Progress,
    ProgressRecord,
    ServerPhase,
    ServerReady,
    ServerRestarting,
    StageChanged,
    StageRunning,
    StepLogged,
    StoreChecked,
    TrainingPhase,
    TrialAdvanced,
)

_WINDOW_S = 120.0
_PERIODS = 31


class Advance(NamedTuple):
    """How far a job is, in its own unit, and what that is in samples, tokens and bytes where it says so."""

    done: int
    total: int
    samples: int | None = None
    tokens: int | None = None
    bytes: int | None = None
    bytes_on_disk: int | None = None
    """Where fewer than `bytes` are written yet."""


class PaceReading(NamedTuple):
    """What a `JobSample` says of a job's progress; units as there."""

    activity: str
    progress_age_s: float | None
    progress_period_s: float | None
    samples_per_s: float | None
    tokens_per_s: float | None
    bytes_per_s: float | None
    loss: float | None
    loss_is_finite: bool | None
    accuracy: list[float]
    acceptance_length: float | None
    bytes_left: int | None
    seconds_left: float | None
    restarts: int
    restarted_age_s: float | None
    restarted_because: str


class Pace:
    """Folds the progress of one job into its present pace; times are those of the records, by the host's clock."""

    def __init__(self) -> None:
        self._activity = "load"
        self._moved_at: float | None = None
        self._advances: deque[tuple[float, Advance]] = deque()
        self._periods: deque[float] = deque(maxlen=_PERIODS)
        self._step: StepLogged | None = None
        self._arm: ArmAdvanced | None = None
        self._restarts = 0
        self._restarted: tuple[float, str] | None = None

    def take(self, record: ProgressRecord) -> None:
        """The job's next record."""
        match record.event:
            case StepLogged() as step:
                self._step = step
            case ArmAdvanced() as arm:
                self._arm = arm
            case ServerRestarting(reason=reason):
                self._restarts += 1
                self._restarted = record.at, reason
            case _:
                pass
        activity = activity_of(record.event)
        if activity is None:
            return
        advance = advance_of(record.event)
        if activity == self._activity and self._moved_at is not None and advance is not None:
            self._periods.append(max(0.0, record.at - self._moved_at))
        self._activity, self._moved_at = activity, record.at
        if advance is not None:
            self._add(record.at, advance)

    def _add(self, at: float, advance: Advance) -> None:
        if self._advances and (advance.done < self._advances[-1][1].done or at < self._advances[-1][0]):
            self._advances.clear()  # begun again, or the clock was set back
        self._advances.append((at, advance))
        while len(self._advances) > 2 and at - self._advances[0][0] > _WINDOW_S:
            self._advances.popleft()

    def read(self, now: float) -> PaceReading:
        """The pace at `now`, by the same clock as the records."""
        period = median(self._periods) if len(self._periods) > 1 else None
        last = self._advances[-1][1] if self._advances else None
        per_second = self._rate(now, period, "done")
        return PaceReading(
            activity=self._activity,
            progress_age_s=None if self._moved_at is None else round(max(0.0, now - self._moved_at), 1),
            progress_period_s=period,
            samples_per_s=self._rate(now, period, "samples"),
            tokens_per_s=self._tokens_per_s(now, period),
            bytes_per_s=self._rate(now, period, "bytes"),
            loss=None if self._step is None else self._step.loss,
            loss_is_finite=None if self._step is None else self._step.loss is not None,
            accuracy=[] if self._step is None else self._step.accuracy,
            acceptance_length=None if self._arm is None else self._arm.acceptance_length,
            bytes_left=None if last is None else bytes_left(last),
            seconds_left=None if last is None or not per_second else max(0.0, last.total - last.done) / per_second,
            restarts=self._restarts,
            restarted_age_s=None if self._restarted is None else round(max(0.0, now - self._restarted[0]), 1),
            restarted_because="" if self._restarted is None else self._restarted[1],
        )

    def _tokens_per_s(self, now: float, period: float | None) -> float | None:
        if self._step is not None:
            return self._step.tokens_per_s
        if self._arm is not None:
            return self._arm.decode_tokens_per_s
        return self._rate(now, period, "tokens")

    def _rate(self, now: float, period: float | None, unit: str) -> float | None:
        """Units a second over the window; a job that is overdue is as much slower as it is late."""
        if len(self._advances) < 2:
            return None
        (began, first), (ended, last) = self._advances[0], self._advances[-1]
        before, after = getattr(first, unit), getattr(last, unit)
        elapsed = max(ended, now - 2 * (period or 0.0)) - began
        if before is None or after is None or elapsed <= 0 or after < before:
            return None
        return (after - before) / elapsed


def activity_of(event: Progress) -> str | None:  # noqa: C901, PLR0911, PLR0912 - one for each variant
    """What a job does from this event on, in a word; None when the event does not say."""
    match event:
        case TrainingPhase(phase=phase):
            return phase
        case StepLogged():
            return "step"
        case ServerRestarting():
            return "load"
        case ServerPhase(phase=phase):
            return "stop" if phase == "stopping" else "load"
        case ServerReady():
            return "serve"
        case ExtractionAdvanced():
            return "extract"
        case ArmAdvanced():
            return "evaluate"
        case BenchmarkAdvanced():
            return "measure"
        case TrialAdvanced():
            return "tune"
        case FilesCopied():
            return "copy"
        case StoreChecked():
            return "verify"
        case FilesRemoved():
            return "remove"
        case StageChanged(stage=stage, state=StageRunning()):
            return stage
        case _:
            return None


def advance_of(event: Progress) -> Advance | None:  # noqa: PLR0911 - one for each
    """How far the job is by this event."""
    match event:
        case ExtractionAdvanced() as made:
            samples, total = made.samples_done, made.samples_total
            kept = made.bytes_written + made.bytes_pending
            return Advance(
                samples, total, samples=samples, tokens=made.tokens_done, bytes=kept, bytes_on_disk=made.bytes_written
            )
        case StepLogged(step=step, total_steps=total):
            return Advance(step, total)
        case ArmAdvanced(prompts_done=done, prompts_total=total):
            return Advance(done, total, samples=done)
        case BenchmarkAdvanced(requests_done=done, requests_total=total):
            return Advance(done, total, samples=done)
        case TrialAdvanced(launch=launch, launches=launches):
            return Advance(launch - 1, launches)
        case FilesCopied(bytes_done=done, bytes_total=total):
            return Advance(done, total, bytes=done)
        case StoreChecked(done=done, total=total):
            return Advance(done, total)
        case FilesRemoved(files_done=done, files_total=total):
            return Advance(done, total)
        case _:
            return None


def bytes_left(advance: Advance) -> int | None:
    """What is still to be written if the rest is like what is done; None while nothing is done."""
    if advance.bytes is None or advance.done <= 0 or advance.total < advance.done:
        return None
    on_disk = advance.bytes if advance.bytes_on_disk is None else advance.bytes_on_disk
    return max(0, round(advance.bytes / advance.done * advance.total) - on_disk)
