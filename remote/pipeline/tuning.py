"""A tuning: which trials there are, in how many rounds, and who goes on; pure but for what planning asks of the host."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import product
from math import ceil
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from remote.agents.server.plan import engine_command, read_model_config
from remote.errors import RoostError, UsageError
from remote.jobs.gpu_demand import GpuDemand, gpu_demand
from remote.jobs.store import JobStore
from remote.paths import resolve_path
from remote.pipeline.config import lay_over, load_run
from remote.pipeline.fingerprints import captures_alike
from remote.pipeline.finished import report_directory
from remote.pipeline.inputs import describe_prompts
from remote.pipeline.layout import lay_out
from remote.pipeline.problems import check_engine, check_gpus, check_secrets, check_speculation, say
from remote.pipeline.serving import check_server, evaluated_server
from remote.pipeline.speedup import Figures, ratio, ratio_interval
from remote.pipeline.stages import section_of
from remote.protocol.benchmark import MOST_REQUESTS, BenchmarkLevel
from remote.protocol.codec import MAX_LINE_BYTES
from remote.protocol.run import BenchmarkConfig, RunConfig, SweepValue, TuningConfig
from remote.protocol.specs import ServerSpec
from remote.protocol.tuning import Settings, TrialPlan, TuningPlan, TuningReport, TuningRound

REPORT_NAME = "report.json"
_MOST_TRIALS = 256
_SERVING_SECTIONS = ("serving", "speculation", "evaluation")
_MEASUREMENT_BYTES = 600
_REASON_BYTES = 500
_FINALISTS = 2
_FEWEST_PROMPTS = 4
_QUIET_DRIFT = 0.15
"""From here on a host is told not to be quiet: the same server was not as fast at the end as at the beginning."""

_ODD_SHARE = 0.1
"""By how much the share of odd answers may exceed that of the present settings."""


class Trial(NamedTuple):
    """One combination by its number, 0 being what the run has; `spec` is None where the settings are no run file's.

    `recaptures` says that with it the run's hidden states are others.
    """

    number: int
    settings: Settings
    spec: ServerSpec | None
    problem: str | None
    recaptures: bool = False


class Comparison(NamedTuple):
    """A rate in tokens per second, and its ratio to that of the present settings with a 95% interval."""

    tokens_per_s: float
    speedup: float
    interval: tuple[float, float]


class Standing(NamedTuple):
    """A trial as a round left it; a `fault` keeps it from going on however fast it was."""

    number: int
    speedup: float
    fault: str | None


def tuning_of(run: RunConfig) -> TuningConfig:
    """The run's tuning; raises UsageError where it has none."""
    if run.tuning is None:
        raise UsageError(
            f"the run file of {run.name} has no [tuning]",
            hint='Say what to try, such as [tuning.sweep] "speculation.num_steps" = [1, 2, 3].',
        )
    return run.tuning


def plan_tuning(document: str, overrides: Mapping[str, str], *, root: Path, python: str) -> TuningPlan:
    """The tuning of the run file `document` with `overrides`; raises UsageError or NotFound where the file is wrong.

    `python` is the interpreter of the jobs. What keeps a single trial from being launched is told with it.
    """
    run = load_run(document, overrides)
    config = tuning_of(run)
    trials = plan_trials(draw_trials(run, root), run, root, python)
    challengers = sum(trial.problem is None for trial in trials[1:])
    rounds = plan_rounds(challengers, config)
    launches = sum(one.trials + 1 for one in rounds) + 1
    asked = sum((one.trials + 1) * one.prompts for one in rounds) + rounds[-1].prompts
    plan = TuningPlan(
        run=run,
        directory=str(lay_out(run, root).tuning),
        trials=trials,
        rounds=rounds,
        launches=launches,
        requests=asked * config.repeats,
        problems=list(_problems(run, trials, root, python)),
    )
    _require_room_for_report(plan)
    return plan


def _require_room_for_report(plan: TuningPlan) -> None:
    """The report has what the plan has and the measurements; it is asked for after hours, too late to find it too long."""
    size = len(msgspec.json.encode(plan)) + plan.launches * _MEASUREMENT_BYTES + len(plan.trials) * _REASON_BYTES
    if size > MAX_LINE_BYTES:
        raise UsageError(
            f"the report of {len(plan.trials)} trials with commands this long would take some {size >> 10} KiB; "
            f"at most {MAX_LINE_BYTES >> 10} KiB can be told",
            hint="Sweep fewer values at a time, or put long values into a file that a flag names.",
        )


