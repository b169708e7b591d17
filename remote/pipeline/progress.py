"""What a stage shows while its jobs work: from their states and events to a `StageState`; pure."""

from typing import NamedTuple

import msgspec

from remote.protocol.jobs import (
    Finished,
    Foreign,
    JobState,
    Lost,
    Orphaned,
    Paused,
    Quarantined,
    Queued,
    Running,
    Stalled,
    Starting,
    Stopping,
    Unkillable,
)
from remote.protocol.progress import (
    ArmAdvanced,
    BenchmarkAdvanced,
    CheckpointSaved,
    DrafterMeasured,
    ExtractionAdvanced,
    ExtractionPlanned,
    FilesCopied,
    FilesRemoved,
    MappingBuilt,
    Note,
    Progress,
    SampleQuarantined,
    ServerPhase,
    ServerReady,
    ServerRestarting,
    ShardWritten,
    StageChanged,
    StageRunning,
    StageState,
    StepLogged,
    StoreChecked,
    TrainingPhase,
    TrialAdvanced,
)

_TELL_EVERY_S = 0.5


class Alive(NamedTuple):
    """The job goes on; `trouble` is what a person should know about it, else empty."""

    trouble: str = ""


class Succeeded(NamedTuple):
    """The job is over and its outputs were verified."""


class Failed(NamedTuple):
    """The job will not deliver; `reason` is its own."""

    reason: str


def judge_child(state: JobState) -> Alive | Succeeded | Failed:  # noqa: PLR0911 - one for each variant
    """What a job's state means for the stage that waits for it."""
    match state:
        case Queued() | Starting() | Running():
            return Alive()
        case Stalled(heartbeat_age_s=age):
            return Alive(f"its supervisor has not been heard of for {age:.0f} s")
        case Paused(reason=reason):
            return Alive(f"paused: {reason}")
        case Stopping(requested_by=actor, reason=reason):
            return Failed(f"it is being stopped by {actor}: {reason}")
        case Finished(outcome="succeeded"):
            return Succeeded()
        case Finished(reason=reason) | Lost(reason=reason) | Quarantined(reason=reason):
            return Failed(reason)
        case Orphaned(pid=pid):
            return Alive(f"its supervisor is gone while process {pid} lives on; it is being given another")
        case Foreign(incarnation=incarnation):
            return Failed(f"it belongs to another incarnation of this host ({incarnation})")
        case Unkillable(pids=pids):
            return Failed(f"processes {pids} are stuck in the kernel: this host needs to be recycled")


class StageProgress:
    """Folds the events of a stage's jobs into its running state, and says when that is worth telling."""

    def __init__(self, since: float, *, share: tuple[float, float] = (0.0, 1.0)) -> None:
        self.state = StageRunning(since=since)
        self._share = share
        self._first: tuple[float, float] | None = None
        self._told: StageRunning | None = None
        self._told_at = float("-inf")

    def enter(self, job_id: str, share: tuple[float, float]) -> None:
        """The stage's next job begins; its own progress covers `share` of the stage's."""
        self.state = msgspec.structs.replace(self.state, job_id=job_id)
        self._share = share

    def take(self, event: Progress, now: float) -> None:
        """One event of the stage's present job."""
        done, detail = describe(event)
        if detail:
            self.state = msgspec.structs.replace(self.state, detail=detail)
        if done is not None:
            begin, end = self._share
            fraction = begin + (end - begin) * min(1.0, max(0.0, done))
            self.state = msgspec.structs.replace(self.state, fraction=fraction, eta_s=self._estimate(fraction, now))

    def warn(self, trouble: str) -> None:
        """The stage's present job is in trouble, or (empty) in none."""
        if trouble:
            self.state = msgspec.structs.replace(self.state, detail=trouble)

    def to_tell(self, now: float) -> StageState | None:
        """The state when it is news and the last was told long enough ago; a new job is told at once."""
        same_job = self._told is not None and self._told.job_id == self.state.job_id
        if self.state == self._told or (same_job and now - self._told_at < _TELL_EVERY_S):
            return None
        self._told, self._told_at = self.state, now
        return self.state

    def _estimate(self, fraction: float, now: float) -> float | None:
        """The seconds that remain at the pace since the first sign of progress."""
        if self._first is None:
            self._first = (now, fraction)
            return None
        began, at_first = self._first
        if fraction <= at_first:
            return None
        return (1.0 - fraction) * (now - began) / (fraction - at_first)


