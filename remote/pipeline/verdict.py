"""Whether a drafter helps: both arms' measured rates on the same prompts, and what to look at when it does not."""

import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from remote.artifacts.atomic import publish_directory, write_atomic
from remote.artifacts.manifest import Manifest, read_manifest, write_manifest
from remote.errors import UsageError
from remote.jobs.store import JobStore
from remote.pipeline.causes import find_causes
from remote.pipeline.evidence import Evidence
from remote.pipeline.finished import report_directory
from remote.pipeline.speedup import acceptance_by_category, acceptance_by_position, judge_level, pair
from remote.protocol.reports import (
    Decision,
    Divergence,
    EvaluationReport,
    LevelVerdict,
    Provenance,
    VerdictReport,
)
from remote.protocol.run import VerdictConfig

FORMAT = "roost-verdict"
PRODUCER = "roost verdict 2"
VERDICT_NAME = "verdict.json"

GOOD_ACCEPTANCE = 1.5
"""From here on a drafter that slows serving down is rather too expensive than too weak."""
FEW_PROMPTS = 20
SHOWN_DIVERGENCES = 50
"""The reports of the arms hold all of them."""


def judge(
    baseline: EvaluationReport,
    drafter: EvaluationReport,
    config: VerdictConfig,
    *,
    evidence: Evidence,
    provenance: Provenance | None = None,
    seed: int = 0,
) -> VerdictReport:
    """Promote when every level that counts is surely faster than the minimum, reject when one surely is not, outputs differ or
    too little is accepted, else inconclusive; also where others were at work beside one arm alone.

    "Surely" is the 95% interval of a bootstrap paired by prompt. `baseline` holds the comparison of the outputs. Raises
    UsageError when the arms share no level or no prompt.
    """
    others = {level.concurrency: level for level in drafter.levels}
    both = [(level, others[level.concurrency]) for level in baseline.levels if level.concurrency in others]
    if not both:
        raise UsageError("the two arms have no level in common", hint="evaluate both with the same concurrency")
    levels = [
        judge_level(
            *one,
            minimum_speedup=config.minimum_speedup,
            counts=config.concurrency is None or one[0].concurrency in config.concurrency,
            cores=baseline.cores,
            seed=seed,
        )
        for one in both
    ]
    outputs = _count_outputs(len(pair(*both[0])), baseline.divergences)
    first, served = levels[0], both[0][1]
    decision, reasons = _decide(levels, outputs, first.acceptance_length, config, baseline.cores)
    positions = acceptance_by_position(served)
    return VerdictReport(
        decision=decision,
        baseline_tokens_per_s=first.baseline_tokens_per_s,
        drafter_tokens_per_s=first.drafter_tokens_per_s,
        speedup=first.speedup,
        speedup_interval=first.speedup_interval,
        acceptance_length=first.acceptance_length,
        coverage=evidence.coverage,
        prompts=outputs.prompts,
        identical_outputs=outputs.prompts - outputs.near_ties - outputs.real,
        near_ties=outputs.near_ties,
        real_divergences=outputs.real,
        dtype=baseline.dtype,
        attention_backend=baseline.attention_backend,
        engine=f"{baseline.engine} {baseline.engine_version}",
        reasons=reasons,
        advice=_advise(decision, levels, outputs),
        levels=levels,
        categories=acceptance_by_category(served),
        position_acceptance=positions,
        divergences=sorted(baseline.divergences, key=lambda one: one.near_tie)[:SHOWN_DIVERGENCES],
        causes=find_causes(evidence, served, positions),
        provenance=provenance,
        cores=baseline.cores,
    )


class _Outputs(NamedTuple):
    """Prompts, and those of them whose outputs part at near-ties alone or really, at whichever level."""

    prompts: int
    near_ties: int
    real: int


def _count_outputs(prompts: int, divergences: Sequence[Divergence]) -> _Outputs:
    really = {one.prompt_id for one in divergences if not one.near_tie}
    nearly = {one.prompt_id for one in divergences} - really
    return _Outputs(prompts, len(nearly), len(really))


