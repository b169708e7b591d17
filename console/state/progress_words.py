"""A progress event in words, for the verbs' narration and for the lines that our jobs write into their logs; pure."""

from console.state.sanitize import one_line
from console.state.units import format_bytes, format_duration, format_loss, format_percent, format_rate, format_restarts
from console.state.verdicts import load
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


def progress_words(event: Progress) -> str:  # noqa: C901, PLR0911, PLR0912 - one case an event
    """What an event says, on one line."""
    match event:
        case StageChanged(stage=stage, state=state):
            return f"{stage}: {stage_words(state)}"
        case StepLogged() as step:
            return f"step {step.step}/{step.total_steps} loss {format_loss(step.loss)} {format_rate(step.tokens_per_s, 'tok')}"
        case DrafterMeasured() as found:
            best = ", the best so far" if found.best else ""
            return f"step {found.step} on validation text: acceptance length {found.acceptance_length:.2f}{best}"
        case ExtractionAdvanced() as done:
            rate = format_rate(done.tokens_per_s, "tok")
            made = f"{done.samples_done}/{done.samples_total} samples, {format_bytes(done.bytes_written + done.bytes_pending)}"
            left = "" if done.eta_s is None else f", {format_duration(done.eta_s)} left"
            return f"{made}, {rate}{left}{f', {done.quarantined} quarantined' if done.quarantined else ''}"
        case ExtractionPlanned() as planned:
            size = f"{format_bytes(planned.bytes_needed)} and {planned.inodes_needed:,} files to write"
            share = format_percent(planned.loss_tokens / max(1, planned.tokens))
            return (
                f"{planned.samples:,} samples, {planned.tokens:,} tokens, {share} of them count; {size}, "
                f"{format_bytes(planned.bytes_free)} free; {one_line(planned.sample_id)}: {one_line(planned.sample_text)}"
            )
        case SampleQuarantined(sample_id=sample_id, reason=reason):
            return f"{one_line(sample_id)} quarantined: {one_line(reason)}"
        case ArmAdvanced() as arm:
            rate = format_rate(arm.decode_tokens_per_s, "tok")
            level = "" if arm.concurrency == 1 else f", {load(arm.concurrency)}"
            return f"{arm.arm}{level}: {arm.prompts_done}/{arm.prompts_total} prompts, {rate}"
        case ServerPhase(phase=phase, elapsed_s=elapsed):
            return f"{phase.replace('_', ' ')} ({format_duration(elapsed)})"
        case ServerReady(url=url, startup_s=startup, restarts=restarts):
            return f"ready at {one_line(url)} after {format_duration(startup)}{format_restarts(restarts)}"
        case ServerRestarting(reason=reason, restart=restart, most=most, pause_s=pause):
            return f"restarts in {format_duration(pause)} ({restart} of {most}): {one_line(reason)}"
        case ShardWritten(shard=shard, bytes=size):
            return f"{one_line(shard)} written, {format_bytes(size)}"
        case MappingBuilt() as built:
            sizes = f"{built.draft_vocab_size:,} of {built.target_vocab_size:,} tokens"
            return f"mapping of {sizes}, coverage {format_percent(built.coverage)}"
        case StoreChecked(what=what, done=done, total=total):
            return f"verified {done:,} of {total:,} {what}"
        case FilesRemoved(files_done=done, files_total=total, bytes_freed=freed):
            return f"{done}/{total} files removed, {format_bytes(freed)} freed"
        case FilesCopied(bytes_done=done, bytes_total=total):
            return f"copied {format_bytes(done)} of {format_bytes(total)}"
        case CheckpointSaved(step=step, bytes=size):
            return f"checkpoint of step {step}, {format_bytes(size)}"
        case BenchmarkAdvanced() as made:
            rate = "" if made.output_tokens_per_s is None else f", {format_rate(made.output_tokens_per_s, 'tok')}"
            return f"{made.concurrency} at a time: {made.requests_done}/{made.requests_total} requests{rate}"
        case TrialAdvanced() as trial:
            return _trial_words(trial)
        case TrainingPhase(phase=phase):
            return f"{phase} begins"
        case Note(level=level, text=text):
            return f"{level}: {one_line(text)}"


def _trial_words(trial: TrialAdvanced) -> str:
    place = f"server {trial.launch} of {trial.launches}, round {trial.round} of {trial.rounds}"
    rate = "" if trial.tokens_per_s is None else f", {format_rate(trial.tokens_per_s, 'tok')}"
    gain = "" if trial.speedup is None else f", {trial.speedup:.2f}x"
    reason = f": {one_line(trial.reason)}" if trial.reason else ""
    state = "measured before" if trial.state == "known" else trial.state
    return f"{place}: {one_line(trial.settings)}: {state}{rate}{gain}{reason}"


def stage_words(state: StageState) -> str:
    """A stage's state, how far it is and what it says."""
    match state:
        case StagePending():
            return "pending"
        case StageRunning(fraction=fraction, eta_s=eta, detail=detail):
            parts = [
                part for part in (format_percent(fraction) if fraction is not None else "", one_line(detail)) if part
            ]
            if eta is not None:
                parts.append(f"{format_duration(eta)} left")
            return "running " + ", ".join(parts)
        case StageDone(started_at=start, ended_at=end, detail=detail):
            return f"done in {format_duration(end - start)}" + (f", {one_line(detail)}" if detail else "")
        case StageSkipped(detail=detail):
            return "skipped" + (f", {one_line(detail)}" if detail else "")
        case StageFailed(reason=reason):
            return f"failed: {one_line(reason)}"
