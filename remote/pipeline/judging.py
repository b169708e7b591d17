"""The last stage: from the two reports of a run to its verdict."""

from pathlib import Path
from typing import TypeVar

import msgspec

from remote.errors import WorkFailed
from remote.pipeline.evidence import read_evidence, read_provenance
from remote.pipeline.speedup import is_disturbed, judge_level
from remote.pipeline.stages import Blueprint
from remote.pipeline.verdict import VERDICT_NAME, judge, write_verdict
from remote.protocol.reports import EvaluationReport, VerdictReport

_REPORT_NAME = "report.json"

_T = TypeVar("_T")


def compare_arms(blueprint: Blueprint) -> str:
    """Both arms' rates at each load and the speed-up, in words; raises WorkFailed where a report cannot be read."""
    baseline, drafter = _read_arms(blueprint)
    served = {level.concurrency: level for level in drafter.levels}
    levels = [judge_level(level, served[level.concurrency], minimum_speedup=1.0) for level in baseline.levels]
    return "; ".join(
        f"{'one' if level.concurrency == 1 else level.concurrency} at a time {level.baseline_tokens_per_s:.1f} tok/s "
        f"without the drafter, {level.drafter_tokens_per_s:.1f} with it: {level.speedup:.2f}x"
        for level in levels
    )


def find_disturbance(blueprint: Blueprint) -> str | None:
    """Why the reports that are there, at loads that count, are not to be compared; None where they are or cannot be read."""
    try:
        baseline, drafter = _read_arms(blueprint)
    except WorkFailed:
        return None
    counting = blueprint.run.verdict.concurrency
    served = {level.concurrency: level for level in drafter.levels}
    for level in baseline.levels:
        other = served.get(level.concurrency)
        if other is None or (counting is not None and level.concurrency not in counting):
            continue
        if is_disturbed(level, other, baseline.cores):
            return f"other processes used {other.others_cores:.1f} of {baseline.cores} cores beside it and {level.others_cores:.1f} beside the baseline"
    return None


def judge_run(blueprint: Blueprint) -> VerdictReport:
    """Judge the reports of the run and write the verdict; raises WorkFailed where one cannot be read or written."""
    layout = blueprint.layout
    baseline, drafter = _read_arms(blueprint)
    verdict = judge(
        baseline,
        drafter,
        blueprint.run.verdict,
        evidence=read_evidence(blueprint, baseline),
        provenance=read_provenance(blueprint, [baseline, drafter]),
    )
    try:
        write_verdict(layout.verdict, verdict, fingerprint=blueprint.fingerprints.verdict)
    except OSError as error:
        raise WorkFailed(f"the verdict could not be written to {layout.verdict}: {error}") from error
    return verdict


def read_judgement(blueprint: Blueprint) -> VerdictReport:
    """The verdict that was written before; raises WorkFailed where it cannot be read."""
    return _read(blueprint.layout.verdict / VERDICT_NAME, VerdictReport)


def _read_arms(blueprint: Blueprint) -> tuple[EvaluationReport, EvaluationReport]:
    """The baseline's report and the drafter's."""
    layout = blueprint.layout
    baseline = _read(layout.baseline_report / _REPORT_NAME, EvaluationReport)
    return baseline, _read(layout.drafter_report / _REPORT_NAME, EvaluationReport)


def _read(path: Path, what: type[_T]) -> _T:
    try:
        return msgspec.json.decode(path.read_bytes(), type=what)
    except (OSError, msgspec.DecodeError) as error:
        raise WorkFailed(
            f"{path} cannot be read: {error}",
            hint="Remove its directory and start the run again: it will be made anew.",
        ) from error
