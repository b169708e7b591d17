"""Writes a verdict's page, its plots and its figures into a directory."""

from pathlib import Path

import msgspec

from console.errors import UsageError
from console.report.markdown import verdict_markdown
from console.report.plots import draw_plots
from remote.protocol.reports import VerdictReport

PAGE, FIGURES = "report.md", "verdict.json"


def write_verdict(verdict: VerdictReport, directory: Path) -> list[Path]:
    """The files of the report, the page first; each appears whole and replaces the one of an earlier report.

    Raises UsageError where the directory cannot be written.
    """
    plots = draw_plots(verdict)
    page = verdict_markdown(verdict, list(plots))
    figures = msgspec.json.format(msgspec.json.encode(verdict), indent=1) + b"\n"
    files = {PAGE: page.encode(), FIGURES: figures, **plots}
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
