"""A run resolved against this host, before anything is touched: what each stage will do, why, and what stands in the way."""

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Literal, NamedTuple

from remote.agents.server.contract import EngineCommand
from remote.agents.server.plan import foresee_command
from remote.errors import Precondition
from remote.jobs import launch
from remote.pipeline import estimates, stages
from remote.pipeline.config import load_run
from remote.pipeline.fingerprints import UNDECIDED, combine, fingerprints
from remote.pipeline.given_store import ANOTHER_STORE, inspect_given_store
from remote.pipeline.judging import find_disturbance
from remote.pipeline.problems import Survey, survey
from remote.pipeline.reuse import Absent, Outdated, Reuse, Valid, has_checkpoint, inspect, was_begun_with
from remote.pipeline.stages import UNKNOWN_URL, Blueprint
from remote.protocol.progress import StageName
from remote.protocol.reports import RunPlan, StagePlan
from remote.protocol.run import RunConfig
from remote.protocol.specs import ServerSpec, Spec
from remote.telemetry.figures import bytes_text

UNKNOWN_TIME = "how long it takes is not known beforehand"
"""The risk of a run whose like this host has not seen."""

Action = Literal["run", "skip", "resume"]

_KEPT_BY_ENGINE = 7
"""Tokens of its context that SGLang 0.5.23 takes no prompt in; vLLM keeps one."""


class Decision(NamedTuple):
    """What to do about one artifact."""

    action: Action
    reason: str


class Found(NamedTuple):
    """What lies in the run's directory already."""

    store: Reuse
    mapping: Reuse
    drafter: Reuse
    drafter_report: Reuse
    baseline_report: Reuse
    verdict: Reuse
    store_to_go_on: bool
    checkpoint: bool
    store_is_given: bool


def plan_run(document: str, overrides: Mapping[str, str], *, root: Path, python: str) -> RunPlan:
    """The plan of the run file `document` with `overrides`; raises UsageError or NotFound where the file is wrong.

    `python` is the interpreter of the jobs. What is wrong with the host or the inputs is in `problems`.
    """
    return draw_plan(load_run(document, overrides), root=root, python=python)[0]


def draw_plan(run: RunConfig, *, root: Path, python: str) -> tuple[RunPlan, Blueprint]:
    """The plan of a run that was read before, and the blueprint to carry it out by."""
    surveyed = survey(run, root, python)
    marks = UNDECIDED if surveyed.inputs is None else fingerprints(run, surveyed.inputs)
    blueprint = Blueprint.draw(run, root, marks)
    planned = _plan_stages(blueprint, found := look(blueprint, thorough=False), surveyed, python)
    needed, free = sum(stage.bytes_needed or 0 for stage in planned), free_bytes(blueprint.layout.directory)
    problems = [*surveyed.problems, *_check_disk(blueprint.layout.directory, needed, free)]
    if run.extraction.source is not None and surveyed.inputs is not None and isinstance(found.store, Outdated):
        problems.append(f"the store that the run is given is damaged: {found.store.reason}. {ANOTHER_STORE}")
    facts = _facts(surveyed)
    plan = RunPlan(
        run=run,
        directory=str(blueprint.layout.directory),
        stages=planned,
        bytes_needed=needed,
        bytes_free=free,
        problems=problems,
        fingerprint=combine("plan", run, str(blueprint.layout.directory), marks, planned, problems, facts),
        risks=_risks(blueprint, found, needed, free),
        facts=facts,
    )
    return plan, blueprint


def _facts(surveyed: Survey) -> dict[str, str]:
    """What the plan is drawn from beside the run file and the run's directory, each in a few characters."""
    facts = {"roost": Path(__file__).resolve().parents[2].name[:16]}
    facts |= {name: f"version {version}" for name, version in surveyed.engines.items()}
    if surveyed.target is not None:
        facts["target.model"] = surveyed.target.fingerprint[:16]
    if surveyed.inputs is not None:
        train, store = surveyed.inputs.train, surveyed.inputs.store_source
        facts |= {"data.train": train.sha256[:16]} if train else {"extraction.source": (store or "")[:16]}
        facts["data.evaluation"] = surveyed.inputs.evaluation.sha256[:16]
        facts["vocabulary.source"] = (surveyed.inputs.mapping_source or "built here")[:16]
    return facts