def _decide(
    levels: Sequence[LevelVerdict], outputs: _Outputs, acceptance: float, config: VerdictConfig, cores: int | None
) -> tuple[Decision, list[str]]:
    counting = [level for level in levels if level.counts]
    asked = f"{config.minimum_speedup:g}x"
    reasons: list[str] = []
    if outputs.real:
        reasons.append(f"{outputs.real} of {outputs.prompts} greedy outputs differ from those without the drafter")
    reasons += [
        f"{_with(level)} the speed-up is {level.speedup:.2f}x, at most {level.speedup_interval[1]:.2f}x; {asked} is asked for"
        for level in counting
        if level.decision == "reject"
    ]
    if acceptance < config.minimum_acceptance_length:
        reasons.append(f"the acceptance length is {acceptance:.2f}; {config.minimum_acceptance_length:g} is asked for")
    if reasons:
        return "reject", reasons
    unsure = [level for level in counting if level.decision == "inconclusive"]
    if unsure:
        return "inconclusive", [
            describe_disturbance(level, cores)
            if level.disturbed
            else f"{_with(level)} the speed-up lies between {level.speedup_interval[0]:.2f}x and "
            f"{level.speedup_interval[1]:.2f}x ({_how_sure(outputs)}), which is not all above {asked}"
            for level in unsure
        ]
    faster = [
        f"{_with(level)} the speed-up lies between {level.speedup_interval[0]:.2f}x and {level.speedup_interval[1]:.2f}x "
        f"({_how_sure(outputs)}), all above {asked}"
        for level in counting
    ]
    return "promote", [*faster, f"the outputs are the same, at an acceptance length of {acceptance:.2f}"]


def describe_disturbance(level: LevelVerdict, cores: int | None) -> str:
    """Why the level's speed-up says nothing."""
    return (
        f"{_with(level)} {level.speedup:.2f}x is not conclusive: other processes used {level.drafter_others_cores:.1f} of "
        f"{cores} cores beside the drafter's arm, {level.baseline_others_cores:.1f} beside the other"
    )


def _how_sure(outputs: _Outputs) -> str:
    return f"95% interval over {outputs.prompts} prompts"


def _with(level: LevelVerdict) -> str:
    return "with one request at a time" if level.concurrency == 1 else f"with {level.concurrency} requests at a time"


def _advise(decision: Decision, levels: Sequence[LevelVerdict], outputs: _Outputs) -> list[str]:
    """What to do about the measurement and the serving; what to look at in the drafter is in the causes."""
    advice: list[str] = []
    by_decision = {name: [one for one in levels if one.decision == name] for name in ("promote", "reject")}
    if outputs.real:
        advice.append(
            "compare the arms in float32 on one attention backend; a real difference there is an engine fault"
        )
    if by_decision["promote"] and by_decision["reject"]:
        helps, hurts = (", ".join(str(one.concurrency) for one in by_decision[name]) for name in ("promote", "reject"))
        named = " and name those as verdict.concurrency" if any(one.counts for one in by_decision["reject"]) else ""
        advice.append(
            f"it helps at {helps} and not at {hurts} requests at a time: serve with it only where the loads are such{named}"
        )
    first = levels[0]
    if decision != "promote" and not first.disturbed and first.acceptance_length >= GOOD_ACCEPTANCE:
        advice.append(
            f"a verification takes as long as {first.step_cost:.2f} plain steps and brings {first.acceptance_length:.2f} tokens: "
            f"fewer speculative steps or a smaller draft vocabulary make it cheaper"
        )
    counting = [level for level in levels if level.counts]
    if any(level.disturbed for level in counting):
        advice.append(
            "end what else works on the host, or wait for it, and start the run again: both arms are measured anew, nothing else"
        )
    if decision == "inconclusive" and any(
        level.decision == "inconclusive" and not level.disturbed for level in counting
    ):
        advice.append("measure more prompts, on a quieter host")
    if outputs.prompts < FEW_PROMPTS:
        advice.append(f"{outputs.prompts} prompts are few; {FEW_PROMPTS} or more make the interval trustworthy")
    return advice


def write_verdict(directory: Path, verdict: VerdictReport, *, fingerprint: str) -> None:
    """Publish the verdict as an artifact; raises FileExistsError when one is there."""
    part = directory.with_name(f"{directory.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    write_atomic(part / VERDICT_NAME, msgspec.json.format(msgspec.json.encode(verdict), indent=1))
    manifest = Manifest(
        format=FORMAT,
        version=1,
        fingerprint=fingerprint,
        inputs={},
        producer=PRODUCER,
        created_at=time.time(),
        files=[],
        properties={"decision": verdict.decision, "speedup": verdict.speedup},
    )
    write_manifest(part, manifest, [VERDICT_NAME])
    publish_directory(part, directory)


def read_verdict(store: JobStore, job_id: str) -> VerdictReport:
    """The verdict of the run `job_id`; raises as `report_directory` does."""
    return verdict_in(report_directory(store, job_id, "run"))


def verdict_in(directory: Path) -> VerdictReport:
    """The verdict that lies in `directory`, whichever run came to it; raises Precondition where there is none."""
    read_manifest(directory)
    return msgspec.json.decode((directory / VERDICT_NAME).read_bytes(), type=VerdictReport)
