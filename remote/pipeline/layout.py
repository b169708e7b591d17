"""Where the artifacts of a run lie."""

from pathlib import Path
from typing import NamedTuple

from remote.paths import resolve_path
from remote.protocol.run import RunConfig


class RunLayout(NamedTuple):
    """The directory of a run and everything in it, but for a store that it was given; all paths are absolute."""

    directory: Path
    store: Path
    mapping: Path
    counts: Path
    checkpoints: Path
    drafter: Path
    baseline_report: Path
    drafter_report: Path
    verdict: Path
    spool: Path
    tuning: Path

    def artifacts(self) -> list[tuple[str, Path]]:
        """The kinds and directories of what a finished run leaves behind."""
        return [
            ("store", self.store),
            ("mapping", self.mapping),
            ("drafter", self.drafter),
            ("evaluation", self.drafter_report),
            ("evaluation", self.baseline_report),
            ("verdict", self.verdict),
        ]


def lay_out(run: RunConfig, root: Path) -> RunLayout:
    """The layout of `run` below `root`, or in the directory that the run names."""
    directory = resolve_path(root, run.directory or f"runs/{run.name}")
    return RunLayout(
        directory=directory,
        store=directory / "store" if run.extraction.source is None else resolve_path(root, run.extraction.source),
        mapping=directory / "mapping",
        counts=directory / "counts",
        checkpoints=directory / "checkpoints",
        drafter=directory / "drafter",
        baseline_report=directory / "evaluation-baseline",
        drafter_report=directory / "evaluation-drafter",
        verdict=directory / "verdict",
        spool=directory / "spool",
        tuning=directory / "tuning",
    )
