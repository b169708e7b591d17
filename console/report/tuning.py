"""A tuning as a Markdown page: the winner first, then every trial; pure."""

import time
from collections.abc import Sequence

from console.report.page import block, pasteable, picture, table, text
from console.state.settings import RECAPTURES, settings_words
from remote.protocol.tuning import TrialReport, TuningReport


def tuning_markdown(report: TuningReport, plots: Sequence[str] = ()) -> str:
    """The page; `plots` names the pictures beside it. Every word of a host is made harmless."""
    winner = next((trial for trial in report.trials if trial.number == report.winner), None)
    sections = (
        _opening(report, winner),
        picture(plots, "trials.svg", "Trials against the run file's own settings"),
        _trials(report.trials),
        [] if winner is None or not winner.command else _command(winner),
    )
    return "\n\n".join("\n".join(lines) for lines in sections if lines) + "\n"


def _opening(report: TuningReport, winner: TrialReport | None) -> list[str]:
    measured = time.strftime("%Y-%m-%d %H:%M", time.gmtime(report.measured_at))
    engine, config = text(f"{report.engine} {report.engine_version}"), report.run.tuning
    asked = "" if config is None else f", {config.concurrency} at a time, at most {config.max_tokens} tokens each"
    return [
        f"# Tuning of {text(report.run.name)}: {'no winner' if winner is None else f'trial {winner.number}'}",
        "",
        *([] if winner is None else [f"**{text(settings_words(winner.settings))}**", ""]),
        f"{text(report.reason)[:1].upper()}{text(report.reason)[1:]}.",
        "",
        *([f"{text(RECAPTURES)}.", ""] if winner is not None and winner.recaptures else []),
        f"Measured {measured} UTC on {text(report.host_name)} ({text(', '.join(report.devices))}) with {engine}{asked}.",
        "",
        f"Prompts: SHA-256 `{report.prompts_sha256[:16]}…`.",
    ]


def _command(winner: TrialReport) -> list[str]:
    return ["## The winner's command", "", *block(pasteable(winner.command, winner.environment))]


def _trials(trials: Sequence[TrialReport]) -> list[str]:
    head = ("Trial", "Settings", "Rounds", "tok/s", "Speed-up (95%)", "Acceptance", "End")
    return ["## Trials", "", *table(head, map(_row, trials))]


def _row(trial: TrialReport) -> tuple[str, ...]:
    end = text(f"{trial.outcome}: {trial.reason}" if trial.reason else trial.outcome)
    cells = (str(trial.number), text(settings_words(trial.settings)), str(len(trial.measurements)))
    if not trial.measurements:
        return (*cells, "", "", "", end)
    last = trial.measurements[-1]
    low, high = last.speedup_interval
    acceptance = "" if last.acceptance_length is None else f"{last.acceptance_length:.2f}"
    return (*cells, f"{last.tokens_per_s:.1f}", f"{last.speedup:.2f}x ({low:.2f} to {high:.2f})", acceptance, end)
