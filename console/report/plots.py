"""The plots of a verdict and of a tuning as SVG; the only module that loads matplotlib, which takes most of a second."""

import io
import warnings
from collections.abc import Callable
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from console.state.sanitize import one_line
from remote.protocol.reports import Decision, VerdictReport
from remote.protocol.tuning import TrialReport, TuningReport

SPEEDUP, ACCEPTANCE, THROUGHPUT, TRIALS = "speedup.svg", "acceptance.svg", "throughput.svg", "trials.svg"

_INK, _QUIET, _GRID = "#1f2328", "#656d76", "#d8dee4"
_BASELINE, _DRAFTER = "#6e7781", "#0969da"
_DECISIONS: dict[Decision, tuple[str, str]] = {
    "promote": ("#1a7f37", "o"),
    "reject": ("#cf222e", "X"),
    "inconclusive": ("#9a6700", "D"),
}
"""Colour and marker, so that the one can be missed."""
_STYLE: dict[Any, Any] = {
    "axes.edgecolor": _GRID,
    "axes.labelcolor": _INK,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "axes.titlepad": 12,
    "figure.facecolor": "white",
    "font.size": 9.5,
    "svg.hashsalt": "roost",
    "text.color": _INK,
    "text.parse_math": False,
    "xtick.color": _QUIET,
    "ytick.color": _QUIET,
}
_LABEL_CHARACTERS = 28


def draw_plots(verdict: VerdictReport) -> dict[str, bytes]:
    """The plots for which the verdict has figures, by file name; equal verdicts give equal bytes."""
    plots: dict[str, tuple[bool, Callable[[VerdictReport], Figure]]] = {
        SPEEDUP: (bool(verdict.levels), _speedup),
        THROUGHPUT: (len(verdict.levels) > 1, _throughput),
        ACCEPTANCE: (bool(verdict.categories), _acceptance),
    }
    with mpl.rc_context(_STYLE), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # a name in a script that the font lacks
        return {name: _svg(draw(verdict)) for name, (known, draw) in plots.items() if known}


def draw_tuning(report: TuningReport) -> dict[str, bytes]:
    """The trials of a tuning that were measured, the best on top; nothing where none was."""
    measured = [trial for trial in report.trials if trial.measurements and trial.outcome != "present"]
    if not measured:
        return {}
    with mpl.rc_context(_STYLE), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")
        return {TRIALS: _svg(_trials(measured, report.winner))}


