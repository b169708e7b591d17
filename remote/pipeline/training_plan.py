"""A training by itself, on a store and a mapping that are there: what it would be, and what stands in the way."""

from pathlib import Path
from typing import NamedTuple

import msgspec

from remote.artifacts.hidden_states import StoreProperties
from remote.artifacts.manifest import read_manifest, verify
from remote.artifacts.mapping_validation import validate_mapping
from remote.errors import Precondition, RoostError
from remote.jobs.gpu_demand import gpu_demand
from remote.paths import resolve_path
from remote.pipeline import estimates, stages
from remote.pipeline.config import load_run
from remote.pipeline.fingerprints import UNDECIDED, hash_initial, training_fingerprint
from remote.pipeline.inputs import Target, describe_target
from remote.pipeline.plan import free_bytes
from remote.pipeline.problems import check_drafter_kind, check_gpus, check_ranks, say
from remote.pipeline.reuse import Valid, has_checkpoint, has_foreign_checkpoint, inspect
from remote.pipeline.stages import Blueprint
from remote.pipeline.trackers import check_trackers
from remote.protocol.reports import TrainingPlan
from remote.protocol.requests import PlanTraining
from remote.protocol.run import RunConfig
from remote.protocol.specs import TrainingSpec


class _Data(NamedTuple):
    """What is trained on; `fingerprints` are those of the store and of the mapping, `initial` the hash of the drafter that it begins as."""

    target: Target
    store: StoreProperties
    fingerprints: tuple[str, str]
    initial: str | None


def plan_training(request: PlanTraining, *, root: Path, python: str) -> TrainingPlan:
    """The training of the run file as a job of its own; raises UsageError or NotFound where the file is wrong.

    It has the fingerprint that the run itself would give it, so that a run takes its drafter for its own. `python` is the interpreter of the jobs.
    """
    run = load_run(request.document, request.overrides)
    spec = _spec(run, request, root)
    problems = [*check_ranks(run), *check_gpus(run.name, gpu_demand(spec), "training")]
    problems += check_trackers(run.training.trackers, python, root)
    data = None
    try:
        data = _look(spec, hash_initial(run, root))
    except RoostError as error:
        problems.append(say(error))
    free = free_bytes(Path(spec.drafter).parent)
    if data is None:
        return _plan(run, spec, "run", None, None, free, problems)
    spec = msgspec.structs.replace(spec, fingerprint=training_fingerprint(run, *data.fingerprints, data.initial))
    action = "skip" if isinstance(inspect(Path(spec.drafter), spec.fingerprint, thorough=False), Valid) else "run"
    if action == "run" and has_checkpoint(Path(spec.checkpoints), spec.fingerprint):
        action = "resume"
    needed = 0 if action == "skip" else estimates.training_bytes(run, data.target)
    if action != "skip":
        problems += _conflicts(spec)
    if needed > free:
        problems.append(
            f"the training will write about {needed / 2**30:.1f} GiB, but {Path(spec.drafter).parent} has room for "
            f"{free / 2**30:.1f} GiB. Free space there, or name another directory by --output."
        )
    return _plan(run, spec, action, data.store, needed, free, problems)


def _plan(
    run: RunConfig,
    spec: TrainingSpec,
    action: str,
    store: StoreProperties | None,
    needed: int | None,
    free: int,
    problems: list[str],
) -> TrainingPlan:
    return TrainingPlan(
        run=run.name,
        spec=spec,
        action="skip" if action == "skip" else "resume" if action == "resume" else "run",
        samples=None if store is None else store.samples,
        tokens=None if store is None else store.tokens,
        bytes_needed=needed,
        bytes_free=free,
        problems=problems,
    )


def _spec(run: RunConfig, request: PlanTraining, root: Path) -> TrainingSpec:
    spec = stages.training(Blueprint.draw(run, root, UNDECIDED))
    places = {"store": request.store, "mapping": request.mapping}
    changed = {name: str(resolve_path(root, place)) for name, place in places.items() if place is not None}
    if request.output is not None:
        output = resolve_path(root, request.output)
        changed |= {"drafter": str(output / "drafter"), "checkpoints": str(output / "checkpoints")}
    return msgspec.structs.replace(spec, **changed)


def _look(spec: TrainingSpec, initial: str | None) -> _Data:
    """Read what the training reads, as far as it goes without its weights; raises NotFound or Precondition."""
    target = describe_target(Path(spec.target_model))
    store, mapping = Path(spec.store), Path(spec.mapping)
    manifest = read_manifest(store)
    verify(store, hashes=False)
    properties = msgspec.convert(manifest.properties, StoreProperties)
    if properties.hidden_size != target.hidden_size:
        raise Precondition(
            f"the store holds states of size {properties.hidden_size}, those of {target.path} have {target.hidden_size}: "
            "it was extracted from another model"
        )
    report = validate_mapping(mapping)
    if not report.valid:
        wrong = next(finding.message for finding in report.findings if finding.severity == "error")
        raise Precondition(
            f"the mapping {mapping} must not be used: {wrong}", hint=f"roost vocabulary validate {mapping}"
        )
    if report.target_vocab_size != target.vocab_size:
        raise Precondition(
            f"the mapping is for a vocabulary of {report.target_vocab_size} tokens, the target has {target.vocab_size}"
        )
    if report.layout != "roost" or report.provenance != "roost":
        raise Precondition(
            f"the mapping {mapping} was not made by Roost",
            hint=f"`roost vocabulary convert {mapping} DIR` makes one that was",
        )
    check_drafter_kind(spec.training, target)
    return _Data(target, properties, (manifest.fingerprint, read_manifest(mapping).fingerprint), initial)


def _conflicts(spec: TrainingSpec) -> list[str]:
    """What lies where the training would write, and is another one's."""
    problems: list[str] = []
    if Path(spec.drafter).exists():
        problems.append(
            f"{spec.drafter} is the drafter of another training (other inputs or settings). Name another directory by --output, "
            "or move it away."
        )
    if has_foreign_checkpoint(Path(spec.checkpoints), spec.fingerprint):
        problems.append(
            f"{spec.checkpoints} holds checkpoints of another training. Name another directory by --output, or move them away."
        )
    return problems