def draw_trials(run: RunConfig, root: Path) -> list[Trial]:
    """What the run has now, then every combination of its sweep that makes another server; raises UsageError for too many."""
    config = tuning_of(run)
    if (count := int(np.prod([len(values) for values in config.sweep.values()], dtype=object))) > _MOST_TRIALS:
        raise UsageError(
            f"tuning.sweep has {count} combinations; at most {_MOST_TRIALS} are tried",
            hint="Sweep fewer keys at a time: the winner of one sweep can be the beginning of the next.",
        )
    for key in config.sweep:
        _require_serving(key, run)
    trials = [Trial(0, {}, evaluated_server(run, drafter=config.drafter, root=root), None)]
    known = {msgspec.json.encode(trials[0].spec)}
    for values in product(*config.sweep.values()):
        settings = _flat(zip(config.sweep, values, strict=True))
        trial = _draw_trial(len(trials), settings, run, root)
        mark = msgspec.json.encode(trial.spec)
        if trial.spec is None or mark not in known:
            trials.append(trial)
            known.add(mark)
    return trials


def _require_serving(key: str, run: RunConfig) -> None:
    """A sweep is over how the target is served: with another target, or other prompts, rates are not to be compared."""
    section = section_of(run)
    if key.partition(".")[0] in {section, *_SERVING_SECTIONS}:
        return
    where = "[serving] says how this run serves" if section == "serving" else "a tuning tries how a server serves"
    raise UsageError(
        f"tuning.sweep names {key!r}, but {where}",
        hint=f"Sweep keys of {section}, speculation or evaluation, such as {section}.flags.NAME.",
    )


def _flat(chosen: Iterable[tuple[str, SweepValue]]) -> Settings:
    """A key for every single value."""
    settings: Settings = {}
    for key, value in chosen:
        if isinstance(value, dict):
            settings |= {f"{key}.{below}": single for below, single in value.items()}
        else:
            settings[key] = value
    return settings


def _draw_trial(number: int, settings: Settings, run: RunConfig, root: Path) -> Trial:
    drafter = tuning_of(run).drafter
    try:
        spec = evaluated_server(lay_over(run, settings), drafter=drafter, root=root)
        settings = _effective(settings, spec, run, root)
        changed = lay_over(run, settings)
    except RoostError as error:
        return Trial(number, settings, None, say(error))
    problem = next(check_speculation(changed), None) if drafter else None
    return Trial(number, settings, spec, problem, recaptures=not captures_alike(run, changed))


def _effective(settings: Settings, spec: ServerSpec, run: RunConfig, root: Path) -> Settings:
    """Without the keys that make no difference to `spec`: a winner that wrote them down could change what is captured."""
    mark, kept = msgspec.json.encode(spec), dict(settings)
    for key in settings:
        rest = {other: value for other, value in kept.items() if other != key}
        try:
            without = evaluated_server(lay_over(run, rest), drafter=tuning_of(run).drafter, root=root)
        except RoostError:  # the others need it
            continue
        if msgspec.json.encode(without) == mark:
            kept = rest
    return kept


def plan_trials(trials: Sequence[Trial], run: RunConfig, root: Path, python: str) -> list[TrialPlan]:
    """Each trial's command, and what keeps it from being launched on this host."""
    devices: dict[GpuDemand, list[str]] = {}

    def troubles(spec: ServerSpec) -> Iterator[str]:
        yield from check_engine([spec], root, python)
        yield from check_secrets(spec.engine, root, spec.section)
        demand = gpu_demand(spec)
        if demand not in devices:  # the driver is asked once for all that need the same
            devices[demand] = list(check_gpus(run.name, demand, spec.section))
        yield from devices[demand]

    return [_plan_trial(trial, python, troubles) for trial in trials]


def _plan_trial(trial: Trial, python: str, troubles: Callable[[ServerSpec], Iterator[str]]) -> TrialPlan:
    argv: list[str] = []
    environment: dict[str, str] = {}
    problem = trial.problem
    if trial.spec is not None:
        try:
            model = read_model_config(trial.spec.model)
            command = engine_command(trial.spec, python=python, port=0, model_config=model)
            argv, environment = command.argv, command.environment
            problem = problem or next(troubles(trial.spec), None)
        except RoostError as error:
            problem = problem or say(error)
    return TrialPlan(
        number=trial.number,
        settings=trial.settings,
        command=argv,
        environment=environment,
        problem=problem,
        recaptures=trial.recaptures,
    )


def _problems(run: RunConfig, trials: Sequence[TrialPlan], root: Path, python: str) -> Iterator[str]:
    config = tuning_of(run)
    base = evaluated_server(run, drafter=config.drafter, root=root)
    if trials[0].problem is not None:
        yield trials[0].problem
    else:
        yield from check_server(run.name, base, root, python)
    try:
        prompts = describe_prompts(resolve_path(root, run.data.evaluation))
    except RoostError as error:
        yield say(error)
    else:
        if prompts.count < config.prompts:
            yield f"{prompts.path} holds {prompts.count} prompts, but tuning.prompts asks for {config.prompts}. Ask for fewer."
    if (asked := config.prompts * config.repeats) > MOST_REQUESTS:
        yield (
            f"tuning.prompts and tuning.repeats make {asked} requests a trial; at most {MOST_REQUESTS} are measured. "
            f"Ask for fewer."
        )
    if config.concurrency > config.prompts:
        yield f"tuning.concurrency is {config.concurrency}, but tuning.prompts only {config.prompts}. Ask for more prompts."
    if all(trial.problem is not None for trial in trials[1:]):
        yield "no combination of tuning.sweep can be launched and differs from what the run file has. Try other values."


