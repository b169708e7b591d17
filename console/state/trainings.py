"""The trainings of a host as people know them, pure: all jobs that went on with each other's work are one."""

from typing import NamedTuple

from console.state.host import Curves, HostState
from console.state.sanitize import one_line
from console.state.training_comparison import differing_settings
from console.state.units import format_percent
from remote.protocol.jobs import Finished, Job, is_over
from remote.protocol.progress import DrafterMeasured
from remote.protocol.specs import TrainingSpec


class ShownTraining(NamedTuple):
    """`jobs` worked on it, the oldest first; `curves` are what all of them told, a step that was done again as it was done last."""

    jobs: list[Job]
    curves: Curves

    @property
    def job(self) -> Job:
        """The one that worked on it last, by which it is called."""
        return self.jobs[-1]

    @property
    def spec(self) -> TrainingSpec | None:
        """What it was told; None where the host did not say."""
        return self.job.spec if isinstance(self.job.spec, TrainingSpec) else None


class Checkpoint(NamedTuple):
    """A checkpoint that was written `at` (the host's clock) with `bytes`; `measured` is its drafter's walk along validation text.

    `is_kept` is None where it is not known how many are kept.
    """

    step: int
    at: float
    bytes: int
    measured: DrafterMeasured | None
    is_best: bool
    is_last: bool
    is_kept: bool | None


def trainings_of(state: HostState) -> list[ShownTraining]:
    """The host's trainings, the one that was worked on last first."""
    places: dict[tuple[str, str], list[Job]] = {}
    jobs = (job for job in state.jobs.values() if job.agent == "training")
    for job in sorted(jobs, key=lambda job: (job.created_at, job.job_id)):
        spec = job.spec
        place = (spec.checkpoints, spec.fingerprint) if isinstance(spec, TrainingSpec) else ("", job.job_id)
        places.setdefault(place, []).append(job)
    found = sorted(places.values(), key=lambda parts: (parts[-1].created_at, parts[-1].job_id), reverse=True)
    return [ShownTraining(parts, joined([state.curves.get(job.job_id, Curves()) for job in parts])) for parts in found]


def joined(parts: list[Curves]) -> Curves:
    """What several jobs told of one training: from the step on at which a later one began, what that one told."""
    if len(parts) == 1:
        return parts[0]
    whole = Curves()
    for part in parts:
        if part.steps:
            first = part.steps[0].step.step
            whole.steps = [each for each in whole.steps if each.step.step < first]
            again = {each.measured.step for each in part.measured}
            whole.measured = [each for each in whole.measured if each.measured.step not in again]
        whole.steps += part.steps
        whole.measured += part.measured
        whole.checkpoints |= part.checkpoints
        whole.last = part.last or whole.last
        whole.pruned_at = part.pruned_at or whole.pruned_at
    return whole


def checkpoints_of(training: ShownTraining) -> list[Checkpoint]:
    """Every checkpoint that was written, the newest first; what is kept follows from what its jobs told and from their policy."""
    curves, spec = training.curves, training.spec
    measured = {each.measured.step: each.measured for each in curves.measured}
    steps = sorted(curves.checkpoints, reverse=True)
    pruned_at = curves.pruned_at
    there = [step for step in steps if pruned_at is not None and curves.checkpoints[step].at <= pruned_at]
    best = _best(measured, steps)
    kept = set(steps) - set(there) | {best}
    if spec is not None:
        kept |= {*there[: spec.training.checkpoints_kept], _best(measured, there)}
    is_known = spec is not None or not there
    return [
        Checkpoint(
            step=step,
            at=curves.checkpoints[step].at,
            bytes=curves.checkpoints[step].saved.bytes,
            measured=measured.get(step),
            is_best=step == best,
            is_last=step == steps[0],
            is_kept=step in kept if is_known or step in kept else None,
        )
        for step in steps
    ]


def _best(measured: dict[int, DrafterMeasured], steps: list[int]) -> int | None:
    found = [(measured[step].acceptance_length, step) for step in steps if step in measured]
    return max(found)[1] if found else None


def standing_words(training: ShownTraining) -> str:
    """How far it is, and whether and from where it can go on."""
    last, state = training.curves.last, training.job.state
    far = "" if last is None else f"step {last.step:,} of {last.total_steps:,}"
    if not is_over(state):
        share = "" if last is None else f" ({format_percent(last.step / max(1, last.total_steps))})"
        return f"{far or 'no step yet'}{share}"
    if isinstance(state, Finished) and state.outcome == "succeeded":
        return f"{far}: done and exported" if far else "done and exported"
    saved = [each for each in checkpoints_of(training) if each.is_kept is not False]
    start = f"can go on from the checkpoint of step {saved[0].step:,}" if saved else "can begin again at step 0"
    return f"{far}: {start}" if far else start


def why_not_resumed(training: ShownTraining) -> str | None:
    """Why nobody can go on with it; None where somebody can."""
    state, name = training.job.state, one_line(training.job.job_id)
    if not is_over(state):
        return f"{name} has not ended; it goes on by itself."
    if isinstance(state, Finished) and state.outcome == "succeeded":
        return f"{name} is done; its drafter is there."
    return None


def differences(training: ShownTraining, other: ShownTraining) -> list[tuple[str, str, str]]:
    """The settings in which two trainings differ: the name, and both values; empty where those of one are not known."""
    if training.spec is None or other.spec is None:
        return []
    mine, its = differing_settings([training.spec, other.spec])
    return [(name, one_line(str(mine.get(name))), one_line(str(its.get(name)))) for name in {**mine, **its}]
