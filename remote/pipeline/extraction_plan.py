"""What a run's extraction would write, exactly: its conversations are tokenized, and nothing is sent."""

from collections.abc import Mapping
from pathlib import Path

import msgspec

from remote.agents.extraction.filling import DiskPlan, describe_plan
from remote.agents.extraction.samples import read_samples
from remote.artifacts.chat_template import ChatTemplate
from remote.artifacts.hidden_states import StoreProperties
from remote.artifacts.target_tokens import target_vocab_size
from remote.errors import UsageError
from remote.paths import resolve_path
from remote.pipeline import stages
from remote.pipeline.config import load_run
from remote.pipeline.fingerprints import UNDECIDED, combine, extraction_fingerprint
from remote.pipeline.inputs import describe_conversations, describe_target
from remote.pipeline.reuse import Outdated, Valid, inspect
from remote.pipeline.stages import UNKNOWN_URL, Blueprint
from remote.protocol.progress import ExtractionPlanned
from remote.protocol.reports import ExtractionPlan
from remote.protocol.requests import ResolveExtraction
from remote.protocol.run import RunConfig
from remote.protocol.specs import Capture, ExtractionSpec, Part
from remote.telemetry.figures import bytes_text


def plan_extraction(document: str, overrides: Mapping[str, str], *, root: Path) -> ExtractionPlanned:
    """The plan of the extraction of the run file `document`; raises UsageError, NotFound or Precondition where an input is wrong."""
    run = _read_run(document, overrides)
    return _plan(run, stages.extraction(Blueprint.draw(run, root, UNDECIDED), UNKNOWN_URL))


def resolve_extraction(request: ResolveExtraction, *, root: Path) -> ExtractionPlan:
    """The extraction of the run file, or a part of it, as a job of its own; raises UsageError, NotFound or Precondition as `plan_extraction`.

    The whole has the fingerprint that the run itself would give it, so that a run takes its store for its own.
    """
    run = _read_run(request.document, request.overrides)
    blueprint = Blueprint.draw(run, root, UNDECIDED)
    spec = stages.extraction(blueprint, request.url)
    problems = [] if request.capture.layer_ids == spec.capture.layer_ids else [_other_layers(request.capture, spec)]
    if resolve_path(root, request.model) != Path(spec.target_model):
        problems.append(f"the server serves {request.model}, the run's target is {spec.target_model}")
    data = run.data
    train = describe_conversations(Path(spec.conversations), max_samples=data.max_samples, max_length=data.max_length)
    whole = extraction_fingerprint(run, describe_target(Path(spec.target_model)), train)
    store, part, fingerprint = blueprint.layout.store, None, whole
    if request.part is not None:
        number, of = request.part
        if not number <= of > 1:
            raise UsageError(f"there is no part {number}/{of}", hint="of two parts the first is 1/2, the second 2/2")
        part = Part(number=number, of=of, whole=whole)
        fingerprint = combine("part", whole, number, of)
        store = store.with_name(f"{store.name}-{number}-of-{of}")
    if request.store is not None:
        store = resolve_path(root, request.store)
    spec = msgspec.structs.replace(spec, capture=request.capture, store=str(store), part=part, fingerprint=fingerprint)
    there = inspect(store, fingerprint, thorough=False)
    if isinstance(there, Outdated):
        problems.append(f"{store} is a store already ({there.reason}). Name another by --output, or move it away.")
    planned = None if isinstance(there, Valid) else _plan(run, spec)
    if planned is not None and not planned.fits and spec.extraction.when_short == "refuse":
        problems.append(_no_room(planned, store))
    return ExtractionPlan(
        run=run.name, spec=spec, action="skip" if planned is None else "run", planned=planned, problems=problems
    )


def _no_room(planned: ExtractionPlanned, store: Path) -> str:
    kept = f", of which {bytes_text(planned.keep_free_bytes)} are to stay free" if planned.keep_free_bytes else ""
    files = "" if planned.inodes_free is None else f" and room for {planned.inodes_free:,} files"
    return (
        f"the store needs {bytes_text(planned.bytes_needed)} and {planned.inodes_needed:,} files more, the disk of {store} has "
        f"{bytes_text(planned.bytes_free)}{kept}{files}. Free space there, name another directory by --output, or set "
        'extraction.when_short to "wait".'
    )


def _read_run(document: str, overrides: Mapping[str, str]) -> RunConfig:
    run = load_run(document, overrides)
    if run.extraction.source is not None:
        raise UsageError(
            f"{run.name} extracts nothing: it learns from the store {run.extraction.source}",
            hint="`roost extraction verify` looks at that; leave extraction.source out to plan an extraction",
        )
    return run


def _other_layers(capture: Capture, spec: ExtractionSpec) -> str:
    return (
        f"the server captures the layers {capture.layer_ids}, the run wants {spec.capture.layer_ids}. Start one with "
        "`roost server start RUN --capture`."
    )


def _plan(run: RunConfig, spec: ExtractionSpec) -> ExtractionPlanned:
    target = describe_target(Path(spec.target_model))
    template = ChatTemplate(Path(spec.target_model), spec.chat_template_kwargs)
    samples = read_samples(
        Path(spec.conversations),
        template,
        vocab_size=target_vocab_size(Path(spec.target_model)),
        max_samples=spec.max_samples,
        max_length=spec.max_length,
        part=spec.part,
    )
    properties = StoreProperties(
        model=spec.target_model,
        layer_ids=spec.capture.layer_ids,
        hidden_size=target.hidden_size,
        dtype=run.engine.dtype,
        final_norm="post_norm",
        target_config_sha256=target.fingerprint,
        tokenizer_sha256=template.tokenizer_sha256,
        chat_template_sha256=template.sha256,
        engine=run.engine.name,
        engine_version="",
    )
    disk = DiskPlan(Path(spec.store), samples.plan, properties, spec.extraction.shard_bytes)
    return describe_plan(samples, disk, template.decode, keep_free=spec.extraction.keep_free_bytes)
