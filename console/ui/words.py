"""States as a glyph, a word and a theme colour: never by colour alone."""

import re
from typing import NamedTuple

from console.state.host import HostState
from console.state.units import format_duration, format_loss, format_restarts
from remote.protocol.jobs import (
    Finished,
    Foreign,
    Job,
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
    StageDone,
    StageFailed,
    StagePending,
    StageRunning,
    StageSkipped,
    StageState,
    StepLogged,
    StoreChecked,
    TrainingPhase,
    TrialAdvanced,
)

VERDICT_GLYPHS = {"promote": "✓", "reject": "✗", "inconclusive": "?"}
VERDICT_COLORS = {"promote": "success", "reject": "error", "inconclusive": "warning"}


_BIRTH = re.compile(r"-\d{6}-\d{6}-[0-9a-f]{4}\Z")


def run_name(run: Job) -> str:
    """The name that a run file gave, without what makes the job's id unique."""
    return run_name_of(run.job_id)


def run_name_of(job_id: str) -> str:
    """As `run_name`, from the id of the run's job."""
    return _BIRTH.sub("", job_id).removeprefix("run-")


class Mark(NamedTuple):
    """`color` is the name of a theme colour."""

    glyph: str
    word: str
    color: str


def job_mark(state: JobState) -> Mark:  # noqa: C901, PLR0911, PLR0912 - one case a state
    """How a job's state is shown."""
    match state:
        case Queued():
            return Mark("○", "queued", "quiet")
        case Starting():
            return Mark("◌", "starting", "accent")
        case Running():
            return Mark("▶", "running", "accent")
        case Stalled():
            return Mark("!", "stalled", "warning")
        case Paused():
            return Mark("‖", "paused", "warning")
        case Stopping():
            return Mark("◼", "stopping", "warning")
        case Finished(outcome="succeeded"):
            return Mark("✓", "done", "success")
        case Finished(outcome="stopped"):
            return Mark("◼", "stopped", "quiet")
        case Finished():
            return Mark("✗", "failed", "error")
        case Lost():
            return Mark("?", "lost", "error")
        case Orphaned():
            return Mark("!", "orphaned", "warning")
        case Foreign():
            return Mark("!", "foreign", "warning")
        case Unkillable():
            return Mark("✗", "unkillable", "error")
        case Quarantined():
            return Mark("?", "unreadable", "warning")


def stage_mark(state: StageState) -> Mark:
    """How a stage's state is shown."""
    match state:
        case StagePending():
            return Mark("·", "", "quiet")
        case StageRunning():
            return Mark("▶", "running", "accent")
        case StageDone():
            return Mark("✓", "done", "success")
        case StageSkipped():
            return Mark("✓", "kept", "quiet")
        case StageFailed():
            return Mark("✗", "failed", "error")


class Pace(NamedTuple):
    """How fast a job goes, and what it said last."""

    rate: str
    detail: str


def pace_of(event: Progress) -> Pace:  # noqa: C901, PLR0911, PLR0912 - one case an event
    """What a job's last progress says about its pace."""
    match event:
        case StepLogged() as step:
            return Pace(
                f"{step.tokens_per_s:,.0f} tok/s", f"step {step.step}/{step.total_steps} loss {format_loss(step.loss)}"
            )
        case DrafterMeasured() as found:
            return Pace("", f"{found.acceptance_length:.2f} tokens accepted on validation text at step {found.step}")
        case ExtractionAdvanced() as done:
            out = f", {done.quarantined} quarantined" if done.quarantined else ""
            return Pace(f"{done.tokens_per_s:,.0f} tok/s", f"{done.samples_done}/{done.samples_total} samples{out}")
        case ExtractionPlanned() as planned:
            return Pace("", f"{planned.samples:,} samples, {planned.tokens:,} tokens planned")
        case SampleQuarantined(sample_id=sample_id, reason=reason):
            return Pace("", f"{sample_id} quarantined: {reason}")
        case ArmAdvanced() as arm:
            rate = "" if arm.decode_tokens_per_s is None else f"{arm.decode_tokens_per_s:.1f} tok/s"
            return Pace(rate, f"{arm.arm}: {arm.prompts_done}/{arm.prompts_total} prompts")
        case ServerPhase(phase=phase):
            return Pace("", phase.replace("_", " "))
        case ServerReady(startup_s=startup, restarts=restarts):
            return Pace("", f"ready after {format_duration(startup)}{format_restarts(restarts)}")
        case ServerRestarting(restart=restart, most=most):
            return Pace("", f"died, restarts ({restart} of {most})")
        case StageChanged(stage=stage, state=state):
            return Pace("", f"{stage}: {stage_mark(state).word}")
        case MappingBuilt(draft_vocab_size=size, coverage=coverage):
            return Pace("", f"{size:,} tokens" + ("" if coverage is None else f", coverage {coverage:.0%}"))
        case StoreChecked(what=what, done=done, total=total):
            return Pace("", f"verified {done:,} of {total:,} {what}")
        case FilesRemoved(files_done=done, files_total=total, bytes_freed=freed):
            return Pace("", f"{done:,} of {total:,} files, {freed:,} bytes freed")
        case FilesCopied(bytes_done=done, bytes_total=total):
            return Pace("", f"{done:,} of {total:,} bytes")
        case ShardWritten(shard=shard):
            return Pace("", f"{shard} written")
        case CheckpointSaved(step=step):
            return Pace("", f"checkpoint of step {step}")
        case BenchmarkAdvanced() as done:
            rate = "" if done.output_tokens_per_s is None else f"{done.output_tokens_per_s:.1f} tok/s"
            return Pace(rate, f"{done.concurrency} at a time: {done.requests_done}/{done.requests_total} requests")
        case TrialAdvanced() as trial:
            gain = "" if trial.speedup is None else f"{trial.speedup:.2f}x"
            return Pace(gain, f"{trial.launch}/{trial.launches} {trial.state}: {trial.settings}")
        case TrainingPhase(phase=phase):
            return Pace("", f"{phase} begins")
        case Note(text=text):
            return Pace("", text)


def outcome_of(job: Job) -> str:
    """What came out of a finished job, in its own figures; empty where its last word says so already."""
    summary = job.result.summary if job.result is not None else {}
    match job.agent:
        case "training":
            loss, length = summary.get("loss"), summary.get("test_acceptance_length")
            words = [f"{summary.get('steps')} steps"]
            words += [f"loss {format_loss(loss)}"] if isinstance(loss, float) else []
            words += [f"{length:.2f} tokens accepted on test text"] if isinstance(length, float) else []
            return ", ".join(words) if "steps" in summary else ""
        case "evaluation":
            rate, length = summary.get("decode_tokens_per_s"), summary.get("acceptance_length")
            if not isinstance(rate, float):
                return ""
            accepted = f", acceptance length {length:.2f}" if isinstance(length, float) else ""
            arm = "with the drafter" if summary.get("arm") == "drafter" else "without the drafter"
            return f"{arm} {rate:.1f} tok/s{accepted}, {summary.get('prompts')} prompts"
        case _:
            return ""


def below_root(path: str, state: HostState) -> str:
    """A path as people know it: without the host's root where it lies below that."""
    return path if state.welcome is None else path.removeprefix(f"{state.welcome.root.rstrip('/')}/")


def age_of(job: Job, host_now: float) -> str:
    """How long a job has run, or ran."""
    match job.state:
        case Finished(started_at=start, ended_at=end):
            return format_duration(end - start)
        case Running() | Stalled() | Stopping() | Starting() | Paused():
            return format_duration(max(0.0, host_now - job.created_at))
        case _:
            return ""