def _risks(blueprint: Blueprint, found: Found, needed: int, free: int) -> list[str]:
    """What forbids nothing and should be known before it is done."""
    there = {"the store": found.store, "the mapping": found.mapping, "the drafter": found.drafter}
    risks = [
        f"{name} that is there is made anew, and the old one set aside: {reuse.reason}"
        for name, reuse in there.items()
        if isinstance(reuse, Outdated) and (reuse is not found.store or blueprint.run.extraction.source is None)
    ]
    if needed <= free < needed + needed // 10 + blueprint.run.extraction.keep_free_bytes:
        risks.append(
            f"the disk is nearly full afterwards: about {bytes_text(free - needed)} are left of {bytes_text(free)}, and estimates err"
        )
    context, longest = blueprint.run.engine.context_length, blueprint.run.data.max_length
    if context is not None and longest > context - _KEPT_BY_ENGINE and blueprint.run.extraction.source is None:
        risks.append(
            f"conversations of more than {context - _KEPT_BY_ENGINE:,} tokens would be quarantined, for the server refuses them: "
            f"engine.context_length is {context:,}, data.max_length {longest:,}"
        )
    if blueprint.run.vocabulary.minimum_coverage == 0:
        risks.append("vocabulary.minimum_coverage is 0: a mapping that covers little stops nothing")
    if needed and not any(isinstance(reuse, Valid) for reuse in there.values()):
        risks.append(UNKNOWN_TIME)
    return risks


def look(blueprint: Blueprint, *, thorough: bool) -> Found:
    """What is there of the run's artifacts; `thorough` reads them again in full."""
    layout, marks = blueprint.layout, blueprint.fingerprints
    if blueprint.run.extraction.source is None:
        store = inspect(layout.store, marks.extraction, thorough=thorough)
    else:
        store = inspect_given_store(layout.store, thorough=thorough)
    drafter_report = inspect(layout.drafter_report, marks.drafter_report, thorough=thorough)
    baseline_report = inspect(layout.baseline_report, marks.baseline_report, thorough=thorough)
    if isinstance(drafter_report, Valid) and isinstance(baseline_report, Valid):
        why = find_disturbance(blueprint)
        if why is not None:
            drafter_report = baseline_report = Outdated(why)
    return Found(
        store=store,
        mapping=inspect(layout.mapping, marks.vocabulary, thorough=thorough),
        drafter=inspect(layout.drafter, marks.training, thorough=thorough),
        drafter_report=drafter_report,
        baseline_report=baseline_report,
        verdict=inspect(layout.verdict, marks.verdict, thorough=thorough),
        store_to_go_on=isinstance(store, Absent) and was_begun_with(layout.store, marks.extraction),
        checkpoint=has_checkpoint(layout.checkpoints, marks.training),
        store_is_given=blueprint.run.extraction.source is not None,
    )


def decide(found: Found) -> dict[StageName, Decision]:
    """What every stage does, given what is there; servers only run for those who need them."""
    evaluated = isinstance(found.drafter_report, Valid) and isinstance(found.baseline_report, Valid)
    return {
        "preflight": Decision("run", "checks the inputs, the engine and the disk"),
        "server": _server(
            needed=not (found.store_is_given or isinstance(found.store, Valid)),
            why="no hidden states are to be captured",
        ),
        "extraction": _extraction(found),
        "vocabulary": _artifact(found.mapping, "the mapping"),
        "training": _training(found),
        "serving": _server(
            needed=not isinstance(found.drafter_report, Valid), why="the drafter has been measured already"
        ),
        "evaluation": (
            Decision("skip", "both reports are valid")
            if evaluated
            else _artifact(found.drafter_report, "the report of the drafter's arm")
            if not isinstance(found.drafter_report, Valid)
            else _artifact(found.baseline_report, "the report of the baseline")
        ),
        "verdict": (
            _artifact(found.verdict, "the verdict")
            if evaluated or not isinstance(found.verdict, Valid)
            else Decision("run", "the reports are made anew, and so is the verdict")
        ),
    }


def _artifact(found: Reuse, name: str) -> Decision:
    match found:
        case Valid():
            return Decision("skip", f"{name} is valid for the same inputs")
        case Outdated(reason=reason):
            return Decision("run", f"{name} that is there will be set aside: {reason}")
        case Absent(begun=True):
            return Decision("run", f"{name} that is there will be set aside: it was never finished")
        case Absent():
            return Decision("run", f"{name} is not there yet")


