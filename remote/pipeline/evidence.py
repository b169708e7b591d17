"""What a run's artifacts tell of a drafter that serves badly, and where everything comes from."""

import json
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from remote.agents.server.drafter import read_layer_ids
from remote.agents.server.plan import engine_command, read_model_config
from remote.artifacts.manifest import Manifest, read_manifest
from remote.engines.layer_ids import to_sglang
from remote.errors import Precondition, RoostError
from remote.pipeline import stages
from remote.pipeline.inputs import describe_target
from remote.pipeline.stages import Blueprint
from remote.protocol.reports import ArmServer, EvaluationReport, Provenance
from remote.protocol.run import EngineName
from remote.protocol.specs import Arm

_RELEASE = Path(__file__).resolve().parents[2].name


class Evidence(NamedTuple):
    """What is known of a drafter, its training and its serving; None is what nobody noted.

    `coverage` is over the answers that it was trained on, `evaluated_coverage` over the target's answers in the evaluation.
    Layer ids are the engine's: those that match what was captured, and those in the drafter's config. `positions` is how far the
    drafter can count, `window` the longest text that it was trained on, in tokens. `simulated_acceptance` is the acceptance
    length on test text at training time with as many proposals as serving makes, `first_accuracy` how often the first
    proposal was right there.
    """

    proposals: int
    coverage: float | None = None
    evaluated_coverage: float | None = None
    draft_vocab_size: int | None = None
    target_vocab_size: int | None = None
    captured_layer_ids: list[int] | None = None
    served_layer_ids: list[int] | None = None
    positions: int | None = None
    served_context: int | None = None
    window: int | None = None
    conversations: int | None = None
    tokens: int | None = None
    steps: int | None = None
    trained_tokens: int | None = None
    simulated_acceptance: float | None = None
    first_accuracy: float | None = None


def read_evidence(plan: Blueprint, baseline: EvaluationReport) -> Evidence:
    """What the artifacts of the run and the target's own answers say; whatever cannot be read is not known."""
    layout, run = plan.layout, plan.run
    mapping, store = _properties(layout.mapping), _properties(layout.store)
    summary = _properties(layout.drafter).get("summary") or {}
    drafter = _read_json(layout.drafter / "config.json")
    target = _read_json(Path(plan.path(run.target.model)) / "config.json")
    text = target.get("text_config", target)
    proposals = run.speculation.num_steps
    return Evidence(
        proposals=proposals,
        coverage=mapping.get("coverage"),
        evaluated_coverage=_coverage(layout.mapping, baseline),
        draft_vocab_size=drafter.get("draft_vocab_size"),
        target_vocab_size=text.get("vocab_size"),
        captured_layer_ids=_by_the_engine(run.serving_engine.name, store.get("layer_ids"), target),
        served_layer_ids=read_layer_ids(drafter, run.serving_engine.name),
        positions=drafter.get("max_position_embeddings"),
        served_context=run.serving_engine.context_length or text.get("max_position_embeddings"),
        window=min(run.data.max_length, run.training.sequence_length),
        conversations=store.get("samples"),
        tokens=store.get("tokens"),
        steps=summary.get("steps"),
        trained_tokens=summary.get("tokens"),
        simulated_acceptance=summary.get(f"test_acceptance_length_{proposals}", summary.get("test_acceptance_length")),
        first_accuracy=summary.get("test_accuracy_0"),
    )


def read_provenance(plan: Blueprint, reports: Sequence[EvaluationReport]) -> Provenance:
    """Where the figures of `reports`, at least one, come from."""
    layout, run = plan.layout, plan.run
    model = plan.path(run.target.model)
    fingerprint = None
    with suppress(RoostError):
        fingerprint = describe_target(Path(model)).fingerprint
    return Provenance(
        run=run.name,
        host_name=reports[0].host_name,
        devices=reports[0].devices,
        judged_at=time.time(),
        release=_RELEASE,
        model=model,
        model_fingerprint=fingerprint,
        drafter=str(layout.drafter),
        drafter_sha256=_file_hash(layout.drafter, "model.safetensors"),
        mapping_sha256=_file_hash(layout.mapping, "d2t.npy"),
        train=plan.path(run.data.train),
        train_sha256=_input_hash(layout.store, "conversations"),
        evaluation=plan.path(run.data.evaluation),
        evaluation_sha256=_input_hash(layout.baseline_report, "prompts"),
        max_tokens=run.evaluation.max_tokens,
        servers=[_server(plan, report.arm, report.measured_at) for report in reports],
    )


def _server(plan: Blueprint, arm: Arm, measured_at: float) -> ArmServer:
    spec, command = stages.evaluation_server(plan, arm), None
    with suppress(Precondition):
        command = engine_command(spec, python=sys.executable, port=0, model_config=read_model_config(spec.model))
    return ArmServer(
        arm=arm,
        measured_at=measured_at,
        command=[] if command is None else command.argv,
        environment={} if command is None else command.environment,
    )


def _by_the_engine(engine: EngineName, layer_ids: list[int] | None, target: dict[str, Any]) -> list[int] | None:
    if engine == "vllm":
        return layer_ids
    try:
        return layer_ids and to_sglang(
            layer_ids,
            architecture=target["architectures"][0],
            num_hidden_layers=int(target.get("text_config", target)["num_hidden_layers"]),
        )
    except (KeyError, ValueError):
        return None


def _coverage(mapping: Path, baseline: EvaluationReport) -> float | None:
    answers = [token for prompt in baseline.levels[0].prompts for token in prompt.output_ids]
    try:
        offsets = np.load(mapping / "d2t.npy", allow_pickle=False)
    except (OSError, ValueError):
        return None
    return float(np.isin(answers, offsets + np.arange(len(offsets))).mean()) if answers else None


def _manifest(directory: Path) -> Manifest | None:
    try:
        return read_manifest(directory)
    except Precondition:
        return None


def _properties(directory: Path) -> dict[str, Any]:
    manifest = _manifest(directory)
    return {} if manifest is None else manifest.properties


def _file_hash(directory: Path, name: str) -> str | None:
    manifest = _manifest(directory)
    return next((file.sha256 for file in manifest.files if file.name == name), None) if manifest else None


def _input_hash(directory: Path, name: str) -> str | None:
    manifest = _manifest(directory)
    return None if manifest is None else manifest.inputs.get(name)


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}
