"""The last stage: from the two reports of a run to its verdict."""

from pathlib import Path

import msgspec

from remote.artifacts.manifest import read_manifest
from remote.errors import WorkFailed
from remote.pipeline.stages import Blueprint
from remote.protocol.reports import EvaluationReport, VerdictReport


def judge_run(blueprint: Blueprint) -> VerdictReport:
    """Judge the reports of the run and write the verdict."""
    from remote.pipeline.verdict import judge, write_verdict

    layout = blueprint.layout
    verdict = judge(
        _read(layout.baseline_report),
        _read(layout.drafter_report),
        blueprint.run.verdict,
        coverage=_coverage(layout.mapping),
    )
    write_verdict(layout.verdict, verdict, fingerprint=blueprint.fingerprints.verdict)
    return verdict


def read_judgement(directory: Path) -> VerdictReport:
    return msgspec.json.decode((directory / "verdict.json").read_bytes(), type=VerdictReport)


def _read(directory: Path) -> EvaluationReport:
    return msgspec.json.decode((directory / "report.json").read_bytes(), type=EvaluationReport)


def _coverage(mapping: Path) -> float | None:
    """The share of target tokens that the draft vocabulary covers, as whoever made the mapping counted it."""
    coverage = read_manifest(mapping).properties.get("coverage")
    return float(coverage) if isinstance(coverage, (int, float)) else None