def _extraction(found: Found) -> Decision:
    if found.store_is_given:
        return Decision("skip", "learns from the store that it is given")
    if found.store_to_go_on and found.store == Absent(begun=True):
        return Decision("resume", "goes on after the last whole shard of the same inputs")
    return _artifact(found.store, "the store")


def _training(found: Found) -> Decision:
    decision = _artifact(found.drafter, "the drafter")
    if decision.action == "run" and found.checkpoint:
        return Decision("resume", "goes on from the newest checkpoint of the same training")
    return decision


def _server(*, needed: bool, why: str) -> Decision:
    return Decision("run", "serves the next stage") if needed else Decision("skip", why)


def _plan_stages(blueprint: Blueprint, found: Found, surveyed: Survey, python: str) -> list[StagePlan]:
    decisions, layout = decide(found), blueprint.layout
    sizes = _sizes(blueprint.run, surveyed)

    def stage(name: StageName, spec: Spec | None, output: Path | None) -> StagePlan:
        decision = decisions[name]
        skipped = decision.action == "skip"
        command = _command(spec, python) if spec is not None and (isinstance(spec, ServerSpec) or not skipped) else None
        return StagePlan(
            stage=name,
            action=decision.action,
            reason=_reason(decision, spec, None if skipped or name not in sizes else sizes[name][1]),
            command=[] if command is None else command.argv,
            environment={} if command is None else command.environment,
            output=None if output is None else str(output),
            bytes_needed=0 if skipped else sizes[name][0] if name in sizes else None,
            seconds=None,
        )

    return [
        stage("preflight", None, None),
        stage("server", stages.capture_server(blueprint), None),
        stage("extraction", stages.extraction(blueprint, UNKNOWN_URL), layout.store),
        stage("vocabulary", stages.vocabulary(blueprint), layout.mapping),
        stage("training", stages.training(blueprint), layout.drafter),
        stage("serving", stages.evaluation_server(blueprint, "drafter"), None),
        stage("evaluation", stages.evaluation(blueprint, "drafter", UNKNOWN_URL), layout.drafter_report),
        stage("verdict", None, layout.verdict),
    ]


def _reason(decision: Decision, spec: Spec | None, size: str | None) -> str:
    engine = spec.engine.name if isinstance(spec, ServerSpec) and decision.action == "run" else None
    return "; ".join(part for part in (decision.reason, engine and f"with {engine}", size) if part)


def _sizes(run: RunConfig, surveyed: Survey) -> dict[StageName, tuple[int, str]]:
    """Bytes and what they are made of, for the stages of which something is known."""
    target, train = surveyed.target, surveyed.train
    if target is None:
        return {}
    parameters = estimates.drafter_parameters(run, target)
    sizes: dict[StageName, tuple[int, str]] = {
        "vocabulary": (
            estimates.mapping_bytes(run, target),
            f"{run.vocabulary.draft_vocab_size:,} of {target.vocab_size:,} tokens",
        ),
        "training": (
            estimates.training_bytes(run, target),
            f"{parameters:,} parameters, {run.training.steps:,} steps",
        ),
    }
    if train is not None:
        samples = f"{train.count:,} conversations, at most about {train.tokens:,} tokens"
        sizes["extraction"] = (estimates.store_bytes(run, target, train), samples)
    return sizes


def _command(spec: Spec, python: str) -> "EngineCommand | launch.LaunchPlan | None":
    """The job's command; for a server that of its engine, with port 0 for the one that it will pick."""
    if isinstance(spec, ServerSpec):
        # An input that is missing or wrong is among the problems already.
        with suppress(Precondition):
            return foresee_command(spec, python=python)
        return None
    return launch.plan(spec, python)


def free_bytes(directory: Path) -> int:
    """What an ordinary user may still write where `directory` is or will be."""
    place = directory
    while not place.exists():
        place = place.parent
    found = os.statvfs(place)
    return found.f_bavail * found.f_frsize


def _check_disk(directory: Path, needed: int, free: int) -> list[str]:
    if needed <= free:
        return []
    sentence = f"the run will write about {bytes_text(needed)}, but {directory} has room for {bytes_text(free)}."
    return [f"{sentence} Free space there, name another directory, or lower data.max_samples."]