def _trials(measured: list[TrialReport], winner: int | None) -> Figure:
    figure, axes = _new(7.6, 1.5 + 0.36 * len(measured))
    for place, trial in enumerate(measured):
        last = trial.measurements[-1]
        low, high = last.speedup_interval
        won, final = trial.number == winner, trial.outcome == "finalist"
        color = _DECISIONS["promote"][0] if won else _DRAFTER if final else _BASELINE
        axes.plot([low, high], [place, place], color=color, linewidth=2.5, solid_capstyle="round", alpha=0.45)
        axes.plot([last.speedup], [place], color=color, marker="*" if won else "o" if final else "|", markersize=9)
    axes.axvline(1.0, color=_QUIET, linewidth=1, linestyle=(0, (4, 3)))
    axes.set_yticks(range(len(measured)), [f"{trial.number}" for trial in measured])
    axes.set_ylim(len(measured) - 0.5, -0.5)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.2f}x"))
    axes.tick_params(length=0)
    axes.grid(axis="x", color=_GRID, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.set_title("Trials against the run file's own settings, last round of each, 95% interval")
    axes.set_xlabel("tokens per second, against those of the run file's settings")
    axes.set_ylabel("trial")
    return figure


def _svg(figure: Figure) -> bytes:
    written = io.BytesIO()
    figure.savefig(written, format="svg", metadata={"Date": None, "Creator": None})
    return written.getvalue()


def _new(width: float, height: float) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots()


def _speedup(verdict: VerdictReport) -> Figure:
    figure, axes = _new(6.4, 1.5 + 0.45 * len(verdict.levels))
    for place, level in enumerate(verdict.levels):
        color, marker = _DECISIONS[level.decision]
        low, high = level.speedup_interval
        axes.plot([low, high], [place, place], color=color, linewidth=2.5, solid_capstyle="round", alpha=0.45)
        axes.plot([level.speedup], [place], color=color, marker=marker, markersize=8)
        axes.annotate(
            f"{level.speedup:.2f}x",
            (level.speedup, place),
            xytext=(0, 8),
            textcoords="offset points",
            ha="center",
            color=color,
            weight="bold",
        )
    axes.axvline(1.0, color=_QUIET, linewidth=1, linestyle=(0, (4, 3)))
    axes.set_yticks(range(len(verdict.levels)), [_requests(level.concurrency) for level in verdict.levels])
    axes.set_ylim(len(verdict.levels) - 0.5, -0.7)
    ends = [1.0, *(end for level in verdict.levels for end in level.speedup_interval)]
    room = max(0.05, 0.12 * (max(ends) - min(ends)))
    axes.set_xlim(min(ends) - room, max(ends) + room)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.2f}x"))
    axes.tick_params(length=0)
    axes.grid(axis="x", color=_GRID, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.set_title("Speed-up with the drafter, 95% interval")
    axes.set_xlabel("tokens per second of a request, against those without the drafter")
    return figure


def _throughput(verdict: VerdictReport) -> Figure:
    figure, axes = _new(6.4, 3.4)
    places = range(len(verdict.levels))
    lines = (
        ("with the drafter", _DRAFTER, "o", [level.drafter_output_tokens_per_s for level in verdict.levels]),
        ("without", _BASELINE, "s", [level.baseline_output_tokens_per_s for level in verdict.levels]),
    )
    for name, color, marker, rates in lines:
        axes.plot(places, rates, color=color, marker=marker, linewidth=2, label=name)
    for place, *rates in zip(places, *(line[3] for line in lines), strict=True):
        for (_, color, _, _), rate in zip(lines, rates, strict=True):
            above = rate >= max(rates)
            axes.annotate(
                f"{rate:.3g}",
                (place, rate),
                xytext=(0, 8 if above else -8),
                textcoords="offset points",
                ha="center",
                va="bottom" if above else "top",
                color=color,
            )
    axes.xaxis.set_major_locator(FixedLocator(list(places)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xticklabels([str(level.concurrency) for level in verdict.levels])
    axes.set_xlim(-0.35, len(verdict.levels) - 0.65)
    axes.set_ylim(0, 1.18 * max(rate for line in lines for rate in line[3]))
    axes.tick_params(length=0)
    axes.grid(axis="y", color=_GRID, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.set_title("Output of the whole server")
    axes.set_xlabel("requests at a time")
    axes.set_ylabel("tokens per second")
    axes.legend(frameon=False, loc="upper left")
    return figure


def _acceptance(verdict: VerdictReport) -> Figure:
    categories = sorted(verdict.categories, key=lambda one: one.acceptance_length)
    figure, axes = _new(6.4, 1.4 + 0.32 * len(categories))
    lengths = [one.acceptance_length for one in categories]
    names = [_label(one.category) for one in categories]
    # Every verification brings one token anyway: the bar shows what the drafter adds.
    axes.barh(range(len(names)), [length - 1 for length in lengths], left=1.0, color=_DRAFTER, height=0.62, alpha=0.85)
    for place, length in enumerate(lengths):
        axes.annotate(
            f"{length:.2f}", (length, place), xytext=(5, 0), textcoords="offset points", va="center", color=_INK
        )
    axes.axvline(verdict.acceptance_length, color=_INK, linewidth=1, linestyle=(0, (4, 3)))
    axes.annotate(
        f"all {verdict.acceptance_length:.2f}",
        (verdict.acceptance_length, len(names) - 0.45),
        xytext=(4, 0),
        textcoords="offset points",
        va="bottom",
        color=_INK,
    )
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(-0.6, len(names) + 0.1)
    axes.set_xlim(1.0, 1.0 + 1.15 * max(0.1, *(length - 1.0 for length in (*lengths, verdict.acceptance_length))))
    axes.tick_params(length=0)
    axes.grid(axis="x", color=_GRID, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.set_title("Acceptance length by category")
    axes.set_xlabel("tokens per verification, the bonus token included")
    return figure


def _requests(concurrency: int) -> str:
    return "1 request\nat a time" if concurrency == 1 else f"{concurrency} requests\nat a time"


def _label(name: str) -> str:
    whole = one_line(name)
    return whole if len(whole) <= _LABEL_CHARACTERS else f"{whole[: _LABEL_CHARACTERS - 1]}…"