def plan_rounds(challengers: int, config: TuningConfig) -> list[TuningRound]:
    """Half as many trials and twice as many prompts from round to round (successive halving, Jamieson and Talwalkar 2016)."""
    counts = [challengers]
    while counts[-1] > _FINALISTS:
        counts.append(ceil(counts[-1] / 2))
    fewest = min(config.prompts, max(config.concurrency, _FEWEST_PROMPTS))
    last = len(counts) - 1
    return [
        TuningRound(trials=count, prompts=max(fewest, ceil(config.prompts / 2 ** (last - place))))
        for place, count in enumerate(counts)
    ]


def benchmark_of(config: TuningConfig, prompts: int) -> BenchmarkConfig:
    """How a trial is measured in a round of so many prompts."""
    return BenchmarkConfig(
        concurrency=[config.concurrency],
        prompts=prompts,
        repeats=config.repeats,
        max_tokens=config.max_tokens,
        warmup_prompts=config.warmup_prompts,
    )


def compare(base: Sequence[BenchmarkLevel], trial: BenchmarkLevel, objective: str) -> Comparison:
    """The trial against all measurements of the present settings, prompt by prompt.

    Raises UsageError where no prompt was answered in both so that it has a rate.
    """
    before, after = _by_prompt(base, objective), _by_prompt([trial], objective)
    shared = sorted(before.keys() & after.keys())
    if not shared:
        raise UsageError(
            "no prompt has a rate in both measurements: each answer ended with its first token, or other prompts were asked",
            hint="look at the prompts, and at the target's chat template and end-of-sequence tokens",
        )
    figures: Figures = np.array([[*before[prompt], *after[prompt]] for prompt in shared])
    found = ratio(figures)
    low, high = ratio_interval(figures, seed=0)
    tokens, seconds = figures[:, 2].sum(), figures[:, 3].sum()
    return Comparison(float(tokens / seconds), found, (min(low, found), max(high, found)))


def _by_prompt(levels: Sequence[BenchmarkLevel], objective: str) -> dict[str, tuple[float, float]]:
    """Tokens and seconds of each prompt over all its answers; without those that have no rate."""
    sums: dict[str, tuple[float, float]] = {}
    for request in (request for level in levels for request in level.requests):
        tokens, seconds = float(request.output_tokens), request.end_to_end_s
        if objective == "decode":
            tokens, seconds = tokens - 1, seconds - request.time_to_first_token_s
        so_far = sums.get(request.prompt_id, (0.0, 0.0))
        sums[request.prompt_id] = (so_far[0] + max(0.0, tokens), so_far[1] + max(0.0, seconds))
    return {prompt: (tokens, seconds) for prompt, (tokens, seconds) in sums.items() if tokens > 0 and seconds > 0}


def oddity_of(base: BenchmarkLevel, trial: BenchmarkLevel) -> str | None:
    """Why the trial's answers are not worth their speed: a faster server that says nothing, or the same thing over and over."""
    share, usual = trial.odd / len(trial.requests), base.odd / len(base.requests)
    if share <= usual + _ODD_SHARE:
        return None
    return f"{trial.odd} of {len(trial.requests)} answers are empty or repeat themselves ({base.odd} before)"


def who_goes_on(standings: Sequence[Standing], places: int) -> list[int]:
    """The fastest `places` without a fault, the best first; ties go to the lower number."""
    sound = [one for one in standings if one.fault is None]
    return [one.number for one in sorted(sound, key=lambda one: (-one.speedup, one.number))[:places]]


def choose(finalists: Sequence[tuple[int, Comparison]], drift: float) -> tuple[int | None, str]:
    """The winner of the last round, the best first, or None where nothing is surely faster; and why.

    Its interval must lie above 1, and it must gain more than the present settings differ from themselves.
    """
    if not finalists:
        return None, "no trial reached the last round"
    number, best = finalists[0]
    low, high = best.interval
    said = f"trial {number} is {best.speedup:.2f} times as fast (95% interval {low:.2f} to {high:.2f})"
    drifted = f"the run file's own settings, measured before and after, differ by {drift:.0%} from themselves"
    if drift > _QUIET_DRIFT:
        drifted += ": this host was not quiet, measure again when it is"
    if low <= 1:
        return None, f"the best, {said}: not surely faster than what the run file has; {drifted}"
    if best.speedup - 1 <= drift:
        return None, f"the best, {said}, but {drifted}"
    return number, f"{said}; {drifted}"


def read_tuning(store: JobStore, job_id: str) -> TuningReport:
    """What the tuning `job_id` found; raises as `report_directory` does."""
    return msgspec.json.decode(
        (report_directory(store, job_id, "tuning") / REPORT_NAME).read_bytes(), type=TuningReport
    )
