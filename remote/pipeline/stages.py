"""The specs of the jobs that carry out a run, one function a job; pure."""

from pathlib import Path
from typing import NamedTuple

import msgspec

from remote.paths import resolve_path
from remote.pipeline.fingerprints import Fingerprints
from remote.pipeline.layout import RunLayout, lay_out
from remote.protocol.run import EngineConfig, RunConfig
from remote.protocol.specs import (
    Arm,
    Capture,
    DrafterServing,
    EngineSection,
    EvaluationSpec,
    ExtractionSpec,
    ServerSpec,
    TrainingSpec,
    VocabularySpec,
)

UNKNOWN_URL = "http://127.0.0.1:0"
"""Stands in a plan for the address that a server picks when it runs."""


class Blueprint(NamedTuple):
    """A run with its place and its fingerprints: what every spec is drawn from."""

    run: RunConfig
    root: Path
    layout: RunLayout
    fingerprints: Fingerprints

    @classmethod
    def draw(cls, run: RunConfig, root: Path, fingerprints: Fingerprints) -> "Blueprint":
        """The blueprint of `run` below `root`."""
        return cls(run, root, lay_out(run, root), fingerprints)

    def path(self, path: str) -> str:
        """A path of the run file as an absolute one."""
        return str(resolve_path(self.root, path))


def capture_server(plan: Blueprint) -> ServerSpec:
    """The server that captures hidden states."""
    return ServerSpec(
        model=plan.path(plan.run.target.model), engine=_located(plan, plan.run.engine), capture=_capture(plan)
    )


def extraction(plan: Blueprint, url: str) -> ExtractionSpec:
    """Fill the store through the capturing server at `url`."""
    data = plan.run.data
    return ExtractionSpec(
        url=url,
        capture=_capture(plan),
        target_model=plan.path(plan.run.target.model),
        conversations=plan.path(data.train),
        store=str(plan.layout.store),
        extraction=plan.run.extraction,
        max_length=data.max_length,
        max_samples=data.max_samples,
        target_revision=plan.run.target.revision,
        chat_template_kwargs=plan.run.target.chat_template_kwargs,
        fingerprint=plan.fingerprints.extraction,
    )


def vocabulary(plan: Blueprint) -> VocabularySpec:
    """Build or copy the mapping."""
    config = plan.run.vocabulary
    source = None if config.source is None else plan.path(config.source)
    return VocabularySpec(
        store=str(plan.layout.store),
        target_model=plan.path(plan.run.target.model),
        mapping=str(plan.layout.mapping),
        counts=str(plan.layout.counts),
        vocabulary=msgspec.structs.replace(config, source=source),
        fingerprint=plan.fingerprints.vocabulary,
    )


def training(plan: Blueprint) -> TrainingSpec:
    """Train and export the drafter."""
    config = plan.run.training
    begun = None if config.init_from is None else plan.path(config.init_from)
    kept = config.trackers.directory
    trackers = msgspec.structs.replace(config.trackers, directory=None if kept is None else plan.path(kept))
    return TrainingSpec(
        store=str(plan.layout.store),
        mapping=str(plan.layout.mapping),
        target_model=plan.path(plan.run.target.model),
        drafter=str(plan.layout.drafter),
        checkpoints=str(plan.layout.checkpoints),
        training=msgspec.structs.replace(config, init_from=begun, trackers=trackers),
        fingerprint=plan.fingerprints.training,
    )


def evaluation_server(plan: Blueprint, arm: Arm) -> ServerSpec:
    """The server of one arm: both answer in the same dtype on the same backend, only the drafter differs."""
    engine = _located(plan, plan.run.serving_engine)
    drafter = DrafterServing(
        model=str(plan.layout.drafter),
        speculation=plan.run.speculation,
        layer_ids=plan.run.extraction.layer_ids,
        mapping=str(plan.layout.mapping),
    )
    return ServerSpec(
        model=plan.path(plan.run.target.model),
        engine=msgspec.structs.replace(
            engine, dtype=plan.run.evaluation.dtype, attention_backend=_evaluated_backend(plan.run)
        ),
        section=section_of(plan.run),
        drafter=drafter if arm == "drafter" else None,
        chat_template_kwargs=plan.run.target.chat_template_kwargs,
    )


def evaluation(plan: Blueprint, arm: Arm, url: str, server_pid: int | None = None) -> EvaluationSpec:
    """Measure one arm; the baseline is measured second and compares its outputs with the drafter's."""
    of_drafter = arm == "drafter"
    return EvaluationSpec(
        arm=arm,
        url=url,
        target_model=plan.path(plan.run.target.model),
        prompts=plan.path(plan.run.data.evaluation),
        report=str(plan.layout.drafter_report if of_drafter else plan.layout.baseline_report),
        evaluation=msgspec.structs.replace(plan.run.evaluation, attention_backend=_evaluated_backend(plan.run)),
        fingerprint=plan.fingerprints.drafter_report if of_drafter else plan.fingerprints.baseline_report,
        reference=None if of_drafter else str(plan.layout.drafter_report),
        drafter=str(plan.layout.drafter) if of_drafter else None,
        server_pid=server_pid,
        chat_template_kwargs=plan.run.target.chat_template_kwargs,
    )


def section_of(run: RunConfig) -> EngineSection:
    """Where the run file describes the engine that serves both arms of the evaluation."""
    return "engine" if run.serving is None else "serving"


def _evaluated_backend(run: RunConfig) -> str | None:
    """Names of backends are an engine's own."""
    if run.serving is not None:
        return run.serving.attention_backend
    return run.evaluation.attention_backend or run.engine.attention_backend


def _located(plan: Blueprint, engine: EngineConfig) -> EngineConfig:
    """The engine with its interpreter's path made absolute, for one launch: what is measured or captured is of one engine."""
    python = None if engine.python is None else plan.path(engine.python)
    return msgspec.structs.replace(engine, python=python, restarts=0)


def _capture(plan: Blueprint) -> Capture:
    config = plan.run.extraction
    return Capture(
        layer_ids=config.layer_ids, spool_directory=str(plan.layout.spool), memory_bytes=config.capture_memory_bytes
    )
