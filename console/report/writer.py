"""Writes the page of a verdict or a tuning, its plots and its figures into a directory."""

from pathlib import Path

import msgspec

from console.errors import UsageError
from console.report.markdown import verdict_markdown
from console.report.plots import draw_plots, draw_tuning
from console.report.tuning import tuning_markdown
from remote.protocol.reports import VerdictReport
from remote.protocol.tuning import TuningReport

PAGE, FIGURES, TUNING_FIGURES = "report.md", "verdict.json", "tuning.json"


def write_verdict(verdict: VerdictReport, directory: Path) -> list[Path]:
    """The files of the report, the page first; each appears whole and replaces the one of an earlier report.

    Raises UsageError where the directory cannot be written.
    """
    plots = draw_plots(verdict)
    page = verdict_markdown(verdict, list(plots))
    return _write_all(directory, {PAGE: page.encode(), FIGURES: _figures(verdict), **plots})


def write_tuning(report: TuningReport, directory: Path) -> list[Path]:
    """As `write_verdict`, of a tuning."""
    plots = draw_tuning(report)
    page = tuning_markdown(report, list(plots))
    return _write_all(directory, {PAGE: page.encode(), TUNING_FIGURES: _figures(report), **plots})


def _figures(report: VerdictReport | TuningReport) -> bytes:
    return msgspec.json.format(msgspec.json.encode(report), indent=1) + b"\n"


def _write_all(directory: Path, files: dict[str, bytes]) -> list[Path]:
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            _write(directory / name, content)
    except OSError as error:
        raise UsageError(
            f"the report cannot be written to {directory}: {error.strerror}", hint="name another directory as --output"
        ) from error
    return [directory / name for name in files]


def _write(path: Path, content: bytes) -> None:
    part = path.with_name(f".{path.name}.part")
    part.write_bytes(content)
    part.replace(path)
