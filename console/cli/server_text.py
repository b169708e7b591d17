"""What the verbs of `roost server` say to people."""

import shlex
from collections.abc import Sequence

from console.state.sanitize import one_line
from console.state.settings import RECAPTURES, settings_words
from console.state.units import UNKNOWN, format_duration
from remote.protocol.benchmark import BenchmarkReport, Spread
from remote.protocol.reports import RunPlan, ServerPlan
from remote.protocol.run import SweepValue
from remote.protocol.tuning import TrialPlan, TrialReport, TuningPlan, TuningReport


def server_lines(plan: RunPlan) -> list[str]:
    """The engine's commands of a run's servers, each as it can be pasted into the host's shell."""
    lines: list[str] = []
    for title, name in (("captures hidden states", "server"), ("serves with the drafter", "serving")):
        for stage in plan.stages:
            if stage.stage == name and stage.command:
                lines += [f"# {title}", pasteable(stage.command, stage.environment), ""]
            elif stage.stage == name and plan.problems:
                lines += [
                    f"# {title}: not known before the problems below are mended, for it depends on the target's layers",
                    "",
                ]
    return [*lines, *(f"problem: {one_line(problem)}" for problem in plan.problems)]


def pasteable(command: list[str], environment: dict[str, str]) -> str:
    """A command with its environment, an option a line."""
    words = [f"{key}={value}" for key, value in environment.items()]
    return " \\\n  ".join(["env", *map(_quoted, words), *_by_option(command)])


def _by_option(command: list[str]) -> list[str]:
    """The command with every option and its values in one piece."""
    pieces: list[str] = []
    for word in map(_quoted, command):
        if pieces and not word.startswith("-"):
            pieces[-1] += f" {word}"
        else:
            pieces.append(word)
    return pieces


def _quoted(word: str) -> str:
    return shlex.quote(one_line(word))


def server_plan_lines(plan: ServerPlan) -> list[str]:
    """The command of one server, then what stands in the way."""
    command = [pasteable(plan.command, plan.environment)] if plan.command else []
    return [*command, *(f"problem: {one_line(problem)}" for problem in plan.problems)]


def benchmark_lines(report: BenchmarkReport) -> list[str]:
    """A level a line: medians with their quartiles, and what they were measured on."""
    spec = report.spec
    settings = spec.benchmark
    drafter = "" if spec.server.drafter is None else f" with {one_line(spec.server.drafter.model)}"
    served = f"{one_line(f'{report.engine} {report.engine_version}')}, {one_line(spec.server.model)}{drafter}"
    asked = f"{report.prompts} prompts of {one_line(spec.prompts)}, {settings.repeats} times, greedily"
    lines = [
        f"server    {spec.server_job_id}: {served}",
        f"on        {one_line(report.host_name)}, {one_line(', '.join(report.devices))}",
        f"asked     {asked}, at most {settings.max_tokens} tokens each",
        "",
    ]
    rows = [("AT A TIME", "DECODE tok/s", "SERVER tok/s", "FIRST TOKEN", "WHOLE ANSWER", "ACCEPTANCE", "ODD")]
    rows += [
        (
            str(level.concurrency),
            UNKNOWN if level.decode_tokens_per_s is None else _rates(level.decode_tokens_per_s),
            _rates(level.output_tokens_per_s),
            _seconds(level.time_to_first_token_s),
            _seconds(level.end_to_end_s),
            UNKNOWN if level.acceptance_length is None else f"{level.acceptance_length:.2f}",
            f"{level.odd} of {len(level.requests)}",
        )
        for level in report.levels
    ]
    lines += aligned(rows)
    lines += [
        "",
        "Medians, with quartiles in brackets. Decode is of one request, after its first token; server is of all together.",
    ]
    if any(level.odd for level in report.levels):
        lines.append("Odd answers are empty or repeat themselves: with many of them the rates flatter.")
    return lines


def _cost(plan: TuningPlan) -> str:
    return f"{plan.launches} servers one after the other, {plan.requests} requests; kept in {one_line(plan.directory)}"


