"""Whether a drafter helps: both arms' measured rates on the same prompts, and what to look at when it does not."""

import shutil
import time
from pathlib import Path

import msgspec
import numpy as np

from remote.artifacts.atomic import publish_directory, write_atomic
from remote.artifacts.manifest import Manifest, read_manifest, write_manifest
from remote.errors import NotFound, UsageError
from remote.jobs.store import JobStore
from remote.pipeline.layout import lay_out
from remote.protocol.reports import EvaluationReport, PromptResult, VerdictReport
from remote.protocol.run import VerdictConfig
from remote.protocol.specs import RunSpec

FORMAT = "roost-verdict"
PRODUCER = "roost verdict 1"
VERDICT_NAME = "verdict.json"

_RESAMPLES = 2000
_INTERVAL_PERCENT = (2.5, 97.5)
_LOW_COVERAGE = 0.8
_FEW_PROMPTS = 20


def judge(
    baseline: EvaluationReport,
    drafter: EvaluationReport,
    config: VerdictConfig,
    *,
    coverage: float | None,
    seed: int = 0,
) -> VerdictReport:
    """Promote when the speed-up is surely above the minimum, reject when it surely is not or outputs differ, else inconclusive.

    "Surely" is the 95% interval of a paired bootstrap over the prompts. `baseline` holds the comparison of the outputs.
    Raises UsageError when the arms share no prompt.
    """
    pairs = _pair(baseline, drafter)
    speedup = drafter.decode_tokens_per_s / baseline.decode_tokens_per_s
    low, high = _interval(pairs, seed)
    acceptance = drafter.acceptance_length or 1.0
    near_ties = sum(divergence.near_tie for divergence in baseline.divergences)
    real = len(baseline.divergences) - near_ties
    reasons: list[str] = []
    if real:
        reasons.append(f"{real} of {baseline.compared_prompts} greedy outputs differ from those without the drafter")
    if high <= config.minimum_speedup:
        reasons.append(f"the speed-up is at most {high:.2f}x, {config.minimum_speedup:g}x is asked for")
    if acceptance < config.minimum_acceptance_length:
        reasons.append(f"the acceptance length is {acceptance:.2f}, {config.minimum_acceptance_length:g} is asked for")
    decision = "reject" if reasons else "promote"
    if decision == "promote" and low <= config.minimum_speedup:
        decision = "inconclusive"
        reasons.append(
            f"the speed-up lies between {low:.2f}x and {high:.2f}x: not surely above {config.minimum_speedup:g}x"
        )
    if decision == "promote":
        reasons.append(
            f"surely faster: at least {low:.2f}x at an acceptance length of {acceptance:.2f}, the same outputs"
        )
    return VerdictReport(
        decision=decision,
        baseline_tokens_per_s=baseline.decode_tokens_per_s,
        drafter_tokens_per_s=drafter.decode_tokens_per_s,
        speedup=speedup,
        speedup_interval=(low, high),
        acceptance_length=acceptance,
        coverage=coverage,
        prompts=len(pairs),
        identical_outputs=baseline.compared_prompts - len(baseline.divergences),
        near_ties=near_ties,
        real_divergences=real,
        dtype=baseline.dtype,
        attention_backend=baseline.attention_backend,
        engine=f"{baseline.engine} {baseline.engine_version}",
        reasons=reasons,
        advice=_advice(decision, acceptance, coverage, len(pairs), real),
    )


def _pair(baseline: EvaluationReport, drafter: EvaluationReport) -> list[tuple[PromptResult, PromptResult]]:
    others = {prompt.prompt_id: prompt for prompt in drafter.prompts}
    pairs = [(prompt, others[prompt.prompt_id]) for prompt in baseline.prompts if prompt.prompt_id in others]
    if not pairs:
        raise UsageError("the two arms have no prompt in common", hint="evaluate both on the same file")
    return pairs


def _interval(pairs: list[tuple[PromptResult, PromptResult]], seed: int) -> tuple[float, float]:
    figures = np.array([[*_tokens_and_seconds(one), *_tokens_and_seconds(other)] for one, other in pairs])
    chosen = np.random.default_rng(seed).integers(0, len(pairs), (_RESAMPLES, len(pairs)))
    base_tokens, base_seconds, draft_tokens, draft_seconds = figures[chosen].sum(axis=1).T
    ratios = (draft_tokens / draft_seconds) / (base_tokens / base_seconds)
    low, high = np.percentile(ratios, _INTERVAL_PERCENT)
    return float(low), float(high)


def _tokens_and_seconds(prompt: PromptResult) -> tuple[float, float]:
    """Never zero, so that a prompt answered with a single token cannot divide by nothing."""
    return max(len(prompt.output_ids) - 1, 1e-9), max(prompt.end_to_end_s - prompt.time_to_first_token_s, 1e-9)


def _advice(decision: str, acceptance: float, coverage: float | None, prompts: int, real: int) -> list[str]:
    advice: list[str] = []
    if real:
        advice.append(
            "compare the arms in float32 on one attention backend; a real difference there is an engine fault"
        )
    if decision != "promote" and coverage is not None and coverage < _LOW_COVERAGE:
        advice.append(f"the draft vocabulary covers {coverage:.0%} of the answers: a larger one accepts more")
    if decision == "reject" and acceptance < 1.5:
        advice.append("check that the captured layer ids are those in the drafter's config, and its context length")
        advice.append("train on more of the target's own answers, or longer")
    if decision == "inconclusive":
        advice.append("measure more prompts, on a quieter host")
    if decision != "promote" and acceptance >= 1.5:
        advice.append(
            "the drafter is accepted but costs too much here: fewer speculative steps, or a smaller draft vocabulary"
        )
    if prompts < _FEW_PROMPTS:
        advice.append(f"{prompts} prompts are few; 20 or more make the interval trustworthy")
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
    """The verdict of the run `job_id`; raises NotFound before there is one, UsageError for a job that is no run."""
    spec = store.get(job_id).spec
    if not isinstance(spec, RunSpec):
        raise UsageError(f"{job_id} is not a run", hint="`roost jobs` lists the runs")
    directory = lay_out(spec.run, store.root).verdict
    if not (directory / VERDICT_NAME).is_file():
        raise NotFound(f"run {job_id} has no verdict yet", hint="wait for it: `roost wait` follows a run to its end")
    read_manifest(directory)
    return msgspec.json.decode((directory / VERDICT_NAME).read_bytes(), type=VerdictReport)
