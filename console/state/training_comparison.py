"""Trainings side by side, pure: what they were set to, and what became of them."""

from itertools import chain
from typing import Any, NamedTuple, cast

import msgspec

from remote.protocol.jobs import Job, JobState
from remote.protocol.progress import DrafterMeasured, ProgressRecord, StepLogged
from remote.protocol.specs import TrainingSpec


class TrainingRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One training: the steps that were logged, the measurements on validation text, and the settings that differ among the compared.

    `job_ids` are all that worked on it, the last one being `job_id`; a step that was done again counts as it was done last. `best_validation`
    is the measurement with the longest acceptance, None before the first. `test_acceptance_length` is that of the exported drafter on
    test text, None before the export and where no text was held out. `seconds` were spent between each job's first and last logged
    step.
    """

    job_id: str
    job_ids: list[str]
    state: JobState
    settings: dict[str, Any]
    steps: list[StepLogged]
    validation: list[DrafterMeasured]
    best_validation: DrafterMeasured | None
    test_acceptance_length: float | None
    last: StepLogged | None
    seconds: float | None


class Training(NamedTuple):
    """A training's settings, and every job that worked on it with its progress, the oldest first."""

    spec: TrainingSpec
    parts: list[tuple[Job, list[ProgressRecord]]]


def compare(trainings: list[Training]) -> list[TrainingRecord]:
    """A record for each training in the order given."""
    settings = differing_settings([training.spec for training in trainings])
    return [_record(training, telling) for training, telling in zip(trainings, settings, strict=True)]


def differing_settings(specs: list[TrainingSpec]) -> list[dict[str, Any]]:
    """Of each the settings that are not the same in all."""
    settings = [settings_of(spec) for spec in specs]
    telling = _differing(settings)
    return [{name: value for name, value in known.items() if name in telling} for known in settings]


def settings_of(spec: TrainingSpec) -> dict[str, Any]:
    """What a training was told: its inputs, and each key of the run file's `training`."""
    return {"store": spec.store, "mapping": spec.mapping, "target": spec.target_model} | _flat(
        msgspec.to_builtins(spec.training), "training."
    )


def _flat(settings: dict[str, Any], prefix: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in settings.items():
        if isinstance(value, dict):
            found |= _flat(cast("dict[str, Any]", value), f"{prefix}{name}.")
        else:
            found[prefix + name] = value
    return found


def _differing(settings: list[dict[str, Any]]) -> set[str]:
    names = {name for one in settings for name in one}
    return {name for name in names if any(one.get(name) != settings[0].get(name) for one in settings)}


def _record(training: Training, settings: dict[str, Any]) -> TrainingRecord:
    job = training.parts[-1][0]
    events = [record.event for record in chain.from_iterable(progress for _, progress in training.parts)]
    steps = {event.step: event for event in events if isinstance(event, StepLogged)}
    measured = {event.step: event for event in events if isinstance(event, DrafterMeasured)}
    spent = [_seconds(progress) for _, progress in training.parts]
    return TrainingRecord(
        job_id=job.job_id,
        job_ids=[part.job_id for part, _ in training.parts],
        state=job.state,
        settings=settings,
        steps=[steps[step] for step in sorted(steps)],
        validation=[measured[step] for step in sorted(measured)],
        best_validation=max(measured.values(), key=lambda found: (found.acceptance_length, found.step), default=None),
        test_acceptance_length=test_acceptance_of(job),
        last=steps[max(steps)] if steps else None,
        seconds=sum(spent) if steps else None,
    )


def test_acceptance_of(job: Job) -> float | None:
    """The acceptance length of an ended training's drafter on test text, None where there is none."""
    length = job.result.summary.get("test_acceptance_length") if job.result is not None else None
    return length if isinstance(length, float) else None


def _seconds(progress: list[ProgressRecord]) -> float:
    times = [record.at for record in progress if isinstance(record.event, StepLogged)]
    return times[-1] - times[0] if times else 0.0
