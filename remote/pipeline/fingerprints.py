"""Hashes of everything that determines an artifact; equal ones mean that it need not be made again.

What only changes speed or comfort (memory share, concurrency, ports, time-outs, log intervals) is left out on purpose:
changing it must not throw away a store that took days.
"""

from pathlib import Path
from typing import NamedTuple

import msgspec

from remote.artifacts.manifest import fingerprint_of, hash_file
from remote.errors import NotFound
from remote.paths import resolve_path
from remote.pipeline.inputs import Conversations, Prompts, Target
from remote.protocol.run import TRAINING_COMFORT, EngineConfig, RunConfig

_VERSION = 1
"""Raised when the code makes another artifact from the same inputs."""
_LEARNING = 4
"""Raised when a drafter learns otherwise from the same store and mapping."""
_MEASUREMENT = 3
"""Raised when an arm is measured or reported otherwise, which leaves the drafter as it is."""


class Inputs(NamedTuple):
    """Everything that a run reads; `mapping_source` is the hash of the mapping that is to be copied, `initial` that of the drafter
    which the training begins as.

    `store_source` is the hash of the manifest of the store that it is given, in place of the conversations `train`.
    """

    target: Target
    train: Conversations | None
    evaluation: Prompts
    mapping_source: str | None
    store_source: str | None = None
    initial: str | None = None


class Fingerprints(NamedTuple):
    """One for every artifact of a run, each covering those before it."""

    extraction: str
    vocabulary: str
    training: str
    drafter_report: str
    baseline_report: str
    verdict: str


UNDECIDED = Fingerprints(*["-"] * len(Fingerprints._fields))
"""Stands for fingerprints while inputs are missing."""


def fingerprints(run: RunConfig, inputs: Inputs) -> Fingerprints:
    """The fingerprints of the artifacts that `run` makes of `inputs`."""
    extraction = _of_store(run, inputs)
    vocabulary = combine("vocabulary", extraction, run.vocabulary, inputs.mapping_source)
    training = training_fingerprint(run, extraction, vocabulary, inputs.initial)
    measured = [
        _MEASUREMENT,
        inputs.evaluation.sha256,
        run.data.max_length,
        run.evaluation,
        _numerics(run.serving_engine),
        _pace(run.serving_engine),
        *_template(run),
    ]
    drafter_report = combine("drafter", training, run.speculation, measured)
    baseline_report = combine("baseline", inputs.target.fingerprint, drafter_report, measured)
    verdict = combine("verdict", drafter_report, baseline_report, run.verdict)
    return Fingerprints(extraction, vocabulary, training, drafter_report, baseline_report, verdict)


def _of_store(run: RunConfig, inputs: Inputs) -> str:
    if inputs.train is None:
        return combine("given store", inputs.target.fingerprint, inputs.store_source)
    return extraction_fingerprint(run, inputs.target, inputs.train)


def extraction_fingerprint(run: RunConfig, target: Target, train: Conversations) -> str:
    """That of the store which `run` extracts."""
    return combine(
        "extraction",
        target.fingerprint,
        train.sha256,
        [run.data.max_samples, run.data.max_length],
        run.extraction.layer_ids,
        _numerics(run.engine),
        *_template(run),
    )


def _template(run: RunConfig) -> list[object]:
    """Nothing for the template as it is, so that stores of before stay valid."""
    return [run.target.chat_template_kwargs] if run.target.chat_template_kwargs else []


def training_fingerprint(run: RunConfig, store: str, mapping: str, initial: str | None) -> str:
    """That of the drafter which `run` trains on the store and the mapping with these fingerprints, beginning as `initial`."""
    return combine("training", _LEARNING, store, mapping, _numerics_of_training(run), initial)


def hash_initial(run: RunConfig, root: Path) -> str | None:
    """The content of the drafter that the training begins as, None when it begins anew; raises NotFound."""
    if run.training.init_from is None:
        return None
    directory = resolve_path(root, run.training.init_from)
    files = [directory / "config.json", *sorted(directory.glob("*.safetensors"))]
    if not files[0].is_file() or len(files) == 1:
        raise NotFound(
            f"there is no drafter in {directory}",
            hint="Name the directory of one (config.json and safetensors) as training.init_from, or leave it out to begin anew.",
        )
    return combine("initial", *map(hash_file, files))


def captures_alike(run: RunConfig, other: RunConfig) -> bool:
    """Whether the engines of both capture the same hidden states, so that a store of the one serves the other."""
    return _numerics(run.engine) == _numerics(other.engine)


def combine(name: str, *parts: object) -> str:
    """The fingerprint of `parts` (structs and JSON values) under the name of what they make."""
    return fingerprint_of({"artifact": name, "version": _VERSION, "parts": parts})


def hash_mapping_source(run: RunConfig, root: Path) -> str | None:
    """The content of the mapping that the run copies, None when it builds its own; raises NotFound."""
    if run.vocabulary.source is None:
        return None
    source = resolve_path(root, run.vocabulary.source)
    try:
        return combine("mapping", *(hash_file(source / name) for name in ("d2t.npy", "t2d.npy")))
    except OSError as error:
        raise NotFound(
            f"there is no mapping at {source} ({error.strerror}: {error.filename})",
            hint="Name a directory with d2t.npy and t2d.npy as vocabulary.source, or leave it out to build one.",
        ) from error


def _numerics(engine: EngineConfig) -> list[object]:
    return [
        engine.name,
        engine.device,
        engine.dtype,
        engine.attention_backend,
        engine.tensor_parallel_size,
        engine.flags,
    ]


def _pace(engine: EngineConfig) -> list[object]:
    """What changes how fast a server answers, beside what changes its answers."""
    return [engine.python, engine.environment, engine.context_length, engine.max_running_requests]


def _numerics_of_training(run: RunConfig) -> dict[str, object]:
    kept = msgspec.to_builtins(run.training)
    for comfort in (*TRAINING_COMFORT, "init_from"):  # its content counts, not where it lies
        del kept[comfort]
    if run.training.drafter.architecture == "llama":
        del kept["drafter"]["architecture"]  # so that drafters of before stay valid
    if run.training.optimizer == "adamw":
        del kept["optimizer"]  # for the same
    return kept