def describe(event: Progress) -> tuple[float | None, str]:  # noqa: C901, PLR0911, PLR0912 - one for each variant
    """How far the job is (0 to 1, None where it does not say) and what it does, in words."""
    match event:
        case ServerPhase(phase=phase):
            return None, phase.replace("_", " ")
        case ServerRestarting(reason=reason, restart=restart, most=most):
            return None, f"restarts, {restart} of {most}: {reason}"
        case ServerReady(engine=engine, engine_version=version, startup_s=seconds):
            return None, f"{engine} {version} ready after {seconds:.0f} s"
        case ExtractionAdvanced() as step:
            return share_of(step.samples_done, step.samples_total), (
                f"{step.samples_done} of {step.samples_total} samples, {step.tokens_done:,} tokens, "
                f"{step.tokens_per_s:.0f} tok/s{f', {step.quarantined} quarantined' if step.quarantined else ''}"
            )
        case ExtractionPlanned() as planned:
            counts = planned.loss_tokens / max(1, planned.tokens)
            return (
                None,
                f"{planned.samples} samples, {planned.tokens:,} tokens, {counts:.0%} of them count for the loss",
            )
        case SampleQuarantined(sample_id=sample_id, reason=reason):
            return None, f"{sample_id} quarantined: {reason}"
        case FilesCopied(bytes_done=done, bytes_total=total):
            return share_of(done, total), ""
        case StoreChecked(what=what, done=done, total=total):
            return share_of(done, total), f"{done:,} of {total:,} {what}"
        case FilesRemoved(files_done=done, files_total=total):
            return share_of(done, total), f"{done} of {total} files"
        case MappingBuilt() as built:
            covers = "" if built.coverage is None else f", coverage {built.coverage:.1%}"
            return 1.0, f"{built.draft_vocab_size:,} of {built.target_vocab_size:,} tokens{covers}"
        case StepLogged() as step:
            first = f", first draft token {step.accuracy[0]:.0%}" if step.accuracy else ""
            return share_of(step.step, step.total_steps), (
                f"step {step.step} of {step.total_steps}, loss {_loss(step.loss)}{first}, {step.tokens_per_s:.0f} tok/s"
            )
        case DrafterMeasured() as found:
            return None, f"acceptance length {found.acceptance_length:.2f} on validation text at step {found.step}"
        case ArmAdvanced() as arm:
            return share_of(arm.prompts_done, arm.prompts_total), _describe_arm(arm)
        case BenchmarkAdvanced() as done:
            return share_of(done.requests_done, done.requests_total), f"{done.concurrency} requests at a time"
        case TrialAdvanced() as trial:
            return share_of(trial.launch - 1, trial.launches), f"{trial.state}: {trial.settings}"
        case StageChanged() | ShardWritten() | CheckpointSaved() | TrainingPhase() | Note():
            return None, ""


def _loss(loss: float | None) -> str:
    return "not finite" if loss is None else f"{loss:.3f}"


def share_of(done: int, total: int) -> float | None:
    """`done` of `total` as a fraction; None while the total is not known."""
    return done / total if total > 0 else None


def _describe_arm(arm: ArmAdvanced) -> str:
    name = "with the drafter" if arm.arm == "drafter" else "without the drafter"
    rate = "" if arm.decode_tokens_per_s is None else f", {arm.decode_tokens_per_s:.1f} tok/s"
    accepted = "" if arm.acceptance_length is None else f", acceptance length {arm.acceptance_length:.2f}"
    level = "" if arm.concurrency == 1 else f", {arm.concurrency} at a time"
    return f"{name}{level}: {arm.prompts_done} of {arm.prompts_total} prompts{rate}{accepted}"
