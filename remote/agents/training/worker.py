"""The training agent: from a store and a mapping to a drafter that SGLang serves."""

import time
from collections.abc import Iterator
from pathlib import Path

from remote.agents.harness import JobContext, main
from remote.agents.training.batches import Window
from remote.agents.training.checkpoint import (
    acceptance_of,
    best_checkpoint,
    checkpoint_bytes,
    checkpoint_of_step,
    checkpoint_step,
    discard_unfinished,
    leading_checkpoint,
    newest_checkpoint,
    prune_checkpoints,
    record_acceptance,
    restore_weights,
    save_checkpoint,
)
from remote.agents.training.companions import companions
from remote.agents.training.loop import follow, resume, train
from remote.agents.training.measure import MEASURED_DRAFTS, Acceptance, measure_acceptance
from remote.agents.training.objective import Batch
from remote.agents.training.publishing import PRODUCER, Summary, write_drafter
from remote.agents.training.ranks import Ranks
from remote.agents.training.setup import Training, pick_device, prepare
from remote.agents.training.trackers.feeding import feeding
from remote.artifacts.manifest import artifact_ref, read_manifest, verify
from remote.errors import Conflict, WorkFailed
from remote.protocol.jobs import JobResult
from remote.protocol.progress import CheckpointSaved, DrafterMeasured, Note, StepLogged, TrainingPhase
from remote.protocol.specs import TrainingSpec

_MEASURED_WINDOWS = 8
_FILES = 4
_SMALL_BYTES = 1 << 20


class _Checkpoints:
    """Saves and measures while training goes on, and saves when it is stopped."""

    def __init__(self, spec: TrainingSpec, training: Training, job: JobContext) -> None:
        self.directory = Path(spec.checkpoints)
        self.spec = spec
        self.training = training
        self.trainer = training.trainer
        self.job = job

    def newest(self) -> Path | None:
        """The newest sound checkpoint of the same training."""
        found = newest_checkpoint(self.directory, self.spec.fingerprint)
        if found is not None:
            self.job.tell(Note(level="info", text=f"resumed from step {checkpoint_step(found)}: {found}"))
        return found

    def best(self) -> Path | None:
        """The checkpoint that did best on validation text, None where there is no such text."""
        return best_checkpoint(self.directory, self.spec.fingerprint)

    def last(self) -> Path:
        """That of the last step, which is there once the training is done."""
        return checkpoint_of_step(self.directory, self.spec.fingerprint, self.trainer.step)

    def save(self) -> Path:
        """Write a checkpoint and tell it."""
        step = self.trainer.step
        self.job.tell(TrainingPhase(phase="checkpoint"))
        path = self.job.write_with_room(
            self.directory,
            checkpoint_bytes(self.trainer),
            lambda: save_checkpoint(self.directory, self.trainer, fingerprint=self.spec.fingerprint, producer=PRODUCER),
            inodes_needed=_FILES,
            clean=lambda: discard_unfinished(self.directory, step),
        )
        size = sum(file.stat().st_size for file in path.iterdir())
        self.job.tell(CheckpointSaved(step=self.trainer.step, path=str(path), bytes=size))
        return path

    def measure(self, checkpoint: Path) -> None:
        """Put on record how the drafter of `checkpoint`, which is the present one, does on validation text."""
        if acceptance_of(checkpoint) is not None:
            return
        self.job.tell(TrainingPhase(phase="measurement"))
        if self.trainer.sharded:
            restore_weights(self.training.exportable.drafter, checkpoint)
        acceptance = _measure(self.training, self.training.choosing)
        if acceptance is None:
            return
        self.job.write_with_room(
            checkpoint, _SMALL_BYTES, lambda: record_acceptance(checkpoint, acceptance), inodes_needed=1
        )
        self.job.tell(
            DrafterMeasured(
                step=self.trainer.step,
                acceptance_length=acceptance.length,
                accuracy=acceptance.accuracy,
                tokens=acceptance.tokens,
                best=leading_checkpoint(self.directory, self.spec.fingerprint) == checkpoint,
            )
        )

    def is_due(self) -> bool:
        """Whether a checkpoint is saved and measured after the present step."""
        step, training = self.trainer.step, self.spec.training
        return step > 0 and (step % training.checkpoint_every == 0 or step == training.steps)

    def keep(self) -> None:
        """Save, measure and prune."""
        self.measure(self.save())
        prune_checkpoints(self.directory, self.spec.fingerprint, keep=self.spec.training.checkpoints_kept)
        self.job.tell(TrainingPhase(phase="step"))

    def after_step(self) -> bool:
        """Keep a checkpoint when it is due; False when the training was asked to stop."""
        stop = self.job.stop_requested.is_set()
        if stop:
            self.save()
        elif self.is_due():
            self.keep()
        return not stop


def _train(training: Training, checkpoints: _Checkpoints, job: JobContext) -> StepLogged | None:
    last: list[StepLogged] = []

    def tell(event: StepLogged) -> None:
        last[:] = [event]
        job.tell(event)

    resume(training, checkpoints.newest())
    if checkpoints.is_due():
        # A stop saves at once and leaves the measurement to whoever goes on.
        checkpoints.keep()
    train(training, tell=tell, after_step=checkpoints.after_step)
    if training.trainer.step < training.trainer.config.steps:
        job.check_stop()
    return last[0] if last else None