def tuning_plan_lines(plan: TuningPlan) -> list[str]:
    """Every trial with what keeps it from being launched, the rounds, then the problems."""
    rows = [("TRIAL", "SETTINGS", "")]
    rows += [
        (str(trial.number), settings_words(trial.settings), one_line(trial.problem or _aside(trial)))
        for trial in plan.trials
    ]
    rounds = [
        f"round {number}: {one.trials} {'trial' if one.trials == 1 else 'trials'} and the present settings, "
        f"{one.prompts} prompts each"
        for number, one in enumerate(plan.rounds, 1)
    ]
    return [
        *_swept(plan),
        "",
        *aligned(rows),
        "",
        *rounds,
        *([_cost(plan)] if any(trial.problem is None for trial in plan.trials[1:]) else []),
        *([f"captures anew: {RECAPTURES}."] if any(map(_aside, plan.trials)) else []),
        *(f"problem: {one_line(problem)}" for problem in plan.problems),
    ]


def _swept(plan: TuningPlan) -> list[str]:
    """What is tried, with what the run file has from its preset."""
    config = plan.run.tuning
    if config is None:
        return []
    drafter = "with the drafter that the run trained" if config.drafter else "without a drafter"
    keys = [f"sweeps {one_line(key)}: {_values(values)}" for key, values in config.sweep.items()]
    return [f"serves {drafter}", *keys]


def _values(values: Sequence[SweepValue]) -> str:
    return one_line(", ".join(settings_words(value) if isinstance(value, dict) else str(value) for value in values))


def _aside(trial: TrialPlan) -> str:
    return "captures anew" if trial.recaptures else ""


def tuning_lines(report: TuningReport) -> list[str]:
    """Every trial with its last measurement, the best first, and what to do with it."""
    config = report.run.tuning
    objective = "" if config is None else f" {config.objective.replace('_', ' ')}, {config.concurrency} at a time"
    rows = [("TRIAL", "SETTINGS", "ROUND", "tok/s", "SPEED-UP", "ACCEPTANCE", "")]
    rows += [_trial_row(trial) for trial in report.trials]
    winner = next((trial for trial in report.trials if trial.number == report.winner), None)
    verdict = "no winner" if winner is None else f"winner: {settings_words(winner.settings)}"
    return [
        f"tuning of {report.run.name} on {one_line(report.host_name)}, {one_line(', '.join(report.devices))}",
        f"{one_line(f'{report.engine} {report.engine_version}')},{objective}",
        "",
        *aligned(rows),
        "",
        verdict,
        one_line(report.reason),
        *([f"captures anew: {RECAPTURES}."] if winner is not None and winner.recaptures else []),
    ]


def _trial_row(trial: TrialReport) -> tuple[str, ...]:
    # What the engine said last follows on lines of its own; the job has them, and the report.
    settings, reason = settings_words(trial.settings), one_line(trial.reason.split("\n", 1)[0])
    if not trial.measurements:
        return (str(trial.number), settings, "", "", "", "", f"{trial.outcome}: {reason}")
    last = trial.measurements[-1]
    low, high = last.speedup_interval
    return (
        str(trial.number),
        settings,
        str(last.round),
        f"{last.tokens_per_s:.1f}",
        f"{last.speedup:.2f}x ({low:.2f} to {high:.2f})",
        UNKNOWN if last.acceptance_length is None else f"{last.acceptance_length:.2f}",
        f"{trial.outcome}: {reason}" if reason else trial.outcome,
    )


def aligned(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """The rows as columns."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _rates(spread: Spread) -> str:
    return f"{spread.median:.1f} ({spread.lower:.1f} to {spread.upper:.1f})"


def _seconds(spread: Spread) -> str:
    return f"{_short(spread.median)} ({_short(spread.lower)} to {_short(spread.upper)})"


def _short(seconds: float) -> str:
    return (
        f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s" if seconds < 60 else format_duration(seconds)
    )