def _read(training: Training, windows: list[Window]) -> Iterator[Batch]:
    for first in range(0, len(windows), _MEASURED_WINDOWS):
        yield training.reader.read(windows[first : first + _MEASURED_WINDOWS])


def _measure(training: Training, windows: list[Window]) -> Acceptance | None:
    trainer = training.trainer
    return measure_acceptance(
        training.exportable.drafter, _read(training, windows), trainer.draft_ids, steps=MEASURED_DRAFTS
    )


def _take_the_best(training: Training, checkpoints: _Checkpoints, job: JobContext) -> tuple[int, float | None]:
    """Give the drafter the weights of the best checkpoint; its step and the acceptance length that it was chosen by."""
    best = checkpoints.best()
    if training.trainer.sharded:
        restore_weights(training.exportable.drafter, best or checkpoints.last())
    if best is None:
        return training.trainer.step, None
    step, acceptance = checkpoint_step(best), acceptance_of(best)
    if step != training.trainer.step:
        restore_weights(training.exportable.drafter, best)
        job.tell(Note(level="info", text=f"the drafter of step {step} did best on validation text and is exported"))
    return step, None if acceptance is None else acceptance.length


def _summary(
    training: Training, logged: StepLogged | None, exported: tuple[int, float | None], seconds: float
) -> Summary:
    """The figures that a person asks for first; the acceptance length is simulated along stored text (teacher-forced), on other
    text than the exported step was chosen by.
    """
    acceptance = _measure(training, training.reporting)
    step, chosen_by = exported
    summary: Summary = {
        "steps": training.trainer.step,
        "exported_step": step,
        "validation_acceptance_length": chosen_by,
        "tokens": training.trainer.tokens,
        "seconds": seconds,
        "loss": logged.loss if logged else None,
        "test_acceptance_length": acceptance.length if acceptance else None,
        "test_tokens": acceptance.tokens if acceptance else 0,
    }
    for position, share in enumerate(acceptance.accuracy if acceptance else []):
        summary[f"test_accuracy_{position}"] = share
    for proposals, length in enumerate(acceptance.lengths if acceptance else [], 1):
        summary[f"test_acceptance_length_{proposals}"] = length
    return summary


def _result(drafter: Path, summary: Summary) -> JobResult:
    return JobResult(outputs=[artifact_ref("drafter", drafter)], summary=dict(summary))


def _finished(spec: TrainingSpec) -> JobResult | None:
    """The result of the same training, when its drafter is there already; raises Conflict when another's is."""
    drafter = Path(spec.drafter)
    if not drafter.exists():
        return None
    manifest = read_manifest(drafter)
    if manifest.fingerprint != spec.fingerprint:
        raise Conflict(
            f"{drafter} is the drafter of another training (other inputs or settings)",
            hint="move it away, or give this training another output",
        )
    verify(drafter)
    return _result(drafter, manifest.properties["summary"])


def work(spec: TrainingSpec, job: JobContext) -> JobResult:
    """Train as `spec` says and export the drafter; a drafter of the same training that is there already is the result."""
    started = time.monotonic()
    finished = _finished(spec)
    if finished is not None:
        return finished
    with feeding(spec, job) as told:
        with companions(spec, job) as ranks:
            if not ranks.is_first:
                return _help(spec, ranks, job)
            training = prepare(spec, pick_device(spec.training, ranks), ranks)
            _describe(training, job)
            checkpoints = _Checkpoints(spec, training, job)
            logged = _train(training, checkpoints, job)
        job.tell(TrainingPhase(phase="export"))
        exported = _take_the_best(training, checkpoints, job)
        told.update(_summary(training, logged, exported, time.monotonic() - started))
        write_drafter(Path(spec.drafter), spec, training.exportable, told, job)
    return _result(Path(spec.drafter), told)


def _help(spec: TrainingSpec, ranks: Ranks, job: JobContext) -> JobResult:
    """Train as a host after the first, which saves and exports; raises WorkFailed where that one stops before the last step."""
    hosts = spec.training.hosts
    job.tell(Note(level="info", text=f"host {hosts.number} of {hosts.count}: the first one tells, saves and exports"))
    step = follow(spec, ranks)
    if step < spec.training.steps:
        raise WorkFailed(f"the first host stopped the training at step {step}", hint="start it again on every host")
    return JobResult(outputs=[], summary={"steps": step})


def _describe(training: Training, job: JobContext) -> None:
    size = sum(parameter.numel() for parameter in training.trainer.drafter.parameters())
    ranks = training.trainer.ranks.count
    shape = f"{len(training.windows)} windows, {training.tokens} tokens an epoch, {size:,} trainable parameters"
    shape += f", {ranks} ranks" if ranks > 1 else ""
    job.tell(Note(level="info", text=shape))


if __name__ == "__main__":
    main(TrainingSpec, work)
